//! Pods that wait for a node: those whose turn it is, those that were rejected and wait for something to change, and
//! those that are kept back for a while.
//!
//! ```text
//!            put                      first, and it does not fit
//!   ───────────────────▶ active ─────────────────────────────────▶ resting
//!                          ▲  ▲      a change that may help          │
//!              its time    │  └──────────────────────────────────────┤ long enough ago
//!              has come    │                                         │
//!                          └──────────────── backing off ◀───────────┘ too soon
//! ```
//!
//! Pods that ask for the same fit on the same nodes. They are a group: only its first pod is tried, and when it does
//! not fit, the whole group rests. Ten thousand equal pods in front of a full node cost one try a change. Pods that
//! look at other pods, or for which room is being made, are groups of their own.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Pod, PodCondition};

use crate::fit::Filter;
use crate::pod::{Demand, PodFacts, Uid};

/// upstream: podInitialBackoffSeconds and podMaxBackoffSeconds.
const BACKOFF_MAX_S: i64 = 10;
/// upstream: podMaxInUnschedulablePodsDuration. Hints are not perfect: so long, and a pod is tried anyway.
pub const REST_MAX: SignedDuration = SignedDuration::from_mins(5);
/// In a larger group only the first pod hears of every new reason.
const RETOLD_MAX: usize = 100;

type Key = Arc<str>;

/// Why a pod is not scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason of its condition.
    pub reason: &'static str,
    /// The message.
    pub message: String,
}

/// The order of the queue: priority, the highest first, then how long they have been waiting.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    priority: Reverse<i32>,
    since: Timestamp,
    /// Pods of one moment come in the order in which they were seen.
    seen: u64,
}

/// A pod that waits.
#[derive(Clone, Debug)]
pub struct Waiting {
    /// The pod.
    pub pod: Arc<PodFacts>,
    /// The node on which room is made for it.
    pub nominated: Option<String>,
    /// What it is to be told.
    pub refusal: Option<Arc<Refusal>>,
    /// Since when it has had a `PodScheduled=False` condition.
    pub refused_since: Option<Timestamp>,
    /// When it came into the queue.
    pub came: Timestamp,
    /// What it was told, and the node that it was told, as far as we know.
    told: Option<Arc<Refusal>>,
    told_node: Option<String>,
    /// `status.nominatedNodeName` as it was last shown.
    shown_node: Option<String>,
    /// Failures of the API server in a row.
    failures: u32,
    /// Tries before it came into its group.
    tries_before: u32,
    turn: Turn,
    key: Key,
}

impl Waiting {
    /// Whether the API server does not know yet what there is to tell.
    pub fn is_to_be_told(&self) -> bool {
        (self.refusal.is_some() && self.refusal != self.told) || self.nominated != self.told_node
    }

    /// It is being told: its refusal, if that is news, and its node, if that is.
    pub fn tell(&mut self, now: Timestamp) -> (Option<Arc<Refusal>>, Option<Option<String>>) {
        let refusal = self.refusal.clone().filter(|refusal| self.told.as_ref() != Some(refusal));
        let node = (self.nominated != self.told_node).then(|| self.nominated.clone());
        if refusal.is_some() {
            self.refused_since.get_or_insert(now);
            self.told.clone_from(&refusal);
        }
        self.told_node.clone_from(&self.nominated);
        (refusal, node)
    }
}

/// Where a group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Active,
    BackingOff { until: Timestamp },
    Resting { since: Timestamp },
}

#[derive(Debug)]
struct Group {
    pods: BTreeMap<Turn, Waiting>,
    /// Pods that were never told anything.
    untold: BTreeSet<Turn>,
    stage: Stage,
    /// When it was last tried: pods that failed come after equals that were not tried since.
    tried: Option<Timestamp>,
    tries: u32,
    /// It is tried again because it has been resting for long, not because something has changed.
    is_old: bool,
    refusal: Option<Arc<Refusal>>,
    filters: BTreeSet<Filter>,
}

impl Group {
    fn turn(&self) -> Option<Turn> {
        let (turn, _) = self.pods.first_key_value()?;
        let since = self.tried.map_or(turn.since, |tried| turn.since.max(tried));
        Some(Turn { since, ..turn.clone() })
    }

    fn backoff_ends(&self) -> Timestamp {
        self.tried.map_or(Timestamp::MIN, |tried| tried + backoff(self.tries))
    }
}

