//! Objects with one growing revision, optimistic writes, and a watch history: what etcd is to kube-apiserver.
//!
//! ```text
//!                        in memory ──────────────────────────────────┐
//!  create/update/delete ─► writer lock ─► staged, queue ─► committer ─► table of one resource ─► wake watchers
//!                          (revision+1)   (next batch)     (log, sync)  objects, history ring    (never waited for)
//!  get/list             ──────────────────────────────────────────────► read lock of that table, clone `Arc`s, done
//! ```
//!
//! Promises, each with a test:
//! * Revisions only grow, by one a write, over all resources together, also across a restart.
//! * A write that names a revision wins only if the object is still at that revision.
//! * A watch from revision `r` yields every later event of its prefix, once, in order; or says [`Ended::TooOld`].
//! * A list at revision `r` followed by a watch from `r` has no gap and no overlap.
//! * A watcher that falls too far behind is ended with the revision to resume from; no writer ever waits for it.
//!
//! # A store that outlives the process
//!
//! [`Store::open`] keeps objects in a data directory, [`Store::new`] in memory only. Of the former it holds in addition:
//! * A write returns, or its [`Ticket`] is done, when it is synced to the disk, and nobody sees it, or is refused because
//!   of it, before.
//! * An object that is not what was written is named when the store is opened, and is never served.
//! * After a sync that failed no write is taken, because nobody can say what the disk holds; reads go on.
//! * A full disk fails the writes that do not fit, and nothing else.

mod committer;
mod directory;
pub mod faults;
mod history;
mod key;
mod log;
mod open;
mod record;
mod reserve;
mod rows;
mod sqlite;
mod table;
mod ticket;
mod wal;
mod watch;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, RwLock};

pub use key::{Key, Prefix};
pub use log::{Damage, Log, LogError, Recovery, Stored, Write};
pub use open::{Decode, OnDamage, OpenError};
pub use record::{Change, Event, Record};
pub use ticket::Ticket;
pub use watch::{Ended, Watch};

use committer::Writer;
use table::Table;

/// The revision of an empty store. Clients take 0 for "any" and reject it as a starting point, so it is not 0.
const FIRST_REVISION: u64 = 1;

/// Bounds of the history and of watchers.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Events kept for each resource.
    pub history_events_max: usize,
    /// Bytes of objects kept for each resource by its history. Whichever bound is met first drops the oldest event.
    pub history_bytes_max: usize,
    /// How many events of its resource a live watcher may be behind before it is ended.
    /// Below `history_events_max`, so that the revision it is given is still there when it comes back.
    pub watch_lag_max: usize,
}

/// A burst of 10,000 pods makes about six events a pod at 1-4 KB: one such burst fits, and no more than that.
impl Default for Limits {
    fn default() -> Self {
        Self { history_events_max: 65_536, history_bytes_max: 128 << 20, watch_lag_max: 32_768 }
    }
}

/// Why a write or a read was refused. `L` is how the log can fail: [`LogError`] of a write, nothing of a read.
#[derive(Debug, thiserror::Error)]
pub enum Error<A, L = Infallible> {
    /// The object is there already.
    #[error("create {}: exists at revision {}", .0.key, .0.revision)]
    Exists(Arc<Record<A>>),
    /// There is no such object.
    #[error("{0}: no such object")]
    NotFound(Key),
    /// The object is at another revision than the one named.
    #[error("{}: now at revision {}", .0.key, .0.revision)]
    Conflict(Arc<Record<A>>),
    /// The history does not reach back to the revision named.
    #[error("revision {asked} is older than the history, which begins after {oldest}")]
    TooOld {
        /// The revision named.
        asked: u64,
        /// The oldest revision from which everything is still known.
        oldest: u64,
    },
    /// The revision named has not been reached.
    #[error("revision {asked} is in the future, the store is at {current}")]
    Future {
        /// The revision named.
        asked: u64,
        /// The current revision.
        current: u64,
    },
    /// The write was not made durable.
    #[error("{0}")]
    Log(L),
}

/// Objects at one revision.
#[derive(Debug)]
pub struct List<A> {
    /// The revision the list shows: watch from here to see what comes after.
    pub revision: u64,
    /// The objects, in key order.
    pub records: Vec<Arc<Record<A>>>,
}

/// The store. `A` is what the caller computes once a write, to select objects by without decoding them.
#[derive(Debug)]
pub struct Store<A> {
    shared: Arc<Shared<A>>,
    /// Of a store that outlives the process, the thread that writes to its log.
    committer: Option<JoinHandle<()>>,
    damaged: Vec<Damage>,
}

