//! The rules for a new status of a Job.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use windlass_api::validation::job_status::validate_status_update;

use crate::support::{admitted_spec, changed, texts};

const START: &str = "2026-01-01T00:00:00Z";
const LATER: &str = "2026-01-01T01:00:00Z";
const END: &str = "2026-01-01T02:00:00Z";

fn with_status(spec: &Value, status: &Value) -> Job {
    let job = admitted_spec(spec.clone());
    changed(&job, json!({"metadata": {"resourceVersion": "5"}, "status": status}))
}

#[track_caller]
fn check_of(name: &str, spec: Value, old: Value, new: Value, wants: &[&str]) {
    let errors = validate_status_update(&with_status(&spec, &new), &with_status(&spec, &old));
    assert_eq!(texts(&errors), wants, "{name}");
}

#[track_caller]
fn check(name: &str, old: Value, new: Value, wants: &[&str]) {
    check_of(name, json!({}), old, new, wants);
}

fn indexed() -> Value {
    json!({"completionMode": "Indexed", "completions": 6, "parallelism": 2, "backoffLimitPerIndex": 1})
}

/// A list of conditions that are True, or False after a `!`.
fn conditions(types: &[&str]) -> Value {
    let condition = |text: &&str| {
        let status = if text.starts_with('!') { "False" } else { "True" };
        json!({"type": text.trim_start_matches('!'), "status": status})
    };
    types.iter().map(condition).collect()
}

/// A status that only says these conditions, of a Job that has started.
fn started(types: &[&str]) -> Value {
    json!({"startTime": START, "conditions": conditions(types)})
}

/// A good end.
fn complete() -> Value {
    json!({
        "startTime": START, "completionTime": END, "succeeded": 1,
        "conditions": conditions(&["SuccessCriteriaMet", "Complete"]),
    })
}

/// A bad end.
fn failed() -> Value {
    json!({"startTime": START, "failed": 1, "conditions": conditions(&["FailureTarget", "Failed"])})
}

fn and(mut status: Value, patch: Value) -> Value {
    crate::support::merge(&mut status, &patch);
    status
}

#[test]
fn the_life_of_a_job_is_accepted() {
    let running = json!({"startTime": START, "active": 1, "ready": 1, "terminating": 0});
    check("start", json!({}), running.clone(), &[]);
    check(
        "target",
        running.clone(),
        and(running.clone(), json!({"conditions": conditions(&["FailureTarget"])})),
        &[],
    );
    check("complete", running.clone(), complete(), &[]);
    check("failed", running, failed(), &[]);
    check("nothing new", complete(), complete(), &[]);
    check("foreign condition", json!({}), started(&["CustomConditionType"]), &[]);
}

#[test]
fn metadata_is_checked_too() {
    let old = with_status(&json!({}), &json!({}));
    let new = changed(&old, json!({"metadata": {"resourceVersion": ""}}));
    let want = "metadata.resourceVersion: Invalid value: \"\": must be specified for an update";
    assert_eq!(texts(&validate_status_update(&new, &old)), [want]);
    let new = changed(&old, json!({"metadata": {"annotations": {"a": "b"}}}));
    assert_eq!(texts(&validate_status_update(&new, &old)), [""; 0], "annotations may change");
}

#[test]
fn counters_are_not_negative() {
    check(
        "all",
        json!({"active": -1, "succeeded": -2, "failed": -3, "ready": -4, "terminating": -5}),
        json!({"active": -1, "succeeded": -2, "failed": -3, "ready": -4, "terminating": -5}),
        &[
            "status.active: Invalid value: -1: must be greater than or equal to 0",
            "status.succeeded: Invalid value: -2: must be greater than or equal to 0",
            "status.failed: Invalid value: -3: must be greater than or equal to 0",
            "status.ready: Invalid value: -4: must be greater than or equal to 0",
            "status.terminating: Invalid value: -5: must be greater than or equal to 0",
        ],
    );
}

