//! What keeps writes when the process is gone: a small trait, so that tests can put a failing disk in its place.

use bytes::Bytes;

use crate::open::OpenError;
use crate::{Change, Key};

/// Keeps the writes of a store. Used by one thread.
///
/// Writes are appended and then made durable together by [`Log::sync`]. When either fails, the batch is over: the log
/// has undone what it could, and the error says whether any of it may be there after a restart.
pub trait Log: Send {
    /// Everything that is kept. Called once, before anything is appended.
    fn recover(&mut self) -> Result<Recovery, OpenError>;

    /// Takes what is damaged out of what is kept, so that its keys can be written again. Durable on return.
    fn set_aside(&mut self, damaged: &[Damage]) -> Result<(), LogError>;

    /// Adds a write to the batch.
    fn append(&mut self, write: &Write<'_>) -> Result<(), LogError>;

    /// Makes the batch durable.
    fn sync(&mut self) -> Result<(), LogError>;

    /// Gives the log a moment to clean up. Called after the writers of a batch have their answers.
    fn maintain(&mut self) -> Result<(), LogError>;
}

/// One write, as the log sees it.
#[derive(Clone, Copy, Debug)]
pub struct Write<'a> {
    /// What was done.
    pub change: Change,
    /// To which object.
    pub key: &'a Key,
    /// The revision of the write.
    pub revision: u64,
    /// The object after the write; of a deletion, its last state.
    pub bytes: &'a Bytes,
    /// The revision and the bytes that this write supersedes.
    pub previous: Option<(u64, &'a Bytes)>,
}

/// Why a write was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LogError {
    /// There was no room. Nothing of the write is kept, and the store takes writes again when there is room.
    #[error("write to the store: no space left: {0}")]
    Full(String),
    /// The write may or may not be there after a restart. The store takes no more writes.
    #[error("write to the store failed, whether it is kept shows at the next start: {0}")]
    Failed(String),
    /// An earlier write failed in a way that leaves the disk in doubt.
    #[error("the store takes no writes until it is restarted, because an earlier write failed: {0}")]
    Refused(String),
}

/// One object as it was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Where it is kept.
    pub key: Key,
    /// The revision of the write that made it.
    pub revision: u64,
    /// The object.
    pub bytes: Bytes,
}

/// What a log holds.
#[derive(Debug, Default)]
pub struct Recovery {
    /// The revision of the last write, also if that was a deletion.
    pub revision: u64,
    /// The objects that are whole, in the order of their keys.
    pub objects: Vec<Stored>,
    /// What is not whole.
    pub damaged: Vec<Damage>,
}

/// Something that is kept but is not what was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {reason}", .key.as_deref().unwrap_or("unknown object"))]
pub struct Damage {
    /// The key as it is kept, if there is one.
    pub key: Option<String>,
    /// The revision under which it is kept, if there is one.
    pub revision: Option<u64>,
    /// What is wrong with it.
    pub reason: String,
}
