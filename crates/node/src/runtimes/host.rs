//! `image: host`: containers are processes of this machine, each in a session of its own, run by the agent's
//! keeper.
//!
//! This is the agent's side of the socket; `keeper` has the other one and the design. Who uses it must see to
//! it that the hidden command of [`Command::default`] ends in [`super::keeper::main`].

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use rustix::process::{Pid, Signal};
use tokio::runtime::Handle;

use super::protocol::{self, Exit, Guest, Process, Report, Request, StartError};
use super::socket::{self, Incoming};
use super::{apart, streams};
use crate::cgroup;

/// The argument with which this program is run again as its own keeper.
pub const KEEPER_ARGUMENT: &str = "__keeper";

/// The pause before another try to replace a keeper.
const REPLACE_DELAY: Duration = Duration::from_secs(1);

/// The pause before another try to wait for a keeper that does not take more.
const WRITE_RETRY: Duration = Duration::from_millis(10);

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
    /// The keeper can't do what it is for.
    #[error("{0}")]
    Refused(String),
    /// The keeper ended, or said something else, before it was ready.
    #[error("process keeper {program} did not get ready", program = .program.display())]
    NotReady {
        /// The program.
        program: PathBuf,
    },
}

/// Which process: unique in one runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Id {
    number: u64,
    is_apart: bool,
}

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

struct Live {
    sink: Sink,
    pid: Option<i32>,
    /// The control group whose processes all end with it.
    held_by: Option<PathBuf>,
}

/// What there is while a keeper lives.
struct Link {
    requests: Arc<Outbox>,
    /// Takes the streams of guests.
    streams: OwnedFd,
    processes: HashMap<u64, Live>,
}

struct Shared {
    command: Command,
    /// The keeper is root of a user namespace; its processes have numbers of their own.
    is_apart: bool,
    next: AtomicU64,
    /// `None` between the death of a keeper and the start of the next.
    link: Mutex<Option<Link>>,
}

/// The host runtime. Clones share their keepers; when the last one is dropped, everything they run is killed.
#[derive(Clone)]
pub struct Host {
    shared: Arc<Shared>,
    /// The second keeper: see [`apart`].
    apart: Option<Arc<Shared>>,
}

impl Host {
    /// Starts the keeper and waits until it is ready. A keeper that dies is replaced.
    pub async fn start(command: &Command) -> Result<Self, Error> {
        Ok(Self { shared: Shared::start(command, false).await?, apart: None })
    }

    /// Starts a second keeper, which is root of a user namespace, for processes that need it.
    pub async fn start_apart(&mut self, command: &Command) -> Result<(), Error> {
        self.apart = Some(Shared::start(command, true).await?);
        Ok(())
    }

    /// Whether there is a second keeper.
    pub fn has_apart(&self) -> bool {
        self.apart.is_some()
    }

    /// What keeps such processes.
    fn keeper(&self, is_apart: bool) -> &Shared {
        self.apart.as_ref().filter(|_| is_apart).unwrap_or(&self.shared)
    }

    /// Starts a process, with the streams that its input needs. `sink` hears [`Event::Started`] or [`Event::Failed`], and
    /// after a start how it ended.
    pub fn run(
        &self,
        process: Process,
        streams: Option<&[OwnedFd; 3]>,
        sink: impl Fn(Event) + Send + 'static,
    ) -> Id {
        let held_by = process.sandbox.as_ref().and_then(|sandbox| sandbox.held_by.clone());
        let live = Live { sink: Box::new(sink), pid: None, held_by };
        self.ask(process.is_apart(), streams, live, |id| Request::Start { id, process })
    }

    /// Starts a process in a container, with these streams. `sink` hears [`Event::Started`] or [`Event::Failed`], and
    /// after a start how it ended. When the container ends, so does it.
    pub fn join(&self, guest: Guest, streams: &[OwnedFd; 3], sink: impl Fn(Event) + Send + 'static) -> Id {
        let live = Live { sink: Box::new(sink), pid: None, held_by: None };
        self.ask(guest.is_apart, Some(streams), live, |id| Request::Join { id, guest })
    }

    fn ask(
        &self,
        is_apart: bool,
        streams: Option<&[OwnedFd; 3]>,
        live: Live,
        request: impl FnOnce(u64) -> Request,
    ) -> Id {
        let keeper = self.keeper(is_apart);
        let id = keeper.next.fetch_add(1, Ordering::Relaxed);
        match keeper.link.lock().as_mut() {
            Some(link) => match streams.map_or(Ok(()), |streams| streams::send(&link.streams, streams)) {
                Ok(()) => {
                    link.processes.insert(id, live);
                    // Under the same lock, so that streams and requests come in the same order. Not read when the keeper has
                    // just died: then `lose_all` answers for every process.
                    link.requests.send(&request(id));
                }
                Err(error) => {
                    let error = io::Error::from(error).to_string();
                    (live.sink)(Event::Failed(StartError::Streams { error }));
                }
            },
            None => (live.sink)(Event::Failed(StartError::KeeperGone)),
        }
        Id { number: id, is_apart }
    }

    /// Sends a signal to a process and all others of its group. Nothing happens if it has ended.
    pub fn signal(&self, id: Id, signal: Signal) {
        if let Some(link) = self.keeper(id.is_apart).link.lock().as_ref() {
            link.requests.send(&Request::Signal { id: id.number, signal: signal.as_raw() });
        }
    }
}