#[test]
fn an_uncounted_pod_has_a_uid_and_stands_once() {
    check(
        "both lists",
        json!({}),
        json!({"uncountedTerminatedPods": {"succeeded": ["a", "", "a"], "failed": ["b", "a", ""]}}),
        &[
            "status.uncountedTerminatedPods.succeeded[1]: Invalid value: \"\": must not be empty",
            "status.uncountedTerminatedPods.succeeded[2]: Duplicate value: \"a\"",
            "status.uncountedTerminatedPods.failed[1]: Duplicate value: \"a\"",
            "status.uncountedTerminatedPods.failed[2]: Invalid value: \"\": must not be empty",
        ],
    );
    check("empty", json!({}), json!({"uncountedTerminatedPods": {}}), &[]);
}

#[test]
fn met_criteria_exclude_failure() {
    let old = started(&["SuccessCriteriaMet"]);
    check(
        "Failed",
        old.clone(),
        started(&["SuccessCriteriaMet", "FailureTarget", "Failed"]),
        &[
            "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions",
            "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ],
    );
    let both = started(&["SuccessCriteriaMet", "FailureTarget"]);
    check(
        "FailureTarget, even when it was so before",
        both.clone(),
        both,
        &[
            "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
        ],
    );
}

#[test]
fn with_a_success_policy_a_job_is_complete_only_by_met_criteria() {
    let spec = and(indexed(), json!({"successPolicy": {"rules": [{"succeededCount": 1}]}}));
    let old = and(complete(), json!({"conditions": conditions(&["Complete"])}));
    check_of(
        "unchanged",
        spec.clone(),
        old.clone(),
        old,
        &["status.conditions: Invalid value: cannot set Complete=True for Job with SuccessPolicy unless \
           SuccessCriteriaMet=True"],
    );
    check_of("met", spec, json!({}), complete(), &[]);
}

#[test]
fn met_criteria_stay_and_do_not_follow_completion() {
    check(
        "lost",
        started(&["SuccessCriteriaMet"]),
        started(&["!SuccessCriteriaMet"]),
        &["status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition"],
    );
    check(
        "late",
        and(complete(), json!({"conditions": conditions(&["Complete"])})),
        complete(),
        &[
            "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True for Job already has Complete=true \
           conditions",
        ],
    );
}

#[test]
fn the_failed_counter_only_grows() {
    check("up", json!({"failed": 2}), json!({"failed": 3}), &[]);
    let want = "status.failed: Invalid value: 1: cannot decrease the failed counter";
    check("down", json!({"failed": 2}), json!({"failed": 1}), &[want]);
    let want = "status.failed: Invalid value: 0: cannot decrease the failed counter";
    check_of("absent is 0", indexed(), json!({"failed": 2}), json!({}), &[want]);
}

#[test]
fn the_succeeded_counter_shrinks_only_with_an_elastic_job() {
    let want = "status.succeeded: Invalid value: 1: cannot decrease the succeeded counter";
    let (old, new) = (json!({"succeeded": 2}), json!({"succeeded": 1}));
    check("not indexed", old.clone(), new.clone(), &[want]);
    check_of("not elastic", indexed(), old.clone(), new.clone(), &[want]);
    check_of("elastic", and(indexed(), json!({"parallelism": 6})), old, new, &[]);
}

#[test]
fn terminal_conditions_stay() {
    let lost = |type_: &str| {
        format!("status.conditions: Invalid value: cannot disable the terminal {type_}=True condition")
    };
    check(
        "Failed",
        failed(),
        started(&["FailureTarget"]),
        &[&lost("Failed"), "status.failed: Invalid value: 0: cannot decrease the failed counter"],
    );
    check(
        "FailureTarget",
        started(&["FailureTarget"]),
        started(&["!FailureTarget"]),
        &[&lost("FailureTarget")],
    );
    check(
        "Complete",
        complete(),
        json!({"startTime": START, "succeeded": 1, "conditions": conditions(&["SuccessCriteriaMet"])}),
        &[&lost("Complete")],
    );
    check(
        "all at once",
        started(&["Failed", "Complete", "FailureTarget"]),
        started(&[]),
        &[&lost("Failed"), &lost("Complete"), &lost("FailureTarget")],
    );
}

#[test]
fn the_completion_time_is_set_once() {
    check(
        "moved",
        complete(),
        and(complete(), json!({"completionTime": LATER})),
        &["status.completionTime: Invalid value: \"2026-01-01T01:00:00Z\": field is immutable"],
    );
    let early = json!({"completionTime": END});
    check("removed from a Job that is not complete", early, json!({}), &[]);
}

#[test]
fn completed_indexes_are_an_index_set_of_an_indexed_job() {
    let text = |text: &str| json!({"completedIndexes": text});
    check_of("fine", indexed(), json!({}), text("0,2-5"), &[]);
    check_of(
        "too large",
        indexed(),
        json!({}),
        text("0,6"),
        &[
            "status.completedIndexes: Invalid value: \"0,6\": error parsing completedIndexes: too large index: \"6\"",
        ],
    );
    check_of(
        "unchanged, after a scale down",
        indexed(),
        text("0,6"),
        and(text("0,6"), json!({"active": 1})),
        &[],
    );
    let work_queue = json!({"parallelism": 2});
    let want = "status.completedIndexes: Invalid value: \"0\": cannot set non-empty completedIndexes when non-indexed \
        completion mode";
    check_of("not indexed", work_queue.clone(), json!({}), text("0"), &[want]);
    check_of("not indexed, unchanged", work_queue, text("0"), text("0"), &[]);
    check_of(
        "not indexed and unreadable",
        json!({}),
        json!({}),
        text("1"),
        &[
            "status.completedIndexes: Invalid value: \"1\": error parsing completedIndexes: too large index: \"1\"",
            "status.completedIndexes: Invalid value: \"1\": cannot set non-empty completedIndexes when non-indexed \
             completion mode",
        ],
    );
    check("empty", text(""), json!({}), &[]);
}

#[test]
fn failed_indexes_are_an_index_set_of_a_job_with_a_limit_per_index() {
    let text = |text: &str| json!({"failedIndexes": text});
    check_of("empty", indexed(), json!({}), text(""), &[]);
    check_of("fine", indexed(), text(""), text("0-5"), &[]);
    check_of(
        "unreadable",
        indexed(),
        text(""),
        text("1-0"),
        &[
            "status.failedIndexes: Invalid value: \"1-0\": error parsing failedIndexes: non-increasing order, previous: \
           1, current: 0",
        ],
    );
    check_of("unchanged", indexed(), text("9"), and(text("9"), json!({"active": 1})), &[]);
    let want = "status.failedIndexes: Invalid value: \"\": cannot set non-null failedIndexes when \
        backoffLimitPerIndex is null";
    check("no limit", json!({}), text(""), &[want]);
    check("no limit, unchanged", text(""), text(""), &[]);
}

#[test]
fn an_index_has_not_both_completed_and_failed() {
    let both =
        |completed: &str, failed: &str| json!({"completedIndexes": completed, "failedIndexes": failed});
    let overlap = |failed: &str, index: u32| {
        format!(
            "status.failedIndexes: Invalid value: \"{failed}\": failedIndexes and completedIndexes overlap at index: \
             {index}"
        )
    };
    check_of("apart", indexed(), json!({}), both("0,2", "1,3-5"), &[]);
    check_of("both new", indexed(), json!({}), both("0,2-4", "1,3-5"), &[&overlap("1,3-5", 3)]);
    check_of("completed new", indexed(), both("0", "1"), both("0,1", "1"), &[&overlap("1", 1)]);
    check_of("failed new", indexed(), both("0", ""), both("0", "0"), &[&overlap("0", 0)]);
    check_of("unchanged", indexed(), both("0", "0"), both("0", "0"), &[]);
    check_of(
        "around what is unreadable",
        indexed(),
        json!({}),
        both("x,2", "2"),
        &[
            "status.completedIndexes: Invalid value: \"x,2\": error parsing completedIndexes: cannot convert string \
             to integer for index: \"x\"",
            &overlap("2", 2),
        ],
    );
    let work_queue = json!({"completionMode": "Indexed", "parallelism": 1, "backoffLimitPerIndex": 1});
    check_of("without completions", work_queue, json!({}), both("0", "0"), &[]);
}

#[test]
fn failure_is_announced() {
    let want = "status.conditions: Invalid value: cannot set Failed=True condition without the FailureTarget=true \
        condition";
    check("new", started(&[]), started(&["Failed"]), &[want]);
    check("unchanged", started(&["Failed"]), started(&["Failed"]), &[]);
    check_of(
        "unchanged, but failed indexes are new",
        indexed(),
        started(&["Failed"]),
        and(started(&["Failed"]), json!({"failedIndexes": ""})),
        &[want],
    );
}

#[test]
fn success_is_announced() {
    let want = "status.conditions: Invalid value: cannot set Complete=True condition without the \
        SuccessCriteriaMet=true condition";
    let unannounced = and(complete(), json!({"conditions": conditions(&["Complete"])}));
    check("new", started(&[]), unannounced.clone(), &[want]);
    check("unchanged", unannounced.clone(), unannounced.clone(), &[]);
    check(
        "criteria lost",
        complete(),
        unannounced,
        &[want, "status.conditions: Invalid value: cannot disable the SuccessCriteriaMet=True condition"],
    );
}

#[test]
fn a_finished_job_has_no_active_pods() {
    let want = "status.active: Invalid value: 1: active>0 is invalid for finished job";
    let bad = and(failed(), json!({"active": 1}));
    check("finishes", started(&[]), bad.clone(), &[want]);
    check("active changes", failed(), bad.clone(), &[want]);
    check("unchanged", bad.clone(), bad, &[]);
}

#[test]
fn a_finished_job_has_started() {
    let want = "status.startTime: Required value: startTime is required for finished job";
    let bad = and(failed(), json!({"startTime": null}));
    check("finishes", json!({}), bad.clone(), &[want]);
    check("unchanged", bad.clone(), and(bad, json!({"failed": 2})), &[]);
    let nothing_to_do = json!({"suspend": true, "completions": 0});
    let done = and(complete(), json!({"startTime": null}));
    check_of(
        "but for one that is suspended and has nothing to do",
        nothing_to_do,
        json!({}),
        done.clone(),
        &[],
    );
    check_of("which must be both", json!({"completions": 0}), json!({}), done.clone(), &[want]);
    check_of("which must be both", json!({"suspend": true, "completions": 1}), json!({}), done, &[want]);
}

#[test]
fn a_finished_job_has_counted_all_pods() {
    let want =
        "status.uncountedTerminatedPods: Invalid value: {\"failed\":[\"a\"]}: must be empty for finished job";
    let bad = and(failed(), json!({"uncountedTerminatedPods": {"failed": ["a"]}}));
    check("finishes", started(&[]), bad.clone(), &[want]);
    check("pods change", failed(), bad.clone(), &[want]);
    check("unchanged", bad.clone(), bad, &[]);
    check("empty", started(&[]), and(failed(), json!({"uncountedTerminatedPods": {"succeeded": []}})), &[]);
}

#[test]
fn a_finished_job_has_no_terminating_pods() {
    let want = "status.terminating: Invalid value: 1: terminating>0 is invalid for finished job";
    let bad = and(failed(), json!({"terminating": 1}));
    check("finishes", and(started(&[]), json!({"terminating": 1})), bad.clone(), &[want]);
    check("pods change", failed(), bad.clone(), &[want]);
    check("unchanged", bad.clone(), bad, &[]);
    check("not finished", json!({}), json!({"terminating": 1}), &[]);
    check("none", started(&[]), and(failed(), json!({"terminating": 0})), &[]);
}

#[test]
fn the_start_time_changes_only_while_suspended_or_resuming() {
    let at = |time: Value, types: &[&str]| and(started(types), json!({"startTime": time}));
    let immutable = |value: &str| {
        format!("status.startTime: Invalid value: {value}: field is immutable for unsuspended job once set")
    };
    check("moved", at(json!(START), &[]), at(json!(LATER), &[]), &[&immutable(&format!("{LATER:?}"))]);
    check("removed", at(json!(START), &[]), at(json!(null), &[]), &[&immutable("null")]);
    check("set", at(json!(null), &[]), at(json!(START), &[]), &[]);
    let suspended = json!({"suspend": true});
    check_of(
        "removed while suspended",
        suspended,
        at(json!(START), &[]),
        at(json!(null), &["Suspended"]),
        &[],
    );
    check("moved while resuming", at(json!(START), &["Suspended"]), at(json!(LATER), &["!Suspended"]), &[]);
    check(
        "resuming says so",
        at(json!(START), &["Suspended"]),
        at(json!(LATER), &["Suspended"]),
        &[&immutable(&format!("{LATER:?}"))],
    );
}

#[test]
fn a_job_ends_after_it_started() {
    let want = "status.completionTime: Invalid value: \"2026-01-01T00:00:00Z\": must be equal to or after `startTime`";
    let bad = and(complete(), json!({"startTime": LATER, "completionTime": START}));
    check("new", json!({}), bad.clone(), &[want]);
    check("unchanged", bad.clone(), bad, &[]);
    check("at once", json!({}), and(complete(), json!({"startTime": END})), &[]);
    let ends = and(complete(), json!({"startTime": LATER, "completionTime": START}));
    check("ends", and(started(&[]), json!({"startTime": LATER})), ends, &[want]);
    let want = "status.completionTime: Invalid value: \"2026-01-01T01:00:00Z\": must be equal to or after `startTime`";
    let ended = and(complete(), json!({"completionTime": LATER}));
    let moved = and(ended.clone(), json!({"startTime": END}));
    check_of("start moves", json!({"suspend": true}), ended, moved, &[want]);
}

#[test]
fn complete_jobs_and_only_they_have_a_completion_time() {
    let early = "status.completionTime: Invalid value: \"2026-01-01T02:00:00Z\": cannot set completionTime when there \
        is no Complete=True condition";
    check("early", started(&[]), and(started(&[]), json!({"completionTime": END})), &[early]);
    check("failed", started(&[]), and(failed(), json!({"completionTime": END})), &[early]);
    let required = "status.completionTime: Required value: completionTime is required for Complete jobs";
    let without = and(complete(), json!({"completionTime": null}));
    check("absent", started(&[]), without.clone(), &[required]);
    check("removed", complete(), without.clone(), &[required]);
    check("unchanged", without.clone(), without, &[]);
}

#[test]
fn a_job_does_not_both_complete_and_fail() {
    let both = and(
        complete(),
        json!({"conditions": conditions(&["SuccessCriteriaMet", "Complete", "FailureTarget", "Failed"])}),
    );
    let always = [
        "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and Failed=true conditions",
        "status.conditions: Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
    ];
    let failed = "status.conditions: Invalid value: cannot set Complete=True and Failed=true conditions";
    let target =
        "status.conditions: Invalid value: cannot set Complete=True and FailureTarget=true conditions";
    check("new", started(&[]), both.clone(), &[failed, target, always[0], always[1]]);
    check("unchanged", both.clone(), both.clone(), &always);
    let only_target = and(
        complete(),
        json!({"conditions": conditions(&["SuccessCriteriaMet", "Complete", "FailureTarget"])}),
    );
    check("target joins", complete(), only_target.clone(), &[target, always[1]]);
    check("Failed joins", only_target, both, &[failed, always[0], always[1]]);
}

#[test]
fn no_more_pods_are_ready_than_active() {
    let want = "status.ready: Invalid value: 2: cannot set more ready pods than active";
    let bad = json!({"active": 1, "ready": 2});
    check("ready changes", json!({"active": 1}), bad.clone(), &[want]);
    check("active changes", json!({"active": 2, "ready": 2}), bad.clone(), &[want]);
    check("unchanged", bad.clone(), bad, &[]);
    check("as many", json!({}), json!({"active": 2, "ready": 2}), &[]);
}

#[test]
fn a_job_without_a_status_had_none() {
    let old = Job { status: None, ..with_status(&json!({}), &json!({})) };
    assert_eq!(texts(&validate_status_update(&with_status(&json!({}), &complete()), &old)), [""; 0]);
}
