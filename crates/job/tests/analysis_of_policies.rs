//! The decision table says what the policy does, and the findings say what the table shows.

mod common;

use common::{JobBuilder, job, on_condition, on_exit};
use proptest::prelude::*;
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_job::analysis::findings::{Change, Finding, IDS, Severity, findings};
use windlass_job::analysis::table::{CODES, Sign, Verdict, pod_status};
use windlass_job::analysis::{Role, Subject};
use windlass_job::policy::failure::Action;

const DRAFT_ON: Gates = Gates {
    pod_disruption_conditions: true,
    job_pod_failure_policy: true,
    job_pod_replacement_policy: true,
    job_backoff_limit_per_index: true,
    retriable_and_non_retriable_failures: true,
};

fn subject(job: JobBuilder) -> Subject {
    Subject::new(&job.build(), None, &Gates::default())
}

fn draft(job: JobBuilder, rules: Value) -> Subject {
    Subject::new(&job.build(), Some(&json!({ "rules": rules })), &DRAFT_ON)
}

/// Severity, id, path below the rules, sentence.
fn told(subject: &Subject) -> Vec<String> {
    let short = |path: &str| path.replace(subject.rules_path(), "rules");
    findings(subject)
        .iter()
        .map(|f| format!("{} {} {}: {}", f.severity, f.id, short(&f.path), f.text))
        .collect()
}

fn changes(subject: &Subject) -> Vec<Option<Change>> {
    findings(subject).into_iter().map(|finding| finding.change).collect()
}

fn of(container: &str, mut rule: Value) -> Value {
    rule["onExitCodes"]["containerName"] = container.into();
    rule
}

/// Limits that keep other findings quiet.
fn quiet() -> JobBuilder {
    job().deadline(60)
}

fn with_containers(job: JobBuilder, main: &[&str], init: &[(&str, bool)]) -> JobBuilder {
    let container = |name: &str| json!({ "name": name, "image": "host" });
    let inits: Vec<Value> = init
        .iter()
        .map(|(name, is_sidecar)| {
            let mut made = container(name);
            if *is_sidecar {
                made["restartPolicy"] = "Always".into();
            }
            made
        })
        .collect();
    let mains: Vec<Value> = main.iter().map(|name| container(name)).collect();
    job.spec(json!({ "template": { "spec": { "containers": mains, "initContainers": inits } } }))
}

#[test]
fn the_table_groups_exit_codes_by_the_rule_that_decides() {
    let job = with_containers(quiet(), &["main"], &[("setup", false), ("proxy", true)]).policy([
        of("main", on_exit("FailJob", "In", &[1, 2, 3, 42])),
        on_condition("Ignore", "DisruptionTarget"),
        on_exit("Count", "NotIn", &[7, 8]),
    ]);
    let subject = subject(job);
    let table = subject.table();
    type Groups = Vec<(String, Option<usize>, Action)>;
    let shown: Vec<(&str, Role, Groups)> = table
        .containers
        .iter()
        .map(|row| {
            let groups = row.groups().into_iter().map(|(codes, v)| (codes.to_string(), v.rule, v.action));
            (row.container.as_str(), row.role, groups.collect())
        })
        .collect();
    let others = || ("1-6,9-255".to_owned(), Some(2), Action::Count);
    let none = || ("7-8".to_owned(), None, Action::Count);
    assert_eq!(
        shown,
        [
            (
                "main",
                Role::Main,
                vec![
                    ("1-3,42".to_owned(), Some(0), Action::FailJob),
                    ("4-6,9-41,43-255".to_owned(), Some(2), Action::Count),
                    none()
                ]
            ),
            ("setup", Role::Init, vec![others(), none()]),
            ("proxy", Role::Sidecar, vec![others(), none()]),
        ]
    );
    assert_eq!(
        table.of_condition("DisruptionTarget", "True"),
        Verdict { rule: Some(1), action: Action::Ignore }
    );
    assert_eq!(table.of_condition("DisruptionTarget", "False"), Verdict::NONE);
    assert_eq!(table.of_exit("main", 0), Verdict::NONE);
    assert_eq!(table.of_exit("nobody", 1), Verdict::NONE);
    assert_eq!((table.rules, table.reasons.as_slice()), (3, [].as_slice()));
}

