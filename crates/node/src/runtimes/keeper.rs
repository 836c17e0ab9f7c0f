//! The keeper: a small process of its own that starts, watches and in the end kills everything the agent
//! runs.
//!
//! ```text
//!   agent ──socket──► keeper (own session, child subreaper, one thread)
//!                        ├── container (own session, PR_SET_PDEATHSIG), its output in a pipe
//!                        │      └── whatever it starts
//!                        ├── guests of containers (exec), each in its own session
//!                        └── orphans of containers, adopted
//! ```
//!
//! One keeper serves one agent, and a second one an agent that is not root (`apart`). It exists for three reasons:
//!
//! * **Nothing is left behind.** When the agent dies, however it dies, the kernel closes its end of the
//!   socket. The keeper reads the end of the stream and kills all its descendants; it is a child subreaper,
//!   so a process that forked twice and made its own session is a descendant still. Needs no root and no
//!   cgroup. Should the keeper be the one that is killed, the containers get SIGKILL from the kernel (the
//!   keeper's only thread forked them and lives as long as it).
//! * **An end is an end.** A container has ended when its main process has, and then the rest of it is
//!   killed, as the end of PID 1 does in a container. Members are known by their session or, if they made
//!   their own, by `MARKER` in their environment. Only when none is left the agent hears of the exit. Who
//!   clears the environment and makes a session lives on until the keeper ends, unless a pid namespace or a
//!   control group (`Sandbox::held_by`) holds all of the container.
//! * **It is cheap.** A fork copies the page tables of this process, not those of an agent with a gigabyte of
//!   pods; and most processes are started without one (`spawn`).
//!
//! Process ids cannot be confused: the keeper alone reaps, so a pid it knows is not reused under it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Rlimit, Signal, WaitOptions, WaitStatus};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe::Receiver;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::Instant;

use super::output::{Output, new_log};
use super::protocol::{self, Exit, Guest, Input, Process, Report, Request, StartError, Starts};
use super::sandbox::{self, Sandbox};
use super::sealed::Sealed;
use super::socket::{self, Incoming};
use super::spawn::{self, Start};
use super::stand_in::StandIn;
use super::{apart, holder, streams, takeover};
use crate::cgroup::{self, Gathered};

/// The environment variable that says to which container a process belongs.
pub const MARKER: &str = "WINDLASS_CONTAINER";

/// The environment variable that says which directory the agent of a keeper has.
pub(crate) const PLACE: &str = "WINDLASS_KEEPER_PLACE";

/// The environment variable that says what this process is, if not the keeper of an agent.
pub(super) const ROLE: &str = "WINDLASS_KEEPER_ROLE";

/// How often to look again, a millisecond apart, at a process that shows no environment because its program is being
/// started. On a busy machine that can take a while.
const ENVIRONMENT_TRIES: u32 = 5000;
/// Where its environment ends, among the fields of `/proc/<pid>/stat` from the state on: 0 as long as it has none.
const ENVIRONMENT_END: usize = 48;

/// How often to kill what the first process of a container has left, a millisecond apart, before the runtime is killed too.
const END_OTHERS_TRIES: u32 = 200;

/// How long it is kept back that a process has started: one that ends sooner is told of once, and wakes the agent once.
const START_TOLD_AFTER: Duration = Duration::from_millis(1);

/// What is read at once of a list of processes.
const LIST_BYTES: usize = 4096;

/// The longest text of a runtime that is passed on.
const RUNTIME_ERROR_BYTES_MAX: usize = 4096;

/// This program once more, as something else than the keeper of an agent.
pub(super) fn again(role: &str) -> Command {
    let mut command = Command::new("/proc/self/exe");
    command.args(std::env::args_os().skip(1)).env(ROLE, role).env_remove(PLACE);
    command
}

/// Runs the keeper on standard input until the agent is gone. The body of the hidden `__keeper` command.
pub fn main() -> ExitCode {
    use io::ErrorKind::{BrokenPipe, ConnectionReset};
    match serve() {
        Ok(()) => ExitCode::SUCCESS,
        // An agent that was killed in the middle of a message is gone like any other.
        Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("windlass: process keeper: {error}");
            ExitCode::FAILURE
        }
    }
}

fn serve() -> io::Result<()> {
    // Own session: a Ctrl-C in the terminal is for the agent, which ends pods gracefully.
    // Fails for a process group leader, which is no harm: then a Ctrl-C does not reach it either.
    let _ = rustix::process::setsid();
    let role = std::env::var(ROLE).unwrap_or_default();
    if role == holder::ROLE {
        return holder::hold();
    }
    mind_signals();
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    socket.set_nonblocking(true)?;
    // Held until this process is gone, and with it all that it ran.
    let _place = match std::env::var_os(PLACE) {
        Some(place) => match takeover::take(Path::new(&place), &socket)? {
            Some(held) => Some(held),
            None => return Ok(()),
        },
        None => None,
    };
    if role == apart::OUTER {
        if let Err(error) = apart::keep_inner() {
            let mut told = Vec::new();
            protocol::encode(&Report::Refused { error: error.to_string() }, &mut told);
            io::Write::write_all(&mut &socket, &told)?;
        }
        return Ok(());
    }
    let files = takeover::raise_file_limit();
    let mut groups = BTreeSet::new();
    let gathered = std::env::var_os(PLACE).and_then(|place| gather(Path::new(&place)));
    let kept = keep(socket, files, &mut groups);
    let result = tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(kept);
    kill_everything();
    if let Some(gathered) = gathered {
        gathered.leave();
    }
    // An agent that was killed has left them, and one of a single run has no successor.
    for group in &groups {
        cgroup::sweep(group);
        cgroup::remove(group);
    }
    result
}

