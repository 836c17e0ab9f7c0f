//! Where a pod belongs, and what to do about one that belongs nowhere.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use windlass_job::Uid;
use windlass_job::orphan::{Owner, should_release};

use super::{Home, Index, JobKey, Registry, could_adopt, is_over, uid_of};
use crate::job::orphans::{Orphan, Release};
use crate::wire::{controller, is_held, is_job};

impl Registry {
    pub(super) fn saw_pod(&self, index: &mut Index, pod: Box<Pod>) {
        let uid = uid_of(&pod.metadata);
        self.note_terminated_held(index, &uid, is_held(&pod) && is_terminated(&pod));
        let home = self.home_for(index, &pod);
        if index.homes.get(&uid) != home.as_ref() {
            self.leave_home(index, &uid, home.as_ref());
        }
        match home {
            None => {}
            Some(Home::Job(job)) => {
                let is_news = index.jobs.get(&job).is_some_and(|slot| slot.known.lock().observe_pod(&pod));
                index.homes.insert(uid, Home::Job(job.clone()));
                if is_news {
                    self.jobs_due.add(job);
                }
            }
            Some(Home::Ownerless(namespace)) => self.saw_ownerless(index, uid, namespace, pod),
            Some(Home::Parked(job)) => self.saw_parked(index, uid, &job, pod),
        }
    }

    fn saw_ownerless(&self, index: &mut Index, uid: Uid, namespace: Arc<str>, pod: Box<Pod>) {
        for job in index.namespaces.get(&namespace).into_iter().flatten() {
            let Some(slot) = index.jobs.get(job) else { continue };
            let mut known = slot.known.lock();
            if could_adopt(known.view.job(), &pod) {
                known.observe_pod(&pod);
            } else if known.view.pods().get(&uid).is_some() {
                known.forget_pod(&uid);
            } else {
                continue;
            }
            self.jobs_due.add(job.clone());
        }
        if is_held(&pod) {
            self.orphans_due.add(Orphan::Pod(uid.clone()));
        }
        index.homes.insert(uid.clone(), Home::Ownerless(Arc::clone(&namespace)));
        index.ownerless.entry(namespace).or_default().insert(uid, pod);
    }

    fn saw_parked(&self, index: &mut Index, uid: Uid, job: &Uid, pod: Box<Pod>) {
        let (is_gone, is_elsewhere) = (index.gone_jobs.contains(job), index.elsewhere.contains(job));
        if (is_gone || is_elsewhere) && !is_held(&pod) {
            return self.leave_home(index, &uid, None);
        }
        let Some(owner) = controller(&pod.metadata) else { return };
        let owner = JobKey {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: owner.name.clone(),
            uid: job.clone(),
        };
        index.park(&owner, uid.clone(), pod);
        if !is_elsewhere {
            self.orphans_due.add(if is_gone { Orphan::Pod(uid) } else { Orphan::Owner(job.clone()) });
        }
    }

    pub(super) fn lost_pod(&self, index: &mut Index, meta: &ObjectMeta) {
        let uid = uid_of(meta);
        self.note_terminated_held(index, &uid, false);
        self.leave_home(index, &uid, None);
        // A Job can know a pod from the answer to its own write before the watch has shown it.
        if let Some(job) = controller(meta).map(|owner| Uid::new(&owner.uid))
            && let Some(slot) = index.jobs.get(&job)
        {
            slot.known.lock().forget_pod(&uid);
            self.jobs_due.add(job);
        }
    }

    /// The pod has ended and holds the tracking finalizer, or does not.
    pub(super) fn note_terminated_held(&self, index: &mut Index, uid: &Uid, is_so: bool) {
        let is_news =
            if is_so { index.terminated_held.insert(uid.clone()) } else { index.terminated_held.remove(uid) };
        if is_news {
            self.metrics.terminated_held(is_so);
        }
    }

