//! The store against a map and a log: whatever is done to both, they say the same.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use windlass_store::{Change, Key, Limits, Prefix, Store};

const HISTORY: usize = 12;

#[derive(Clone, Debug)]
enum Op {
    Create(u8),
    /// With the current revision, or with one that is off by this much.
    Update(u8, u64),
    Delete(u8, u64),
}

fn op() -> impl Strategy<Value = Op> {
    let off = prop_oneof![8 => Just(0u64), 1 => 1u64..3];
    prop_oneof![
        (0u8..12).prop_map(Op::Create),
        (0u8..12, off.clone()).prop_map(|(name, off)| Op::Update(name, off)),
        (0u8..12, off).prop_map(|(name, off)| Op::Delete(name, off)),
    ]
}

/// Two resources, two namespaces.
fn key(name: u8) -> Key {
    let resource = if name.is_multiple_of(2) { "pods" } else { "jobs" };
    let namespace = if name.is_multiple_of(3) { "a" } else { "b" };
    Key::new(resource, namespace, &format!("n{name}"))
}

#[derive(Default)]
struct Model {
    revision: u64,
    objects: BTreeMap<String, u64>,
    log: Vec<(u64, Change, String)>,
}

impl Model {
    fn write(&mut self, change: Change, key: &Key) -> u64 {
        self.revision += 1;
        match change {
            Change::Created | Change::Updated => {
                self.objects.insert(key.to_string(), self.revision);
            }
            Change::Deleted => {
                self.objects.remove(key.as_str());
            }
        }
        self.log.push((self.revision, change, key.to_string()));
        self.revision
    }

    /// What the operation must return: the revision of the write, or nothing.
    fn apply(&mut self, op: &Op) -> Option<u64> {
        let (change, name, off) = match op {
            Op::Create(name) => {
                let is_new = !self.objects.contains_key(key(*name).as_str());
                return is_new.then(|| self.write(Change::Created, &key(*name)));
            }
            Op::Update(name, off) => (Change::Updated, *name, *off),
            Op::Delete(name, off) => (Change::Deleted, *name, *off),
        };
        let is_current = off == 0 && self.objects.contains_key(key(name).as_str());
        is_current.then(|| self.write(change, &key(name)))
    }

    fn objects_at(&self, revision: u64, prefix: &str) -> Vec<(String, u64)> {
        let mut objects = BTreeMap::new();
        for (at, change, key) in
            self.log.iter().filter(|(at, _, key)| *at <= revision && key.starts_with(prefix))
        {
            match change {
                Change::Created | Change::Updated => objects.insert(key.clone(), *at),
                Change::Deleted => objects.remove(key),
            };
        }
        objects.into_iter().collect()
    }

    fn events_after(&self, revision: u64, prefix: &str) -> Vec<(u64, Change, String)> {
        self.log.iter().filter(|(at, _, key)| *at > revision && key.starts_with(prefix)).cloned().collect()
    }

    fn oldest(&self, resource: &str) -> u64 {
        let of_resource: Vec<u64> =
            self.log.iter().filter(|(_, _, key)| key.starts_with(resource)).map(|(at, _, _)| *at).collect();
        of_resource.len().checked_sub(HISTORY + 1).map_or(0, |last_dropped| of_resource[last_dropped])
    }
}

fn apply(store: &Store<()>, op: &Op) -> Option<u64> {
    let bytes = |revision: u64| Bytes::from(revision.to_string());
    let at = |name: u8, off: u64| store.get(&key(name)).map_or(1, |record| record.revision) + off;
    let record = match op {
        Op::Create(name) => store.create(key(*name), (), bytes),
        Op::Update(name, off) => store.update(&key(*name), at(*name, *off), (), bytes),
        Op::Delete(name, off) => store.delete(&key(*name), at(*name, *off), (), bytes),
    };
    let record = record.ok()?;
    assert_eq!(record.bytes, record.revision.to_string());
    Some(record.revision)
}

proptest! {
    #[test]
    fn the_store_says_what_a_map_and_a_log_say(ops in prop::collection::vec(op(), 1..80)) {
        let limits = Limits { history_events_max: HISTORY, history_bytes_max: usize::MAX, watch_lag_max: HISTORY };
        let store = Store::new(limits);
        let mut model = Model { revision: 1, ..Model::default() };
        for op in &ops {
            prop_assert_eq!(apply(&store, op), model.apply(op), "{:?}", op);
            prop_assert_eq!(store.revision(), model.revision);
        }
        for (resource, namespace) in [("pods", ""), ("pods", "a"), ("jobs", ""), ("jobs", "b")] {
            let prefix = Prefix::namespaced(resource, namespace);
            let text = if namespace.is_empty() { format!("{resource}/") } else { format!("{resource}/{namespace}/") };
            for revision in 0..=model.revision {
                let is_retained = revision >= model.oldest(resource);
                let listed = store.list_at(&prefix, revision).ok().map(|list| {
                    list.records.iter().map(|r| (r.key.to_string(), r.revision)).collect::<Vec<_>>()
                });
                prop_assert_eq!(listed, is_retained.then(|| model.objects_at(revision, &text)));
                let watched = store.watch(prefix.clone(), revision).ok().map(|mut watch| {
                    let events = watch.poll().expect("its backlog is allowed");
                    events.iter().map(|e| (e.revision(), e.change, e.record.key.to_string())).collect::<Vec<_>>()
                });
                prop_assert_eq!(watched, is_retained.then(|| model.events_after(revision, &text)));
            }
            let now = store.list(&prefix);
            let listed: Vec<_> = now.records.iter().map(|r| (r.key.to_string(), r.revision)).collect();
            prop_assert_eq!(listed, model.objects_at(model.revision, &text));
        }
    }
}
