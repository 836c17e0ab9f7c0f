//! What is kept of failed pods is exact as long as it is short, and short always.

mod common;

use std::collections::BTreeMap;

use common::{at, job, on_exit, pod};
use serde_json::json;
use windlass_api::Gates;
use windlass_job::decision::StatusWrite;
use windlass_job::history::{ANNOTATION, Entry, Evidence, Group, History, Meaning};
use windlass_job::job_facts::{Status, Uncounted};
use windlass_job::memory::Memory;
use windlass_job::policy::failure::{Action, Evidence as Matched, RuleMatch};
use windlass_job::trace::{Note, PodOutcome};
use windlass_job::{Action as Step, JobFacts, PodFacts, Uid};

fn ignored(kind: &str) -> PodOutcome {
    let evidence = Matched::Condition(kind.to_owned());
    PodOutcome::Ignored(RuleMatch { rule: 0, action: Action::Ignore, evidence, action_name: "Ignore" })
}

fn evidence(what: &str) -> Evidence {
    Evidence { what: what.to_owned(), message: Some("no space".to_owned()), node: Some("a".to_owned()) }
}

fn note(history: &mut History, pod: &str, index: u32, outcome: &PodOutcome, what: &str, failed: (u32, u32)) {
    let evidence = evidence(what);
    let entry =
        Entry { pod, index: Some(index), outcome, evidence: &evidence, failed, at: at(i64::from(failed.1)) };
    history.note(&entry);
}

#[test]
fn verdicts_that_are_alike_are_one_group_and_survive_the_text() {
    let mut history = History::default();
    let counted = PodOutcome::Counted(None);
    note(&mut history, "x-0", 0, &counted, "container main: exit code 1", (0, 1));
    note(&mut history, "x-1", 1, &counted, "container main: exit code 1", (1, 2));
    note(&mut history, "x-5", 5, &counted, "container main: exit code 1", (2, 3));
    note(&mut history, "x-2", 2, &ignored("DisruptionTarget"), "container main: exit code 143", (3, 3));
    note(&mut history, "x-3", 3, &PodOutcome::Succeeded, "", (3, 3));
    note(&mut history, "x-4", 4, &PodOutcome::EndedWithJob, "whatever", (3, 4));
    let group = |meaning, rule: Option<&str>, what: &str, pods, indexes: &str, failed, pod: &str| Group {
        meaning,
        rule: rule.map(str::to_owned),
        what: what.to_owned(),
        pods,
        indexes: indexes.to_owned(),
        nodes: vec!["a".to_owned()],
        failed,
        first: 0,
        last: 0,
        pod: pod.to_owned(),
        message: Some("no space".to_owned()),
    };
    let mut shown = history.clone();
    shown.groups.iter_mut().for_each(|group| (group.first, group.last) = (0, 0));
    let rule = "rule 0 (Ignore) matches condition DisruptionTarget";
    assert_eq!(
        shown.groups,
        [
            group(Meaning::Counted, None, "container main: exit code 1", 3, "0,1,5", (0, 3), "x-5"),
            group(Meaning::Ignored, Some(rule), "container main: exit code 143", 1, "2", (3, 3), "x-2"),
            group(Meaning::EndedWithJob, None, "", 1, "4", (3, 4), "x-4"),
        ]
    );
    assert_eq!((history.groups[0].first, history.groups[0].last), (at(1).as_second(), at(3).as_second()));
    assert_eq!(History::parse(&history.text()), history);
    assert_eq!(History::parse("nonsense"), History::default());
}

#[test]
fn a_history_stays_short_whatever_happens() {
    let mut history = History::default();
    let counted = PodOutcome::Counted(None);
    for number in 0..3_000 {
        let what = format!("container main: exit code {}", number % 255);
        let long = Evidence {
            what,
            message: Evidence::default().message,
            node: Some(format!("node-{number}-with-quite-a-long-name.example.com")),
        };
        let pod = format!("job-{number}-abcde");
        let failed = (number, number + 1);
        let index = Some(number * 2);
        history.note(&Entry { pod: &pod, index, outcome: &counted, evidence: &long, failed, at: at(1) });
    }
    assert_eq!(history.groups.len(), 24);
    let pods: u32 = history.groups.iter().map(|group| group.pods).sum();
    assert_eq!(pods, 3_000, "every pod is in it");
    assert_eq!(history.groups[23].what, "others");
    assert_eq!(history.groups[0].nodes.len(), 5);
    assert!(history.text().len() < 16 * 1024, "{} bytes", history.text().len());
}

