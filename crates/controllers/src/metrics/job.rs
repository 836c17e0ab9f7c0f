//! The figures of the Job controller: `job_controller_…` as in Kubernetes v1.36, and `windlass_job_…`.

use std::collections::BTreeSet;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use windlass_api::indexes::IndexSet;
use windlass_api::names;
use windlass_job::JobFacts;
use windlass_job::decision::{CreationReason, StatusWrite};
use windlass_job::job_facts::Status;
use windlass_job::policy::failure::Action;
use windlass_job::trace::{Note, PodOutcome, Trigger};
use windlass_job::verdict::Ending;

use super::{Counters, Histograms, Metrics};

/// Names of other controllers that are told apart. More of them are one, `other`.
const CONTROLLERS_MAX: usize = 50;

/// Reasons of the end of a Job.
const REASONS: [&str; 7] = [
    "BackoffLimitExceeded",
    "DeadlineExceeded",
    "PodFailurePolicy",
    "FailedIndexes",
    "MaxFailedIndexesExceeded",
    "SuccessPolicy",
    "CompletionsReached",
];

#[derive(Debug)]
pub(super) struct Figures {
    sync_duration: Histograms<3>,
    syncs: Counters<3>,
    jobs_finished: Counters<3>,
    pods_finished: Counters<2>,
    indexes_finished: Counters<2>,
    failures_by_policy: Counters<1>,
    terminated_held: Counters<1>,
    pods_created: Counters<2>,
    external: Family<[(&'static str, String); 1], Counter>,
    external_names: Mutex<BTreeSet<String>>,
    stale_skips: Counters<2>,
    decisions: Counters<1>,
    lag: Histogram,
}

/// What a look at a Job came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SyncLabels {
    pub(crate) is_indexed: bool,
    pub(crate) is_error: bool,
    pub(crate) action: SyncAction,
}

/// The most telling thing that a look at a Job did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SyncAction {
    Reconciling,
    Tracking,
    PodsDeleted,
    PodsCreated,
}

impl SyncAction {
    fn label(self) -> &'static str {
        match self {
            Self::Reconciling => "reconciling",
            Self::Tracking => "tracking",
            Self::PodsDeleted => "pods_deleted",
            Self::PodsCreated => "pods_created",
        }
    }
}

/// What a status has counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ledger {
    is_indexed: bool,
    is_per_index: bool,
    succeeded: u32,
    failed: u32,
    completed_indexes: u64,
    failed_indexes: u64,
}

impl Ledger {
    pub(crate) fn of(job: &JobFacts) -> Self {
        let (is_indexed, is_per_index) = (job.is_indexed(), job.per_index.is_some());
        Self { is_indexed, is_per_index, ..Self::of_status(&job.status) }
    }

    fn of_status(status: &Status) -> Self {
        Self {
            succeeded: status.succeeded,
            failed: status.failed,
            completed_indexes: status.completed_indexes.len(),
            failed_indexes: status.failed_indexes.as_ref().map_or(0, IndexSet::len),
            ..Self::default()
        }
    }
}

