//! Formatting, lints, and what we depend on.

use anyhow::Result;

use crate::{purity, run, tools};

/// The quick checks.
pub fn all() -> Result<()> {
    run("cargo", &["fmt", "--all", "--check"])?;
    purity::check()?;
    run("cargo", &["clippy", "--workspace", "--all-targets", "--", "--deny", "warnings"])
}

/// Licences, bans and sources of all dependencies. Advisories need a database that is fetched from the net, so they
/// are left to `cargo deny check advisories` where there is one.
pub fn dependencies() -> Result<()> {
    tools::install("cargo-deny", "0.20.2")?;
    run("cargo", &["deny", "check", "bans", "licenses", "sources"])
}
