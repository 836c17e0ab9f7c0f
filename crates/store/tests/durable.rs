//! What a store that outlives the process promises, with a disk that works and with one that does not.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use bytes::Bytes;
use common::{Text, bytes, contents, database, open, open_faulty, pod, try_open};
use futures::StreamExt;
use futures::stream::FuturesUnordered;
use windlass_store::faults::{Fault, Faults};
use windlass_store::{Change, Error, Key, LogError, OpenError, Prefix};

fn pods() -> Prefix {
    Prefix::namespaced("pods", "ns")
}

fn create(store: &Text, name: &str) -> Result<u64, Error<String, LogError>> {
    store.create(pod(name), name.to_owned(), bytes).map(|record| record.revision)
}

#[test]
fn what_was_written_is_there_after_a_restart_with_attributes_from_its_bytes() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    assert_eq!(store.revision(), 1);
    let a = create(&store, "a").expect("new");
    create(&store, "b").expect("new");
    store.update(&pod("a"), a, String::new(), bytes).expect("current");
    store.create(Key::new("nodes", "", "n"), String::new(), bytes).expect("new");
    drop(store);
    let store = open(dir.path());
    let row =
        |key: &str, revision: u64| (key.to_owned(), revision, bytes(revision), format!("at {revision}"));
    assert_eq!(
        contents(&store, &["nodes", "pods"]),
        [row("nodes/n", 5), row("pods/ns/a", 4), row("pods/ns/b", 3)]
    );
    assert_eq!(store.revision(), 5);
}

#[test]
fn revisions_go_on_after_a_restart_also_when_the_last_write_was_a_deletion() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    create(&store, "a").expect("new");
    store.delete(&pod("a"), 2, String::new(), bytes).expect("current");
    drop(store);
    let store = open(dir.path());
    assert_eq!((store.revision(), store.get(&pod("a")).is_none()), (3, true));
    assert_eq!(create(&store, "a").expect("new"), 4);
}

#[tokio::test]
async fn the_history_begins_at_the_restart() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    create(&store, "a").expect("new");
    store.create(Key::new("jobs", "ns", "gone"), String::new(), bytes).expect("new");
    store.delete(&Key::new("jobs", "ns", "gone"), 3, String::new(), bytes).expect("current");
    drop(store);
    let store = open(dir.path());
    // of jobs nothing is left, and still their past is not known
    for resource in ["pods", "jobs", "never"] {
        for asked in 0..4 {
            let error = store.watch(Prefix::resource_wide(resource), asked).expect_err("before the restart");
            assert!(matches!(error, Error::TooOld { oldest: 4, .. }), "{resource} {asked}: {error}");
            assert!(store.list_at(&Prefix::resource_wide(resource), asked).is_err());
        }
    }
    let mut watch = store.watch(pods(), 4).expect("now");
    store.update(&pod("a"), 2, String::new(), bytes).expect("current");
    let events = watch.next().await.expect("open");
    let seen: Vec<_> = events
        .iter()
        .map(|e| (e.change, e.revision(), e.previous.as_ref().map(|previous| previous.revision)))
        .collect();
    assert_eq!(seen, [(Change::Updated, 5, Some(2))]);
}

#[test]
fn nobody_sees_a_write_before_it_is_durable() {
    let dir = tempfile::tempdir().expect("made");
    let faults = Faults::default();
    let store = open_faulty(dir.path(), &faults);
    let mut watch = store.watch(pods(), 1).expect("now");
    thread::scope(|scope| {
        let held = faults.hold_syncs();
        let writer = scope.spawn(|| create(&store, "a"));
        faults.wait_for(1, 1);
        assert_eq!((store.revision(), store.get(&pod("a")).is_none()), (1, true));
        assert!(store.list(&pods()).records.is_empty());
        assert!(watch.poll().expect("open").is_empty());
        assert!(!writer.is_finished());
        drop(held);
        assert_eq!(writer.join().expect("ran").expect("written"), 2);
    });
    assert_eq!(store.revision(), 2);
    assert_eq!(watch.poll().expect("open").len(), 1);
}

