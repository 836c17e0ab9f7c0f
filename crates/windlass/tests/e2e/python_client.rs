//! The Python client of Kubernetes, as it is.

use std::path::{Path, PathBuf};
use std::process::Command;

use windlass_conformance::assets;

use crate::server::Served;
use crate::support::Running;

/// The version that `cargo xtask test` installs; `xtask/src/python.rs` has it too.
const CLIENT: &str = "kubernetes-37.0.2";

fn python() -> PathBuf {
    let path = assets::cache().expect("a cache").join(format!("python-{CLIENT}")).join("bin/python");
    assert!(path.exists(), "{} is not there: run `cargo xtask test`", path.display());
    path
}

#[test]
fn the_python_client_notices_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/python_client.py");
    let mut command = Command::new(python());
    command.arg(script).arg(directory.path().join("kubeconfig")).env("PYTHONDONTWRITEBYTECODE", "1");
    let ran = Running::spawn(&mut command).finish();
    assert_eq!(ran.code, Some(0), "{}{}", ran.stdout, ran.stderr);
    println!("{}", ran.stdout);
    let done: Vec<&str> = ran.stdout.lines().filter_map(|line| line.strip_prefix("ok: ")).collect();
    let want = [
        "strict TLS",
        "version",
        "typed Job",
        "logs",
        "patch",
        "replace",
        "delete",
        "typed Pod, watch, exec",
        "errors",
        "dynamic client",
        "server-side apply",
    ];
    assert_eq!(done, want, "{}", ran.stderr);
    drop(served);
}
