//! What a new list of all objects says about those that are not in it.

use std::collections::{HashSet, VecDeque};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_job::Uid;

use super::{Home, Index, Registry, uid_of};
use crate::wire::revision;

/// A list in progress.
#[derive(Debug)]
pub(super) struct Listing {
    seen: HashSet<Uid>,
    /// The list is at least as new as this.
    newest: u64,
}

impl Listing {
    /// A list that is asked for when `newest` is the newest revision known.
    pub(super) fn from(newest: u64) -> Self {
        Self { seen: HashSet::new(), newest }
    }

    /// The object is in the list.
    pub(super) fn saw(&mut self, meta: &ObjectMeta) {
        self.seen.insert(uid_of(meta));
        self.newest = self.newest.max(revision(meta));
    }

    /// The object would be in the list if it were still there. One that is newer than the list may be just made.
    fn misses(&self, uid: &Uid, revision: u64) -> bool {
        revision <= self.newest && !self.seen.contains(uid)
    }
}

/// The UIDs of the last few thousand Jobs that are gone: pods that name one of them need no further question.
#[derive(Debug, Default)]
pub(super) struct Recent {
    order: VecDeque<Uid>,
    uids: HashSet<Uid>,
}

impl Recent {
    const REMEMBERED: usize = 10_000;

    pub(super) fn insert(&mut self, uid: Uid) {
        if !self.uids.insert(uid.clone()) {
            return;
        }
        self.order.push_back(uid);
        if self.order.len() > Self::REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.uids.remove(&oldest);
        }
    }

    pub(super) fn contains(&self, uid: &Uid) -> bool {
        self.uids.contains(uid)
    }
}

impl Index {
    pub(super) fn highest_job(&self) -> u64 {
        self.jobs.values().map(|slot| slot.known.lock().view.job().revision).max().unwrap_or(0)
    }

    pub(super) fn highest_pod(&self) -> u64 {
        let in_views = self
            .jobs
            .values()
            .filter_map(|slot| slot.known.lock().view.pods().iter().map(|facts| facts.revision).max());
        let ownerless = self.ownerless.values().flatten().map(|(_, pod)| revision(&pod.metadata));
        let parked =
            self.parked.values().flat_map(|parked| parked.pods.values()).map(|pod| revision(&pod.metadata));
        in_views.chain(ownerless).chain(parked).max().unwrap_or(0)
    }

    /// Jobs that are not there any more.
    pub(super) fn vanished_jobs(&self, listing: &Listing) -> Vec<Uid> {
        let is_gone =
            |slot: &super::Slot| listing.misses(&slot.key.uid, slot.known.lock().view.job().revision);
        let ours = self.jobs.values().filter(|slot| is_gone(slot)).map(|slot| &slot.key.uid);
        let elsewhere = self.elsewhere.iter().filter(|uid| listing.misses(uid, 0));
        let mut gone: Vec<Uid> = ours.chain(elsewhere).cloned().collect();
        gone.sort_unstable();
        gone
    }
}

impl Registry {
    /// Forgets pods that are not there any more.
    pub(super) fn drop_vanished_pods(&self, index: &mut Index, listing: &Listing) {
        for (uid, slot) in &index.jobs {
            let mut known = slot.known.lock();
            known.view.listed(listing.newest);
            let misses = |facts: &&windlass_job::PodFacts| listing.misses(&facts.uid, facts.revision);
            let gone: Vec<Uid> =
                known.view.pods().iter().filter(misses).map(|facts| facts.uid.clone()).collect();
            if gone.is_empty() {
                continue;
            }
            for pod in gone {
                known.forget_pod(&pod);
                if index.homes.get(&pod) == Some(&Home::Job(uid.clone())) {
                    index.homes.remove(&pod);
                }
            }
            self.jobs_due.add(uid.clone());
        }
        let ownerless = index.ownerless.values().flatten();
        let parked = index.parked.values().flat_map(|parked| &parked.pods);
        let missed =
            ownerless.chain(parked).filter(|(uid, pod)| listing.misses(uid, revision(&pod.metadata)));
        let gone: Vec<Uid> = missed.map(|(uid, _)| uid.clone()).collect();
        for uid in gone {
            self.leave_home(index, &uid, None);
        }
        let held: Vec<Uid> =
            index.terminated_held.iter().filter(|uid| listing.misses(uid, 0)).cloned().collect();
        for uid in held {
            self.note_terminated_held(index, &uid, false);
        }
    }
}