/// Does away with what the command was told to ignore, as by `nohup` or as one of a script that does not wait for it: a container
/// would ignore it too, and could not even change that if it is a shell. `SIGPIPE` is what this program ignores itself, and
/// gives back to what it runs.
fn mind_signals() {
    for number in (1..=libc::SIGRTMAX()).filter(|number| *number != libc::SIGPIPE) {
        // SAFETY: what is zero here is written by the first call, unless that fails; the second has no handler to call.
        unsafe {
            let mut found: libc::sigaction = std::mem::zeroed();
            let is_known = libc::sigaction(number, std::ptr::null(), &raw mut found) == 0;
            if is_known && found.sa_sigaction == libc::SIG_IGN {
                libc::signal(number, libc::SIG_DFL);
            }
        }
    }
}

/// Makes one group of all that is run for the agent with this directory, where that costs nothing.
fn gather(place: &Path) -> Option<Gathered> {
    Gathered::this_process(&cgroup::Layout::of_this_process()?.of_agent(place).ok()?)
}

/// Answers requests until the agent closes the socket. `groups` are then those of the agent in which it made others.
async fn keep(socket: UnixStream, files: Option<Rlimit>, groups: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    let mut child_ended = signal(SignalKind::child())?;
    let mut requests = tokio::io::BufReader::new(Incoming::new(socket.try_clone()?)?);
    let (starts, mut started) = tokio::sync::mpsc::unbounded_channel();
    let (firsts, mut first_ended) = tokio::sync::mpsc::unbounded_channel();
    let mut keeper = Keeper {
        containers: BTreeMap::new(),
        guests: BTreeMap::new(),
        strangers: BTreeSet::new(),
        holders: BTreeMap::new(),
        starts,
        firsts,
        files,
        sealed: Sealed::default(),
        children: Children::new(),
        out: Vec::new(),
        tell_at: None,
        socket,
    };
    keeper.tell(&Report::Ready);
    keeper.flush().await?;
    let mut frame = Vec::new();
    loop {
        // Only the wait for a request can be cancelled: giving up a read half way would lose bytes.
        let has_request = tokio::select! {
            biased;
            _ = child_ended.recv() => false,
            Some(pid) = started.recv() => {
                keeper.has_started(pid);
                false
            }
            Some(pid) = first_ended.recv() => {
                keeper.end_others(pid);
                false
            }
            ready = readable(&mut requests) => ready?,
            () = until(keeper.tell_at), if keeper.tell_at.is_some() => {
                keeper.tell_at = None;
                false
            }
        };
        if has_request {
            match protocol::read(&mut requests, &mut frame).await? {
                Some(Request::Start { id, process }) => {
                    let members = process.sandbox.iter().flat_map(|sandbox| &sandbox.cgroups);
                    groups.extend(members.filter_map(|file| cgroup::of_agent(file)).map(Path::to_owned));
                    keeper.start(id, &process);
                }
                Some(Request::Join { id, guest }) => keeper.join(id, &guest),
                Some(Request::Signal { id, signal }) => keeper.signal(id, signal),
                None => return Ok(()),
            }
        }
        keeper.reap();
        if keeper.tell_at.is_none() {
            keeper.flush().await?;
        }
    }
}

async fn until(time: Option<Instant>) {
    tokio::time::sleep_until(time.unwrap_or_else(Instant::now)).await;
}

/// Waits until there is something to read or the stream has ended.
async fn readable(from: &mut (impl tokio::io::AsyncBufRead + Unpin)) -> io::Result<bool> {
    tokio::io::AsyncBufReadExt::fill_buf(from).await?;
    Ok(true)
}

struct Container {
    id: u64,
    marker: String,
    output: Output,
    sandbox: Option<Box<Sandbox>>,
    /// Of a runtime that has not said yet that its container has started.
    starting: Option<Starting>,
    /// Set when the main process has ended and other members may still live.
    ended: Option<Exit>,
}

/// A runtime whose container has not started yet.
struct Starting {
    told_by: Arc<Receiver>,
    errors: PathBuf,
    waits: tokio::task::AbortHandle,
}

impl Starting {
    /// What it has said, also if nobody has heard it yet: the first process of the container.
    fn told(&self) -> Option<String> {
        let mut said = [0_u8; 32];
        let count = rustix::io::read(&*self.told_by, &mut said).ok().filter(|count| *count > 0)?;
        Some(String::from_utf8_lossy(&said[..count]).trim().to_owned())
    }

    /// What it said about why not.
    fn error(&self) -> StartError {
        let said = std::fs::read(&self.errors).unwrap_or_default();
        let said =
            String::from_utf8_lossy(&said[..said.len().min(RUNTIME_ERROR_BYTES_MAX)]).trim().to_owned();
        let error = if said.is_empty() {
            "the runtime ended without a word".to_owned()
        } else {
            runtime_error(&said)
        };
        StartError::Runtime { error }
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        self.waits.abort();
    }
}

