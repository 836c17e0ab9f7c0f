//! Objects with one growing revision, optimistic writes, and a watch history: what etcd is to kube-apiserver.
//!
//! ```text
//!  create/update/delete ──► writer lock ──► table of one resource ──► history ring ──► wake watchers
//!                           (revision+1)    BTreeMap<Key, Record>     (bounded)        (never waited for)
//!  get/list             ──────────────────► read lock of that table, clone `Arc`s, done
//! ```
//!
//! Promises, each with a test:
//! * Revisions only grow, by one a write, over all resources together.
//! * A write that names a revision wins only if the object is still at that revision.
//! * A watch from revision `r` yields every later event of its prefix, once, in order; or says [`Ended::TooOld`].
//! * A list at revision `r` followed by a watch from `r` has no gap and no overlap.
//! * A watcher that falls too far behind is ended with the revision to resume from; no writer ever waits for it.
//!
//! # Where durability goes
//!
//! A write holds the writer lock while its revision is given out and until its event is visible. A durable log is
//! appended to at that one place (`Store::commit`), between encoding and publishing: a `Log` trait with
//! `append(&[Event]) -> Result` and `replay()`, group commit inside it. Nothing else in this crate has to know.

mod history;
mod key;
mod record;
mod table;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::{Mutex, RwLock};

pub use key::{Key, Prefix};
pub use record::{Change, Event, Record};
pub use watch::{Ended, Watch};

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

/// Why a write or a read was refused.
#[derive(Debug, thiserror::Error)]
pub enum Error<A> {
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
    limits: Limits,
    /// Held for the whole of a write, so that events become visible in the order of their revisions.
    writer: Mutex<()>,
    revision: Arc<AtomicU64>,
    tables: RwLock<BTreeMap<Box<str>, Arc<Table<A>>>>,
}

impl<A> Store<A> {
    /// An empty store at revision 1.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            writer: Mutex::new(()),
            revision: Arc::new(AtomicU64::new(FIRST_REVISION)),
            tables: RwLock::default(),
        }
    }

    /// The revision of the last write.
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// The object at `key`.
    pub fn get(&self, key: &Key) -> Option<Arc<Record<A>>> {
        self.table(key.resource()).read().objects.get(key).cloned()
    }

    /// All objects below `prefix`, as they are now.
    pub fn list(&self, prefix: &Prefix) -> List<A> {
        let table = self.table(prefix.resource());
        let state = table.read();
        List { revision: self.revision(), records: state.range(prefix).cloned().collect() }
    }

    /// All objects below `prefix`, as they were at `revision`.
    pub fn list_at(&self, prefix: &Prefix, revision: u64) -> Result<List<A>, Error<A>> {
        let table = self.table(prefix.resource());
        let state = table.read();
        self.check_reachable(&state, revision)?;
        Ok(List { revision, records: state.range_at(prefix, revision) })
    }

    /// Events below `prefix` after `revision`.
    pub fn watch(&self, prefix: Prefix, revision: u64) -> Result<Watch<A>, Error<A>> {
        let table = self.table(prefix.resource());
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
            self.limits.watch_lag_max,
            Arc::clone(&self.revision),
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
    ) -> Result<Arc<Record<A>>, Error<A>> {
        let _writer = self.writer.lock();
        let table = self.table(key.resource());
        if let Some(existing) = table.read().objects.get(&key) {
            return Err(Error::Exists(Arc::clone(existing)));
        }
        Ok(self.commit(&table, Change::Created, key, None, attributes, encode))
    }

    /// Writes an object that is at revision `expected`.
    pub fn update(
        &self,
        key: &Key,
        expected: u64,
        attributes: A,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<Arc<Record<A>>, Error<A>> {
        self.replace(Change::Updated, key, expected, attributes, encode)
    }

    /// Removes an object that is at revision `expected`. What `encode` returns is its last state, which watchers see.
    pub fn delete(
        &self,
        key: &Key,
        expected: u64,
        attributes: A,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<Arc<Record<A>>, Error<A>> {
        self.replace(Change::Deleted, key, expected, attributes, encode)
    }

    fn replace(
        &self,
        change: Change,
        key: &Key,
        expected: u64,
        attributes: A,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Result<Arc<Record<A>>, Error<A>> {
        let _writer = self.writer.lock();
        let table = self.table(key.resource());
        let previous = table.read().objects.get(key).cloned();
        match previous {
            None => Err(Error::NotFound(key.clone())),
            Some(current) if current.revision != expected => Err(Error::Conflict(current)),
            Some(current) => Ok(self.commit(&table, change, key.clone(), Some(current), attributes, encode)),
        }
    }

    /// The one place where something is written. The caller holds the writer lock and has checked `previous`.
    fn commit(
        &self,
        table: &Table<A>,
        change: Change,
        key: Key,
        previous: Option<Arc<Record<A>>>,
        attributes: A,
        encode: impl FnOnce(u64) -> Bytes,
    ) -> Arc<Record<A>> {
        let revision = self.revision() + 1;
        let record = Arc::new(Record { key, revision, bytes: encode(revision), attributes });
        let event = Arc::new(Event { change, record: Arc::clone(&record), previous });
        table.publish(event, &self.limits, || self.revision.store(revision, Ordering::Release));
        record
    }

    fn table(&self, resource: &str) -> Arc<Table<A>> {
        if let Some(table) = self.tables.read().get(resource) {
            return Arc::clone(table);
        }
        let mut tables = self.tables.write();
        // An empty table knows all of its past: nothing happened in it.
        Arc::clone(tables.entry(resource.into()).or_insert_with(|| Arc::new(Table::new())))
    }
}
