//! What the virtual machines of tests need: an emulator, and a kernel that is kept in the cache and not installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{reference, run, tools};

/// The package of Debian that depends on the newest of the kernels for virtual machines.
const NEWEST: &str = "linux-image-cloud-amd64";

/// Gets what is not there yet.
pub fn install() -> Result<()> {
    if !tools::is_present("qemu-system-x86_64") {
        tools::apt(&["qemu-system-x86"])?;
    }
    // Clients in the machines have it do TLS. Apart from the other, for apt would bring a newer one in.
    if !tools::works("openssl", &["version"]) {
        tools::apt(&["openssl"])?;
    }
    // `conformance/src/assets.rs` looks there.
    let place = reference::cache()?.join("linux");
    match place.join("vmlinuz").is_file() {
        true => Ok(()),
        false => install_kernel(&place),
    }
}

/// The place is made beside and moved when it is whole, so that a killed one leaves no half of it.
fn install_kernel(place: &Path) -> Result<()> {
    let partial = place.with_extension("partial");
    if partial.exists() {
        fs::remove_dir_all(&partial).with_context(|| format!("remove {}", partial.display()))?;
    }
    let unpacked = partial.join("unpacked");
    fs::create_dir_all(&unpacked).with_context(|| format!("make {}", unpacked.display()))?;
    // The lists of a new machine are empty or old.
    run("apt-get", &["update"])?;
    download(&partial, &package()?)?;
    let archive = only(&partial, "linux-image-", ".deb")?;
    run("dpkg", &["-x", &archive, &unpacked.display().to_string()])?;
    let kernel = only(&unpacked.join("boot"), "vmlinuz-", "")?;
    fs::rename(&kernel, partial.join("vmlinuz")).with_context(|| format!("move {kernel}"))?;
    // The modules of it, which are most of it, are not used.
    fs::remove_dir_all(&unpacked).with_context(|| format!("remove {}", unpacked.display()))?;
    fs::remove_file(&archive).with_context(|| format!("remove {archive}"))?;
    if place.exists() {
        fs::remove_dir_all(place).with_context(|| format!("remove {}", place.display()))?;
    }
    fs::rename(&partial, place).with_context(|| format!("move {}", place.display()))
}

/// The newest kernel.
fn package() -> Result<String> {
    let asked = Command::new("apt-cache").args(["depends", NEWEST]).output().context("start apt-cache")?;
    let said = String::from_utf8_lossy(&asked.stdout);
    let found = said.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
    Ok(format!("linux-image-{}", found.with_context(|| format!("no kernel in what {NEWEST} depends on"))?))
}

fn download(directory: &Path, package: &str) -> Result<()> {
    eprintln!("+ apt-get download {package}");
    let status = Command::new("apt-get").args(["download", package]).current_dir(directory).status();
    let status = status.context("start apt-get")?;
    if !status.success() {
        bail!("apt-get download {package} failed: {status}");
    }
    Ok(())
}

/// The only file in a directory with such a name.
fn only(directory: &Path, start: &str, end: &str) -> Result<String> {
    let names = fs::read_dir(directory).with_context(|| format!("read {}", directory.display()))?;
    let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let found: Vec<String> = names.filter(|name| name.starts_with(start) && name.ends_with(end)).collect();
    match found.as_slice() {
        [name] => Ok(directory.join(name).display().to_string()),
        _ => bail!("not one file {start}*{end} in {}: {found:?}", directory.display()),
    }
}