#[tokio::test]
async fn many_writers_wait_as_tasks_of_one_thread_and_share_a_sync() {
    let dir = tempfile::tempdir().expect("made");
    let faults = Faults::default();
    let store = open_faulty(dir.path(), &faults);
    let held = faults.hold_syncs();
    let begin = |name: &str| store.begin_create(pod(name), name.to_owned(), bytes).expect("new");
    let first = begin("a");
    faults.wait_for(1, 1);
    let mut rest = FuturesUnordered::from_iter(["b", "c", "d"].map(|name| begin(name).done()));
    let mut first = std::pin::pin!(first.done());
    assert!(futures::poll!(first.as_mut()).is_pending() && futures::poll!(rest.next()).is_pending());
    assert_eq!((store.revision(), store.list(&pods()).records.len()), (1, 0), "nobody sees them");
    drop(held);
    assert_eq!(first.await.expect("written").revision, 2);
    while let Some(record) = rest.next().await {
        let record = record.expect("written");
        assert_eq!(store.get(&record.key).expect("it is seen").revision, record.revision);
    }
    assert_eq!(faults.calls(), (4, 2), "appends and syncs");
}

#[tokio::test]
async fn who_waits_as_a_task_is_told_of_a_disk_that_fails() {
    let dir = tempfile::tempdir().expect("made");
    let faults = Faults::default();
    let store = open_faulty(dir.path(), &faults);
    faults.fail_sync(1, Fault::Before);
    let ticket = store.begin_create(pod("a"), String::new(), bytes).expect("begun");
    assert!(matches!(ticket.done().await, Err(LogError::Failed(_))));
    assert!(matches!(store.check_writable(), Err(LogError::Refused(_))));
}

#[test]
fn writes_that_come_while_a_batch_is_synced_are_the_next_batch() {
    let dir = tempfile::tempdir().expect("made");
    let faults = Faults::default();
    let store = open_faulty(dir.path(), &faults);
    thread::scope(|scope| {
        let held = faults.hold_syncs();
        scope.spawn(|| create(&store, "first").expect("written"));
        faults.wait_for(1, 1);
        let (staged, encoded) = mpsc::channel();
        for i in 0..20 {
            let (store, staged) = (&store, staged.clone());
            scope.spawn(move || {
                let encode = |revision| {
                    staged.send(()).expect("the test waits");
                    bytes(revision)
                };
                store.create(pod(&format!("p{i}")), String::new(), encode).expect("written");
            });
        }
        // each sends under the writer lock and is queued before the next can
        for _ in 0..20 {
            encoded.recv().expect("sent");
        }
        let last = store.create(pod("last"), String::new(), |revision| {
            // the lock is ours, so all twenty are queued; now let the first batch go
            drop(held);
            bytes(revision)
        });
        last.expect("written");
    });
    let (appends, syncs) = faults.calls();
    assert_eq!(appends, 22);
    assert!(syncs <= 3, "22 writes took {syncs} syncs");
}

#[test]
fn a_precondition_sees_writes_that_are_not_durable_yet_and_its_refusal_waits_for_them() {
    let dir = tempfile::tempdir().expect("made");
    let faults = Faults::default();
    let store = open_faulty(dir.path(), &faults);
    let first = create(&store, "a").expect("new");
    thread::scope(|scope| {
        let held = faults.hold_syncs();
        let winner = scope.spawn(|| store.update(&pod("a"), first, String::new(), bytes));
        faults.wait_for(2, 2);
        // this one names what nobody was told yet
        let (staged, encoded) = mpsc::channel();
        let encode = move |revision| {
            staged.send(()).expect("the test waits");
            bytes(revision)
        };
        let chained = scope.spawn(|| store.update(&pod("a"), first + 1, String::new(), encode));
        encoded.recv().expect("it was not refused");
        // and these would win against what readers see; what refuses them is visible when they are told
        let stale_update =
            scope.spawn(|| (store.update(&pod("a"), first, String::new(), bytes), store.revision()));
        let stale_delete =
            scope.spawn(|| (store.delete(&pod("a"), first, String::new(), bytes), store.revision()));
        drop(held);
        assert_eq!(winner.join().expect("ran").expect("current").revision, first + 1);
        for refused in [stale_update, stale_delete] {
            let (result, visible) = refused.join().expect("ran");
            let error = result.expect_err("stale");
            let Error::Conflict(record) = &error else { panic!("{error}") };
            assert!(first < record.revision && record.revision <= visible, "{error}, visible: {visible}");
        }
        assert_eq!(chained.join().expect("ran").expect("current").revision, first + 2);
    });
    drop(store);
    assert_eq!(open(dir.path()).get(&pod("a")).expect("there").revision, first + 2);
}

