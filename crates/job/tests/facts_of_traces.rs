//! Why: each note as text, and the notes that decisions really carry.

mod common;

use common::{Bench, at, job, on_condition, on_exit};
use serde_json::json;
use windlass_job::Wake;
use windlass_job::decision::{CreationReason, Kind, RemovalReason};
use windlass_job::policy::failure::{Action, Evidence, RuleMatch};
use windlass_job::trace::{Note, PodOutcome, Trace, Trigger, Wait};
use windlass_job::verdict::Ending;

fn rule() -> RuleMatch {
    let evidence = Evidence::ExitCode { container: "main".to_owned(), code: 5 };
    RuleMatch { rule: 1, action: Action::FailJob, evidence, action_name: "FailJob" }
}

#[test]
fn every_note_reads_as_one_line() {
    let text = str::to_owned;
    let until = at(90);
    let finished = |index, outcome| Note::PodFinished { pod: text("p"), index, outcome };
    let ending =
        |trigger| Note::Ending { ending: Ending::Failure, reason: text("R"), message: text("M"), trigger };
    let waiting = |why| Note::Waiting { until, why };
    let cases = [
        (Note::NotOurs { managed_by: text("x") }, "the Job is managed by x"),
        (Note::NotOurs { managed_by: text("") }, "the Job does not ask for us"),
        (Note::Finished, "the Job is finished"),
        (Note::UnknownMode, "the completion mode is unknown"),
        (Note::Claiming { adopted: 2, released: 1 }, "adopt 2, let go of 1 pods"),
        (finished(None, PodOutcome::Succeeded), "pod p succeeded"),
        (finished(Some(3), PodOutcome::Counted(None)), "pod p (index 3) failed, no rule matches: counted"),
        (
            finished(None, PodOutcome::Counted(Some(rule()))),
            "pod p failed, rule 1 (FailJob) matches exit code 5 of container main: counted",
        ),
        (
            finished(None, PodOutcome::Ignored(rule())),
            "pod p failed, rule 1 (FailJob) matches exit code 5 of container main: not counted",
        ),
        (
            finished(None, PodOutcome::EndedWithJob),
            "pod p had not stopped when the Job failed: counted as failed",
        ),
        (
            Note::Counters { succeeded: (1, 2), failed: (3, 4), backoff_limit: 6 },
            "succeeded 1 → 2, failed 3 → 4 (limit 6)",
        ),
        (
            ending(Trigger::Rule { pod: text("p"), matched: rule() }),
            "the Job fails (R): pod p, rule 1 (FailJob) matches exit code 5 of container main",
        ),
        (
            ending(Trigger::BackoffLimit { failed: 3, restarts: 1, limit: 2 }),
            "the Job fails (R): 3 failures and 1 restart, backoffLimit 2",
        ),
        (ending(Trigger::Deadline { at: until }), "the Job fails (R): the deadline was 2026-01-01T00:01:30Z"),
        (
            ending(Trigger::FailedIndexes { failed: 3, max: Some(2) }),
            "the Job fails (R): 3 failed indexes, maxFailedIndexes 2",
        ),
        (ending(Trigger::FailedIndexes { failed: 3, max: None }), "the Job fails (R): 3 failed indexes"),
        (
            Note::Ending {
                ending: Ending::Success,
                reason: text("R"),
                message: text("M"),
                trigger: Trigger::SuccessRule { rule: 2 },
            },
            "the Job succeeds (R): success policy rule 2 is met",
        ),
        (
            Note::Ending {
                ending: Ending::Success,
                reason: text("R"),
                message: text("M"),
                trigger: Trigger::Completions { succeeded: 4 },
            },
            "the Job succeeds (R): 4 completions",
        ),
        (Note::Deleting { count: 3 }, "end 3 active pods, the Job is over"),
        (
            Note::Removing { count: 1, why: RemovalReason::Suspended },
            "end 1 pods without counting them: the Job is suspended",
        ),
        (
            Note::Removing { count: 1, why: RemovalReason::Surplus },
            "end 1 pods without counting them: there are more than wanted",
        ),
        (
            Note::Removing { count: 1, why: RemovalReason::Misplaced },
            "end 1 pods without counting them: the Job has no use for their index",
        ),
        (
            Note::Removing { count: 1, why: RemovalReason::Succeeded },
            "end 1 pods without counting them: the Job has succeeded without them",
        ),
        (Note::Creating { count: 2, wanted: 5, reason: CreationReason::New }, "create 2 of 5 pods (new)"),
        (
            Note::Creating { count: 2, wanted: 5, reason: CreationReason::RecreateFailed },
            "create 2 of 5 pods (recreate_failed)",
        ),
        (
            Note::Creating { count: 2, wanted: 5, reason: CreationReason::RecreateTerminatingOrFailed },
            "create 2 of 5 pods (recreate_terminating_or_failed)",
        ),
        (
            waiting(Wait::Backoff { failures: 2, last: at(70) }),
            "wait until 2026-01-01T00:01:30Z: back-off after 2 failures, the last at 2026-01-01T00:01:10Z",
        ),
        (
            waiting(Wait::IndexBackoff { index: 4, failures: 2 }),
            "wait until 2026-01-01T00:01:30Z: back-off of index 4 after 2 failures",
        ),
        (waiting(Wait::Deadline), "wait until 2026-01-01T00:01:30Z: the deadline"),
        (waiting(Wait::Gauges), "wait until 2026-01-01T00:01:30Z: only gauges changed"),
        (
            waiting(Wait::Api(Kind::Claim)),
            "wait until 2026-01-01T00:01:30Z: adopting or releasing a pod failed a moment ago",
        ),
        (
            waiting(Wait::Api(Kind::Create)),
            "wait until 2026-01-01T00:01:30Z: creating a pod failed a moment ago",
        ),
        (
            waiting(Wait::Api(Kind::End)),
            "wait until 2026-01-01T00:01:30Z: deleting a pod failed a moment ago",
        ),
        (
            waiting(Wait::Api(Kind::Release)),
            "wait until 2026-01-01T00:01:30Z: releasing a finalizer failed a moment ago",
        ),
        (
            waiting(Wait::Api(Kind::Status)),
            "wait until 2026-01-01T00:01:30Z: writing the status failed a moment ago",
        ),
        (
            waiting(Wait::Api(Kind::Emit)),
            "wait until 2026-01-01T00:01:30Z: publishing an event failed a moment ago",
        ),
        (Note::WaitingForPods { terminating: 2 }, "wait for 2 pods to stop"),
        (
            Note::Concluded { ending: Ending::Failure, counters: (1, 2) },
            "the Job fails: 1 succeeded, 2 failed",
        ),
        (
            Note::Concluded { ending: Ending::Success, counters: (1, 2) },
            "the Job succeeds: 1 succeeded, 2 failed",
        ),
    ];
    for (note, want) in &cases {
        assert_eq!(note.to_string(), *want);
    }
    let all = Trace(cases[..2].iter().map(|(note, _)| note.clone()).collect());
    assert_eq!(all.to_string(), "the Job is managed by x\nthe Job does not ask for us");
}