#[test]
fn the_evidence_of_a_pod_is_its_first_failed_container_or_its_reason() {
    let ended = |code: i32, message: &str| json!({ "terminated": { "exitCode": code, "message": message } });
    let failed = || pod("p").phase("Failed");
    let long = "x".repeat(500);
    let cases = [
        (
            failed().container("a", 0, ended(0, "")).container("b", 0, ended(3, "first\nlast\n")),
            "container b: exit code 3",
            Some("last".to_owned()),
        ),
        (failed().init_container("i", 0, ended(9, " ")), "container i: exit code 9", None),
        (
            failed().container("a", 0, ended(1, &long)),
            "container a: exit code 1",
            Some(format!("{}…", "x".repeat(160))),
        ),
        (
            failed().with(json!({ "status": { "reason": "Evicted", "message": "low on memory" } })),
            "reason Evicted",
            Some("low on memory".to_owned()),
        ),
        (failed(), "", None),
    ];
    for (pod, what, message) in cases {
        let found = Evidence::of_pod(&pod.build());
        assert_eq!((found.what.as_str(), found.message), (what, message));
    }
}

fn write(failed: u32, uncounted: &[&str]) -> Vec<Step> {
    let uids = uncounted.iter().map(|uid| Uid::new(uid)).collect();
    let uncounted = Some(Uncounted { succeeded: Vec::new(), failed: uids });
    let status = Status { failed, uncounted, ..Status::default() };
    let write = StatusWrite { status, resource_version: String::new(), events: Vec::new(), finishes: false };
    vec![Step::WriteStatus(Box::new(write))]
}

/// A pod that has failed is seen, and this is what is decided about it.
fn seen(memory: &mut Memory, name: &str, code: i32) -> Note {
    let facts =
        JobFacts::from_job(&job().policy([on_exit("Ignore", "In", &[42])]).build(), None, &Gates::default());
    let ended = json!({ "terminated": { "exitCode": code, "message": "out of luck" } });
    let pod = pod(name).phase("Failed").container("main", 0, ended).build();
    let facts = PodFacts::from_pod(&pod, &facts);
    memory.saw(&pod, &facts);
    let outcome = facts.rule.map_or(PodOutcome::Counted(None), |rule| PodOutcome::Ignored(*rule));
    Note::PodFinished { pod: facts.name.to_string(), index: None, outcome }
}

#[test]
fn what_is_counted_is_remembered_with_the_write_that_counts_it() {
    let mut memory = Memory::default();
    let notes = [seen(&mut memory, "a", 1), seen(&mut memory, "b", 1)];
    let status = Status::default();
    assert_eq!(memory.with(&[], &notes, &status, at(0)), None, "no status is written");
    let history = memory.with(&write(0, &["a", "b"]), &notes, &status, at(0)).expect("news");
    let group = &history.groups[0];
    assert_eq!((group.pods, group.failed, group.what.as_str()), (2, (0, 2), "container main: exit code 1"));
    assert_eq!(group.message.as_deref(), Some("out of luck"));
    let again = memory.with(&write(0, &["a", "b"]), &notes, &status, at(0));
    assert_eq!(
        again.as_ref(),
        Some(&history),
        "a write that failed is decided again, and counts nobody twice"
    );
    memory.wrote(&history, &notes);
    assert_eq!(memory.with(&write(2, &[]), &[], &status, at(1)), None, "nothing is new");
    let annotations = BTreeMap::from([(ANNOTATION.to_owned(), history.text())]);
    let mut next = Memory::read(Some(&annotations));
    assert_eq!(next.with(&write(2, &[]), &[], &status, at(1)), None, "the next controller knows it");
}

#[test]
fn an_ignored_pod_is_remembered_with_the_next_write_though_it_is_gone() {
    let mut memory = Memory::default();
    let notes = [seen(&mut memory, "a", 42)];
    memory.begin(&notes);
    memory.forget("a");
    let Note::PodFinished { outcome, .. } = &notes[0] else { panic!("{notes:?}") };
    assert_eq!(memory.with(&write(0, &[]), &notes, &Status::default(), at(0)), None, "it is not let go yet");
    memory.let_go("a", None, outcome);
    let history = memory.with(&write(0, &[]), &[], &Status::default(), at(0)).expect("news");
    let group = &history.groups[0];
    assert_eq!((group.meaning, group.pods, group.failed), (Meaning::Ignored, 1, (0, 0)));
    assert_eq!(group.what, "container main: exit code 42");
}
