//! The input of a container (`stdin`, `stdinOnce`, `tty`): what those send who attach.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;

use bytes::BytesMut;
use k8s_openapi::api::core::v1::Container;
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt, DuplexStream};
use tokio::net::unix::pipe::Sender;
use tokio::sync::Mutex;
use windlass_streams::Size;

use crate::runtimes::streams::{Ends, Terminal};
use crate::runtimes::{self, Guest};

/// What is taken from somebody before it is passed on.
const PIECE_BYTES: usize = 32 << 10;
/// What a terminal without a name is, as container runtimes say.
const TERM: (&str, &str) = ("TERM", "xterm");

/// What a container reads.
pub(crate) fn kind(container: &Container) -> runtimes::Input {
    match (container.stdin.unwrap_or(false), container.tty.unwrap_or(false)) {
        (_, true) => runtimes::Input::Terminal,
        (true, false) => runtimes::Input::Pipe,
        (false, false) => runtimes::Input::Nothing,
    }
}

/// Says in the environment of a container with a terminal what that is.
pub(crate) fn name_terminal(container: &Container, env: &mut Vec<(String, String)>) {
    if container.tty == Some(true) {
        name(env);
    }
}

/// The same for a guest.
pub(crate) fn name_terminal_of(guest: &mut Guest) {
    if guest.has_terminal {
        name(&mut guest.env);
    }
}

/// The same in an environment as a runtime reads it.
pub(crate) fn name_terminal_in(env: &mut Vec<serde_json::Value>) {
    let own = format!("{}=", TERM.0);
    let is_there = env.iter().filter_map(serde_json::Value::as_str).any(|text| text.starts_with(&own));
    if !is_there {
        env.push(format!("{own}{}", TERM.1).into());
    }
}

fn name(env: &mut Vec<(String, String)>) {
    if !env.iter().any(|(name, _)| name == TERM.0) {
        env.push((TERM.0.into(), TERM.1.into()));
    }
}

/// The agent's end of the input of a container that runs.
#[derive(Debug)]
pub(crate) struct Input {
    /// Nothing when nobody may write any more, or the container reads no more.
    sender: Mutex<Option<Sender>>,
    /// Closed when the first who attached has left.
    is_once: bool,
    terminal: Option<Terminal>,
}

impl Input {
    /// Makes the input of a container, and what its process is given of it; nothing for one that has none.
    pub(crate) fn new(container: &Container) -> io::Result<Option<(Arc<Self>, [OwnedFd; 3])>> {
        let tty = match kind(container) {
            runtimes::Input::Nothing => return Ok(None),
            runtimes::Input::Pipe => false,
            runtimes::Input::Terminal => true,
        };
        let Ends { guest, stdin, terminal, .. } = Ends::of_container(tty)?;
        // A terminal is there also for a container that reads nothing.
        let sender = Mutex::new(stdin.filter(|_| container.stdin == Some(true)));
        let is_once = container.stdin_once.unwrap_or(false);
        Ok(Some((Arc::new(Self { sender, is_once, terminal }), guest)))
    }

    /// Where somebody writes who has attached. They have left when it is dropped.
    pub(crate) fn attach(self: &Arc<Self>) -> Pin<Box<dyn AsyncWrite + Send>> {
        let (theirs, ours) = tokio::io::duplex(PIECE_BYTES);
        tokio::spawn(Arc::clone(self).pass_on(ours));
        Box::pin(theirs)
    }

    async fn pass_on(self: Arc<Self>, mut from: DuplexStream) {
        let mut piece = BytesMut::with_capacity(PIECE_BYTES);
        while let Ok(1..) = from.read_buf(&mut piece).await {
            let mut sender = self.sender.lock().await;
            let Some(open) = sender.as_mut() else { return };
            if open.write_all(&piece).await.is_err() {
                // The container reads no more.
                *sender = None;
                return;
            }
            piece.clear();
        }
        if self.is_once {
            *self.sender.lock().await = None;
        }
    }

    /// Tells the terminal of the container a new size.
    pub(crate) fn resize(&self, size: Size) {
        if let Some(terminal) = &self.terminal {
            terminal.resize(size);
        }
    }
}