impl Figures {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        // 0.004·2^k, k = 0..14, as upstream.
        let sync_buckets = || Histogram::new(exponential_buckets(0.004, 2.0, 15));
        let figures = Self {
            sync_duration: Histograms::new_with_constructor(sync_buckets),
            syncs: Counters::default(),
            jobs_finished: Counters::default(),
            pods_finished: Counters::default(),
            indexes_finished: Counters::default(),
            failures_by_policy: Counters::default(),
            terminated_held: Counters::default(),
            pods_created: Counters::default(),
            external: Family::default(),
            external_names: Mutex::default(),
            stale_skips: Counters::default(),
            decisions: Counters::default(),
            lag: Histogram::new(exponential_buckets(0.001, 2.0, 16)),
        };
        // Series that a dashboard can rely on from the start.
        for (group, resource) in [("", "pods"), ("batch", "jobs")] {
            drop(figures.stale_skips.get_or_create(&[("group", group), ("resource", resource)]));
        }
        for event in ["add", "delete"] {
            drop(figures.terminated_held.get_or_create(&[("event", event)]));
        }
        figures.register(registry);
        figures
    }

    fn register(&self, registry: &mut Registry) {
        let help = "The time it took to sync a job";
        registry.register("job_controller_job_sync_duration_seconds", help, self.sync_duration.clone());
        registry.register("job_controller_job_syncs", "The number of job syncs", self.syncs.clone());
        let help = "The number of finished jobs";
        registry.register("job_controller_jobs_finished", help, self.jobs_finished.clone());
        let help = "The number of finished Pods that are fully tracked";
        registry.register("job_controller_job_pods_finished", help, self.pods_finished.clone());
        let help = "The number of finished indexes";
        registry.register("job_controller_job_finished_indexes", help, self.indexes_finished.clone());
        let help = "The number of failed Pods that a rule of a pod failure policy decided about, by action";
        registry.register(
            "job_controller_pod_failures_handled_by_failure_policy",
            help,
            self.failures_by_policy.clone(),
        );
        let help =
            "Pods that have ended and hold the tracking finalizer: how many became so, and stopped being so";
        registry.register(
            "job_controller_terminated_pods_tracking_finalizer",
            help,
            self.terminated_held.clone(),
        );
        let help = "The number of Pods created, by why, and whether it worked";
        registry.register("job_controller_job_pods_creation", help, self.pods_created.clone());
        let help = "The number of Jobs seen that another controller manages";
        registry.register("job_controller_jobs_by_external_controller", help, self.external.clone());
        let help =
            "Syncs skipped because own writes were not seen yet: always 0, they are part of the view at once";
        registry.register("job_controller_stale_sync_skips", help, self.stale_skips.clone());
        let help = "What decisions took into account, by rule";
        registry.register("windlass_job_decisions", help, self.decisions.clone());
        let help = "From the end of a pod, as seen, until the status of its Job says so";
        registry.register("windlass_job_status_lag_seconds", help, self.lag.clone());
    }
}

fn mode_label(is_indexed: bool) -> &'static str {
    if is_indexed { "Indexed" } else { "NonIndexed" }
}

impl Metrics {
    pub(crate) fn synced(&self, labels: SyncLabels, took: Duration) {
        let labels = [
            ("completion_mode", mode_label(labels.is_indexed)),
            ("result", if labels.is_error { "error" } else { "success" }),
            ("action", labels.action.label()),
        ];
        self.0.job.sync_duration.get_or_create(&labels).observe(took.as_secs_f64());
        self.0.job.syncs.get_or_create(&labels).inc();
    }

    pub(crate) fn decided(&self, notes: &[Note]) {
        for note in notes {
            self.0.job.decisions.get_or_create(&[("rule", rule(note))]).inc();
        }
    }

    /// `write` was written over `before`.
    pub(crate) fn status_written(&self, before: Ledger, write: &StatusWrite) {
        let new = Ledger {
            is_indexed: before.is_indexed,
            is_per_index: before.is_per_index,
            ..Ledger::of_status(&write.status)
        };
        let mode = ("completion_mode", mode_label(before.is_indexed));
        let mut succeeded = u64::from(new.succeeded.saturating_sub(before.succeeded));
        if before.is_indexed {
            succeeded = self.indexes_finished(before, new);
        }
        let failed = u64::from(new.failed.saturating_sub(before.failed));
        let pods = &self.0.job.pods_finished;
        pods.get_or_create(&[mode, ("result", "succeeded")]).inc_by(succeeded);
        pods.get_or_create(&[mode, ("result", "failed")]).inc_by(failed);
        if write.finishes {
            let (result, end) = match write.status.true_condition(names::condition::COMPLETE) {
                Some(complete) => ("succeeded", Some(complete)),
                None => ("failed", write.status.true_condition(names::condition::FAILED)),
            };
            let reason = end.and_then(|condition| condition.reason.as_deref()).unwrap_or_default();
            let reason = REASONS.into_iter().find(|known| *known == reason).unwrap_or_default();
            let labels = [mode, ("result", result), ("reason", reason)];
            self.0.job.jobs_finished.get_or_create(&labels).inc();
        }
    }

