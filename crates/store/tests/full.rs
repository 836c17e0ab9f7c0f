//! A disk without room: a clear error, nothing lost, and all of it can be read.

mod common;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use common::{contents, open, pod};
use windlass_store::{Error, LogError};

const DIR: &str = "WINDLASS_FULL_DIR";
const CHILD: &str = "child_fills_a_small_disk";

/// The other process of the test below: this very test, in a mount namespace with a disk of 3 MB at the directory.
#[test]
fn child_fills_a_small_disk() {
    let Some(dir) = env::var_os(DIR) else { return };
    let disk = Path::new(&dir);
    let data = disk.join("data");
    // what somebody else has on the disk, and will remove
    fs::write(disk.join("other"), vec![b'x'; 1 << 20]).expect("room");
    let store = open(&data);
    let value = |revision: u64| Bytes::from(format!("{revision} ").repeat(1500));
    let mut acknowledged = BTreeMap::new();
    let mut failures = 0;
    for i in 0..2000 {
        match store.create(pod(&format!("p{i}")), String::new(), value) {
            Ok(record) => {
                acknowledged.insert(record.key.to_string(), record.revision);
            }
            Err(Error::Log(LogError::Full(_))) => failures += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(acknowledged.len() > 50 && failures > 50, "{} written, {failures} failed", acknowledged.len());
    let check = |store: &common::Text, acknowledged: &BTreeMap<String, u64>, when: &str| {
        let found: BTreeMap<_, _> = contents(store, &["pods"])
            .into_iter()
            .map(|(key, revision, bytes, _)| {
                assert_eq!(bytes, value(revision), "{when}: {key}");
                (key, revision)
            })
            .collect();
        assert_eq!(found, *acknowledged, "{when}");
    };
    check(&store, &acknowledged, "while the disk is full");
    drop(store);
    // not even room for a byte
    let mut filler = fs::File::create(disk.join("filler")).expect("made");
    while std::io::Write::write_all(&mut filler, &[b'x'; 512]).is_ok() {}
    let store = open(&data);
    check(&store, &acknowledged, "after a restart with the disk full");
    let error =
        store.create(pod("more"), String::new(), |_| Bytes::from(vec![b'x'; 1 << 20])).expect_err("no room");
    assert!(error.to_string().starts_with("write to the store: no space left: "), "{error}");
    // with room again it goes on without a restart
    fs::remove_file(disk.join("other")).expect("removed");
    let last = *acknowledged.values().max().expect("some");
    let (key, revision) = acknowledged.pop_first().expect("some");
    let key = windlass_store::Key::parse(&key).expect("a key");
    let gone = store.delete(&key, revision, String::new(), value).expect("room for a deletion");
    assert_eq!(gone.revision, last + 1);
    drop(store);
    check(&open(&data), &acknowledged, "after a restart with room");
    println!("everything was checked");
}

#[test]
fn a_full_disk_gives_a_clear_error_and_loses_nothing() {
    let disk = tempfile::tempdir().expect("made");
    let script = "mount -t tmpfs -o size=3m none \"$1\" && exec \"$2\" --exact \"$3\" --nocapture";
    // as root a mount namespace is enough; others need to be root of a namespace of their own
    let try_with = |flags: &str| {
        let exe = env::current_exe().expect("known");
        let output = Command::new("unshare")
            .args([flags, "sh", "-c", script, "sh"])
            .arg(disk.path())
            .arg(exe)
            .arg(CHILD)
            .env(DIR, disk.path())
            .output()
            .expect("unshare of util-linux");
        let text = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&text).into_owned())
    };
    let is_mount_refused = |text: &str| !text.contains("running 1 test");
    let (mut is_good, mut text) = try_with("-m");
    if is_mount_refused(&text) {
        (is_good, text) = try_with("-Urm");
    }
    assert!(is_good && text.contains("everything was checked"), "{text}");
}
