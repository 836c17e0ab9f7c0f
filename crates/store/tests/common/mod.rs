//! Shared by the tests of durable stores.
#![allow(dead_code, reason = "each test uses a part")]

use std::path::{Path, PathBuf};

use bytes::Bytes;
use windlass_store::faults::{Faults, FaultyLog};
use windlass_store::{Key, Limits, OnDamage, OpenError, Prefix, Store};

/// What the attributes are in these tests: something that comes from the bytes.
pub type Text = Store<String>;

pub fn decode(_: &Key, bytes: &Bytes) -> Result<String, String> {
    String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string())
}

pub fn try_open(dir: &Path) -> Result<Text, OpenError> {
    Store::open(dir, Limits::default(), OnDamage::Refuse, &decode)
}

pub fn open(dir: &Path) -> Text {
    try_open(dir).expect("opens")
}

pub fn open_faulty(dir: &Path, faults: &Faults) -> Text {
    let log = FaultyLog::open(dir, faults.clone()).expect("opens");
    Store::open_log(Box::new(log), Limits::default(), OnDamage::Refuse, &decode).expect("opens")
}

pub fn pod(name: &str) -> Key {
    Key::new("pods", "ns", name)
}

pub fn bytes(revision: u64) -> Bytes {
    Bytes::from(format!("at {revision}"))
}

/// In memory where there is such a place: for tests that open a store a thousand times, and lose no power.
pub fn fast_dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("made")
}

/// Key, revision, bytes and attributes of everything in `resources`.
pub fn contents(store: &Text, resources: &[&str]) -> Vec<(String, u64, Bytes, String)> {
    let records = resources.iter().flat_map(|r| store.list(&Prefix::resource_wide(r)).records);
    records.map(|r| (r.key.to_string(), r.revision, r.bytes.clone(), r.attributes.clone())).collect()
}

pub fn database(dir: &Path) -> PathBuf {
    dir.join("store.db")
}

/// The same sequence every time.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}
