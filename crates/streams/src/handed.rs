//! A watch within one process: events are handed over as they are stored, and not written as lines that the other side has
//! to take apart again.
//!
//! It is the same request, by the same client, and means the same: who wants it puts [`Wanted`] among the extensions of the
//! request, which no network carries, and finds [`Handed`] among those of the answer. A server that can't do it answers
//! as ever.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, Stream};
use parking_lot::Mutex;
use serde::Deserialize;

/// What is said of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// It is there, and was not, or did not match.
    Added,
    /// It has changed.
    Modified,
    /// It is gone, or does not match any more.
    Deleted,
    /// Nothing but how far the watch has come.
    Bookmark,
    /// The watch ends; the object is a `Status`.
    Error,
}

impl Kind {
    /// As Kubernetes writes it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Added => "ADDED",
            Self::Modified => "MODIFIED",
            Self::Deleted => "DELETED",
            Self::Bookmark => "BOOKMARK",
            Self::Error => "ERROR",
        }
    }
}

/// One event: what happened, and the JSON of the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// What happened.
    pub kind: Kind,
    /// To which object.
    pub object: Bytes,
}

/// In a request: who asks is in the process of the server.
#[derive(Clone, Copy, Debug)]
pub struct Wanted;

/// In the answer: the events, instead of a body.
#[derive(Clone)]
pub struct Handed(Arc<Mutex<Option<BoxStream<'static, Said>>>>);

impl fmt::Debug for Handed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handed").finish_non_exhaustive()
    }
}

impl Handed {
    /// Hands over these.
    pub fn new(events: impl Stream<Item = Said> + Send + 'static) -> Self {
        Self(Arc::new(Mutex::new(Some(events.boxed()))))
    }

    /// The events; they are there once.
    pub fn take(&self) -> Option<BoxStream<'static, Said>> {
        self.0.lock().take()
    }
}
