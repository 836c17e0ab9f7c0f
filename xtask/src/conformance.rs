//! The whole comparison with the real Kubernetes, longer than the test command has time for.

use std::collections::BTreeSet;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{reference, root, run};

/// What `cargo xtask conformance <part>` can be asked for.
const PARTS: [&str; 5] = ["scenarios", "crashes", "random", "gates", "house"];

/// Builds what is compared with and runs every suite, or the one named. `e2e` is asked for by name: it is also part of the
/// test command.
pub fn run_part(part: Option<&str>) -> Result<()> {
    match part {
        Some("e2e") => e2e(),
        None => {
            reference::install()?;
            suite(&names()?)
        }
        Some(part) if PARTS.contains(&part) => {
            reference::install()?;
            suite(&[part.to_owned()])
        }
        Some(part) => bail!("no part is called {part}: there are {} and e2e", PARTS.join(", ")),
    }
}

/// The names of all of them.
fn names() -> Result<Vec<String>> {
    let directory = root().join("conformance/tests");
    let entries = std::fs::read_dir(&directory).with_context(|| format!("read {}", directory.display()))?;
    let mut names = BTreeSet::new();
    for entry in entries {
        let path = entry.with_context(|| format!("read {}", directory.display()))?.path();
        let is_suite = path.is_dir() || path.extension().is_some_and(|extension| extension == "rs");
        names.extend(path.file_stem().filter(|_| is_suite).map(|name| name.to_string_lossy().into_owned()));
    }
    Ok(names.into_iter().collect())
}

/// Runs suites, each to its end whatever became of those before it. The whole workspace is built, as by the test command, so
/// that nothing is built anew for it.
fn suite(names: &[String]) -> Result<()> {
    let mut args = vec!["test", "--workspace", "--no-fail-fast"];
    args.extend(names.iter().flat_map(|name| ["--test", name.as_str()]));
    args.extend(["--", "--nocapture"]);
    eprintln!("+ WINDLASS_CONFORMANCE=full cargo {}", args.join(" "));
    let status = Command::new("cargo").args(&args).env("WINDLASS_CONFORMANCE", "full").status();
    if !status.context("start cargo")?.success() {
        bail!("cargo {} failed", args.join(" "));
    }
    Ok(())
}

/// The upstream tests of Jobs: on the cluster that `KUBECONFIG` names, which needs nodes that run pods, or on a server of
/// ours, with images that are made for it.
fn e2e() -> Result<()> {
    reference::install_e2e()?;
    match std::env::var("KUBECONFIG") {
        Ok(kubeconfig) => e2e_on(&kubeconfig),
        Err(_) => {
            reference::install_image_tools()?;
            let test = "upstream::the_upstream_tests_of_jobs_pass";
            run("cargo", &["test", "--workspace", "--test", "e2e", "--", "--exact", test, "--nocapture"])
        }
    }
}

fn e2e_on(kubeconfig: &str) -> Result<()> {
    let program = reference::e2e()?;
    let reports = root().join("target").join("e2e");
    std::fs::create_dir_all(&reports).with_context(|| format!("make {}", reports.display()))?;
    run(
        &program.to_string_lossy(),
        &[
            &format!("--kubeconfig={kubeconfig}"),
            "--provider=skeleton",
            r"--ginkgo.focus=\[sig-apps\] Job",
            &format!("--report-dir={}", reports.display()),
        ],
    )
}
