//! What would happen, pod by pod, is what the real decisions make of it.

mod common;

use common::{JobBuilder, job, on_condition, on_exit};
use jiff::SignedDuration;
use serde_json::json;
use windlass_api::Gates;
use windlass_job::Settings;
use windlass_job::analysis::Subject;
use windlass_job::analysis::table::Sign;
use windlass_job::analysis::timeline::{End, Script, Timeline, run};

fn exit(code: i32) -> End {
    if code == 0 {
        return End::Success;
    }
    End::Failure(vec![Sign::Exit { container: "main".to_owned(), code }])
}

fn disrupted() -> End {
    let condition = Sign::Condition { kind: "DisruptionTarget".to_owned(), status: "True".to_owned() };
    End::Failure(vec![Sign::Exit { container: "main".to_owned(), code: 143 }, condition])
}

fn play(job: JobBuilder, ends: &[End]) -> Timeline {
    let gates = Gates::default();
    let script = Script {
        ends: ends.to_vec(),
        pod_takes: vec![SignedDuration::from_secs(1)],
        pods_max: 12,
        until: SignedDuration::MAX,
        settings: Settings::default(),
    };
    run(&Subject::new(&job.build(), None, &gates), &gates, &script)
}

/// Start, end, index, rule, failed/succeeded of each pod; then the end.
fn told(timeline: &Timeline) -> Vec<String> {
    let attempts = timeline.attempts.iter().map(|a| {
        let ended = a.ended.map_or("…".to_owned(), |at| at.as_secs().to_string());
        let index = a.index.map_or(String::new(), |index| format!(" index {index}"));
        let rule = a.rule.as_ref().map_or(String::new(), |rule| format!(" rule {}", rule.rule));
        let counters = a.counters.map_or(String::new(), |(f, s)| format!(" failed {f} succeeded {s}"));
        format!("{}-{ended}{index}{rule}{counters}", a.started.as_secs())
    });
    let end = timeline.ended.as_ref().map(|e| format!("{} {} {}", e.at.as_secs(), e.condition, e.reason));
    attempts.chain(end).collect()
}

#[test]
fn failures_are_retried_later_and_later_until_the_limit() {
    let timeline = play(job().limit(2), &[exit(1)]);
    assert_eq!(
        told(&timeline),
        [
            "0-1 failed 1 succeeded 0",
            "11-12 failed 2 succeeded 0",
            "32-33 failed 3 succeeded 0",
            "33 Failed BackoffLimitExceeded",
        ]
    );
}

#[test]
fn a_success_in_time_completes_the_job() {
    let timeline = play(job().limit(2), &[exit(1), exit(0)]);
    assert_eq!(
        told(&timeline),
        ["0-1 failed 1 succeeded 0", "11-12 failed 1 succeeded 1", "12 Complete CompletionsReached"]
    );
}

#[test]
fn an_ignored_failure_does_not_count_and_a_rule_ends_the_job() {
    let rules = [on_condition("Ignore", "DisruptionTarget"), on_exit("FailJob", "In", &[42])];
    let timeline = play(job().limit(0).policy(rules), &[disrupted(), exit(42)]);
    assert_eq!(
        told(&timeline),
        [
            "0-1 rule 0 failed 0 succeeded 0",
            "11-12 rule 1 failed 1 succeeded 0",
            "12 Failed PodFailurePolicy"
        ]
    );
}

#[test]
fn what_never_ends_is_cut_off() {
    let timeline = play(job().policy([on_exit("Ignore", "In", &[1])]), &[exit(1)]);
    assert_eq!((timeline.attempts.len(), timeline.ended), (12, None));
}

#[test]
fn each_index_has_its_own_delays_and_pods_that_run_end_with_the_job() {
    let timeline = play(job().indexed(2, 2).per_index(1), &[exit(1), exit(0), exit(1)]);
    assert_eq!(
        told(&timeline),
        [
            "0-1 index 0 failed 0 succeeded 0",
            "0-1 index 1 failed 0 succeeded 1",
            "11-12 index 0 failed 2 succeeded 1",
            "12 Failed FailedIndexes",
        ]
    );
    let rules = [on_exit("FailJob", "In", &[42])];
    let timeline = play(job().runs(2, 2).policy(rules), &[exit(42)]);
    assert_eq!(told(&timeline), ["0-1 rule 0 failed 2 succeeded 0", "0-…", "1 Failed PodFailurePolicy"]);
}

#[test]
fn a_success_policy_takes_the_rest_away() {
    let job = job().indexed(3, 3).success([json!({ "succeededIndexes": "0" })]);
    assert_eq!(
        told(&play(job, &[exit(0)])),
        ["0-1 index 0 failed 0 succeeded 1", "0-… index 1", "0-… index 2", "1 Complete SuccessPolicy"]
    );
}

#[test]
fn a_job_with_nothing_to_do_is_over_at_once_and_one_that_starts_nothing_never() {
    assert_eq!(told(&play(job().runs(1, 0), &[])), ["0 Complete CompletionsReached"]);
    assert_eq!(told(&play(job().runs(0, 1), &[])), [""; 0]);
}
