//! Line coverage of the pure crates, and the bars they must reach.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{run, tools};

/// Crates whose line coverage has a bar, in percent. Upstream's Job controller has 90.4 and its API 98.5.
const BARS: [(&str, f64); 2] = [("api", 95.0), ("job", 95.0)];

/// Runs the tests that exercise the pure crates and compares their line coverage with the bars.
pub fn measure() -> Result<()> {
    tools::install("cargo-llvm-cov", "0.9.1")?;
    install_llvm_tools()?;
    let packages = ["--package", "windlass-api", "--package", "windlass-job", "--package", "windlass-sim"];
    let report = std::env::temp_dir().join(format!("windlass-coverage-{}.json", std::process::id()));
    let path = report.to_str().context("the temporary directory has a name that is not UTF-8")?;
    let mut args = vec!["llvm-cov", "--json", "--summary-only", "--output-path", path];
    args.extend(packages);
    run("cargo", &args)?;
    let text = std::fs::read_to_string(&report).with_context(|| format!("read {path}"))?;
    std::fs::remove_file(&report).with_context(|| format!("remove {path}"))?;
    let files = summaries(&text)?;
    let mut failures = Vec::new();
    for (name, bar) in BARS {
        let covered = percent(&files, name);
        eprintln!("line coverage of crates/{name}: {covered:.1} % (bar {bar} %)");
        if covered < bar {
            failures.push(format!("crates/{name} has {covered:.1} %, below {bar} %"));
        }
    }
    if failures.is_empty() { Ok(()) } else { bail!("line coverage: {}", failures.join(", ")) }
}

/// `llvm-cov` must be as new as the compiler's LLVM: the toolchain's own, or else Debian's of that version.
fn install_llvm_tools() -> Result<()> {
    let sysroot =
        Command::new("rustc").args(["--print", "sysroot"]).output().context("ask rustc for its sysroot")?;
    let sysroot = String::from_utf8(sysroot.stdout).context("read the sysroot")?;
    let own = Path::new(sysroot.trim()).join("lib/rustlib/x86_64-unknown-linux-gnu/bin/llvm-cov");
    if own.exists() || std::env::var_os("LLVM_COV").is_some() {
        return Ok(());
    }
    if tools::is_present("rustup") && run("rustup", &["component", "add", "llvm-tools"]).is_ok() {
        return Ok(());
    }
    tools::apt(&["llvm-22"])?;
    bail!(
        "install the component llvm-tools, or set LLVM_COV and LLVM_PROFDATA to the programs of llvm-22, and run again"
    )
}

/// (file, lines, covered lines) of each file of the report.
fn summaries(report: &str) -> Result<Vec<(String, u64, u64)>> {
    let report: serde_json::Value = serde_json::from_str(report).context("parse the coverage report")?;
    let files = report["data"][0]["files"].as_array().context("the coverage report lists no files")?;
    files
        .iter()
        .map(|file| {
            let name = file["filename"].as_str().context("a file without a name")?.to_owned();
            let lines = &file["summary"]["lines"];
            let count = lines["count"].as_u64().context("a file without a line count")?;
            Ok((name, count, lines["covered"].as_u64().unwrap_or(0)))
        })
        .collect()
}

fn percent(files: &[(String, u64, u64)], name: &str) -> f64 {
    let part = format!("/crates/{name}/src/");
    let of_crate = files.iter().filter(|(file, ..)| file.contains(&part));
    let (lines, covered) = of_crate.fold((0, 0), |(l, c), (_, lines, covered)| (l + lines, c + covered));
    if lines == 0 { 0.0 } else { covered as f64 * 100.0 / lines as f64 }
}
