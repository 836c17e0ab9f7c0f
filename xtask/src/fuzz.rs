//! Fuzzing for a bounded time: every target of `fuzz/`, beginning with its checked-in corpus.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{root, run, tools};

/// With each target for so long when nothing else is said.
const SECONDS: u64 = 20;

/// With each target as part of all tests: enough for the corpus and its neighbourhood.
pub const SECONDS_IN_TEST: u64 = 5;

/// No sanitizer: there is no unsafe code to look at, and the installed compiler need not be a nightly one.
const NO_SANITIZER: [&str; 2] = ["--sanitizer", "none"];

/// An input that takes longer or more memory than this is a finding too.
const LIMITS: [&str; 4] = ["-timeout=10", "-rss_limit_mb=1024", "-max_len=65536", "-print_final_stats=1"];

/// `cargo xtask fuzz [seconds]`.
pub fn run_all(seconds: Option<String>) -> Result<()> {
    match seconds {
        None => run_for(SECONDS),
        Some(text) => run_for(text.parse().with_context(|| format!("{text:?} is not a number of seconds"))?),
    }
}

/// Runs every target for so many seconds. What is found is left in `fuzz/artifacts`.
pub fn run_for(seconds: u64) -> Result<()> {
    tools::install("cargo-fuzz", "0.13.2")?;
    let fuzz = root().join("fuzz");
    let directory = fuzz.to_str().context("the checkout has a name that is not UTF-8")?;
    let common = |task| {
        let mut args = vec!["fuzz", task, "--fuzz-dir", directory];
        args.extend(NO_SANITIZER);
        args
    };
    run("cargo", &common("build"))?;
    for target in targets(&fuzz)? {
        // What is new goes to a directory of its own, so that a run does not change the checkout.
        let found = std::env::temp_dir().join(format!("windlass-fuzz-{}-{target}", std::process::id()));
        std::fs::create_dir_all(&found).with_context(|| format!("make {}", found.display()))?;
        let mut args: Vec<String> = common("run").into_iter().map(str::to_owned).collect();
        args.push(target.clone());
        args.push(found.display().to_string());
        args.push(fuzz.join("corpus").join(&target).display().to_string());
        args.extend(["--".to_owned(), format!("-max_total_time={seconds}")]);
        args.extend(LIMITS.map(str::to_owned));
        let ended = run("cargo", &args.iter().map(String::as_str).collect::<Vec<_>>());
        std::fs::remove_dir_all(&found).with_context(|| format!("remove {}", found.display()))?;
        ended.with_context(|| format!("fuzz {target}"))?;
    }
    Ok(())
}

/// The targets that cargo-fuzz knows, each of which must have a corpus.
fn targets(fuzz: &Path) -> Result<Vec<String>> {
    let output = Command::new("cargo")
        .args(["fuzz", "list", "--fuzz-dir"])
        .arg(fuzz)
        .output()
        .context("run cargo fuzz list")?;
    let text = String::from_utf8(output.stdout).context("read the list of targets")?;
    let targets: Vec<String> = text.lines().map(str::to_owned).collect();
    if targets.is_empty() {
        bail!("cargo fuzz list names no target: {}", String::from_utf8_lossy(&output.stderr));
    }
    match targets.iter().find(|target| !fuzz.join("corpus").join(target).is_dir()) {
        Some(target) => bail!("the target {target} has no corpus"),
        None => Ok(targets),
    }
}