    /// Says how many indexes have succeeded.
    fn indexes_finished(&self, old: Ledger, new: Ledger) -> u64 {
        let limit = ("backoffLimit", if old.is_per_index { "perIndex" } else { "global" });
        let succeeded = new.completed_indexes.saturating_sub(old.completed_indexes);
        let indexes = &self.0.job.indexes_finished;
        indexes.get_or_create(&[("status", "succeeded"), limit]).inc_by(succeeded);
        let failed = new.failed_indexes.saturating_sub(old.failed_indexes);
        if failed > 0 {
            indexes.get_or_create(&[("status", "failed"), limit]).inc_by(failed);
        }
        succeeded
    }

    /// A rule of a failure policy decided about a pod that is now counted, or is not.
    pub(crate) fn policy_decided(&self, action: Action) {
        let action = match action {
            Action::FailJob => "FailJob",
            Action::FailIndex => "FailIndex",
            Action::Ignore => "Ignore",
            Action::Count => "Count",
        };
        self.0.job.failures_by_policy.get_or_create(&[("action", action)]).inc();
    }

    /// A pod has become, or is no longer, one that has ended and holds the tracking finalizer.
    pub(crate) fn terminated_held(&self, is_so: bool) {
        let event = if is_so { "add" } else { "delete" };
        self.0.job.terminated_held.get_or_create(&[("event", event)]).inc();
    }

    pub(crate) fn pod_created(&self, reason: CreationReason, worked: bool) {
        let reason = match reason {
            CreationReason::New => "new",
            CreationReason::RecreateTerminatingOrFailed => "recreate_terminating_or_failed",
            CreationReason::RecreateFailed => "recreate_failed",
        };
        let status = if worked { "succeeded" } else { "failed" };
        self.0.job.pods_created.get_or_create(&[("reason", reason), ("status", status)]).inc();
    }

    /// A Job was seen for the first time that asks for another controller.
    pub(crate) fn external_job(&self, controller: &str) {
        let mut known = self.0.job.external_names.lock();
        let name = if known.contains(controller) || known.len() < CONTROLLERS_MAX {
            known.insert(controller.to_owned());
            controller
        } else {
            "other"
        };
        self.0.job.external.get_or_create(&[("controller_name", name.to_owned())]).inc();
    }

    /// The status says of a pod that it has ended.
    pub(crate) fn counted_after(&self, lag: Duration) {
        self.0.job.lag.observe(lag.as_secs_f64());
    }
}

