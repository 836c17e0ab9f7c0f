//! Everything that the watches have said: which Jobs there are, and which pod belongs where.
//!
//! ```text
//!            controller of the pod                      home of the pod
//!   a Job that is ours and known  ───────────────────>  that Job's view (as facts, about 200 bytes)
//!   a Job nobody knows            ───────────────────>  parked, until the Job is seen or known to be gone
//!   a Job of another controller   ───────────────────>  parked until that is gone; none if others see to it
//!   something else                ───────────────────>  none
//!   none                          ───────────────────>  ownerless; shown to every Job whose selector matches
//! ```
//!
//! UIDs identify everything: a Job or pod that is made again under the same name is another one.
//! Locks: the index first, then one slot. Workers lock only slots.

mod listing;
mod pods;
#[cfg(test)]
pub(super) mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::runtime::watcher::Event;
use parking_lot::Mutex;
use tokio::time::Instant;
use windlass_api::{Gates, names};
use windlass_job::memory::Memory;
use windlass_job::observation::Manages;
use windlass_job::{JobFacts, JobView, PodFacts, Uid};

use super::JobKey;
use super::orphans::Orphan;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::wire::{RawJob, SlimPod, is_held, revision};
use listing::{Listing, Recent};

/// One Job.
#[derive(Debug)]
pub(super) struct Slot {
    /// Its names.
    pub(super) key: JobKey,
    /// What is known of it.
    pub(super) known: Mutex<Known>,
}

/// What is known of a Job.
#[derive(Debug)]
pub(super) struct Known {
    /// The facts.
    pub(super) view: JobView,
    /// The Job as it was written, without its status, for new pods: a tenth of the typed one. A finished Job has no
    /// spec here, because it makes none.
    pub(super) source: Arc<RawJob>,
    /// Pods that have ended and that the status does not say so of yet, and since when we know.
    pub(super) ended: HashMap<Box<str>, Instant>,
    /// Verdicts that were told.
    pub(super) verdicts: BTreeSet<String>,
    /// What is remembered of its failed pods.
    pub(super) memory: Memory,
    /// The watch says that the Job is gone.
    pub(super) is_gone: bool,
    /// No look before this: looks at a large Job take a part of the time, however long each takes.
    pub(super) rests_until: Option<Instant>,
    /// The last look took so long that the next one is measured.
    pub(super) took_long: bool,
}

impl Known {
    /// Says whether it is news: the echo of our own write is not, nor is what no decision would be another for.
    fn observe_pod(&mut self, pod: &Pod) -> bool {
        let uid = uid_of(&pod.metadata);
        let known = self.view.pods().get(&uid);
        if known.is_some_and(|known| known.revision >= revision(&pod.metadata)) {
            return false;
        }
        let facts = PodFacts::from_pod(pod, self.view.job());
        let is_news = known.is_none_or(|known| !known.decides_like(&facts));
        if facts.phase.is_terminal() && facts.has_finalizer {
            self.ended.entry(facts.name.clone()).or_insert_with(Instant::now);
        } else if !self.view.pods().is_releasing(&facts.uid) {
            // Who releases it says when it is settled: the watch may be ahead of the answer.
            self.ended.remove(&facts.name);
        }
        self.memory.saw(pod, &facts);
        self.view.observe_pod(facts);
        is_news
    }

    fn forget_pod(&mut self, uid: &Uid) {
        if let Some(facts) = self.view.pods().get(uid).filter(|_| !self.view.pods().is_releasing(uid)) {
            self.ended.remove(&facts.name);
            self.memory.forget(&facts.name);
        }
        self.view.forget_pod(uid);
    }
}

/// Where a pod is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Home {
    Job(Uid),
    Ownerless(Arc<str>),
    Parked(Uid),
}

/// Pods whose Job is not known, by UID, and what they call it.
#[derive(Debug)]
pub(super) struct Parked {
    owner: JobKey,
    pods: BTreeMap<Uid, Box<Pod>>,
}

/// Everything that the watches have said.
#[derive(Debug)]
pub(super) struct Registry {
    /// Jobs to decide about.
    pub(super) jobs_due: Queue<Uid>,
    /// Pods, and owners of pods, to look into.
    pub(super) orphans_due: Queue<Orphan>,
    gates: Gates,
    manages: Manages,
    metrics: Metrics,
    index: Mutex<Index>,
}

#[derive(Debug, Default)]
struct Index {
    jobs: HashMap<Uid, Arc<Slot>>,
    /// Our Jobs by namespace.
    namespaces: HashMap<Arc<str>, BTreeSet<Uid>>,
    /// Jobs of other controllers. A Job's manager never changes.
    elsewhere: HashSet<Uid>,
    /// Jobs known to be gone.
    gone_jobs: Recent,
    /// Jobs known to be gone whose pods others see to.
    gone_elsewhere: Recent,
    homes: HashMap<Uid, Home>,
    ownerless: HashMap<Arc<str>, BTreeMap<Uid, Box<Pod>>>,
    parked: HashMap<Uid, Parked>,
    /// Pods, whoever's, that have ended and hold the tracking finalizer: for a metric.
    terminated_held: HashSet<Uid>,
    job_listing: Option<Listing>,
    pod_listing: Option<Listing>,
}

