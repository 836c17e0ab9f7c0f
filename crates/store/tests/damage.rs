//! Bits that flip and writes that are cut off: what is not what was written is told, and never served.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use common::{Random, database, decode, fast_dir, open, pod, try_open};
use rusqlite::{Connection, params};
use windlass_store::{Damage, Error, Key, Limits, OnDamage, OpenError, Prefix, Store};

/// Keys, revisions, lengths and hashes: whole objects would make long messages.
type Contents = Vec<(String, u64, usize, u64)>;

fn pods_of(store: &Store<String>) -> Contents {
    let hash = |bytes: &Bytes| {
        let mut hasher = DefaultHasher::new();
        bytes.hash(&mut hasher);
        hasher.finish()
    };
    let records = store.list(&Prefix::resource_wide("pods")).records;
    records.iter().map(|r| (r.key.to_string(), r.revision, r.bytes.len(), hash(&r.bytes))).collect()
}

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// A closed store with four pods: one small, one updated, one of several pages.
fn four_pods() -> (tempfile::TempDir, Contents) {
    let dir = fast_dir();
    let store = open(dir.path());
    for (i, name) in NAMES.into_iter().enumerate() {
        let encode = |revision: u64| Bytes::from(format!("{name}{revision}").repeat(60 + 1200 * i));
        store.create(pod(name), String::new(), encode).expect("new");
    }
    store.update(&pod("b"), 3, String::new(), |_| Bytes::from("b, changed".repeat(60))).expect("current");
    let all = pods_of(&store);
    drop(store);
    (dir, all)
}

fn set_aside(dir: &Path) -> Store<String> {
    Store::open(dir, Limits::default(), OnDamage::SetAside, &decode).expect("opens without what is damaged")
}

fn copy(from: &Path) -> tempfile::TempDir {
    let to = fast_dir();
    for entry in fs::read_dir(from).expect("read") {
        let entry = entry.expect("read");
        fs::copy(entry.path(), to.path().join(entry.file_name())).expect("copied");
    }
    to
}

fn flip(file: &Path, at: usize, bit: u8) {
    let mut bytes = fs::read(file).expect("read");
    bytes[at] ^= 1 << bit;
    fs::write(file, bytes).expect("written");
}

#[test]
fn a_changed_row_is_named_and_refuses_the_store_or_is_set_aside() {
    let changes = [
        "UPDATE objects SET bytes = CAST('x' || substr(bytes, 2) AS BLOB) WHERE key = 'pods/ns/c'",
        "UPDATE objects SET bytes = substr(bytes, 1, length(bytes) - 1) WHERE key = 'pods/ns/c'",
        "UPDATE objects SET bytes = CAST('' AS BLOB) WHERE key = 'pods/ns/c'",
        "UPDATE objects SET sum = sum + 1 WHERE key = 'pods/ns/c'",
        "UPDATE objects SET revision = 1 WHERE key = 'pods/ns/c'",
    ];
    for change in changes {
        let (dir, all) = four_pods();
        let connection = Connection::open(database(dir.path())).expect("opens");
        assert_eq!(connection.execute(change, []).expect("runs"), 1);
        drop(connection);
        let error = try_open(dir.path()).expect_err("damaged");
        assert_eq!(error.to_string(), "store is damaged: pods/ns/c: checksum is wrong", "{change}");
        let store = set_aside(dir.path());
        let keys: Vec<_> = store.damaged().iter().map(|damage| damage.key.as_deref()).collect();
        assert_eq!(keys, [Some("pods/ns/c")], "{change}");
        let whole: Contents = all.into_iter().filter(|(key, ..)| key != "pods/ns/c").collect();
        assert_eq!(pods_of(&store), whole, "{change}");
        // its key can be written again, revisions go on, and it is not reported twice
        let again = store.create(pod("c"), String::new(), common::bytes).expect("not there");
        assert_eq!(again.revision, 7, "{change}");
        drop(store);
        assert_eq!(open(dir.path()).damaged(), []);
        let connection = Connection::open(database(dir.path())).expect("opens");
        let kept: i64 =
            connection.query_row("SELECT count(*) FROM damaged", [], |row| row.get(0)).expect("read");
        assert_eq!(kept, 1, "{change}");
    }
}

#[test]
fn a_row_with_another_key_is_not_served_under_it() {
    let (dir, _) = four_pods();
    let connection = Connection::open(database(dir.path())).expect("opens");
    connection.execute("UPDATE objects SET key = 'pods/ns/e' WHERE key = 'pods/ns/d'", []).expect("runs");
    drop(connection);
    let error = try_open(dir.path()).expect_err("damaged");
    assert_eq!(error.to_string(), "store is damaged: pods/ns/e: checksum is wrong");
    assert!(set_aside(dir.path()).get(&pod("e")).is_none());
}