#[test]
fn a_write_that_waits_for_the_next_batch_is_still_seen_when_the_one_before_it_is_durable() {
    let dir = tempfile::tempdir().expect("made");
    let faults = Faults::default();
    let store = open_faulty(dir.path(), &faults);
    let first = create(&store, "a").expect("new");
    thread::scope(|scope| {
        let held = faults.hold_syncs();
        let winner = scope.spawn(|| store.update(&pod("a"), first, String::new(), bytes));
        faults.wait_for(2, 2);
        let (staged, encoded) = mpsc::channel();
        let encode = move |revision| {
            staged.send(()).expect("the test waits");
            bytes(revision)
        };
        let chained = scope.spawn(|| store.update(&pod("a"), first + 1, String::new(), encode));
        encoded.recv().expect("it was not refused");
        // the first batch becomes durable and visible, the second is on its way
        held.only_from(3);
        assert_eq!(winner.join().expect("ran").expect("current").revision, first + 1);
        faults.wait_for(3, 3);
        assert_eq!(store.get(&pod("a")).expect("there").revision, first + 1);
        // what this names is what everybody sees, and yet it is too late
        let late = scope.spawn(|| store.update(&pod("a"), first + 1, String::new(), bytes));
        drop(held);
        assert_eq!(chained.join().expect("ran").expect("current").revision, first + 2);
        let error = late.join().expect("ran").expect_err("too late");
        assert!(matches!(&error, Error::Conflict(record) if record.revision == first + 2), "{error}");
    });
    drop(store);
    assert_eq!(open(dir.path()).get(&pod("a")).expect("there").revision, first + 2);
}

#[test]
fn a_create_sees_creations_and_deletions_that_are_not_durable_yet() {
    let dir = tempfile::tempdir().expect("made");
    let faults = Faults::default();
    let store = open_faulty(dir.path(), &faults);
    let old = create(&store, "old").expect("new");
    thread::scope(|scope| {
        let held = faults.hold_syncs();
        let made = scope.spawn(|| create(&store, "new"));
        faults.wait_for(2, 2);
        let gone = scope.spawn(|| store.delete(&pod("old"), old, String::new(), bytes).map(|r| r.revision));
        let twin = scope.spawn(|| create(&store, "new"));
        // visible it still is; a writer behind the deletion must not find it
        assert!(store.get(&pod("old")).is_some());
        drop(held);
        assert_eq!(made.join().expect("ran").expect("new"), 3);
        assert_eq!(gone.join().expect("ran").expect("current"), 4);
        let error = twin.join().expect("ran").expect_err("exists");
        assert!(matches!(&error, Error::Exists(record) if record.revision == 3), "{error}");
    });
    assert!(matches!(store.update(&pod("old"), old, String::new(), bytes), Err(Error::NotFound(_))));
    assert_eq!(create(&store, "old").expect("gone before"), 5);
    drop(store);
    let names: Vec<_> =
        contents(&open(dir.path()), &["pods"]).into_iter().map(|(key, at, ..)| (key, at)).collect();
    assert_eq!(names, [("pods/ns/new".to_owned(), 3), ("pods/ns/old".to_owned(), 5)]);
}

#[test]
fn of_many_writers_that_name_the_same_revision_one_wins_and_no_update_is_lost() {
    const WRITERS: u64 = 8;
    const ROUNDS: u64 = 25;
    let dir = tempfile::tempdir().expect("made");
    let store = Arc::new(open(dir.path()));
    store.create(pod("n"), String::new(), |_| Bytes::from("0")).expect("new");
    let number = |bytes: &Bytes| std::str::from_utf8(bytes).expect("text").parse::<u64>().expect("number");
    let add = |store: &Text| {
        loop {
            let now = store.get(&pod("n")).expect("there");
            let next = Bytes::from((number(&now.bytes) + 1).to_string());
            match store.update(&pod("n"), now.revision, String::new(), |_| next) {
                Ok(_) => return,
                Err(Error::Conflict(_)) => {}
                Err(error) => panic!("{error}"),
            }
        }
    };
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| (0..ROUNDS).for_each(|_| add(&store)));
        }
    });
    assert_eq!(number(&store.get(&pod("n")).expect("there").bytes), WRITERS * ROUNDS);
    // one revision a success, none for a refusal
    assert_eq!(store.revision(), 2 + WRITERS * ROUNDS);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_and_a_watch_from_it_have_no_gap_and_no_overlap_while_batches_are_written() {
    const WRITERS: u64 = 8;
    const WRITES: u64 = 40;
    let dir = tempfile::tempdir().expect("made");
    let store = Arc::new(open(dir.path()));
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let store = Arc::clone(&store);
            thread::spawn(move || {
                for i in 0..WRITES {
                    let mine = create(&store, &format!("w{writer}-{i}")).expect("new");
                    // a writer reads its own write
                    assert!(store.revision() >= mine && store.get(&pod(&format!("w{writer}-{i}"))).is_some());
                }
            })
        })
        .collect();
    for _ in 0..10 {
        let list = store.list(&pods());
        let mut watch = store.watch(pods(), list.revision).expect("retained");
        let mut have: Vec<u64> = list.records.iter().map(|record| record.revision).collect();
        have.sort_unstable();
        while (have.len() as u64) < WRITERS * WRITES {
            have.extend(watch.next().await.expect("open").iter().map(|event| event.revision()));
        }
        assert_eq!(have, (2..WRITERS * WRITES + 2).collect::<Vec<_>>());
    }
    for writer in writers {
        writer.join().expect("ran");
    }
}

