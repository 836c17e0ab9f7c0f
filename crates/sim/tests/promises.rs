//! The named promises, over random Jobs, faults and deaths between any two writes.

use windlass_sim::{Promise, search};

/// Cases for each promise, unless `WINDLASS_SIM_CASES` says otherwise.
const CASES: u64 = 300;
/// Each promise has seeds of its own, so that together they see more.
const SEEDS_APART: u64 = 1_000_000_000;

fn keeps(promise: Promise, failing_seeds: &[u64]) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse::<u64>().expect("a number"));
    if let Some(seed) = number("WINDLASS_SIM_SEED") {
        if let Err(finding) = search([seed]) {
            panic!("{finding}");
        }
        return;
    }
    let first = promise as u64 * SEEDS_APART;
    let count = number("WINDLASS_SIM_CASES").unwrap_or(CASES);
    let seeds = failing_seeds.iter().copied().chain(first..first + count);
    if let Err(finding) = search(seeds) {
        panic!("while looking for a breach of `{promise}`:\n{finding}");
    }
}

#[test]
fn counted_once() {
    keeps(Promise::CountedOnce, &[]);
}

#[test]
fn never_too_many() {
    keeps(Promise::NeverTooMany, &[]);
}

#[test]
fn counters_monotone() {
    keeps(Promise::CountersMonotone, &[]);
}

#[test]
fn terminal_is_final() {
    keeps(Promise::TerminalIsFinal, &[]);
}

#[test]
fn no_leak() {
    keeps(Promise::NoLeak, &[]);
}

#[test]
fn own_only() {
    keeps(Promise::OwnOnly, &[]);
}

#[test]
fn settles() {
    keeps(Promise::Settles, &[]);
}

#[test]
fn same_in_same_out() {
    keeps(Promise::SameInSameOut, &[]);
}

#[test]
fn deadline_kept() {
    keeps(Promise::DeadlineKept, &[]);
}

#[test]
fn status_accepted() {
    keeps(Promise::StatusAccepted, &[]);
}
