//! `windlass node`: one node agent in a process of its own, for the API server of a `windlass server`.

mod dial;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::config::{KubeConfigOptions, Kubeconfig};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use tokio::signal::unix::{SignalKind, signal};
use windlass_api::Gates;
use windlass_controllers::connect;
use windlass_controllers::events::{self, Recorder};
use windlass_node::events::Report;
use windlass_node::isolation::Wanted;
use windlass_node::machine::Machine;
use windlass_node::runtimes::LogLimits;
use windlass_node::streams::Nodes;
use windlass_node::{Agent, Eviction, memory, pressure, shutdown};

use crate::{EXIT_BAD_INPUT, EXIT_FAILED, images, report, with_threads};

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How to reach the server.
    pub access: Access,
    /// The name of the node; that of this machine if `None`.
    pub name: Option<String>,
    /// Where it keeps logs and volumes.
    pub data_dir: PathBuf,
    /// How long a shutdown may take.
    pub shutdown_grace: Duration,
    /// The last part of it, for critical pods.
    pub shutdown_grace_critical: Duration,
    /// When pods have to go because the machine is short of something; never if `None`.
    pub eviction: Option<pressure::Policy>,
    /// Which features are on.
    pub gates: Gates,
    /// How many processes a container may have.
    pub pids_max: Option<i64>,
    /// Run the command of any image on this machine.
    pub runs_any_image_on_host: bool,
    /// How much of the output of a container is kept.
    pub log_limits: LogLimits,
    /// How far containers of the host runtime are kept apart from this machine.
    pub isolation: Wanted,
    /// Where images come from.
    pub images: images::Options,
}

/// How to reach the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// As a file says.
    Kubeconfig(PathBuf),
    /// By address and token.
    Token {
        /// `https://…`.
        server: String,
        /// The token.
        token: String,
        /// The certificate of whoever signed the server's.
        ca: PathBuf,
    },
}

/// Why there is no node.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error("read kubeconfig {path}: {source}\nhint: give --kubeconfig a file that kubectl can use", path = .path.display())]
    Kubeconfig { path: PathBuf, source: Box<kube::config::KubeconfigError> },
    #[error("--server {0:?} is not an address\nhint: give one such as https://127.0.0.1:6443")]
    Server(String),
    #[error(
        "read certificate {path}: {source}\nhint: a server keeps it in its data directory, as pki/ca.crt",
        path = .path.display()
    )]
    Certificate { path: PathBuf, source: std::io::Error },
    #[error("set up connections: {0}")]
    Connect(Box<kube::Error>),
    #[error("{0}\nhint: run with WINDLASS_LOG=debug to see more")]
    Start(String),
}

impl Error {
    fn code(&self) -> u8 {
        match self {
            Self::Kubeconfig { .. } | Self::Server(_) | Self::Certificate { .. } => EXIT_BAD_INPUT,
            Self::Connect(_) | Self::Start(_) => EXIT_FAILED,
        }
    }
}

/// Runs a node until it is told to stop.
pub fn main(options: &Options) -> ExitCode {
    crate::log_to_stderr("warn");
    with_threads(async { report(run(options).await, Error::code) })
}