#[test]
fn without_a_policy_every_failure_counts() {
    let subject = subject(quiet());
    let table = subject.table();
    let mut codes = CODES;
    assert!(codes.all(|code| table.of_exit("main", code) == Verdict::NONE));
    assert_eq!(table.verdict(&[Sign::Reason("Evicted".to_owned())]), Verdict::NONE);
    assert_eq!(findings(&subject), []);
}

#[test]
fn each_kind_of_finding_is_found_and_only_it() {
    let disrupted = || on_condition("Ignore", "DisruptionTarget");
    let cases: Vec<(&str, JobBuilder, Vec<&str>)> = vec![
        ("nothing", quiet().policy([disrupted(), on_exit("FailJob", "NotIn", &[40, 41, 42])]), vec![]),
        (
            "a rule that another covers",
            quiet().policy([on_exit("FailJob", "In", &[1, 2, 3]), on_exit("Count", "In", &[2, 3])]),
            vec![
                "warning unreachable-rule rules[1]: rule 1 (Count) never decides anything: rule 0 decides about every exit \
                 code that it matches",
            ],
        ),
        (
            "a rule that two others cover together",
            quiet().policy([
                on_exit("FailJob", "In", &[1, 2]),
                on_exit("Ignore", "In", &[3]),
                on_exit("Count", "In", &[1, 3]),
            ]),
            vec![
                "warning unreachable-rule rules[2]: rule 2 (Count) never decides anything: rules 0 and 1 decide about every \
                 exit code that it matches",
            ],
        ),
        (
            "In and NotIn leave nothing",
            quiet().policy([
                disrupted(),
                on_exit("FailJob", "In", &[5]),
                on_exit("Count", "NotIn", &[5]),
                on_exit("Ignore", "NotIn", &[9]),
            ]),
            vec![
                "warning unreachable-rule rules[3]: rule 3 (Ignore) never decides anything: rules 1 and 2 decide about every \
                 exit code that it matches",
            ],
        ),
        (
            "covered in one container only",
            with_containers(quiet(), &["main", "side"], &[])
                .policy([of("main", on_exit("FailJob", "In", &[42])), on_exit("Count", "In", &[42])]),
            vec![],
        ),
        (
            "some codes covered",
            quiet().policy([on_exit("FailJob", "In", &[1, 2, 42]), on_exit("Count", "In", &[2, 3, 42])]),
            vec![
                "warning covered-exit-code rules[1].onExitCodes.values: exit codes 2,42 of rule 1 (Count) never get to it: \
                 rule 0 decides about them first",
            ],
        ),
        (
            "one code covered",
            quiet().policy([on_exit("FailJob", "In", &[1, 2]), on_exit("Count", "In", &[2, 3])]),
            vec![
                "warning covered-exit-code rules[1].onExitCodes.values: exit code 2 of rule 1 (Count) never gets to it: rule \
                 0 decides about it first",
            ],
        ),
        (
            "a condition twice",
            quiet().policy([disrupted(), on_condition("FailJob", "DisruptionTarget")]),
            vec![
                "warning unreachable-rule rules[1]: rule 1 (FailJob) never decides anything: earlier rules decide about all \
                 its conditions",
            ],
        ),
        (
            "ignored for ever",
            job().policy([disrupted(), on_condition("Ignore", "ConfigIssue"), on_exit("Ignore", "In", &[3])]),
            vec![
                "note endless-ignore rules[0]: rule 0 (Ignore) has no limit: pods that are disrupted again and again are \
                 retried for ever, because ignored failures do not count",
                "warning endless-ignore rules[1]: rule 1 (Ignore) has no limit: a failure that comes every time is retried \
                 for ever, because ignored failures do not count",
                "warning endless-ignore rules[2]: rule 2 (Ignore) has no limit: a failure that comes every time is retried \
                 for ever, because ignored failures do not count",
            ],
        ),
        (
            "NotIn before the rule on disruptions",
            quiet().policy([on_exit("FailJob", "NotIn", &[42]), disrupted()]),
            vec![
                "warning disruption-order rules[0]: rule 0 (FailJob) catches exit codes 137,143 of a pod that is being \
                 disrupted, before rule 1 (Ignore) on DisruptionTarget is asked",
            ],
        ),
        (
            "the same verdict either way",
            quiet().policy([on_exit("Ignore", "In", &[143]), disrupted()]),
            vec![],
        ),
        (
            "no rule on disruptions",
            quiet().policy([on_exit("FailJob", "NotIn", &[42, 137])]),
            vec![
                "warning disruption-fails-job rules[0]: rule 0 (FailJob) catches exit code 143 of a pod that is being \
                 disrupted: a drained node fails the Job",
            ],
        ),
        ("a list that names 137 means it", quiet().policy([on_exit("FailJob", "In", &[137])]), vec![]),
        (
            "an index fails by a disruption",
            quiet().indexed(2, 2).per_index(1).policy([on_exit("FailIndex", "NotIn", &[1])]),
            vec![
                "warning disruption-fails-job rules[0]: rule 0 (FailIndex) catches exit codes 137,143 of a pod that is being \
                 disrupted: a drained node fails an index",
            ],
        ),
        (
            "FailIndex without a limit",
            quiet().policy([on_exit("FailIndex", "In", &[1])]),
            vec![
                "error fail-index-without-limit rules[0].action: rule 0 (FailIndex) has no index to fail: \
                 backoffLimitPerIndex is not set",
            ],
        ),
        (
            "code 0",
            quiet().policy([on_exit("FailJob", "In", &[0, 1]), on_exit("Count", "NotIn", &[0, 2])]),
            vec![
                "error exit-code-zero rules[0].onExitCodes.values: rule 0 (FailJob) lists exit code 0, which is no failure",
                "note exit-code-zero rules[1].onExitCodes.values: rule 1 (Count) excludes exit code 0, which is no failure \
                 anyway",
            ],
        ),
        ("any failure", quiet().policy([disrupted(), on_exit("FailJob", "NotIn", &[0])]), vec![]),
        (
            "only code 0",
            quiet().policy([on_exit("FailJob", "In", &[0])]),
            vec![
                "error exit-code-zero rules[0].onExitCodes.values: rule 0 (FailJob) lists exit code 0, which is no failure",
                "warning unreachable-rule rules[0]: rule 0 (FailJob) never decides anything: it matches no exit code from 1 \
                 to 255 of any container",
            ],
        ),
        (
            "a code that is none",
            quiet().policy([on_exit("FailJob", "In", &[1, 256, 1000])]),
            vec![
                "note impossible-exit-code rules[0].onExitCodes.values: rule 0 (FailJob) lists exit codes 256,1000, but \
                 processes on Linux exit with 0 to 255",
            ],
        ),
        (
            "a container that is not there",
            quiet().policy([of("mian", on_exit("FailJob", "In", &[1]))]),
            vec![
                "error unknown-container rules[0].onExitCodes.containerName: rule 0 (FailJob) looks at container \"mian\", \
                 and there is none of that name",
                "warning unreachable-rule rules[0]: rule 0 (FailJob) never decides anything: it matches no exit code from 1 \
                 to 255 of any container",
            ],
        ),
        (
            "a rule that looks at nothing",
            quiet().policy([json!({ "action": "FailJob" })]),
            vec![
                "warning unreachable-rule rules[0]: rule 0 (FailJob) never decides anything: it looks at nothing",
            ],
        ),
        (
            "a limit of none, and deleted pods count",
            quiet().limit(0),
            vec![
                "warning terminating-counts spec.backoffLimit: with backoffLimit: 0, a pod fails the Job as soon as somebody \
                 deletes it, even if it would succeed within its grace period",
            ],
        ),
        (
            "the same by default",
            quiet().limit(0).spec(json!({ "podReplacementPolicy": null })),
            vec![
                "note terminating-counts spec.backoffLimit: with backoffLimit: 0, a pod fails the Job as soon as somebody \
                 deletes it, even if it would succeed within its grace period",
            ],
        ),
        (
            "the same for each index",
            quiet().indexed(2, 2).per_index(0),
            vec![
                "warning terminating-counts spec.backoffLimitPerIndex: with backoffLimitPerIndex: 0, a pod fails its index as \
                 soon as somebody deletes it, even if it would succeed within its grace period",
            ],
        ),
        ("a limit of none, and pods count by their end", quiet().limit(0).replaces_failed(), vec![]),
        (
            "a sidecar's end decides",
            with_containers(quiet(), &["main"], &[("proxy", true)])
                .policy([disrupted(), on_exit("FailJob", "NotIn", &[40, 41])]),
            vec![
                "warning sidecar-exit-code rules[1]: rule 1 (FailJob) also looks at the sidecar \"proxy\", which exits with \
                 143 when the pod is over: when \"main\" exits with 40, it is this rule that decides, not none",
            ],
        ),
        (
            "a sidecar's end decides before another rule",
            with_containers(quiet(), &["main", "other"], &[("proxy", true)]).policy([
                disrupted(),
                on_exit("FailJob", "In", &[143]),
                on_exit("Ignore", "In", &[5]),
            ]),
            vec![
                "warning sidecar-exit-code rules[1]: rule 1 (FailJob) also looks at the sidecar \"proxy\", which exits with \
                 143 when the pod is over: when \"main\" exits with 1, it is this rule that decides, not none",
            ],
        ),
        (
            "a sidecar that the rule does not look at",
            with_containers(quiet(), &["main"], &[("proxy", true)])
                .policy([disrupted(), of("main", on_exit("FailJob", "NotIn", &[40]))]),
            vec![],
        ),
        (
            "a rule on a sidecar",
            with_containers(quiet(), &["main"], &[("proxy", true)])
                .policy([disrupted(), of("proxy", on_exit("FailJob", "In", &[1]))]),
            vec![
                "note sidecar-exit-code rules[1].onExitCodes.containerName: rule 1 (FailJob) looks at the sidecar \"proxy\", \
                 whose failure alone is not the pod's: the rule is asked only when another container fails",
            ],
        ),
    ];
    for (what, job, want) in &cases {
        assert_eq!(told(&subject(job.clone())), *want, "{what}");
    }
    for (id, about) in IDS {
        assert!(!about.is_empty());
        let is_found =
            |(_, job, _): &(_, JobBuilder, _)| findings(&subject(job.clone())).iter().any(|f| f.id == id);
        assert!(cases.iter().any(is_found), "{id} is in no case");
    }
}

