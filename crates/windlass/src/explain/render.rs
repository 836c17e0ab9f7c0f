//! Tables and stories as people read them.

use std::fmt::Write;

use jiff::SignedDuration;
use windlass_job::analysis::table::{Sign, Verdict};
use windlass_job::analysis::timeline::{Attempt, End, Timeline};
use windlass_job::analysis::{Role, Subject};
use windlass_job::backoff::Backoff;
use windlass_job::policy::failure::Action;

use crate::columns::aligned;
use crate::durations;

/// When a single pod is asked about, it ends after this.
pub const FIRST_POD_TAKES: SignedDuration = SignedDuration::from_secs(1);
/// And the others run on.
pub const OTHER_PODS_TAKE: SignedDuration = SignedDuration::from_hours(24 * 365);
/// Nobody looks so far.
pub const UNTIL: SignedDuration = SignedDuration::from_hours(24 * 364);

/// The decision table of a Job.
pub fn table(label: &str, subject: &Subject, backoff: &Backoff) -> String {
    let table = subject.table();
    let mut rows = vec![row(["A FAILED POD", "RULE", "MEANS"])];
    let mut add = |sign: String, verdict: Verdict| {
        rows.push(vec![sign, rule(subject, verdict), means(subject, verdict)]);
    };
    for condition in table.conditions.iter().filter(|row| row.verdict.rule.is_some()) {
        add(format!("condition {}={}", condition.kind, condition.status), condition.verdict);
    }
    for reason in &table.reasons {
        let name = match reason.reason.as_deref() {
            Some("") => "no status reason".to_owned(),
            Some(reason) => format!("status reason {reason}"),
            None => "any other status reason".to_owned(),
        };
        if reason.verdict.rule.is_some() {
            add(name, reason.verdict);
        }
    }
    let mut shown: Vec<usize> = Vec::new();
    for (at, container) in table.containers.iter().enumerate() {
        if shown.contains(&at) {
            continue;
        }
        // Containers about which the policy says the same share their rows.
        let same = || table.containers.iter().enumerate().filter(|(_, it)| it.verdicts == container.verdicts);
        shown.extend(same().map(|(at, _)| at));
        let names: Vec<String> = same().map(|(_, it)| named(&it.container, it.role)).collect();
        for (codes, verdict) in container.groups() {
            add(format!("{} exits with {codes}", names.join(", ")), verdict);
        }
    }
    let mut text = format!("{label}: {}\n\n{}\n", heading(subject, table.rules), aligned(&rows));
    if table.rules > 1 {
        text.push_str("  Of several rules that match, the one with the lowest number decides.\n");
    }
    let _ = writeln!(text, "  {}", limits(subject));
    let _ = writeln!(text, "  {}", retries(subject, backoff));
    text
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).into()
}

fn heading(subject: &Subject, rules: usize) -> String {
    let policy = if subject.draft.is_some() { "backoffPolicy" } else { "podFailurePolicy" };
    match (rules, &subject.facts.failure_policy) {
        (_, None) => "no failure policy: every failure counts".to_owned(),
        (1, Some(_)) => format!("{policy} of 1 rule"),
        (rules, Some(_)) => format!("{policy} of {rules} rules"),
    }
}

fn named(container: &str, role: Role) -> String {
    match role {
        Role::Main => container.to_owned(),
        Role::Init => format!("{container} (init)"),
        Role::Sidecar => format!("{container} (sidecar)"),
    }
}

/// The action as the policy spells it.
fn action(subject: &Subject, action: Action) -> String {
    match action {
        Action::FailJob if subject.draft.is_some() => "Terminate".to_owned(),
        action => action.to_string(),
    }
}

fn rule(subject: &Subject, verdict: Verdict) -> String {
    verdict.rule.map_or("none".to_owned(), |rule| format!("{rule} {}", action(subject, verdict.action)))
}

fn means(subject: &Subject, verdict: Verdict) -> String {
    match verdict.action {
        Action::FailJob => "counts, and the Job fails at once".to_owned(),
        Action::FailIndex => "counts, and its index fails at once".to_owned(),
        Action::Ignore => "does not count; another pod takes its place".to_owned(),
        Action::Count => match subject.facts.per_index {
            Some(limit) => format!("counts; its index is retried up to {} times", limit.backoff_limit),
            None => format!("counts; the Job fails after more than {}", subject.facts.backoff_limit),
        },
    }
}

fn limits(subject: &Subject) -> String {
    let facts = &subject.facts;
    let mut parts = match facts.per_index {
        Some(limit) => {
            let max = limit.max_failed_indexes.map(|max| format!("maxFailedIndexes {max}"));
            [Some(format!("backoffLimitPerIndex {}", limit.backoff_limit)), max]
                .into_iter()
                .flatten()
                .collect()
        }
        None => vec![format!("backoffLimit {}", facts.backoff_limit)],
    };
    parts.extend(facts.active_deadline.map(|span| format!("activeDeadlineSeconds {}", span.as_secs())));
    let replaced = if facts.only_replaces_failed() {
        "when it has stopped"
    } else {
        "when it is being deleted or has failed"
    };
    format!("Limits: {}. A pod is replaced {replaced}.", parts.join(", "))
}

