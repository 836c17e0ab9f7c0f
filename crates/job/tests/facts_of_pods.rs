//! What is read from a pod: whose it is, when it finished, its index, its failures, its restarts.

mod common;

use common::{JobBuilder, PodBuilder, at, job, pod, rfc3339};
use jiff::Timestamp;
use serde_json::json;
use windlass_api::Gates;
use windlass_job::orphan::{Owner, should_release};
use windlass_job::pod_facts::{Claim, IndexFailures, Phase};
use windlass_job::{JobFacts, PodFacts, Uid};

fn facts_for(job: JobBuilder, pod: &PodBuilder) -> PodFacts {
    PodFacts::from_pod(&pod.build(), &JobFacts::from_job(&job.build(), None, &Gates::default()))
}

fn facts(pod: &PodBuilder) -> PodFacts {
    facts_for(job(), pod)
}

#[test]
fn a_pod_is_ours_astray_an_orphan_or_foreign() {
    let owner = |owner| json!({ "metadata": { "ownerReferences": [owner] } });
    let other_job = owner(json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "other",
                                  "controller": true }));
    let not_controller =
        owner(json!({ "apiVersion": "batch/v1", "kind": "Job", "name": "work", "uid": "job-uid" }));
    let cases = [
        ("controlled by us, labels match", pod("p"), Claim::Ours),
        ("controlled by us, other labels", pod("p").labels(json!({ "a": "b" })), Claim::Stray),
        (
            "controlled by us, no labels",
            pod("p").with(json!({ "metadata": { "labels": null } })),
            Claim::Stray,
        ),
        ("of nobody, labels match", pod("p").orphan(), Claim::Orphan),
        ("of nobody, other labels", pod("p").orphan().labels(json!({ "a": "b" })), Claim::Foreign),
        (
            "of nobody, in another namespace",
            pod("p").orphan().with(json!({ "metadata": { "namespace": "elsewhere" } })),
            Claim::Foreign,
        ),
        ("controlled by another", pod("p").with(other_job), Claim::Foreign),
        ("owned by us but not controlled", pod("p").with(not_controller), Claim::Orphan),
    ];
    for (what, pod, want) in cases {
        assert_eq!(facts(&pod).claim, want, "{what}");
    }
}

#[test]
fn a_selector_that_can_not_be_read_matches_nothing() {
    let odd = job().spec(json!({ "selector": { "matchExpressions": [{ "key": "a", "operator": "Near" }] } }));
    assert_eq!(facts_for(odd, &pod("p").orphan()).claim, Claim::Foreign);
}

#[test]
fn phases_are_read_and_an_unknown_one_is_pending() {
    let cases = [
        ("Pending", Phase::Pending, false),
        ("Unknown", Phase::Unknown, false),
        ("Running", Phase::Running, false),
        ("Succeeded", Phase::Succeeded, true),
        ("Failed", Phase::Failed, true),
        ("", Phase::Pending, false),
        ("Dreaming", Phase::Pending, false),
    ];
    for (text, want, is_terminal) in cases {
        let phase = facts(&pod("p").phase(text)).phase;
        assert_eq!((phase, phase.is_terminal()), (want, is_terminal), "{text:?}");
    }
    assert_eq!(facts(&pod("p").with(json!({ "status": null }))).phase, Phase::Pending);
}

#[test]
fn active_terminating_and_failed_are_told_apart() {
    let cases = [
        ("running", pod("p").running(), [true, false], [false, false]),
        ("terminating", pod("p").running().deleted(0), [false, true], [true, false]),
        ("failed", pod("p").failed(0), [false, false], [true, true]),
        ("failed and deleted", pod("p").failed(0).deleted(0), [false, false], [true, true]),
        ("succeeded and deleted", pod("p").succeeded(0).deleted(0), [false, false], [false, false]),
    ];
    for (what, pod, [active, terminating], failed) in cases {
        let facts = facts(&pod);
        assert_eq!((facts.is_active(), facts.is_terminating()), (active, terminating), "{what}");
        let as_seen =
            |job: JobBuilder| facts.is_failed(&JobFacts::from_job(&job.build(), None, &Gates::default()));
        assert_eq!([as_seen(job()), as_seen(job().replaces_failed())], failed, "{what}");
    }
}

