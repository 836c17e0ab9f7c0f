//! The socket between an agent and its keeper. Each end wakes for what comes. That the other has taken what was sent wakes
//! nobody, unless something had to wait for that: it would be half of all times that either wakes.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};

/// What comes.
pub(super) struct Incoming(AsyncFd<UnixStream>);

impl Incoming {
    /// Of a socket that does not block.
    pub(super) fn new(socket: UnixStream) -> io::Result<Self> {
        Ok(Self(watched(socket, Interest::READABLE)?))
    }
}

impl AsyncRead for Incoming {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut ready = ready!(self.0.poll_read_ready(context))?;
            // An error here says that there is nothing to read after all.
            if let Ok(read) = ready.try_io(|socket| socket.get_ref().read(into.initialize_unfilled())) {
                into.advance(read?);
                return Poll::Ready(Ok(()));
            }
        }
    }
}

/// Writes as much as is taken of what waits; returns whether that was all.
pub(super) fn write_some(mut socket: &UnixStream, waiting: &mut Vec<u8>) -> io::Result<bool> {
    while !waiting.is_empty() {
        match socket.write(waiting) {
            Ok(count) => drop(waiting.drain(..count)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// Waits until more is taken.
pub(super) async fn writable(socket: &UnixStream) -> io::Result<()> {
    watched(socket.try_clone()?, Interest::WRITABLE)?.writable().await.map(drop)
}

fn watched(socket: UnixStream, interest: Interest) -> io::Result<AsyncFd<UnixStream>> {
    // SAFETY: the socket is its own, and stays the same until it is closed.
    Ok(unsafe { AsyncFd::register_with_interest(socket, interest) }?)
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn what_the_other_end_does_not_take_yet_waits_and_comes_in_its_order() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        for socket in [&ours, &theirs] {
            socket.set_nonblocking(true).expect("set");
        }
        let sent: Vec<u8> = (0..4 << 20).map(|n: u32| n.to_le_bytes()[n as usize % 4]).collect();
        let mut waiting = sent.clone();
        assert!(!write_some(&ours, &mut waiting).expect("written"), "more than any socket takes");
        assert!(!waiting.is_empty() && waiting.len() < sent.len());
        let reading = tokio::spawn(async move {
            let mut got = Vec::new();
            Incoming::new(theirs).expect("watched").read_to_end(&mut got).await.expect("read");
            got
        });
        while !write_some(&ours, &mut waiting).expect("written") {
            writable(&ours).await.expect("waited");
        }
        drop(ours);
        assert!(reading.await.expect("no panic") == sent);
    }

    #[tokio::test]
    async fn who_writes_to_nobody_is_told() {
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        drop(theirs);
        assert!(write_some(&ours, &mut vec![1]).is_err());
    }
}
