//! Who looks after the Jobs of a scenario: our controller, or the one built into Kubernetes.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context, Result};
use jiff::SignedDuration;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass_controllers::job::{Config, JobController};
use windlass_job::Settings;
use windlass_job::backoff::Backoff;
use windlass_job::observation::Manages;

use super::tap::{Tap, Writes};
use crate::{Cluster, ControllerManager};

pub use super::tap::Kill;

/// The earliest version that v1.36 can behave as.
pub const EARLIER: &str = "1.33";

/// Where a scenario is played.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Body {
    /// Our controller on our API server, in one process.
    Embedded,
    /// Our controller on the real API server, in place of the built-in one.
    All,
    /// Our controller on the real API server, beside the built-in one: Jobs ask for it.
    OptedIn,
    /// The built-in controller on the real API server.
    Go,
}

impl Body {
    /// All of them, in the order of the table.
    pub const EVERY: [Self; 4] = [Self::Embedded, Self::All, Self::OptedIn, Self::Go];
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Embedded => "embedded",
            Self::All => "all",
            Self::OptedIn => "opted-in",
            Self::Go => "go",
        })
    }
}

/// The controller of a scenario.
pub enum Controller {
    /// Ours, for this namespace only.
    Ours(Box<Ours>),
    /// The built-in one, which looks after all scenarios at once.
    Go(Option<Seat>),
}

impl Controller {
    /// Starts it, with features switched.
    pub async fn start(&mut self, gates: &str) -> Result<()> {
        match self {
            Self::Ours(ours) => {
                ours.config.gates = gates.parse().context("switch features")?;
                ours.start();
            }
            Self::Go(Some(seat)) => seat.wait(gates).await?,
            Self::Go(None) => {}
        }
        Ok(())
    }

    /// Kills it.
    pub async fn stop(&mut self) -> Result<()> {
        match self {
            Self::Ours(ours) => ours.stop().await,
            Self::Go(Some(seat)) => seat.wait("").await?,
            Self::Go(None) => {}
        }
        Ok(())
    }
}

/// Our controller, killed when its writes say so, and started again then.
pub struct Ours {
    client: Client,
    config: Config,
    namespace: String,
    writes: Arc<Writes>,
    running: Option<(CancellationToken, JoinHandle<()>)>,
}

impl Ours {
    /// One that is not started yet.
    pub fn new(client: Client, namespace: &str, manages: Manages, writes: Arc<Writes>) -> Box<Self> {
        let config = Config { namespace: Some(namespace.to_owned()), ..quick(manages) };
        Box::new(Self { client, config, namespace: namespace.to_owned(), writes, running: None })
    }

    fn start(&mut self) {
        let (client, config, namespace) = (self.client.clone(), self.config.clone(), self.namespace.clone());
        let (writes, cancel) = (Arc::clone(&self.writes), CancellationToken::new());
        let stop = cancel.clone();
        let task = tokio::spawn(async move {
            loop {
                let tap = Tap::new(client.clone(), Arc::clone(&writes));
                let controller = JobController::new(tap.client(&namespace), config.clone());
                let life = tokio::spawn(controller.run(CancellationToken::new()));
                let is_over = tokio::select! {
                    () = stop.cancelled() => true,
                    () = writes.killed.notified() => false,
                };
                // Killed: what it was about to do never happens, and what it knew is forgotten.
                tap.cut();
                life.abort();
                _ = life.await;
                if is_over {
                    return;
                }
            }
        });
        self.running = Some((cancel, task));
    }

    /// Kills it.
    pub async fn stop(&mut self) {
        if let Some((cancel, task)) = self.running.take() {
            cancel.cancel();
            _ = task.await;
        }
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        if let Some((cancel, _)) = self.running.take() {
            cancel.cancel();
        }
    }
}

/// Retries of the API come soon. The back-off of pods is that of Kubernetes.
fn quick(manages: Manages) -> Config {
    let quick = |millis| SignedDuration::from_millis(millis);
    let settings =
        Settings { manages, api_retry: Backoff { base: quick(20), max: quick(200) }, ..Settings::default() };
    Config { settings, ..Config::default() }
}

/// The built-in controller for scenarios that stop and start it. They share one: it is stopped when all of them wait
/// for that, and started when all of them wait for that.
pub struct Crew {
    cluster: Arc<Cluster>,
    state: Mutex<State>,
    rounds: watch::Sender<u64>,
}

struct State {
    manager: Option<ControllerManager>,
    members: usize,
    waiting: usize,
}

impl fmt::Debug for Crew {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Crew")
    }
}

impl Crew {
    /// With a controller that runs already.
    pub fn new(cluster: Arc<Cluster>, manager: ControllerManager) -> Arc<Self> {
        Arc::new(Self {
            cluster,
            state: Mutex::new(State { manager: Some(manager), members: 0, waiting: 0 }),
            rounds: watch::Sender::new(0),
        })
    }

    /// A place in it. Take all of them before any is used.
    pub fn seat(self: &Arc<Self>) -> Seat {
        self.state.lock().members += 1;
        Seat(Arc::clone(self))
    }

    /// Features that are settled in v1.36 can be switched where it behaves as an earlier version.
    fn start(&self, gates: &str) -> Result<ControllerManager> {
        let switched = (!gates.is_empty())
            .then(|| [format!("--emulated-version={EARLIER}"), format!("--feature-gates={gates}")]);
        self.cluster.controller_manager_with(&["job-controller"], switched.into_iter().flatten())
    }

    fn turn_if_all_wait(&self, state: &mut State, gates: &str) -> Result<()> {
        if state.waiting == 0 || state.waiting < state.members {
            return Ok(());
        }
        state.waiting = 0;
        // Dropped, it is killed.
        state.manager = match state.manager.take() {
            Some(_) => None,
            None => Some(self.start(gates)?),
        };
        self.rounds.send_modify(|round| *round += 1);
        Ok(())
    }
}

/// A scenario's place in the crew.
#[derive(Debug)]
pub struct Seat(Arc<Crew>);

impl Seat {
    /// Waits until the controller is stopped, or started.
    async fn wait(&self, gates: &str) -> Result<()> {
        let mut rounds = self.0.rounds.subscribe();
        rounds.mark_unchanged();
        {
            let mut state = self.0.state.lock();
            state.waiting += 1;
            self.0.turn_if_all_wait(&mut state, gates)?;
            if state.waiting == 0 {
                return Ok(());
            }
        }
        _ = rounds.changed().await;
        Ok(())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.members -= 1;
        if let Err(error) = self.0.turn_if_all_wait(&mut state, "") {
            tracing::error!(%error, "the controller manager does not start");
        }
    }
}
