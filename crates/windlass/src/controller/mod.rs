//! `windlass controller`: the Job controller on a Kubernetes cluster.
//!
//! ```text
//!   wait for the lease ──> term: client with a fence, controller ──lost──> wait again
//!                            └──SIGTERM──> finish what is under way, release the lease, exit
//! ```
//!
//! Each term has a controller and connections of its own: nothing of a term that is over can write in the next.

mod health;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::config::{KubeConfigOptions, Kubeconfig};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass_api::Gates;
use windlass_controllers::connect;
use windlass_controllers::job::{self, JobController};
use windlass_controllers::lease::{self, Elector, End, Fence};
use windlass_controllers::metrics::Metrics;
use windlass_job::Settings;
use windlass_job::backoff::Backoff;
use windlass_job::observation::Manages;

use crate::{EXIT_BAD_INPUT, EXIT_FAILED, report, with_one_thread};
use health::Health;

/// What is under way when we are asked to stop has this long to end, but never longer than the lease.
const STOP_TIME_MAX: Duration = Duration::from_secs(8);

/// With so many writes under way, answers can be taken in a few at a time.
const BUSY_WRITES: usize = 12;

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// How to reach the cluster; from inside it if `None`.
    pub kubeconfig: Option<PathBuf>,
    /// Also the Jobs of the built-in controller.
    pub manages_all: bool,
    /// Only this namespace.
    pub namespace: Option<String>,
    /// Which features are on.
    pub gates: Gates,
    /// Delay before a failed pod is replaced.
    pub backoff_base: Duration,
    /// The longest such delay.
    pub backoff_max: Duration,
    /// Writes under way at the same time.
    pub concurrent_writes: usize,
    /// Where to answer health checks and show metrics.
    pub listen_health: SocketAddr,
    /// Only the leader works.
    pub leader_elect: bool,
    /// The Lease.
    pub lease: LeaseOptions,
}

/// The Lease of the leader.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// Its namespace; that of the configuration if `None`.
    pub namespace: Option<String>,
    /// Its name.
    pub name: String,
    /// See [`lease::Config::lease_duration`].
    pub lease_duration: Duration,
    /// See [`lease::Config::renew_deadline`].
    pub renew_deadline: Duration,
    /// See [`lease::Config::retry_period`].
    pub retry_period: Duration,
}

/// Why there is no controller.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(
        "--backoff-max {max:?} is shorter than --backoff-base {base:?}\nhint: give a longer --backoff-max"
    )]
    Backoff { base: Duration, max: Duration },
    #[error("{0}\nhint: the defaults are 15s, 10s and 2s")]
    Lease(&'static str),
    #[error("read kubeconfig {path}: {source}\nhint: give --kubeconfig a file that kubectl can use", path = .path.display())]
    Kubeconfig { path: PathBuf, source: Box<kube::config::KubeconfigError> },
    #[error("read the service account of this pod: {0}\nhint: outside a cluster, give --kubeconfig FILE")]
    InCluster(#[from] kube::config::InClusterError),
    #[error("set up connections: {0}")]
    Connect(#[from] Box<kube::Error>),
    #[error("listen on {address}: {source}\nhint: give another address with --listen-health")]
    Listen { address: SocketAddr, source: std::io::Error },
    #[error("hear signals: {0}")]
    Signals(std::io::Error),
}

impl Error {
    fn code(&self) -> u8 {
        match self {
            Self::Backoff { .. } | Self::Lease(_) | Self::Kubeconfig { .. } => EXIT_BAD_INPUT,
            Self::InCluster(_) | Self::Connect(_) | Self::Listen { .. } | Self::Signals(_) => EXIT_FAILED,
        }
    }
}

/// Runs the controller until it is told to stop.
pub fn main(options: Options) -> ExitCode {
    crate::log_to_stderr("warn");
    let metrics = Metrics::default();
    let counted = metrics.clone();
    let is_busy = move || counted.writes_under_way() >= BUSY_WRITES;
    with_one_thread(is_busy, async { report(run(options, metrics).await, Error::code) })
}

async fn run(options: Options, metrics: Metrics) -> Result<(), Error> {
    let (base, max) = (options.backoff_base, options.backoff_max);
    if max < base {
        return Err(Error::Backoff { base, max });
    }
    let config = configuration(options.kubeconfig.as_deref()).await?;
    let lease = lease_config(&options.lease, &config.default_namespace);
    lease.check().map_err(Error::Lease)?;
    let stop = stop_on_signals()?;
    let health = Health::bind(options.listen_health, metrics.clone()).await?;
    eprintln!("windlass {} controls Jobs of {}", env!("CARGO_PKG_VERSION"), config.cluster_url);
    eprintln!("health and metrics at http://{}", health.address());
    let controller = Controller { config, metrics, health, options };
    if controller.options.leader_elect {
        controller.lead(lease, &stop).await
    } else {
        let term = controller.begin(None, &stop)?;
        eprintln!("works without a lease");
        let _ = term.work.await;
        Ok(())
    }
}

async fn configuration(kubeconfig: Option<&Path>) -> Result<kube::Config, Error> {
    let Some(path) = kubeconfig else { return Ok(kube::Config::incluster()?) };
    let wrong = |source| Error::Kubeconfig { path: path.to_owned(), source: Box::new(source) };
    let file = Kubeconfig::read_from(path).map_err(wrong)?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(wrong)
}

fn lease_config(options: &LeaseOptions, default_namespace: &str) -> lease::Config {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    lease::Config {
        namespace: options.namespace.clone().unwrap_or_else(|| default_namespace.to_owned()),
        name: options.name.clone(),
        // As Kubernetes' own components: a replica that is started again is another one.
        identity: format!("{host}_{}", uuid::Uuid::new_v4()),
        lease_duration: options.lease_duration,
        renew_deadline: options.renew_deadline,
        retry_period: options.retry_period,
    }
}

fn stop_on_signals() -> Result<CancellationToken, Error> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut interrupt = signal(SignalKind::interrupt()).map_err(Error::Signals)?;
    let mut terminate = signal(SignalKind::terminate()).map_err(Error::Signals)?;
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stopping.cancel();
    });
    Ok(stop)
}