#[test]
fn after_a_failure_that_leaves_the_disk_in_doubt_no_write_is_taken_and_reads_go_on() {
    for (at_sync, fault, is_kept) in [
        (false, Fault::Before, false),
        (true, Fault::Before, false),
        (true, Fault::After, true),
        (false, Fault::Panic, false),
        (true, Fault::Panic, false),
    ] {
        let case = format!("at sync: {at_sync}, {fault:?}");
        let dir = tempfile::tempdir().expect("made");
        let faults = Faults::default();
        let store = open_faulty(dir.path(), &faults);
        create(&store, "a").expect("new");
        let mut watch = store.watch(pods(), 2).expect("now");
        if at_sync {
            faults.fail_sync(2, fault)
        } else {
            faults.fail_append(2, fault)
        }
        let error = create(&store, "b").expect_err("fails");
        assert!(matches!(error, Error::Log(LogError::Failed(_))), "{case}: {error}");
        assert!(matches!(store.check_writable(), Err(LogError::Refused(_))), "{case}");
        let (_, syncs) = faults.calls();
        for name in ["b", "c", "a"] {
            let error = create(&store, name).expect_err("refused");
            assert!(matches!(error, Error::Log(LogError::Refused(_))), "{case}: {error}");
        }
        let error = store.delete(&pod("a"), 2, String::new(), bytes).expect_err("refused");
        assert!(error.to_string().starts_with("the store takes no writes until it is restarted"), "{error}");
        assert_eq!(faults.calls().1, syncs, "{case}: a failed sync was tried again");
        assert_eq!(contents(&store, &["pods"]).len(), 1, "{case}");
        assert_eq!((store.revision(), watch.poll().expect("open").len()), (2, 0), "{case}");
        drop(store);
        let store = open(dir.path());
        assert_eq!(store.get(&pod("a")).map(|record| record.revision), Some(2), "{case}");
        assert_eq!(store.get(&pod("b")).is_some(), is_kept, "{case}");
        assert_eq!(create(&store, "c").expect("works again"), if is_kept { 4 } else { 3 }, "{case}");
    }
}

#[test]
fn a_full_disk_fails_what_was_staged_and_later_writes_succeed() {
    for at_sync in [false, true] {
        let dir = tempfile::tempdir().expect("made");
        let faults = Faults::default();
        let store = open_faulty(dir.path(), &faults);
        let first = create(&store, "a").expect("new");
        if at_sync {
            faults.fail_sync(2, Fault::Full)
        } else {
            faults.fail_append(2, Fault::Full)
        }
        let error = store.update(&pod("a"), first, String::new(), bytes).expect_err("no room");
        assert!(matches!(error, Error::Log(LogError::Full(_))), "{error}");
        assert_eq!(store.check_writable(), Ok(()));
        assert_eq!(store.get(&pod("a")).expect("there").revision, first);
        assert_eq!(store.update(&pod("a"), first, String::new(), bytes).expect("room").revision, first + 1);
        drop(store);
        assert_eq!(open(dir.path()).get(&pod("a")).expect("there").revision, first + 1);
    }
}

#[test]
fn a_write_checked_against_one_that_fails_fails_with_it() {
    let dir = tempfile::tempdir().expect("made");
    let faults = Faults::default();
    let store = open_faulty(dir.path(), &faults);
    let first = create(&store, "a").expect("new");
    faults.fail_sync(2, Fault::Full);
    thread::scope(|scope| {
        let held = faults.hold_syncs();
        let deletion = scope.spawn(|| store.delete(&pod("a"), first, String::new(), bytes));
        faults.wait_for(2, 2);
        let (staged, encoded) = mpsc::channel();
        let store = &store;
        let recreation = scope.spawn(move || {
            store.create(pod("a"), String::new(), |revision| {
                staged.send(()).expect("the test waits");
                bytes(revision)
            })
        });
        encoded.recv().expect("it sees the deletion");
        // wait until it is queued: the writer lock is free again
        assert!(matches!(store.update(&pod("none"), 1, String::new(), bytes), Err(Error::NotFound(_))));
        drop(held);
        for writer in [deletion, recreation] {
            let error = writer.join().expect("ran").expect_err("fails");
            assert!(matches!(error, Error::Log(LogError::Full(_))), "{error}");
        }
    });
    drop(store);
    assert_eq!(open(dir.path()).get(&pod("a")).expect("still there").revision, first);
}