/// What a runtime wrote in its log, which is lines of JSON: its errors, and all of it where it calls nothing an error.
fn runtime_error(text: &str) -> String {
    #[derive(serde::Deserialize)]
    struct Line {
        level: String,
        #[serde(alias = "message")]
        msg: String,
        /// The part of youki that says it: every one says once more what the one below has said.
        target: Option<String>,
    }
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    let errors: Vec<Line> = lines.filter(|line| line.level.eq_ignore_ascii_case("error")).collect();
    match errors.last() {
        None => text.to_owned(),
        Some(Line { msg, target: Some(_), .. }) => msg.lines().next().unwrap_or_default().to_owned(),
        Some(_) => errors.into_iter().map(|line| line.msg).collect::<Vec<_>>().join("; "),
    }
}

/// A process that runs in a container and is not its main one.
struct Joined {
    id: u64,
    /// The pid of the main process.
    container: i32,
}

/// Whose an adopted orphan is.
enum Kin {
    /// Of the container with this main process.
    Of(i32),
    /// Of a container that has ended: it was not there yet when the others were killed.
    Late,
    /// Not known: it ends at this moment, and what it has made becomes ours with that.
    Leaving,
    /// Not known.
    Nobody,
}

struct Keeper {
    /// By the pid of the main process, which is also the id of its session and process group.
    containers: BTreeMap<i32, Container>,
    /// By pid.
    guests: BTreeMap<i32, Joined>,
    /// Adopted orphans of which nobody can say whose they are.
    strangers: BTreeSet<i32>,
    /// The first processes of the pid namespaces of pods, by what their containers call them.
    holders: BTreeMap<String, i32>,
    /// Hears the pids of runtimes whose containers have started.
    starts: tokio::sync::mpsc::UnboundedSender<i32>,
    /// Hears those of runtimes of which the first process of the container has ended, where nothing else ends the others.
    firsts: tokio::sync::mpsc::UnboundedSender<i32>,
    /// How many files a process may have open that did not need as many as the keeper.
    files: Option<Rlimit>,
    /// Runtimes, as they are run.
    sealed: Sealed,
    children: Children,
    out: Vec<u8>,
    /// When to tell at the latest what is in there, if it is not worth waking the agent for.
    tell_at: Option<Instant>,
    socket: UnixStream,
}

impl Keeper {
    fn tell(&mut self, report: &Report) {
        protocol::encode(report, &mut self.out);
        self.tell_at = None;
    }

    /// The same, together with what else is to be told within a moment.
    fn tell_soon(&mut self, report: &Report) {
        let waits_already = self.tell_at.is_some();
        if waits_already || self.out.is_empty() {
            self.tell_at.get_or_insert_with(|| Instant::now() + START_TOLD_AFTER);
        }
        protocol::encode(report, &mut self.out);
    }

    async fn flush(&mut self) -> io::Result<()> {
        while !socket::write_some(&self.socket, &mut self.out)? {
            socket::writable(&self.socket).await?;
        }
        Ok(())
    }

    fn start(&mut self, id: u64, process: &Process) {
        // Taken also when it can't be used, so that the next one gets its own.
        let given = Given::receive(process.input);
        let told_by = process.starts.as_ref().map(open_pipe).transpose();
        let program = process.starts.as_ref().and_then(|_| self.sealed.of(process.argv.first()?));
        let started = told_by.and_then(|told_by| {
            let namespace = self.namespace(process.sandbox.as_deref())?;
            Ok((told_by, spawn_process(process, program.as_deref(), given?, namespace, self.files)?))
        });
        match started {
            Ok((told_by, (pid, mut output))) => {
                let marker = marker(&process.env);
                let sandbox = process.sandbox.clone();
                let starting = told_by.map(|(told_by, errors)| self.await_start(pid, told_by, errors));
                let is_started = starting.is_none();
                if is_started {
                    output.start();
                }
                self.containers.insert(pid, Container { id, marker, output, sandbox, starting, ended: None });
                let report = Report::Started { id, pid };
                match process.makes_log_late {
                    _ if !is_started => {}
                    // No agent comes after this one: what was not told when the keeper is killed is asked by nobody.
                    true => self.tell_soon(&report),
                    false => self.tell(&report),
                }
            }
            Err(error) => {
                self.tell(&Report::Failed { id, error });
                self.release_holders();
            }
        }
    }

    /// The pid namespace that a process is started in, if not that of the keeper.
    fn namespace(&mut self, sandbox: Option<&Sandbox>) -> Result<Option<PidNamespace>, StartError> {
        let Some(sandbox) = sandbox else { return Ok(None) };
        let Some(pod) = sandbox.shared_pids() else {
            return Ok(sandbox.is_first_process().then_some(PidNamespace::New));
        };
        let holder = match self.holders.get(pod) {
            Some(holder) => *holder,
            None => {
                let holder = holder::start()?;
                self.holders.insert(pod.to_owned(), holder);
                holder
            }
        };
        let opened = std::fs::File::open(format!("/proc/{holder}/ns/pid"));
        let failed =
            |error| StartError::Sandbox { error: format!("open the pid namespace of the pod: {error}") };
        Ok(Some(PidNamespace::Of(opened.map_err(failed)?.into())))
    }

