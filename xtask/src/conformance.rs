//! The whole comparison with the real Kubernetes, longer than the test command has time for.

use anyhow::Result;

use crate::{reference, run};

/// Builds what is compared with and runs every suite.
pub fn all() -> Result<()> {
    reference::install()?;
    reference::install_e2e()?;
    run("cargo", &["test", "--package", "windlass-conformance"])
}
