//! Opening a store that outlives the process.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::directory::Directory;
use crate::log::{Damage, Log, LogError, Stored};
use crate::record::Record;
use crate::sqlite::SqliteLog;
use crate::{Key, Limits, Store};

/// What computes the attributes of an object from its key and bytes; its error says why it cannot.
pub type Decode<'a, A> = &'a dyn Fn(&Key, &Bytes) -> Result<A, String>;

/// What to do about objects that are not what was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnDamage {
    /// Do not open: an object that is silently missing could make a controller do its work twice.
    #[default]
    Refuse,
    /// Open without them. They are kept aside for examination, and [`Store::damaged`] names them.
    SetAside,
}

/// Why a store was not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// Another process, or another part of this one, has it open.
    #[error("data directory {} is in use by {holder}", .dir.display())]
    Locked {
        /// The data directory.
        dir: PathBuf,
        /// Who has it, as far as known.
        holder: String,
    },
    /// It was written by another version of this program, or by another program.
    #[error("{} has format {found}, this version reads format {known}", .file.display())]
    Format {
        /// The file.
        file: PathBuf,
        /// What was found.
        found: String,
        /// What this version reads.
        known: i64,
    },
    /// Objects are not what was written.
    #[error("store is damaged: {}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Damaged(Vec<Damage>),
    /// The file is not what was written, and what it lost cannot be told object by object.
    #[error("{} is damaged: {reason}", .file.display())]
    Corrupt {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The operating system refused something.
    #[error("{operation} {}: {source}", .path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        source: io::Error,
    },
    /// The database refused something.
    #[error("open {}: {reason}", .file.display())]
    Database {
        /// The file.
        file: PathBuf,
        /// Why it failed.
        reason: String,
    },
    /// The thread that writes could not be started.
    #[error("start the thread that writes to the store: {0}")]
    Thread(io::Error),
    /// What is damaged could not be set aside.
    #[error("set damaged objects aside: {0}")]
    SetAside(LogError),
}

impl<A: Send + Sync + 'static> Store<A> {
    /// Opens the store in `dir`, or makes one there. Writes to it return when they are durable, so they block: an async
    /// caller makes them on a blocking thread. Reads never block on the disk.
    ///
    /// The history of a store that is opened begins now: a watch from an older revision is told to list again.
    pub fn open(
        dir: &Path,
        limits: Limits,
        on_damage: OnDamage,
        decode: Decode<'_, A>,
    ) -> Result<Self, OpenError> {
        let log = SqliteLog::open(Directory::lock(dir)?)?;
        Self::open_log(Box::new(log), limits, on_damage, decode)
    }

    /// Opens the store that `log` keeps.
    pub fn open_log(
        mut log: Box<dyn Log>,
        limits: Limits,
        on_damage: OnDamage,
        decode: Decode<'_, A>,
    ) -> Result<Self, OpenError> {
        let recovery = log.recover()?;
        let mut damaged = recovery.damaged;
        let mut objects = BTreeMap::new();
        for stored in recovery.objects {
            match decode(&stored.key, &stored.bytes) {
                Ok(attributes) => {
                    let record = record(stored, attributes);
                    objects.insert(record.key.clone(), record);
                }
                Err(reason) => damaged.push(Damage {
                    key: Some(stored.key.to_string()),
                    revision: Some(stored.revision),
                    reason: format!("cannot be decoded: {reason}"),
                }),
            }
        }
        if !damaged.is_empty() {
            match on_damage {
                OnDamage::Refuse => return Err(OpenError::Damaged(damaged)),
                OnDamage::SetAside => log.set_aside(&damaged).map_err(OpenError::SetAside)?,
            }
        }
        Self::recovered(limits, recovery.revision, objects, damaged, log).map_err(OpenError::Thread)
    }
}

fn record<A>(stored: Stored, attributes: A) -> Arc<Record<A>> {
    let Stored { key, revision, bytes } = stored;
    Arc::new(Record { key, revision, bytes, attributes })
}
