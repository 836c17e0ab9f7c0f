//! Where the programs of the real Kubernetes are.
//!
//! `cargo xtask reference` builds them into a cache outside the checkout. Ready ones are taken from the directory that
//! `KUBEBUILDER_ASSETS` names, as other test harnesses do.

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

/// The release that we are compared with.
pub const VERSION: &str = "v1.36.4";

/// An older kubectl, of the time before requests were sent as protobuf.
pub const OLDER_VERSION: &str = "v1.31.14";

/// The path of a program: `kube-apiserver`, `kube-controller-manager`, `kube-scheduler`, `kubectl`, `e2e.test`, `etcd`.
pub fn find(program: &str) -> Result<PathBuf> {
    find_in(program, VERSION)
}

/// The path of the older kubectl.
pub fn older_kubectl() -> Result<PathBuf> {
    in_cache("kubectl", OLDER_VERSION)
}

/// The version of helm that renders our chart in tests.
pub const HELM_VERSION: &str = "v3.19.0";

/// The path of helm.
pub fn helm() -> Result<PathBuf> {
    let path = cache()?.join(format!("helm-{HELM_VERSION}")).join("helm");
    if !path.is_file() {
        bail!("{} is not there: run `cargo xtask reference`", path.display());
    }
    Ok(path)
}

/// A kernel for the virtual machines of tests.
pub fn kernel() -> Result<PathBuf> {
    let path = cache()?.join("linux").join("vmlinuz");
    if !path.is_file() {
        bail!("{} is not there: run `cargo xtask reference`", path.display());
    }
    Ok(path)
}

fn find_in(program: &str, version: &str) -> Result<PathBuf> {
    if let Some(dir) = std::env::var_os("KUBEBUILDER_ASSETS") {
        let path = PathBuf::from(dir).join(program);
        if path.is_file() {
            return Ok(path);
        }
    }
    if program == "etcd" {
        return on_path(program).context("etcd is not installed: run `cargo xtask reference`");
    }
    in_cache(program, version)
}

fn in_cache(program: &str, version: &str) -> Result<PathBuf> {
    let path = cache()?.join(format!("kubernetes-{version}")).join(program);
    if !path.is_file() {
        bail!("{} is not there: run `cargo xtask reference`, or set KUBEBUILDER_ASSETS", path.display());
    }
    Ok(path)
}

/// The cache of built programs, outside the checkout.
pub fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    Ok(base.context("neither XDG_CACHE_HOME nor HOME is set")?.join("windlass"))
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}
