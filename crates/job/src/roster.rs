//! The pods of one Job, with the sums and orders a decision asks for, kept up to date one pod at a time.
//!
//! ```text
//!   observe(pod) ──┐                       ┌── totals()     active, ready, terminating, restarts
//!   forget(uid)  ──┼──> pods by UID ──────>├── held()       finalizer holders that are done or on their way out
//!   fold(...)    ──┘    (one change)       ├── busy/ending  which indexes have a live, a dying pod
//!                                          └── failures()   the last failures, for back-off
//! ```
//!
//! A change costs a look-up and a few bits, whatever the number of pods: each pod has a slot, sets that grow with the
//! Job are bitmaps of slots or indexes, and what has not changed is not touched. Nothing here decides anything.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use jiff::{SignedDuration, Timestamp};
use windlass_api::indexes::IndexSet;

use crate::backoff::later;
use crate::job_facts::JobFacts;
use crate::pod_facts::{Claim, Phase, PodFacts};
use crate::slots::Slots;
use crate::uid::Uid;

/// Failures further back than this can't lengthen a delay: 2^31 times any base is beyond any cap.
const FAILURES_REMEMBERED: usize = 32;
/// Attempts beyond this were not made by us: the number was read from somebody else's name.
const ATTEMPT_MAX: u32 = 1 << 16;

/// Sums over the pods of a Job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Neither finished nor being deleted.
    pub active: u32,
    /// Active and ready.
    pub ready: u32,
    /// Being deleted and not stopped.
    pub terminating: u32,
    /// Carrying the tracking finalizer.
    pub held: u32,
    /// Container restarts of running and pending pods.
    pub restarts: u64,
}

/// The pods of one Job.
#[derive(Clone, Debug, Default)]
pub struct Roster {
    slots: Slots<Entry>,
    totals: Totals,
    /// Slots of active pods.
    active: IndexSet,
    /// Finalizer holders that are finished or terminating, by index (those without one first), with their slots.
    held: BTreeMap<(Option<u32>, Uid), u32>,
    /// Pods of ours whose labels do not match any more.
    strays: BTreeSet<Uid>,
    /// Pods of nobody whose labels match and that are not being deleted.
    orphans: BTreeSet<Uid>,
    /// Failed pods that a `FailJob` rule matches.
    condemning: BTreeSet<Uid>,
    /// All our pods that have an index, with their slots.
    placed: BTreeMap<(u32, Uid), u32>,
    /// Active pods without an index.
    unplaced: BTreeSet<Uid>,
    /// Indexes with an active pod, with more than one, with a terminating one.
    busy: IndexSet,
    crowded: BTreeSet<u32>,
    ending: IndexSet,
    /// Pods in phase Failed, and terminating ones, by finish time.
    failed: BTreeSet<(Timestamp, Uid)>,
    terminating: BTreeSet<(Timestamp, Uid)>,
    /// Finish times of failed pods that are gone, since the last success.
    ghosts: Vec<Timestamp>,
    last_success: Option<Timestamp>,
    /// Attempts that were seen, also of pods that are gone: of a NonIndexed Job …
    attempts: IndexSet,
    /// … and the first free one of an index whose pods are gone.
    spent_attempts: BTreeMap<u32, u32>,
    /// Pods that are gone by our own doing; an older event must not bring them back.
    gone: BTreeSet<Uid>,
}

#[derive(Clone, Debug)]
struct Entry {
    facts: PodFacts,
    /// Ended by us because it was not wanted: no failure, and no reason to wait.
    is_discarded: bool,
    /// Asked by us to go because the Job fails.
    is_ended: bool,
    /// Its finalizer was released by us after it was recorded.
    is_accounted: bool,
    /// Its finalizer is just being released by us.
    is_releasing: bool,
}

impl Entry {
    /// It is without its finalizer, or about to be, because it is counted.
    fn is_let_go(&self) -> bool {
        self.is_accounted || self.is_releasing
    }
}

/// Everything about a pod that a sum or an order depends on.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Standing {
    claim: Claim,
    state: State,
    is_deleted: bool,
    is_ready: bool,
    is_held: bool,
    is_condemning: bool,
    restarts: u32,
    index: Option<u32>,
    finished_at: Timestamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Active,
    Terminating,
    Failed,
    Succeeded,
}

