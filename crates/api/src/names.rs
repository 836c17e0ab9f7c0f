//! The exact names of the Job contract: labels, annotations, finalizers, condition types and reasons.

/// `apiVersion` of a Job.
pub const JOB_API_VERSION: &str = "batch/v1";
/// `kind` of a Job.
pub const JOB_KIND: &str = "Job";

/// The finalizer that keeps a pod from disappearing before it is counted.
pub const TRACKING_FINALIZER: &str = "batch.kubernetes.io/job-tracking";

/// Annotation and label that hold a pod's completion index.
pub const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
/// Annotation with the number of counted failures of an index before this pod.
pub const INDEX_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
/// Annotation with the number of ignored failures of an index before this pod.
pub const INDEX_IGNORED_FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// Label with the Job's name.
pub const JOB_NAME_LABEL: &str = "batch.kubernetes.io/job-name";
/// Unprefixed label with the Job's name.
pub const LEGACY_JOB_NAME_LABEL: &str = "job-name";
/// The ConfigMap in which pods find the certificate of the API server.
pub const ROOT_CA: &str = "kube-root-ca.crt";
/// The annotation by which it says what it is for, and upstream's text.
pub const ROOT_CA_DESCRIPTION: (&str, &str) = (
    "kubernetes.io/description",
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints such as the internal \
     service IP or kubernetes.default.svc. No other usage is guaranteed across distributions of Kubernetes clusters.",
);
/// The taint of a node that says that it is not ready, or has not said yet that it is.
pub const NOT_READY_TAINT: &str = "node.kubernetes.io/not-ready";
/// The taint of a node that nobody hears of.
pub const UNREACHABLE_TAINT: &str = "node.kubernetes.io/unreachable";
/// Label with the Job's UID.
pub const CONTROLLER_UID_LABEL: &str = "batch.kubernetes.io/controller-uid";
/// Unprefixed label with the Job's UID.
pub const LEGACY_CONTROLLER_UID_LABEL: &str = "controller-uid";
/// Environment variable with the completion index.
pub const COMPLETION_INDEX_ENV: &str = "JOB_COMPLETION_INDEX";

/// `spec.managedBy` of the controller built into Kubernetes.
pub const BUILT_IN_CONTROLLER: &str = "kubernetes.io/job-controller";
/// `spec.managedBy` of this controller.
pub const WINDLASS_CONTROLLER: &str = "windlass.dev/job-controller";
/// Source component of Job events.
pub const EVENT_COMPONENT: &str = "job-controller";

/// Job condition types.
pub mod condition {
    /// The Job has succeeded. Terminal.
    pub const COMPLETE: &str = "Complete";
    /// The Job has failed. Terminal.
    pub const FAILED: &str = "Failed";
    /// The Job is about to fail: its remaining pods are being ended.
    pub const FAILURE_TARGET: &str = "FailureTarget";
    /// The Job is about to be complete: its remaining pods are being ended.
    pub const SUCCESS_CRITERIA_MET: &str = "SuccessCriteriaMet";
    /// The Job is suspended.
    pub const SUSPENDED: &str = "Suspended";
}

/// Reasons of Job conditions.
pub mod reason {
    /// A `FailJob` rule matched.
    pub const POD_FAILURE_POLICY: &str = "PodFailurePolicy";
    /// More failures than `backoffLimit` allows.
    pub const BACKOFF_LIMIT_EXCEEDED: &str = "BackoffLimitExceeded";
    /// Active longer than `activeDeadlineSeconds`.
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    /// More failed indexes than `maxFailedIndexes` allows.
    pub const MAX_FAILED_INDEXES_EXCEEDED: &str = "MaxFailedIndexesExceeded";
    /// All indexes are done and at least one has failed.
    pub const FAILED_INDEXES: &str = "FailedIndexes";
    /// A success policy rule matched.
    pub const SUCCESS_POLICY: &str = "SuccessPolicy";
    /// All completions were reached.
    pub const COMPLETIONS_REACHED: &str = "CompletionsReached";
    /// `spec.suspend` was set.
    pub const JOB_SUSPENDED: &str = "JobSuspended";
    /// `spec.suspend` was cleared.
    pub const JOB_RESUMED: &str = "JobResumed";
}

/// Pod condition of a pod that is ended by a disruption.
pub const DISRUPTION_TARGET: &str = "DisruptionTarget";

/// Reasons of the `DisruptionTarget` condition, one for each component that ends pods.
pub mod disruption {
    /// Preempted for a pod of higher priority.
    pub const PREEMPTION_BY_SCHEDULER: &str = "PreemptionByScheduler";
    /// Deleted because of a `NoExecute` taint.
    pub const DELETION_BY_TAINT_MANAGER: &str = "DeletionByTaintManager";
    /// Evicted through the eviction API.
    pub const EVICTION_BY_EVICTION_API: &str = "EvictionByEvictionAPI";
    /// Orphaned by a node that no longer exists.
    pub const DELETION_BY_POD_GC: &str = "DeletionByPodGC";
    /// Ended by the node: pressure, shutdown or a critical pod.
    pub const TERMINATION_BY_KUBELET: &str = "TerminationByKubelet";
}
