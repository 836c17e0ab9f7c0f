//! Objects at random, encoded by the real encoder: our JSON of them is what Go writes.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;
use windlass_apiserver::protobuf;

const COUNT: usize = 400;

#[test]
fn random_objects_of_every_kind_become_the_json_that_go_writes() -> Result<()> {
    let seed = std::process::id().to_string();
    let output = Command::new("go")
        .args(["run", "./protobuf", "random", &COUNT.to_string(), &seed])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .context("run go")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    assert_eq!(text.lines().count(), COUNT);
    for line in text.lines() {
        let mut words = line.splitn(4, ' ');
        let what = format!("seed {seed}: {:?} {:?}", words.next(), words.next());
        let body = STANDARD.decode(words.next().context("a body")?)?;
        let expected: Value = serde_json::from_str(words.next().context("its JSON")?)?;
        let json = protobuf::to_json(&body).with_context(|| what.clone())?;
        assert_eq!(serde_json::from_slice::<Value>(&json)?, expected, "{what}");
    }
    Ok(())
}

/// What is checked in is what the pinned version of k8s.io/api makes.
#[test]
fn the_table_and_the_golden_objects_are_those_of_the_pinned_version() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let made = Command::new("go")
        .args(["run", "./protobuf"])
        .arg(directory.path())
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .context("run go")?;
    ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/apiserver/src/protobuf");
    for name in ["schema.txt", "golden.txt"] {
        let fresh = std::fs::read_to_string(directory.path().join("src/protobuf").join(name))?;
        let checked_in = std::fs::read_to_string(ours.join(name))?;
        ensure!(fresh == checked_in, "{name} is not what conformance/protobuf makes; its header says how to");
    }
    Ok(())
}