/// 1, 2, 4, 8, 10, 10, … seconds.
fn backoff(tries: u32) -> SignedDuration {
    let seconds = 1_i64.checked_shl(tries.saturating_sub(1)).unwrap_or(BACKOFF_MAX_S);
    SignedDuration::from_secs(seconds.clamp(1, BACKOFF_MAX_S))
}

/// How many pods there are where.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Counts {
    /// Those whose turn it is.
    pub active: usize,
    /// Those that are kept back for a while.
    pub backing_off: usize,
    /// Those that wait for a change.
    pub resting: usize,
}

impl Counts {
    fn of(&mut self, stage: Stage) -> &mut usize {
        match stage {
            Stage::Active => &mut self.active,
            Stage::BackingOff { .. } => &mut self.backing_off,
            Stage::Resting { .. } => &mut self.resting,
        }
    }
}

/// What became of the first pod when it was tried and did not fit.
#[derive(Clone, Debug)]
pub struct Rest {
    /// What it is to be told.
    pub refusal: Refusal,
    /// Who rejected it.
    pub filters: BTreeSet<Filter>,
    /// Whether pods that ask for the same are rejected as well.
    pub is_shared: bool,
    /// The node on which room is made for it; `None` leaves it as it is.
    pub nominated: Option<Option<String>>,
}

/// All pods that wait.
#[derive(Debug, Default)]
pub struct Queue {
    groups: HashMap<Key, Group>,
    active: BTreeSet<(Turn, Key)>,
    backing_off: BTreeSet<(Timestamp, Turn, Key)>,
    resting: BTreeSet<Key>,
    /// Pods that the API server failed to bind, and until when they are kept back.
    failed: BTreeMap<(Timestamp, u64), Waiting>,
    /// Where a pod stands.
    places: HashMap<Uid, Place>,
    counts: Counts,
    seen: u64,
    /// What the latest newcomer asked for, and the key of that: pods of a Job ask for the same.
    latest: Option<(Arc<Demand>, Key)>,
}

#[derive(Clone, Debug)]
enum Place {
    Group(Key, Turn),
    Failed(Timestamp, u64),
}

impl Queue {
    /// Puts a pod into the queue, or brings it up to date. `retries` says that a group that rests is to be tried again
    /// for a newcomer. Returns whether there is something to tell it.
    pub fn put(&mut self, facts: Arc<PodFacts>, pod: &Pod, retries: bool, now: Timestamp) -> bool {
        let uid = facts.uid.clone();
        if let Some(waiting) = self.get_mut(&uid) {
            let is_relabelled = waiting.pod.labels != facts.labels;
            waiting.show(Shown::of(pod));
            if waiting.pod.demand == facts.demand {
                let looks_around = !facts.demand.is_of_node_only();
                waiting.pod = Arc::new(PodFacts { demand: waiting.pod.demand.clone(), ..(*facts).clone() });
                let is_to_be_told = waiting.is_to_be_told();
                if is_relabelled && looks_around {
                    self.activate(&uid);
                }
                return is_to_be_told;
            }
        }
        let waiting = match self.remove(&uid) {
            Some(before) => {
                let turn = Turn { priority: Reverse(facts.priority()), ..before.turn };
                Waiting { key: self.key(&facts), turn, pod: facts, ..before }
            }
            None => self.newcomer(facts, Shown::of(pod), now),
        };
        self.join(waiting, retries)
    }

    /// Equal for pods that fit on the same nodes.
    fn key(&mut self, pod: &PodFacts) -> Key {
        if !pod.demand.is_of_node_only() {
            return own_key(&pod.uid);
        }
        if let Some((demand, key)) = &self.latest
            && *demand == pod.demand
        {
            return key.clone();
        }
        let key: Key = format!("{:?}", pod.demand).into();
        self.latest = Some((pod.demand.clone(), key.clone()));
        key
    }

    fn newcomer(&mut self, pod: Arc<PodFacts>, shown: Shown, now: Timestamp) -> Waiting {
        self.seen += 1;
        let turn = Turn { priority: Reverse(pod.priority()), since: pod.created, seen: self.seen };
        Waiting {
            key: self.key(&pod),
            turn,
            pod,
            nominated: shown.node.clone(),
            told_node: shown.node.clone(),
            shown_node: shown.node,
            refusal: None,
            refused_since: shown.refused_since,
            told: shown.refusal.map(Arc::new),
            came: now,
            failures: 0,
            tries_before: 0,
        }
    }

