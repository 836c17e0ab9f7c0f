//! Power loss at any moment: of what was written since the last sync, any part may be on the disk.
//!
//! The files are copied whenever everything in them is synced. Between two such states some blocks of one file differ;
//! a crash leaves any of them old and any of them new. From each state every beginning of what was written next is
//! tried, every block alone and every block missing, and some random sets. Whatever is left must open, and hold the
//! acknowledged writes; a write that nobody was told of may be there or not, but whole.
//!
//! The store renames nothing, and truncates the write-ahead log only after its content is synced to the database.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::{Random, Text, contents, decode, fast_dir};
use windlass_store::faults::{FaultyLog, Observer, Step};
use windlass_store::{Key, Limits, OnDamage, Store};

/// What a disk writes as a whole.
const BLOCK: usize = 512;
const WAL_HEADER: usize = 32;
/// Small, so that the write-ahead log is copied and begun anew many times.
const CHECKPOINT_BYTES: u64 = 128 << 10;
const WRITES: u64 = 70;
const RANDOM_SETS: u64 = 4;

/// The files of a store when all of them are synced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Image {
    database: Vec<u8>,
    log: Vec<u8>,
}

impl Image {
    fn read(dir: &Path) -> Self {
        let file = |name| fs::read(dir.join(name)).unwrap_or_default();
        Self { database: file("store.db"), log: file("store.db-wal") }
    }

    fn open(&self) -> (tempfile::TempDir, Text) {
        let dir = fast_dir();
        fs::write(dir.path().join("store.db"), &self.database).expect("written");
        fs::write(dir.path().join("store.db-wal"), &self.log).expect("written");
        let store = open_observed(dir.path(), Box::new(|_| ()));
        (dir, store)
    }
}

fn open_observed(dir: &Path, observer: Observer) -> Text {
    let log =
        FaultyLog::open_observed(dir, CHECKPOINT_BYTES, observer).unwrap_or_else(|error| panic!("{error}"));
    Store::open_log(Box::new(log), Limits::default(), OnDamage::Refuse, &decode).expect("opens")
}

type Contents = Vec<(String, u64, Bytes, String)>;

fn contents_of(store: &Text) -> Contents {
    contents(store, &["jobs", "pods"])
}

/// One write that always succeeds.
fn write(store: &Text, random: &mut Random) {
    let n = random.below(16);
    let key = Key::new(if n.is_multiple_of(2) { "pods" } else { "jobs" }, "ns", &format!("n{n}"));
    // from nothing to several pages
    let encode = |revision: u64| Bytes::from(format!("{revision} ").repeat((revision * 131 % 2500) as usize));
    let current = store.get(&key).map(|record| record.revision);
    let text = String::from_utf8(encode(store.revision() + 1).to_vec()).expect("text");
    let result = match current {
        None => store.create(key, text, encode),
        Some(at) if random.below(4) == 0 => store.delete(&key, at, text, encode),
        Some(at) => store.update(&key, at, text, encode),
    };
    result.expect("the disk works");
}

/// What was on the disk after each step, and what was acknowledged by then.
struct Recorded {
    images: Vec<(Step, Image)>,
    /// The contents at each revision, from 1.
    states: Vec<Contents>,
}

fn record(seed: u64) -> Recorded {
    let dir = fast_dir();
    let images = Arc::new(Mutex::new(Vec::new()));
    let observer = {
        let (images, dir) = (Arc::clone(&images), dir.path().to_owned());
        Box::new(move |step| images.lock().expect("whole").push((step, Image::read(&dir))))
    };
    let store = open_observed(dir.path(), observer);
    let opened = Image::read(dir.path());
    let mut states = vec![contents_of(&store)];
    let mut random = Random(seed);
    for _ in 0..WRITES {
        write(&store, &mut random);
        states.push(contents_of(&store));
    }
    drop(store);
    let closed = Image::read(dir.path());
    let mut images = std::mem::take(&mut *images.lock().expect("whole"));
    images.insert(0, (Step::Maintained, opened));
    images.push((Step::Maintained, closed));
    Recorded { images, states }
}

/// The blocks in which two files differ. One that is not there is zeros.
fn changed(old: &[u8], new: &[u8]) -> Vec<usize> {
    let block = |file: &[u8], n: usize| -> [u8; BLOCK] {
        let mut block = [0; BLOCK];
        let part = file.get(n * BLOCK..).unwrap_or_default();
        let length = part.len().min(BLOCK);
        block[..length].copy_from_slice(&part[..length]);
        block
    };
    let count = old.len().max(new.len()).div_ceil(BLOCK);
    (0..count).filter(|n| block(old, *n) != block(new, *n)).collect()
}

/// The old file with some blocks of the new one.
fn mixed(old: &[u8], new: &[u8], blocks: &BTreeSet<usize>) -> Vec<u8> {
    let mut file = old.to_vec();
    for n in blocks {
        let end = ((n + 1) * BLOCK).min(new.len());
        if file.len() < end {
            file.resize(end, 0);
        }
        file[n * BLOCK..end].copy_from_slice(&new[n * BLOCK..end]);
    }
    file
}

