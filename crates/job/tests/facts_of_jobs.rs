//! What is read from a Job, and whether there is anything to decide about it.

mod common;

use common::{Bench, JobBuilder, at, job, on_exit, pod, rfc3339};
use jiff::SignedDuration;
use serde_json::{Value, json};
use windlass_api::{Gates, names};
use windlass_job::job_facts::{Condition, Mode, PerIndex, ReplaceWhen, Status, Uncounted};
use windlass_job::observation::Manages;
use windlass_job::{JobFacts, Uid, Wake};

fn facts(job: &JobBuilder) -> JobFacts {
    JobFacts::from_job(&job.build(), None, &Gates::default())
}

#[test]
fn the_spec_is_read_as_it_stands() {
    let whole = facts(
        &job().indexed(3, 7).per_index(2).max_failed(4).limit(9).deadline(60).suspended(true).on_failure(),
    );
    assert_eq!(
        (whole.namespace.as_str(), whole.name.as_str(), &whole.uid),
        ("lab", "work", &Uid::new("job-uid"))
    );
    assert_eq!((whole.resource_version.as_str(), whole.revision), ("1", 1));
    assert_eq!((whole.parallelism, whole.completions, whole.backoff_limit), (3, Some(7), 9));
    assert_eq!(whole.per_index, Some(PerIndex { backoff_limit: 2, max_failed_indexes: Some(4) }));
    assert_eq!(whole.active_deadline, Some(SignedDuration::from_secs(60)));
    assert_eq!((whole.mode.clone(), whole.is_indexed()), (Mode::Indexed, true));
    assert!(whole.is_suspended && whole.restarts_in_place && !whole.is_deleted);
    assert!(whole.has_index(Some(6)) && !whole.has_index(Some(7)) && !whole.has_index(None));
}

#[test]
fn what_is_missing_is_as_the_api_defaults_it() {
    let bare = JobFacts::from_job(&Default::default(), None, &Gates::default());
    assert_eq!((bare.parallelism, bare.completions, bare.backoff_limit), (1, None, 6));
    assert_eq!((bare.mode.clone(), bare.per_index, bare.active_deadline), (Mode::NonIndexed, None, None));
    assert_eq!((bare.status.clone(), bare.index_texts_are_current), (Status::default(), true));
    assert_eq!((bare.replace_when, bare.revision), (ReplaceWhen::TerminatingOrFailed, 0));
    assert!(!bare.is_suspended && !bare.restarts_in_place && bare.failure_policy.is_none());
    assert!(!bare.has_index(Some(0)));
    let negative = facts(&job().runs(-3, -1).limit(-2));
    assert_eq!((negative.parallelism, negative.completions, negative.backoff_limit), (0, Some(0), 0));
}

#[test]
fn modes_are_read_and_an_unknown_one_is_unknown() {
    for (text, want) in [
        (json!(null), Mode::NonIndexed),
        (json!("NonIndexed"), Mode::NonIndexed),
        (json!("Indexed"), Mode::Indexed),
        (json!("Striped"), Mode::Unknown),
    ] {
        assert_eq!(facts(&job().spec(json!({ "completionMode": text }))).mode, want);
    }
}

#[test]
fn when_pods_are_replaced_depends_on_policies_and_gates() {
    let policy =
        || job().policy([on_exit("FailJob", "In", &[5])]).spec(json!({ "podReplacementPolicy": null }));
    let gates = |disruption, replacement, failure| Gates {
        pod_disruption_conditions: disruption,
        job_pod_replacement_policy: replacement,
        job_pod_failure_policy: failure,
        ..Gates::default()
    };
    use ReplaceWhen::{Failed, TerminatingOrFailed};
    let cases = [
        ("default", job(), gates(true, true, true), TerminatingOrFailed),
        ("asked for", job().replaces_failed(), gates(true, true, true), Failed),
        ("asked for, gate off", job().replaces_failed(), gates(true, false, true), TerminatingOrFailed),
        ("failure policy", policy(), gates(true, true, true), Failed),
        ("failure policy, no replacement gate", policy(), gates(true, false, true), Failed),
        ("failure policy, no disruption gate", policy(), gates(false, true, true), Failed),
        ("failure policy, neither gate", policy(), gates(false, false, true), TerminatingOrFailed),
        ("failure policy, its gate off", policy(), gates(true, true, false), TerminatingOrFailed),
    ];
    for (what, job, gates, want) in cases {
        let facts = JobFacts::from_job(&job.build(), None, &gates);
        assert_eq!((facts.replace_when, facts.only_replaces_failed()), (want, want == Failed), "{what}");
        assert_eq!(facts.tracks_terminating, gates.job_pod_replacement_policy, "{what}");
    }
}

