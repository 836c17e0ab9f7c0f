//! Nine rules of a watch, each a function that looks at what watchers recorded while others wrote.
//!
//! `ordered`, `unique`, `atomic`, `reliable`, `resumable`, `bookmarkable`, `previous_value`, `create_flag` and `filtered`
//! are what etcd's robustness tests ask of it. The last test here breaks each of them in a recording, to see that the
//! rule notices.

mod common;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use bytes::Bytes;
use common::{Random, Text, decode};
use windlass_store::{Change, Ended, Error, Event, Key, Limits, OnDamage, Prefix, Store};

const WRITERS: u64 = 6;
const WRITES_EACH: u64 = 250;
const KEYS: u64 = 30;
const WATCHERS: usize = 8;
const FROM_THE_BEGINNING: usize = 4;

/// What one write did, as its writer was told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Fact {
    change: Change,
    key: Key,
    revision: u64,
    bytes: Bytes,
    /// Revision and bytes of the state before.
    previous: Option<(u64, Bytes)>,
}

/// All writes, by revision.
type Log = BTreeMap<u64, Fact>;

/// What a watcher was handed.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    Event(Fact),
    /// Everything up to this revision was handed out.
    Bookmark(u64),
    /// The watch was ended, and another begun from this revision.
    Resumed(u64),
}

/// All that one watcher saw.
#[derive(Clone, Debug)]
struct Recording {
    prefix: Prefix,
    from: u64,
    items: Vec<Item>,
}

impl Recording {
    fn events(&self) -> impl Iterator<Item = &Fact> {
        self.items.iter().filter_map(|item| match item {
            Item::Event(fact) => Some(fact),
            Item::Bookmark(_) | Item::Resumed(_) => None,
        })
    }

    /// The revision up to which it must have seen everything.
    fn end(&self) -> u64 {
        let reached = self.items.iter().map(|item| match item {
            Item::Event(fact) => fact.revision,
            Item::Bookmark(revision) | Item::Resumed(revision) => *revision,
        });
        reached.max().unwrap_or(self.from)
    }
}

/// The writes below `prefix` after one revision and up to another.
fn between<'a>(log: &'a Log, prefix: &'a Prefix, after: u64, upto: u64) -> impl Iterator<Item = u64> + 'a {
    let later = log.range(after + 1..).take_while(move |(revision, _)| **revision <= upto);
    later.filter(|(_, fact)| prefix.contains(&fact.key)).map(|(revision, _)| *revision)
}

type Verdict = Result<(), String>;

fn all(mut facts: impl Iterator<Item = Verdict>) -> Verdict {
    facts.find(Result::is_err).unwrap_or(Ok(()))
}

fn require(holds: bool, what: impl FnOnce() -> String) -> Verdict {
    if holds { Ok(()) } else { Err(what()) }
}

/// S4: events come in the order of their revisions.
fn ordered(_: &Log, seen: &Recording) -> Verdict {
    let revisions: Vec<u64> = seen.events().map(|fact| fact.revision).collect();
    all(revisions
        .windows(2)
        .map(|pair| require(pair[0] <= pair[1], || format!("{} after {}", pair[1], pair[0]))))
}

/// S5: no event comes twice.
fn unique(_: &Log, seen: &Recording) -> Verdict {
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    seen.events().for_each(|fact| *counts.entry(fact.revision).or_default() += 1);
    all(counts
        .into_iter()
        .map(|(revision, count)| require(count == 1, || format!("{revision} came {count} times"))))
}

/// S6: an event is one write and the whole of it: its key and its bytes are those that were written together.
fn atomic(log: &Log, seen: &Recording) -> Verdict {
    all(seen.events().map(|fact| {
        let written =
            log.get(&fact.revision).ok_or_else(|| format!("{} was never written", fact.revision))?;
        let is_whole = (&written.key, &written.bytes) == (&fact.key, &fact.bytes);
        require(is_whole, || format!("{} is not what was written: {fact:?}", fact.revision))
    }))
}

/// S7: nothing is left out between the revision it began at and the one it has reached.
fn reliable(log: &Log, seen: &Recording) -> Verdict {
    let have: std::collections::BTreeSet<u64> = seen.events().map(|fact| fact.revision).collect();
    let mut due = between(log, &seen.prefix, seen.from, seen.end());
    let missing = due.find(|revision| !have.contains(revision));
    require(missing.is_none(), || format!("{missing:?} is missing"))
}