/// The rule that a note is about.
fn rule(note: &Note) -> &'static str {
    match note {
        Note::NotOurs { .. } => "not_ours",
        Note::Finished => "finished",
        Note::UnknownMode => "unknown_mode",
        Note::Claiming { .. } => "claim",
        Note::PodFinished { outcome, .. } => match outcome {
            PodOutcome::Succeeded => "pod_succeeded",
            PodOutcome::Counted(None) => "pod_failed",
            PodOutcome::EndedWithJob => "pod_ended_with_job",
            PodOutcome::Counted(Some(matched)) | PodOutcome::Ignored(matched) => match matched.action {
                Action::FailJob => "policy_fail_job",
                Action::FailIndex => "policy_fail_index",
                Action::Ignore => "policy_ignore",
                Action::Count => "policy_count",
            },
        },
        Note::Counters { .. } => "counters",
        Note::Ending { trigger, .. } => match trigger {
            Trigger::Rule { .. } => "end_by_failure_policy",
            Trigger::BackoffLimit { .. } => "end_by_backoff_limit",
            Trigger::Deadline { .. } => "end_by_deadline",
            Trigger::FailedIndexes { .. } => "end_by_failed_indexes",
            Trigger::SuccessRule { .. } => "end_by_success_policy",
            Trigger::Completions { .. } => "end_by_completions",
        },
        Note::Deleting { .. } => "delete_pods",
        Note::Removing { .. } => "remove_pods",
        Note::Creating { .. } => "create_pods",
        Note::Waiting { .. } => "wait",
        Note::WaitingForPods { .. } => "wait_for_pods",
        Note::Concluded { ending: Ending::Success, .. } => "conclude_success",
        Note::Concluded { ending: Ending::Failure, .. } => "conclude_failure",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_users_invent_make_no_endless_series() {
        let metrics = Metrics::default();
        for n in 0..1000 {
            metrics.external_job(&format!("example.com/{n}"));
        }
        let text = metrics.text();
        let series = text.lines().filter(|line| line.contains("controller_name=")).count();
        assert_eq!(series, CONTROLLERS_MAX + 1);
        assert!(text.contains("controller_name=\"other\"} 950\n"), "{text}");
    }

    #[test]
    fn every_figure_of_kubernetes_has_its_name_and_its_labels() {
        let metrics = Metrics::default();
        let labels = SyncLabels { is_indexed: true, is_error: false, action: SyncAction::Tracking };
        metrics.synced(labels, Duration::from_millis(5));
        metrics.policy_decided(Action::FailIndex);
        metrics.terminated_held(true);
        metrics.pod_created(CreationReason::RecreateFailed, true);
        metrics.external_job("example.com/x");
        let mut status = Status { succeeded: 2, failed: 1, ..Status::default() };
        status.completed_indexes.insert_range(0..=1);
        status.failed_indexes.get_or_insert_default().insert(2);
        let now = jiff::Timestamp::UNIX_EPOCH;
        let failed = windlass_job::job_facts::Condition::now_true("Failed", "FailedIndexes", "", now);
        status.set_condition(failed);
        let write =
            StatusWrite { status, resource_version: String::new(), events: Vec::new(), finishes: true };
        let before = Ledger {
            is_indexed: true,
            is_per_index: true,
            succeeded: 1,
            completed_indexes: 1,
            ..Ledger::default()
        };
        metrics.status_written(before, &write);
        let text = metrics.text();
        let sync = r#"completion_mode="Indexed",result="success",action="tracking""#;
        let series = [
            format!("job_controller_job_sync_duration_seconds_bucket{{le=\"0.004\",{sync}}} 0"),
            format!("job_controller_job_sync_duration_seconds_bucket{{le=\"65.536\",{sync}}} 1"),
            format!("job_controller_job_syncs_total{{{sync}}} 1"),
            r#"job_controller_jobs_finished_total{completion_mode="Indexed",result="failed",reason="FailedIndexes"} 1"#.into(),
            r#"job_controller_job_pods_finished_total{completion_mode="Indexed",result="succeeded"} 1"#.into(),
            r#"job_controller_job_pods_finished_total{completion_mode="Indexed",result="failed"} 1"#.into(),
            r#"job_controller_job_finished_indexes_total{status="succeeded",backoffLimit="perIndex"} 1"#.into(),
            r#"job_controller_job_finished_indexes_total{status="failed",backoffLimit="perIndex"} 1"#.into(),
            r#"job_controller_pod_failures_handled_by_failure_policy_total{action="FailIndex"} 1"#.into(),
            r#"job_controller_terminated_pods_tracking_finalizer_total{event="add"} 1"#.into(),
            r#"job_controller_job_pods_creation_total{reason="recreate_failed",status="succeeded"} 1"#.into(),
            r#"job_controller_jobs_by_external_controller_total{controller_name="example.com/x"} 1"#.into(),
            r#"job_controller_stale_sync_skips_total{group="",resource="pods"} 0"#.into(),
        ];
        let missing: Vec<&String> =
            series.iter().filter(|line| !text.lines().any(|l| l == line.as_str())).collect();
        assert!(missing.is_empty(), "{missing:#?} in {text}");
    }
}