#[test]
fn a_rule_of_a_feature_that_is_off_is_never_asked() {
    let gates = Gates { job_backoff_limit_per_index: false, ..Gates::default() };
    let job = quiet().policy([on_exit("FailIndex", "In", &[1])]);
    let subject = Subject::new(&job.build(), None, &gates);
    assert_eq!(
        told(&subject)[1],
        "warning unreachable-rule rules[0]: rule 0 (FailIndex) never decides anything: FailIndex is switched off"
    );
}

#[test]
fn findings_come_with_a_change_and_with_words_for_it() {
    let disrupted = || on_condition("Ignore", "DisruptionTarget");
    let cases: Vec<(JobBuilder, Vec<Option<Change>>)> = vec![
        (
            quiet().policy([on_exit("FailJob", "NotIn", &[42]), disrupted()]),
            vec![Some(Change::MoveRule { rule: 1, before: 0 })],
        ),
        (
            quiet().policy([on_exit("FailJob", "NotIn", &[42])]),
            vec![Some(Change::IgnoreDisruptions { before: 0 })],
        ),
        (
            quiet().policy([on_exit("FailJob", "In", &[1, 2]), on_exit("Count", "In", &[2, 3])]),
            vec![Some(Change::RemoveValues { rule: 1, values: vec![2] })],
        ),
        (
            with_containers(quiet(), &["main"], &[("proxy", true)])
                .policy([disrupted(), on_exit("FailJob", "NotIn", &[40])]),
            vec![Some(Change::NameContainer { rule: 1, container: "main".to_owned() })],
        ),
        (
            with_containers(quiet(), &["a", "b"], &[("proxy", true)])
                .policy([disrupted(), on_exit("FailJob", "NotIn", &[40])]),
            vec![None],
        ),
        (quiet().limit(0), vec![Some(Change::ReplaceOnlyFailed)]),
        (quiet().policy([disrupted(), disrupted()]), vec![Some(Change::RemoveRule { rule: 1 })]),
    ];
    for (job, want) in cases {
        let subject = subject(job);
        assert_eq!(changes(&subject), want, "{:?}", told(&subject));
        assert!(findings(&subject).iter().all(|finding| !finding.help.is_empty()));
    }
}

