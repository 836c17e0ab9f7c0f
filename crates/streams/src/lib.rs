//! What the API server asks of the nodes: the output of containers, and processes in them.
//!
//! ```text
//!   kubectl ──► apiserver (who may, which container, WebSocket) ──► PodStreams ──► node (files, processes)
//!                                                                       │
//!                                       in another process: Remote ◄─connections─ offer ──► node
//! ```
//!
//! Neither side knows the other: the server checks the request against the pod, the node does what is left. A node in
//! another process listens nowhere: it opens connections to its server ([`offer()`]), which asks over them ([`Remote`]).
//!
//! What the API server tells those who are in its own process goes the other way: [`handed`]; and they come in by the [`door`].

pub mod door;
pub mod handed;
mod offer;
mod remote;
pub mod wire;

use std::io;
use std::pin::Pin;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWrite;

pub use offer::offer;
pub use remote::{Place, Remote};

/// Pieces of output, in their order.
pub type Chunks = BoxStream<'static, io::Result<Bytes>>;

/// What a node does for those who look at its pods.
pub trait PodStreams: Send + Sync + 'static {
    /// Whether a node is one of these.
    fn has(&self, node: &str) -> bool;

    /// What one run of a container has printed.
    fn logs(&self, run: Run, options: LogOptions) -> BoxFuture<'_, Result<Log, Error>>;

    /// Starts a process in a container.
    fn exec(&self, container: Container, exec: Exec) -> BoxFuture<'_, Result<Session, Error>>;

    /// Joins the main process of a container.
    fn attach(&self, container: Container, streams: Streams) -> BoxFuture<'_, Result<Session, Error>>;
}

/// A container of a pod that is on a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// The node.
    pub node: String,
    /// The namespace of the pod.
    pub namespace: String,
    /// The name of the pod.
    pub pod: String,
    /// The UID of the pod.
    pub uid: String,
    /// The name of the container.
    pub name: String,
}

/// One run of a container, by the id that the node itself gave it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The container.
    pub container: Container,
    /// `containerID` of its status.
    pub id: String,
}

/// Which part of a log, and how.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LogOptions {
    /// Go on until the container has ended.
    pub follow: bool,
    /// Nothing that was printed before.
    pub since: Option<Timestamp>,
    /// At most so many lines of what is there at the start.
    pub tail_lines: Option<u64>,
    /// At most so many bytes in all.
    pub limit_bytes: Option<u64>,
    /// Each line begins with the time at which it was printed.
    pub timestamps: bool,
}

/// The output of a container.
pub struct Log {
    /// It itself.
    pub chunks: Chunks,
    /// How many bytes there were to send at the start, timestamps not counted.
    pub bytes: u64,
}

/// The streams that a client has asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Streams {
    /// The client sends input.
    pub stdin: bool,
    /// The client reads output.
    pub stdout: bool,
    /// The client reads errors; never with a terminal.
    pub stderr: bool,
    /// The process has a terminal.
    pub tty: bool,
}

/// A process to start in a container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exec {
    /// Program and arguments.
    pub command: Vec<String>,
    /// How it talks to the client.
    pub streams: Streams,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Size {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// A process that a client talks to.
pub struct Session {
    /// Its input; dropped when the client has no more.
    pub stdin: Option<Pin<Box<dyn AsyncWrite + Send>>>,
    /// Its output; ends when there will be no more.
    pub stdout: Chunks,
    /// Its errors; ends when there will be no more.
    pub stderr: Chunks,
    /// Tells its terminal a new size.
    pub resize: Box<dyn Fn(Size) + Send + Sync>,
    /// Its exit code.
    pub ended: BoxFuture<'static, Result<i32, Error>>,
}

/// Why there is no stream.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum Error {
    /// Nobody is there who could give it: the node is not one of this server's.
    #[error("node {0:?} gives no logs and runs no commands for this server")]
    NoNode(String),
    /// The container is not running.
    #[error("container not found ({0:?})")]
    NotRunning(String),
    /// Something else went wrong.
    #[error("{0}")]
    Failed(String),
}
