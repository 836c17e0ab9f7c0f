//! Logs, exec and attach: what the API server asks about containers, answered from log files and by guest processes.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use parking_lot::Mutex;
use rustix::io::Errno;
use tokio::io::{AsyncReadExt, AsyncWrite};
use tokio::net::unix::pipe::Receiver;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use windlass_streams::{Chunks, Container, Error, Exec, Log, LogOptions, PodStreams, Run, Session, Streams};

use crate::agent::Agent;
use crate::input::{self, Input};
use crate::logs::read::Reader;
use crate::logs::{self, PodName, follow};
use crate::oci::Exec as Joining;
use crate::pod::Context;
use crate::runtimes::host::Event;
use crate::runtimes::keeper::MARKER;
use crate::runtimes::streams::Ends;
use crate::runtimes::{Guest, Process, StartError};

/// After a process has ended, how long its streams may be silent before they count as at their end. What it printed is
/// there by then; who else has them open may keep them open for ever.
const SILENCE: Duration = Duration::from_millis(100);
/// What is read at once from a guest.
const PIECE_BYTES: usize = 32 << 10;

/// The id of a run of a container, as its status has it.
pub(crate) fn container_id(uid: &str, container: &str, run: i32) -> String {
    format!("host://{uid}/{container}/{run}")
}

/// What a container that runs was started with.
#[derive(Clone, Debug)]
struct Live {
    run: i32,
    env: Vec<(String, String)>,
    cwd: PathBuf,
    log: PathBuf,
    pid: Option<i32>,
    is_apart: bool,
    exec: Option<Joining>,
    input: Option<Arc<Input>>,
    ended: CancellationToken,
}

/// The containers that run, by the UID of their pod and their name.
#[derive(Debug, Default)]
pub(crate) struct Table(Mutex<HashMap<(String, String), Live>>);

impl Table {
    /// A container is being started.
    pub(crate) fn insert(
        &self,
        uid: &str,
        container: &str,
        run: i32,
        process: &Process,
        (exec, input): (Option<Joining>, Option<Arc<Input>>),
    ) {
        let is_apart = process.is_apart();
        let Process { env, cwd, log, .. } = process.clone();
        let live =
            Live { run, env, cwd, log, pid: None, is_apart, exec, input, ended: CancellationToken::new() };
        self.0.lock().insert((uid.to_owned(), container.to_owned()), live);
    }

    /// A container has ended, and all that it printed is in its log.
    pub(crate) fn remove(&self, uid: &str, container: &str) {
        if let Some(live) = self.0.lock().remove(&(uid.to_owned(), container.to_owned())) {
            live.ended.cancel();
        }
    }

    /// A container has a process.
    pub(crate) fn set_pid(&self, uid: &str, container: &str, pid: i32) {
        if let Some(live) = self.0.lock().get_mut(&(uid.to_owned(), container.to_owned())) {
            live.pid = Some(pid);
        }
    }

    /// The main process of a container that runs.
    pub(crate) fn pid(&self, uid: &str, container: &str) -> Option<i32> {
        self.get(uid, container)?.pid
    }

    /// Whether a container that runs has numbers of processes that are not the machine's, if there is a second keeper.
    pub(crate) fn is_apart(&self, uid: &str, container: &str) -> bool {
        self.get(uid, container).is_some_and(|live| live.is_apart)
    }

    /// What runs a command in a container that runs.
    pub(crate) fn guest(&self, uid: &str, container: &str, argv: Vec<String>) -> Option<Guest> {
        let guest = self.get(uid, container)?.guest(argv, false);
        guest.inspect_err(|error| tracing::debug!(%error, container, "prepare a process")).ok()
    }

    fn get(&self, uid: &str, container: &str) -> Option<Live> {
        self.0.lock().get(&(uid.to_owned(), container.to_owned())).cloned()
    }
}

