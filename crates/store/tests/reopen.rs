//! A durable store against a map, over random operations, with restarts and faults at random points.

mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use common::{Random, Text, contents, open, open_faulty};
use windlass_store::faults::{Fault, Faults};
use windlass_store::{Error, Key, LogError};

type Model = BTreeMap<String, (u64, Bytes)>;

fn key(n: u64) -> Key {
    match n % 3 {
        0 => Key::new("pods", "a", &format!("n{n}")),
        1 => Key::new("jobs", "b", &format!("n{n}")),
        _ => Key::new("nodes", "", &format!("n{n}")),
    }
}

fn encode(revision: u64) -> Bytes {
    // from nothing to several pages
    Bytes::from(format!("{revision} ").repeat((revision * 37 % 1500) as usize))
}

fn check(store: &Text, model: &Model, context: &str) {
    let mut found: Vec<_> = contents(store, &["pods", "jobs", "nodes"])
        .into_iter()
        .map(|(key, revision, bytes, attributes)| {
            assert_eq!(attributes.as_bytes(), &bytes[..], "{context}");
            (key, (revision, bytes))
        })
        .collect();
    found.sort();
    assert_eq!(found, model.clone().into_iter().collect::<Vec<_>>(), "{context}");
}

/// Does one operation, and says what it changes if it is kept.
fn step(store: &Text, random: &mut Random) -> (Result<u64, Error<String, LogError>>, Key, Option<Bytes>) {
    let key = key(random.below(24));
    let next = store.revision() + 1;
    let text = String::from_utf8(encode(next).to_vec()).expect("text");
    let current = store.get(&key).map_or(1, |record| record.revision);
    let expected = if random.below(8) == 0 { current + 1 } else { current };
    let (result, bytes) = match random.below(4) {
        0 | 1 => (store.create(key.clone(), text, encode), Some(encode(next))),
        2 => (store.update(&key, expected, text, encode), Some(encode(next))),
        _ => (store.delete(&key, expected, text, encode), None),
    };
    (result.map(|record| record.revision), key, bytes)
}

fn apply(model: &mut Model, key: &Key, revision: u64, bytes: Option<Bytes>) {
    match bytes {
        Some(bytes) => model.insert(key.to_string(), (revision, bytes)),
        None => model.remove(key.as_str()),
    };
}

#[test]
fn a_store_that_is_closed_and_opened_at_any_point_equals_a_map() {
    for seed in 0..12 {
        let mut random = Random(seed);
        let dir = tempfile::tempdir().expect("made");
        let (mut store, mut model, mut revision) = (open(dir.path()), Model::new(), 1);
        for i in 0..250 {
            if random.below(25) == 0 {
                drop(store);
                store = open(dir.path());
                check(&store, &model, &format!("seed {seed} step {i}"));
            }
            let (result, key, bytes) = step(&store, &mut random);
            if let Ok(at) = result {
                revision += 1;
                assert_eq!(at, revision, "seed {seed} step {i}");
                apply(&mut model, &key, at, bytes);
            }
            assert_eq!(store.revision(), revision, "seed {seed} step {i}");
        }
        check(&store, &model, &format!("seed {seed} at the end"));
    }
}

#[test]
fn whatever_call_to_the_log_fails_acknowledged_writes_are_there_after_a_restart() {
    const STEPS: u64 = 30;
    for n in 1..=STEPS {
        for (at_sync, fault) in [
            (false, Fault::Before),
            (true, Fault::Before),
            (true, Fault::After),
            (true, Fault::Panic),
            (true, Fault::Full),
        ] {
            let context = format!("call {n}, at sync: {at_sync}, {fault:?}");
            let dir = tempfile::tempdir().expect("made");
            let faults = Faults::default();
            if at_sync {
                faults.fail_sync(n, fault)
            } else {
                faults.fail_append(n, fault)
            }
            let store = open_faulty(dir.path(), &faults);
            let (mut random, mut model, mut revision) = (Random(n), Model::new(), 1);
            for _ in 0..STEPS * 2 {
                let (result, key, bytes) = step(&store, &mut random);
                let next = revision + 1;
                match result {
                    Ok(at) => {
                        assert_eq!(at, next, "{context}");
                        revision = at;
                        apply(&mut model, &key, at, bytes);
                    }
                    Err(Error::Log(LogError::Failed(_))) => {
                        check(&store, &model, &context);
                        // not acknowledged, and yet kept: that is what its error says can be
                        if fault == Fault::After {
                            revision = next;
                            apply(&mut model, &key, next, bytes);
                        }
                        break;
                    }
                    Err(_) => {}
                }
            }
            drop(store);
            let store = open(dir.path());
            check(&store, &model, &context);
            assert_eq!(store.revision(), revision, "{context}");
        }
    }
}
