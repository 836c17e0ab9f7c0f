//! Taking pods from the queue, one after the other: a node for each, or room, or the reason why not.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;
use tokio::sync::oneshot;

use crate::cycle::{self, Rejection};
use crate::driver::{Scheduler, is_gated, is_ours};
use crate::events::{Reason, Report, reference};
use crate::hints::Change;
use crate::message;
use crate::meter::{Code, Meter, Plugin, Point};
use crate::metrics::Attempt;
use crate::pod::{PodFacts, Uid};
use crate::preempt::{self, Candidate, Preemption};
use crate::queue::{Refusal, Rest, Waiting};
use crate::writes::{self, Eviction, News, Outcome, Written};

/// Writes on their way at once: enough to keep an API server busy, few enough not to fill its queue.
const WRITES_MAX: usize = 64;
/// Tries in a row, before it is time to look at what has changed.
const TRIES_MAX: usize = 256;

impl Scheduler {
    /// Places pods while there are pods that fit and writes that may be sent. Returns whether there may be more to do.
    pub(crate) fn take_turns(&mut self) -> bool {
        for _ in 0..TRIES_MAX {
            if self.writes.len() >= WRITES_MAX {
                // The next answer continues.
                return false;
            }
            if !self.take_turn() {
                self.count();
                return false;
            }
        }
        true
    }

    /// Tries the first pod. Returns false if there is none.
    fn take_turn(&mut self) -> bool {
        let (started, now) = (Instant::now(), self.now());
        let Some(first) = self.queue.first(now) else { return false };
        let (pod, nominated) = (first.pod.clone(), first.nominated.clone());
        self.start = self.start.wrapping_add(1);
        let mut meter = self.config.metrics.stopwatch(self.start);
        let found = cycle::node_for(&pod, nominated.as_deref(), &self.cluster, self.start, &mut meter);
        self.config.metrics.looked(started.elapsed());
        match found.map(|node| node.facts.name.clone()) {
            Ok(node) => {
                self.assume(&pod, &node, started);
                let bind = writes::bind(self.client.clone(), pod.clone(), node);
                self.write(&pod.uid, bind);
            }
            Err(rejection) => {
                self.reject(&pod, nominated.as_deref(), *rejection, &mut meter);
                self.config.metrics.tried(Attempt::Unschedulable, started.elapsed());
            }
        }
        true
    }

    /// A node for a pod that is just being made, if nobody waits who may matter more. It counts there from now on, and is
    /// confirmed when it is seen.
    pub(crate) fn place_new(&mut self, pod: &Pod) -> Option<String> {
        let (started, now) = (Instant::now(), self.now());
        let spec = pod.spec.as_ref()?;
        let is_free = spec.node_name.as_deref().is_none_or(str::is_empty) && is_ours(spec) && !is_gated(spec);
        if !is_free || !self.listed.is_all() || self.queue.uids().next().is_some() {
            return None;
        }
        let facts = Arc::new(PodFacts::of(pod)?);
        self.start = self.start.wrapping_add(1);
        let mut meter = self.config.metrics.stopwatch(self.start);
        let found = cycle::node_for(&facts, None, &self.cluster, self.start, &mut meter);
        let node = found.ok()?.facts.name.clone();
        self.config.metrics.looked(started.elapsed());
        self.queue.put(facts.clone(), pod, false, now);
        self.config.metrics.incoming("active", "UnschedulablePodAdd", 1);
        self.assume(&facts, &node, started);
        Some(node)
    }

    /// A pod that was placed while it was made is not there after all.
    pub(crate) fn take_back(&mut self, uid: &str) {
        if let Some((waiting, _)) = self.binding.remove(uid) {
            self.unassume(&waiting);
        }
    }

    /// The pod counts on the node from now on.
    fn assume(&mut self, pod: &Arc<PodFacts>, node: &str, started: Instant) {
        let (tries, is_old) = (self.queue.tries(&pod.uid), self.queue.is_old(&pod.uid));
        let Some(waiting) = self.queue.remove(&pod.uid) else { return };
        let waited = self.now().duration_since(waiting.came).as_secs_f64();
        self.cluster.place(pod.clone(), node);
        self.wake(Change::PodPlaced(pod), |_| true);
        self.config.metrics.scheduled(tries, waited);
        if is_old {
            self.config.metrics.scheduled_old();
        }
        self.binding.insert(pod.uid.clone(), (waiting, started));
    }

