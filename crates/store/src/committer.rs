//! Group commit: one thread makes durable what many writers have staged, and only then shows it.
//!
//! ```text
//!  writer: check against staged, else table ─► revision, encode ─► stage, queue ─► wait for its slot
//!  committer: take the whole queue ─► append, sync ─► publish each ─► unstage ─► fill the slots ─► next queue
//! ```
//!
//! While a batch is being synced the next one gathers, so that the more writers there are, the fewer syncs each costs.

use std::collections::HashMap;
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::{Condvar, Mutex};

use crate::log::{Log, LogError, Write};
use crate::record::{Change, Event, Record};
use crate::{Key, Shared};

/// Where a writer waits for its own write, and for the one that its precondition depends on.
#[derive(Debug, Default)]
pub(crate) struct Slot {
    state: Mutex<SlotState>,
    bell: Condvar,
}

#[derive(Debug, Default)]
struct SlotState {
    outcome: Option<Result<(), LogError>>,
    /// The task that waits, if one does. At most one writer waits as a task: the one whose write it is.
    task: Option<Waker>,
}

impl Slot {
    pub(crate) fn wait(&self) -> Result<(), LogError> {
        let mut state = self.state.lock();
        loop {
            match &state.outcome {
                Some(outcome) => return outcome.clone(),
                None => self.bell.wait(&mut state),
            }
        }
    }

    /// Like [`Self::wait`], for a task.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Result<(), LogError>> {
        let mut state = self.state.lock();
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        state.task = Some(context.waker().clone());
        Poll::Pending
    }

    fn fill(&self, result: Result<(), LogError>) {
        let mut state = self.state.lock();
        if state.outcome.is_some() {
            return;
        }
        state.outcome = Some(result);
        let task = state.task.take();
        drop(state);
        self.bell.notify_all();
        if let Some(task) = task {
            task.wake();
        }
    }
}

/// A write on its way to the disk.
#[derive(Debug)]
struct Pending<A> {
    event: Arc<Event<A>>,
    slot: Arc<Slot>,
}

/// A committer that panics must not leave its writers waiting.
impl<A> Drop for Pending<A> {
    fn drop(&mut self) {
        self.slot.fill(Err(LogError::Failed("the committer ended".to_owned())));
    }
}

/// What the newest write of a key, not yet durable, made of it.
#[derive(Debug)]
pub(crate) struct Staged<A> {
    revision: u64,
    /// Nothing if it was deleted.
    pub(crate) record: Option<Arc<Record<A>>>,
    pub(crate) slot: Arc<Slot>,
}

/// What writers share. Held while a write is checked and encoded, never while the disk is waited for.
#[derive(Debug)]
pub(crate) struct Writer<A> {
    /// The last revision that was given out.
    pub(crate) last: u64,
    staged: HashMap<Key, Staged<A>>,
    queue: Vec<Pending<A>>,
    /// Why no write is taken any more.
    refusal: Option<String>,
    is_closing: bool,
}

impl<A> Writer<A> {
    pub(crate) fn new(last: u64) -> Self {
        Self { last, staged: HashMap::new(), queue: Vec::new(), refusal: None, is_closing: false }
    }

    pub(crate) fn check_open(&self) -> Result<(), LogError> {
        match &self.refusal {
            Some(reason) => Err(LogError::Refused(reason.clone())),
            None => Ok(()),
        }
    }

    /// The state of `key` after all writes that are on their way, if there are any, and where to wait for the last.
    pub(crate) fn staged(&self, key: &Key) -> Option<&Staged<A>> {
        self.staged.get(key)
    }

    pub(crate) fn stage(&mut self, event: Arc<Event<A>>) -> Arc<Slot> {
        let slot = Arc::new(Slot::default());
        let record = match event.change {
            Change::Created | Change::Updated => Some(Arc::clone(&event.record)),
            Change::Deleted => None,
        };
        let staged = Staged { revision: event.revision(), record, slot: Arc::clone(&slot) };
        self.staged.insert(event.record.key.clone(), staged);
        self.queue.push(Pending { event, slot: Arc::clone(&slot) });
        slot
    }