#[test]
fn a_draft_policy_is_followed_only_with_its_gate_and_without_a_final_one() {
    let draft = json!({ "rules": [{ "containerExitCodeIn": "1", "action": "Ignore" }] });
    let on = Gates { retriable_and_non_retriable_failures: true, ..Gates::default() };
    let action = |job: JobBuilder, draft: &Value, gates: &Gates| {
        let facts = JobFacts::from_job(&job.build(), Some(draft), gates);
        let status = pod("p").failed(0).build().status.expect("a status");
        facts.failure_policy.and_then(|policy| policy.evaluate(&status)).map(|found| found.action.to_string())
    };
    let final_policy = || job().policy([on_exit("Count", "In", &[1])]);
    assert_eq!(action(job(), &draft, &on).as_deref(), Some("Ignore"));
    assert_eq!(action(job(), &draft, &Gates::default()), None);
    assert_eq!(action(final_policy(), &draft, &on).as_deref(), Some("Count"));
    assert_eq!(action(job(), &json!({ "rules": 5 }), &on), None, "one that can't be read is none");
}

#[test]
fn the_status_is_read_as_it_stands() {
    let status = json!({
        "startTime": rfc3339(1), "completionTime": rfc3339(9), "active": 1, "ready": 2, "terminating": 3,
        "succeeded": 4, "failed": 5, "completedIndexes": "0,2-4", "failedIndexes": "1",
        "uncountedTerminatedPods": { "succeeded": ["a"], "failed": ["b", "c"] },
        "conditions": [{ "type": "Suspended", "status": "True", "reason": "JobSuspended", "message": "m",
                         "lastProbeTime": rfc3339(2), "lastTransitionTime": rfc3339(3) }],
    });
    let facts = facts(&job().indexed(9, 9).per_index(0).status(status));
    let set = |text: &str| windlass_api::indexes::IndexSet::parse_lenient(text, 9);
    let want = Status {
        start_time: Some(at(1)),
        completion_time: Some(at(9)),
        active: 1,
        ready: Some(2),
        terminating: Some(3),
        succeeded: 4,
        failed: 5,
        completed_indexes: set("0,2-4"),
        failed_indexes: Some(set("1")),
        uncounted: Some(Uncounted {
            succeeded: vec![Uid::new("a")],
            failed: vec![Uid::new("b"), Uid::new("c")],
        }),
        conditions: vec![Condition {
            kind: "Suspended".to_owned(),
            status: "True".to_owned(),
            reason: Some("JobSuspended".to_owned()),
            message: Some("m".to_owned()),
            last_probe: Some(at(2)),
            last_transition: Some(at(3)),
        }],
    };
    assert_eq!(facts.status, want);
    assert!(facts.index_texts_are_current);
}

#[test]
fn index_texts_are_current_when_they_say_exactly_what_we_would() {
    let indexed = || job().indexed(4, 4);
    let per_index = || indexed().per_index(1);
    let off = Gates { job_backoff_limit_per_index: false, ..Gates::default() };
    let on = Gates::default();
    let none: Option<&str> = None;
    let cases = [
        ("nothing", indexed(), none, none, on, true),
        ("canonical", indexed(), Some("0-2"), none, on, true),
        ("not merged", indexed(), Some("0,1,2"), none, on, false),
        ("beyond the end", indexed(), Some("0,7"), none, on, false),
        ("unreadable", indexed(), Some("x"), none, on, false),
        ("failed indexes without a limit", indexed(), none, Some("1"), on, false),
        ("failed indexes", per_index(), none, Some("1"), on, true),
        ("failed indexes beyond the end", per_index(), none, Some("1,9"), on, false),
        ("failed indexes, gate off", per_index(), none, Some("1"), off, false),
        ("no failed indexes, gate off", per_index(), none, none, off, true),
        ("any text on a NonIndexed Job", job(), Some("0,1,2"), Some("5"), on, true),
    ];
    for (what, job, completed, failed, gates, want) in cases {
        let job = job.status(json!({ "completedIndexes": completed, "failedIndexes": failed, "active": 1 }));
        let facts = JobFacts::from_job(&job.build(), None, &gates);
        assert_eq!(facts.index_texts_are_current, want, "{what}");
    }
}