    /// Puts a pod into its group. It hears at once why it has to wait if the group rests.
    fn join(&mut self, mut waiting: Waiting, retries: bool) -> bool {
        let key = waiting.key.clone();
        let uid = waiting.pod.uid.clone();
        self.unlist(&key);
        let group = self.groups.entry(key.clone()).or_insert_with(|| Group {
            pods: BTreeMap::new(),
            untold: BTreeSet::new(),
            stage: Stage::Active,
            tried: None,
            tries: 0,
            is_old: false,
            refusal: None,
            filters: BTreeSet::new(),
        });
        if retries {
            group.stage = Stage::Active;
        }
        // One demand for all: pods of a large Job wait in their thousands.
        if let Some((_, first)) = group.pods.first_key_value() {
            let demand = first.pod.demand.clone();
            waiting.pod = Arc::new(PodFacts { demand, ..(*waiting.pod).clone() });
        }
        waiting.tries_before = group.tries;
        if matches!(group.stage, Stage::Resting { .. }) {
            waiting.refusal.clone_from(&group.refusal);
        } else {
            waiting.refusal = None;
            if waiting.told.is_none() {
                group.untold.insert(waiting.turn.clone());
            }
        }
        let is_to_be_told = waiting.is_to_be_told();
        self.places.insert(uid, Place::Group(key.clone(), waiting.turn.clone()));
        group.pods.insert(waiting.turn.clone(), waiting);
        self.list(&key);
        is_to_be_told
    }

    /// A pod that waits.
    pub fn get_mut(&mut self, uid: &str) -> Option<&mut Waiting> {
        match self.places.get(uid)? {
            Place::Group(key, turn) => self.groups.get_mut(key)?.pods.get_mut(turn),
            Place::Failed(until, seen) => self.failed.get_mut(&(*until, *seen)),
        }
    }

    /// Takes a pod out.
    pub fn remove(&mut self, uid: &str) -> Option<Waiting> {
        match self.places.remove(uid)? {
            Place::Failed(until, seen) => {
                self.counts.backing_off -= 1;
                self.failed.remove(&(until, seen))
            }
            Place::Group(key, turn) => {
                self.unlist(&key);
                let group = self.groups.get_mut(&key)?;
                let waiting = group.pods.remove(&turn);
                group.untold.remove(&turn);
                if group.pods.is_empty() {
                    self.groups.remove(&key);
                }
                self.list(&key);
                waiting
            }
        }
    }

    /// The pod whose turn it is. When nobody else is there, those that are kept back need not wait.
    pub fn first(&mut self, now: Timestamp) -> Option<&Waiting> {
        while let Some((until, _, key)) = self.backing_off.first()
            && (*until <= now || self.active.is_empty())
        {
            let key = key.clone();
            self.set_stage(&key, Stage::Active);
        }
        let (_, key) = self.active.first()?;
        self.groups.get(key)?.pods.first_key_value().map(|(_, waiting)| waiting)
    }

    /// How often the first pod was tried, this time included.
    pub fn tries(&self, uid: &str) -> u32 {
        let Some(Place::Group(key, turn)) = self.places.get(uid) else { return 1 };
        let Some(group) = self.groups.get(key) else { return 1 };
        let before = group.pods.get(turn).map_or(0, |waiting| waiting.tries_before);
        group.tries.saturating_sub(before) + 1
    }

    /// The first pod does not fit: it rests until a change may help, and those like it with it if they share its fate.
    /// Returns whom there is something to tell.
    pub fn rest_first(&mut self, rest: Rest, now: Timestamp) -> Vec<Uid> {
        let Some((_, key)) = self.active.first().cloned() else { return Vec::new() };
        let key = if rest.is_shared { key } else { self.part(&key) };
        self.unlist(&key);
        let Some(group) = self.groups.get_mut(&key) else { return Vec::new() };
        group.stage = Stage::Resting { since: now };
        group.is_old = false;
        group.tried = Some(now);
        group.tries = group.tries.saturating_add(1);
        group.filters = rest.filters;
        let refusal = match &group.refusal {
            Some(before) if **before == rest.refusal => before.clone(),
            _ => Arc::new(rest.refusal),
        };
        group.refusal = Some(refusal.clone());
        let mut told: BTreeSet<Turn> = std::mem::take(&mut group.untold);
        told.extend(group.pods.first_key_value().map(|(turn, _)| turn.clone()));
        if group.pods.len() <= RETOLD_MAX {
            told.extend(group.pods.keys().cloned());
        }
        let mut uids = Vec::new();
        for turn in told {
            let Some(waiting) = group.pods.get_mut(&turn) else { continue };
            waiting.refusal = Some(refusal.clone());
            if let Some(nominated) = &rest.nominated {
                waiting.nominated.clone_from(nominated);
            }
            if waiting.is_to_be_told() {
                uids.push(waiting.pod.uid.clone());
            }
        }
        self.list(&key);
        uids
    }

