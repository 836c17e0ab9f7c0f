//! `windlass server`: a Kubernetes API for batch work on this machine, with everything that runs its Jobs.
//!
//! ```text
//!   kubectl ──TLS──► Guard ──► Server ◄── in-process client ── Job controller, scheduler, node agents
//! ```

mod kubeconfig;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use windlass_api::Gates;
use windlass_apiserver::auth::audit::{Audit, Settings as AuditSettings};
use windlass_apiserver::auth::tokens::{self, Tokens};
use windlass_apiserver::auth::{Guard, Limits};
use windlass_apiserver::serve::pki::Pki;
use windlass_apiserver::serve::{self, Listener, files};
use windlass_apiserver::{Accounts, Config, Server, service_account};
use windlass_job::Settings;
use windlass_job::backoff::Backoff;
use windlass_node::isolation::Wanted;
use windlass_node::pressure::Policy;
use windlass_node::runtimes::LogLimits;
use windlass_node::shutdown::GRACE_DEFAULT;
use windlass_node::{Capacity, memory};

use crate::parts::{Node, Parts, Setup};
use crate::{EXIT_BAD_INPUT, EXIT_FAILED, images, report, with_sources, with_threads};

/// Where the hashes of the tokens are, in the data directory.
const TOKENS: &str = "tokens.json";
/// Where a line for each write is, in the data directory.
const AUDIT: &str = "audit.log";

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Where objects, certificates, tokens and logs are kept.
    pub data_dir: Option<PathBuf>,
    /// Where to listen.
    pub listen: SocketAddr,
    /// Listen also where other machines can reach it.
    pub allows_remote: bool,
    /// Where to write the kubeconfig.
    pub kubeconfig: Option<PathBuf>,
    /// Where to write audit lines.
    pub audit_path: Option<PathBuf>,
    /// The size at which the audit file is put aside.
    pub audit_bytes_max: u64,
    /// How many audit files are kept aside.
    pub audit_backups: usize,
    /// How many nodes.
    pub nodes: u32,
    /// Run nothing beside the API.
    pub is_api_only: bool,
    /// Which features are on.
    pub gates: Gates,
    /// Delay before a failed pod is replaced.
    pub backoff_base: Duration,
    /// The longest such delay.
    pub backoff_max: Duration,
    /// Run the command of any image on this machine.
    pub runs_any_image_on_host: bool,
    /// How much of the output of a container is kept.
    pub log_limits: LogLimits,
    /// How far containers of the host runtime are kept apart from this machine.
    pub isolation: Wanted,
    /// When pods have to go because the machine is short of something; never if `None`.
    pub eviction: Option<Policy>,
    /// Where images come from.
    pub images: images::Options,
}

/// A token to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenOptions {
    /// The data directory of the server.
    pub data_dir: Option<PathBuf>,
    /// For whom.
    pub user: String,
    /// The groups they are in.
    pub groups: Vec<String>,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "--backoff-max {max:?} is shorter than --backoff-base {base:?}\nhint: give a longer --backoff-max"
    )]
    Backoff { base: Duration, max: Duration },
    #[error(
        "--listen {0} can be reached from other machines\nhint: listen on 127.0.0.1, or say --allow-remote: who has a \
         credential of this server runs any command on this machine"
    )]
    Remote(SocketAddr),
    #[error("there is no home directory to keep data in\nhint: give --data-dir DIR")]
    NoHome,
    #[error(
        "write kubeconfig {path}: {source}\nhint: give --kubeconfig a file of its own; to use several clusters at once, \
         list their files in KUBECONFIG with colons between",
        path = .path.display()
    )]
    Kubeconfig { path: PathBuf, source: kubeconfig::Error },
    #[error("create data directory {path}: {source}\nhint: give a --data-dir that can be written to", path = .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("{0}\nhint: run with WINDLASS_LOG=debug to see more")]
    Start(String),
    #[error("{0}\nhint: another server may be there; give another port with --listen 127.0.0.1:PORT")]
    Listen(String),
}