#[test]
fn a_draft_policy_is_analysed_too() {
    let ignore = || json!({ "action": "Ignore", "podStatusReasonIn": ["Evicted"] });
    let terminate = |codes: &str| json!({ "action": "Terminate", "containerExitCodeNotIn": codes });
    let subject = draft(quiet(), json!([ignore(), terminate("40-50")]));
    let table = subject.table();
    let reasons: Vec<(Option<&str>, Option<usize>)> =
        table.reasons.iter().map(|row| (row.reason.as_deref(), row.verdict.rule)).collect();
    assert_eq!(reasons, [(Some("Evicted"), Some(0)), (Some(""), None), (None, None)]);
    let exit = |code| Sign::Exit { container: "main".to_owned(), code };
    assert_eq!(table.verdict(&[exit(1)]).rule, Some(1));
    assert_eq!(table.verdict(&[exit(1), Sign::Reason("Evicted".to_owned())]).rule, Some(0));
    assert_eq!(told(&subject), [""; 0]);

    let cases: Vec<(Value, Vec<&str>)> = vec![
        (
            json!([terminate("40-50")]),
            vec![
                "warning disruption-fails-job rules[0]: rule 0 (Terminate) catches exit codes 137,143 of a pod that is being \
                 disrupted: a drained node fails the Job",
            ],
        ),
        (
            json!([{ "action": "Ignore", "podStatusReasonNotIn": ["a"] }, { "action": "Ignore", "podStatusReasonIn": ["a"] },
                   { "action": "Terminate", "containerExitCodeIn": "1" }]),
            vec![
                "warning unreachable-rule rules[2]: rule 2 (Terminate) never decides anything: earlier rules decide about \
                 every reason",
            ],
        ),
        (
            json!([ignore(), { "action": "Terminate", "podStatusReasonIn": ["Evicted"] }]),
            vec![
                "warning unreachable-rule rules[1]: rule 1 (Terminate) never decides anything: earlier rules decide about \
                 all its reasons",
            ],
        ),
        (
            json!([{ "action": "Ignore", "containerExitCodeIn": "1-5" }, { "action": "Terminate", "containerExitCodeIn": "4-9" }]),
            vec![
                "warning covered-exit-code rules[1]: exit codes 4-5 of rule 1 (Terminate) never get to it: rule 0 decides \
                 about them first",
            ],
        ),
        (
            json!([{ "action": "Ignore", "containerName": "x", "containerExitCodeIn": "1" }]),
            vec![
                "error unknown-container rules[0]: rule 0 (Ignore) looks at container \"x\", and there is none of that name",
                "warning unreachable-rule rules[0]: rule 0 (Ignore) never decides anything: it matches no exit code from 1 \
                 to 255 of any container",
            ],
        ),
    ];
    for (rules, want) in cases {
        assert_eq!(told(&draft(quiet(), rules.clone())), want, "{rules}");
    }
    let endless = draft(job(), json!([ignore()]));
    assert_eq!(findings(&endless).iter().map(|f| f.severity).collect::<Vec<_>>(), [Severity::Note]);
    let with_sidecar =
        draft(with_containers(quiet(), &["main"], &[("proxy", true)]), json!([ignore(), terminate("40")]));
    let found: Vec<Finding> = findings(&with_sidecar);
    assert_eq!((found[0].id, found[0].change.clone()), ("sidecar-exit-code", None));
}