struct Controller {
    config: kube::Config,
    metrics: Metrics,
    health: Health,
    options: Options,
}

/// A controller at work.
struct Term {
    cancel: CancellationToken,
    work: JoinHandle<()>,
}

impl Controller {
    /// Waits for the lease, works, and again, until asked to stop.
    async fn lead(&self, lease: lease::Config, stop: &CancellationToken) -> Result<(), Error> {
        let name = format!("{}/{}", lease.namespace, lease.name);
        loop {
            // Renewals have a connection of their own: they must not wait behind anything.
            let client = connect::client(&self.config, None).map_err(Box::new)?;
            let mut elector = Elector::new(client, lease.clone(), Arc::new(Timestamp::now));
            eprintln!("waits for the lease {name}");
            let fence = elector.acquire(stop, |is_answered| self.health.set_ready(is_answered)).await;
            let Some(fence) = fence else { return Ok(()) };
            eprintln!("leads by the lease {name} as {}", lease.identity);
            self.health.leads(Some(fence.clone()));
            self.metrics.leads(true);
            let term = self.begin(Some(fence.clone()), &CancellationToken::new())?;
            let end = elector.keep(&fence, stop).await;
            match end {
                End::Stopped => term.finish(STOP_TIME_MAX.min(fence.remaining())).await,
                End::Lost => term.work.abort(),
            }
            self.metrics.leads(false);
            self.health.leads(None);
            self.health.set_ready(false);
            match end {
                End::Stopped => {
                    elector.release(&fence).await;
                    return Ok(());
                }
                End::Lost => eprintln!("lost the lease {name}"),
            }
        }
    }

    /// Starts a controller, which writes only while the fence is open.
    fn begin(&self, fence: Option<Fence>, cancel: &CancellationToken) -> Result<Term, Error> {
        let options = &self.options;
        let signed = |duration| SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        let (ready, mut is_ready) = watch::channel(false);
        let config = job::Config {
            settings: Settings {
                manages: if options.manages_all { Manages::Unclaimed } else { Manages::OptedIn },
                backoff: Backoff { base: signed(options.backoff_base), max: signed(options.backoff_max) },
                ..Settings::default()
            },
            gates: options.gates,
            namespace: options.namespace.clone(),
            writes_at_once: options.concurrent_writes,
            metrics: self.metrics.clone(),
            watch_client: Some(connect::client(&self.config, None).map_err(Box::new)?),
            ready: Some(ready),
            ..job::Config::default()
        };
        let writes = connect::client(&self.config, fence).map_err(Box::new)?;
        let cancel = cancel.clone();
        let work = tokio::spawn(JobController::new(writes, config).run(cancel.clone()));
        let health = self.health.clone();
        health.set_ready(false);
        tokio::spawn(async move {
            if is_ready.wait_for(|is_ready| *is_ready).await.is_ok() {
                health.set_ready(true);
            }
        });
        Ok(Term { cancel, work })
    }
}

impl Term {
    /// Starts nothing new, and lets what is under way end.
    async fn finish(mut self, patience: Duration) {
        self.cancel.cancel();
        if tokio::time::timeout(patience, &mut self.work).await.is_err() {
            self.work.abort();
        }
    }
}
