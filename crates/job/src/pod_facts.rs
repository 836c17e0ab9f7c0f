//! A pod as a decision sees it: about 200 bytes instead of a whole Pod.

use std::cmp::Reverse;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{ContainerStatus, Pod, PodStatus};
use windlass_api::names;

use crate::job_facts::{JobFacts, revision};
use crate::policy::failure::{Action, RuleMatch};
use crate::uid::Uid;

/// `status.phase`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Not all containers have started.
    Pending,
    /// The node does not answer.
    Unknown,
    /// At least one container runs.
    Running,
    /// All containers ended with 0.
    Succeeded,
    /// All containers ended, one of them badly.
    Failed,
}

impl Phase {
    /// Nothing runs and nothing will.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// Whose pod it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// Controlled by this Job, and its labels match.
    Ours,
    /// Controlled by this Job, but its labels do not match any more.
    Stray,
    /// Controlled by nobody, and its labels match.
    Orphan,
    /// Somebody else's.
    Foreign,
}

/// Failures of an index before this pod was made for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IndexFailures {
    /// Failures that count against `backoffLimitPerIndex`.
    pub counted: u32,
    /// Failures that a policy ignored.
    pub ignored: u32,
}

impl IndexFailures {
    /// All of them.
    pub fn total(self) -> u32 {
        self.counted.saturating_add(self.ignored)
    }
}