#[test]
fn the_finish_time_is_the_first_that_is_known() {
    let zero = |pod: PodBuilder| pod.created(1);
    let ended = |pod: PodBuilder, name: &str, second| pod.terminated(name, 1, second);
    let still = json!({ "running": {} });
    let timeless = json!({ "terminated": { "exitCode": 1 } });
    let sidecar = |pod: PodBuilder, state| pod.sidecar("proxy").init_container("proxy", 0, state);
    let stop = |second: i64| json!({ "terminated": { "exitCode": 0, "finishedAt": rfc3339(second) } });
    let cases: Vec<(&str, PodBuilder, i64)> = vec![
        ("created", zero(pod("p")), 1),
        ("the last container", ended(ended(zero(pod("p")), "a", 5), "b", 7), 7),
        ("one container still runs", ended(zero(pod("p")), "a", 5).container("b", 0, still.clone()), 1),
        ("one container ended at no time", ended(zero(pod("p")), "a", 5).container("b", 0, timeless), 1),
        ("a sidecar later than the containers", sidecar(ended(zero(pod("p")), "a", 5), stop(8)), 8),
        ("a sidecar earlier than the containers", sidecar(ended(zero(pod("p")), "a", 5), stop(3)), 5),
        ("a sidecar still runs", sidecar(ended(zero(pod("p")), "a", 5), still.clone()), 1),
        (
            "containers say nothing but all sidecars do",
            sidecar(zero(pod("p")).container("a", 0, still.clone()), stop(6)),
            6,
        ),
        (
            "an ordinary init container does not matter",
            ended(zero(pod("p")), "a", 5).init_container("setup", 0, stop(9)),
            5,
        ),
        ("it ceased to be ready", zero(pod("p")).condition_at("Ready", "False", 4), 4),
        ("it ceased to be ready, nobody knows when", zero(pod("p")).condition("Ready", "False"), 1),
        ("it is ready", zero(pod("p")).condition_at("Ready", "True", 4), 1),
        ("it was asked to go", zero(pod("p")).deleted(6), 6),
        (
            "ceased to be ready, then asked to go",
            zero(pod("p")).condition_at("Ready", "False", 4).deleted(6),
            4,
        ),
        (
            "asked to go without grace",
            zero(pod("p")).with(json!({ "metadata": { "deletionTimestamp": rfc3339(6) } })),
            6,
        ),
    ];
    for (what, pod, want) in cases {
        assert_eq!(facts(&pod).finished_at, at(want), "{what}");
    }
    let ageless = pod("p").with(json!({ "metadata": { "creationTimestamp": null } }));
    assert_eq!(facts(&ageless).finished_at, Timestamp::UNIX_EPOCH);
    assert_eq!(facts(&pod("p").created(2).with(json!({ "status": null }))).finished_at, at(2));
}

#[test]
fn an_index_is_read_from_the_annotation_of_indexed_jobs_only() {
    let cases = [
        ("0", Some(0)),
        ("17", Some(17)),
        ("2147483647", Some(2_147_483_647)),
        ("2147483648", None),
        ("-1", None),
        ("x", None),
        ("", None),
    ];
    for (text, want) in cases {
        assert_eq!(facts_for(job().indexed(1, 1), &pod("p").index(text)).index, want, "{text:?}");
        assert_eq!(facts(&pod("p").index(text)).index, None, "NonIndexed, {text:?}");
    }
    let label = pod("p")
        .with(json!({ "metadata": { "labels": { "batch.kubernetes.io/job-completion-index": "3" } } }));
    assert_eq!(facts_for(job().indexed(9, 9), &label).index, None, "the label does not count");
}

#[test]
fn failures_of_an_index_are_read_from_annotations_and_nonsense_is_none() {
    let of = |counted: &str, ignored: &str| {
        let pod = pod("p")
            .annotation("batch.kubernetes.io/job-index-failure-count", counted)
            .annotation("batch.kubernetes.io/job-index-ignored-failure-count", ignored);
        facts(&pod).failures
    };
    assert_eq!(of("3", "2"), IndexFailures { counted: 3, ignored: 2 });
    for nonsense in ["", "x", "-4", "2147483648", "1.5"] {
        assert_eq!(of(nonsense, nonsense), IndexFailures::default(), "{nonsense:?}");
    }
    assert_eq!(facts(&pod("p")).failures, IndexFailures::default());
    assert_eq!(IndexFailures { counted: u32::MAX, ignored: 1 }.total(), u32::MAX);
}

