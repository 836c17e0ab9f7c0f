//! Exec and attach over WebSocket: `v5.channel.k8s.io` and `v4.channel.k8s.io`.
//!
//! Every message begins with the number of its channel. Ours are binary, a client's may be text:
//!
//! ```text
//!   0 stdin ──►      1 ◄── stdout      2 ◄── stderr      3 ◄── a Status, the last word      4 resize ──►
//!   255 ──► and the number of a channel: the client will send no more on it (v5)
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream::{SplitSink, SplitStream};
use futures::{SinkExt, StreamExt};
use http::request::Parts;
use http::{Method, Response};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::Value;
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error as WsError, Message};
use windlass_streams::{Container, Error, PodStreams, Session, Size};

use super::{Held, Job, refusal, upgrade};
use crate::status::{self, Result, Status};

/// In the order in which they are preferred.
const PROTOCOLS: [&str; 2] = ["v5.channel.k8s.io", "v4.channel.k8s.io"];
const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const ERROR: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;
/// The longest message that is taken: kubectl and kube-rs send 32 KiB, Python's client what its caller gives it.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Many sessions may be open and idle: their buffers are small.
const BUFFER_BYTES: usize = 32 << 10;
/// How long a client has to answer a close.
const CLOSE_TIME_MAX: Duration = Duration::from_secs(5);

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Answers with an upgrade, and does the job on the connection that comes of it.
pub(super) fn open(
    node: Arc<dyn PodStreams>,
    head: &mut Parts,
    container: Container,
    job: Job,
) -> Result<Response<Body>> {
    if upgrade::is_wanted(head, "spdy/3.1") || head.method == Method::POST {
        return Err(Status::bad_request(
            "exec and attach are served over WebSocket (v5.channel.k8s.io), not over SPDY/3.1; use kubectl 1.31 or newer",
        ));
    }
    let held = head.extensions.remove::<Held>();
    upgrade::open(head, &PROTOCOLS, move |upgraded| async move {
        let _held = held;
        serve(upgraded, &*node, container, job).await;
    })
}

async fn serve(upgraded: Upgraded, node: &dyn PodStreams, container: Container, job: Job) {
    let mut config = WebSocketConfig::default();
    config.read_buffer_size = BUFFER_BYTES;
    config.write_buffer_size = 0;
    config.max_message_size = Some(MESSAGE_BYTES_MAX);
    config.max_frame_size = Some(MESSAGE_BYTES_MAX);
    let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, Some(config)).await;
    let (sink, source) = socket.split();
    let mut sink = sink;
    let (first, started, failure) = match job {
        Job::Exec(exec) => {
            let first = first_channel(exec.streams.stdout, exec.streams.stderr);
            (first, node.exec(container, exec).await, "error executing command in container")
        }
        Job::Attach(streams) => {
            let first = first_channel(streams.stdout, streams.stderr);
            (first, node.attach(container, streams).await, "error attaching to container")
        }
    };
    let ended = match started {
        Ok(session) => talk(&mut sink, source, session, first).await,
        Err(error) => sink_end(&mut sink, &last_word(Err(error), failure)).await.map(|()| source),
    };
    match ended {
        Ok(source) => close(sink, source).await,
        Err(error) => tracing::debug!("a session over a WebSocket ended early: {error}"),
    }
}

/// upstream: an empty message on the first channel that is written to says that the connection is there.
fn first_channel(stdout: bool, stderr: bool) -> u8 {
    match (stdout, stderr) {
        (true, _) => STDOUT,
        (false, true) => STDERR,
        (false, false) => ERROR,
    }
}