impl Shared {
    async fn start(command: &Command, is_apart: bool) -> Result<Arc<Self>, Error> {
        let (command, next, link) = (command.clone(), AtomicU64::new(1), Mutex::new(None));
        let shared = Arc::new(Self { command, is_apart, next, link });
        let read = connect(&shared).await?;
        tokio::spawn(receive(Arc::downgrade(&shared), read));
        Ok(shared)
    }
}

/// Starts a keeper, and returns where its reports come from.
async fn connect(shared: &Shared) -> Result<Incoming, Error> {
    let command = &shared.command;
    let failed = |source| Error::Start { program: command.program.clone(), source };
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    ours.set_nonblocking(true).map_err(failed)?;
    let (streams, their_streams) = streams::pair().map_err(failed)?;
    let mut started = tokio::process::Command::new(&command.program);
    started
        .args(&command.args)
        .envs(command.env.iter().map(|(name, value)| (name, value)))
        .stdin(OwnedFd::from(theirs))
        .stdout(their_streams);
    if shared.is_apart {
        apart::prepare(started.as_std_mut());
    }
    let mut child = started.spawn().map_err(failed)?;
    // With the command go the other ends of the sockets.
    drop(started);
    let mut read = Incoming::new(ours.try_clone().map_err(failed)?).map_err(failed)?;
    // Only so that no zombie stays: the end of the keeper shows as the end of the stream.
    tokio::spawn(async move { child.wait().await });
    match protocol::read(&mut read, &mut Vec::new()).await {
        Ok(Some(Report::Ready)) => {}
        Ok(Some(Report::Refused { error })) => return Err(Error::Refused(error)),
        _ => return Err(Error::NotReady { program: command.program.clone() }),
    }
    let requests = Arc::new(Outbox { socket: ours, waiting: Mutex::default(), runtime: Handle::current() });
    *shared.link.lock() = Some(Link { requests, streams, processes: HashMap::new() });
    Ok(read)
}

/// What is sent to a keeper. The first request goes at once, so that a process does not wait for its start until whatever else
/// this thread has to do is done; those that come before that is done go together.
struct Outbox {
    socket: UnixStream,
    waiting: Mutex<Waiting>,
    runtime: Handle,
}

#[derive(Default)]
struct Waiting {
    bytes: Vec<u8>,
    /// Somebody is going to send them.
    is_seen_to: bool,
}

impl Outbox {
    fn send(self: &Arc<Self>, request: &Request) {
        let mut waiting = self.waiting.lock();
        protocol::encode(request, &mut waiting.bytes);
        if !std::mem::replace(&mut waiting.is_seen_to, true) {
            self.write_some(&mut waiting.bytes);
            self.runtime.spawn(Arc::clone(self).send_rest());
        }
    }

    /// Writes as much as is taken; returns whether there is no more. What a keeper that is gone does not take is nobody's.
    fn write_some(&self, bytes: &mut Vec<u8>) -> bool {
        socket::write_some(&self.socket, bytes).unwrap_or_else(|error| {
            tracing::warn!(%error, "write to process keeper");
            bytes.clear();
            true
        })
    }

    /// Sends what has come since the first, when it is its turn.
    async fn send_rest(self: Arc<Self>) {
        while !self.is_all_sent() {
            if let Err(error) = socket::writable(&self.socket).await {
                // No descriptor is left to wait with.
                tracing::warn!(%error, "wait for the process keeper");
                tokio::time::sleep(WRITE_RETRY).await;
            }
        }
    }

    fn is_all_sent(&self) -> bool {
        let mut waiting = self.waiting.lock();
        waiting.is_seen_to = !self.write_some(&mut waiting.bytes);
        !waiting.is_seen_to
    }
}

impl Drop for Outbox {
    /// The keeper, which ends then, hears of it also while its reports are still read.
    fn drop(&mut self) {
        _ = self.socket.shutdown(Shutdown::Write);
    }
}

/// Passes reports on, and replaces a keeper that has died, until the last [`Host`] is dropped.
async fn receive(shared: Weak<Shared>, read: Incoming) {
    let mut read = tokio::io::BufReader::new(read);
    let mut frame = Vec::new();
    loop {
        let report = protocol::read(&mut read, &mut frame).await;
        let Some(shared) = shared.upgrade() else { return };
        match report {
            Ok(Some(report)) => {
                pass_on(&shared, report);
                continue;
            }
            Ok(None) => tracing::error!("the process keeper was killed, and all processes with it"),
            Err(error) => tracing::error!(%error, "read from process keeper"),
        }
        lose_all(&shared);
        read = loop {
            match connect(&shared).await {
                Ok(read) => break tokio::io::BufReader::new(read),
                Err(error) => tracing::error!(%error, "replace the process keeper"),
            }
            if Arc::strong_count(&shared) == 1 {
                return;
            }
            tokio::time::sleep(REPLACE_DELAY).await;
        };
    }
}

fn pass_on(shared: &Shared, report: Report) {
    let mut guard = shared.link.lock();
    let Some(Link { processes, .. }) = guard.as_mut() else { return };
    match report {
        Report::Ready | Report::Refused { .. } => {}
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
    let link = shared.link.lock().take();
    for live in link.into_iter().flat_map(|link| link.processes.into_values()) {
        if let Some(group) = &live.held_by
            && let Err(error) = cgroup::end(group)
        {
            tracing::error!(%error, "end what a container has left");
        }
        match live.pid {
            Some(pid) => {
                if let Some(pid) = Pid::from_raw(pid).filter(|_| !shared.is_apart) {
                    let _ = rustix::process::kill_process_group(pid, Signal::KILL);
                }
                (live.sink)(Event::Lost);
            }
            None => (live.sink)(Event::Failed(StartError::KeeperGone)),
        }
    }
}