#[test]
fn rows_that_disappear_or_come_back_are_noticed() {
    let (dir, _) = four_pods();
    let old: (i64, i64, String, Vec<u8>) = {
        let connection = Connection::open(database(dir.path())).expect("opens");
        let sql = "SELECT revision, sum, key, bytes FROM objects WHERE key = 'pods/ns/a'";
        connection
            .query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
            .expect("read")
    };
    let store = open(dir.path());
    store.update(&pod("a"), 2, String::new(), common::bytes).expect("current");
    drop(store);
    let change = |sql: &str| {
        let copy = copy(dir.path());
        let connection = Connection::open(database(copy.path())).expect("opens");
        connection.execute_batch(sql).expect("runs");
        drop(connection);
        copy
    };
    let insert = |copy: &Path| {
        let connection = Connection::open(database(copy)).expect("opens");
        connection
            .execute(
                "INSERT INTO objects (revision, sum, key, bytes) VALUES (?1, ?2, ?3, ?4)",
                params![old.0, old.1, old.2, old.3],
            )
            .expect("runs");
    };
    let gone = change("DELETE FROM objects WHERE key = 'pods/ns/a'");
    let error = try_open(gone.path()).expect_err("damaged");
    assert_eq!(error.to_string(), "store is damaged: unknown object: 4 objects were written, 3 are there");
    // the state before its last write, as after a write that the disk lost
    insert(gone.path());
    let error = try_open(gone.path()).expect_err("damaged");
    assert_eq!(
        error.to_string(),
        "store is damaged: unknown object: an object is not the one that was written last"
    );
    let both = change("SELECT 1");
    insert(both.path());
    let error = try_open(both.path()).expect_err("damaged");
    assert!(error.to_string().contains("pods/ns/a: is still there beside revision 7"), "{error}");
    let store = set_aside(both.path());
    assert_eq!(store.get(&pod("a")).expect("the newer").revision, 7);
    let totals = change("UPDATE totals SET revision = 3");
    let error = try_open(totals.path()).expect_err("damaged");
    assert!(error.to_string().ends_with("checksum of the totals is wrong"), "{error}");
}

#[test]
fn bytes_that_cannot_be_decoded_are_damage_too() {
    let (dir, _) = four_pods();
    let picky = |key: &Key, bytes: &Bytes| {
        if key.name() == "b" { Err("no such kind".to_owned()) } else { decode(key, bytes) }
    };
    let error = Store::open(dir.path(), Limits::default(), OnDamage::Refuse, &picky).expect_err("refused");
    let expected = Damage {
        key: Some("pods/ns/b".to_owned()),
        revision: Some(6),
        reason: "cannot be decoded: no such kind".to_owned(),
    };
    assert!(matches!(&error, OpenError::Damaged(damaged) if *damaged == [expected]), "{error}");
}

#[test]
fn whatever_bit_of_the_database_flips_nothing_wrong_is_served() {
    let (dir, all) = four_pods();
    let file = database(dir.path());
    let original = fs::read(&file).expect("read");
    let mut random = Random(3);
    let mut named = BTreeSet::new();
    let mut tried = 0;
    // the beginnings of pages, where their structure is, and a part of the rest
    for at in (0..original.len()).filter(|at| at % 4096 < 32 || at.is_multiple_of(37)) {
        flip(&file, at, random.below(8) as u8);
        tried += 1;
        match try_open(dir.path()) {
            // a bit that means nothing, such as in a free part of a page
            Ok(store) => assert_eq!(pods_of(&store), all, "byte {at}"),
            Err(OpenError::Damaged(damaged)) => {
                named.extend(damaged.into_iter().filter_map(|damage| damage.key))
            }
            Err(OpenError::Corrupt { .. } | OpenError::Format { .. } | OpenError::Database { .. }) => {}
            Err(error) => panic!("byte {at}: {error}"),
        }
        let _ = fs::remove_file(dir.path().join("store.db-wal"));
        let _ = fs::remove_file(dir.path().join("store.db-journal"));
        fs::write(&file, &original).expect("written");
    }
    assert!(tried > 700, "{tried}");
    for name in NAMES {
        assert!(named.contains(&format!("pods/ns/{name}")), "no flipped bit was found in {name}: {named:?}");
    }
}

/// The header of a write-ahead log, and a page in it with its own header.
const HEADER: usize = 32;
const FRAME: usize = 24 + 4096;

