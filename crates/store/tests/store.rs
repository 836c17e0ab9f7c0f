//! The promises of the store, one test each.

use std::sync::Arc;

use bytes::Bytes;
use windlass_store::{Change, Ended, Error, Event, Key, Limits, Prefix, Record, Store};

type Plain = Store<()>;

fn store() -> Plain {
    Store::new(Limits::default())
}

fn small(events: usize, lag: usize) -> Plain {
    Store::new(Limits { history_events_max: events, history_bytes_max: usize::MAX, watch_lag_max: lag })
}

fn pod(name: &str) -> Key {
    Key::new("pods", "ns", name)
}

fn bytes(revision: u64) -> Bytes {
    Bytes::from(format!("at {revision}"))
}

fn pods() -> Prefix {
    Prefix::namespaced("pods", "ns")
}

fn seen(events: &[Arc<Event<()>>]) -> Vec<(Change, String, u64)> {
    events.iter().map(|e| (e.change, e.record.key.name().to_owned(), e.revision())).collect()
}

fn names(records: &[Arc<Record<()>>]) -> Vec<&str> {
    records.iter().map(|record| record.key.name()).collect()
}

#[test]
fn an_empty_store_is_at_a_revision_that_clients_accept() {
    assert_eq!(store().revision(), 1);
}

#[test]
fn revisions_grow_by_one_over_all_resources_and_are_in_the_bytes() {
    let store = store();
    let a = store.create(pod("a"), (), bytes).expect("new");
    let job = store.create(Key::new("jobs", "ns", "a"), (), bytes).expect("new");
    let b = store.update(&pod("a"), a.revision, (), bytes).expect("current");
    let gone = store.delete(&pod("a"), b.revision, (), bytes).expect("current");
    let revisions: Vec<u64> = [&a, &job, &b, &gone].iter().map(|record| record.revision).collect();
    assert_eq!(revisions, [2, 3, 4, 5]);
    assert_eq!(gone.bytes, "at 5");
    assert_eq!(store.revision(), 5);
}

#[test]
fn a_refused_write_changes_nothing_and_takes_no_revision() {
    let store = store();
    let a = store.create(pod("a"), (), bytes).expect("new");
    let again = store.create(pod("a"), (), bytes).expect_err("exists");
    assert!(matches!(&again, Error::Exists(record) if record.revision == a.revision), "{again}");
    let stale = store.update(&pod("a"), 1, (), bytes).expect_err("stale");
    assert!(matches!(&stale, Error::Conflict(record) if record.revision == a.revision), "{stale}");
    let stale = store.delete(&pod("a"), 99, (), bytes).expect_err("stale");
    assert!(matches!(stale, Error::Conflict(_)));
    let missing = store.update(&pod("b"), 1, (), bytes).expect_err("missing");
    assert_eq!(missing.to_string(), "pods/ns/b: no such object");
    assert_eq!(store.revision(), a.revision);
    assert_eq!(store.get(&pod("a")).expect("there").bytes, "at 2");
}

#[test]
fn of_many_writers_that_name_the_same_revision_one_wins() {
    let store = Arc::new(store());
    let first = store.create(pod("a"), (), bytes).expect("new").revision;
    let threads: Vec<_> = (0..8)
        .map(|_| {
            let store = Arc::clone(&store);
            std::thread::spawn(move || store.update(&pod("a"), first, (), bytes).is_ok())
        })
        .collect();
    let winners = threads.into_iter().map(|thread| thread.join().expect("ran")).filter(|won| *won).count();
    assert_eq!(winners, 1);
    assert_eq!(store.revision(), first + 1);
}

#[test]
fn lists_are_in_key_order_and_within_their_namespace() {
    let store = store();
    for (namespace, name) in [("ns", "b"), ("other", "a"), ("ns-2", "c"), ("ns", "a")] {
        store.create(Key::new("pods", namespace, name), (), bytes).expect("new");
    }
    store.create(Key::new("podsets", "ns", "x"), (), bytes).expect("new");
    store.create(Key::new("nodes", "", "n"), (), bytes).expect("new");
    let listed = store.list(&pods());
    assert_eq!((names(&listed.records), listed.revision), (vec!["a", "b"], 7));
    // as etcd orders: `-` comes before `/`
    let all = store.list(&Prefix::resource_wide("pods"));
    assert_eq!(names(&all.records), ["c", "a", "b", "a"]);
    assert_eq!(names(&store.list(&Prefix::resource_wide("nodes")).records), ["n"]);
}