/// Which of the changed blocks are on the disk after a crash.
fn subsets(blocks: &[usize], random: &mut Random) -> BTreeSet<BTreeSet<usize>> {
    let all: BTreeSet<usize> = blocks.iter().copied().collect();
    let mut sets = BTreeSet::from([BTreeSet::new(), all.clone()]);
    // every block for short writes, some for long ones
    let stride = blocks.len().div_ceil(6).max(1);
    for (i, block) in blocks.iter().enumerate().filter(|(i, _)| i % stride == 0) {
        sets.insert(blocks[..i].iter().copied().collect());
        sets.insert(BTreeSet::from([*block]));
        sets.insert(all.iter().copied().filter(|other| other != block).collect());
    }
    for _ in 0..RANDOM_SETS {
        sets.insert(all.iter().copied().filter(|_| random.below(2) == 0).collect());
    }
    sets
}

/// Every image that a crash on the way from one synced image to the next can leave.
fn crashes(old: &Image, new: &Image, random: &mut Random) -> Vec<Image> {
    let mut images = vec![old.clone()];
    let mut now = old.clone();
    if new.log.len() < old.log.len() {
        // closing: first the database, then the log is cut off
        for set in subsets(&changed(&old.database, &new.database), random) {
            images.push(Image { database: mixed(&old.database, &new.database, &set), ..old.clone() });
        }
        images.push(Image { database: new.database.clone(), log: old.log.clone() });
        return images;
    }
    // the header of the log, which is synced before what follows it
    if new.log.len() >= WAL_HEADER && now.log.get(..WAL_HEADER) != new.log.get(..WAL_HEADER) {
        now.log.resize(now.log.len().max(WAL_HEADER), 0);
        now.log[..WAL_HEADER].copy_from_slice(&new.log[..WAL_HEADER]);
        images.push(now.clone());
    }
    for set in subsets(&changed(&now.log, &new.log), random) {
        images.push(Image { log: mixed(&now.log, &new.log, &set), ..now.clone() });
    }
    // a checkpoint writes to the database what is synced in the log
    now.log = new.log.clone();
    for set in subsets(&changed(&now.database, &new.database), random) {
        images.push(Image { database: mixed(&now.database, &new.database, &set), ..now.clone() });
    }
    images
}

#[test]
fn after_power_loss_at_any_moment_every_acknowledged_write_is_there_and_none_in_part() {
    let (mut tried, mut copied, mut restarted, mut unacknowledged) = (0, 0, 0, 0);
    for seed in [1] {
        let Recorded { images, states } = record(seed);
        let mut random = Random(seed);
        let mut acknowledged = 0;
        for pair in images.windows(2) {
            let [(_, old), (step, new)] = pair else { unreachable!("windows of two") };
            let may_be = acknowledged + usize::from(*step == Step::Synced);
            copied += usize::from(*step == Step::Maintained && old.database != new.database);
            let was_used = old.log.len() >= WAL_HEADER && old.log[..WAL_HEADER] != [0; WAL_HEADER];
            restarted += usize::from(was_used && old.log.get(..WAL_HEADER) != new.log.get(..WAL_HEADER));
            for image in crashes(old, new, &mut random) {
                tried += 1;
                let (_dir, store) = image.open();
                let revision = store.revision() as usize;
                assert!(
                    (acknowledged + 1..=may_be + 1).contains(&revision),
                    "seed {seed}: revision {revision} after {acknowledged} acknowledged writes"
                );
                assert!(contents_of(&store) == states[revision - 1], "seed {seed}: not as at {revision}");
                unacknowledged += usize::from(revision > acknowledged + 1);
            }
            acknowledged = may_be;
        }
        assert_eq!(acknowledged as u64, WRITES);
        // what a crash leaves can be written to, and crash again
        let (_, last) = &images[images.len() - 2];
        let (dir, store) = last.open();
        write(&store, &mut random);
        let state = contents_of(&store);
        let (_again, reopened) = Image::read(dir.path()).open();
        assert!(contents_of(&reopened) == state);
    }
    assert!(
        tried > 2000 && copied > 10 && restarted > 10 && unacknowledged > 100,
        "{tried} {copied} {restarted} {unacknowledged}"
    );
}

/// The test above is worth something only if it notices a store that acknowledges before it syncs.
#[test]
fn an_image_that_lacks_an_acknowledged_write_is_told_from_one_that_has_it() {
    let Recorded { images, states } = record(3);
    let synced: Vec<&Image> =
        images.iter().filter(|(step, _)| *step == Step::Synced).map(|(_, image)| image).collect();
    for (i, image) in synced.iter().enumerate().skip(1) {
        let (_dir, store) = image.open();
        assert!(contents_of(&store) == states[i + 1]);
        let (_dir, store) = synced[i - 1].open();
        assert!(contents_of(&store) != states[i + 1], "the image before write {i} has it already");
    }
}
