//! Tools that the tests need and that a new machine does not have.

use std::process::{Command, Stdio};

use anyhow::Result;

use crate::run;

/// Installs a program, or a subcommand of cargo, unless it is there in this version.
pub fn install(name: &str, version: &str) -> Result<()> {
    install_with(name, version, &[])
}

/// The same, with more arguments for `cargo install`.
pub fn install_with(name: &str, version: &str, more: &[&str]) -> Result<()> {
    let mut asked = match name.strip_prefix("cargo-") {
        Some(subcommand) => {
            let mut cargo = Command::new("cargo");
            cargo.arg(subcommand);
            cargo
        }
        None => Command::new(name),
    };
    let found = asked.arg("--version").stderr(Stdio::null()).output();
    if found.is_ok_and(|out| String::from_utf8_lossy(&out.stdout).contains(version)) {
        return Ok(());
    }
    run("cargo", &[&["install", name, "--locked", "--version", version], more].concat())
}

/// A program is on the PATH.
pub fn is_present(program: &str) -> bool {
    works(program, &["--version"])
}

/// A program is on the PATH and can do this.
pub fn works(program: &str, args: &[&str]) -> bool {
    let found = Command::new(program).args(args).stdout(Stdio::null()).stderr(Stdio::null()).status();
    found.is_ok_and(|status| status.success())
}

/// Installs packages of Debian.
pub fn apt(packages: &[&str]) -> Result<()> {
    let mut args = vec!["install", "--yes", "--no-install-recommends"];
    args.extend(packages);
    // The lists of a new machine are empty or old.
    run("apt-get", &["update"])?;
    run("apt-get", &args)
}