/// What writers, readers and the committer share.
#[derive(Debug)]
struct Shared<A> {
    limits: Limits,
    /// In memory it is held for the whole of a write, so that events become visible in the order of their revisions;
    /// otherwise the committer sees to that.
    writer: Mutex<Writer<A>>,
    /// Tells the committer that something is queued, or that the store is closing.
    work: Condvar,
    /// Of the last write that is visible.
    revision: Arc<AtomicU64>,
    tables: RwLock<BTreeMap<Box<str>, Arc<Table<A>>>>,
    /// What happened up to this revision is not known, only what came of it.
    history_start: u64,
}

impl<A> Shared<A> {
    fn new(limits: Limits, revision: u64, history_start: u64) -> Self {
        Self {
            limits,
            writer: Mutex::new(Writer::new(revision)),
            work: Condvar::new(),
            revision: Arc::new(AtomicU64::new(revision)),
            tables: RwLock::default(),
            history_start,
        }
    }

    fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    fn table(&self, resource: &str) -> Arc<Table<A>> {
        if let Some(table) = self.tables.read().get(resource) {
            return Arc::clone(table);
        }
        let mut tables = self.tables.write();
        let table = tables.entry(resource.into());
        Arc::clone(table.or_insert_with(|| Arc::new(Table::new(BTreeMap::new(), self.history_start))))
    }

    /// Makes an event visible. Called in the order of revisions.
    fn publish(&self, event: Arc<Event<A>>) {
        let revision = event.revision();
        let table = self.table(event.record.key.resource());
        table.publish(event, &self.limits, || self.revision.store(revision, Ordering::Release));
    }
}

impl<A> Store<A> {
    /// An empty store at revision 1, in memory only: no write of it blocks.
    pub fn new(limits: Limits) -> Self {
        // It knows all of its past: nothing happened.
        let shared = Arc::new(Shared::new(limits, FIRST_REVISION, 0));
        Self { shared, committer: None, damaged: Vec::new() }
    }

    /// What was set aside when the store was opened.
    pub fn damaged(&self) -> &[Damage] {
        &self.damaged
    }

    /// Whether the store takes writes: for a health check, so that a store in doubt is noticed and restarted.
    pub fn check_writable(&self) -> Result<(), LogError> {
        self.shared.writer.lock().check_open()
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.shared.revision()
    }

    /// The object at `key`.
    pub fn get(&self, key: &Key) -> Option<Arc<Record<A>>> {
        self.shared.table(key.resource()).read().objects.get(key).cloned()
    }

    /// How many objects are below `prefix`.
    pub fn count(&self, prefix: &Prefix) -> usize {
        self.shared.table(prefix.resource()).read().range(prefix).count()
    }

    /// All objects below `prefix`, as they are now.
    pub fn list(&self, prefix: &Prefix) -> List<A> {
        let table = self.shared.table(prefix.resource());
        let state = table.read();
        List { revision: self.revision(), records: state.range(prefix).cloned().collect() }
    }

    /// All objects below `prefix`, as they were at `revision`.
    pub fn list_at(&self, prefix: &Prefix, revision: u64) -> Result<List<A>, Error<A>> {
        let table = self.shared.table(prefix.resource());
        let state = table.read();
        self.check_reachable(&state, revision)?;
        Ok(List { revision, records: state.range_at(prefix, revision) })
    }

    /// Events below `prefix` after `revision`.
    pub fn watch(&self, prefix: Prefix, revision: u64) -> Result<Watch<A>, Error<A>> {
        let table = self.shared.table(prefix.resource());
        let opened_at = {
            let state = table.read();
            self.check_reachable(&state, revision)?;
            state.history.written()
        };
        Ok(Watch::new(
            table,
            prefix,
            revision,
            opened_at,
            self.shared.limits.watch_lag_max,
            Arc::clone(&self.shared.revision),
        ))
    }

    fn check_reachable(&self, state: &table::State<A>, asked: u64) -> Result<(), Error<A>> {
        let current = self.revision();
        if asked > current {
            return Err(Error::Future { asked, current });
        }
        let oldest = state.history.oldest_resumable();
        if asked < oldest { Err(Error::TooOld { asked, oldest }) } else { Ok(()) }
    }