/// Why a session was cut short.
#[derive(Debug, thiserror::Error)]
enum Cut {
    #[error("the client left")]
    Left,
    #[error(transparent)]
    Socket(#[from] WsError),
}

/// Carries everything between the client and the process until the process has ended.
async fn talk(
    sink: &mut SplitSink<Socket, Message>,
    source: SplitStream<Socket>,
    session: Session,
    first: u8,
) -> std::result::Result<SplitStream<Socket>, Cut> {
    let Session { stdin, stdout, stderr, resize, ended } = session;
    sink.send(message(first, b"")).await?;
    let mut listener = Listener { source, stdin, resize };
    let say = async {
        let stdout = stdout.map(|piece| (STDOUT, piece));
        let stderr = stderr.map(|piece| (STDERR, piece));
        let mut pieces = futures::stream::select(stdout, stderr);
        while let Some((channel, piece)) = pieces.next().await {
            match piece {
                Ok(piece) => sink.send(message(channel, &piece)).await?,
                Err(error) => tracing::debug!("read the output of a process: {error}"),
            }
        }
        sink_end(sink, &last_word(ended.await, "error executing command in container")).await
    };
    tokio::select! {
        biased;
        said = say => said?,
        heard = listener.listen() => return Err(heard),
    }
    Ok(listener.source)
}

fn message(channel: u8, piece: &[u8]) -> Message {
    let mut bytes = BytesMut::with_capacity(piece.len() + 1);
    bytes.put_u8(channel);
    bytes.put_slice(piece);
    Message::Binary(bytes.freeze())
}

async fn sink_end(sink: &mut SplitSink<Socket, Message>, status: &Value) -> std::result::Result<(), Cut> {
    sink.send(message(ERROR, status.to_string().as_bytes())).await?;
    Ok(())
}

/// The Status that ends a session.
fn last_word(ended: std::result::Result<i32, Error>, failure: &str) -> Value {
    match ended {
        Ok(code) => status::of_exit(code),
        Err(error @ (Error::NoNode(_) | Error::NotRunning(_))) => refusal(&error).to_json(),
        Err(error @ Error::Failed(_)) => Status::internal(&format!("{failure}: {error}")).to_json(),
    }
}

/// Says goodbye: clients take a connection that ends without it for a broken one.
async fn close(mut sink: SplitSink<Socket, Message>, mut source: SplitStream<Socket>) {
    let frame = CloseFrame { code: CloseCode::Normal, reason: "".into() };
    let farewell = async {
        sink.send(Message::Close(Some(frame))).await?;
        // What the client still sends is of no use to anybody.
        while source.next().await.transpose()?.is_some() {}
        Ok::<(), WsError>(())
    };
    match tokio::time::timeout(CLOSE_TIME_MAX, farewell).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!("close a WebSocket: {error}"),
        Err(_) => tracing::debug!("close a WebSocket: no answer"),
    }
}

/// The size of a terminal, as clients write it.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct WrittenSize {
    width: u16,
    height: u16,
}

/// What the client sends.
struct Listener {
    source: SplitStream<Socket>,
    stdin: Option<std::pin::Pin<Box<dyn tokio::io::AsyncWrite + Send>>>,
    resize: Box<dyn Fn(Size) + Send + Sync>,
}

impl Listener {
    /// Until the client leaves.
    async fn listen(&mut self) -> Cut {
        loop {
            match self.source.next().await {
                Some(Ok(Message::Binary(bytes))) => self.hear(bytes).await,
                // Python's client sends text as text.
                Some(Ok(Message::Text(text))) => self.hear(text.into()).await,
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_))) | None => return Cut::Left,
                Some(Err(error)) => return error.into(),
            }
        }
    }

    async fn hear(&mut self, mut bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let content = bytes.split_off(1);
        match (bytes[0], content.first()) {
            (STDIN, Some(_)) => {
                if let Some(stdin) = &mut self.stdin
                    && stdin.write_all(&content).await.is_err()
                {
                    // The process reads no more.
                    self.stdin = None;
                }
            }
            (CLOSE, Some(&STDIN)) => self.stdin = None,
            (RESIZE, _) => {
                if let Ok(WrittenSize { width, height }) = serde_json::from_slice(&content) {
                    (self.resize)(Size { width, height });
                }
            }
            _ => {}
        }
    }
}
