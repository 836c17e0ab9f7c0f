//! The objects of one resource, their history, and the bell that wakes its watchers.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use parking_lot::{RwLock, RwLockReadGuard};
use tokio::sync::watch;

use crate::history::History;
use crate::record::{Change, Event, Record};
use crate::{Key, Limits, Prefix};

#[derive(Debug)]
pub(crate) struct State<A> {
    pub(crate) objects: BTreeMap<Key, Arc<Record<A>>>,
    pub(crate) history: History<A>,
}

impl<A> State<A> {
    pub(crate) fn range<'a>(&'a self, prefix: &'a Prefix) -> impl Iterator<Item = &'a Arc<Record<A>>> {
        self.objects
            .range::<str, _>((Bound::Included(prefix.as_str()), Bound::Unbounded))
            .take_while(|(key, _)| prefix.contains(key))
            .map(|(_, record)| record)
    }

    /// The past is the present with the events since then undone, newest first.
    pub(crate) fn range_at(&self, prefix: &Prefix, revision: u64) -> Vec<Arc<Record<A>>> {
        let (_, since) = self.history.after(revision);
        let mut undone: BTreeMap<&Key, Option<&Arc<Record<A>>>> = BTreeMap::new();
        for event in since.rev().filter(|event| prefix.contains(&event.record.key)) {
            undone.insert(&event.record.key, event.previous.as_ref());
        }
        let mut past: BTreeMap<&Key, &Arc<Record<A>>> = self.range(prefix).map(|r| (&r.key, r)).collect();
        for (key, record) in undone {
            match record {
                Some(record) => past.insert(key, record),
                None => past.remove(key),
            };
        }
        past.into_values().cloned().collect()
    }
}

#[derive(Debug)]
pub(crate) struct Table<A> {
    state: RwLock<State<A>>,
    bell: watch::Sender<()>,
}

impl<A> Table<A> {
    /// Of what happened up to `history_start` only `objects` is known.
    pub(crate) fn new(objects: BTreeMap<Key, Arc<Record<A>>>, history_start: u64) -> Self {
        let state = State { objects, history: History::new(history_start) };
        Self { state: RwLock::new(state), bell: watch::Sender::new(()) }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, State<A>> {
        self.state.read()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.bell.subscribe()
    }

    /// Makes an event visible: object, history and revision change together for everyone who reads this table.
    pub(crate) fn publish(&self, event: Arc<Event<A>>, limits: &Limits, advance: impl FnOnce()) {
        {
            let mut state = self.state.write();
            let record = &event.record;
            match event.change {
                Change::Created | Change::Updated => {
                    state.objects.insert(record.key.clone(), Arc::clone(record));
                }
                Change::Deleted => {
                    state.objects.remove(&record.key);
                }
            }
            state.history.push(event, limits);
            advance();
        }
        self.bell.send_replace(());
    }
}