/// S8: a watch that is begun again from where the last one ended goes on there: nothing twice, nothing left out.
fn resumable(log: &Log, seen: &Recording) -> Verdict {
    all(seen
        .items
        .iter()
        .enumerate()
        .filter_map(|(i, item)| match item {
            Item::Resumed(from) => Some((i, *from)),
            Item::Event(_) | Item::Bookmark(_) => None,
        })
        .map(|(i, from)| {
            let event = |item: &Item| match item {
                Item::Event(fact) => Some(fact.revision),
                Item::Bookmark(_) | Item::Resumed(_) => None,
            };
            let before = seen.items[..i].iter().rev().find_map(event).unwrap_or(seen.from);
            require(before <= from, || format!("resumed from {from} after {before}"))?;
            let Some(after) = seen.items[i..].iter().find_map(event) else { return Ok(()) };
            let next = between(log, &seen.prefix, from, u64::MAX).next();
            require(Some(after) == next, || format!("resumed from {from} with {after}, not {next:?}"))
        }))
}

/// S9: after a bookmark comes nothing that it said had come, and before it came all of that.
fn bookmarkable(log: &Log, seen: &Recording) -> Verdict {
    let mut reached = seen.from;
    let mut marked = seen.from;
    for item in &seen.items {
        match item {
            Item::Event(fact) => {
                require(fact.revision > marked, || {
                    format!("{} after a bookmark at {marked}", fact.revision)
                })?;
                reached = fact.revision;
            }
            Item::Bookmark(at) => {
                require(*at >= marked, || format!("bookmark at {at} after one at {marked}"))?;
                let missing = between(log, &seen.prefix, reached, *at).next();
                require(missing.is_none(), || format!("bookmark at {at} before {missing:?} came"))?;
                marked = *at;
            }
            Item::Resumed(_) => {}
        }
    }
    Ok(())
}

/// S10: what an event says was there before is what the write before it left.
fn previous_value(log: &Log, seen: &Recording) -> Verdict {
    all(seen.events().map(|fact| {
        let before =
            log.range(..fact.revision).rev().map(|(_, older)| older).find(|older| older.key == fact.key);
        let left = before.filter(|older| older.change != Change::Deleted);
        let left = left.map(|older| (older.revision, older.bytes.clone()));
        require(fact.previous == left, || format!("{} has another state before", fact.revision))
    }))
}

/// S11: an event says "created" if, and only if, there was nothing before.
fn create_flag(log: &Log, seen: &Recording) -> Verdict {
    all(seen.events().map(|fact| {
        let before =
            log.range(..fact.revision).rev().map(|(_, older)| older).find(|older| older.key == fact.key);
        let is_there = before.is_some_and(|older| older.change != Change::Deleted);
        require((fact.change == Change::Created) != is_there, || {
            format!("{} is {:?}", fact.revision, fact.change)
        })
    }))
}

/// S12: nothing comes that was not asked for.
fn filtered(_: &Log, seen: &Recording) -> Verdict {
    all(seen
        .events()
        .map(|fact| require(seen.prefix.contains(&fact.key), || format!("{} was not asked for", fact.key))))
}