    /// There is no node for the pod as things are.
    fn reject(
        &mut self,
        pod: &Arc<PodFacts>,
        nominated: Option<&str>,
        rejection: Rejection,
        meter: &mut impl Meter,
    ) {
        let now = self.now();
        let preemption = if rejection.nodes_count == 0 {
            Preemption::NoCandidate(Vec::new())
        } else if rejection.before_nodes.is_some() {
            Preemption::NotAsked
        } else {
            self.config.metrics.looked_for_room();
            let code = |found: &Preemption| match found {
                Preemption::Chosen(_) => Code::Success,
                Preemption::NotAsked | Preemption::NotEligible(_) | Preemption::NoCandidate(_) => {
                    Code::Unschedulable
                }
            };
            let find = || preempt::find(pod, nominated, &self.cluster, &rejection, now, self.start);
            meter.point(
                Point::PostFilter,
                |meter| meter.plugin(Point::PostFilter, Plugin::Preemption, find, code),
                code,
            )
        };
        let message = message::refusal(&rejection, &preemption);
        let (node, candidate) = match preemption {
            Preemption::NotAsked | Preemption::NotEligible(_) => (None, None),
            Preemption::NoCandidate(_) => (Some(None), None),
            Preemption::Chosen(candidate) => (Some(Some(candidate.node.clone())), Some(candidate)),
        };
        // Pods like it would be rejected by the same nodes for the same reasons.
        let is_shared = candidate.is_none()
            && nominated.is_none()
            && pod.demand.is_of_node_only()
            && !self.cluster.has_required_anti_affinity();
        let rest = Rest {
            refusal: Refusal { reason: "Unschedulable", message: message.clone() },
            filters: rejection.filters,
            is_shared,
            nominated: node.clone(),
        };
        let mut told = self.queue.rest_first(rest, now);
        self.config.metrics.incoming("unschedulable", "ScheduleAttemptFailure", 1);
        // The one that was tried is reported each time, the others when there is news for them.
        told.retain(|uid| *uid != pod.uid);
        self.report_failure(pod, &message);
        self.untold.push_back(pod.uid.clone());
        for uid in told {
            if let Some(waiting) = self.queue.get_mut(&uid) {
                let follower = waiting.pod.clone();
                self.report_failure(&follower, &message);
            }
            self.untold.push_back(uid);
        }
        if let Some(node) = &node {
            self.cluster.nominate(pod, node.as_deref());
            if nominated.is_some() && node.as_deref() != nominated {
                self.free_nomination(pod);
            }
        }
        if let Some(candidate) = candidate {
            self.make_room(pod, candidate);
        }
    }

    /// Makes pods leave a node for a pod.
    fn make_room(&mut self, pod: &Arc<PodFacts>, candidate: Candidate) {
        self.config.metrics.preempts(candidate.victims.len());
        // Pods that matter less may not fit there any more: they look for another node.
        let node = self.cluster.node(&candidate.node);
        let lesser: Vec<Arc<PodFacts>> = node
            .into_iter()
            .flat_map(|node| node.nominated.values())
            .filter(|other| other.priority() < pod.priority())
            .cloned()
            .collect();
        for other in lesser {
            self.cluster.nominate(&other, None);
            if let Some(waiting) = self.queue.get_mut(&other.uid) {
                waiting.nominated = None;
                self.untold.push_back(other.uid.clone());
            }
            self.free_nomination(&other);
        }
        self.preempting.insert(pod.uid.clone(), false);
        let eviction = Eviction {
            client: self.client.clone(),
            recorder: self.recorder.clone(),
            clock: self.config.clock.clone(),
            gates: self.config.gates,
        };
        self.writes.spawn(eviction.run(pod.clone(), candidate, Instant::now()));
    }

