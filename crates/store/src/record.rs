//! What is stored, and what happened to it.

use std::sync::Arc;

use bytes::Bytes;

use crate::Key;

/// One object as it was at one revision. Never changed: a write makes another record.
#[derive(Debug)]
pub struct Record<A> {
    /// Where it is kept.
    pub key: Key,
    /// The revision of the write that made it; its bytes say the same.
    pub revision: u64,
    /// The object.
    pub bytes: Bytes,
    /// What the caller wants to select by.
    pub attributes: A,
}

/// What a write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object was not there before.
    Created,
    /// The object was there before.
    Updated,
    /// The object is gone.
    Deleted,
}

/// One write. Its revision is that of its record.
#[derive(Debug)]
pub struct Event<A> {
    /// What was done.
    pub change: Change,
    /// The object after the write; of a deletion, its last state with the revision of the deletion.
    pub record: Arc<Record<A>>,
    /// The object before the write.
    pub previous: Option<Arc<Record<A>>>,
}

impl<A> Event<A> {
    /// The revision of this write.
    pub fn revision(&self) -> u64 {
        self.record.revision
    }

    pub(crate) fn cost(&self) -> usize {
        self.record.bytes.len() + self.previous.as_ref().map_or(0, |previous| previous.bytes.len())
    }
}