    /// Makes the first pod of a group one of its own, unless it is alone.
    fn part(&mut self, key: &Key) -> Key {
        let Some(group) = self.groups.get(key).filter(|group| group.pods.len() > 1) else {
            return key.clone();
        };
        let tries = group.tries;
        let Some((_, first)) = group.pods.first_key_value() else { return key.clone() };
        let uid = first.pod.uid.clone();
        let Some(mut waiting) = self.remove(&uid) else { return key.clone() };
        waiting.key = own_key(&uid);
        let key = waiting.key.clone();
        self.join(waiting, false);
        if let Some(group) = self.groups.get_mut(&key) {
            group.tries = tries;
        }
        key
    }

    /// Something has changed. Groups that rest, and that it `may_help`, are tried again. Returns how many pods that are.
    pub fn wake(
        &mut self,
        now: Timestamp,
        mut may_help: impl FnMut(&Waiting, &BTreeSet<Filter>) -> bool,
    ) -> usize {
        let mut count = 0;
        let mut woken = Vec::new();
        for key in &self.resting {
            let Some(group) = self.groups.get(key) else { continue };
            let Some((_, first)) = group.pods.first_key_value() else { continue };
            if may_help(first, &group.filters) {
                count += group.pods.len();
                let until = group.backoff_ends();
                let stage = if until <= now { Stage::Active } else { Stage::BackingOff { until } };
                woken.push((key.clone(), stage));
            }
        }
        for (key, stage) in woken {
            self.set_stage(&key, stage);
        }
        count
    }

    /// Hints are not perfect: groups that have been resting for long are tried again. Returns how many pods that are.
    pub fn wake_old(&mut self, now: Timestamp) -> usize {
        let is_old = |group: &Group| match group.stage {
            Stage::Resting { since } => now.duration_since(since) >= REST_MAX,
            Stage::Active | Stage::BackingOff { .. } => false,
        };
        let old: Vec<Key> =
            self.groups.iter().filter(|(_, group)| is_old(group)).map(|(key, _)| key.clone()).collect();
        let count = old.iter().filter_map(|key| self.groups.get(key)).map(|group| group.pods.len()).sum();
        for key in &old {
            self.set_stage(key, Stage::Active);
            if let Some(group) = self.groups.get_mut(key) {
                group.is_old = true;
            }
        }
        count
    }

    /// Whether a pod is only tried again because it has been resting for long.
    pub fn is_old(&self, uid: &str) -> bool {
        let Some(Place::Group(key, _)) = self.places.get(uid) else { return false };
        self.groups.get(key).is_some_and(|group| group.is_old)
    }

    /// A pod is to be tried again now.
    pub fn activate(&mut self, uid: &str) {
        if let Some(Place::Group(key, _)) = self.places.get(uid).cloned() {
            self.set_stage(&key, Stage::Active);
        }
    }

    /// Whether a pod is about to be tried.
    pub fn is_active(&self, uid: &str) -> bool {
        match self.places.get(uid) {
            Some(Place::Group(key, _)) => {
                self.groups.get(key).is_some_and(|group| group.stage == Stage::Active)
            }
            Some(Place::Failed(..)) | None => false,
        }
    }

    /// The API server failed to bind a pod that was taken out: it is kept back.
    pub fn keep_back(&mut self, mut waiting: Waiting, refusal: Refusal, now: Timestamp) -> bool {
        waiting.failures = waiting.failures.saturating_add(1);
        waiting.refusal = Some(Arc::new(refusal));
        waiting.nominated = None;
        let is_to_be_told = waiting.is_to_be_told();
        let place = (now + backoff(waiting.failures), waiting.turn.seen);
        self.places.insert(waiting.pod.uid.clone(), Place::Failed(place.0, place.1));
        self.counts.backing_off += 1;
        self.failed.insert(place, waiting);
        is_to_be_told
    }