    /// Tells pods why they wait, as far as there are writes to spare.
    pub(crate) fn tell_untold(&mut self) {
        let now = self.now();
        while self.writes.len() < WRITES_MAX
            && let Some(uid) = self.untold.pop_front()
        {
            let Some(waiting) = self.queue.get_mut(&uid).filter(|waiting| waiting.is_to_be_told()) else {
                continue;
            };
            let (refusal, node) = waiting.tell(now);
            let news = News { pod: waiting.pod.clone(), refusal, since: waiting.refused_since, node };
            self.write(&uid, writes::tell(self.client.clone(), news));
        }
    }

    /// Writes about one pod come one after the other: a late word about why it waits must not reach a pod that is bound.
    fn write(&mut self, uid: &Uid, write: impl Future<Output = Written> + Send + 'static) {
        let (done, answered) = oneshot::channel::<()>();
        let before = self.latest.insert(uid.clone(), answered);
        self.writes.spawn(async move {
            if let Some(before) = before {
                // An error means that the write has ended and its sender is gone.
                _ = before.await;
            }
            let written = write.await;
            drop(done);
            written
        });
    }

    pub(crate) fn on_written(&mut self, written: Written) {
        match written {
            Written::Bound { uid, outcome, took } => {
                let is_done = !matches!(outcome, Outcome::Failed(_));
                self.config.metrics.bound(is_done, took);
                self.settle(&uid);
                self.on_bound(&uid, outcome);
            }
            Written::Told { uid } => self.settle(&uid),
            Written::Preempted { uid, leaving, is_done, took } => {
                self.config.metrics.preempted(is_done, took);
                // The watch may tell it later than something that wakes the pod: it would make others leave as well.
                leaving.iter().for_each(|pod| self.see_leaving(pod));
                let is_woken = self.preempting.remove(&uid).unwrap_or(false);
                // If somebody did not go, nobody's leaving would wake it.
                if is_woken || !is_done {
                    self.queue.activate(&uid);
                }
            }
        }
    }

    /// Forgets the latest write about a pod if it is answered.
    fn settle(&mut self, uid: &Uid) {
        let is_answered = |latest: &mut oneshot::Receiver<()>| {
            !matches!(latest.try_recv(), Err(oneshot::error::TryRecvError::Empty))
        };
        if self.latest.get_mut(uid).is_some_and(is_answered) {
            self.latest.remove(uid);
        }
    }

    fn on_bound(&mut self, uid: &Uid, outcome: Outcome) {
        // None: the watch has told meanwhile what became of it.
        let Some((waiting, started)) = self.binding.remove(uid) else { return };
        match outcome {
            Outcome::Done => self.confirm(&waiting, started),
            Outcome::Gone => self.unassume(&waiting),
            Outcome::Failed(message) => {
                self.config.metrics.tried(Attempt::Error, started.elapsed());
                self.unassume(&waiting);
                self.report_failure(&waiting.pod, &message);
                let refusal = Refusal { reason: "SchedulerError", message };
                if self.queue.keep_back(waiting, refusal, self.now()) {
                    self.untold.push_back(uid.clone());
                }
            }
        }
    }

    /// A pod is where it was to be.
    pub(crate) fn confirm(&mut self, waiting: &Waiting, started: Instant) {
        self.config.metrics.tried(Attempt::Scheduled, started.elapsed());
        let (pod, node) = (&waiting.pod, self.cluster.place_of(&waiting.pod.uid).unwrap_or_default());
        self.recorder.report(|| Report {
            about: reference(pod),
            reason: Reason::Scheduled,
            note: format!("Successfully assigned {}/{} to {node}", pod.namespace, pod.name),
        });
    }

    pub(crate) fn unassume(&mut self, waiting: &Waiting) {
        if let Some((_, pod)) = self.cluster.unplace(&waiting.pod.uid) {
            self.wake(Change::PodGone(&pod), |_| true);
        }
    }

    pub(crate) fn report_failure(&self, pod: &PodFacts, message: &str) {
        self.recorder.report(|| Report {
            about: reference(pod),
            reason: Reason::FailedScheduling,
            note: message::note(message),
        });
    }
}
