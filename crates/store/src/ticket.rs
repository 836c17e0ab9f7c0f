//! A write that is on its way to the disk.

use std::future::poll_fn;
use std::sync::Arc;

use tokio::runtime::{Handle, RuntimeFlavor};

use crate::LogError;
use crate::committer::Slot;
use crate::record::Record;

/// A write that has its place in the order of all writes. Until it is durable nobody sees it, and nobody may be told of
/// it. One that is dropped is written all the same.
#[derive(Debug)]
#[must_use = "a write that was not waited for may be lost"]
pub struct Ticket<A> {
    pub(crate) record: Arc<Record<A>>,
    /// Nothing in memory, where every write is as durable as it will ever be.
    pub(crate) slot: Option<Arc<Slot>>,
}

impl<A> Ticket<A> {
    /// What is written: to make an answer from that waits.
    pub fn record(&self) -> &Record<A> {
        &self.record
    }

    /// Waits on this thread.
    pub fn wait(self) -> Result<Arc<Record<A>>, LogError> {
        if let Some(slot) = &self.slot {
            aside(|| slot.wait())?;
        }
        Ok(self.record)
    }

    /// Waits as a task, so that all writers of a server need no thread while the disk works.
    pub async fn done(self) -> Result<Arc<Record<A>>, LogError> {
        if let Some(slot) = &self.slot {
            poll_fn(|context| slot.poll(context)).await?;
        }
        Ok(self.record)
    }
}

/// Blocks this thread. If it has tasks to run, another thread takes them over.
pub(crate) fn aside<T>(block: impl FnOnce() -> T) -> T {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::MultiThread) => tokio::task::block_in_place(block),
        _ => block(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Limits, Store};

    #[tokio::test]
    async fn a_write_in_memory_is_done_at_once() {
        let store = Store::new(Limits::default());
        let key = crate::Key::new("pods", "ns", "a");
        let ticket = store.begin_create(key.clone(), (), |_| bytes::Bytes::from_static(b"x")).expect("new");
        assert_eq!(ticket.done().await.expect("written").revision, store.get(&key).expect("there").revision);
    }
}