#[test]
fn restarts_are_added_up_over_containers_and_init_containers() {
    let run = || json!({ "running": {} });
    let many = pod("p")
        .sidecar("proxy")
        .container("a", 2, run())
        .container("b", 3, run())
        .container("c", -7, run())
        .init_container("setup", 4, run())
        .init_container("proxy", 5, run());
    let facts = facts(&many);
    assert_eq!((facts.restarts, facts.restarts_max), (14, (3, 5)));
}

#[test]
fn everything_else_is_read_as_it_stands() {
    let whole = facts_for(
        job().indexed(4, 4),
        &pod("work-2-bcdfg").index(2).running().ready(8).created(3).failures(1, 2).with(json!({
            "metadata": { "resourceVersion": "77" }
        })),
    );
    let want = PodFacts {
        uid: Uid::new("work-2-bcdfg"),
        name: "work-2-bcdfg".into(),
        revision: 77,
        claim: Claim::Ours,
        phase: Phase::Running,
        is_deleted: false,
        has_finalizer: true,
        is_ready: true,
        is_assigned: true,
        index: Some(2),
        attempt: whole.attempt,
        failures: IndexFailures { counted: 1, ignored: 2 },
        restarts: 0,
        restarts_max: (0, 0),
        ready_since: Some(at(8)),
        created_at: Some(at(3)),
        finished_at: at(3),
        rule: None,
    };
    assert_eq!(whole, want);
    assert!(whole.attempt.is_some(), "a name of our look");
    let bare = PodFacts::from_pod(
        &Default::default(),
        &JobFacts::from_job(&Default::default(), None, &Gates::default()),
    );
    assert_eq!((bare.claim, bare.name.as_ref(), bare.revision), (Claim::Foreign, "", 0));
    let unassigned = facts(&pod("p").with(json!({ "spec": { "nodeName": "" } })));
    assert!(!unassigned.is_assigned && !unassigned.is_ready);
    assert_eq!(facts(&pod("p").with(json!({ "metadata": { "resourceVersion": "v1" } }))).revision, 0);
}

// 2.4, the nine cases of ownership; 5.2 item 19
#[test]
fn a_finalizer_that_nobody_looks_after_is_removed() {
    let cases = [
        ("no controller", Owner::None, true),
        ("a controller that is no Job", Owner::NotAJob, false),
        ("a Job of another group", Owner::NotAJob, false),
        ("the Job is gone", Owner::Missing, true),
        ("a Job of the same name with another UID", Owner::Missing, true),
        ("the Job runs", Owner::Active, false),
        ("the Job is finished", Owner::Finished, true),
        ("the Job is managed by another controller", Owner::ManagedElsewhere, false),
        ("the Job is managed by another controller, and finished", Owner::ManagedElsewhere, false),
    ];
    for (what, owner, want) in cases {
        assert_eq!(should_release(&pod("p").build(), owner), want, "{what}");
        assert!(!should_release(&pod("p").free().build(), owner), "{what}, without a finalizer");
    }
}

#[test]
fn a_node_or_a_newer_revision_is_no_reason_to_decide_anew_and_all_else_is() {
    let before = facts(&pod("p"));
    let placed =
        pod("p").with(json!({ "metadata": { "resourceVersion": "99" }, "spec": { "nodeName": "n" } }));
    let placed = facts(&placed);
    assert!(placed.is_assigned && !before.is_assigned && placed.revision != before.revision);
    assert!(before.decides_like(&placed));
    let restarts = json!([{ "name": "c", "image": "", "imageID": "", "ready": false, "restartCount": 1 }]);
    for change in [
        json!({ "status": { "phase": "Failed" } }),
        json!({ "status": { "conditions": [{ "type": "Ready", "status": "True" }] } }),
        json!({ "status": { "containerStatuses": restarts } }),
        json!({ "metadata": { "deletionTimestamp": rfc3339(9) } }),
        json!({ "metadata": { "finalizers": null } }),
        json!({ "metadata": { "ownerReferences": null } }),
    ] {
        assert!(!before.decides_like(&facts(&pod("p").with(change.clone()))), "{change}");
    }
}