#[test]
fn a_condition_is_set_in_place_and_a_false_one_never_appended() {
    let new =
        |kind: &str, is_true, reason: &str, second| Condition::new(kind, is_true, reason, "m", at(second));
    let mut status = Status::default();
    assert!(!status.set_condition(new("A", false, "x", 1)), "not appended");
    assert!(status.set_condition(new("A", true, "x", 1)));
    assert!(status.set_condition(new("B", true, "x", 1)));
    assert!(!status.set_condition(new("A", true, "x", 2)), "says the same");
    assert!(status.set_condition(new("A", false, "x", 3)));
    assert!(status.set_condition(new("B", true, "y", 4)));
    assert_eq!(status.conditions, [new("A", false, "x", 3), new("B", true, "y", 4)]);
    assert!(status.true_condition("A").is_none() && status.true_condition("B").is_some());
    assert!(!status.is_finished());
    status.set_condition(Condition::now_true(names::condition::FAILED, "r", "m", at(5)));
    assert!(status.is_finished());
}

#[test]
fn jobs_are_ours_by_what_managed_by_says() {
    let cases = [
        (None, true, false),
        (Some(names::BUILT_IN_CONTROLLER), true, false),
        (Some(names::WINDLASS_CONTROLLER), true, true),
        (Some("example.com/custom"), false, false),
        (Some(""), false, false),
    ];
    for (name, unclaimed, opted_in) in cases {
        for (manages, want) in [(Manages::Unclaimed, unclaimed), (Manages::OptedIn, opted_in)] {
            assert_eq!(manages.includes(name), want, "{name:?} {manages:?}");
            let mut bench = Bench::new(name.map_or_else(job, |name| job().managed_by(name)));
            bench.settings.manages = manages;
            bench.run();
            assert_eq!(!bench.status().is_null(), want, "{name:?} {manages:?}");
        }
    }
}

// TestManagedBy, TestManagedBy_UsingReservedJobFinalizers
#[test]
fn a_job_of_another_controller_is_left_alone_with_all_its_pods() {
    let mut bench = Bench::new(job().managed_by("example.com/custom").suspended(true));
    bench.add(pod("a").succeeded(0)).add(pod("o").orphan()).add(pod("s").labels(json!({})));
    assert_eq!((bench.writes(), bench.run(), bench.held()), (vec![], Wake::Settled, vec!["a", "o", "s"]));
    assert_eq!(bench.trace(), "the Job is managed by example.com/custom");
    let mut bench = Bench::new(job());
    bench.settings.manages = Manages::OptedIn;
    bench.run();
    assert_eq!(bench.trace(), "the Job does not ask for us");
}

#[test]
fn an_unknown_mode_is_reported_once_and_nothing_is_touched() {
    let mut bench = Bench::new(job().spec(json!({ "completionMode": "Striped" })));
    bench.add(pod("a").succeeded(0));
    assert_eq!(bench.writes(), ["emit UnknownCompletionMode"]);
    assert_eq!((bench.writes(), bench.run(), bench.held()), (vec![], Wake::Settled, vec!["a"]));
    assert_eq!(bench.trace(), "the completion mode is unknown");
    let mut bench = Bench::new(job().spec(json!({ "completionMode": "Striped" })));
    let Some(windlass_job::Action::Emit(event)) = bench.decide().stage.into_iter().next() else { panic!() };
    assert!(event.is_warning);
    assert_eq!(event.message, "Skipped Job sync because completion mode is unknown");
}

#[test]
fn stragglers_of_a_finished_job_are_released_some_at_a_time() {
    let mut bench = Bench::new(job());
    bench.settings.pods_per_stage_max = 2;
    bench.hush().succeed("p0").hush();
    for name in ["a", "b", "c"] {
        bench.add(pod(name).running());
    }
    assert_eq!(bench.decide().stage.len(), 2);
    bench.hush();
    assert_eq!(bench.held(), Vec::<&str>::new());
}

#[test]
fn only_a_newer_job_is_news_and_an_older_one_is_not_taken() {
    let mut bench = Bench::new(job());
    bench.hush();
    let current: u64 = bench.view().job().revision;
    assert!(bench.view().is_news(&(current + 1).to_string()));
    assert!(!bench.view().is_news(&current.to_string()) && !bench.view().is_news("not a number"));
    let old = JobFacts { revision: current - 1, ..facts(&job().suspended(true)) };
    bench.view().observe_job(old);
    assert!(!bench.view().job().is_suspended);
}
