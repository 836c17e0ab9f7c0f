//! What would happen, pod by pod: the real decisions, in a world where pods end as they are told to and every write works.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use windlass_api::{Gates, strategy};

use super::table::{Sign, pod_status};
use super::{Role, Subject};
use crate::backoff::later;
use crate::decide::decide;
use crate::decision::{Action, Wake};
use crate::job_facts::JobFacts;
use crate::observation::{Manages, Settings};
use crate::pod_body::pod_body;
use crate::pod_facts::PodFacts;
use crate::policy::failure::RuleMatch;
use crate::uid::Uid;
use crate::view::{JobView, Outcome};

/// How a pod ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// All its containers exit with 0.
    Success,
    /// It fails with these signs.
    Failure(Vec<Sign>),
}

/// What is to be tried.
#[derive(Clone, Debug)]
pub struct Script {
    /// How pods end, in the order in which they do; the last is that of all that follow.
    pub ends: Vec<End>,
    /// How long pods run, in the order of their start; the last is that of all that follow.
    pub pod_takes: Vec<SignedDuration>,
    /// Stop after so many pods.
    pub pods_max: usize,
    /// Stop after this time.
    pub until: SignedDuration,
    /// Delays between retries.
    pub settings: Settings,
}

/// One pod from its start to what it meant.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// When it started, from the start of the Job.
    pub started: SignedDuration,
    /// When it ended; `None` if it ran when the story ended.
    pub ended: Option<SignedDuration>,
    /// Its index.
    pub index: Option<u32>,
    /// How it ended.
    pub end: Option<End>,
    /// The rule that decided about it.
    pub rule: Option<RuleMatch>,
    /// `status.failed` and `status.succeeded` when the controller had dealt with it.
    pub counters: Option<(u32, u32)>,
}

/// How the Job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// When, from its start.
    pub at: SignedDuration,
    /// `Complete` or `Failed`.
    pub condition: String,
    /// The condition's reason.
    pub reason: String,
    /// The condition's message.
    pub message: String,
}

/// What would happen.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// All pods, in the order of their start.
    pub attempts: Vec<Attempt>,
    /// How the Job ended; `None` if it had not after `pods_max` pods.
    pub ended: Option<Ended>,
    /// `status.failed` at the end.
    pub failed: u32,
    /// `status.succeeded` at the end.
    pub succeeded: u32,
    /// `status.failedIndexes` at the end.
    pub failed_indexes: Option<String>,
}

/// Runs the Job of a subject through a script.
pub fn run(subject: &Subject, gates: &Gates, script: &Script) -> Timeline {
    let mut world = World::new(subject, gates, script);
    world.play();
    let status = &world.view.job().status;
    let end = status.conditions.iter().find(|c| c.is_true() && (c.kind == "Complete" || c.kind == "Failed"));
    let ended = end.map(|condition| Ended {
        at: world.now.duration_since(START),
        condition: condition.kind.clone(),
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
    });
    let (failed, succeeded) = (status.failed, status.succeeded);
    let failed_indexes = status.failed_indexes.as_ref().map(ToString::to_string);
    Timeline { attempts: world.attempts, ended, failed, succeeded, failed_indexes }
}

/// Any time is as good as any other.
const START: Timestamp = Timestamp::UNIX_EPOCH;
/// The decisions of a Job come to rest; this many in a row without a pause are a bug, and the story ends.
const STEPS_MAX: usize = 100_000;

struct World<'a> {
    script: &'a Script,
    settings: Settings,
    subject: Subject,
    view: JobView,
    now: Timestamp,
    revision: u64,
    /// Pods that run, by the number of their attempt.
    running: Vec<(usize, Pod)>,
    /// Pods that ended and are still held.
    ended: Vec<Pod>,
    attempts: Vec<Attempt>,
    ends: usize,
}

impl<'a> World<'a> {
    fn new(subject: &Subject, gates: &Gates, script: &'a Script) -> Self {
        let mut subject = subject.clone();
        subject.job.metadata = ObjectMeta {
            uid: Some("timeline".to_owned()),
            name: Some("job".to_owned()),
            namespace: Some("default".to_owned()),
            resource_version: Some("1".to_owned()),
            ..ObjectMeta::default()
        };
        if let Some(spec) = &mut subject.job.spec {
            spec.suspend = Some(false);
            spec.managed_by = None;
            spec.selector = None;
            spec.manual_selector = None;
            spec.template.metadata = None;
        }
        strategy::prepare_for_create(&mut subject.job, gates);
        let facts = JobFacts::from_job(&subject.job, subject.draft.as_ref(), gates);
        Self {
            script,
            settings: Settings { manages: Manages::Unclaimed, ..script.settings.clone() },
            subject,
            view: JobView::new(facts),
            now: START,
            revision: 1,
            running: Vec::new(),
            ended: Vec::new(),
            attempts: Vec::new(),
            ends: 0,
        }
    }

    fn play(&mut self) {
        for _ in 0..STEPS_MAX {
            if self.view.job().status.is_finished() || self.attempts.len() > self.script.pods_max {
                break;
            }
            let wake = match self.step() {
                Wake::Again => continue,
                Wake::At(time) => Some(time),
                Wake::Settled => None,
            };
            self.count();
            let next_end = self.running.iter().map(|(at, _)| self.ends_at(*at)).min();
            let Some(next) = [next_end, wake].into_iter().flatten().min() else { break };
            if next.duration_since(START) > self.script.until {
                break;
            }
            self.now = self.now.max(next);
            if next_end == Some(next) {
                self.end_one();
            }
        }
        self.count();
        self.attempts.truncate(self.script.pods_max);
    }

