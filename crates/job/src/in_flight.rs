//! Our writes that are on their way: not known to be done, nor to have failed.
//!
//! A decision need not wait for them. A pod that is being made counts as if it were there, a finalizer that is being
//! released is not released again, and there is one status write at a time. Everything else (deletions, adoptions, a
//! status that announces something) is waited for: what comes after it depends on what became of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use windlass_api::indexes::IndexSet;

use crate::decision::{Action, NewPod, StatusWrite};
use crate::job_facts::Status;
use crate::pod_facts::{Claim, PodFacts};
use crate::uid::Uid;

/// Writes on their way.
#[derive(Clone, Debug, Default)]
pub struct InFlight {
    /// Pods that are being made, by name.
    creations: BTreeMap<String, Creation>,
    /// Of those that no watch has shown yet: how many, and their indexes, or attempts if the Job is not Indexed.
    unseen: u32,
    unseen_indexes: IndexSet,
    unseen_attempts: IndexSet,
    /// Finalizers that are being released. The roster knows which.
    releases: usize,
    status: Option<Writing>,
    /// Writes that nothing may overtake.
    others: u32,
}

/// A pod that is being made.
#[derive(Clone, Debug)]
struct Creation {
    since: Timestamp,
    index: Option<u32>,
    attempt: u32,
    sight: Sight,
}

/// What the watch has shown of a pod before its creation was answered.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Sight {
    Unseen,
    Seen(Uid),
    Gone(Uid),
}

#[derive(Clone, Copy, Debug)]
struct Writing {
    since: Timestamp,
    /// It says more than numbers: a verdict, an end, a suspension.
    is_telling: bool,
}

impl InFlight {
    /// Nothing can be decided before some of them are answered.
    pub(crate) fn blocks(&self) -> bool {
        self.others > 0 || self.status.is_some_and(|writing| writing.is_telling)
    }

    /// The status is being written.
    pub(crate) fn writes_status(&self) -> bool {
        self.status.is_some()
    }

    /// Pods are being made or released.
    pub(crate) fn acts_on_pods(&self) -> bool {
        !self.creations.is_empty() || self.releases > 0
    }

    /// How many pods are being made.
    pub(crate) fn creations(&self) -> usize {
        self.creations.len()
    }

    /// How many pods are being made that no watch has shown.
    pub(crate) fn unseen(&self) -> u32 {
        self.unseen
    }

    /// The indexes of those.
    pub(crate) fn unseen_indexes(&self) -> &IndexSet {
        &self.unseen_indexes
    }

    /// The first attempt of a NonIndexed Job from this one on that is not being made.
    pub(crate) fn next_attempt(&self, from: u32) -> u32 {
        self.unseen_attempts.next_absent(from)
    }

    /// How many finalizers are being released.
    pub(crate) fn releases(&self) -> usize {
        self.releases
    }

    /// The action is about to be performed, on a Job of this status.
    pub(crate) fn begin(&mut self, action: &Action, status: &Status, now: Timestamp) {
        match action {
            Action::Create(new) => self.begin_creation(new, now),
            Action::Release(_) => self.releases += 1,
            Action::WriteStatus(write) => {
                self.status = Some(Writing { since: now, is_telling: is_telling(write, status) });
            }
            Action::Adopt(_) | Action::Disown(_) | Action::Delete(_) | Action::Remove(..) => self.others += 1,
            Action::Emit(_) => self.others += 1,
        }
    }

    fn begin_creation(&mut self, new: &NewPod, since: Timestamp) {
        let creation = Creation { since, index: new.index, attempt: new.attempt, sight: Sight::Unseen };
        if self.creations.insert(new.name.clone(), creation).is_none() {
            self.unseen += 1;
            match new.index {
                Some(index) => _ = self.unseen_indexes.insert(index),
                None => _ = self.unseen_attempts.insert(new.attempt),
            }
        }
    }

    /// The action is answered, or given up; since when it was on its way, if it is a status write or makes a pod.
    pub(crate) fn end(&mut self, action: &Action) -> Option<Timestamp> {
        match action {
            Action::Create(new) => {
                let creation = self.creations.remove(&new.name)?;
                self.sighted(&creation);
                return Some(creation.since);
            }
            Action::Release(_) => self.releases = self.releases.saturating_sub(1),
            Action::WriteStatus(_) => return self.status.take().map(|writing| writing.since),
            Action::Adopt(_) | Action::Disown(_) | Action::Delete(_) | Action::Remove(..) => {
                self.others = self.others.saturating_sub(1);
            }
            Action::Emit(_) => self.others = self.others.saturating_sub(1),
        }
        None
    }

    /// The creation is not unseen any more.
    fn sighted(&mut self, creation: &Creation) {
        if creation.sight != Sight::Unseen {
            return;
        }
        self.unseen -= 1;
        match creation.index {
            Some(index) => _ = self.unseen_indexes.remove(index),
            None => _ = self.unseen_attempts.remove(creation.attempt),
        }
    }

    /// The watch shows a pod.
    pub(crate) fn saw(&mut self, pod: &PodFacts) {
        if pod.claim == Claim::Ours && !self.creations.is_empty() {
            self.look_at(&pod.name, Sight::Seen(pod.uid.clone()));
        }
    }

    /// The watch says that a pod is gone.
    pub(crate) fn lost(&mut self, pod: &PodFacts) {
        if let Some(Creation { sight: Sight::Seen(uid), .. }) = self.creations.get(&*pod.name)
            && *uid == pod.uid
        {
            self.look_at(&pod.name, Sight::Gone(pod.uid.clone()));
        }
    }

    fn look_at(&mut self, name: &str, sight: Sight) {
        if let Some(creation) = self.creations.get_mut(name) {
            let before = std::mem::replace(&mut creation.sight, sight);
            let before = Creation { sight: before, ..creation.clone() };
            self.sighted(&before);
        }
    }

    /// The watch has shown the pod of this creation, and that it is gone, before the creation was answered.
    pub(crate) fn is_gone(&self, name: &str, uid: &Uid) -> bool {
        let creation = self.creations.get(name);
        creation.is_some_and(|creation| matches!(&creation.sight, Sight::Gone(gone) if gone == uid))
    }
}

fn is_telling(write: &StatusWrite, before: &Status) -> bool {
    write.finishes || write.status.conditions != before.conditions
}
