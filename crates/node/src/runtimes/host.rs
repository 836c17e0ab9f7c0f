//! `image: host`: containers are processes of this machine, each in a session of its own, run by the agent's keeper.
//!
//! This is the agent's side of the socket; `keeper` has the other one and the design. Who uses it must see to
//! it that the hidden command of [`Command::default`] ends in [`super::keeper::main`].

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use super::protocol::{self, Exit, Process, Report, Request, StartError};

/// The argument with which this program is run again as its own keeper.
pub const KEEPER_ARGUMENT: &str = "__keeper";

/// How to run the keeper.
#[derive(Clone, Debug)]
pub struct Command {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// Added to its environment.
    pub env: Vec<(OsString, OsString)>,
}

/// This program itself, with [`KEEPER_ARGUMENT`].
impl Default for Command {
    fn default() -> Self {
        Self { program: "/proc/self/exe".into(), args: vec![KEEPER_ARGUMENT.into()], env: Vec::new() }
    }
}

/// Why the runtime could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The keeper's program could not be run.
    #[error("start process keeper {program}", program = .program.display())]
    Start {
        /// The program.
        program: PathBuf,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The keeper ended, or said something else, before it was ready.
    #[error("process keeper {program} did not get ready", program = .program.display())]
    NotReady {
        /// The program.
        program: PathBuf,
    },
}

/// Which process: unique in one runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id(u64);

/// What became of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// It runs, with this pid.
    Started(i32),
    /// It never ran.
    Failed(StartError),
    /// It has ended, and so has everything it started.
    Exited(Exit),
    /// The keeper died, and took it along. How it ended is not known.
    Lost,
}

type Sink = Box<dyn Fn(Event) + Send>;

struct Shared {
    next: AtomicU64,
    /// `None` when the keeper is gone.
    processes: Mutex<Option<HashMap<u64, Live>>>,
    requests: mpsc::UnboundedSender<Request>,
}

struct Live {
    sink: Sink,
    pid: Option<i32>,
}

/// The host runtime. Clones share one keeper; when the last one is dropped, everything it runs is killed.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
}

impl Host {
    /// Starts the keeper and waits until it is ready.
    pub async fn start(command: &Command) -> Result<Self, Error> {
        let failed = |source| Error::Start { program: command.program.clone(), source };
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().map_err(failed)?;
        ours.set_nonblocking(true).map_err(failed)?;
        let mut child = tokio::process::Command::new(&command.program)
            .args(&command.args)
            .envs(command.env.iter().map(|(name, value)| (name, value)))
            .stdin(OwnedFd::from(theirs))
            .stdout(Stdio::null())
            .spawn()
            .map_err(failed)?;
        let (mut read, write) = UnixStream::from_std(ours).map_err(failed)?.into_split();
        let ready = protocol::read(&mut read, &mut Vec::new()).await;
        if !matches!(ready, Ok(Some(Report::Ready))) {
            return Err(Error::NotReady { program: command.program.clone() });
        }
        let (requests, queue) = mpsc::unbounded_channel();
        let processes = Mutex::new(Some(HashMap::new()));
        let shared = Arc::new(Shared { next: AtomicU64::new(1), processes, requests });
        tokio::spawn(send(queue, write));
        tokio::spawn(receive(Arc::downgrade(&shared), read));
        // Only so that no zombie stays: the end of the keeper shows as the end of the stream.
        tokio::spawn(async move { child.wait().await });
        Ok(Self { shared })
    }

    /// Starts a process. `sink` hears [`Event::Started`] or [`Event::Failed`], and after a start how it ended.
    pub fn run(&self, process: Process, sink: impl Fn(Event) + Send + 'static) -> Id {
        let id = self.shared.next.fetch_add(1, Ordering::Relaxed);
        match self.shared.processes.lock().as_mut() {
            Some(processes) => processes.insert(id, Live { sink: Box::new(sink), pid: None }),
            None => {
                sink(Event::Failed(StartError::KeeperGone));
                return Id(id);
            }
        };
        // A closed channel means that the keeper is gone: then `lose_all` answers for every process.
        let _ = self.shared.requests.send(Request::Start { id, process });
        Id(id)
    }

    /// Sends a signal to a process and all others of its group. Nothing happens if it has ended.
    pub fn signal(&self, id: Id, signal: Signal) {
        let _ = self.shared.requests.send(Request::Signal { id: id.0, signal: signal.as_raw() });
    }
}

/// Writes requests, several at once when they come fast. Ends, and closes the socket, with the last [`Host`].
async fn send(mut queue: mpsc::UnboundedReceiver<Request>, mut write: OwnedWriteHalf) {
    let (mut batch, mut bytes) = (Vec::new(), Vec::new());
    while queue.recv_many(&mut batch, 64).await > 0 {
        bytes.clear();
        batch.drain(..).for_each(|request| protocol::encode(&request, &mut bytes));
        if let Err(error) = write.write_all(&bytes).await {
            tracing::warn!(%error, "write to process keeper");
            return;
        }
    }
}

/// Passes reports on until the keeper is gone.
async fn receive(shared: std::sync::Weak<Shared>, read: OwnedReadHalf) {
    let mut read = tokio::io::BufReader::new(read);
    let mut frame = Vec::new();
    loop {
        let report = protocol::read(&mut read, &mut frame).await;
        let Some(shared) = shared.upgrade() else { return };
        match report {
            Ok(Some(report)) => pass_on(&shared, report),
            Ok(None) => return lose_all(&shared),
            Err(error) => {
                tracing::warn!(%error, "read from process keeper");
                return lose_all(&shared);
            }
        }
    }
}

fn pass_on(shared: &Shared, report: Report) {
    let mut guard = shared.processes.lock();
    let Some(processes) = guard.as_mut() else { return };
    match report {
        Report::Ready => {}
        Report::Started { id, pid } => {
            if let Some(live) = processes.get_mut(&id) {
                live.pid = Some(pid);
                (live.sink)(Event::Started(pid));
            }
        }
        Report::Failed { id, error } => {
            if let Some(live) = processes.remove(&id) {
                (live.sink)(Event::Failed(error));
            }
        }
        Report::Exited { id, exit } => {
            if let Some(live) = processes.remove(&id) {
                (live.sink)(Event::Exited(exit));
            }
        }
    }
}

/// The kernel has killed the main processes along with the keeper; their groups are killed here.
fn lose_all(shared: &Shared) {
    for live in shared.processes.lock().take().into_iter().flat_map(HashMap::into_values) {
        match live.pid {
            Some(pid) => {
                if let Some(pid) = Pid::from_raw(pid) {
                    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
                }
                (live.sink)(Event::Lost);
            }
            None => (live.sink)(Event::Failed(StartError::KeeperGone)),
        }
    }
}
