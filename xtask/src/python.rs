//! The Python client of Kubernetes, in an environment of its own outside the checkout.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::{reference, run};

/// The client, by name and version; `crates/windlass/tests/e2e/python_client.rs` looks for it.
const CLIENT: (&str, &str) = ("kubernetes", "37.0.2");

/// Installs it with the `python3` that is there, unless it is there and works.
pub fn install() -> Result<()> {
    let (name, version) = CLIENT;
    let target = reference::cache()?.join(format!("python-{name}-{version}"));
    let python = target.join("bin/python");
    if works(&python) {
        return Ok(());
    }
    // An environment whose Python has gone, or that was left half made, is made anew.
    if target.exists() {
        std::fs::remove_dir_all(&target).with_context(|| format!("remove {}", target.display()))?;
    }
    let text =
        |path: &Path| path.to_str().map(str::to_owned).context("the cache has a name that is not UTF-8");
    run("python3", &["-m", "venv", &text(&target)?])
        .context("python3 with its venv module is needed to test the Python client")?;
    run(&text(&python)?, &["-m", "pip", "install", "--quiet", &format!("{name}=={version}")])
}

fn works(python: &Path) -> bool {
    let check = format!("import {}; assert {0}.__version__ == {:?}", CLIENT.0, CLIENT.1);
    let mut command = Command::new(python);
    command.args(["-c", &check]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
