//! The server's side: nodes in processes of their own, reached over connections that they have opened.

use std::any::Any;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures::future::BoxFuture;
use futures::stream::{SplitSink, SplitStream};
use futures::{FutureExt, SinkExt, StreamExt};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, DuplexStream};
use tokio::sync::{Notify, mpsc, oneshot};
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;

use crate::wire::{self, Call, Heard, STDERR, STDIN, STDOUT, Socket, ToNode, ToServer};
use crate::{Chunks, Container, Error, Exec, Log, LogOptions, PodStreams, Run, Session, Size, Streams};

/// Connections of one node: those that wait, and one for each session.
const CONNECTIONS_MAX: usize = 300;
/// How long to wait for a connection of a node that has none to spare: it may be on its way, or the server is new.
const ARRIVAL_TIME_MAX: Duration = Duration::from_secs(5);
/// How long a node has to answer a call.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// A node that is not heard for so long is gone: it says four times as often that it is there.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// Pieces that have come and nobody has taken yet.
const PIECES_MAX: usize = 4;
const PIECE_BYTES: usize = 32 << 10;
/// Sizes that have come and were not passed on yet; the next one counts more.
const SIZES_MAX: usize = 4;

/// Wants a connection that waits.
type Offer = oneshot::Sender<oneshot::Sender<Taken>>;

#[derive(Default)]
struct Node {
    waiting: VecDeque<Offer>,
    connections: usize,
}

/// The nodes that have opened connections to this server.
#[derive(Default)]
pub struct Remote {
    nodes: Mutex<HashMap<String, Node>>,
    arrived: Notify,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").field("nodes", &self.nodes.lock().len()).finish_non_exhaustive()
    }
}

/// The place of a connection among those of its node, until it is dropped.
pub struct Place {
    remote: Arc<Remote>,
    node: String,
    _held: Box<dyn Any + Send>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut nodes = self.remote.nodes.lock();
        if let Some(node) = nodes.get_mut(&self.node) {
            node.connections -= 1;
            if node.connections == 0 {
                nodes.remove(&self.node);
            }
        }
    }
}

/// A connection that waits no more.
struct Taken {
    socket: Socket,
    place: Place,
}

impl Remote {
    /// A place for one more connection of a node; nothing when it has too many. `held` is dropped with the connection.
    pub fn enter(self: &Arc<Self>, node: &str, held: impl Any + Send) -> Option<Place> {
        let mut nodes = self.nodes.lock();
        let found = nodes.entry(node.to_owned()).or_default();
        if found.connections >= CONNECTIONS_MAX {
            return None;
        }
        found.connections += 1;
        Some(Place { remote: Arc::clone(self), node: node.to_owned(), _held: Box::new(held) })
    }

    /// Keeps a connection until it is needed, or its node is gone.
    pub async fn keep(place: Place, mut socket: Socket) {
        let (offer, mut wanted) = oneshot::channel::<oneshot::Sender<Taken>>();
        {
            let mut nodes = place.remote.nodes.lock();
            let node = nodes.entry(place.node.clone()).or_default();
            node.waiting.retain(|offer| !offer.is_closed());
            node.waiting.push_back(offer);
        }
        place.remote.arrived.notify_waiters();
        loop {
            let heard = tokio::select! {
                biased;
                taker = &mut wanted => {
                    if let Ok(taker) = taker {
                        let _ = taker.send(Taken { socket, place });
                    }
                    return;
                }
                heard = next::<ToServer>(&mut socket) => heard,
            };
            // Before it is asked, a node has nothing to say.
            if !matches!(heard, Ok(Heard::Nothing)) {
                return;
            }
        }
    }

    /// Waits until a node has a connection. One that never comes is waited for too: after a restart of the server all of
    /// them are on their way.
    pub async fn arrival(self: &Arc<Self>, node: &str) -> Result<(), Error> {
        let until = tokio::time::Instant::now() + ARRIVAL_TIME_MAX;
        loop {
            let arrived = self.arrived.notified();
            if self.has(node) {
                return Ok(());
            }
            let waited = tokio::time::timeout_at(until, arrived).await;
            waited.map_err(|_| Error::NoNode(node.to_owned()))?;
        }
    }