#[test]
fn a_list_at_an_old_revision_shows_that_revision() {
    let store = store();
    store.create(pod("a"), (), bytes).expect("new");
    let b = store.create(pod("b"), (), bytes).expect("new");
    store.update(&pod("a"), 2, (), bytes).expect("current");
    store.delete(&pod("b"), b.revision, (), bytes).expect("current");
    store.create(pod("c"), (), bytes).expect("new");
    let shown = |revision| -> Vec<(String, u64)> {
        let list = store.list_at(&pods(), revision).expect("retained");
        assert_eq!(list.revision, revision);
        list.records.iter().map(|r| (r.key.name().to_owned(), r.revision)).collect()
    };
    let pair = |name: &str, revision: u64| (name.to_owned(), revision);
    assert_eq!(shown(1), []);
    assert_eq!(shown(3), [pair("a", 2), pair("b", 3)]);
    assert_eq!(shown(4), [pair("a", 4), pair("b", 3)]);
    assert_eq!(shown(5), [pair("a", 4)]);
    assert_eq!(shown(6), [pair("a", 4), pair("c", 6)]);
    let future = store.list_at(&pods(), 7).expect_err("not reached");
    assert!(matches!(future, Error::Future { asked: 7, current: 6 }));
}

#[tokio::test]
async fn a_watch_yields_what_comes_after_its_revision_in_order_with_the_state_before() {
    let store = store();
    store.create(pod("old"), (), bytes).expect("new");
    let mut watch = store.watch(pods(), store.revision()).expect("retained");
    assert_eq!(seen(&watch.poll().expect("open")), []);
    let a = store.create(pod("a"), (), bytes).expect("new");
    store.create(Key::new("pods", "other", "x"), (), bytes).expect("new");
    store.create(Key::new("jobs", "ns", "x"), (), bytes).expect("new");
    store.update(&pod("a"), a.revision, (), bytes).expect("current");
    store.delete(&pod("a"), 6, (), bytes).expect("current");
    let events = watch.next().await.expect("open");
    assert_eq!(
        seen(&events),
        [
            (Change::Created, "a".into(), 3),
            (Change::Updated, "a".into(), 6),
            (Change::Deleted, "a".into(), 7)
        ]
    );
    let before: Vec<Option<u64>> =
        events.iter().map(|event| event.previous.as_ref().map(|record| record.revision)).collect();
    assert_eq!(before, [None, Some(3), Some(6)]);
    assert_eq!(events[2].record.bytes, "at 7");
    assert_eq!(watch.position(), 7);
}

#[tokio::test]
async fn a_waiting_watch_is_woken_by_a_write_of_its_own_resource() {
    let store = Arc::new(store());
    let mut watch = store.watch(pods(), 1).expect("retained");
    let waiting = tokio::spawn(async move { watch.next().await.map(|events| seen(&events)) });
    tokio::task::yield_now().await;
    store.create(Key::new("jobs", "ns", "x"), (), bytes).expect("new");
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    store.create(pod("a"), (), bytes).expect("new");
    assert_eq!(waiting.await.expect("ran").expect("open"), [(Change::Created, "a".into(), 3)]);
}

#[test]
fn a_watch_can_resume_from_every_retained_revision_and_from_no_older_one() {
    let store = small(4, 1000);
    for i in 0..10 {
        store.create(pod(&format!("p{i}")), (), bytes).expect("new");
    }
    // revisions 2..=11 were written, the last four are kept
    for revision in 7..=11 {
        let mut watch = store.watch(pods(), revision).expect("retained");
        let revisions: Vec<u64> = watch.poll().expect("open").iter().map(|event| event.revision()).collect();
        assert_eq!(revisions, (revision + 1..=11).collect::<Vec<_>>());
    }
    for asked in 0..7 {
        let error = store.watch(pods(), asked).expect_err("dropped");
        assert!(matches!(error, Error::TooOld { oldest: 7, .. }), "{asked}: {error}");
        let error = store.list_at(&pods(), asked).expect_err("dropped");
        assert!(matches!(error, Error::TooOld { oldest: 7, .. }), "{asked}: {error}");
    }
    assert!(matches!(store.watch(pods(), 12), Err(Error::Future { asked: 12, current: 11 })));
}