impl Error {
    fn code(&self) -> u8 {
        match self {
            Self::Backoff { .. }
            | Self::Remote(_)
            | Self::NoHome
            | Self::Kubeconfig { .. }
            | Self::Directory { .. } => EXIT_BAD_INPUT,
            Self::Start(_) | Self::Listen(_) => EXIT_FAILED,
        }
    }
}

/// Runs a server until it is told to stop.
pub fn main(options: Options) -> ExitCode {
    crate::log_to_stderr("warn");
    with_threads(async { report(run(&options).await, Error::code) })
}

fn node(number: u32, count: u32, data_dir: &Path) -> Node {
    let name = format!("node-{number}");
    let capacity = Capacity::of_this_machine(data_dir).share(count);
    let directory = data_dir.join("nodes").join(&name);
    Node { run_directory: memory::directory_of(&directory), directory, name, capacity }
}

/// Makes a token and prints it.
pub fn token(options: &TokenOptions) -> ExitCode {
    report(issue(options).map(|token| println!("{token}")), Error::code)
}

fn issue(options: &TokenOptions) -> Result<String, Error> {
    let data_dir = data_dir(options.data_dir.as_deref())?;
    let path = data_dir.join(TOKENS);
    tokens::issue(&path, &options.user, &options.groups)
        .map_err(|error| Error::Start(format!("add a token to {}: {error}", path.display())))
}

/// Where a server keeps its files when nobody says where.
pub fn default_data_dir() -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let share = variable("XDG_DATA_HOME").or_else(|| Some(variable("HOME")?.join(".local/share")))?;
    Some(share.join("windlass"))
}

/// How to reach a server that was started without saying where to write that.
pub fn default_kubeconfig() -> Option<PathBuf> {
    Some(default_data_dir()?.join("kubeconfig"))
}

/// The data directory, made for its owner alone.
fn data_dir(given: Option<&Path>) -> Result<PathBuf, Error> {
    let path = given.map(Path::to_owned).or_else(default_data_dir).ok_or(Error::NoHome)?;
    files::private_directory(&path).map_err(|source| Error::Directory { path: path.clone(), source })?;
    std::fs::canonicalize(&path).map_err(|source| Error::Directory { path, source })
}

