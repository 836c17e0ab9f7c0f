//! What the scenarios prove: every integration test of the Job controller, every user story, every bug that Kubernetes had.
//!
//! A row without a scenario says where else it is proved.

use std::collections::BTreeSet;

use windlass_conformance::scenario::{Scenario, catalogue, gates};

/// Where something is proved.
enum By {
    /// By scenarios whose `covers` names it.
    Scenarios,
    /// By these scenarios, which do not name it.
    These(&'static [&'static str]),
    /// Elsewhere: a file of this repository, and what in it.
    Elsewhere(&'static str, &'static str),
    /// Not at all, and why.
    Nowhere(&'static str),
}

use By::{Elsewhere, Nowhere, Scenarios, These};

/// The tests of `test/integration/job` of Kubernetes v1.36.
const TESTS: &[(&str, By)] = &[
    ("TestJobPodFailurePolicyWithFailedPodDeletedDuringControllerRestart", Scenarios),
    ("TestJobPodFailurePolicy", Scenarios),
    ("TestSuccessPolicy", Scenarios),
    ("TestSuccessPolicy_ReEnabling", Scenarios),
    ("TestBackoffLimitPerIndex_DelayedPodDeletion", Scenarios),
    ("TestBackoffLimitPerIndex_Reenabling", Scenarios),
    ("TestBackoffLimitPerIndex_JobPodsCreatedWithExponentialBackoff", Scenarios),
    ("TestDelayTerminalPhaseCondition", Scenarios),
    ("TestBackoffLimitPerIndex", Scenarios),
    ("TestManagedBy", Scenarios),
    ("TestManagedBy_Reenabling", Scenarios),
    ("TestImmediateJobRecreation", Scenarios),
    ("TestManagedBy_RecreatedJob", Scenarios),
    ("TestManagedBy_UsingReservedJobFinalizers", Scenarios),
    ("TestNonParallelJob", Scenarios),
    ("TestParallelJob", Scenarios),
    ("TestParallelJobChangingParallelism", Scenarios),
    ("TestParallelJobWithCompletions", Scenarios),
    ("TestIndexedJob", Scenarios),
    ("TestJobPodReplacementPolicy", Scenarios),
    ("TestJobPodReplacementPolicyFeatureToggling", Scenarios),
    ("TestElasticIndexedJob", Scenarios),
    ("BenchmarkLargeIndexedJob", Elsewhere("bench/src/bin/controller/load.rs", "Succeed")),
    ("BenchmarkLargeFailureHandling", Elsewhere("bench/src/bin/controller/load.rs", "FailPerIndex")),
    ("TestOrphanPodsFinalizersClearedWithGC", Scenarios),
    ("TestFinalizersClearedWhenBackoffLimitExceeded", Scenarios),
    ("TestJobPodsCreatedWithExponentialBackoff", Scenarios),
    ("TestJobFailedWithInterrupts", Scenarios),
    ("TestOrphanPodsFinalizersClearedOnRestart", Scenarios),
    ("TestSuspendJob", Scenarios),
    ("TestStartTimeUpdateOnResume", Scenarios),
    ("TestSuspendJobWithZeroCompletions", Scenarios),
    ("TestSuspendJobControllerRestart", Scenarios),
    ("TestNodeSelectorUpdate", Scenarios),
    ("TestUpdateJobPodResources", Scenarios),
    ("TestDelayedJobUpdateEvent", Scenarios),
    ("TestMutableSchedulingDirectivesForSuspendedJobs", Scenarios),
    ("TestMutableSchedulingDirectivesForSuspendedJobsNotYetStarted", These(&["directives-not-started"])),
    ("TestMutablePodResourcesForSuspendedJobsNotYetStarted", These(&["directives-not-started"])),
    ("TestMutablePodResourcesWithPodReplacementPolicyFailed", Scenarios),
    ("TestJobGangScheduling", Nowhere("alpha, and off")),
    ("TestJobAdmissionParallelismUpdate", Nowhere("alpha, and off")),
];

