//! The node's side: opens connections to its server, and does what is asked for on them.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::stream::{BoxStream, SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Message;

use crate::wire::{self, Call, Heard, STDERR, STDIN, STDOUT, Socket, ToNode, ToServer};
use crate::{Error, Log, PodStreams, Session, Size};

/// How many sessions and logs at once. Beyond that clients wait, and are refused after a while.
const SESSIONS_MAX: usize = 256;
/// Connections that wait: so many calls need not wait for a connection to be opened.
const WAITING: usize = 2;
/// The node says so often that it is there.
const PING_EVERY: Duration = Duration::from_secs(15);
/// A server that is not heard for so long on a connection that waits is gone.
const SILENCE_MAX: Duration = Duration::from_secs(45);
/// How long the server has to end a connection after the last word.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(5);
/// The pause before another try to reach the server, and the longest one.
const PAUSE_MIN: Duration = Duration::from_millis(100);
const PAUSE_MAX: Duration = Duration::from_secs(5);

/// Offers what a node has to a server, for ever. `connect` opens a connection.
pub async fn offer<C, F>(connect: C, streams: Arc<dyn PodStreams>)
where
    C: Fn() -> F,
    F: Future<Output = io::Result<Socket>>,
{
    let room = Arc::new(Semaphore::new(SESSIONS_MAX));
    futures::future::join_all((0..WAITING).map(|_| wait_for_calls(&connect, &streams, &room))).await;
}

