//! A watcher: a place in the history of one resource, and a prefix.
//!
//! A watcher has no queue of its own that a writer would fill: what it has not read yet is the end of the history. So
//! it costs a writer nothing but a bell, and the bound of its "queue" is a bound on how far it may be behind.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::Prefix;
use crate::record::Event;
use crate::table::Table;

/// Events handed out at once: few enough to keep the read lock short.
const BATCH_EVENTS_MAX: usize = 256;

/// Why a watch came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Ended {
    /// It was too slow. Everything up to `resume` was handed out; a watch from there misses nothing.
    #[error("watcher is {behind} events behind; resume from revision {resume}")]
    Slow {
        /// The revision to watch from.
        resume: u64,
        /// How far behind it was.
        behind: u64,
    },
    /// It was so slow that the history has moved on: list again.
    #[error("revision {asked} is older than the history, which begins after {oldest}")]
    TooOld {
        /// Where the watcher was.
        asked: u64,
        /// The oldest revision from which everything is still known.
        oldest: u64,
    },
}

/// An open watch.
#[derive(Debug)]
pub struct Watch<A> {
    table: Arc<Table<A>>,
    bell: watch::Receiver<()>,
    prefix: Prefix,
    position: u64,
    /// Events written before this watch was opened: the backlog it asked for does not count as being slow.
    opened_at: u64,
    lag_max: u64,
    revision: Arc<AtomicU64>,
}

impl<A> Watch<A> {
    pub(crate) fn new(
        table: Arc<Table<A>>,
        prefix: Prefix,
        position: u64,
        opened_at: u64,
        lag_max: usize,
        revision: Arc<AtomicU64>,
    ) -> Self {
        let bell = table.subscribe();
        Self { table, bell, prefix, position, opened_at, lag_max: lag_max as u64, revision }
    }

    /// Every event up to this revision was handed out, or was not below the prefix.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next events, at least one; waits for them. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Vec<Arc<Event<A>>>, Ended> {
        loop {
            self.bell.borrow_and_update();
            let events = self.poll()?;
            if !events.is_empty() {
                return Ok(events);
            }
            // The sender lives in the table that we hold, so this only returns because the bell rang.
            let _ = self.bell.changed().await;
        }
    }

    /// The events that are there already, possibly none; moves [`Watch::position`] to where they end.
    pub fn poll(&mut self) -> Result<Vec<Arc<Event<A>>>, Ended> {
        let state = self.table.read();
        let oldest = state.history.oldest_resumable();
        if self.position < oldest {
            return Err(Ended::TooOld { asked: self.position, oldest });
        }
        let (read, events) = state.history.after(self.position);
        let behind = state.history.written() - read.max(self.opened_at).min(state.history.written());
        if behind > self.lag_max {
            return Err(Ended::Slow { resume: self.position, behind });
        }
        let mut batch = Vec::new();
        for event in events {
            if batch.len() == BATCH_EVENTS_MAX {
                return Ok(batch);
            }
            self.position = event.revision();
            if self.prefix.contains(&event.record.key) {
                batch.push(Arc::clone(event));
            }
        }
        // Nothing of this resource can be between the last event and now: its lock is held.
        self.position = self.position.max(self.revision.load(Ordering::Acquire));
        Ok(batch)
    }
}
