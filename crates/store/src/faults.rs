//! A log that fails or waits when it is told to, and shows what it does: for tests of what stands on a store.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};

use crate::directory::Directory;
use crate::log::{Damage, Log, LogError, Recovery, Write};
use crate::open::OpenError;
use crate::sqlite::SqliteLog;

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call does nothing and fails; of its batch nothing is kept.
    Before,
    /// The call is done and yet fails. After a sync: the batch is kept, though its writers are told otherwise.
    After,
    /// There is no room; of its batch nothing is kept.
    Full,
    /// The call panics.
    Panic,
}

/// Says when a [`FaultyLog`] fails. Calls are counted from 1 since the log was opened; clones are the same plan.
#[derive(Clone, Debug, Default)]
pub struct Faults(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    plan: Mutex<Plan>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct Plan {
    appends: u64,
    syncs: u64,
    at_append: BTreeMap<u64, Fault>,
    at_sync: BTreeMap<u64, Fault>,
    /// Syncs from this one on wait.
    held_from: Option<u64>,
}

impl Faults {
    /// The `n`-th append fails.
    pub fn fail_append(&self, n: u64, fault: Fault) {
        self.0.plan.lock().at_append.insert(n, fault);
    }

    /// The `n`-th sync fails.
    pub fn fail_sync(&self, n: u64, fault: Fault) {
        self.0.plan.lock().at_sync.insert(n, fault);
    }

    /// Syncs wait as long as what is returned lives.
    #[must_use]
    pub fn hold_syncs(&self) -> Held {
        self.0.plan.lock().held_from = Some(0);
        Held(self.clone())
    }

    /// How many appends and syncs were begun.
    pub fn calls(&self) -> (u64, u64) {
        let plan = self.0.plan.lock();
        (plan.appends, plan.syncs)
    }

    /// Waits until that many appends and syncs were begun.
    pub fn wait_for(&self, appends: u64, syncs: u64) {
        let mut plan = self.0.plan.lock();
        while plan.appends < appends || plan.syncs < syncs {
            self.0.bell.wait(&mut plan);
        }
    }

    fn next_append(&self) -> Option<Fault> {
        let mut plan = self.0.plan.lock();
        plan.appends += 1;
        self.0.bell.notify_all();
        let n = plan.appends;
        plan.at_append.remove(&n)
    }

    fn next_sync(&self) -> Option<Fault> {
        let mut plan = self.0.plan.lock();
        plan.syncs += 1;
        self.0.bell.notify_all();
        let n = plan.syncs;
        while plan.held_from.is_some_and(|from| n >= from) {
            self.0.bell.wait(&mut plan);
        }
        plan.at_sync.remove(&n)
    }
}

/// Keeps syncs waiting; a test that fails lets them go by dropping it.
#[derive(Debug)]
pub struct Held(Faults);

impl Held {
    /// Lets syncs before the `n`-th go.
    pub fn only_from(&self, n: u64) {
        self.0.0.plan.lock().held_from = Some(n);
        self.0.0.bell.notify_all();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.0.plan.lock().held_from = None;
        self.0.0.bell.notify_all();
    }
}

/// The log of a data directory, with faults. Of a batch that fails, the inner log sees nothing unless the fault is
/// [`Fault::After`] its sync.
pub struct FaultyLog {
    inner: SqliteLog,
    faults: Faults,
    /// A batch is handed on when it is synced, so that a fault leaves the inner log without it.
    batch: Vec<Owned>,
    observer: Option<Observer>,
}

/// Hears of what a [`FaultyLog`] has done. Until it returns the files of the log stay as they are, and everything in
/// them is synced.
pub type Observer = Box<dyn FnMut(Step) + Send>;

/// What a log has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// A batch is durable, and its writers do not know it yet.
    Synced,
    /// The log was tidied up: it may have been copied, and may have been given room.
    Maintained,
}

struct Owned {
    change: crate::Change,
    key: crate::Key,
    revision: u64,
    bytes: bytes::Bytes,
    previous: Option<(u64, bytes::Bytes)>,
}

impl FaultyLog {
    /// Opens the log in `dir`.
    pub fn open(dir: &Path, faults: Faults) -> Result<Self, OpenError> {
        let inner = SqliteLog::open(Directory::lock(dir)?)?;
        Ok(Self { inner, faults, batch: Vec::new(), observer: None })
    }

    /// Opens the log in `dir` without faults, but with somebody who hears of every step. What was appended to the
    /// database's own log is copied to the database when there are so many bytes.
    pub fn open_observed(dir: &Path, checkpoint_bytes: u64, observer: Observer) -> Result<Self, OpenError> {
        let inner = SqliteLog::open_with(Directory::lock(dir)?, checkpoint_bytes)?;
        Ok(Self { inner, faults: Faults::default(), batch: Vec::new(), observer: Some(observer) })
    }

    fn tell(&mut self, step: Step) {
        if let Some(observer) = &mut self.observer {
            observer(step);
        }
    }

    fn sync_inner(&mut self) -> Result<(), LogError> {
        for Owned { change, key, revision, bytes, previous } in std::mem::take(&mut self.batch) {
            let previous = previous.as_ref().map(|(revision, bytes)| (*revision, bytes));
            self.inner.append(&Write { change, key: &key, revision, bytes: &bytes, previous })?;
        }
        self.inner.sync()?;
        self.tell(Step::Synced);
        Ok(())
    }
}

fn injected() -> LogError {
    LogError::Failed("injected fault".to_owned())
}

impl Log for FaultyLog {
    fn recover(&mut self) -> Result<Recovery, OpenError> {
        self.inner.recover()
    }

    fn set_aside(&mut self, damaged: &[Damage]) -> Result<(), LogError> {
        self.inner.set_aside(damaged)
    }

    fn append(&mut self, write: &Write<'_>) -> Result<(), LogError> {
        let fault = self.faults.next_append();
        self.batch.push(Owned {
            change: write.change,
            key: write.key.clone(),
            revision: write.revision,
            bytes: write.bytes.clone(),
            previous: write.previous.map(|(revision, bytes)| (revision, bytes.clone())),
        });
        let Some(fault) = fault else { return Ok(()) };
        self.batch.clear();
        match fault {
            Fault::Before | Fault::After => Err(injected()),
            Fault::Full => Err(LogError::Full("injected fault".to_owned())),
            Fault::Panic => panic!("injected fault"),
        }
    }

    fn sync(&mut self) -> Result<(), LogError> {
        match self.faults.next_sync() {
            None => self.sync_inner(),
            Some(Fault::After) => self.sync_inner().and(Err(injected())),
            Some(Fault::Before) => {
                self.batch.clear();
                Err(injected())
            }
            Some(Fault::Full) => {
                self.batch.clear();
                Err(LogError::Full("injected fault".to_owned()))
            }
            Some(Fault::Panic) => panic!("injected fault"),
        }
    }

    fn maintain(&mut self) -> Result<(), LogError> {
        self.inner.maintain()?;
        self.tell(Step::Maintained);
        Ok(())
    }
}