impl Standing {
    fn of(pod: &PodFacts) -> Self {
        let state = match pod.phase {
            Phase::Succeeded => State::Succeeded,
            Phase::Failed => State::Failed,
            Phase::Pending | Phase::Unknown | Phase::Running if pod.is_deleted => State::Terminating,
            Phase::Pending | Phase::Unknown | Phase::Running => State::Active,
        };
        let counts_restarts = matches!(pod.phase, Phase::Running | Phase::Pending);
        Self {
            claim: pod.claim,
            state,
            is_deleted: pod.is_deleted,
            is_ready: pod.is_ready,
            is_held: pod.has_finalizer,
            is_condemning: state == State::Failed && pod.fails_job(),
            restarts: if counts_restarts { pod.restarts } else { 0 },
            index: pod.index,
            finished_at: pod.finished_at,
        }
    }

    /// The index at which it is one of ours.
    fn place(&self) -> Option<u32> {
        self.index.filter(|_| self.claim == Claim::Ours)
    }
}

impl Roster {
    /// Takes a view of a pod, unless a newer one is known.
    pub fn observe(&mut self, facts: PodFacts) {
        if self.gone.contains(&facts.uid) {
            return;
        }
        self.note_attempt(&facts);
        match self.slots.find(&facts.uid) {
            None => self.enter(facts),
            Some(slot) if self.slots.at(slot).facts.revision > facts.revision => {}
            Some(slot) => self.change(slot, |entry| {
                // A pod keeps its name: so does the entry, instead of going through memory to free it.
                let name = std::mem::take(&mut entry.facts.name);
                entry.facts = PodFacts { name, ..facts };
                // An event from before our release must not bring the finalizer back: the pod would count twice.
                entry.is_accounted &= entry.facts.claim == Claim::Ours;
                entry.facts.has_finalizer &= !entry.is_accounted;
            }),
        }
    }

    /// The watch says that the pod is gone.
    pub fn forget(&mut self, uid: &Uid) {
        self.remove(uid);
        self.gone.remove(uid);
    }

    /// We know that the pod is gone before the watch says so.
    pub fn bury(&mut self, uid: &Uid) {
        if self.remove(uid) {
            self.gone.insert(uid.clone());
        }
    }

    /// Changes what is known of a pod after our own write to it.
    pub(crate) fn amend(&mut self, uid: &Uid, change: impl FnOnce(&mut PodFacts)) {
        if let Some(slot) = self.slots.find(uid) {
            self.change(slot, |entry| change(&mut entry.facts));
        }
    }

    /// The pod was recorded and its finalizer released: from now on it is in the counters.
    pub(crate) fn mark_accounted(&mut self, uid: &Uid) {
        if let Some(entry) = self.slots.get_mut(uid) {
            entry.is_accounted = true;
        }
    }

    /// The finalizer of the pod is just being released, or not any more.
    pub(crate) fn mark_releasing(&mut self, uid: &Uid, is_so: bool) {
        if let Some(entry) = self.slots.get_mut(uid) {
            entry.is_releasing = is_so;
        }
    }

    /// The finalizer of the pod is just being released by us.
    pub fn is_releasing(&self, uid: &Uid) -> bool {
        self.slots.get(uid).is_some_and(|entry| entry.is_releasing)
    }

    /// The pod is ended because it was not wanted.
    pub(crate) fn mark_discarded(&mut self, uid: &Uid) {
        if let Some(entry) = self.slots.get_mut(uid) {
            entry.is_discarded = true;
        }
    }

    /// The pod is asked to go because the Job fails.
    pub(crate) fn mark_ended(&mut self, uid: &Uid) {
        if let Some(entry) = self.slots.get_mut(uid) {
            entry.is_ended = true;
        }
    }

    /// The pod was asked by us to go because the Job fails.
    pub(crate) fn is_ended(&self, uid: &Uid) -> bool {
        self.slots.get(uid).is_some_and(|entry| entry.is_ended)
    }