#[test]
fn the_history_of_a_quiet_resource_is_not_dropped_by_a_busy_one() {
    let store = small(4, 1000);
    store.create(Key::new("jobs", "ns", "j"), (), bytes).expect("new");
    for i in 0..100 {
        store.create(pod(&format!("p{i}")), (), bytes).expect("new");
    }
    let mut watch = store.watch(Prefix::resource_wide("jobs"), 1).expect("retained");
    assert_eq!(seen(&watch.poll().expect("open")), [(Change::Created, "j".into(), 2)]);
    assert_eq!(watch.position(), 102);
}

#[test]
fn the_history_is_bounded_in_bytes() {
    let limits = Limits { history_events_max: 1000, history_bytes_max: 100, watch_lag_max: 1000 };
    let store: Plain = Store::new(limits);
    for i in 0..10 {
        store.create(pod(&format!("p{i}")), (), |_| Bytes::from(vec![b'x'; 30])).expect("new");
    }
    assert!(store.watch(pods(), 8).is_ok());
    assert!(matches!(store.watch(pods(), 7), Err(Error::TooOld { oldest: 8, .. })));
}

#[test]
fn a_slow_watcher_is_ended_with_a_revision_from_which_nothing_is_missed() {
    let store = small(100, 10);
    let mut watch = store.watch(pods(), 1).expect("retained");
    store.create(pod("first"), (), bytes).expect("new");
    assert_eq!(seen(&watch.poll().expect("open")), [(Change::Created, "first".into(), 2)]);
    for i in 0..11 {
        store.create(pod(&format!("p{i:02}")), (), bytes).expect("new");
    }
    let ended = watch.poll().expect_err("too slow");
    assert_eq!(ended, Ended::Slow { resume: 2, behind: 11 });
    let mut again = store.watch(pods(), 2).expect("retained");
    // What it asked for on opening does not count: it must be able to catch up.
    let revisions: Vec<u64> = again.poll().expect("open").iter().map(|event| event.revision()).collect();
    assert_eq!(revisions, (3..=13).collect::<Vec<_>>());
}

#[test]
fn a_watcher_that_the_history_has_passed_is_told_so() {
    let store = small(5, 1000);
    let mut watch = store.watch(pods(), 1).expect("retained");
    for i in 0..6 {
        store.create(pod(&format!("p{i}")), (), bytes).expect("new");
    }
    assert_eq!(watch.poll().expect_err("passed"), Ended::TooOld { asked: 1, oldest: 2 });
}

#[test]
fn a_long_backlog_comes_in_pieces_without_gap_or_repetition() {
    let store = store();
    for i in 0..1000 {
        store.create(pod(&format!("p{i:04}")), (), bytes).expect("new");
    }
    let mut watch = store.watch(pods(), 1).expect("retained");
    let mut revisions = Vec::new();
    loop {
        let events = watch.poll().expect("open");
        if events.is_empty() {
            break;
        }
        revisions.extend(events.iter().map(|event| event.revision()));
        assert_eq!(watch.position(), *revisions.last().expect("not empty"));
    }
    assert_eq!(revisions, (2..=1001).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_and_a_watch_from_it_have_no_gap_and_no_overlap_while_others_write() {
    const WRITES: u64 = 2000;
    let store = Arc::new(store());
    let writer = {
        let store = Arc::clone(&store);
        tokio::task::spawn_blocking(move || {
            for i in 0..WRITES {
                store.create(pod(&format!("p{i:05}")), (), bytes).expect("new");
            }
        })
    };
    for _ in 0..20 {
        let list = store.list(&pods());
        let mut watch = store.watch(pods(), list.revision).expect("retained");
        let mut have: Vec<u64> = list.records.iter().map(|record| record.revision).collect();
        while (have.len() as u64) < WRITES {
            have.extend(watch.next().await.expect("open").iter().map(|event| event.revision()));
        }
        assert_eq!(have, (2..WRITES + 2).collect::<Vec<_>>());
    }
    writer.await.expect("ran");
}