impl Live {
    fn guest(self, argv: Vec<String>, has_terminal: bool) -> io::Result<Guest> {
        let is_apart = self.is_apart;
        Ok(match self.exec {
            Some(Joining { direct: Some((mut env, cwd)), .. }) => {
                env.extend(self.env.into_iter().filter(|(name, _)| name == MARKER));
                Guest { argv, env, cwd, has_terminal, left: None, is_apart }
            }
            Some(exec) => {
                let (argv, left) = exec.command(&argv, has_terminal)?;
                Guest { argv, env: self.env, cwd: self.cwd, has_terminal, left, is_apart }
            }
            None => Guest { argv, env: self.env, cwd: self.cwd, has_terminal, left: None, is_apart },
        })
    }
}

impl Drop for Table {
    /// With the agent everything ends that it runs.
    fn drop(&mut self) {
        self.0.lock().values().for_each(|live| live.ended.cancel());
    }
}

/// The nodes of this process. Keeps none of them alive.
#[derive(Clone)]
pub struct Nodes(HashMap<String, Weak<Context>>);

impl Nodes {
    /// Of these agents.
    pub fn of(agents: &[Agent]) -> Self {
        Self(agents.iter().map(Agent::source).collect())
    }

    fn find(&self, node: &str) -> Result<Arc<Context>, Error> {
        self.0.get(node).and_then(Weak::upgrade).ok_or_else(|| Error::NoNode(node.to_owned()))
    }

    fn live(&self, container: &Container) -> Result<(Arc<Context>, Live), Error> {
        let context = self.find(&container.node)?;
        let live = context.running.get(&container.uid, &container.name);
        live.map(|live| (context, live)).ok_or_else(|| Error::NotRunning(container.name.clone()))
    }
}

impl PodStreams for Nodes {
    fn has(&self, node: &str) -> bool {
        self.0.contains_key(node)
    }

    fn logs(&self, run: Run, options: LogOptions) -> BoxFuture<'_, Result<Log, Error>> {
        async move {
            let context = self.find(&run.container.node)?;
            log(&context, &run, options).await
        }
        .boxed()
    }

    fn exec(&self, container: Container, exec: Exec) -> BoxFuture<'_, Result<Session, Error>> {
        async move {
            let (context, live) = self.live(&container)?;
            join(&context, live, exec, &container).await
        }
        .boxed()
    }

    fn attach(&self, container: Container, streams: Streams) -> BoxFuture<'_, Result<Session, Error>> {
        async move { attach(self.live(&container)?.1, streams).await }.boxed()
    }
}

fn failed(what: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Failed(format!("{what}: {error}"))
}

async fn open(open: impl FnOnce() -> io::Result<Reader> + Send + 'static) -> Result<Reader, Error> {
    let opened = tokio::task::spawn_blocking(open).await.map_err(|error| failed("open the log", &error))?;
    opened.map_err(|error| failed("open the log", &error))
}

async fn log(context: &Context, run: &Run, options: LogOptions) -> Result<Log, Error> {
    let Container { namespace, pod, uid, name, .. } = &run.container;
    let number = run.id.strip_prefix(&format!("host://{uid}/{name}/")).and_then(|number| number.parse().ok());
    let number: i32 =
        number.ok_or_else(|| Error::Failed(format!("no container {:?} is known here", run.id)))?;
    let path = logs::path(&context.logs, PodName { namespace, name: pod, uid }, name, number);
    let running = context.running.get(uid, name).filter(|live| live.run == number);
    let ended = running.filter(|_| options.follow).map(|live| live.ended).unwrap_or_else(|| {
        let ended = CancellationToken::new();
        ended.cancel();
        ended
    });
    let reader = open(move || Reader::open(&path, &options)).await?;
    Ok(Log { bytes: reader.bytes(), chunks: follow::stream(reader, ended) })
}