    /// The name of this attempt is taken by somebody else.
    pub(crate) fn mark_taken(&mut self, index: Option<u32>, attempt: u32) {
        match index {
            Some(index) => self.spend(index, attempt),
            None => {
                self.attempts.insert(attempt);
            }
        }
    }

    /// The facts of a pod.
    pub fn get(&self, uid: &Uid) -> Option<&PodFacts> {
        self.slots.get(uid).map(|entry| &entry.facts)
    }

    /// All pods, in the order in which they were seen, more or less.
    pub fn iter(&self) -> impl Iterator<Item = &PodFacts> {
        self.slots.iter().map(|entry| &entry.facts)
    }

    /// How many pods are known.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// No pod is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sums over our pods.
    pub fn totals(&self) -> Totals {
        self.totals
    }

    /// Active pods.
    pub fn active(&self) -> impl Iterator<Item = &PodFacts> {
        self.active.iter().map(|slot| self.facts(slot))
    }

    /// Finished and terminating pods that hold the finalizer, by index.
    pub fn held(&self) -> impl Iterator<Item = &PodFacts> {
        self.held.values().map(|slot| self.facts(*slot))
    }

    /// Active pods that hold the finalizer.
    pub fn held_active(&self) -> impl Iterator<Item = &PodFacts> {
        self.active().filter(|pod| pod.has_finalizer)
    }

    /// The pod still holds the finalizer, also if its labels do not match any more: it could come back.
    pub fn holds(&self, uid: &Uid) -> bool {
        self.get(uid).is_some_and(|pod| matches!(pod.claim, Claim::Ours | Claim::Stray) && pod.has_finalizer)
    }

    /// Pods of ours whose labels do not match any more.
    pub fn strays(&self) -> impl Iterator<Item = &PodFacts> {
        self.strays.iter().map(|uid| self.known(uid))
    }

    /// Pods that could be adopted.
    pub fn orphans(&self) -> impl Iterator<Item = &PodFacts> {
        self.orphans.iter().map(|uid| self.known(uid))
    }

    /// The first failed pod that a `FailJob` rule matches.
    pub fn condemning(&self) -> Option<&PodFacts> {
        self.condemning.first().map(|uid| self.known(uid))
    }

    /// Indexes with an active pod.
    pub fn busy(&self) -> &IndexSet {
        &self.busy
    }

    /// Indexes with a terminating pod.
    pub fn ending(&self) -> &IndexSet {
        &self.ending
    }

    /// Our pods of an index.
    pub fn at(&self, index: u32) -> impl Iterator<Item = &PodFacts> {
        self.placed
            .range((index, Uid::MIN)..)
            .take_while(move |((at, _), _)| *at == index)
            .map(|(_, slot)| self.facts(*slot))
    }

    /// Active pods that an Indexed Job of so many completions can't use: without an index, beyond the last one, and all
    /// but the best of an index that has several.
    pub fn misplaced(&self, completions: u32) -> Vec<&PodFacts> {
        let beyond = self.placed.range((completions, Uid::MIN)..).map(|(_, slot)| self.facts(*slot));
        let mut misplaced: Vec<&PodFacts> = self
            .unplaced
            .iter()
            .map(|uid| self.known(uid))
            .chain(beyond.filter(|pod| pod.is_active()))
            .collect();
        for index in self.crowded.range(..completions) {
            let mut twins: Vec<&PodFacts> = self.at(*index).filter(|pod| pod.is_active()).collect();
            twins.sort_by(|a, b| a.victim_order().cmp(&b.victim_order()));
            twins.pop();
            misplaced.extend(twins);
        }
        misplaced
    }

