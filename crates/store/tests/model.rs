//! The store against a map and a log: whatever is done to both, they say the same.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use windlass_store::{Change, Error, Event, Key, Limits, Prefix, Record, Store, Watch};

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

/// What an operation comes to.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Written(u64),
    /// At this revision.
    Exists(u64),
    NotFound,
    /// It is at this revision.
    Conflict(u64),
}

/// A write as watchers see it: with the revision of the state before.
type Seen = (u64, Change, String, Option<u64>);

#[derive(Default)]
struct Model {
    revision: u64,
    objects: BTreeMap<String, u64>,
    log: Vec<Seen>,
}

impl Model {
    fn write(&mut self, change: Change, key: &Key) -> Outcome {
        self.revision += 1;
        let previous = match change {
            Change::Created | Change::Updated => self.objects.insert(key.to_string(), self.revision),
            Change::Deleted => self.objects.remove(key.as_str()),
        };
        self.log.push((self.revision, change, key.to_string(), previous));
        Outcome::Written(self.revision)
    }

    fn apply(&mut self, op: &Op) -> Outcome {
        let (change, name, off) = match op {
            Op::Create(name) => {
                return match self.objects.get(key(*name).as_str()) {
                    Some(at) => Outcome::Exists(*at),
                    None => self.write(Change::Created, &key(*name)),
                };
            }
            Op::Update(name, off) => (Change::Updated, *name, *off),
            Op::Delete(name, off) => (Change::Deleted, *name, *off),
        };
        match self.objects.get(key(name).as_str()) {
            None => Outcome::NotFound,
            Some(at) if off > 0 => Outcome::Conflict(*at),
            Some(_) => self.write(change, &key(name)),
        }
    }

    fn objects_at(&self, revision: u64, prefix: &str) -> Vec<(String, u64)> {
        let mut objects = BTreeMap::new();
        let until = self.log.iter().filter(|(at, _, key, _)| *at <= revision && key.starts_with(prefix));
        for (at, change, key, _) in until {
            match change {
                Change::Created | Change::Updated => objects.insert(key.clone(), *at),
                Change::Deleted => objects.remove(key),
            };
        }
        objects.into_iter().collect()
    }

    fn events_after(&self, revision: u64, prefix: &str) -> Vec<Seen> {
        self.log.iter().filter(|(at, _, key, _)| *at > revision && key.starts_with(prefix)).cloned().collect()
    }

    fn oldest(&self, resource: &str) -> u64 {
        let of_resource: Vec<u64> =
            self.log.iter().filter(|(_, _, key, _)| key.starts_with(resource)).map(|(at, ..)| *at).collect();
        of_resource.len().checked_sub(HISTORY + 1).map_or(0, |last_dropped| of_resource[last_dropped])
    }
}

fn apply(store: &Store<()>, op: &Op) -> Outcome {
    let bytes = |revision: u64| Bytes::from(revision.to_string());
    let at = |name: u8, off: u64| store.get(&key(name)).map_or(1, |record| record.revision) + off;
    let result = match op {
        Op::Create(name) => store.create(key(*name), (), bytes),
        Op::Update(name, off) => store.update(&key(*name), at(*name, *off), (), bytes),
        Op::Delete(name, off) => store.delete(&key(*name), at(*name, *off), (), bytes),
    };
    match result {
        Ok(record) => {
            assert_eq!(record.bytes, record.revision.to_string());
            Outcome::Written(record.revision)
        }
        Err(Error::Exists(record)) => Outcome::Exists(record.revision),
        Err(Error::NotFound(_)) => Outcome::NotFound,
        Err(Error::Conflict(record)) => Outcome::Conflict(record.revision),
        Err(error) => panic!("{op:?}: {error}"),
    }
}

const PREFIXES: [(&str, &str); 4] = [("pods", ""), ("pods", "a"), ("jobs", ""), ("jobs", "b")];

