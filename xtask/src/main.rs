//! Project chores, run as `cargo xtask <task>`.

mod check;
mod conformance;
mod coverage;
mod purity;
mod reference;
mod tools;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

const HELP: &str = "\
Usage: cargo xtask <task>

Tasks:
  test       everything that must hold: formatting, lints, dependencies, all tests, coverage
  check      the quick part of it: formatting, lints, purity of the core
  coverage   line coverage of crates/api and crates/job, and the bars they must reach
  reference  build the programs of the real Kubernetes that tests compare with
  conformance  all comparisons with the real Kubernetes, also those that take long
  bench      the benchmarks of bench/, and the bars they must reach";

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let result = match task.as_str() {
        "test" => test(),
        "check" => check::all(),
        "coverage" => coverage::measure(),
        "reference" => reference::install(),
        "conformance" => conformance::all(),
        "bench" => run("cargo", &["bench", "--package", "windlass-bench"]),
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask {task}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The one test command: installs what it needs and runs everything.
fn test() -> Result<()> {
    check::all()?;
    check::dependencies()?;
    reference::install()?;
    run("cargo", &["test", "--workspace"])?;
    coverage::measure()
}

/// The checkout that this program was built from.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Runs a command with its output shown.
fn run(program: &str, args: &[&str]) -> Result<()> {
    eprintln!("+ {program} {}", args.join(" "));
    let status = Command::new(program).args(args).status().with_context(|| format!("start {program}"))?;
    if !status.success() {
        bail!("{program} {} failed: {status}", args.join(" "));
    }
    Ok(())
}