fn retries(subject: &Subject, backoff: &Backoff) -> String {
    let delays: Vec<String> = (1..=3).map(|failures| durations::text(backoff.delay(failures))).collect();
    let whose = if subject.facts.per_index.is_some() { "its index" } else { "the Job" };
    format!(
        "A retry waits {}, … at most {}, with each failure of {whose}.",
        delays.join(", "),
        durations::text(backoff.max)
    )
}

/// What becomes of one failed pod.
pub fn one(label: &str, subject: &Subject, signs: &[Sign], timeline: &Timeline) -> String {
    let mut text = format!("{label}: a pod fails: {}\n", signs_text(signs));
    let mut tell = |line: String| _ = writeln!(text, "  {line}");
    let Some(first) = timeline.attempts.first() else {
        tell("no pod of this Job would start".to_owned());
        return text;
    };
    let found = first.rule.as_ref();
    tell(found.map_or("no rule matches: the failure counts".to_owned(), ToString::to_string));
    match &timeline.ended {
        Some(ended) => {
            let others = timeline.attempts.len() - 1;
            tell(format!("failed 0 → {}", timeline.failed));
            if others > 0 {
                let are = if others == 1 { "pod is ended, and counts" } else { "pods are ended, and count" };
                tell(format!("{others} running {are} as failed"));
            }
            tell(format!("the Job is {} ({}): {}", ended.condition, ended.reason, ended.message));
        }
        None => {
            let failed = subject.facts.per_index.is_some() && timeline.failed_indexes.as_deref() == Some("0");
            let counts = found.is_none_or(|found| found.action != Action::Ignore);
            tell(counters(subject, counts));
            if failed {
                tell("its index fails, and is not retried; the others go on".to_owned());
            }
            let since = first.ended.unwrap_or_default();
            let next =
                timeline.attempts.iter().find(|it| it.started >= since && it.started > SignedDuration::ZERO);
            if let Some(next) = next.filter(|_| !failed) {
                tell(format!("the next pod starts {} later", durations::text(next.started - since)));
            }
        }
    }
    text
}

/// The pod that takes the place of the first.
pub fn next_pod(timeline: &Timeline) -> Option<&Attempt> {
    let since = timeline.attempts.first()?.ended?;
    timeline.attempts.iter().find(|it| it.started >= since)
}

fn counters(subject: &Subject, counts: bool) -> String {
    if !counts {
        return "failed stays 0: the failure does not count".to_owned();
    }
    match subject.facts.per_index {
        Some(limit) => format!("failed 0 → 1; its index has 1 failure, and may have {}", limit.backoff_limit),
        None => format!("failed 0 → 1; the Job may have {}", subject.facts.backoff_limit),
    }
}

fn signs_text(signs: &[Sign]) -> String {
    let text = |sign: &Sign| match sign {
        Sign::Exit { container, code } => format!("container {container} exits with {code}"),
        Sign::Condition { kind, status } => format!("condition {kind}={status}"),
        Sign::Reason(reason) => format!("status reason {reason:?}"),
    };
    signs.iter().map(text).collect::<Vec<_>>().join(", ")
}

/// A story, pod by pod.
pub fn timeline(label: &str, subject: &Subject, timeline: &Timeline, pod_takes: SignedDuration) -> String {
    let is_indexed = subject.facts.is_indexed();
    let mut header = row(["START", "END", "OUTCOME", "VERDICT", "FAILED", "SUCCEEDED"]);
    if is_indexed {
        header.insert(2, "INDEX".to_owned());
    }
    let mut rows = vec![header];
    for attempt in &timeline.attempts {
        let mut cells = vec![
            durations::text(attempt.started),
            attempt.ended.map_or("-".to_owned(), durations::text),
            attempt.end.as_ref().map_or("ended with the Job".to_owned(), outcome),
            verdict(attempt),
            attempt.counters.map_or("-".to_owned(), |(failed, _)| failed.to_string()),
            attempt.counters.map_or("-".to_owned(), |(_, succeeded)| succeeded.to_string()),
        ];
        if is_indexed {
            cells.insert(2, attempt.index.map_or("-".to_owned(), |index| index.to_string()));
        }
        rows.push(cells);
    }
    let runs = durations::text(pod_takes);
    let mut text = format!("{label}: each pod runs for {runs}\n\n{}\n", aligned(&rows));
    let _ = match &timeline.ended {
        Some(ended) => {
            let at = durations::text(ended.at);
            writeln!(text, "  After {at}: {} ({}): {}", ended.condition, ended.reason, ended.message)
        }
        None => {
            writeln!(text, "  After {} pods the Job has not ended: this goes on.", timeline.attempts.len())
        }
    };
    text
}

fn outcome(end: &End) -> String {
    match end {
        End::Success => "success".to_owned(),
        End::Failure(signs) => signs_text(signs),
    }
}

fn verdict(attempt: &Attempt) -> String {
    match (&attempt.end, &attempt.rule) {
        (None, _) | (Some(End::Success), _) => "-".to_owned(),
        (Some(End::Failure(_)), Some(rule)) => format!("rule {} ({})", rule.rule, rule.action_name),
        (Some(End::Failure(_)), None) => "counts".to_owned(),
    }
}