impl Registry {
    pub(super) fn new(gates: Gates, manages: Manages, metrics: Metrics) -> Self {
        Self {
            jobs_due: Queue::new("job", &metrics),
            orphans_due: Queue::new("job_orphan_pod", &metrics),
            gates,
            manages,
            metrics,
            index: Mutex::default(),
        }
    }

    /// A Job of ours.
    pub(super) fn slot(&self, uid: &Uid) -> Option<Arc<Slot>> {
        self.index.lock().jobs.get(uid).cloned()
    }

    /// The watch of Jobs says something.
    pub(super) fn job_changed(&self, event: Event<RawJob>) {
        let mut index = self.index.lock();
        match event {
            Event::Init => index.job_listing = Some(Listing::from(index.highest_job())),
            Event::InitApply(job) => {
                if let Some(listing) = &mut index.job_listing {
                    listing.saw(&job.metadata);
                }
                self.saw_job(&mut index, &job);
            }
            Event::Apply(job) => self.saw_job(&mut index, &job),
            Event::Delete(job) => self.lost_job(&mut index, &uid_of(&job.metadata)),
            Event::InitDone => {
                if let Some(listing) = index.job_listing.take() {
                    for uid in index.vanished_jobs(&listing) {
                        self.lost_job(&mut index, &uid);
                    }
                }
            }
        }
    }

    /// The watch of pods says something.
    pub(super) fn pod_changed(&self, event: Event<SlimPod>) {
        let mut index = self.index.lock();
        match event {
            Event::Init => index.pod_listing = Some(Listing::from(index.highest_pod())),
            Event::InitApply(SlimPod(pod)) => {
                if let Some(listing) = &mut index.pod_listing {
                    listing.saw(&pod.metadata);
                }
                self.saw_pod(&mut index, pod);
            }
            Event::Apply(SlimPod(pod)) => self.saw_pod(&mut index, pod),
            Event::Delete(SlimPod(pod)) => self.lost_pod(&mut index, &pod.metadata),
            Event::InitDone => {
                if let Some(listing) = index.pod_listing.take() {
                    self.drop_vanished_pods(&mut index, &listing);
                }
            }
        }
    }

    fn saw_job(&self, index: &mut Index, raw: &RawJob) {
        let uid = uid_of(&raw.metadata);
        if index.elsewhere.contains(&uid) {
            return;
        }
        let slot = index.jobs.get(&uid).cloned();
        if let Some(slot) = &slot {
            let known = slot.known.lock();
            if !known.view.is_news(raw.metadata.resource_version.as_deref().unwrap_or_default()) {
                // The echo of our own write, which may have finished the Job.
                let frees_orphans = is_over(known.view.job());
                drop(known);
                if frees_orphans {
                    self.look_at_ownerless(index, &slot.key.namespace);
                }
                return;
            }
        }
        let (job, draft) = match raw.read() {
            Ok(read) => read,
            Err(error) => {
                let (namespace, name) = (raw.metadata.namespace.as_deref(), raw.metadata.name.as_deref());
                return tracing::warn!(namespace, name, %error, "can't read a Job");
            }
        };
        let facts = JobFacts::from_job(&job, draft.as_ref(), &self.gates);
        drop(job);
        let frees_orphans = is_over(&facts);
        let namespace: Arc<str> = facts.namespace.as_str().into();
        match slot {
            Some(slot) => {
                let mut known = slot.known.lock();
                known.source = Arc::new(raw.to_make_pods(!frees_orphans));
                known.view.observe_job(facts);
            }
            None if self.manages.includes(facts.managed_by.as_deref()) => {
                let memory = Memory::read(raw.metadata.annotations.as_ref());
                self.add_job(index, &namespace, facts, raw.to_make_pods(!frees_orphans), memory);
            }
            None => {
                if let Some(controller) = facts.managed_by.as_deref().filter(|name| is_external(name)) {
                    self.metrics.external_job(controller);
                }
                return self.note_elsewhere(index, uid);
            }
        }
        if frees_orphans {
            self.look_at_ownerless(index, &namespace);
        }
        self.jobs_due.add(uid);
    }

    fn add_job(
        &self,
        index: &mut Index,
        namespace: &Arc<str>,
        facts: JobFacts,
        source: RawJob,
        memory: Memory,
    ) {
        let key =
            JobKey { namespace: facts.namespace.clone(), name: facts.name.clone(), uid: facts.uid.clone() };
        let uid = facts.uid.clone();
        let mut known = Known {
            view: JobView::new(facts),
            source: Arc::new(source),
            ended: HashMap::new(),
            verdicts: BTreeSet::new(),
            memory,
            is_gone: false,
            rests_until: None,
            took_long: false,
        };
        for (pod_uid, pod) in index.parked.remove(&uid).map(|parked| parked.pods).unwrap_or_default() {
            known.observe_pod(&pod);
            index.homes.insert(pod_uid, Home::Job(uid.clone()));
        }
        for pod in index.ownerless.get(namespace).into_iter().flat_map(BTreeMap::values) {
            if could_adopt(known.view.job(), pod) {
                known.observe_pod(pod);
            }
        }
        index.namespaces.entry(Arc::clone(namespace)).or_default().insert(uid.clone());
        index.jobs.insert(uid, Arc::new(Slot { key, known: Mutex::new(known) }));
    }