    /// Ends those that no container needs.
    fn release_holders(&mut self) {
        if self.holders.is_empty() {
            return;
        }
        let sandboxes = self.containers.values().filter_map(|container| container.sandbox.as_deref());
        let needed: BTreeSet<&str> = sandboxes.filter_map(Sandbox::shared_pids).collect();
        self.holders.retain(|pod, holder| {
            let is_needed = needed.contains(pod.as_str());
            if !is_needed {
                kill(*holder, Signal::KILL);
            }
            is_needed
        });
    }

    fn await_start(&self, pid: i32, told_by: Receiver, errors: PathBuf) -> Starting {
        let told_by = Arc::new(told_by);
        let (pipe, starts) = (Arc::clone(&told_by), self.starts.clone());
        let waits = tokio::spawn(async move {
            if pipe.readable().await.is_ok() {
                let _ = starts.send(pid);
            }
        });
        Starting { told_by, errors, waits: waits.abort_handle() }
    }

    /// The container of a runtime runs.
    fn has_started(&mut self, pid: i32) {
        let Some(container) = self.containers.get_mut(&pid) else { return };
        let Some(starting) = container.starting.take() else { return };
        container.output.start();
        let id = container.id;
        if let Some(group) = container.sandbox.as_ref().and_then(|sandbox| sandbox.held_by.clone()) {
            let first = starting.told().and_then(|text| text.parse().ok());
            let ends = self.firsts.clone();
            tokio::spawn(async move {
                until_ended(first, &group).await;
                let _ = ends.send(pid);
            });
        }
        self.tell(&Report::Started { id, pid });
    }

