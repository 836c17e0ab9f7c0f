//! The named promises, over random Jobs, faults and deaths between any two writes.

use windlass_sim::{Promise, search};

/// Cases for each promise, unless `WINDLASS_SIM_CASES` says otherwise.
const CASES: u64 = 300;
/// Each promise has seeds of its own, so that together they see more.
const SEEDS_APART: u64 = 1_000_000_000;

/// Seeds that once broke this promise.
fn known_seeds(promise: Promise) -> Vec<u64> {
    let lines = include_str!("../proptest-regressions/seeds.txt").lines();
    let pairs = lines.filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    let ours = pairs.filter(|(name, _)| *name == promise.to_string());
    ours.map(|(_, seed)| seed.parse().expect("a number")).collect()
}

fn keeps(promise: Promise) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number("WINDLASS_SIM_SEED") {
        if let Err(finding) = search([seed]) {
            panic!("{finding}");
        }
        return;
    }
    let first = promise as u64 * SEEDS_APART;
    let count = number("WINDLASS_SIM_CASES").unwrap_or(CASES);
    let seeds = known_seeds(promise).into_iter().chain(first..first + count);
    if let Err(finding) = search(seeds) {
        // The seed belongs into proptest-regressions/seeds.txt, the small case into found.rs.
        panic!("while looking for a breach of `{promise}`:\n{finding}");
    }
}

#[test]
fn counted_once() {
    keeps(Promise::CountedOnce);
}

#[test]
fn never_too_many() {
    keeps(Promise::NeverTooMany);
}

#[test]
fn counters_monotone() {
    keeps(Promise::CountersMonotone);
}

#[test]
fn terminal_is_final() {
    keeps(Promise::TerminalIsFinal);
}

#[test]
fn no_leak() {
    keeps(Promise::NoLeak);
}

#[test]
fn own_only() {
    keeps(Promise::OwnOnly);
}

#[test]
fn settles() {
    keeps(Promise::Settles);
}

#[test]
fn same_in_same_out() {
    keeps(Promise::SameInSameOut);
}

#[test]
fn deadline_kept() {
    keeps(Promise::DeadlineKept);
}

#[test]
fn status_accepted() {
    keeps(Promise::StatusAccepted);
}
