//! The fence of one term of office: open only as long as the lease can be proven to be held.
//!
//! A leader that was stopped, or whose machine slept, knows nothing of the time that has passed. So the question is not
//! asked when a write is decided but when its bytes go to the network: a connection of the leader writes nothing once the
//! fence is closed, and a fence never opens again for the same term. What the network itself delays is left to the
//! preconditions that every write carries.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::connect::{Connected, Connection};

/// Tells the time since some start, also the time that the machine slept.
pub(crate) type Ticks = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Time since boot: the clock that goes on while a machine sleeps.
pub(crate) fn since_boot() -> Ticks {
    Arc::new(|| {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
        Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
    })
}

/// The fence of one term. Clones are the same.
#[derive(Clone)]
pub struct Fence(Arc<Inner>);

struct Inner {
    ticks: Ticks,
    /// In milliseconds.
    until: AtomicU64,
    is_shut: AtomicBool,
}

impl fmt::Debug for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fence").field("is_open", &self.is_open()).finish_non_exhaustive()
    }
}

impl Fence {
    pub(crate) fn open_until(ticks: Ticks, until: Duration) -> Self {
        let until = AtomicU64::new(millis(until));
        Self(Arc::new(Inner { ticks, until, is_shut: AtomicBool::new(false) }))
    }

    /// The lease is held, and will be until then.
    pub(crate) fn extend(&self, until: Duration) {
        self.0.until.fetch_max(millis(until), Ordering::SeqCst);
    }

    /// The term is over.
    pub fn shut(&self) {
        self.0.is_shut.store(true, Ordering::SeqCst);
    }

    /// The lease is held for certain.
    pub fn is_open(&self) -> bool {
        !self.0.is_shut.load(Ordering::SeqCst) && !self.remaining().is_zero()
    }

    /// How long it stays open if nothing is done.
    pub fn remaining(&self) -> Duration {
        let until = Duration::from_millis(self.0.until.load(Ordering::SeqCst));
        until.saturating_sub((self.0.ticks)())
    }

    /// How long ago the lease could last be proven to be held.
    pub fn expired_for(&self) -> Duration {
        let until = Duration::from_millis(self.0.until.load(Ordering::SeqCst));
        (self.0.ticks)().saturating_sub(until)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A connection that writes only while the fence is open.
#[derive(Debug)]
pub(crate) struct Fenced<C> {
    pub(crate) inner: C,
    pub(crate) fence: Option<Fence>,
}

impl<C> Fenced<C> {
    fn check(&self) -> io::Result<()> {
        match &self.fence {
            Some(fence) if !fence.is_open() => Err(io::Error::other("not the leader any more")),
            Some(_) | None => Ok(()),
        }
    }
}

impl<C: Connection> Connection for Fenced<C> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}

impl<C: Read + Unpin> Read for Fenced<C> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<C: Write + Unpin> Write for Fenced<C> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check()?;
        Pin::new(&mut self.inner).poll_write_vectored(context, buffers)
    }
}

#[cfg(test)]
mod tests {
    use futures::future::poll_fn;
    use hyper_util::rt::TokioIo;
    use parking_lot::Mutex;
    use tokio::io::AsyncReadExt;

    use super::*;

    fn fence(until: u64) -> (Arc<Mutex<Duration>>, Fence) {
        let now = Arc::new(Mutex::new(Duration::ZERO));
        let ticks = Arc::clone(&now);
        (now, Fence::open_until(Arc::new(move || *ticks.lock()), Duration::from_secs(until)))
    }

    #[test]
    fn a_fence_closes_when_its_time_is_over_and_never_opens_once_it_is_shut() {
        let (now, fence) = fence(10);
        *now.lock() = Duration::from_millis(9_999);
        assert!(fence.is_open());
        *now.lock() = Duration::from_secs(10);
        assert!(!fence.is_open());
        fence.extend(Duration::from_secs(15));
        assert!(fence.is_open(), "the lease was renewed");
        assert_eq!(fence.remaining(), Duration::from_secs(5));
        fence.shut();
        fence.extend(Duration::from_secs(30));
        assert!(!fence.is_open());
    }

    #[tokio::test]
    async fn what_waits_to_be_sent_when_the_fence_closes_is_never_sent() {
        let (now, fence) = fence(10);
        let (ours, mut theirs) = tokio::io::duplex(1024);
        let mut connection = Fenced { inner: TokioIo::new(ours), fence: Some(fence) };
        let mut write = async |bytes: &[u8]| {
            poll_fn(|context| Pin::new(&mut connection).poll_write(context, bytes))
                .await
                .map_err(|e| e.to_string())
        };
        assert_eq!(write(b"in time").await, Ok(7));
        *now.lock() = Duration::from_secs(11);
        assert_eq!(write(b"too late").await, Err("not the leader any more".to_owned()));
        drop(connection);
        let mut sent = String::new();
        theirs.read_to_string(&mut sent).await.expect("read");
        assert_eq!(sent, "in time");
    }
}
