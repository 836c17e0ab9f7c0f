//! How commands that ask a server find it: as kubectl does, and where kubectl would find nothing, the server of this machine.

use std::fmt::Display;
use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

const HINT: &str =
    "name a file with --kubeconfig, set KUBECONFIG, or start `windlass server` on this machine";

/// A client of the server, and the namespace that is meant if none is named.
pub async fn server(kubeconfig: Option<&Path>) -> Result<(Client, String), String> {
    let config = config(kubeconfig).await.map_err(|error| format!("{error}\nhint: {HINT}"))?;
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|error| failed(&error))?;
    Ok((client, namespace))
}

/// What to say of a server that did not answer as hoped.
pub fn failed(error: &dyn Display) -> String {
    format!("ask the server: {error}\nhint: {HINT}")
}

async fn config(kubeconfig: Option<&Path>) -> Result<Config, String> {
    let from = |file: PathBuf| async move {
        let read =
            Kubeconfig::read_from(&file).map_err(|error| format!("read {}: {error}", file.display()))?;
        let config = Config::from_custom_kubeconfig(read, &KubeConfigOptions::default()).await;
        config.map_err(|error| format!("read {}: {error}", file.display()))
    };
    if let Some(file) = kubeconfig {
        return from(file.to_owned()).await;
    }
    match Config::infer().await {
        Ok(config) => Ok(config),
        Err(error) => {
            let local = crate::server::default_kubeconfig().filter(|file| file.exists());
            from(local.ok_or_else(|| format!("find a server: {error}"))?).await
        }
    }
}
