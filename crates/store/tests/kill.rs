//! A process that writes is killed again and again. What it was told is written must be there.
//!
//! `cargo xtask kill-loop` runs 10,000 rounds.

mod common;

use std::collections::BTreeMap;
use std::env;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use bytes::Bytes;
use common::{Random, Text, contents, open};
use windlass_store::Key;

const DIR: &str = "WINDLASS_KILL_DIR";
const ROUNDS: &str = "WINDLASS_KILL_ROUNDS";
const CHILD: &str = "child_writes_until_it_is_killed";
const WRITERS: u64 = 8;

fn key(writer: u64, n: u64) -> Key {
    Key::new(if n.is_multiple_of(2) { "pods" } else { "jobs" }, &format!("w{writer}"), &format!("n{n}"))
}

fn encode(key: &Key, revision: u64) -> Bytes {
    Bytes::from(format!("{key} {revision} ").repeat(1 + (revision * 31 % 200) as usize))
}

/// One change of one writer: says what it will do, does it, says what came of it.
fn step(store: &Text, writer: u64, random: &mut Random) {
    let key = key(writer, random.below(40));
    let encode = |revision| encode(&key, revision);
    let current = store.get(&key).map(|record| record.revision);
    let is_deletion = current.is_some() && random.below(4) == 0;
    println!("try {writer} {key} {}", if is_deletion { "delete" } else { "write" });
    let record = match current {
        None => store.create(key.clone(), String::new(), encode),
        Some(expected) if is_deletion => store.delete(&key, expected, String::new(), encode),
        Some(expected) => store.update(&key, expected, String::new(), encode),
    };
    println!("ack {writer} {}", record.expect("its own key, and a disk that works").revision);
}

/// The other process of the test below: this very test, started with a directory.
#[test]
fn child_writes_until_it_is_killed() {
    let Some(dir) = env::var_os(DIR) else { return };
    let store = open(Path::new(&dir));
    let seed = store.revision();
    thread::scope(|scope| {
        for writer in 0..WRITERS {
            let store = &store;
            scope.spawn(move || {
                let mut random = Random(seed ^ (writer << 32));
                loop {
                    step(store, writer, &mut random);
                }
            });
        }
    });
}

fn spawn_child(dir: &Path) -> Child {
    Command::new(env::current_exe().expect("known"))
        .args(["--exact", CHILD, "--nocapture"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("starts")
}

/// What the child was told: the state of each key, and of each writer the change of which the outcome is not known.
#[derive(Default)]
struct Told {
    revisions: BTreeMap<String, u64>,
    tried: BTreeMap<u64, (String, bool)>,
    last: u64,
    acks: u64,
}

impl Told {
    fn hear(&mut self, line: &str) {
        // the test harness of the child writes lines too, or the beginning of one
        let at = line.find("try ").or(line.find("ack ")).unwrap_or(line.len());
        let words: Vec<&str> = line[at..].split(' ').collect();
        let number = |text: &str| text.parse::<u64>().expect("a number");
        match words[..] {
            ["try", writer, key, what] => {
                let _ = self.tried.insert(number(writer), (key.to_owned(), what == "delete"));
            }
            ["ack", writer, revision] => {
                let (key, is_deletion) = self.tried.remove(&number(writer)).expect("tried before");
                let revision = number(revision);
                if is_deletion {
                    self.revisions.remove(&key)
                } else {
                    self.revisions.insert(key, revision)
                };
                self.last = self.last.max(revision);
                self.acks += 1;
            }
            _ => {}
        }
    }

    /// Compares with what is there, and goes on from that.
    fn check(&mut self, store: &Text, context: &str) {
        let mut found = BTreeMap::new();
        for (key, revision, bytes, _) in contents(store, &["pods", "jobs"]) {
            let as_written = encode(&Key::parse(&key).expect("a key"), revision);
            assert_eq!(bytes, as_written, "{context}: {key}");
            found.insert(key, revision);
        }
        let in_doubt: BTreeMap<&str, bool> =
            self.tried.values().map(|(key, del)| (key.as_str(), *del)).collect();
        let keys = self.revisions.keys().chain(found.keys());
        for key in keys {
            let (told, now) = (self.revisions.get(key), found.get(key));
            let may_be = match in_doubt.get(key.as_str()) {
                None => false,
                Some(true) => now.is_none(),
                Some(false) => now > told,
            };
            assert!(told == now || may_be, "{context}: {key} was acknowledged as {told:?}, is {now:?}");
        }
        assert!(
            store.revision() >= self.last,
            "{context}: revision {} after {}",
            store.revision(),
            self.last
        );
        (self.revisions, self.last) = (found, store.revision());
        self.tried.clear();
    }
}

#[test]
fn every_acknowledged_write_survives_kill_9() {
    let rounds = env::var(ROUNDS).map_or(200, |text| text.parse().expect("a number of rounds"));
    let mut dir = tempfile::tempdir().expect("made");
    let (mut random, mut told) = (Random(7), Told::default());
    for round in 0..rounds {
        // now and then from nothing, so that a store that is being made is killed too
        if round % 10 == 9 {
            (dir, told) = (tempfile::tempdir().expect("made"), Told { acks: told.acks, ..Told::default() });
        }
        let mut child = spawn_child(dir.path());
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        // often soon after the start, sometimes late enough for a checkpoint
        let acks_max = told.acks + 1 + random.below(if round % 40 == 39 { 6000 } else { 120 });
        for line in lines {
            told.hear(&line.expect("text"));
            if told.acks == acks_max {
                child.kill().expect("killed");
            }
        }
        let status = child.wait().expect("waited for");
        assert_eq!(
            std::os::unix::process::ExitStatusExt::signal(&status),
            Some(9),
            "round {round}: {status}"
        );
        let store = open(dir.path());
        told.check(&store, &format!("round {round}"));
        assert_eq!(store.damaged(), []);
    }
    assert!(told.acks >= rounds);
}
