//! Project chores, run as `cargo xtask <task>`.

mod check;
mod conformance;
mod coverage;
mod fuzz;
mod machine;
mod purity;
mod python;
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
  reference  build the programs of the real Kubernetes that tests compare with, and get what else they need
  conformance  all comparisons with the real Kubernetes, also those that take long; or one of them: scenarios, crashes,
             random, gates, house. `conformance e2e` runs the upstream tests of Jobs on a server of ours, or on the
             cluster of KUBECONFIG
  bench      the benchmarks of bench/, and the bars they must reach
  bench-server  windlass server beside the real kube-apiserver and etcd, and the bars it must reach
  bench-scheduler  how many pods a second are bound on 100 nodes, and the bar that must be reached
  bench-controller  the Job controller beside that of Kubernetes, on the real API server; arguments as in
             bench/src/bin/controller
  book       the documentation as a book, in target/book
  fuzz       every target of fuzz/, for 20 seconds each or as many as the number given says
  kill-loop  kills a process that writes to the store, 10,000 times or as often as the number given says, and looks
             whether every acknowledged write is there
  kill-node  kills a node 50 times, or as often as the number given says, while 200 pods run, and looks whether every end
             is counted once and nothing is left";

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let result = match task.as_str() {
        "test" => test(),
        "check" => check::all(),
        "coverage" => coverage::measure(),
        "reference" => reference::install(),
        "conformance" => conformance::run_part(std::env::args().nth(2).as_deref()),
        "bench-server" => bench_server(),
        "kill-loop" => kill_loop(std::env::args().nth(2).as_deref().unwrap_or("10000")),
        "kill-node" => kill_node(std::env::args().nth(2).as_deref().unwrap_or("50")),
        "book" => book(),
        "fuzz" => fuzz::run_all(std::env::args().nth(2)),
        "bench-scheduler" => bench("windlass-bench-scheduler", &[]),
        "bench-controller" => bench_controller(),
        "bench" => run(
            "cargo",
            &["bench", "--package", "windlass-bench", "--package", "windlass-store", "--benches"],
        ),
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
    python::install()?;
    // All that fails is shown, not only the first.
    run("cargo", &["test", "--workspace", "--no-fail-fast"])?;
    fuzz::run_for(fuzz::SECONDS_IN_TEST)?;
    coverage::measure()
}

/// Measures what `cargo install` gives to users. All of it is built, so that every measurement shares one build.
fn bench(program: &str, args: &[&str]) -> Result<()> {
    run("cargo", &["build", "--release", "--workspace", "--bins"])?;
    run(&built(program), args)
}

fn bench_controller() -> Result<()> {
    reference::install()?;
    let args: Vec<String> = std::env::args().skip(2).collect();
    bench("controller", &args.iter().map(String::as_str).collect::<Vec<_>>())
}

/// Measures our server and the real one, one after the other.
fn bench_server() -> Result<()> {
    reference::install()?;
    bench("windlass-bench-server", &[&built("windlass")])
}

/// Where that build puts a program.
fn built(program: &str) -> String {
    root().join("target/release").join(program).display().to_string()
}

/// The checkout that this program was built from.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Builds the book. Whether its links lead somewhere is a test.
fn book() -> Result<()> {
    tools::install("mdbook", "0.5.4")?;
    run("mdbook", &["build", &root().display().to_string()])
}

/// The test of the same name, with more rounds than the test run has time for.
fn kill_loop(rounds: &str) -> Result<()> {
    rounds.parse::<u64>().with_context(|| format!("{rounds:?} is not a number of rounds"))?;
    let test = "every_acknowledged_write_survives_kill_9";
    let args = ["test", "--release", "--package", "windlass-store", "--test", "kill", "--", "--exact", test];
    run_with(&args, "WINDLASS_KILL_ROUNDS", rounds)
}

/// The same for a node that runs pods.
fn kill_node(kills: &str) -> Result<()> {
    kills.parse::<u64>().with_context(|| format!("{kills:?} is not a number of kills"))?;
    let test = "kills::a_node_killed_at_random_while_pods_run_counts_every_end_once_and_leaves_nothing";
    // All features of the workspace, so that nothing is built anew for it.
    let args = ["test", "--workspace", "--test", "e2e", "--", "--exact", test, "--nocapture"];
    run_with(&args, "WINDLASS_NODE_KILLS", kills)
}

/// Runs cargo with an environment variable and with its output shown.
fn run_with(args: &[&str], variable: &str, value: &str) -> Result<()> {
    eprintln!("+ {variable}={value} cargo {}", args.join(" "));
    let status = Command::new("cargo").args(args).env(variable, value).status().context("start cargo")?;
    if !status.success() {
        bail!("cargo {} failed: {status}", args.join(" "));
    }
    Ok(())
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