type Rule = (&'static str, fn(&Log, &Recording) -> Verdict);

const RULES: [Rule; 9] = [
    ("ordered", ordered),
    ("unique", unique),
    ("atomic", atomic),
    ("reliable", reliable),
    ("resumable", resumable),
    ("bookmarkable", bookmarkable),
    ("previous_value", previous_value),
    ("create_flag", create_flag),
    ("filtered", filtered),
];

fn check(log: &Log, seen: &Recording, who: &str) {
    for (name, rule) in RULES {
        rule(log, seen).unwrap_or_else(|why| panic!("{who}: {name}: {why}"));
    }
}

fn fact(event: &Event<String>) -> Fact {
    Fact {
        change: event.change,
        key: event.record.key.clone(),
        revision: event.revision(),
        bytes: event.record.bytes.clone(),
        previous: event.previous.as_ref().map(|previous| (previous.revision, previous.bytes.clone())),
    }
}

fn key(n: u64) -> Key {
    let resource = if n.is_multiple_of(3) { "jobs" } else { "pods" };
    Key::new(resource, if n.is_multiple_of(2) { "a" } else { "b" }, &format!("n{n}"))
}

fn encode(writer: u64, revision: u64) -> Bytes {
    Bytes::from(format!("{writer} wrote {revision} ").repeat(1 + (revision % 40) as usize))
}

/// Writes to the keys of everybody until it has written enough, and says what came of each.
fn write(store: &Text, writer: u64) -> Vec<Fact> {
    let mut random = Random(writer);
    let mut facts = Vec::new();
    while (facts.len() as u64) < WRITES_EACH {
        let key = key(random.below(KEYS));
        let current = store.get(&key);
        let is_deletion = current.is_some() && random.below(3) == 0;
        let encode = |revision| encode(writer, revision);
        let (change, result) = match &current {
            None => (Change::Created, store.create(key.clone(), String::new(), encode)),
            Some(now) if is_deletion => {
                (Change::Deleted, store.delete(&key, now.revision, String::new(), encode))
            }
            Some(now) => (Change::Updated, store.update(&key, now.revision, String::new(), encode)),
        };
        match result {
            Ok(record) => facts.push(Fact {
                change,
                key,
                revision: record.revision,
                bytes: record.bytes.clone(),
                previous: current.map(|now| (now.revision, now.bytes.clone())),
            }),
            Err(Error::Exists(_) | Error::NotFound(_) | Error::Conflict(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
    facts
}

/// Watches until everything was written, and is ended, goes away and comes back meanwhile.
fn watch(store: &Text, prefix: Prefix, from: u64, seed: u64, is_over: &AtomicBool) -> Recording {
    let mut random = Random(seed);
    let mut seen = Recording { prefix: prefix.clone(), from, items: Vec::new() };
    let mut watch = store.watch(prefix.clone(), from).expect("retained");
    loop {
        // read before the events: when it is set, all writes are visible
        let is_last = is_over.load(Ordering::Acquire);
        match watch.poll() {
            Ok(events) => {
                let is_empty = events.is_empty();
                seen.items.extend(events.iter().map(|event| Item::Event(fact(event))));
                seen.items.push(Item::Bookmark(watch.position()));
                if is_last && is_empty {
                    return seen;
                }
            }
            Err(Ended::Slow { resume, .. }) => {
                seen.items.push(Item::Resumed(resume));
                watch = store.watch(prefix.clone(), resume).expect("its history is longer than its patience");
            }
            Err(ended @ Ended::TooOld { .. }) => panic!("{ended}"),
        }
        // at least once, then now and then
        let is_resumed = seen.items.iter().any(|item| matches!(item, Item::Resumed(_)));
        match if is_resumed { random.below(12) } else { 0 } {
            0 => {
                seen.items.push(Item::Resumed(watch.position()));
                watch = store.watch(prefix.clone(), watch.position()).expect("retained");
            }
            // falls behind
            1 => wait_for(store, watch.position() + random.below(120), is_over),
            _ => thread::yield_now(),
        }
    }
}

fn wait_for(store: &Text, revision: u64, is_over: &AtomicBool) {
    while store.revision() < revision && !is_over.load(Ordering::Acquire) {
        thread::yield_now();
    }
}

/// Writers and watchers at the same time; what was written, and what each watcher saw.
fn record(store: &Text) -> (Log, Vec<Recording>) {
    let (is_over, left) = (AtomicBool::new(false), AtomicU64::new(WRITERS));
    let start = Barrier::new(WRITERS as usize + WATCHERS);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (is_over, left, start) = (&is_over, &left, &start);
                scope.spawn(move || {
                    start.wait();
                    let facts = write(store, writer);
                    if left.fetch_sub(1, Ordering::AcqRel) == 1 {
                        is_over.store(true, Ordering::Release);
                    }
                    facts
                })
            })
            .collect();
        let prefixes = [("pods", ""), ("pods", "a"), ("jobs", ""), ("jobs", "b")];
        let watchers: Vec<_> = (0..WATCHERS)
            .map(|n| {
                let (is_over, start) = (&is_over, &start);
                let (resource, namespace) = prefixes[n % prefixes.len()];
                let prefix = Prefix::namespaced(resource, namespace);
                scope.spawn(move || {
                    start.wait();
                    // some from the beginning, some from the middle
                    wait_for(store, if n < FROM_THE_BEGINNING { 1 } else { WRITES_EACH }, is_over);
                    let from = if n < FROM_THE_BEGINNING { 1 } else { store.revision() };
                    watch(store, prefix, from, n as u64, is_over)
                })
            })
            .collect();
        let facts = writers.into_iter().flat_map(|writer| writer.join().expect("wrote"));
        let log: Log = facts.map(|fact| (fact.revision, fact)).collect();
        (log, watchers.into_iter().map(|watcher| watcher.join().expect("watched")).collect())
    })
}

const LIMITS: Limits = Limits { history_events_max: 4096, history_bytes_max: 64 << 20, watch_lag_max: 60 };

fn in_memory() -> Text {
    Store::new(LIMITS)
}

#[test]
fn watchers_of_a_store_in_memory_see_what_the_nine_rules_say() {
    let store = in_memory();
    let (log, recordings) = record(&store);
    assert_eq!(log.len() as u64, WRITERS * WRITES_EACH);
    let mut resumed = 0;
    for (n, seen) in recordings.iter().enumerate() {
        check(&log, seen, &format!("watcher {n}"));
        assert!(seen.end() >= WRITERS * WRITES_EACH, "watcher {n}");
        assert!(n >= FROM_THE_BEGINNING || seen.events().count() > 50, "watcher {n}");
        resumed += seen.items.iter().filter(|item| matches!(item, Item::Resumed(_))).count();
    }
    assert!(resumed >= recordings.len(), "{resumed}");
}

#[test]
fn watchers_of_a_durable_store_see_what_the_nine_rules_say() {
    let dir = tempfile::tempdir().expect("made");
    let store = Store::open(dir.path(), LIMITS, OnDamage::Refuse, &decode).expect("opens");
    let (log, recordings) = record(&store);
    assert_eq!(log.len() as u64, WRITERS * WRITES_EACH);
    for (n, seen) in recordings.iter().enumerate() {
        check(&log, seen, &format!("watcher {n}"));
        assert!(seen.end() >= WRITERS * WRITES_EACH, "watcher {n}");
    }
}

#[test]
fn a_watcher_that_is_dropped_for_being_slow_never_holds_up_a_writer_and_misses_nothing() {
    let store = Arc::new(in_memory());
    let prefix = Prefix::resource_wide("pods");
    let mut idle = store.watch(prefix.clone(), 1).expect("retained");
    // nobody reads it, and all of this is written all the same
    let facts: Log = write(&store, 1).into_iter().map(|fact| (fact.revision, fact)).collect();
    let Err(Ended::Slow { resume, behind }) = idle.poll() else { panic!("it is far behind") };
    assert!(resume == 1 && behind > LIMITS.watch_lag_max as u64);
    let seen = watch(&store, prefix, resume, 1, &AtomicBool::new(true));
    check(&facts, &seen, "the one that came back");
    assert_eq!(seen.events().count(), facts.values().filter(|fact| fact.key.resource() == "pods").count());
}

/// Breaks a recording so that one rule must notice.
type Plant = (&'static str, fn(&mut Recording, &Log));

fn position(seen: &Recording, is_it: impl Fn(&Fact) -> bool) -> usize {
    let found = seen.items.iter().position(|item| matches!(item, Item::Event(fact) if is_it(fact)));
    found.expect("there is such an event")
}

fn event_at(seen: &mut Recording, at: usize) -> &mut Fact {
    match &mut seen.items[at] {
        Item::Event(fact) => fact,
        Item::Bookmark(_) | Item::Resumed(_) => panic!("not an event"),
    }
}

const PLANTS: [Plant; 11] = [
    ("ordered", |seen, _| {
        let events: Vec<usize> =
            (0..seen.items.len()).filter(|i| matches!(seen.items[*i], Item::Event(_))).collect();
        seen.items.swap(events[10], events[11]);
    }),
    ("unique", |seen, _| {
        let at = position(seen, |fact| fact.revision > 100);
        let twin = seen.items[at].clone();
        seen.items.insert(at, twin);
    }),
    ("atomic", |seen, _| {
        let at = position(seen, |fact| fact.revision > 100);
        event_at(seen, at).bytes = Bytes::from("half of an ob");
    }),
    ("reliable", |seen, _| {
        let at = position(seen, |fact| fact.revision > 100);
        seen.items.remove(at);
    }),
    ("resumable", |seen, log| {
        // begins again one event too late
        let at = position(seen, |fact| fact.revision > 100);
        let next = between(log, &seen.prefix, 100, u64::MAX).next();
        seen.items[at] = Item::Resumed(next.expect("there is one") - 1);
    }),
    ("resumable", |seen, _| {
        // begins again too early
        let at = position(seen, |fact| fact.revision > 100);
        seen.items.insert(at, Item::Resumed(50));
    }),
    ("bookmarkable", |seen, log| {
        let at = position(seen, |fact| fact.revision > 100);
        let last = *log.keys().last().expect("some");
        seen.items.insert(at, Item::Bookmark(last));
    }),
    ("previous_value", |seen, _| {
        let at = position(seen, |fact| fact.previous.is_some());
        event_at(seen, at).previous = Some((1, Bytes::new()));
    }),
    ("previous_value", |seen, _| {
        let at = position(seen, |fact| fact.previous.is_some());
        event_at(seen, at).previous = None;
    }),
    ("create_flag", |seen, _| {
        let at = position(seen, |fact| fact.change == Change::Updated);
        event_at(seen, at).change = Change::Created;
    }),
    ("filtered", |seen, log| {
        let other = log.values().find(|fact| !seen.prefix.contains(&fact.key)).expect("some").clone();
        seen.items.push(Item::Event(other));
    }),
];

#[test]
fn each_rule_notices_when_it_is_broken() {
    let store = in_memory();
    let (log, recordings) = record(&store);
    for (rule_name, plant) in PLANTS {
        let mut broken = recordings[0].clone();
        plant(&mut broken, &log);
        let (_, rule) = RULES.into_iter().find(|(name, _)| *name == rule_name).expect("a rule");
        rule(&log, &broken).expect_err(rule_name);
    }
    for (name, _) in RULES {
        assert!(PLANTS.iter().any(|(planted, _)| *planted == name), "{name} is never broken");
    }
}