fn any_rule() -> impl Strategy<Value = Value> {
    let action = prop::sample::select(vec!["FailJob", "FailIndex", "Ignore", "Count"]);
    let codes = prop::collection::btree_set(0..=255_i32, 1..8);
    let operator = prop::sample::select(vec!["In", "NotIn"]);
    let container = prop::option::of(prop::sample::select(vec!["main", "other", "setup"]));
    let exit =
        (action.clone(), operator, codes, container).prop_map(|(action, operator, codes, container)| {
            let codes: Vec<i32> = codes.into_iter().collect();
            let rule = on_exit(action, operator, &codes);
            container.map_or(rule.clone(), |container| of(container, rule))
        });
    let pattern =
        (prop::sample::select(vec!["DisruptionTarget", "A"]), prop::sample::select(vec!["True", "False"]));
    let condition = (action, prop::collection::vec(pattern, 1..3)).prop_map(|(action, patterns)| {
        let patterns: Vec<Value> =
            patterns.into_iter().map(|(kind, status)| json!({ "type": kind, "status": status })).collect();
        json!({ "action": action, "onPodConditions": patterns })
    });
    prop_oneof![exit, condition]
}

fn any_draft_rule() -> impl Strategy<Value = Value> {
    let action = prop::sample::select(vec!["Terminate", "Ignore"]);
    let range = (1..=255_i32, 0..=40_i32).prop_map(|(start, more)| format!("{start}-{}", start + more));
    let codes =
        (action.clone(), prop::sample::select(vec!["containerExitCodeIn", "containerExitCodeNotIn"]), range)
            .prop_map(|(action, field, range)| json!({ "action": action, field: range }));
    let names = prop::collection::btree_set(prop::sample::select(vec!["", "Evicted", "Lost"]), 1..3);
    let reasons = (action, prop::sample::select(vec!["podStatusReasonIn", "podStatusReasonNotIn"]), names)
        .prop_map(|(action, field, names)| json!({ "action": action, field: names }));
    prop_oneof![codes, reasons]
}