async fn join(context: &Context, live: Live, exec: Exec, container: &Container) -> Result<Session, Error> {
    if let Some(refused) = live.exec.as_ref().and_then(|exec| exec.refused) {
        return Err(Error::Failed(refused.to_owned()));
    }
    let guest = live.guest(exec.command, exec.streams.tty);
    let mut guest = guest.map_err(|error| failed("prepare a process", &error))?;
    input::name_terminal_of(&mut guest);
    let ends = Ends::new(exec.streams).map_err(|error| failed("make the streams of a process", &error))?;
    let (sender, mut events) = mpsc::unbounded_channel();
    let exited = CancellationToken::new();
    let sink = {
        let exited = exited.clone();
        move |event| {
            if !matches!(event, Event::Started(_)) {
                exited.cancel();
            }
            let _ = sender.send(event);
        }
    };
    let Ends { guest: theirs, stdin, stdout, stderr, terminal } = ends;
    context.host.join(guest, &theirs, sink);
    // Only the process itself may have them open, or their end is never seen.
    drop(theirs);
    match events.recv().await {
        Some(Event::Started(_)) => {}
        Some(Event::Failed(StartError::ContainerGone)) => {
            return Err(Error::NotRunning(container.name.clone()));
        }
        Some(Event::Failed(error)) => return Err(Error::Failed(error.to_string())),
        Some(Event::Exited(_) | Event::Lost) | None => {
            return Err(Error::Failed(StartError::KeeperGone.to_string()));
        }
    }
    let output = |stream: Option<Receiver>| match stream {
        Some(stream) => output(stream, exited.clone()),
        None => futures::stream::empty().boxed(),
    };
    Ok(Session {
        stdin: stdin.map(|stdin| Box::pin(stdin) as std::pin::Pin<Box<dyn AsyncWrite + Send>>),
        stdout: output(stdout),
        stderr: output(stderr),
        resize: Box::new(move |size| {
            if let Some(terminal) = &terminal {
                terminal.resize(size);
            }
        }),
        ended: async move {
            match events.recv().await {
                Some(Event::Exited(exit)) => Ok(exit.code()),
                Some(Event::Started(_) | Event::Failed(_) | Event::Lost) | None => {
                    Err(Error::Failed(StartError::KeeperGone.to_string()))
                }
            }
        }
        .boxed(),
    })
}

/// What a guest prints, until nobody can print any more or it has ended and all is there.
fn output(stream: Receiver, exited: CancellationToken) -> Chunks {
    futures::stream::try_unfold((stream, exited), |(mut stream, exited)| async move {
        let piece = piece(&mut stream, &exited).await?;
        Ok(piece.map(|piece| (piece, (stream, exited))))
    })
    .boxed()
}

async fn piece(stream: &mut Receiver, exited: &CancellationToken) -> io::Result<Option<Bytes>> {
    let mut buffer = BytesMut::with_capacity(PIECE_BYTES);
    let silence = async {
        exited.cancelled().await;
        tokio::time::sleep(SILENCE).await;
    };
    let count = tokio::select! {
        biased;
        read = stream.read_buf(&mut buffer) => match read {
            // What a terminal says when nobody has its other end open any more.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => 0,
            read => read?,
        },
        () = silence => 0,
    };
    Ok((count > 0).then(|| buffer.freeze()))
}

/// Joins the output of a container from now on, and its input if it has one. Both outputs are one: they are told apart
/// nowhere.
async fn attach(live: Live, streams: Streams) -> Result<Session, Error> {
    let Live { log, ended, input, .. } = live;
    let reader = open(move || Reader::at_end(&log)).await?;
    let (output, nothing) = (follow::stream(reader, ended.clone()), futures::stream::empty().boxed());
    let (stdout, stderr) = if streams.stdout { (output, nothing) } else { (nothing, output) };
    Ok(Session {
        stdin: input.as_ref().filter(|_| streams.stdin).map(Input::attach),
        stdout,
        stderr: if streams.stdout || streams.stderr { stderr } else { futures::stream::empty().boxed() },
        resize: Box::new(move |size| {
            if let Some(input) = &input {
                input.resize(size);
            }
        }),
        ended: async move {
            ended.cancelled().await;
            Ok(0)
        }
        .boxed(),
    })
}