/// The prefix, and its text.
fn prefix((resource, namespace): (&str, &str)) -> (Prefix, String) {
    let text = if namespace.is_empty() { format!("{resource}/") } else { format!("{resource}/{namespace}/") };
    (Prefix::namespaced(resource, namespace), text)
}

fn seen(watch: &mut Watch<()>) -> Vec<Seen> {
    let events = watch.poll().expect("it is not far behind");
    let seen = |e: &Event<()>| {
        assert_eq!(e.record.bytes, e.revision().to_string());
        (
            e.revision(),
            e.change,
            e.record.key.to_string(),
            e.previous.as_ref().map(|previous| previous.revision),
        )
    };
    events.iter().map(|event| seen(event)).collect()
}

fn limits() -> Limits {
    Limits { history_events_max: HISTORY, history_bytes_max: usize::MAX, watch_lag_max: HISTORY }
}

fn listed(records: &[Arc<Record<()>>]) -> Vec<(String, u64)> {
    records.iter().map(|r| (r.key.to_string(), r.revision)).collect()
}

proptest! {
    #[test]
    fn the_store_says_what_a_map_and_a_log_say(ops in prop::collection::vec(op(), 1..80)) {
        let store = Store::new(limits());
        let mut model = Model { revision: 1, ..Model::default() };
        for op in &ops {
            prop_assert_eq!(apply(&store, op), model.apply(op), "{:?}", op);
            prop_assert_eq!(store.revision(), model.revision);
        }
        for place in PREFIXES {
            let (prefix, text) = prefix(place);
            let oldest = model.oldest(place.0);
            for revision in 0..=model.revision + 1 {
                let (listing, watch) = (store.list_at(&prefix, revision), store.watch(prefix.clone(), revision));
                if revision < oldest {
                    let is_told = |error| matches!(error, Error::TooOld { asked, oldest: at } if (asked, at) == (revision, oldest));
                    prop_assert!(listing.is_err_and(is_told) && watch.is_err_and(is_told), "{} {}", revision, oldest);
                    continue;
                }
                if revision > model.revision {
                    let is_told = |error| matches!(error, Error::Future { asked, .. } if asked == revision);
                    prop_assert!(listing.is_err_and(is_told) && watch.is_err_and(is_told), "{}", revision);
                    continue;
                }
                prop_assert_eq!(listed(&listing.expect("retained").records), model.objects_at(revision, &text));
                let mut watch = watch.expect("retained");
                prop_assert_eq!(seen(&mut watch), model.events_after(revision, &text));
                prop_assert_eq!(watch.position(), model.revision);
            }
            let now = store.list(&prefix);
            prop_assert_eq!((listed(&now.records), now.revision), (model.objects_at(model.revision, &text), model.revision));
        }
    }

    /// Watches that are opened at any time and read at any time.
    #[test]
    fn a_watch_says_what_the_log_says_whenever_it_is_read(
        ops in prop::collection::vec((op(), 0usize..4, any::<bool>()), 1..80)
    ) {
        let store = Store::new(limits());
        let mut model = Model { revision: 1, ..Model::default() };
        let mut watches: Vec<(Watch<()>, u64, usize)> = Vec::new();
        for (op, place, is_opened) in &ops {
            prop_assert_eq!(apply(&store, op), model.apply(op));
            if *is_opened {
                let from = store.revision();
                watches.push((store.watch(prefix(PREFIXES[*place]).0, from).expect("now"), from, *place));
            }
            // all that would soon be too far behind, and some others
            for (n, (watch, read, place)) in watches.iter_mut().enumerate() {
                if model.revision - *read >= HISTORY as u64 / 2 || n % 3 == model.revision as usize % 3 {
                    let (_, text) = prefix(PREFIXES[*place]);
                    prop_assert_eq!(seen(watch), model.events_after(*read, &text));
                    prop_assert_eq!(watch.position(), model.revision);
                    *read = model.revision;
                }
            }
        }
    }
}