async fn wait_for_calls<C, F>(connect: &C, streams: &Arc<dyn PodStreams>, room: &Arc<Semaphore>)
where
    C: Fn() -> F,
    F: Future<Output = io::Result<Socket>>,
{
    let mut pause = PAUSE_MIN;
    while let Ok(permit) = Arc::clone(room).acquire_owned().await {
        let asked = match connect().await {
            Ok(mut socket) => first_call(&mut socket).await.map(|call| (socket, call)),
            Err(error) => Err(error),
        };
        match asked {
            Ok((socket, call)) => {
                pause = PAUSE_MIN;
                let streams = Arc::clone(streams);
                tokio::spawn(async move {
                    if let Err(error) = answer(socket, call, &*streams).await {
                        tracing::debug!("a session for the server ended early: {error}");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                tracing::debug!("wait for what the server asks of this node: {error}");
                tokio::time::sleep(pause).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
    }
}

/// Waits until the server has something to ask.
async fn first_call(socket: &mut Socket) -> io::Result<Call> {
    let mut pings = pings();
    let mut heard_at = Instant::now();
    loop {
        tokio::select! {
            _ = pings.tick() => {
                if heard_at.elapsed() > SILENCE_MAX {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                socket.send(Message::Ping(Bytes::new())).await.map_err(io::Error::other)?;
            }
            message = socket.next() => {
                heard_at = Instant::now();
                match hear(message)? {
                    Heard::Word(ToNode::Call(call)) => return Ok(*call),
                    Heard::Nothing => {}
                    Heard::Word(_) | Heard::Piece(..) => return Err(io::ErrorKind::InvalidData.into()),
                }
            }
        }
    }
}

fn hear(
    message: Option<Result<Message, tokio_tungstenite::tungstenite::Error>>,
) -> io::Result<Heard<ToNode>> {
    match message {
        Some(message) => wire::hear(message.map_err(io::Error::other)?),
        None => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

async fn answer(socket: Socket, call: Call, streams: &dyn PodStreams) -> io::Result<()> {
    let (sink, source) = socket.split();
    let mut talk = Talk { sink };
    let started = match call {
        Call::Logs(run, options) => return log(talk, source, streams.logs(run, options).await).await,
        Call::Exec(container, exec) => streams.exec(container, exec).await,
        Call::Attach(container, asked) => streams.attach(container, asked).await,
    };
    let Session { stdin, stdout, stderr, resize, ended } = match started {
        Ok(session) => session,
        Err(error) => return refuse(talk, source, error).await,
    };
    talk.say(&ToServer::Session).await?;
    let stdout = stdout.map(|piece| (STDOUT, piece));
    let stderr = stderr.map(|piece| (STDERR, piece));
    let pieces = futures::stream::select(stdout, stderr).boxed();
    let mut listener = Listener { source, stdin, resize };
    tokio::select! {
        biased;
        said = talk.session(pieces, ended) => said?,
        heard = listener.listen() => return heard,
    }
    leave(listener.source).await;
    Ok(())
}

async fn log(mut talk: Talk, source: SplitStream<Socket>, opened: Result<Log, Error>) -> io::Result<()> {
    let Log { chunks, bytes } = match opened {
        Ok(log) => log,
        Err(error) => return refuse(talk, source, error).await,
    };
    talk.say(&ToServer::Log(bytes)).await?;
    let pieces = chunks.map(|piece| (STDOUT, piece)).boxed();
    let mut listener = Listener { source, stdin: None, resize: Box::new(|_| {}) };
    tokio::select! {
        biased;
        said = talk.log(pieces) => said?,
        heard = listener.listen() => return heard,
    }
    leave(listener.source).await;
    Ok(())
}

async fn refuse(mut talk: Talk, source: SplitStream<Socket>, error: Error) -> io::Result<()> {
    talk.say(&ToServer::Refused(error)).await?;
    leave(source).await;
    Ok(())
}

/// Waits until the server has ended the connection: if the node did it, the last word could be lost.
async fn leave(mut source: SplitStream<Socket>) {
    let _ =
        tokio::time::timeout(LEAVE_TIME_MAX, async { while let Some(Ok(_)) = source.next().await {} }).await;
}

fn pings() -> tokio::time::Interval {
    tokio::time::interval_at(Instant::now() + PING_EVERY, PING_EVERY)
}

type Pieces = BoxStream<'static, (u8, io::Result<Bytes>)>;

/// What the node says.
struct Talk {
    sink: SplitSink<Socket, Message>,
}

impl Talk {
    async fn say(&mut self, word: &ToServer) -> io::Result<()> {
        self.sink.send(wire::text(word)).await.map_err(io::Error::other)
    }

    async fn log(&mut self, pieces: Pieces) -> io::Result<()> {
        let ended = self.pieces(pieces).await?.map(|()| 0);
        self.say(&ToServer::Ended(ended)).await
    }

    async fn session(
        &mut self,
        pieces: Pieces,
        mut ended: futures::future::BoxFuture<'static, Result<i32, Error>>,
    ) -> io::Result<()> {
        if let Err(error) = self.pieces(pieces).await? {
            tracing::debug!("read the output of a process: {error}");
        }
        let mut pings = pings();
        let ended = loop {
            tokio::select! {
                ended = &mut ended => break ended,
                _ = pings.tick() => self.ping().await?,
            }
        };
        self.say(&ToServer::Ended(ended)).await
    }

    /// Sends pieces to the last; the inner error is one of reading them.
    async fn pieces(&mut self, mut pieces: Pieces) -> io::Result<Result<(), Error>> {
        let mut pings = pings();
        loop {
            let next = tokio::select! {
                next = pieces.next() => next,
                _ = pings.tick() => {
                    self.ping().await?;
                    continue;
                }
            };
            match next {
                Some((stream, Ok(piece))) => {
                    self.sink.send(wire::piece(stream, &piece)).await.map_err(io::Error::other)?;
                }
                Some((_, Err(error))) => return Ok(Err(Error::Failed(error.to_string()))),
                None => return Ok(Ok(())),
            }
        }
    }

    async fn ping(&mut self) -> io::Result<()> {
        self.sink.send(Message::Ping(Bytes::new())).await.map_err(io::Error::other)
    }
}

/// What the server says.
struct Listener {
    source: SplitStream<Socket>,
    stdin: Option<Pin<Box<dyn AsyncWrite + Send>>>,
    resize: Box<dyn Fn(Size) + Send + Sync>,
}

impl Listener {
    /// Until the server ends the connection.
    async fn listen(&mut self) -> io::Result<()> {
        loop {
            match hear(self.source.next().await)? {
                Heard::Piece(STDIN, piece) => {
                    if let Some(stdin) = &mut self.stdin
                        && stdin.write_all(&piece).await.is_err()
                    {
                        // The process reads no more.
                        self.stdin = None;
                    }
                }
                Heard::Word(ToNode::CloseStdin) => self.stdin = None,
                Heard::Word(ToNode::Resize(size)) => (self.resize)(size),
                Heard::Nothing => {}
                Heard::Word(ToNode::Call(_)) | Heard::Piece(..) => {
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
        }
    }
}
