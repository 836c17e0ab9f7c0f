//! What is kept of failed pods is exact as long as it is short, and short always.

mod common;

use common::{at, pod};
use serde_json::json;
use windlass_job::history::{Entry, Evidence, Group, History, Meaning};
use windlass_job::policy::failure::{Action, Evidence as Matched, RuleMatch};
use windlass_job::trace::PodOutcome;

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