    /// The first process of a container without a pid namespace has ended: so do the others. The runtime, which may wait for
    /// them, is left to say how the first one ended.
    fn end_others(&mut self, main: i32) {
        let container = self.containers.get(&main).filter(|container| container.ended.is_none());
        let sandbox = container.and_then(|container| container.sandbox.as_ref());
        let Some(group) = sandbox.and_then(|sandbox| sandbox.held_by.as_ref()) else { return };
        for _ in 0..END_OTHERS_TRIES {
            if cgroup::kill_others(group, main).unwrap_or(true) {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // They multiply faster than they are killed.
        let _ = cgroup::kill(group);
    }

    fn join(&mut self, id: u64, guest: &Guest) {
        // Taken also when it can't be used, so that the next one gets its own.
        let streams = streams::receive(io::stdout())
            .map_err(|error| StartError::Streams { error: io::Error::from(error).to_string() });
        let marker = marker(&guest.env);
        let container = self
            .containers
            .iter()
            .find(|(_, container)| container.marker == marker && container.ended.is_none());
        let started = match container {
            Some((&pid, container)) => {
                let sandbox = container.sandbox.as_deref().map(|sandbox| (sandbox, pid));
                streams.and_then(|streams| Ok((pid, spawn_guest(guest, streams, sandbox, self.files)?)))
            }
            None => Err(StartError::ContainerGone),
        };
        match started {
            Ok((container, pid)) => {
                self.guests.insert(pid, Joined { id, container });
                self.tell(&Report::Started { id, pid });
            }
            Err(error) => self.tell(&Report::Failed { id, error }),
        }
    }

    fn signal(&self, id: u64, number: i32) {
        let containers = self.containers.iter().map(|(pid, container)| (*pid, container.id));
        let guests = self.guests.iter().map(|(pid, guest)| (*pid, guest.id));
        let running = containers.chain(guests).find(|(_, running)| *running == id);
        let (Some((pid, _)), Some(signal)) = (running, Signal::from_named_raw(number)) else { return };
        kill_group(pid, signal);
    }

    /// Collects every child that has ended, and reports the containers of which nothing is left.
    fn reap(&mut self) {
        while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_pid();
            self.strangers.remove(&pid);
            self.holders.retain(|_, holder| *holder != pid || exit_of(status).is_none());
            if let Some(exit) = exit_of(status)
                && let Some(guest) = self.guests.remove(&pid)
            {
                // What it leaves behind belongs to the container, and ends with it.
                self.tell(&Report::Exited { id: guest.id, exit });
            }
            if let Some(container) = self.containers.get_mut(&pid)
                && let Some(exit) = exit_of(status)
            {
                container.ended = Some(exit);
                kill_group(pid, Signal::KILL);
                let guests = self.guests.iter().filter(|(_, guest)| guest.container == pid);
                guests.for_each(|(guest, _)| kill_group(*guest, Signal::KILL));
            }
        }
        if self.containers.values().any(|container| container.ended.is_some()) {
            self.finish_ended();
        }
    }

    fn finish_ended(&mut self) {
        let mut alive = BTreeSet::new();
        let mut is_one_leaving = false;
        for child in self.children.now() {
            if self.is_running(child) || self.holders.values().any(|holder| *holder == child) {
                continue;
            }
            match self.kin(child) {
                Kin::Of(main) if self.is_running(main) => {}
                Kin::Of(main) => {
                    kill(child, Signal::KILL);
                    alive.insert(main);
                }
                Kin::Late => kill(child, Signal::KILL),
                Kin::Leaving => is_one_leaving = true,
                Kin::Nobody => {}
            }
        }
        if is_one_leaving {
            // Its own children may have become ours after the list was made. Its end is heard of in a moment.
            return;
        }
        let ended = self.containers.iter().filter(|(_, container)| container.ended.is_some());
        let is_held = |container: &Container| {
            let Some(sandbox) = container.sandbox.as_ref() else { return false };
            let Some(group) = sandbox.held_by.as_ref() else { return false };
            // What can't be looked at is not waited for: it would be for ever.
            match sandbox.shared_pids() {
                // Orphans go to the holder.
                Some(_) => {
                    let _ = cgroup::end(group);
                    false
                }
                None => cgroup::kill(group).is_ok_and(|is_empty| !is_empty),
            }
        };
        // The ends of the others that are killed here are heard of, for orphans are adopted.
        alive.extend(ended.filter(|(_, container)| is_held(container)).map(|(pid, _)| *pid));
        let done: Vec<i32> = self
            .containers
            .iter()
            .filter(|(pid, container)| container.ended.is_some() && !alive.contains(pid))
            .map(|(pid, _)| *pid)
            .collect();
        for pid in done {
            if let Some(Container { id, output, ended: Some(exit), starting, .. }) =
                self.containers.remove(&pid)
            {
                match starting {
                    Some(starting) if starting.told().is_none() => {
                        self.tell(&Report::Failed { id, error: starting.error() });
                        continue;
                    }
                    Some(_) => self.tell(&Report::Started { id, pid }),
                    None => {}
                }
                output.finish();
                self.tell(&Report::Exited { id, exit });
            }
        }
        self.release_holders();
    }

    fn is_running(&self, pid: i32) -> bool {
        self.containers.get(&pid).is_some_and(|container| container.ended.is_none())
    }

    /// Whose an adopted orphan is: told by its session, or by the marker in its environment.
    fn kin(&mut self, orphan: i32) -> Kin {
        if self.strangers.contains(&orphan) {
            return Kin::Nobody;
        }
        if let Some(guest) = self.guests.get(&orphan) {
            return Kin::Of(guest.container);
        }
        match rustix::process::getsid(Pid::from_raw(orphan)).map(Pid::as_raw_pid) {
            Ok(session) if self.containers.contains_key(&session) => return Kin::Of(session),
            Ok(_) => {}
            Err(_) => return Kin::Nobody,
        }
        let Some(environment) = environment(orphan) else { return Kin::Leaving };
        let prefix = format!("{MARKER}=");
        let marker = environment.split(|byte| *byte == 0).find(|entry| entry.starts_with(prefix.as_bytes()));
        let Some(marker) = marker else {
            self.strangers.insert(orphan);
            return Kin::Nobody;
        };
        let owner = self.containers.iter().find(|(_, container)| container.marker.as_bytes() == marker);
        owner.map_or(Kin::Late, |(pid, _)| Kin::Of(*pid))
    }
}

/// Waits for the end of a process of a group, by the number that it has for itself; not at all for one that is not in it, for
/// it has ended then.
async fn until_ended(process: Option<i32>, group: &Path) {
    let Some(number) = process else { return std::future::pending().await };
    let Some(pid) = cgroup::find(group, number).and_then(Pid::from_raw) else { return };
    let Ok(held) = rustix::process::pidfd_open(pid, PidfdFlags::NONBLOCK) else { return };
    // Looked at again while it is held, so that the number can't become that of another.
    if cgroup::find(group, number) != Some(pid.as_raw_pid()) {
        return;
    }
    // SAFETY: the descriptor is its own, and stays the same until it is closed.
    if let Ok(held) = unsafe { AsyncFd::register_with_interest(held, Interest::READABLE) } {
        let _ = held.readable().await;
    }
}

/// The environment of a process; `None` when it is dead, empty when it has none or hides it.
fn environment(pid: i32) -> Option<Vec<u8>> {
    let end = || stat(pid, ENVIRONMENT_END).filter(|end| end != "0");
    for _ in 0..ENVIRONMENT_TRIES {
        let before = end();
        match std::fs::read(format!("/proc/{pid}/environ")) {
            Ok(environment) if !environment.is_empty() => return Some(environment),
            Ok(_) if is_zombie(pid) => return None,
            // The same program before and after the look: it was not being started.
            Ok(_) if before.is_some() && before == end() => break,
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => break,
            Err(_) if is_zombie(pid) => return None,
            Ok(_) | Err(_) => std::thread::sleep(Duration::from_millis(1)),
        }
    }
    Some(Vec::new())
}

pub(super) fn exit_of(status: WaitStatus) -> Option<Exit> {
    let code = status.exit_status().map(Exit::Code);
    code.or_else(|| status.terminating_signal().map(Exit::Signal))
}

/// The mark of the container in an environment, as it stands in there.
fn marker(env: &[(String, String)]) -> String {
    let marker = env.iter().rev().find(|(name, _)| name == MARKER);
    marker.map(|(name, value)| format!("{name}={value}")).unwrap_or_default()
}

/// Starts one process in its own session, and returns its pid and what it prints. `program`: where it is, if not where the
/// first of its arguments says.
fn spawn_process(
    process: &Process,
    program: Option<&Path>,
    given: Given,
    namespace: Option<PidNamespace>,
    files: Option<Rlimit>,
) -> Result<(i32, Output), StartError> {
    let log_error =
        |error: io::Error| StartError::Log { path: process.log.clone(), error: error.to_string() };
    let Process { argv, env, cwd, .. } = process;
    check_start(argv)?;
    let log = (!process.makes_log_late).then(|| new_log(&process.log)).transpose().map_err(log_error)?;
    let has_terminal = matches!(given, Given::Terminal { .. });
    let (streams, printed) = given.connect().map_err(log_error)?;
    let output = Output::new(printed, log, process);
    let stand_in = process.starts.as_ref().and_then(|starts| {
        Some(StandIn {
            argv: argv.clone(),
            program: program.map(Path::to_owned),
            env: env.clone(),
            left: starts.left.clone()?,
            told_by: Some(starts.told_by.clone()),
        })
    });
    let manner = Manner { has_terminal, has_other_pids: namespace.is_some(), files, stand_in };
    let Some(sandbox) = process.sandbox.clone() else {
        return Ok((run_plain(argv, env, cwd, &streams, &manner)?, output));
    };
    let command = command(argv, program, env, streams);
    let cwd = cwd.clone();
    let enter: Enter = Box::new(move || sandbox.enter(&cwd));
    let pid = in_pid_namespace(namespace, || run(command, argv, Some(enter), manner))?;
    Ok((pid, output))
}

/// What a container was given to read.
enum Given {
    Nothing,
    Pipe(OwnedFd),
    Terminal { theirs: OwnedFd, ours: OwnedFd },
}

impl Given {
    fn receive(input: Input) -> Result<Self, StartError> {
        let streams = || {
            streams::receive(io::stdout())
                .map_err(|error| StartError::Streams { error: io::Error::from(error).to_string() })
        };
        match input {
            Input::Nothing => Ok(Self::Nothing),
            Input::Pipe => streams().map(|[stdin, ..]| Self::Pipe(stdin)),
            Input::Terminal => streams().map(|[theirs, ours, _]| Self::Terminal { theirs, ours }),
        }
    }