    fn unstage(&mut self, batch: &[Pending<A>]) {
        for Pending { event, .. } in batch {
            let key = &event.record.key;
            // A later write of the same key may wait in the next batch.
            if self.staged.get(key).is_some_and(|staged| staged.revision == event.revision()) {
                self.staged.remove(key);
            }
        }
    }

    pub(crate) fn close(&mut self) {
        self.is_closing = true;
    }
}

/// Runs until the store is closed and the queue is empty.
pub(crate) fn run<A>(shared: &Shared<A>, mut log: Box<dyn Log>) {
    while let Some(batch) = next_batch(shared) {
        // Dropped before the batch, so that who hears of the panic finds the store refusing writes.
        let _guard = RefuseOnPanic(shared);
        match write(&mut *log, &batch) {
            Ok(()) => {
                for Pending { event, .. } in &batch {
                    shared.publish(Arc::clone(event));
                }
                shared.writer.lock().unstage(&batch);
                for Pending { slot, .. } in &batch {
                    slot.fill(Ok(()));
                }
                if let Err(error) = log.maintain() {
                    fail(shared, Vec::new(), &error);
                }
            }
            Err(error) => fail(shared, batch, &error),
        }
    }
}

fn next_batch<A>(shared: &Shared<A>) -> Option<Vec<Pending<A>>> {
    let mut writer = shared.writer.lock();
    while writer.queue.is_empty() {
        if writer.is_closing {
            return None;
        }
        shared.work.wait(&mut writer);
    }
    Some(mem::take(&mut writer.queue))
}

fn write<A>(log: &mut dyn Log, batch: &[Pending<A>]) -> Result<(), LogError> {
    for Pending { event, .. } in batch {
        let record = &event.record;
        log.append(&Write {
            change: event.change,
            key: &record.key,
            revision: record.revision,
            bytes: &record.bytes,
            previous: event.previous.as_ref().map(|previous| (previous.revision, &previous.bytes)),
        })?;
    }
    log.sync()
}

/// Everything that was staged was checked against what has just failed, so it fails as well.
fn fail<A>(shared: &Shared<A>, batch: Vec<Pending<A>>, error: &LogError) {
    let queued = {
        let mut writer = shared.writer.lock();
        match error {
            // Nothing of it is on the disk and nobody has seen its revisions: they can be given out again.
            LogError::Full(_) => {}
            LogError::Failed(reason) | LogError::Refused(reason) => writer.refusal = Some(reason.clone()),
        }
        writer.last = shared.revision();
        writer.staged.clear();
        mem::take(&mut writer.queue)
    };
    for Pending { slot, .. } in &batch {
        slot.fill(Err(error.clone()));
    }
    for Pending { slot, .. } in &queued {
        // These were never appended, so of them it is known that they are not kept.
        slot.fill(Err(match error {
            LogError::Full(_) => error.clone(),
            LogError::Failed(reason) | LogError::Refused(reason) => LogError::Refused(reason.clone()),
        }));
    }
}

/// Without a committer no write would ever be answered.
struct RefuseOnPanic<'a, A>(&'a Shared<A>);

impl<A> Drop for RefuseOnPanic<'_, A> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            fail(self.0, Vec::new(), &LogError::Failed("the committer panicked".to_owned()));
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn event(change: Change, name: &str, revision: u64) -> Arc<Event<()>> {
        let key = Key::new("pods", "ns", name);
        let record = Arc::new(Record { key, revision, bytes: Bytes::new(), attributes: () });
        Arc::new(Event { change, record, previous: None })
    }

    /// If it were forgotten, a writer that names the revision before it would win against it.
    #[test]
    fn a_newer_write_in_the_next_batch_stays_staged_when_the_older_one_is_done() {
        for newer in [Change::Updated, Change::Deleted] {
            let mut writer = Writer::new(1);
            writer.stage(event(Change::Created, "a", 2));
            writer.stage(event(Change::Created, "b", 3));
            let batch = mem::take(&mut writer.queue);
            writer.stage(event(newer, "a", 4));
            writer.unstage(&batch);
            let staged = |name| writer.staged(&Key::new("pods", "ns", name)).map(|staged| staged.revision);
            assert_eq!((staged("a"), staged("b")), (Some(4), None), "{newer:?}");
        }
    }
}