    async fn take(&self, node: &str) -> Result<Taken, Error> {
        let none = || Error::NoNode(node.to_owned());
        let until = tokio::time::Instant::now() + ARRIVAL_TIME_MAX;
        loop {
            let arrived = self.arrived.notified();
            let offer = self.nodes.lock().get_mut(node).and_then(|node| node.waiting.pop_front());
            let Some(offer) = offer else {
                tokio::time::timeout_at(until, arrived).await.map_err(|_| none())?;
                continue;
            };
            let (taker, taken) = oneshot::channel();
            // It may have ended meanwhile.
            if offer.send(taker).is_ok()
                && let Ok(taken) = taken.await
            {
                return Ok(taken);
            }
        }
    }

    async fn call(&self, node: &str, call: Call) -> Result<(Taken, ToServer), Error> {
        let mut taken = self.take(node).await?;
        let asked = async {
            taken.socket.send(wire::text(&ToNode::Call(Box::new(call)))).await.map_err(io::Error::other)?;
            loop {
                match next(&mut taken.socket).await? {
                    Heard::Word(word) => return Ok(word),
                    Heard::Nothing => {}
                    Heard::Piece(..) => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        };
        match tokio::time::timeout(ANSWER_TIME_MAX, asked).await {
            Ok(Ok(ToServer::Refused(error))) => Err(error),
            Ok(Ok(word)) => Ok((taken, word)),
            Ok(Err(error)) => Err(lost(node, &error)),
            Err(_) => Err(Error::Failed(format!("node {node:?} does not answer"))),
        }
    }

    async fn session(&self, node: &str, call: Call, streams: Streams) -> Result<Session, Error> {
        match self.call(node, call).await? {
            (taken, ToServer::Session) => Ok(session(taken, streams)),
            (_, word) => Err(out_of_place(node, &word)),
        }
    }
}

impl PodStreams for Arc<Remote> {
    fn has(&self, node: &str) -> bool {
        self.nodes.lock().contains_key(node)
    }

    fn logs(&self, run: Run, options: LogOptions) -> BoxFuture<'_, Result<Log, Error>> {
        async move {
            let node = run.container.node.clone();
            match self.call(&node, Call::Logs(run, options)).await? {
                (taken, ToServer::Log(bytes)) => Ok(Log { chunks: chunks(taken), bytes }),
                (_, word) => Err(out_of_place(&node, &word)),
            }
        }
        .boxed()
    }

    fn exec(&self, container: Container, exec: Exec) -> BoxFuture<'_, Result<Session, Error>> {
        async move {
            let (node, streams) = (container.node.clone(), exec.streams);
            self.session(&node, Call::Exec(container, exec), streams).await
        }
        .boxed()
    }

    fn attach(&self, container: Container, streams: Streams) -> BoxFuture<'_, Result<Session, Error>> {
        async move {
            let node = container.node.clone();
            self.session(&node, Call::Attach(container, streams), streams).await
        }
        .boxed()
    }
}

fn lost(node: &str, error: &io::Error) -> Error {
    Error::Failed(format!("the connection to node {node:?} was lost: {error}"))
}

fn out_of_place(node: &str, word: &ToServer) -> Error {
    Error::Failed(format!("node {node:?} answered {word:?}, which was not asked for"))
}