    /// What the process has for its three streams, and where that comes from which it prints.
    fn connect(self) -> io::Result<([OwnedFd; 3], Receiver)> {
        let stdin = match self {
            Self::Nothing => nothing()?,
            Self::Pipe(stdin) => stdin,
            Self::Terminal { theirs, ours } => {
                let streams = [theirs.try_clone()?, theirs.try_clone()?, theirs];
                return Ok((streams, Receiver::from_owned_fd_unchecked(ours)?));
            }
        };
        let (reader, writer) = io::pipe()?;
        let streams = [stdin, writer.try_clone()?.into(), writer.into()];
        rustix::io::ioctl_fionbio(&reader, true)?;
        Ok((streams, Receiver::from_owned_fd_unchecked(reader.into())?))
    }
}

/// A descriptor of what has nothing to read. It is opened once.
fn nothing() -> io::Result<OwnedFd> {
    static NOTHING: OnceLock<File> = OnceLock::new();
    let file = match NOTHING.get() {
        Some(file) => file,
        None => {
            let file = File::open("/dev/null")?;
            NOTHING.get_or_init(|| file)
        }
    };
    Ok(file.try_clone()?.into())
}

/// Where the next process of the keeper is started.
pub(super) enum PidNamespace {
    /// In one of its own.
    New,
    /// In that of another process.
    Of(OwnedFd),
}

/// Starts a process there; the one after it is started here again.
pub(super) fn in_pid_namespace(
    namespace: Option<PidNamespace>,
    start: impl FnOnce() -> Result<i32, StartError>,
) -> Result<i32, StartError> {
    let Some(namespace) = namespace else { return start() };
    let failed = |error: io::Error| StartError::Sandbox { error: format!("make a pid namespace: {error}") };
    let own = std::fs::File::open("/proc/self/ns/pid").map_err(failed)?;
    let kind = Some(rustix::thread::LinkNameSpaceType::ProcessID);
    match namespace {
        // SAFETY: file descriptors are not unshared.
        PidNamespace::New => unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWPID) },
        PidNamespace::Of(other) => rustix::thread::move_into_link_name_space(other.as_fd(), kind),
    }
    .map_err(|error| failed(error.into()))?;
    let started = start();
    // Who can leave can come back; else every process to come would be in there.
    rustix::thread::move_into_link_name_space(own.as_fd(), kind).map_err(|error| failed(error.into()))?;
    started
}

/// Opens the pipe by which a runtime says that its container has started.
fn open_pipe(starts: &Starts) -> Result<(Receiver, PathBuf), StartError> {
    // For writing too, so that its end is never seen and the runtime never waits for a reader.
    let opened = tokio::net::unix::pipe::OpenOptions::new().read_write(true).open_receiver(&starts.told_by);
    let opened = opened.map_err(|error| StartError::Sandbox {
        error: format!("open {}: {error}", starts.told_by.display()),
    })?;
    Ok((opened, starts.errors.clone()))
}

/// Starts one process that talks to these streams in its own session, and returns its pid. `sandbox`: what the container
/// that it joins has, and the pid of that.
fn spawn_guest(
    guest: &Guest,
    streams: [OwnedFd; 3],
    sandbox: Option<(&Sandbox, i32)>,
    files: Option<Rlimit>,
) -> Result<i32, StartError> {
    let stand_in = guest.left.clone().map(|left| StandIn {
        argv: guest.argv.clone(),
        program: None,
        env: guest.env.clone(),
        left,
        told_by: None,
    });
    let manner =
        |has_other_pids| Manner { has_terminal: guest.has_terminal, has_other_pids, files, stand_in };
    check_start(&guest.argv)?;
    let Some((sandbox, pid)) = sandbox else {
        return run_plain(&guest.argv, &guest.env, &guest.cwd, &streams, &manner(false));
    };
    let command = command(&guest.argv, None, &guest.env, streams);
    let failed =
        |error| StartError::Sandbox { error: format!("open the namespaces of the container: {error}") };
    let namespaces = sandbox.namespaces(pid).map_err(failed)?;
    let pids = sandbox.pid_namespace(pid).map_err(failed)?;
    let has_other_pids = pids.is_some();
    let (sandbox, cwd) = (sandbox.clone(), guest.cwd.clone());
    let enter = Some(Box::new(move || sandbox.join(&namespaces, &cwd)) as Enter);
    in_pid_namespace(pids.map(PidNamespace::Of), || run(command, &guest.argv, enter, manner(has_other_pids)))
}