/// The user stories of the documents.
const STORIES: &[(&str, By)] = &[
    ("KEP-3329 story 1", Scenarios),
    ("KEP-3329 story 2", Scenarios),
    ("KEP-3329 story 3", Scenarios),
    // The draft is no part of Kubernetes' API.
    ("draft story 1", Elsewhere("examples/story-draft-policy-1-exit-code-ranges.yaml", "backoffPolicy")),
    ("draft story 2", Elsewhere("examples/story-draft-policy-2-status-reasons.yaml", "backoffPolicy")),
    ("KEP-3939 story 1", Scenarios),
    ("KEP-3939 story 2", Scenarios),
    ("KEP-3939 story 3", Scenarios),
    ("KEP-3850 story 1", Scenarios),
    ("KEP-3850 story 2", Scenarios),
    ("KEP-3850 story 3", Scenarios),
    ("KEP-2307", Scenarios),
];

/// Bugs that Kubernetes had, by issue.
const BUGS: &[(&str, By)] = &[
    ("#105200", Scenarios),
    ("#104666", Scenarios),
    ("#109485", Scenarios),
    ("#119159", Scenarios),
    ("#114391", Scenarios),
    (
        "a finish time that is now",
        Elsewhere("crates/job/tests/history_of_bugs.rs", "without_any_finish_time"),
    ),
    ("#121147", Scenarios),
    ("#115844", These(&["replace-failed", "story-one-pod-an-index"])),
    ("#123775", Scenarios),
    ("#125089", Elsewhere("crates/job/tests/history_of_bugs.rs", "125089")),
    ("#125410", Scenarios),
    ("#130103", Scenarios),
    ("#132042", Scenarios),
    ("#134521", Scenarios),
    (
        "#136585",
        Elsewhere(
            "crates/api/src/validation/job_status.rs",
            "field is immutable for unsuspended job once set",
        ),
    ),
    ("#137210", Elsewhere("crates/sim/tests/promises.rs", "never_too_many")),
    ("#139329", Scenarios),
    ("#139428", Scenarios),
    ("#99963", Scenarios),
    ("#67859", Scenarios),
    ("#60735", Scenarios),
    ("#42639", Elsewhere("crates/controllers/tests/job/ownership.rs", "adopt")),
    ("an untracked terminating counter", These(&["gate-replacement"])),
];

fn scenarios() -> Vec<Scenario> {
    [catalogue::all(), catalogue::large(), gates::all()].concat()
}

/// `covers` names it: the whole word, not the beginning of a longer one.
fn names(covers: &str, what: &str) -> bool {
    covers.match_indices(what).any(|(at, _)| {
        let rest = &covers[at + what.len()..];
        !rest.starts_with(|next: char| next.is_alphanumeric() || next == '_')
    })
}

#[test]
fn everything_that_was_ever_tested_or_broken_upstream_is_proved_somewhere() {
    let all = scenarios();
    let known: BTreeSet<&str> = all.iter().map(|scenario| scenario.name.as_str()).collect();
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut missing = Vec::new();
    for (what, by) in [TESTS, STORIES, BUGS].into_iter().flatten() {
        match by {
            Scenarios => {
                let found: Vec<&str> = all
                    .iter()
                    .filter(|scenario| names(scenario.covers, what))
                    .map(|scenario| scenario.name.as_str())
                    .collect();
                println!("{what}: {}", found.join(", "));
                if found.is_empty() {
                    missing.push(format!("{what}: no scenario"));
                }
            }
            These(names) => {
                println!("{what}: {}", names.join(", "));
                missing.extend(
                    names.iter().filter(|name| !known.contains(*name)).map(|name| format!("{what}: {name}")),
                );
            }
            Elsewhere(file, contains) => {
                println!("{what}: {file}");
                let text = std::fs::read_to_string(root.join(file)).unwrap_or_default();
                if !text.contains(contains) {
                    missing.push(format!("{what}: {file} does not say {contains:?}"));
                }
            }
            Nowhere(why) => println!("{what}: {why}"),
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
}