#[test]
fn a_data_directory_is_opened_once_and_the_error_names_who_has_it() {
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let error = try_open(dir.path()).expect_err("locked");
    let expected =
        format!("data directory {} is in use by process {}", dir.path().display(), std::process::id());
    assert!(matches!(error, OpenError::Locked { .. }));
    assert_eq!(error.to_string(), expected);
    drop(store);
    open(dir.path());
}

#[test]
fn a_store_of_another_format_is_not_opened() {
    for (pragma, found) in
        [("user_version = 2", "2"), ("user_version = 0", "0"), ("application_id = 7", "of another program")]
    {
        let dir = tempfile::tempdir().expect("made");
        create(&open(dir.path()), "a").expect("new");
        let connection = rusqlite::Connection::open(database(dir.path())).expect("opens");
        connection.execute_batch(&format!("PRAGMA {pragma}")).expect("set");
        drop(connection);
        let error = try_open(dir.path()).expect_err("another format");
        let file = database(dir.path());
        let expected = format!("{} has format {found}, this version reads format 1", file.display());
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_file_that_is_no_database_is_not_opened() {
    let dir = tempfile::tempdir().expect("made");
    fs::write(database(dir.path()), "apiVersion: batch/v1\nkind: Job\n".repeat(100)).expect("written");
    let error = try_open(dir.path()).expect_err("no database");
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
    assert!(error.to_string().contains("store.db is damaged"), "{error}");
}

#[test]
fn directory_and_files_are_private_while_the_store_is_open_and_after() {
    let parent = tempfile::tempdir().expect("made");
    let dir = parent.path().join("new/data");
    let check = || {
        let mode = |path: &std::path::Path| fs::metadata(path).expect("there").permissions().mode() & 0o777;
        assert_eq!(mode(&dir), 0o700);
        let files: Vec<_> =
            fs::read_dir(&dir).expect("read").map(|entry| entry.expect("read").path()).collect();
        assert!(files.len() >= 2, "{files:?}");
        for file in files {
            assert_eq!(mode(&file), 0o600, "{}", file.display());
        }
    };
    let store = open(&dir);
    create(&store, "a").expect("new");
    check();
    drop(store);
    check();
    fs::set_permissions(database(&dir), fs::Permissions::from_mode(0o644)).expect("set");
    open(&dir);
    check();
}

#[test]
fn space_of_superseded_and_deleted_objects_is_used_again_and_given_back() {
    const OBJECTS: u64 = 1500;
    let dir = tempfile::tempdir().expect("made");
    let store = open(dir.path());
    let big = |_| Bytes::from(vec![b'x'; 6000]);
    let all = |f: &(dyn Fn(Key) + Sync)| {
        thread::scope(|scope| {
            for part in 0..16 {
                scope.spawn(move || {
                    (0..OBJECTS).filter(|i| i % 16 == part).for_each(|i| f(pod(&format!("p{i}"))))
                });
            }
        });
    };
    let size = || fs::metadata(database(dir.path())).expect("there").len();
    all(&|key| drop(store.create(key, String::new(), big).expect("new")));
    let revision = |key: &Key| store.get(key).expect("there").revision;
    for _ in 0..4 {
        all(&|key| drop(store.update(&key, revision(&key), String::new(), big).expect("current")));
    }
    let (live, used) = (OBJECTS * 6000, size());
    assert!(used < live * 4, "{used} bytes for {live} after four updates of everything");
    all(&|key| drop(store.delete(&key, revision(&key), String::new(), big).expect("current")));
    for i in 0..8000 / 16 {
        all_small(&store, i);
    }
    assert!(size() < used / 2, "{} bytes of {used} are left after everything was deleted", size());
}

/// Sixteen writes at once that leave nothing, so that the log has reason to clean up.
fn all_small(store: &Text, round: u64) {
    thread::scope(|scope| {
        for part in 0..16 {
            scope.spawn(move || {
                let key = pod(&format!("s{round}-{part}"));
                let made = store.create(key.clone(), String::new(), bytes).expect("new");
                store.delete(&key, made.revision, String::new(), bytes).expect("current");
            });
        }
    });
}