/// The trace of every decision until there is nothing to do.
fn traces(bench: &mut Bench) -> Vec<String> {
    let mut traces = Vec::new();
    loop {
        let wake = bench.step();
        traces.push(bench.trace());
        if wake != Wake::Again {
            return traces;
        }
    }
}

#[test]
fn a_failing_job_tells_why_from_the_pod_to_the_end() {
    let rules = [on_condition("Ignore", "DisruptionTarget"), on_exit("FailJob", "In", &[5])];
    let mut bench = Bench::new(job().runs(2, 2).policy(rules));
    assert_eq!(traces(&mut bench)[..2], ["create 1 of 2 pods (new)", "create 1 of 1 pods (new)"]);
    bench.start(&["p0", "p1"]).hush().exit("p0", 5);
    let pod = |uid: &str| bench.get(uid).and_then(|pod| pod.metadata.name).expect("a name");
    let (first, second) = (pod("p0"), pod("p1"));
    assert_eq!(
        traces(&mut bench),
        [
            "end 1 active pods, the Job is over".to_owned(),
            format!(
                "pod {first} failed, rule 1 (FailJob) matches exit code 5 of container main: counted\n\
                 pod {second} had not stopped when the Job failed: counted as failed\n\
                 the Job fails (PodFailurePolicy): pod {first}, rule 1 (FailJob) matches exit code 5 of \
                 container main"
            ),
            String::new(),
            "wait for 1 pods to stop\nsucceeded 0 → 0, failed 0 → 2 (limit 6)".to_owned(),
            "wait for 1 pods to stop".to_owned(),
        ]
    );
    bench.vanish("p1");
    assert_eq!(traces(&mut bench), ["the Job fails: 0 succeeded, 2 failed", "the Job is finished"]);
}

#[test]
fn an_ignored_failure_is_told_when_its_pod_is_let_go() {
    let mut bench = Bench::new(job().policy([on_condition("Ignore", "DisruptionTarget")]));
    bench.hush().disrupt("p0");
    let pod = bench.get("p0").and_then(|pod| pod.metadata.name).expect("a name");
    let first = traces(&mut bench).remove(0);
    assert!(
        first.contains(&format!(
            "pod {pod} failed, rule 0 (Ignore) matches condition DisruptionTarget: not counted"
        )),
        "{first}"
    );
}

#[test]
fn a_deadline_that_is_waited_for_is_told() {
    let mut bench = Bench::new(job().deadline(30));
    bench.run();
    assert_eq!(bench.trace(), "wait until 2026-01-01T00:00:30Z: the deadline");
}

#[test]
fn each_trigger_of_an_end_is_told() {
    let index = |name: &str, index: u32| common::pod(name).index(index);
    let cases = [
        (job().limit(0), vec![common::pod("a").failed(0)], "1 failure and 0 restarts, backoffLimit 0"),
        (job().deadline(0), vec![], "the deadline was 2026-01-01T00:00:00Z"),
        (job().indexed(1, 1).per_index(0), vec![index("a", 0).failed(0)], "1 failed index"),
        (
            job().indexed(2, 2).per_index(0).max_failed(0),
            vec![index("a", 0).failed(0), index("b", 1).failed(0)],
            "2 failed indexes, maxFailedIndexes 0",
        ),
        (
            job().indexed(1, 1).success([json!({ "succeededCount": 1 })]),
            vec![index("a", 0).succeeded(0)],
            "success policy rule 0 is met",
        ),
        (job(), vec![common::pod("a").succeeded(0)], "1 completions"),
    ];
    for (job, pods, want) in cases {
        let mut bench = Bench::new(job);
        pods.into_iter().for_each(|pod| _ = bench.add(pod));
        let told = bench.decide().because.to_string();
        assert!(told.contains(&format!("): {want}")), "{told:?} does not tell {want:?}");
    }
}