    /// How many failures there were after the last success, up to a number that no delay depends on, and when the last
    /// of them finished. All from what pods say of themselves: a restart of ours forgets nothing that still exists.
    pub fn failures(&self, job: &JobFacts) -> (u32, Option<Timestamp>) {
        let since = self.last_success.map_or(Bound::Unbounded, |last| {
            Bound::Included((later(last, SignedDuration::from_nanos(1)), Uid::MIN))
        });
        let counts = |entry: &Entry| {
            let has_place = !job.is_indexed() || job.has_index(entry.facts.index);
            !entry.is_discarded && has_place
        };
        let entry = |uid: &Uid| self.slots.get(uid).expect("a pod in a set is known");
        let failed =
            self.failed.range((since.clone(), Bound::Unbounded)).rev().filter(|(_, uid)| counts(entry(uid)));
        let terminating = self.terminating.range((since, Bound::Unbounded)).rev().filter(|(_, uid)| {
            let entry = entry(uid);
            !job.only_replaces_failed() && (entry.facts.has_finalizer || entry.is_let_go()) && counts(entry)
        });
        let mut times: Vec<Timestamp> = failed
            .take(FAILURES_REMEMBERED)
            .chain(terminating.take(FAILURES_REMEMBERED))
            .map(|(time, _)| *time)
            .chain(self.ghosts.iter().copied())
            .collect();
        times.sort_unstable();
        (u32::try_from(times.len()).unwrap_or(u32::MAX), times.last().copied())
    }

    /// The attempt that a new pod is, of `index` if the Job is Indexed: the first that was never seen.
    pub fn next_attempt(&self, index: Option<u32>, from: u32) -> u32 {
        let Some(index) = index else { return self.attempts.next_absent(from) };
        let mut attempt = from.max(self.spent_attempts.get(&index).copied().unwrap_or(0));
        while self.at(index).any(|pod| pod.attempt == Some(attempt)) {
            attempt += 1;
        }
        attempt
    }

    fn facts(&self, slot: u32) -> &PodFacts {
        &self.slots.at(slot).facts
    }

    fn known(&self, uid: &Uid) -> &PodFacts {
        self.get(uid).expect("a pod in a set is known")
    }

    fn enter(&mut self, facts: PodFacts) {
        let (uid, standing) = (facts.uid.clone(), Standing::of(&facts));
        let entry =
            Entry { facts, is_discarded: false, is_ended: false, is_accounted: false, is_releasing: false };
        let slot = self.slots.insert(uid.clone(), entry);
        if let Some(index) = standing.place() {
            self.placed.insert((index, uid.clone()), slot);
        }
        self.link(&uid, slot, &standing);
    }

    /// Changes one pod, and the sums and orders that its change concerns.
    fn change(&mut self, slot: u32, change: impl FnOnce(&mut Entry)) {
        let entry = self.slots.at_mut(slot);
        let old = Standing::of(&entry.facts);
        change(entry);
        let new = Standing::of(&entry.facts);
        if old == new {
            return;
        }
        let uid = entry.facts.uid.clone();
        self.unlink(&uid, slot, &old);
        if old.place() != new.place() {
            old.place().map(|index| self.placed.remove(&(index, uid.clone())));
            new.place().map(|index| self.placed.insert((index, uid.clone()), slot));
        }
        self.link(&uid, slot, &new);
    }

    fn remove(&mut self, uid: &Uid) -> bool {
        let Some(slot) = self.slots.find(uid) else { return false };
        let standing = Standing::of(self.facts(slot));
        self.unlink(uid, slot, &standing);
        if let Some(index) = standing.place() {
            self.placed.remove(&(index, uid.clone()));
        }
        let Some((_, entry)) = self.slots.remove(uid) else { return false };
        let pod = &entry.facts;
        if let (Some(index), Some(attempt)) = (pod.index, pod.attempt) {
            self.spend(index, attempt);
        }
        let has_failed = pod.phase == Phase::Failed || (pod.is_terminating() && entry.is_let_go());
        if has_failed && !entry.is_discarded && pod.claim == Claim::Ours {
            self.ghosts.push(pod.finished_at);
            self.trim_ghosts();
        }
        true
    }

    fn spend(&mut self, index: u32, attempt: u32) {
        if attempt < ATTEMPT_MAX {
            let spent = self.spent_attempts.entry(index).or_default();
            *spent = (*spent).max(attempt + 1);
        }
    }