    fn ends_at(&self, attempt: usize) -> Timestamp {
        let takes = &self.script.pod_takes;
        let takes = takes.get(attempt).or(takes.last()).copied().unwrap_or_default();
        later(later(START, self.attempts[attempt].started), takes)
    }

    fn step(&mut self) -> Wake {
        let decision = decide(&self.view.observation(self.now, &self.settings));
        for action in &decision.stage {
            let outcome = self.perform(action);
            self.view.fold(action, outcome, self.now, &self.settings);
        }
        decision.wake
    }

    /// Pods that were dealt with show the counters as they are now.
    fn count(&mut self) {
        let status = &self.view.job().status;
        let counters = (status.failed, status.succeeded);
        for attempt in self.attempts.iter_mut().filter(|attempt| attempt.ended.is_some()) {
            attempt.counters.get_or_insert(counters);
        }
    }

    fn perform(&mut self, action: &Action) -> Outcome {
        self.revision += 1;
        match action {
            Action::Create(new) => {
                let Ok(mut pod) = pod_body(&self.subject.job, new) else { return Outcome::Failed };
                pod.metadata.uid = Some(format!("pod-{}", self.attempts.len()));
                pod.metadata.creation_timestamp = Some(Time(self.now));
                self.attempts.push(Attempt {
                    started: self.now.duration_since(START),
                    ended: None,
                    index: new.index,
                    end: None,
                    rule: None,
                    counters: None,
                });
                let facts = self.facts(&mut pod);
                self.running.push((self.attempts.len() - 1, pod));
                Outcome::Pod(Box::new(facts))
            }
            Action::Release(pod) => self.change(&pod.uid, |pod| pod.metadata.finalizers = None),
            // A pod that is ended with its Job stops at once.
            Action::Delete(pod) => {
                self.stop(&pod.uid);
                self.change(&pod.uid, |_| ())
            }
            Action::Remove(pod, _) => {
                self.running.retain(|(_, it)| uid(it) != pod.uid);
                Outcome::Gone
            }
            Action::WriteStatus(_) => Outcome::Written(self.revision.to_string()),
            Action::Adopt(_) | Action::Disown(_) | Action::Emit(_) => Outcome::Done,
        }
    }

    fn stop(&mut self, uid_of: &Uid) {
        if let Some(at) = self.running.iter().position(|(_, pod)| uid(pod) == *uid_of) {
            let (_, mut pod) = self.running.remove(at);
            pod.metadata.deletion_timestamp = Some(Time(self.now));
            pod.status = Some(PodStatus { phase: Some("Failed".to_owned()), ..PodStatus::default() });
            self.ended.push(pod);
        }
    }

    fn change(&mut self, uid_of: &Uid, change: impl FnOnce(&mut Pod)) -> Outcome {
        let Some(at) = self.ended.iter().position(|pod| uid(pod) == *uid_of) else { return Outcome::Gone };
        let mut pod = self.ended.swap_remove(at);
        change(&mut pod);
        let facts = self.facts(&mut pod);
        self.ended.push(pod);
        Outcome::Pod(Box::new(facts))
    }

    fn facts(&mut self, pod: &mut Pod) -> PodFacts {
        self.revision += 1;
        pod.metadata.resource_version = Some(self.revision.to_string());
        PodFacts::from_pod(pod, self.view.job())
    }

    fn end_one(&mut self) {
        let first = (0..self.running.len()).min_by_key(|at| self.ends_at(self.running[*at].0));
        let Some((attempt, mut pod)) = first.map(|at| self.running.remove(at)) else { return };
        let end =
            self.script.ends.get(self.ends).or(self.script.ends.last()).cloned().unwrap_or(End::Success);
        self.ends += 1;
        pod.status = Some(self.status(&end));
        let facts = self.facts(&mut pod);
        let told = &mut self.attempts[attempt];
        told.ended = Some(self.now.duration_since(START));
        told.end = Some(end);
        told.rule = facts.rule.as_deref().cloned();
        self.view.observe_pod(facts);
        self.ended.push(pod);
    }

    /// The status of a pod that ended this way, now.
    fn status(&self, end: &End) -> PodStatus {
        let mut status = match end {
            End::Success => PodStatus { phase: Some("Succeeded".to_owned()), ..PodStatus::default() },
            End::Failure(signs) => pod_status(signs),
        };
        let named = status.container_statuses.take().unwrap_or_default();
        let of_kind = |is_main: bool| {
            let containers =
                self.subject.containers.iter().filter(|(_, role)| (*role == Role::Main) == is_main);
            let code = |name: &str| named.iter().find(|it| it.name == name).and_then(exit_code).unwrap_or(0);
            containers.map(|(name, _)| stopped(name, code(name), self.now)).collect()
        };
        status.container_statuses = Some(of_kind(true));
        status.init_container_statuses = Some(of_kind(false));
        status
    }
}

fn uid(pod: &Pod) -> Uid {
    Uid::new(pod.metadata.uid.as_deref().unwrap_or_default())
}

fn exit_code(status: &ContainerStatus) -> Option<i32> {
    status.state.as_ref()?.terminated.as_ref().map(|ended| ended.exit_code)
}

fn stopped(container: &str, code: i32, now: Timestamp) -> ContainerStatus {
    let terminated = ContainerStateTerminated {
        exit_code: code,
        finished_at: Some(Time(now)),
        ..ContainerStateTerminated::default()
    };
    ContainerStatus {
        name: container.to_owned(),
        state: Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() }),
        ..ContainerStatus::default()
    }
}