async fn run(options: &Options) -> Result<(), Error> {
    let (base, max) = (options.backoff_base, options.backoff_max);
    if max < base {
        return Err(Error::Backoff { base, max });
    }
    if !options.listen.ip().is_loopback() && !options.allows_remote {
        return Err(Error::Remote(options.listen));
    }
    let start = |error: &dyn std::error::Error| Error::Start(with_sources(error));
    let mut interrupt = signal(SignalKind::interrupt()).map_err(|error| start(&error))?;
    let mut terminate = signal(SignalKind::terminate()).map_err(|error| start(&error))?;
    let data_dir = data_dir(options.data_dir.as_deref())?;
    let path = options.kubeconfig.clone().unwrap_or_else(|| data_dir.join("kubeconfig"));
    let kubeconfig_error = |source| Error::Kubeconfig { path: path.clone(), source };
    kubeconfig::check(&path).map_err(kubeconfig_error)?;

    // First the store, whose lock keeps a second server out of the directory.
    // Our own nodes give a token only to pods that ask for one: a volume in every pod would cost more than the pod.
    let accounts = if options.nodes == 0 { Accounts::Mounted } else { Accounts::Checked };
    let config = Config { gates: options.gates, accounts, ..Config::default() };
    let server = Server::open(config, &data_dir.join("store")).map_err(|error| start(&error))?;
    let now = time::OffsetDateTime::now_utc();
    let pki = Pki::open(&data_dir.join("pki"), &[options.listen.ip()], now).map_err(|error| start(&error))?;
    server
        .publish_ca(pki.ca_certificate())
        .map_err(|status| Error::Start(status.to_json()["message"].to_string()))?;
    server.sign_tokens_with(
        service_account::Key::open(&data_dir.join("pki/sa.key")).map_err(|error| start(&error))?,
    );
    let listener = Listener::bind(options.listen, &pki).await.map_err(|error| match error {
        serve::Error::Bind { .. } => Error::Listen(with_sources(&error)),
        serve::Error::Tls(_) => start(&error),
    })?;
    let address = listener.address();
    let guard = Guard::new(&server, Tokens::of_file(data_dir.join(TOKENS)), Limits::default())
        .map_err(|status| Error::Start(status.to_json()["message"].to_string()))?;
    let audit = AuditSettings {
        path: options.audit_path.clone().unwrap_or_else(|| data_dir.join(AUDIT)),
        bytes_max: options.audit_bytes_max,
        backups: options.audit_backups,
    };
    let audit = Audit::open(audit.clone())
        .map_err(|error| Error::Start(format!("open the audit file {}: {error}", audit.path.display())))?;
    let guard = Arc::new(guard.with_audit(audit));
    let stop = CancellationToken::new();
    let serving = tokio::spawn(listener.run(Arc::clone(&guard), stop.clone()));

    let parts = if options.is_api_only {
        None
    } else {
        let client = kube::Client::new(server.own_service(), "default");
        let oci = images::runtime(&options.images, &data_dir.join("images")).map_err(Error::Start)?;
        let root_ca = Some(pki.ca_certificate().to_owned());
        let setup = Setup { root_ca, oci, ..setup(options, &data_dir) };
        let parts = Parts::start(&client, setup).await.map_err(|error| start(&error))?;
        server.serve_streams(Arc::new(parts.streams()));
        server.publish_figures(Box::new(parts.figures()));
        Some(parts)
    };
    kubeconfig::write(&path, address, &pki).map_err(kubeconfig_error)?;
    greet(address, &path);

    wait(&mut interrupt, &mut terminate).await;
    guard.set_ready(false);
    if let Some(parts) = parts {
        eprintln!("stopping: pods are ended; once more to end at once");
        tokio::select! {
            () = parts.stop(GRACE_DEFAULT) => {}
            () = wait(&mut interrupt, &mut terminate) => {}
        }
    }
    stop.cancel();
    let _ = serving.await;
    Ok(())
}

/// Who works on the objects.
fn setup(options: &Options, data_dir: &Path) -> Setup {
    let backoff = Backoff { base: signed(options.backoff_base), max: signed(options.backoff_max) };
    Setup {
        gates: options.gates,
        settings: Settings { backoff, ..Settings::default() },
        observer: None,
        nodes: (1..=options.nodes).map(|number| node(number, options.nodes, data_dir)).collect(),
        runs_any_image_on_host: options.runs_any_image_on_host,
        isolation: options.isolation,
        oci: None,
        eviction: options.eviction.clone(),
        keeps_logs: false,
        log_limits: Some(options.log_limits),
        is_of_one_run: false,
        root_ca: None,
        keeps_house: true,
    }
}

async fn wait(interrupt: &mut tokio::signal::unix::Signal, terminate: &mut tokio::signal::unix::Signal) {
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
}

fn greet(address: SocketAddr, kubeconfig: &Path) {
    let kubeconfig = std::path::absolute(kubeconfig).unwrap_or_else(|_| kubeconfig.to_owned());
    eprintln!("windlass {} is ready at https://{address}", env!("CARGO_PKG_VERSION"));
    eprintln!("\n  export KUBECONFIG={}\n  kubectl get jobs\n", quoted(&kubeconfig.display().to_string()));
}

/// As a shell takes it.
fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@".contains(c);
    if text.chars().all(is_plain) { text.to_owned() } else { format!("'{}'", text.replace('\'', "'\\''")) }
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}
