//! Files of a store that are not what was written: what is served was written, and all else is told.
//!
//! The input is a list of changes to the files of a store that was killed: five bytes each, the file and the kind of
//! change, where, and what.
#![no_main]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::sync::LazyLock;

use bytes::Bytes;
use windlass_store::{Key, Limits, OnDamage, OpenError, Prefix, Store};

/// The files of a store that was not closed, and every object that was ever in it.
struct Image {
    files: Vec<(&'static str, Vec<u8>)>,
    written: BTreeSet<(String, u64, Vec<u8>)>,
}

static IMAGE: LazyLock<Image> = LazyLock::new(|| {
    let dir = directory();
    let store = open(dir.path(), OnDamage::Refuse).expect("a new store opens");
    let mut written = BTreeSet::new();
    for (i, name) in ["a", "b", "c", "d"].into_iter().enumerate() {
        let key = Key::new("pods", "ns", name);
        let encode = |revision: u64| Bytes::from(format!("{name}{revision}").repeat(10 + 900 * i));
        let made = store.create(key.clone(), String::new(), encode).expect("new");
        written.insert((key.to_string(), made.revision, made.bytes.to_vec()));
        if name == "b" {
            let changed = store
                .update(&key, made.revision, String::new(), |_| Bytes::from("changed"))
                .expect("current");
            written.insert((key.to_string(), changed.revision, changed.bytes.to_vec()));
        }
    }
    // As a kill leaves it: the last writes are in the log only.
    let read = |name| (name, fs::read(dir.path().join(name)).unwrap_or_default());
    Image { files: vec![read("store.db"), read("store.db-wal")], written }
});

fn directory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a directory")
}

fn open(dir: &Path, on_damage: OnDamage) -> Result<Store<String>, OpenError> {
    let decode =
        |_: &Key, bytes: &Bytes| String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string());
    Store::open(dir, Limits::default(), on_damage, &decode)
}

fn damage(files: &mut [(&'static str, Vec<u8>)], change: &[u8]) {
    let [what, high, low, value, extra] = change else { return };
    let (_, file) = &mut files[usize::from(what & 1)];
    let place = (usize::from(*extra & 3) << 16) | (usize::from(*high) << 8) | usize::from(*low);
    let Some(at) = place.checked_rem(file.len()) else { return };
    match what >> 1 & 3 {
        0 => file[at] = *value,
        1 => file[at] ^= value,
        2 => file.truncate(at),
        _ => file[at..].iter_mut().take(usize::from(*value) * 16).for_each(|byte| *byte = 0),
    }
}

fn check(store: &Store<String>) {
    for record in store.list(&Prefix::resource_wide("pods")).records {
        let found = (record.key.to_string(), record.revision, record.bytes.to_vec());
        assert!(IMAGE.written.contains(&found), "{} at {} was never written", found.0, found.1);
    }
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let mut files = IMAGE.files.clone();
    data.chunks(5).take(16).for_each(|change| damage(&mut files, change));
    let dir = directory();
    for (name, bytes) in &files {
        fs::write(dir.path().join(name), bytes).expect("written");
    }
    match open(dir.path(), OnDamage::Refuse) {
        Ok(store) => check(&store),
        Err(OpenError::Damaged(_)) => {
            let store = open(dir.path(), OnDamage::SetAside);
            if let Ok(store) = store {
                assert!(!store.damaged().is_empty());
                check(&store);
            }
        }
        Err(_) => {}
    }
});
