//! Our own API server over TLS, inside this process, for as long as the value lives. Nothing else runs: no
//! controllers, no scheduler, no nodes, as beside the real kube-apiserver.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use windlass_apiserver::auth::tokens::{self, Tokens};
use windlass_apiserver::auth::{Guard, Limits};
use windlass_apiserver::serve::Listener;
use windlass_apiserver::serve::pki::Pki;
use windlass_apiserver::{Config, Server};

use crate::kubeconfig;

/// A running server of ours.
#[derive(Debug)]
pub struct Ours {
    server: Server,
    address: SocketAddr,
    directory: TempDir,
    stop: CancellationToken,
}

impl Ours {
    /// Starts one with the defaults.
    pub async fn start() -> Result<Self> {
        Self::start_with(Config::default()).await
    }

    /// Starts one; when this returns, it answers.
    pub async fn start_with(config: Config) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("windlass-ours-").tempdir()?;
        let root = directory.path();
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let pki = Pki::open(&root.join("pki"), &[listen.ip()], time::OffsetDateTime::now_utc())?;
        std::fs::write(root.join("ca.pem"), pki.ca_certificate()).context("write the authority")?;
        let server = Server::new(config);
        let guard = Guard::new(&server, Tokens::of_file(root.join("tokens.json")), Limits::default())
            .map_err(|status| anyhow!("guard the server: {}", status.to_json()))?;
        let listener = Listener::bind(listen, &pki).await?;
        let address = listener.address();
        let stop = CancellationToken::new();
        tokio::spawn(listener.run(Arc::new(guard), stop.clone()));
        Ok(Self { server, address, directory, stop })
    }

    /// Its address: `https://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// The server itself, for what the harness does behind the back of clients.
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// The directory of its files.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Makes a bearer token.
    pub fn token(&self, user: &str, groups: &[&str]) -> Result<String> {
        let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        tokens::issue(&self.directory.path().join("tokens.json"), user, &groups).context("issue a token")
    }

    /// Writes a kubeconfig with a bearer token and gives its path.
    pub fn kubeconfig_for(&self, user: &str, groups: &[&str]) -> Result<PathBuf> {
        let path = self.directory.path().join(format!("{user}.kubeconfig"));
        let token = self.token(user, groups)?;
        kubeconfig::write(&path, &self.url(), &self.directory.path().join("ca.pem"), user, &token)?;
        Ok(path)
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        self.kubeconfig_for("admin", &["system:masters"])
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

/// A client for a kubeconfig, that sends each request once.
pub async fn client(kubeconfig: &Path) -> Result<kube::Client> {
    let file = Kubeconfig::read_from(kubeconfig).context("read a kubeconfig")?;
    let mut config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.read_timeout = None;
    Ok(kube::Client::try_from(config)?)
}