async fn run(options: &Options) -> Result<(), Error> {
    let start = |error: &dyn std::error::Error| Error::Start(crate::with_sources(error));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| start(&error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| start(&error))?;
    let config = access(&options.access).await?;
    let client = connect::client(&config, None).map_err(|error| Error::Connect(Box::new(error)))?;
    let name = options.name.clone().unwrap_or_else(hostname);
    std::fs::create_dir_all(&options.data_dir).map_err(|error| start(&error))?;
    let data_dir = std::fs::canonicalize(&options.data_dir).map_err(|error| start(&error))?;
    let mut node = windlass_node::Config::new(client.clone(), name.clone(), &data_dir);
    node.run_dir = memory::directory_of(&data_dir).unwrap_or(node.run_dir);
    node.runtime_override_host = options.runs_any_image_on_host;
    node.isolation = options.isolation;
    node.oci = images::runtime(&options.images, &data_dir.join("images")).map_err(Error::Start)?;
    node.gates = options.gates;
    node.pids_max = options.pids_max;
    node.log_limits = Some(options.log_limits);
    node.shutdown = shutdown::of_periods(options.shutdown_grace, options.shutdown_grace_critical);
    node.others_place_pods = true;
    node.eviction = options.eviction.clone().map(|policy| eviction(policy, &node));
    node.events = Some(publish(&client));
    let agent = Agent::start(node).await.map_err(|error| start(&error))?;
    let streams = Arc::new(Nodes::of(std::slice::from_ref(&agent)));
    let offering = dial::Dial::new(&config, &name).map_err(|error| Error::Connect(Box::new(error)))?;
    // Ends with this process: who follows a log sees also what pods print when they are ended.
    tokio::spawn(offering.offer(streams));
    eprintln!("windlass {} runs node {name}", env!("CARGO_PKG_VERSION"));
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    eprintln!("stopping: pods are ended; once more to end at once");
    tokio::select! {
        () = agent.shutdown(options.shutdown_grace) => {}
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

/// Evictions by what this machine has left, for a node that is all set up else.
pub fn eviction(policy: pressure::Policy, node: &windlass_node::Config) -> Eviction {
    let images = node.oci.as_ref().map(|oci| oci.images.directory().to_owned());
    Eviction { signals: Arc::new(Machine { directory: node.data_dir.clone(), images }), policy }
}

/// Publishes what a node has to say, in the name of a kubelet.
pub fn publish(client: &kube::Client) -> windlass_node::events::Publish {
    let (recorder, publishing) = Recorder::new(client.clone(), "kubelet", Arc::new(Timestamp::now));
    tokio::spawn(publishing);
    Arc::new(move |report: Report| {
        let Report { about, is_warning, reason, message } = report;
        recorder.publish(events::Report { about, is_warning, reason, message });
    })
}

fn hostname() -> String {
    rustix::system::uname().nodename().to_string_lossy().to_lowercase()
}

async fn access(access: &Access) -> Result<kube::Config, Error> {
    match access {
        Access::Kubeconfig(path) => {
            let failed = |source| Error::Kubeconfig { path: path.clone(), source: Box::new(source) };
            let file = Kubeconfig::read_from(path).map_err(failed)?;
            kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(failed)
        }
        Access::Token { server, token, ca } => {
            let url = server.parse().map_err(|_| Error::Server(server.clone()))?;
            let pem = std::fs::read(ca);
            let pem = pem.map_err(|source| Error::Certificate { path: ca.clone(), source })?;
            let mut config = kube::Config::new(url);
            let bad = |error: std::io::Error| Error::Certificate { path: ca.clone(), source: error };
            config.root_cert = Some(certificates(&pem).map_err(bad)?);
            config.auth_info.token = Some(token.clone().into());
            Ok(config)
        }
    }
}

/// The certificates of a PEM file, as bytes.
fn certificates(pem: &[u8]) -> std::io::Result<Vec<Vec<u8>>> {
    let broken = || std::io::Error::new(std::io::ErrorKind::InvalidData, "not a PEM certificate");
    let found = CertificateDer::pem_slice_iter(pem).map(|one| Ok(one.map_err(|_| broken())?.to_vec()));
    let found: Vec<_> = found.collect::<std::io::Result<_>>()?;
    if found.is_empty() { Err(broken()) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificates_are_read_from_pem() {
        let pem = "x\n-----BEGIN CERTIFICATE-----\nAQ\nID\n-----END CERTIFICATE-----\n\
                   -----BEGIN CERTIFICATE-----\nBA==\n-----END CERTIFICATE-----\n";
        assert_eq!(certificates(pem.as_bytes()).expect("well formed"), [vec![1, 2, 3], vec![4]]);
        for bad in [
            "",
            "-----BEGIN CERTIFICATE-----\nAQID\n",
            "-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----",
        ] {
            assert!(certificates(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