fn exec_error(argv: &[String], error: &io::Error) -> StartError {
    StartError::Exec { program: argv.first().cloned().unwrap_or_default(), error: error.to_string() }
}

/// Refuses what can't be started.
fn check_start(argv: &[String]) -> Result<(), StartError> {
    if argv.is_empty() {
        return Err(exec_error(argv, &io::ErrorKind::InvalidInput.into()));
    }
    Ok(())
}

/// A command that begins in the keeper's directory.
fn command(
    argv: &[String],
    program: Option<&Path>,
    env: &[(String, String)],
    [stdin, stdout, stderr]: [OwnedFd; 3],
) -> Command {
    let name = argv.first().map_or("", String::as_str);
    let mut command = Command::new(program.unwrap_or(Path::new(name)));
    command
        .arg0(name)
        .args(argv.iter().skip(1))
        .env_clear()
        .envs(env.iter().map(|(name, value)| (name, value)));
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    command
}

/// Starts a process that sees what the keeper sees.
fn run_plain(
    argv: &[String],
    env: &[(String, String)],
    cwd: &Path,
    streams: &[OwnedFd; 3],
    Manner { has_terminal, files, .. }: &Manner,
) -> Result<i32, StartError> {
    let streams = streams.each_ref().map(OwnedFd::as_fd);
    let start = Start { argv, env, cwd, streams, has_terminal: *has_terminal, files: *files };
    spawn::start(&start)
        .map_err(|error| check_directory(cwd).err().unwrap_or_else(|| exec_error(argv, &error)))
}

/// Makes a process one of a container, in the process itself.
pub(super) type Enter = Box<dyn Fn() -> Result<(), sandbox::Error> + Send + Sync>;

/// How a process is run.
pub(super) struct Manner {
    /// Its standard input is a terminal.
    pub(super) has_terminal: bool,
    /// It is not in the pid namespace of the keeper, and does not see its number.
    pub(super) has_other_pids: bool,
    /// How many files it may have open.
    pub(super) files: Option<Rlimit>,
    /// Instead of a program.
    pub(super) stand_in: Option<StandIn>,
}

/// Starts a process that is made one of a container before it runs its program.
pub(super) fn run(
    mut command: Command,
    argv: &[String],
    enter: Option<Enter>,
    Manner { has_terminal, has_other_pids, files, stand_in }: Manner,
) -> Result<i32, StartError> {
    let keeper = rustix::process::getpid();
    let failed = |error: &io::Error| StartError::Sandbox { error: error.to_string() };
    // Carries what can't be said by an error number.
    let mut why = match &enter {
        Some(_) => Some(io::pipe().map_err(|error| failed(&error))?),
        None => None,
    };
    let tell =
        why.as_ref().map(|(_, writer)| writer.try_clone()).transpose().map_err(|error| failed(&error))?;
    // SAFETY: the closure makes system calls. What it allocates in a sandbox it may: the keeper has one thread, so that no
    // lock can be held by another.
    unsafe {
        command.pre_exec(move || {
            rustix::process::setsid()?;
            if let Some(files) = files {
                rustix::process::setrlimit(rustix::process::Resource::Nofile, files)?;
            }
            if has_terminal {
                rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
            }
            if has_other_pids {
                rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
                // By the keeper's files of processes, which are still those that are seen.
                if is_zombie(keeper.as_raw_pid()) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
            }
            if let Some(enter) = &enter
                && let Err(error) = enter()
            {
                if let Some(mut tell) = tell.as_ref() {
                    let _ = io::Write::write_all(&mut tell, error.to_string().as_bytes());
                }
                return Err(io::ErrorKind::Other.into());
            }
            // After a change of the user, which would take it away.
            rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
            // The keeper may have died before the line above could see to it.
            if !has_other_pids && rustix::process::getppid() != Some(keeper) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            match &stand_in {
                Some(stand_in) => stand_in.run(),
                None => Ok(()),
            }
        });
    }
    let spawned = command.spawn();
    // With the command goes the other end of the pipe.
    drop(command);
    match spawned {
        Ok(child) => Ok(child.id().cast_signed()),
        Err(error) => Err(match why.take().map(|(reader, writer)| (drop(writer), reader)) {
            Some(((), reader)) => told(reader).unwrap_or_else(|| exec_error(argv, &error)),
            None => exec_error(argv, &error),
        }),
    }
}

/// What a process said before it gave up.
fn told(mut reader: io::PipeReader) -> Option<StartError> {
    let mut text = String::new();
    io::Read::read_to_string(&mut reader, &mut text).ok()?;
    (!text.is_empty()).then_some(StartError::Sandbox { error: text })
}