    fn note_attempt(&mut self, pod: &PodFacts) {
        match (pod.index, pod.attempt) {
            (None, Some(attempt)) => _ = self.attempts.insert(attempt),
            // It is not found at its index, and still has the name.
            (Some(index), Some(attempt)) if pod.claim != Claim::Ours => self.spend(index, attempt),
            (_, _) => {}
        }
        if pod.phase == Phase::Succeeded && pod.claim == Claim::Ours {
            self.last_success = self.last_success.max(Some(pod.finished_at));
            self.trim_ghosts();
        }
    }

    fn trim_ghosts(&mut self) {
        if self.ghosts.is_empty() {
            return;
        }
        let last = self.last_success;
        self.ghosts.retain(|time| last.is_none_or(|last| *time > last));
        self.ghosts.sort_unstable();
        let surplus = self.ghosts.len().saturating_sub(FAILURES_REMEMBERED);
        self.ghosts.drain(..surplus);
    }

    fn link(&mut self, uid: &Uid, slot: u32, pod: &Standing) {
        match pod.claim {
            Claim::Ours => self.link_ours(uid, slot, pod),
            Claim::Stray => _ = self.strays.insert(uid.clone()),
            Claim::Orphan if !pod.is_deleted => _ = self.orphans.insert(uid.clone()),
            Claim::Orphan | Claim::Foreign => {}
        }
    }

    fn unlink(&mut self, uid: &Uid, slot: u32, pod: &Standing) {
        match pod.claim {
            Claim::Ours => self.unlink_ours(uid, slot, pod),
            Claim::Stray => _ = self.strays.remove(uid),
            Claim::Orphan | Claim::Foreign => _ = self.orphans.remove(uid),
        }
    }

    fn link_ours(&mut self, uid: &Uid, slot: u32, pod: &Standing) {
        self.totals.restarts += u64::from(pod.restarts);
        if pod.is_held {
            self.totals.held += 1;
            if pod.state != State::Active {
                self.held.insert((pod.index, uid.clone()), slot);
            }
        }
        match pod.state {
            State::Active => self.link_active(uid, slot, pod),
            State::Terminating => {
                self.totals.terminating += 1;
                self.terminating.insert((pod.finished_at, uid.clone()));
                self.ending.extend(pod.index);
            }
            State::Failed => {
                self.failed.insert((pod.finished_at, uid.clone()));
                if pod.is_condemning {
                    self.condemning.insert(uid.clone());
                }
            }
            State::Succeeded => {}
        }
    }

    fn link_active(&mut self, uid: &Uid, slot: u32, pod: &Standing) {
        self.totals.active += 1;
        self.totals.ready += u32::from(pod.is_ready);
        self.active.insert(slot);
        match pod.index {
            None => _ = self.unplaced.insert(uid.clone()),
            Some(index) if !self.busy.insert(index) => _ = self.crowded.insert(index),
            Some(_) => {}
        }
    }

    fn unlink_ours(&mut self, uid: &Uid, slot: u32, pod: &Standing) {
        self.totals.restarts -= u64::from(pod.restarts);
        if pod.is_held {
            self.totals.held -= 1;
            if pod.state != State::Active {
                self.held.remove(&(pod.index, uid.clone()));
            }
        }
        match pod.state {
            State::Active => self.unlink_active(uid, slot, pod),
            State::Terminating => {
                self.totals.terminating -= 1;
                self.terminating.remove(&(pod.finished_at, uid.clone()));
                let is_last =
                    |index: &u32| !self.at(*index).any(|other| other.uid != *uid && other.is_terminating());
                if let Some(index) = pod.index.filter(is_last) {
                    self.ending.remove(index);
                }
            }
            State::Failed => {
                self.failed.remove(&(pod.finished_at, uid.clone()));
                self.condemning.remove(uid);
            }
            State::Succeeded => {}
        }
    }

    fn unlink_active(&mut self, uid: &Uid, slot: u32, pod: &Standing) {
        self.totals.active -= 1;
        self.totals.ready -= u32::from(pod.is_ready);
        self.active.remove(slot);
        let Some(index) = pod.index else {
            self.unplaced.remove(uid);
            return;
        };
        if !self.crowded.contains(&index) {
            self.busy.remove(index);
        } else if self.at(index).filter(|other| other.uid != *uid && other.is_active()).count() == 1 {
            self.crowded.remove(&index);
        }
    }
}