/// A store that was killed: its write-ahead log holds everything, one transaction a write.
fn killed() -> (tempfile::TempDir, PathBuf, Vec<Contents>) {
    let dir = fast_dir();
    let store = open(dir.path());
    let mut states = vec![pods_of(&store)];
    for i in 0..12u64 {
        let encode = |revision: u64| Bytes::from(format!("{revision} ").repeat(1 + 600 * (i as usize % 4)));
        let key = pod(&format!("n{}", i % 5));
        let result = match store.get(&key).map(|record| record.revision) {
            None => store.create(key, String::new(), encode),
            Some(expected) if i == 9 => store.delete(&key, expected, String::new(), encode),
            Some(expected) => store.update(&key, expected, String::new(), encode),
        };
        assert!(!matches!(result, Err(Error::Log(_))));
        states.push(pods_of(&store));
    }
    let image = copy(dir.path());
    drop(store);
    let wal = image.path().join("store.db-wal");
    // without the room that was reserved after it, which is zeros
    let bytes = fs::read(&wal).expect("read");
    let frames = bytes[HEADER..].chunks_exact(FRAME).take_while(|frame| frame[..4] != [0; 4]).count();
    let used = HEADER + frames * FRAME;
    assert!(frames >= 12 && bytes[used..].iter().all(|byte| *byte == 0) && bytes.len() > used);
    fs::write(&wal, &bytes[..used]).expect("written");
    (image, wal, states)
}

#[test]
fn a_log_that_is_cut_off_anywhere_opens_with_the_writes_before_that() {
    let (image, wal, states) = killed();
    let whole = fs::read(&wal).expect("read");
    let mut reached = BTreeSet::new();
    let lengths = (0..=whole.len()).filter(|length| length % 1030 < 2 || *length == whole.len());
    for (length, has_room) in lengths.flat_map(|length| [(length, false), (length, true)]) {
        let copy = copy(image.path());
        let mut cut = whole[..length].to_vec();
        if has_room {
            cut.resize(whole.len() + 2 * FRAME, 0);
        }
        // the header is synced before anything follows it
        if has_room && length > 0 && length < HEADER {
            continue;
        }
        fs::write(copy.path().join("store.db-wal"), &cut).expect("written");
        let store = open(copy.path());
        let found = pods_of(&store);
        let state = states.iter().position(|state| *state == found);
        let state =
            state.unwrap_or_else(|| panic!("cut at {length}: no state the store was ever in: {found:?}"));
        assert_eq!(store.revision(), state as u64 + 1, "cut at {length}");
        reached.insert(state);
    }
    assert_eq!(reached, (0..=12).collect());
}

#[test]
fn whatever_bit_of_the_log_flips_no_acknowledged_write_but_the_last_is_lost_silently() {
    let (image, wal, states) = killed();
    let whole = fs::read(&wal).expect("read");
    let [.., before_last, last] = &states[..] else { panic!("states") };
    let mut random = Random(5);
    let (mut refused, mut opened) = (0, 0);
    let tried = |at: &usize| *at < 64 || (at - 32) % 4120 < 24 || at.is_multiple_of(997);
    for at in (0..whole.len()).filter(tried) {
        let copy = copy(image.path());
        flip(&copy.path().join("store.db-wal"), at, random.below(8) as u8);
        match try_open(copy.path()) {
            Ok(store) => {
                let found = pods_of(&store);
                // damage in the last transaction looks like one that a crash cut off
                assert!(found == *last || found == *before_last, "byte {at}: {found:?}");
                opened += 1;
            }
            Err(OpenError::Corrupt { .. }) => refused += 1,
            Err(error) => panic!("byte {at}: {error}"),
        }
    }
    assert!(refused > 300 && opened > 10, "refused {refused}, opened {opened}");
}

#[test]
fn a_last_write_of_which_any_part_is_missing_is_one_that_was_cut_off() {
    let (image, wal, states) = killed();
    let whole = fs::read(&wal).expect("read");
    let [.., before_last, _] = &states[..] else { panic!("states") };
    let frames = (whole.len() - HEADER) / FRAME;
    let size_after = |frame: usize| &whole[HEADER + frame * FRAME + 4..][..4];
    let first =
        (0..frames - 1).rev().find(|frame| size_after(*frame) != [0; 4]).expect("a commit before") + 1;
    assert!(first < frames - 1, "the last transaction has several frames");
    // whole frames, and blocks of the disk that end within one
    let (start, end) = (HEADER + first * FRAME, whole.len());
    let holes = (first..frames).map(|frame| (HEADER + frame * FRAME, HEADER + (frame + 1) * FRAME));
    let blocks = (start.next_multiple_of(512)..end - 512).step_by(512).map(|at| (at, at + 512));
    for (from, to) in holes.chain(blocks) {
        let mut torn = whole.clone();
        torn[from..to].fill(0);
        let copy = copy(image.path());
        fs::write(copy.path().join("store.db-wal"), &torn).expect("written");
        let found = pods_of(&open(copy.path()));
        let is_untouched = torn == whole;
        assert!(is_untouched || found == *before_last, "{from}..{to}: {found:?}");
    }
}