/// Tells a bad working directory from a bad program, which the kernel reports alike.
fn check_directory(cwd: &Path) -> Result<(), StartError> {
    let error = match std::fs::metadata(cwd) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => io::Error::from(io::ErrorKind::NotADirectory),
        Err(error) => error,
    };
    Err(StartError::Cwd { path: cwd.to_owned(), error: error.to_string() })
}

fn kill(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // ESRCH: it has just ended.
        let _ = rustix::process::kill_process(pid, signal);
    }
}

fn kill_group(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        // ESRCH: the group is empty.
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// Kills descendants until there are none; orphans of the killed become children and go in the next round.
fn kill_everything() {
    let mut children = Children::new();
    loop {
        for child in children.now() {
            kill_group(child, Signal::KILL);
            kill(child, Signal::KILL);
        }
        match rustix::process::wait(WaitOptions::empty()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(_) => return,
        }
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
    }
}

/// The children of this process, own and adopted.
struct Children {
    /// The kernel's lists, one a thread, each of which costs a read; `None` where it was built without them.
    lists: Option<Vec<File>>,
    text: Vec<u8>,
}

impl Children {
    /// Those of the threads that there are now: a keeper makes no others.
    fn new() -> Self {
        let lists = std::fs::read_dir("/proc/self/task")
            .and_then(|tasks| tasks.flatten().map(|task| File::open(task.path().join("children"))).collect());
        Self { lists: lists.ok(), text: vec![0; LIST_BYTES] }
    }

    /// A list can miss one while another ends: it is read twice.
    fn now(&mut self) -> Vec<i32> {
        let (Some(mut all), Some(again)) = (self.listed(), self.listed()) else { return scanned_children() };
        all.extend(again);
        all.sort_unstable();
        all.dedup();
        all
    }

    fn listed(&mut self) -> Option<Vec<i32>> {
        let mut found = Vec::new();
        for list in self.lists.iter().flatten() {
            let length = read_whole(list, &mut self.text).ok()?;
            let text = std::str::from_utf8(&self.text[..length]).ok()?;
            found.extend(text.split_ascii_whitespace().filter_map(|pid| pid.parse::<i32>().ok()));
        }
        self.lists.as_ref().map(|_| found)
    }
}

/// Reads a file from its beginning, and returns its length.
fn read_whole(file: &File, into: &mut Vec<u8>) -> io::Result<usize> {
    let mut length = 0;
    loop {
        match file.read_at(&mut into[length..], length as u64) {
            Ok(0) => return Ok(length),
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if length == into.len() {
            into.resize(length * 2, 0);
        }
    }
}

/// From the parent of every process of the machine.
fn scanned_children() -> Vec<i32> {
    let me = rustix::process::getpid().as_raw_pid();
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| parent(*pid) == Some(me))
        .collect()
}

fn parent(pid: i32) -> Option<i32> {
    stat(pid, 1)?.parse().ok()
}

fn is_zombie(pid: i32) -> bool {
    stat(pid, 0).is_none_or(|state| state == "Z" || state == "X")
}

/// A field of `/proc/<pid>/stat`, counted from the state: before it is a name in parentheses that may hold anything.
fn stat(pid: i32, field: usize) -> Option<String> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(field).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_that_have_ended_do_not_stop_the_listing() {
        let (told, hears) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || hears.recv());
        let mut children = Children::new();
        drop(told);
        let _ = thread.join().expect("it only waits");
        assert!(children.listed().is_some());
    }

    #[test]
    fn a_list_that_is_longer_than_what_is_read_at_once_is_read_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("list");
        std::fs::write(&path, "7 ".repeat(5000)).expect("written");
        let lists = Some(vec![File::open(&path).expect("opened")]);
        let mut children = Children { lists, text: vec![0; 64] };
        assert_eq!(children.listed(), Some(vec![7; 5000]));
        assert_eq!(children.now(), [7]);
    }

    #[test]
    fn of_what_a_runtime_writes_its_errors_are_passed_on() {
        let warning = r#"{"level":"warning","msg":"no oom count","error":"x","time":"t"}"#;
        let error = r#"{"msg":"`x` not found","level":"error","time":"t"}"#;
        let below = r#"{"timestamp":"t","level":"ERROR","message":"no x","target":"libcontainer::process"}"#;
        let above = r#"{"timestamp":"t","level":"ERROR","message":"failed: no x\n\nStack backtrace:","target":"youki"}"#;
        for (text, want) in [
            (error.to_owned(), "`x` not found"),
            (format!("{warning}\n{error}"), "`x` not found"),
            (format!("{error}\n{error}"), "`x` not found; `x` not found"),
            (warning.to_owned(), warning),
            ("panic: plain\ntext".to_owned(), "panic: plain\ntext"),
            (format!("cut off\"}}\n{below}\n{above}"), "failed: no x"),
        ] {
            assert_eq!(runtime_error(&text), want);
        }
    }

    #[test]
    fn both_ways_of_listing_children_agree() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("sleep is there");
        let pid = child.id().cast_signed();
        let (listed, scanned) =
            (Children::new().listed().expect("this kernel has lists"), scanned_children());
        child.kill().expect("it runs");
        child.wait().expect("it is ours");
        assert!(listed.contains(&pid) && scanned.contains(&pid), "{pid} in {listed:?} and {scanned:?}");
    }
}