async fn next<T: for<'de> serde::Deserialize<'de>>(
    source: &mut (impl futures::Stream<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin),
) -> io::Result<Heard<T>> {
    match tokio::time::timeout(SILENCE_MAX, source.next()).await {
        Ok(Some(message)) => wire::hear(message.map_err(io::Error::other)?),
        Ok(None) => Err(io::ErrorKind::UnexpectedEof.into()),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// The pieces of a log. With the last of them goes the connection.
fn chunks(taken: Taken) -> Chunks {
    futures::stream::try_unfold(taken, |mut taken| async move {
        loop {
            match next(&mut taken.socket).await? {
                Heard::Piece(STDOUT, piece) => return Ok(Some((piece, taken))),
                Heard::Word(ToServer::Ended(Ok(_))) => return Ok(None),
                Heard::Word(ToServer::Ended(Err(error))) => return Err(io::Error::other(error)),
                Heard::Nothing => {}
                Heard::Piece(..) | Heard::Word(_) => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    })
    .boxed()
}

/// A session over a connection, which ends with it: when all of it is dropped, or the process has ended.
fn session(taken: Taken, streams: Streams) -> Session {
    let Taken { socket, place } = taken;
    let (sink, source) = socket.split();
    let (stdin, input) = tokio::io::duplex(PIECE_BYTES);
    let (sizes, resized) = mpsc::channel(SIZES_MAX);
    let (stdout, out) = mpsc::channel(PIECES_MAX);
    let (stderr, err) = mpsc::channel(PIECES_MAX);
    let (end, ended) = oneshot::channel();
    let over = CancellationToken::new();
    let node = place.node.clone();
    let writing = over.clone();
    tokio::spawn(async move {
        tokio::select! {
            () = write(sink, input, resized) => {}
            () = writing.cancelled() => {}
        }
    });
    let reading = over.clone();
    tokio::spawn(async move {
        let _place = place;
        let heard = tokio::select! {
            heard = read(source, &stdout, &stderr) => heard,
            () = reading.cancelled() => return,
        };
        let _ = end.send(heard.unwrap_or_else(|error| Err(lost(&node, &error))));
        reading.cancel();
    });
    let guard = over.drop_guard();
    Session {
        stdin: streams.stdin.then(|| Box::pin(stdin) as _),
        stdout: pieces(out),
        stderr: pieces(err),
        resize: Box::new(move |size: Size| {
            let _ = sizes.try_send(size);
        }),
        ended: async move {
            let _guard = guard;
            ended.await.unwrap_or_else(|_| Err(Error::Failed("the session was given up".to_owned())))
        }
        .boxed(),
    }
}

fn pieces(receiver: mpsc::Receiver<Bytes>) -> Chunks {
    futures::stream::unfold(receiver, |mut receiver| async move {
        receiver.recv().await.map(|piece| (Ok(piece), receiver))
    })
    .boxed()
}

/// Passes on what the client sends, until the connection takes no more.
async fn write(
    mut sink: SplitSink<Socket, Message>,
    mut input: DuplexStream,
    mut sizes: mpsc::Receiver<Size>,
) {
    let (mut is_open, mut can_change) = (true, true);
    while is_open || can_change {
        let mut bytes = BytesMut::with_capacity(PIECE_BYTES);
        let message = tokio::select! {
            read = input.read_buf(&mut bytes), if is_open => match read {
                Ok(count) if count > 0 => wire::piece(STDIN, &bytes),
                Ok(_) | Err(_) => {
                    is_open = false;
                    wire::text(&ToNode::CloseStdin)
                }
            },
            size = sizes.recv(), if can_change => match size {
                Some(size) => wire::text(&ToNode::Resize(size)),
                None => {
                    can_change = false;
                    continue;
                }
            },
        };
        if sink.send(message).await.is_err() {
            return;
        }
    }
}

/// Passes on what the process prints, until its end.
async fn read(
    mut source: SplitStream<Socket>,
    stdout: &mpsc::Sender<Bytes>,
    stderr: &mpsc::Sender<Bytes>,
) -> io::Result<Result<i32, Error>> {
    loop {
        match next(&mut source).await? {
            // Who does not read it any more does not want it.
            Heard::Piece(STDOUT, piece) => _ = stdout.send(piece).await,
            Heard::Piece(STDERR, piece) => _ = stderr.send(piece).await,
            Heard::Word(ToServer::Ended(ended)) => return Ok(ended),
            Heard::Nothing => {}
            Heard::Piece(..) | Heard::Word(_) => return Err(io::ErrorKind::InvalidData.into()),
        }
    }
}
