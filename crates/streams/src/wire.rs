//! What goes over a connection between a node and its server: WebSocket messages, of one call and all that comes of it.
//!
//! ```text
//!   node ──► server: opens the connection, and waits
//!   server ──► node: Call              the one thing that the connection is for
//!   node ──► server: Log, Session or Refused
//!   both:            binary messages, which begin with the number of their stream; Resize and CloseStdin to the node
//!   node ──► server: Ended
//! ```

use std::io;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};

use crate::{Container, Error, Exec, LogOptions, Run, Size, Streams};

/// The WebSocket protocol that is spoken.
pub const PROTOCOL: &str = "v1.streams.windlass.dev";
/// Streams, as exec of Kubernetes numbers them.
pub(crate) const STDIN: u8 = 0;
pub(crate) const STDOUT: u8 = 1;
pub(crate) const STDERR: u8 = 2;
/// The longest message that is taken. What is sent are pieces of at most 64 KiB; a command can be longer.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Many connections are open and idle: their buffers are small.
const BUFFER_BYTES: usize = 32 << 10;

const PATH_START: &str = "/windlass.dev/v1/nodes/";
const PATH_END: &str = "/streams";

/// Where a node opens its connections.
pub fn path(node: &str) -> String {
    format!("{PATH_START}{node}{PATH_END}")
}

/// The node that opens a connection at a path, if that is such a one.
pub fn node_of(path: &str) -> Option<&str> {
    let name = path.strip_prefix(PATH_START)?.strip_suffix(PATH_END)?;
    (!name.is_empty() && !name.contains(['/', '%'])).then_some(name)
}

/// What a connection is made of.
pub trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

/// A connection.
pub type Socket = WebSocketStream<Box<dyn Transport>>;

/// The connection on an upgraded stream.
pub async fn socket(stream: impl Transport + 'static, role: Role) -> Socket {
    let mut config = WebSocketConfig::default();
    config.read_buffer_size = BUFFER_BYTES;
    config.write_buffer_size = 0;
    config.max_message_size = Some(MESSAGE_BYTES_MAX);
    config.max_frame_size = Some(MESSAGE_BYTES_MAX);
    let stream: Box<dyn Transport> = Box::new(stream);
    WebSocketStream::from_raw_socket(stream, role, Some(config)).await
}

/// What a node is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Call {
    Logs(Run, LogOptions),
    Exec(Container, Exec),
    Attach(Container, Streams),
}

/// What the server says, beside input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToNode {
    Call(Box<Call>),
    Resize(Size),
    CloseStdin,
}

/// What a node says, beside output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToServer {
    /// A log of so many bytes follows.
    Log(u64),
    /// The process is there.
    Session,
    Refused(Error),
    /// The exit code; 0 of a log.
    Ended(Result<i32, Error>),
}

/// A word as it is sent.
pub(crate) fn text(word: &impl Serialize) -> Message {
    Message::text(serde_json::to_string(word).expect("words have string keys only"))
}

/// A piece of a stream as it is sent.
pub(crate) fn piece(stream: u8, bytes: &[u8]) -> Message {
    let mut message = BytesMut::with_capacity(bytes.len() + 1);
    message.put_u8(stream);
    message.put_slice(bytes);
    Message::Binary(message.freeze())
}

/// What a message says.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard<T> {
    Word(T),
    Piece(u8, Bytes),
    /// Only that the other side is there.
    Nothing,
}

/// Reads a message. Everything that is not of the protocol is an error, and the end of the connection.
pub(crate) fn hear<T: for<'de> Deserialize<'de>>(message: Message) -> io::Result<Heard<T>> {
    match message {
        Message::Text(text) => Ok(Heard::Word(serde_json::from_str(&text)?)),
        Message::Binary(mut bytes) if !bytes.is_empty() => {
            let content = bytes.split_off(1);
            Ok(Heard::Piece(bytes[0], content))
        }
        Message::Binary(_) => Err(io::ErrorKind::InvalidData.into()),
        Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => Ok(Heard::Nothing),
        Message::Close(_) => Err(io::ErrorKind::ConnectionAborted.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_names_one_node_and_nothing_else() {
        for name in ["two", "a.b-c"] {
            assert_eq!(node_of(&path(name)), Some(name));
        }
        for path in [
            "/windlass.dev/v1/nodes//streams",
            "/windlass.dev/v1/nodes/a/b/streams",
            "/windlass.dev/v1/nodes/a",
        ] {
            assert_eq!(node_of(path), None, "{path}");
        }
        assert_eq!(node_of(&path("a%2fb")), None);
    }
}
