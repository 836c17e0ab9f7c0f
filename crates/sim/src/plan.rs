//! The Job of a case, as a few numbers from which a whole Job is made.

use k8s_openapi::api::batch::v1::{
    Job, JobSpec, PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern, PodFailurePolicyRule, SuccessPolicy, SuccessPolicyRule,
};
use k8s_openapi::api::core::v1::{Container, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use windlass_api::names;

use crate::world::NAMESPACE;

/// The Job's name.
pub const JOB_NAME: &str = "work";
/// The Job's UID.
pub const JOB_UID: &str = "10b10b10-0000-4000-8000-00000000cafe";
/// The exit code that fails the Job, where there is a policy.
pub const FAIL_JOB_CODE: i32 = 42;
/// The exit code that fails the index, where there is a policy and a limit per index.
pub const FAIL_INDEX_CODE: i32 = 13;
/// The exit code that is ignored, where there is a policy.
pub const IGNORED_CODE: i32 = 7;
/// The exit code that a rule counts.
pub const COUNTED_CODE: i32 = 10;

/// How completions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Any success completes it.
    WorkQueue,
    /// So many successes complete it.
    Fixed(i32),
    /// Each index needs a success.
    Indexed(i32),
}

/// A Job in a few numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobPlan {
    /// How completions are counted.
    pub shape: Shape,
    /// `spec.parallelism`.
    pub parallelism: i32,
    /// `spec.backoffLimit`.
    pub backoff_limit: i32,
    /// `spec.backoffLimitPerIndex`, of an Indexed Job.
    pub per_index: Option<i32>,
    /// `spec.maxFailedIndexes`, with a limit per index.
    pub max_failed_indexes: Option<i32>,
    /// Has a policy with all actions that the Job may have.
    pub has_policy: bool,
    /// `spec.successPolicy` of an Indexed Job: indexes `0`, or a count.
    pub success: Option<Success>,
    /// `spec.podReplacementPolicy` is `Failed`.
    pub replaces_failed: bool,
    /// `spec.activeDeadlineSeconds`.
    pub deadline_s: Option<i64>,
    /// `spec.suspend`.
    pub is_suspended: bool,
    /// `restartPolicy` is `OnFailure` (never with a policy).
    pub restarts_in_place: bool,
}

/// A success policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Success {
    /// Index 0 suffices.
    Leader,
    /// So many suffice.
    Count(i32),
}

impl Default for JobPlan {
    fn default() -> Self {
        Self {
            shape: Shape::Fixed(1),
            parallelism: 1,
            backoff_limit: 6,
            per_index: None,
            max_failed_indexes: None,
            has_policy: false,
            success: None,
            replaces_failed: false,
            deadline_s: None,
            is_suspended: false,
            restarts_in_place: false,
        }
    }
}

impl JobPlan {
    /// An Indexed Job of `completions`, all at once.
    pub fn indexed(completions: i32) -> Self {
        Self { shape: Shape::Indexed(completions), parallelism: completions, ..Self::default() }
    }

    /// A Job of `completions`, `parallelism` at a time.
    pub fn fixed(completions: i32, parallelism: i32) -> Self {
        Self { shape: Shape::Fixed(completions), parallelism, ..Self::default() }
    }

    /// The Job.
    pub fn job(&self) -> Job {
        let (completions, mode) = match self.shape {
            Shape::WorkQueue => (None, "NonIndexed"),
            Shape::Fixed(completions) => (Some(completions), "NonIndexed"),
            Shape::Indexed(completions) => (Some(completions), "Indexed"),
        };
        let is_indexed = mode == "Indexed";
        let per_index = self.per_index.filter(|_| is_indexed);
        let replacement =
            if self.has_policy || self.replaces_failed { "Failed" } else { "TerminatingOrFailed" };
        let labels = [(names::CONTROLLER_UID_LABEL, JOB_UID), (names::JOB_NAME_LABEL, JOB_NAME)];
        let labels = |count| {
            Some(labels.iter().take(count).map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect())
        };
        Job {
            metadata: ObjectMeta {
                name: Some(JOB_NAME.to_owned()),
                namespace: Some(NAMESPACE.to_owned()),
                uid: Some(JOB_UID.to_owned()),
                generation: Some(1),
                ..ObjectMeta::default()
            },
            spec: Some(JobSpec {
                completions,
                completion_mode: Some(mode.to_owned()),
                parallelism: Some(self.parallelism),
                backoff_limit: Some(self.backoff_limit),
                backoff_limit_per_index: per_index,
                max_failed_indexes: self.max_failed_indexes.filter(|_| per_index.is_some()),
                pod_failure_policy: self.has_policy.then(|| policy(per_index.is_some())),
                success_policy: self.success.filter(|_| is_indexed).map(success_policy),
                pod_replacement_policy: Some(replacement.to_owned()),
                active_deadline_seconds: self.deadline_s,
                suspend: Some(self.is_suspended),
                manual_selector: Some(false),
                selector: Some(LabelSelector { match_labels: labels(1), match_expressions: None }),
                template: PodTemplateSpec {
                    metadata: Some(ObjectMeta { labels: labels(2), ..ObjectMeta::default() }),
                    spec: Some(self.pod_spec()),
                },
                ..JobSpec::default()
            }),
            status: None,
        }
    }

    fn pod_spec(&self) -> PodSpec {
        let in_place = self.restarts_in_place && !self.has_policy;
        PodSpec {
            restart_policy: Some(if in_place { "OnFailure" } else { "Never" }.to_owned()),
            containers: vec![Container { name: "main".to_owned(), ..Container::default() }],
            ..PodSpec::default()
        }
    }
}

fn policy(has_indexes: bool) -> PodFailurePolicy {
    let codes = |action: &str, code: i32| PodFailurePolicyRule {
        action: action.to_owned(),
        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
            container_name: None,
            operator: "In".to_owned(),
            values: vec![code],
        }),
        on_pod_conditions: None,
    };
    let disruption = PodFailurePolicyRule {
        action: "Ignore".to_owned(),
        on_exit_codes: None,
        on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
            type_: names::DISRUPTION_TARGET.to_owned(),
            status: Some("True".to_owned()),
        }]),
    };
    let mut rules = vec![
        disruption,
        codes("FailJob", FAIL_JOB_CODE),
        codes("Ignore", IGNORED_CODE),
        codes("Count", COUNTED_CODE),
    ];
    if has_indexes {
        rules.push(codes("FailIndex", FAIL_INDEX_CODE));
    }
    PodFailurePolicy { rules }
}

fn success_policy(success: Success) -> SuccessPolicy {
    let rule = match success {
        Success::Leader => {
            SuccessPolicyRule { succeeded_indexes: Some("0".to_owned()), succeeded_count: None }
        }
        Success::Count(count) => SuccessPolicyRule { succeeded_indexes: None, succeeded_count: Some(count) },
    };
    SuccessPolicy { rules: vec![rule] }
}
