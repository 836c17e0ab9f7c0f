//! The programs of the real Kubernetes, built from the Go module proxy into a cache outside the checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::{machine, root, tools};

/// The release we are compared with, and the programs of it that tests use.
const VERSION: &str = "v1.36.4";
const PROGRAMS: [&str; 4] = ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl"];

/// An older kubectl, of the time before requests were sent as protobuf.
const OLDER_VERSION: &str = "v1.31.14";

/// What renders our chart; `conformance/src/assets.rs` knows it too.
const HELM_VERSION: &str = "v3.19.0";

/// Builds what tests need and is not there yet.
pub fn install() -> Result<()> {
    if std::env::var_os("KUBEBUILDER_ASSETS").is_none() {
        for program in PROGRAMS {
            build("conformance", VERSION, program)?;
        }
    }
    build("conformance/older", OLDER_VERSION, "kubectl")?;
    install_e2e()?;
    install_helm()?;
    if !tools::is_present("etcd") {
        tools::apt(&["etcd-server"])?;
    }
    install_image_tools()?;
    machine::install()
}

/// The one runtime that is no package of Debian.
const YOUKI_VERSION: &str = "0.7.0";

/// What runs images in tests, what they are made of, and where they are pulled from.
pub fn install_image_tools() -> Result<()> {
    let is_there = ["crun", "runc", "zstd", "docker-registry", "redis-cli", "pkg-config"]
        .into_iter()
        .all(tools::is_present);
    // The rest of it is in a package of its own.
    let has_all_of_perl = tools::works("perl", &["-Mbignum", "-e", "1"]);
    let has_seccomp = tools::works("pkg-config", &["--exists", "libseccomp"]);
    if !(is_there && has_all_of_perl && has_seccomp && Path::new("/bin/busybox").is_file()) {
        tools::apt(&[
            "crun",
            "runc",
            "zstd",
            "busybox-static",
            "docker-registry",
            "redis-tools",
            "perl",
            "pkg-config",
            "libseccomp-dev",
        ])?;
    }
    // Where other users find it too: some tests are run by one.
    let place = ["--root", "/usr/local"];
    let features = ["--no-default-features", "--features", "v1,v2,seccomp"];
    tools::install_with("youki", YOUKI_VERSION, &[&place[..], &features[..]].concat())
}

/// The upstream end-to-end tests.
pub fn install_e2e() -> Result<()> {
    let target = path(VERSION, "e2e.test")?;
    if target.is_file() {
        return Ok(());
    }
    // Its own vet takes as long as the build.
    let verb = ["test", "-c", "-vet=off"];
    go(&root().join("conformance"), VERSION, &verb, "k8s.io/kubernetes/test/e2e", &target)
}

/// helm is a module of its own, with the versions of its own go.mod: nothing of ours pins them.
fn install_helm() -> Result<()> {
    let directory = cache()?.join(format!("helm-{HELM_VERSION}"));
    if directory.join("helm").is_file() {
        return Ok(());
    }
    std::fs::create_dir_all(&directory).with_context(|| format!("make {}", directory.display()))?;
    let package = format!("helm.sh/helm/v3/cmd/helm@{HELM_VERSION}");
    eprintln!("+ go install {package}");
    let status = Command::new("go")
        .args(["install", "-trimpath", "-ldflags", "-s -w", &package])
        .env("GOBIN", &directory)
        .env("CGO_ENABLED", "0")
        .status()
        .context("start go: it builds helm, install it from https://go.dev")?;
    if !status.success() {
        bail!("go install {package} failed: {status}");
    }
    Ok(())
}

/// Where the upstream end-to-end tests are.
pub fn e2e() -> Result<PathBuf> {
    path(VERSION, "e2e.test")
}

fn build(module: &str, version: &str, program: &str) -> Result<()> {
    let target = path(version, program)?;
    if target.is_file() {
        return Ok(());
    }
    go(&root().join(module), version, &["build"], &format!("k8s.io/kubernetes/cmd/{program}"), &target)
}

/// Builds a package beside its target and moves it there when it is whole, so that a killed build leaves no half of it.
fn go(module: &Path, version: &str, verb: &[&str], package: &str, target: &Path) -> Result<()> {
    let directory = target.parent().context("a target in the root")?;
    std::fs::create_dir_all(directory).with_context(|| format!("make {}", directory.display()))?;
    let partial = target.with_extension("partial");
    eprintln!("+ go {} {package} ({version})", verb.join(" "));
    let status = Command::new("go")
        .args(verb)
        .args(["-mod=readonly", "-trimpath", "-ldflags", &link_flags(version), "-o"])
        .arg(&partial)
        .arg(package)
        .current_dir(module)
        .env("CGO_ENABLED", "0")
        .status()
        .context("start go: it builds the real Kubernetes, install it from https://go.dev")?;
    if !status.success() || !partial.is_file() {
        bail!("go {} {package} failed: {status}", verb.join(" "));
    }
    std::fs::rename(&partial, target).with_context(|| format!("move {}", target.display()))
}

/// A program built outside of a release does not know its version.
fn link_flags(version: &str) -> String {
    let minor = version.split('.').nth(1).unwrap_or_default();
    let package = "k8s.io/component-base/version";
    let facts = [("gitVersion", version), ("gitMajor", "1"), ("gitMinor", minor), ("gitTreeState", "clean")];
    let sets = facts.map(|(name, value)| format!("-X {package}.{name}={value}"));
    format!("-s -w {}", sets.join(" "))
}

/// Where a program is kept; `conformance/src/assets.rs` looks there.
fn path(version: &str, program: &str) -> Result<PathBuf> {
    Ok(cache()?.join(format!("kubernetes-{version}")).join(program))
}

/// The cache of built programs, outside the checkout.
pub fn cache() -> Result<PathBuf> {
    let base = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|dir| dir.is_absolute());
    let base = base.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let base = base.context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(base.join("windlass"))
}
