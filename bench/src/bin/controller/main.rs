//! The Job controller beside that of Kubernetes, on the same real API server, one after the other in one run.
//!
//! Kubelets are played: a pod that is seen pending is patched to its end. Each measurement has an API server and an etcd
//! of its own, so that nothing is left of the one before.

mod body;
mod figures;
mod load;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};

use body::Kind;
use figures::Figures;
use load::Scenario;

const HELP: &str = "\
Usage: controller [--pods N] [--jobs N] [--rounds N] [--windlass FILE] [SCENARIO ...]

Scenarios: succeed, fail-per-index, one, hundred, steady, many, beside (default: all)

  --pods N         pods of the large Jobs (default 10000)
  --jobs N         Jobs of `many`, with 10 pods each (default 1000)
  --rounds N       how often each is measured, in turns; of several, those of the median time are compared (default 1)
  --windlass FILE  the command to measure (default target/release/windlass)";

struct Options {
    pods: usize,
    jobs: usize,
    rounds: usize,
    windlass: PathBuf,
    scenarios: Vec<String>,
}

fn options() -> Result<Options> {
    let mut options = Options {
        pods: 10_000,
        jobs: 1_000,
        rounds: 1,
        windlass: "target/release/windlass".into(),
        scenarios: Vec::new(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().with_context(|| format!("{arg} needs a value\n{HELP}"));
        match arg.as_str() {
            "--pods" => options.pods = value()?.parse().context("--pods")?,
            "--jobs" => options.jobs = value()?.parse().context("--jobs")?,
            "--rounds" => options.rounds = value()?.parse::<NonZeroUsize>().context("--rounds")?.get(),
            "--windlass" => options.windlass = value()?.into(),
            name if Scenario::named(name, 1, 1).is_some() => options.scenarios.push(arg),
            _ => bail!("{HELP}"),
        }
    }
    if options.scenarios.is_empty() {
        options.scenarios = Scenario::NAMES.map(str::to_owned).into();
    }
    Ok(options)
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Says whether all bars were reached.
async fn run() -> Result<bool> {
    let options = options()?;
    println!("{}", Figures::HEADER);
    let mut missed = Vec::new();
    for name in &options.scenarios {
        let scenario = Scenario::named(name, options.pods, options.jobs).context("checked")?;
        let (mut theirs, mut ours) = (Vec::new(), Vec::new());
        for _ in 0..options.rounds {
            theirs.push(load::measure(Kind::Go, &options.windlass, scenario).await?);
            println!("{}", theirs[theirs.len() - 1].row(name, "kube-controller-manager"));
            ours.push(load::measure(Kind::Windlass, &options.windlass, scenario).await?);
            println!("{}", ours[ours.len() - 1].row(name, "windlass"));
        }
        let bars = figures::missed(scenario, &figures::median(theirs), &figures::median(ours));
        missed.extend(bars.into_iter().map(|bar| format!("{name}: {bar}")));
    }
    for bar in &missed {
        println!("MISSED {bar}");
    }
    Ok(missed.is_empty())
}
