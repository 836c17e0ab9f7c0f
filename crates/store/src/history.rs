//! The last events of one resource, bounded in number and in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Limits;
use crate::record::Event;

/// Events that are looked at one by one before the place is searched for: a search in a long history is a walk through
/// memory that nobody has touched for long.
const FEW: usize = 8;

#[derive(Debug)]
pub(crate) struct History<A> {
    events: VecDeque<Arc<Event<A>>>,
    bytes: usize,
    /// Revision of the newest event that was dropped, or is from before a restart: from here on everything is known.
    dropped: u64,
    /// How many events were ever written: tells how far a watcher is behind without counting.
    written: u64,
}

impl<A> History<A> {
    pub(crate) fn new(start: u64) -> Self {
        Self { events: VecDeque::new(), bytes: 0, dropped: start, written: 0 }
    }

    pub(crate) fn push(&mut self, event: Arc<Event<A>>, limits: &Limits) {
        self.bytes += event.cost();
        self.events.push_back(event);
        self.written += 1;
        while self.events.len() > limits.history_events_max
            || (self.bytes > limits.history_bytes_max && self.events.len() > 1)
        {
            let Some(oldest) = self.events.pop_front() else { break };
            self.bytes -= oldest.cost();
            self.dropped = oldest.revision();
        }
    }

    /// The oldest revision from which a watch can begin.
    pub(crate) fn oldest_resumable(&self) -> u64 {
        self.dropped
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// The events after `revision`, oldest first, and how many events were written before the first of them.
    pub(crate) fn after(&self, revision: u64) -> (u64, impl DoubleEndedIterator<Item = &Arc<Event<A>>>) {
        let start = self.start_after(revision);
        let before = self.written - (self.events.len() - start) as u64;
        (before, self.events.range(start..))
    }

    /// Where the events after `revision` begin. Nearly all who ask have read all but the last few.
    fn start_after(&self, revision: u64) -> usize {
        let is_read = |event: &Arc<Event<A>>| event.revision() <= revision;
        let unread = self.events.iter().rev().take(FEW).take_while(|event| !is_read(event)).count();
        if unread < FEW { self.events.len() - unread } else { self.events.partition_point(is_read) }
    }
}