    /// Takes the pod from where it was, but not from `next`.
    pub(super) fn leave_home(&self, index: &mut Index, uid: &Uid, next: Option<&Home>) {
        let forget = |job: &Uid| {
            if next != Some(&Home::Job(job.clone()))
                && let Some(slot) = index.jobs.get(job)
            {
                let mut known = slot.known.lock();
                if known.view.pods().get(uid).is_some() {
                    known.forget_pod(uid);
                    self.jobs_due.add(job.clone());
                }
            }
        };
        match index.homes.remove(uid) {
            None => {}
            Some(Home::Job(job)) => forget(&job),
            Some(Home::Ownerless(namespace)) => {
                index.namespaces.get(&namespace).into_iter().flatten().for_each(forget);
                if let Some(pods) = index.ownerless.get_mut(&namespace) {
                    pods.remove(uid);
                    if pods.is_empty() {
                        index.ownerless.remove(&namespace);
                    }
                }
            }
            Some(Home::Parked(job)) => {
                if let Some(parked) = index.parked.get_mut(&job) {
                    parked.pods.remove(uid);
                    if parked.pods.is_empty() {
                        index.parked.remove(&job);
                    }
                }
            }
        }
    }

    /// How to let go of a pod that nobody will count, if it still is one.
    pub(in crate::job) fn release_of(&self, uid: &Uid) -> Option<Release> {
        let index = self.index.lock();
        let (pod, owner) = match index.homes.get(uid)? {
            Home::Job(_) => return None,
            Home::Ownerless(namespace) => {
                let pod = index.ownerless.get(namespace)?.get(uid)?;
                (pod, if index.has_adopter(namespace, pod) { Owner::Active } else { Owner::None })
            }
            Home::Parked(job) => {
                let pod = index.parked.get(job)?.pods.get(uid)?;
                (pod, if index.gone_jobs.contains(job) { Owner::Missing } else { Owner::ManagedElsewhere })
            }
        };
        should_release(pod, owner).then(|| Release {
            namespace: pod.metadata.namespace.clone().unwrap_or_default(),
            name: pod.metadata.name.clone().unwrap_or_default(),
            uid: uid.clone(),
            resource_version: pod.metadata.resource_version.clone().unwrap_or_default(),
        })
    }

    /// The pod is let go of, or is gone. What becomes of it, the watch says.
    pub(in crate::job) fn released(&self, uid: &Uid) {
        let mut index = self.index.lock();
        if matches!(index.homes.get(uid), Some(Home::Parked(_))) {
            self.leave_home(&mut index, uid, None);
        }
    }

    /// A Job that pods call their owner and that nobody has seen.
    pub(in crate::job) fn unknown_owner(&self, job: &Uid) -> Option<JobKey> {
        let index = self.index.lock();
        let parked = index.parked.get(job)?;
        let is_known = index.gone_jobs.contains(job) || index.elsewhere.contains(job);
        (!is_known).then(|| parked.owner.clone())
    }

    /// There is no such Job.
    pub(in crate::job) fn owner_is_gone(&self, job: &Uid) {
        let mut index = self.index.lock();
        if !index.jobs.contains_key(job) {
            index.gone_jobs.insert(job.clone());
            self.let_go_of_parked(&mut index, job);
        }
    }

    fn home_for(&self, index: &Index, pod: &Pod) -> Option<Home> {
        let Some(owner) = controller(&pod.metadata) else {
            return Some(Home::Ownerless(pod.metadata.namespace.as_deref().unwrap_or_default().into()));
        };
        let job = Uid::new(&owner.uid);
        let is_elsewhere = index.elsewhere.contains(&job) || index.gone_elsewhere.contains(&job);
        if !is_job(owner) || (is_elsewhere && !self.sees_to_all()) {
            return None;
        }
        Some(if index.jobs.contains_key(&job) { Home::Job(job) } else { Home::Parked(job) })
    }
}

fn is_terminated(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

impl Index {
    /// A Job would adopt the pod, and will.
    fn has_adopter(&self, namespace: &str, pod: &Pod) -> bool {
        if pod.metadata.deletion_timestamp.is_some() {
            return false;
        }
        let jobs = self.namespaces.get(namespace).into_iter().flatten();
        jobs.filter_map(|uid| self.jobs.get(uid)).any(|slot| {
            let known = slot.known.lock();
            let job = known.view.job();
            !is_over(job) && could_adopt(job, pod)
        })
    }
}
