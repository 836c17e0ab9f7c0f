//! Opening a store that outlives the process.

use std::io;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use bytes::Bytes;

use crate::directory::Directory;
use crate::log::{Damage, Log, LogError, Stored};
use crate::record::Record;
use crate::sqlite::SqliteLog;
use crate::{Key, Limits, Store};

/// What computes the attributes of an object from its key and bytes; its error says why it cannot. Objects are decoded
/// on several threads at once.
pub type Decode<'a, A> = &'a (dyn Fn(&Key, &Bytes) -> Result<A, String> + Sync);

/// Fewer are decoded sooner than another thread is started.
const OBJECTS_A_THREAD_MIN: usize = 500;

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
        let (objects, undecodable) = decode_all(recovery.objects, decode);
        damaged.extend(undecodable);
        if !damaged.is_empty() {
            match on_damage {
                OnDamage::Refuse => return Err(OpenError::Damaged(damaged)),
                OnDamage::SetAside => log.set_aside(&damaged).map_err(OpenError::SetAside)?,
            }
        }
        Self::recovered(limits, recovery.revision, objects, damaged, log).map_err(OpenError::Thread)
    }
}

/// Decodes all objects, which stay in their order, on all cores: it is what takes longest when a large store is opened.
fn decode_all<A: Send + Sync>(
    objects: Vec<Stored>,
    decode: Decode<'_, A>,
) -> (Vec<Arc<Record<A>>>, Vec<Damage>) {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    let share = objects.len().div_ceil(threads).max(OBJECTS_A_THREAD_MIN);
    let mut rest = objects;
    let mut shares = Vec::new();
    while rest.len() > share {
        let later = rest.split_off(share);
        shares.push(std::mem::replace(&mut rest, later));
    }
    thread::scope(|scope| {
        let others: Vec<_> =
            shares.into_iter().map(|share| scope.spawn(move || decode_share(share, decode))).collect();
        let last = decode_share(rest, decode);
        let (mut records, mut damaged) = (Vec::new(), Vec::new());
        let others = others.into_iter().map(|other| match other.join() {
            Ok(decoded) => decoded,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        for (whole, wrong) in others.chain([last]) {
            records.extend(whole);
            damaged.extend(wrong);
        }
        (records, damaged)
    })
}

fn decode_share<A>(objects: Vec<Stored>, decode: Decode<'_, A>) -> (Vec<Arc<Record<A>>>, Vec<Damage>) {
    let mut records = Vec::with_capacity(objects.len());
    let mut damaged = Vec::new();
    for stored in objects {
        match decode(&stored.key, &stored.bytes) {
            Ok(attributes) => records.push(record(stored, attributes)),
            Err(reason) => damaged.push(Damage {
                key: Some(stored.key.to_string()),
                revision: Some(stored.revision),
                reason: format!("cannot be decoded: {reason}"),
            }),
        }
    }
    (records, damaged)
}

fn record<A>(stored: Stored, attributes: A) -> Arc<Record<A>> {
    let Stored { key, revision, bytes } = stored;
    Arc::new(Record { key, revision, bytes, attributes })
}
