//! Kubeconfigs of one shape for every server, so that clients print the same.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a kubeconfig for a user with a bearer token. All at once: a program that was given it before may just read it.
pub fn write(path: &Path, url: &str, authority: &Path, user: &str, token: &str) -> Result<()> {
    let text = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "reference",
        "clusters": [{"name": "reference", "cluster": {"server": url, "certificate-authority": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "reference", "context": {"cluster": "reference", "user": user}}],
    });
    let write = || -> Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(path.parent().context("no directory")?)?;
        file.write_all(text.to_string().as_bytes())?;
        file.persist(path)?;
        Ok(())
    };
    write().with_context(|| format!("write {}", path.display()))
}