    /// In place of the built-in controller we let go of the pods of any Job that is gone. Beside it, it does.
    fn sees_to_all(&self) -> bool {
        self.manages == Manages::Unclaimed
    }

    fn note_elsewhere(&self, index: &mut Index, uid: Uid) {
        let pods = index.parked.remove(&uid).map(|parked| parked.pods).unwrap_or_default();
        index.elsewhere.insert(uid);
        for (pod_uid, pod) in pods {
            index.homes.remove(&pod_uid);
            self.saw_pod(index, pod);
        }
    }

    /// The Job is gone: its pods can't be counted any more, and must not be held.
    fn lost_job(&self, index: &mut Index, uid: &Uid) {
        if index.elsewhere.remove(uid) && !self.sees_to_all() {
            return index.gone_elsewhere.insert(uid.clone());
        }
        index.gone_jobs.insert(uid.clone());
        if let Some(slot) = index.jobs.remove(uid) {
            let mut known = slot.known.lock();
            known.is_gone = true;
            let namespace: Arc<str> = slot.key.namespace.as_str().into();
            if let Some(jobs) = index.namespaces.get_mut(&namespace) {
                jobs.remove(uid);
                if jobs.is_empty() {
                    index.namespaces.remove(&namespace);
                }
            }
            for facts in known.view.pods().iter() {
                if index.homes.get(&facts.uid).is_none_or(|home| *home == Home::Job(uid.clone())) {
                    index.homes.remove(&facts.uid);
                    if facts.has_finalizer {
                        index.park(&slot.key, facts.uid.clone(), Box::new(remains(&slot.key, facts)));
                    }
                }
            }
            drop(known);
            self.look_at_ownerless(index, &namespace);
        }
        self.let_go_of_parked(index, uid);
    }

    /// The Job of these parked pods is gone.
    fn let_go_of_parked(&self, index: &mut Index, job: &Uid) {
        let Some(parked) = index.parked.get_mut(job) else { return };
        let (held, free): (Vec<_>, Vec<_>) =
            std::mem::take(&mut parked.pods).into_iter().partition(|(_, pod)| is_held(pod));
        for (uid, _) in free {
            index.homes.remove(&uid);
        }
        if held.is_empty() {
            index.parked.remove(job);
            return;
        }
        for (uid, _) in &held {
            self.orphans_due.add(Orphan::Pod(uid.clone()));
        }
        if let Some(parked) = index.parked.get_mut(job) {
            parked.pods.extend(held);
        }
    }

    /// Somebody who could have adopted these pods never will: those that are held must be let go.
    fn look_at_ownerless(&self, index: &Index, namespace: &str) {
        for (uid, pod) in index.ownerless.get(namespace).into_iter().flatten() {
            if is_held(pod) {
                self.orphans_due.add(Orphan::Pod(uid.clone()));
            }
        }
    }
}

impl Index {
    fn park(&mut self, owner: &JobKey, uid: Uid, pod: Box<Pod>) {
        let parked = self
            .parked
            .entry(owner.uid.clone())
            .or_insert_with(|| Parked { owner: owner.clone(), pods: BTreeMap::new() });
        parked.pods.insert(uid.clone(), pod);
        self.homes.insert(uid, Home::Parked(owner.uid.clone()));
    }
}

/// Neither ours nor the built-in controller's.
fn is_external(controller: &str) -> bool {
    ![names::WINDLASS_CONTROLLER, names::BUILT_IN_CONTROLLER].contains(&controller)
}

/// The Job adopts no pods any more.
fn is_over(job: &JobFacts) -> bool {
    job.is_deleted || job.status.is_finished()
}

/// The Job would adopt the pod, if it may.
fn could_adopt(job: &JobFacts, pod: &Pod) -> bool {
    let none = BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&none);
    job.selector.as_ref().is_some_and(|selector| selector.matches(labels))
}

fn uid_of(meta: &ObjectMeta) -> Uid {
    Uid::new(meta.uid.as_deref().unwrap_or_default())
}

/// What is left to know of a pod whose Job is gone.
fn remains(owner: &JobKey, facts: &PodFacts) -> Pod {
    Pod {
        metadata: ObjectMeta {
            namespace: Some(owner.namespace.clone()),
            name: Some(facts.name.to_string()),
            uid: Some(facts.uid.to_string()),
            resource_version: Some(facts.revision.to_string()),
            finalizers: Some(vec![names::TRACKING_FINALIZER.to_owned()]),
            owner_references: Some(vec![OwnerReference {
                api_version: names::JOB_API_VERSION.to_owned(),
                kind: names::JOB_KIND.to_owned(),
                name: owner.name.clone(),
                uid: owner.uid.to_string(),
                controller: Some(true),
                block_owner_deletion: None,
            }]),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    }
}