fn any_signs() -> impl Strategy<Value = Vec<Sign>> {
    let exit = |name: &'static str| {
        prop::option::of(CODES)
            .prop_map(move |code| code.map(|code| Sign::Exit { container: name.to_owned(), code }))
    };
    let condition = |kind: &'static str| {
        prop::option::of(prop::sample::select(vec!["True", "False", "Unknown"])).prop_map(move |status| {
            status.map(|status| Sign::Condition { kind: kind.to_owned(), status: status.to_owned() })
        })
    };
    let reason = prop::option::of(prop::sample::select(vec!["", "Evicted", "Lost", "Other"]))
        .prop_map(|reason| reason.map(|reason| Sign::Reason(reason.to_owned())));
    (exit("main"), exit("other"), exit("setup"), condition("DisruptionTarget"), condition("A"), reason)
        .prop_map(|(a, b, c, d, e, f)| [a, b, c, d, e, f].into_iter().flatten().collect())
}

fn agrees(subject: &Subject, pods: &[Vec<Sign>]) -> Result<(), TestCaseError> {
    let policy = subject.facts.failure_policy.as_ref().expect("a policy");
    let table = subject.table();
    for signs in pods {
        let real = policy.evaluate(&pod_status(signs));
        let verdict = table.verdict(signs);
        prop_assert_eq!(verdict.rule, real.as_ref().map(|found| found.rule));
        prop_assert_eq!(verdict.action, real.map_or(Action::Count, |found| found.action));
    }
    Ok(())
}

fn three_containers() -> JobBuilder {
    with_containers(quiet().indexed(2, 2).per_index(1), &["main", "other"], &[("setup", false)])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_table_says_of_every_pod_what_the_policy_does(
        rules in prop::collection::vec(any_rule(), 1..6), signs in prop::collection::vec(any_signs(), 20)
    ) {
        agrees(&subject(three_containers().policy(rules)), &signs)?;
    }

    #[test]
    fn the_table_of_a_draft_does_too(
        rules in prop::collection::vec(any_draft_rule(), 1..6), signs in prop::collection::vec(any_signs(), 20)
    ) {
        agrees(&draft(three_containers(), json!(rules)), &signs)?;
    }

    #[test]
    fn a_rule_that_is_called_unreachable_can_be_removed_and_no_pod_is_treated_otherwise(
        rules in prop::collection::vec(any_rule(), 1..6), signs in prop::collection::vec(any_signs(), 20)
    ) {
        let before = subject(three_containers().policy(rules.clone()));
        let found = findings(&before);
        let Some(at) = found.iter().find_map(|finding| match finding.change {
            Some(Change::RemoveRule { rule }) => Some(rule),
            _ => None,
        }) else { return Ok(()) };
        let mut fewer = rules;
        fewer.remove(at);
        let (before, after) = (before.table(), subject(three_containers().policy(fewer)).table());
        for signs in signs {
            prop_assert_eq!(before.verdict(&signs).action, after.verdict(&signs).action);
        }
    }
}
