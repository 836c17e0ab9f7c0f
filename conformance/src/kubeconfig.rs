//! Kubeconfigs of one shape for every server, so that clients print the same.

use std::path::Path;

use anyhow::{Context, Result};

/// Writes a kubeconfig for a user with a bearer token.
pub fn write(path: &Path, url: &str, authority: &Path, user: &str, token: &str) -> Result<()> {
    let text = serde_json::json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "reference",
        "clusters": [{"name": "reference", "cluster": {"server": url, "certificate-authority": authority}}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "reference", "context": {"cluster": "reference", "user": user}}],
    });
    std::fs::write(path, text.to_string()).with_context(|| format!("write {}", path.display()))
}