    /// When the next pod that was kept back is due.
    pub fn next_due(&self) -> Option<Timestamp> {
        self.failed.first_key_value().map(|((until, _), _)| *until)
    }

    /// Lets pods in whose time has come. Returns how many.
    pub fn let_in(&mut self, now: Timestamp) -> usize {
        let mut count = 0;
        while let Some(((until, _), _)) = self.failed.first_key_value()
            && *until <= now
            && let Some((_, waiting)) = self.failed.pop_first()
        {
            self.counts.backing_off -= 1;
            count += 1;
            self.join(waiting, true);
        }
        count
    }

    /// The UIDs of all pods that wait.
    pub fn uids(&self) -> impl Iterator<Item = &Uid> {
        self.places.keys()
    }

    /// How many pods are where.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// How many pods each filter has rejected that now rest.
    pub fn rejected(&self) -> BTreeMap<Filter, usize> {
        let mut counts = BTreeMap::new();
        for group in self.resting.iter().filter_map(|key| self.groups.get(key)) {
            for filter in &group.filters {
                *counts.entry(*filter).or_default() += group.pods.len();
            }
        }
        counts
    }

    fn set_stage(&mut self, key: &Key, stage: Stage) {
        self.unlist(key);
        if let Some(group) = self.groups.get_mut(key) {
            group.stage = stage;
        }
        self.list(key);
    }

    /// Before a group changes.
    fn unlist(&mut self, key: &Key) {
        let Some(group) = self.groups.get(key) else { return };
        let Some(turn) = group.turn() else { return };
        *self.counts.of(group.stage) -= group.pods.len();
        match group.stage {
            Stage::Active => _ = self.active.remove(&(turn, key.clone())),
            Stage::BackingOff { until } => _ = self.backing_off.remove(&(until, turn, key.clone())),
            Stage::Resting { .. } => _ = self.resting.remove(key),
        }
    }

    /// After a group has changed.
    fn list(&mut self, key: &Key) {
        let Some(group) = self.groups.get(key) else { return };
        let Some(turn) = group.turn() else { return };
        *self.counts.of(group.stage) += group.pods.len();
        match group.stage {
            Stage::Active => _ = self.active.insert((turn, key.clone())),
            Stage::BackingOff { until } => _ = self.backing_off.insert((until, turn, key.clone())),
            Stage::Resting { .. } => _ = self.resting.insert(key.clone()),
        }
    }
}

/// Of a pod that is a group of its own. No demand looks like this.
fn own_key(uid: &str) -> Key {
    format!("uid {uid}").into()
}

/// What the API server shows of a pod that waits.
struct Shown {
    node: Option<String>,
    refusal: Option<Refusal>,
    refused_since: Option<Timestamp>,
}

impl Shown {
    fn of(pod: &Pod) -> Self {
        let status = pod.status.as_ref();
        let mut conditions = status.into_iter().flat_map(|status| status.conditions.iter().flatten());
        let is_refusal =
            |condition: &&PodCondition| condition.type_ == "PodScheduled" && condition.status == "False";
        let condition = conditions.find(is_refusal);
        let reason = |condition: &PodCondition| match condition.reason.as_deref() {
            Some("Unschedulable") => Some("Unschedulable"),
            Some("SchedulerError") => Some("SchedulerError"),
            _ => None,
        };
        let refusal = condition.and_then(|condition| {
            let message = condition.message.clone().unwrap_or_default();
            Some(Refusal { reason: reason(condition)?, message })
        });
        Self {
            node: status
                .and_then(|status| status.nominated_node_name.clone())
                .filter(|node| !node.is_empty()),
            refusal,
            refused_since: condition
                .and_then(|condition| condition.last_transition_time.as_ref())
                .map(|time| time.0),
        }
    }
}

impl Waiting {
    /// A newer view. What we wrote may not be in it yet; what somebody else wrote is news.
    fn show(&mut self, shown: Shown) {
        if shown.node != self.shown_node {
            self.nominated.clone_from(&shown.node);
            self.told_node.clone_from(&shown.node);
            self.shown_node = shown.node;
        }
        self.refused_since = shown.refused_since.or(self.refused_since);
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