    /// Writes a new object. `encode` is given the revision that the bytes must carry; it runs under the writer lock.
    pub fn create(
        &self,
        key: Key,
        attributes: A,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<Arc<Record<A>>, Error<A, LogError>> {
        self.begin_create(key, attributes, encode)?.wait().map_err(Error::Log)
    }

    /// Like [`Self::create`], but does not wait for the disk.
    pub fn begin_create(
        &self,
        key: Key,
        attributes: A,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<Ticket<A>, Error<A, LogError>> {
        let check = |current: Option<&Arc<Record<A>>>| match current {
            Some(existing) => Err(Error::Exists(Arc::clone(existing))),
            None => Ok(()),
        };
        self.write(Change::Created, &key, check, attributes, encode)
    }

    /// Writes an object that is at revision `expected`.
    pub fn update(
        &self,
        key: &Key,
        expected: u64,
        attributes: A,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<Arc<Record<A>>, Error<A, LogError>> {
        self.begin_update(key, expected, attributes, encode)?.wait().map_err(Error::Log)
    }

    /// Like [`Self::update`], but does not wait for the disk.
    pub fn begin_update(
        &self,
        key: &Key,
        expected: u64,
        attributes: A,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<Ticket<A>, Error<A, LogError>> {
        self.write(Change::Updated, key, |current| is_at(key, current, expected), attributes, encode)
    }

    /// Removes an object that is at revision `expected`. What `encode` returns is its last state, which watchers see.
    pub fn delete(
        &self,
        key: &Key,
        expected: u64,
        attributes: A,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<Arc<Record<A>>, Error<A, LogError>> {
        self.begin_delete(key, expected, attributes, encode)?.wait().map_err(Error::Log)
    }

    /// Like [`Self::delete`], but does not wait for the disk.
    pub fn begin_delete(
        &self,
        key: &Key,
        expected: u64,
        attributes: A,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<Ticket<A>, Error<A, LogError>> {
        self.write(Change::Deleted, key, |current| is_at(key, current, expected), attributes, encode)
    }

    /// The one place where something is written.
    fn write(
        &self,
        change: Change,
        key: &Key,
        check: impl FnOnce(Option<&Arc<Record<A>>>) -> Result<(), Error<A, LogError>>,
        attributes: A,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<Ticket<A>, Error<A, LogError>> {
        let mut writer = self.shared.writer.lock();
        writer.check_open().map_err(Error::Log)?;
        // Of writers that name the same revision one must win, also if they meet in one batch.
        let (previous, staged_by) = match writer.staged(key) {
            Some(staged) => (staged.record.clone(), Some(Arc::clone(&staged.slot))),
            None => (self.get(key), None),
        };
        if let Err(refused) = check(previous.as_ref()) {
            drop(writer);
            // What a refusal tells must be durable too, and visible to a caller who reads it to try again.
            if let Some(slot) = staged_by {
                ticket::aside(|| slot.wait()).map_err(Error::Log)?;
            }
            return Err(refused);
        }
        let revision = writer.last + 1;
        let record = Arc::new(Record { key: key.clone(), revision, bytes: encode(revision), attributes });
        let event = Arc::new(Event { change, record: Arc::clone(&record), previous });
        writer.last = revision;
        if self.committer.is_none() {
            self.shared.publish(event);
            return Ok(Ticket { record, slot: None });
        }
        let slot = writer.stage(event);
        drop(writer);
        self.shared.work.notify_one();
        Ok(Ticket { record, slot: Some(slot) })
    }
}

fn is_at<A>(key: &Key, current: Option<&Arc<Record<A>>>, expected: u64) -> Result<(), Error<A, LogError>> {
    match current {
        None => Err(Error::NotFound(key.clone())),
        Some(current) if current.revision != expected => Err(Error::Conflict(Arc::clone(current))),
        Some(_) => Ok(()),
    }
}

impl<A: Send + Sync + 'static> Store<A> {
    /// A store that goes on from what its log held. The objects come in the order of their keys.
    fn recovered(
        limits: Limits,
        revision: u64,
        objects: Vec<Arc<Record<A>>>,
        damaged: Vec<Damage>,
        log: Box<dyn Log>,
    ) -> std::io::Result<Self> {
        let revision = revision.max(FIRST_REVISION);
        let shared = Shared::new(limits, revision, revision);
        let tables = objects.chunk_by(|a, b| a.key.resource() == b.key.resource());
        let table = |records: &[Arc<Record<A>>]| {
            let resource: Box<str> = records.first()?.key.resource().into();
            let objects = records.iter().map(|record| (record.key.clone(), Arc::clone(record))).collect();
            Some((resource, Arc::new(Table::new(objects, revision))))
        };
        *shared.tables.write() = tables.filter_map(table).collect();
        let shared = Arc::new(shared);
        let of_committer = Arc::clone(&shared);
        let committer = std::thread::Builder::new()
            .name("store-committer".to_owned())
            .spawn(move || committer::run(&of_committer, log))?;
        Ok(Self { shared, committer: Some(committer), damaged })
    }
}

/// Waits until the log is closed, so that the data directory can be opened again at once.
impl<A> Drop for Store<A> {
    fn drop(&mut self) {
        if let Some(committer) = self.committer.take() {
            self.shared.writer.lock().close();
            self.shared.work.notify_one();
            // If it panicked, every writer was told so.
            let _ = committer.join();
        }
    }
}