/// Everything about a pod that a decision may look at.
#[derive(Clone, Debug, PartialEq)]
pub struct PodFacts {
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.name`.
    pub name: Box<str>,
    /// `metadata.resourceVersion` as a number: which of two views of this pod is newer.
    pub revision: u64,
    /// Whose it is.
    pub claim: Claim,
    /// `status.phase`.
    pub phase: Phase,
    /// Has `metadata.deletionTimestamp`.
    pub is_deleted: bool,
    /// Carries the tracking finalizer.
    pub has_finalizer: bool,
    /// Condition `Ready` is true.
    pub is_ready: bool,
    /// Has a node.
    pub is_assigned: bool,
    /// Completion index, from the annotation; only pods of Indexed Jobs have one.
    pub index: Option<u32>,
    /// Which attempt it is, read from its name; `None` for a name that is not ours.
    pub attempt: Option<u32>,
    /// Failures of its index before it.
    pub failures: IndexFailures,
    /// Restarts of all its containers together.
    pub restarts: u32,
    /// Most restarts of one container, and of one sidecar: the order of victims.
    pub restarts_max: (u32, u32),
    /// Since when it is ready.
    pub ready_since: Option<Timestamp>,
    /// `metadata.creationTimestamp`.
    pub created_at: Option<Timestamp>,
    /// When it stopped, or began to: see [`finish_time`].
    pub finished_at: Timestamp,
    /// The failure policy's rule that would decide about it.
    pub rule: Option<Box<RuleMatch>>,
}

/// Which pods go first when there are too many: unassigned, not running, not ready, ready for the shortest time, with
/// the most restarts, youngest.
pub(crate) type VictimOrder<'a> =
    (bool, Phase, bool, Option<Reverse<Timestamp>>, Reverse<(u32, u32)>, Option<Reverse<Timestamp>>, &'a Uid);

impl PodFacts {
    /// The facts of `pod` as far as `job` is concerned.
    pub fn from_pod(pod: &Pod, job: &JobFacts) -> Self {
        let meta = &pod.metadata;
        let empty = PodStatus::default();
        let status = pod.status.as_ref().unwrap_or(&empty);
        let annotation =
            |key: &str| meta.annotations.as_ref().and_then(|all| all.get(key)).map(String::as_str);
        let index = annotation(names::COMPLETION_INDEX).filter(|_| job.is_indexed()).and_then(parse_index);
        let name = meta.name.as_deref().unwrap_or_default();
        let ready = status.conditions.iter().flatten().find(|c| c.type_ == "Ready");
        let is_ready = ready.is_some_and(|c| c.status == "True");
        let is_sidecar = |name: &str| is_sidecar(pod, name);
        let statuses = || {
            status.container_statuses.iter().flatten().chain(status.init_container_statuses.iter().flatten())
        };
        let restarts_max = |sidecars: bool| {
            let of_kind = status.container_statuses.iter().flatten().filter(|_| !sidecars).chain(
                status.init_container_statuses.iter().flatten().filter(|c| sidecars && is_sidecar(&c.name)),
            );
            of_kind.map(|c| count(c.restart_count)).max().unwrap_or(0)
        };
        Self {
            uid: Uid::new(meta.uid.as_deref().unwrap_or_default()),
            name: name.into(),
            revision: revision(meta.resource_version.as_deref().unwrap_or_default()),
            claim: claim(pod, job),
            phase: phase(status),
            is_deleted: meta.deletion_timestamp.is_some(),
            has_finalizer: meta.finalizers.iter().flatten().any(|f| f == names::TRACKING_FINALIZER),
            is_ready,
            is_assigned: pod
                .spec
                .as_ref()
                .is_some_and(|s| s.node_name.as_deref().is_some_and(|n| !n.is_empty())),
            attempt: job.pod_names.attempt(index, name),
            index,
            failures: IndexFailures {
                counted: annotation(names::INDEX_FAILURE_COUNT).map_or(0, parse_count),
                ignored: annotation(names::INDEX_IGNORED_FAILURE_COUNT).map_or(0, parse_count),
            },
            restarts: statuses().map(|c| count(c.restart_count)).fold(0, u32::saturating_add),
            restarts_max: (restarts_max(false), restarts_max(true)),
            ready_since: ready
                .filter(|_| is_ready)
                .and_then(|c| c.last_transition_time.as_ref())
                .map(|t| t.0),
            created_at: meta.creation_timestamp.as_ref().map(|t| t.0),
            finished_at: finish_time(pod),
            rule: job
                .failure_policy
                .as_ref()
                .filter(|_| status.phase.as_deref() != Some("Succeeded"))
                .and_then(|policy| policy.evaluate(status))
                .map(Box::new),
        }
    }

    /// Neither finished nor being deleted.
    pub fn is_active(&self) -> bool {
        !self.phase.is_terminal() && !self.is_deleted
    }

    /// Being deleted, and not stopped yet.
    pub fn is_terminating(&self) -> bool {
        !self.phase.is_terminal() && self.is_deleted
    }

    /// Failed, as this Job sees it: where terminating pods are replaced, they count as failed at once.
    pub fn is_failed(&self, job: &JobFacts) -> bool {
        match self.phase {
            Phase::Failed => true,
            Phase::Succeeded => false,
            Phase::Pending | Phase::Unknown | Phase::Running => {
                self.is_deleted && !job.only_replaces_failed()
            }
        }
    }

    /// A rule of the failure policy says that this pod fails the Job.
    pub(crate) fn fails_job(&self) -> bool {
        self.rule.as_ref().is_some_and(|rule| rule.action == Action::FailJob)
    }

    /// Whether a newer view of the same pod gives no reason to decide anew: that it has got a node matters only when
    /// there are too many pods, and that is seen then.
    pub fn decides_like(&self, newer: &Self) -> bool {
        let (revision, is_assigned) = (newer.revision, newer.is_assigned);
        *newer == Self { revision, is_assigned, ..self.clone() }
    }

    pub(crate) fn victim_order(&self) -> VictimOrder<'_> {
        (
            self.is_assigned,
            self.phase,
            self.is_ready,
            self.ready_since.map(Reverse),
            Reverse(self.restarts_max),
            self.created_at.map(Reverse),
            &self.uid,
        )
    }
}

fn phase(status: &PodStatus) -> Phase {
    match status.phase.as_deref() {
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        Some("Unknown") => Phase::Unknown,
        _ => Phase::Pending,
    }
}

fn claim(pod: &Pod, job: &JobFacts) -> Claim {
    let owner = pod.metadata.owner_references.iter().flatten().find(|o| o.controller == Some(true));
    let empty = std::collections::BTreeMap::new();
    let labels = pod.metadata.labels.as_ref().unwrap_or(&empty);
    let matches = job.selector.as_ref().map(|selector| selector.matches(labels));
    match owner {
        // With a selector that can't be read nothing is taken in and nothing let go.
        Some(owner) if Uid::new(&owner.uid) == job.uid => match matches {
            None | Some(true) => Claim::Ours,
            Some(false) => Claim::Stray,
        },
        None if matches == Some(true) && pod.metadata.namespace.as_deref() == Some(&job.namespace) => {
            Claim::Orphan
        }
        Some(_) | None => Claim::Foreign,
    }
}

/// Missing, unreadable or negative: unknown.
fn parse_index(text: &str) -> Option<u32> {
    text.parse::<i32>().ok().and_then(|index| u32::try_from(index).ok())
}

/// Missing, unreadable, negative or too large: none.
fn parse_count(text: &str) -> u32 {
    parse_index(text).unwrap_or(0)
}

fn count(number: i32) -> u32 {
    u32::try_from(number).unwrap_or(0)
}

fn is_sidecar(pod: &Pod, name: &str) -> bool {
    let inits = pod.spec.as_ref().and_then(|spec| spec.init_containers.as_ref());
    inits.into_iter().flatten().any(|c| c.name == name && c.restart_policy.as_deref() == Some("Always"))
}

/// When a pod finished; the first that is known of: the last of its containers and sidecars stopped (if all have);
/// it ceased to be ready; it was asked to go; it was created. Never "now", which would push a retry ahead of itself
/// for ever.
fn finish_time(pod: &Pod) -> Timestamp {
    let status = pod.status.as_ref();
    last_stop(pod)
        .or_else(|| {
            let conditions = status?.conditions.as_ref()?;
            let ready = conditions.iter().find(|c| c.type_ == "Ready" && c.status == "False")?;
            Some(ready.last_transition_time.as_ref()?.0)
        })
        .or_else(|| {
            let deletion = pod.metadata.deletion_timestamp.as_ref()?.0;
            let grace = SignedDuration::from_secs(pod.metadata.deletion_grace_period_seconds.unwrap_or(0));
            deletion.checked_sub(grace).ok()
        })
        .or_else(|| Some(pod.metadata.creation_timestamp.as_ref()?.0))
        .unwrap_or(Timestamp::UNIX_EPOCH)
}

fn last_stop(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let containers = latest_stop(status.container_statuses.iter().flatten());
    let mut sidecars =
        status.init_container_statuses.iter().flatten().filter(|c| is_sidecar(pod, &c.name)).peekable();
    if sidecars.peek().is_none() {
        return containers;
    }
    // Upstream uses the sidecars' time also when the containers yield none.
    latest_stop(sidecars).map(|time| containers.map_or(time, |other| other.max(time)))
}

fn latest_stop<'a>(statuses: impl Iterator<Item = &'a ContainerStatus>) -> Option<Timestamp> {
    let stops: Option<Vec<Timestamp>> =
        statuses.map(|c| Some(c.state.as_ref()?.terminated.as_ref()?.finished_at.as_ref()?.0)).collect();
    stops?.into_iter().max()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_facts_of_a_pod_take_at_most_200_bytes() {
        assert!(size_of::<PodFacts>() <= 200, "{} bytes", size_of::<PodFacts>());
    }
}
