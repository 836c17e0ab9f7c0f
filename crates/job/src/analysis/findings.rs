//! What is wrong, or at least surprising, with a Job's failure policy: statements about its decision table.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::batch::v1::{Job, PodFailurePolicyRule};
use windlass_api::draft::{self, ExitCodeRanges};

use super::table::{CODES, DISRUPTION, Table, Verdict, ask_exit, draft_policy};
use super::{Role, Subject};
use crate::job_facts::ReplaceWhen;
use crate::policy::failure::{Action, Sees};

/// What a process exits with that a SIGKILL or a SIGTERM ended: how a disruption looks from inside of a pod.
const DISRUPTION_CODES: [i32; 2] = [137, 143];

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// The Job can't be what was meant.
    Error,
    /// The Job does something else than it seems to say.
    Warning,
    /// Good to know.
    Note,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
            Self::Note => "note",
        })
    }
}

/// A change of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Take out a rule.
    RemoveRule {
        /// Which.
        rule: usize,
    },
    /// Take values out of a rule's exit codes.
    RemoveValues {
        /// Which rule.
        rule: usize,
        /// Which values.
        values: Vec<i32>,
    },
    /// Put a rule in front of another.
    MoveRule {
        /// Which.
        rule: usize,
        /// Before which.
        before: usize,
    },
    /// Put a rule in front that ignores disruptions.
    IgnoreDisruptions {
        /// Before which rule.
        before: usize,
    },
    /// Let a rule look at one container only.
    NameContainer {
        /// Which rule.
        rule: usize,
        /// Which container.
        container: String,
    },
    /// Set `podReplacementPolicy` to `Failed`.
    ReplaceOnlyFailed,
}

/// One thing to know about a Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of finding it is; stable, for machines.
    pub id: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// The field, as in `spec.podFailurePolicy.rules[0]`.
    pub path: String,
    /// One sentence.
    pub text: String,
    /// What to do about it.
    pub help: String,
    /// The same, for a program.
    pub change: Option<Change>,
}

/// All kinds of findings, each with what it is about.
pub const IDS: [(&str, &str); 11] = [
    ("unreachable-rule", "no failed pod is ever decided by the rule"),
    ("covered-exit-code", "an exit code of the rule is decided by an earlier rule"),
    ("endless-ignore", "the rule can lead to retries without end"),
    (
        "disruption-order",
        "a disruption is decided by a rule on exit codes before the rule on disruptions is asked",
    ),
    ("disruption-fails-job", "a disruption fails the Job or an index, for want of a rule on disruptions"),
    ("fail-index-without-limit", "FailIndex needs backoffLimitPerIndex"),
    ("exit-code-zero", "exit code 0 is no failure"),
    ("impossible-exit-code", "processes on Linux do not exit with this code"),
    ("unknown-container", "no container of the template has this name"),
    ("terminating-counts", "the first pod that is deleted fails the Job, whatever it would have come to"),
    ("sidecar-exit-code", "the exit code of a sidecar is looked at as that of the work"),
];

/// Everything there is to say about a Job's policy, in the order of its rules.
pub fn findings(subject: &Subject) -> Vec<Finding> {
    let table = subject.table();
    let rules = rules(subject);
    let looking = Looking { subject, table: &table, rules: &rules };
    let mut found: Vec<Finding> = Vec::new();
    for (at, rule) in rules.iter().enumerate() {
        found.extend(looking.exit_code_zero(at, rule));
        found.extend(looking.impossible_codes(at, rule));
        found.extend(looking.unknown_container(at, rule));
        found.extend(looking.fail_index(at, rule));
        if table.is_reachable(at) {
            found.extend(looking.covered(at, rule));
            found.extend(looking.endless(at, rule));
            found.extend(looking.disruption(at, rule));
            found.extend(looking.sidecar(at, rule));
        } else {
            found.push(looking.unreachable(at, rule));
        }
    }
    found.extend(looking.terminating_counts());
    found
}

/// The rules of `spec.podFailurePolicy`.
pub(super) fn final_rules(job: &Job) -> &[PodFailurePolicyRule] {
    let policy = job.spec.as_ref().and_then(|spec| spec.pod_failure_policy.as_ref());
    policy.map_or(&[], |policy| &policy.rules)
}

/// A rule of either policy, as it is written.
struct Written {
    action: String,
    sees: Sees,
    container: Option<String>,
    is_in: bool,
    /// Listed one by one; a draft has ranges.
    values: Option<Vec<i32>>,
    conditions: Vec<String>,
}

fn rules(subject: &Subject) -> Vec<Written> {
    let sees = subject.facts.failure_policy.as_ref().map(|policy| policy.sees()).unwrap_or_default();
    if let Some(policy) = subject.draft.as_ref().and_then(draft_policy) {
        return policy.rules.iter().zip(sees).map(|(rule, sees)| written_in_draft(rule, sees)).collect();
    }
    final_rules(&subject.job).iter().zip(sees).map(|(rule, sees)| written(rule, sees)).collect()
}

fn written(rule: &PodFailurePolicyRule, sees: Sees) -> Written {
    let on = rule.on_exit_codes.as_ref();
    Written {
        action: rule.action.clone(),
        sees,
        container: on.and_then(|on| on.container_name.clone()),
        is_in: on.is_some_and(|on| on.operator == "In"),
        values: on.map(|on| on.values.clone()),
        conditions: rule.on_pod_conditions.iter().flatten().map(|pattern| pattern.type_.clone()).collect(),
    }
}

fn written_in_draft(rule: &draft::Rule, sees: Sees) -> Written {
    let (container, is_in) = match &rule.when {
        draft::Condition::ExitCodes { container, operator, .. } => {
            (container.clone(), *operator == draft::Operator::In)
        }
        draft::Condition::Reason { .. } => (None, false),
    };
    let action = rule.action.name().to_owned();
    Written { action, sees, container, is_in, values: None, conditions: Vec::new() }
}

struct Looking<'a> {
    subject: &'a Subject,
    table: &'a Table,
    rules: &'a [Written],
}

impl Looking<'_> {
    fn finding(&self, id: &'static str, severity: Severity, at: usize, field: &str) -> Finding {
        let path = format!("{}[{at}]{field}", self.subject.rules_path());
        Finding { id, severity, path, text: String::new(), help: String::new(), change: None }
    }

    /// A draft has other names for its fields: then the rule as a whole.
    fn field<'b>(&self, field: &'b str) -> &'b str {
        if self.subject.draft.is_some() { "" } else { field }
    }

    fn deadline_is_set(&self) -> bool {
        self.subject.facts.active_deadline.is_some()
    }

    /// The rule that would decide about an exit code if there were no other.
    fn matches_alone(&self, at: usize) -> impl Fn(&str, i32) -> bool {
        let alone =
            self.subject.facts.failure_policy.as_ref().map(|policy| policy.restricted(|rule, _| rule == at));
        move |container, code| {
            alone.as_ref().is_some_and(|policy| ask_exit(policy, container, code).rule.is_some())
        }
    }

    /// The exit codes that the rule alone would match, in any container; and those of them that earlier rules decide in
    /// every container, with these rules.
    fn reach(&self, at: usize) -> (BTreeSet<i32>, BTreeSet<i32>, BTreeSet<usize>) {
        let matches = self.matches_alone(at);
        let (mut own, mut covered, mut by) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for code in CODES {
            let rows = self.table.containers.iter().filter(|row| matches(&row.container, code));
            let deciding: Vec<Option<usize>> =
                rows.map(|row| self.table.of_exit(&row.container, code).rule).collect();
            if deciding.is_empty() {
                continue;
            }
            own.insert(code);
            if deciding.iter().all(|rule| rule.is_some_and(|rule| rule < at)) {
                covered.insert(code);
                by.extend(deciding.into_iter().flatten());
            }
        }
        (own, covered, by)
    }

    fn unreachable(&self, at: usize, rule: &Written) -> Finding {
        let why = match rule.sees {
            Sees::Nothing if rule.action == "FailIndex" => "FailIndex is switched off".to_owned(),
            Sees::Nothing => "it looks at nothing".to_owned(),
            Sees::Conditions => "earlier rules decide about all its conditions".to_owned(),
            Sees::Reason => "earlier rules decide about all its reasons".to_owned(),
            Sees::ExitCodes => match self.reach(at) {
                (own, ..) if own.is_empty() => {
                    "it matches no exit code from 1 to 255 of any container".to_owned()
                }
                (_, _, by) if by.is_empty() => "earlier rules decide about every reason".to_owned(),
                (.., by) => format!("{} every exit code that it matches", decide(&by)),
            },
        };
        Finding {
            text: format!("rule {at} ({}) never decides anything: {why}", rule.action),
            help: "remove the rule, or put it in front of those that decide before it".to_owned(),
            change: Some(Change::RemoveRule { rule: at }),
            ..self.finding("unreachable-rule", Severity::Warning, at, "")
        }
    }

    fn covered(&self, at: usize, rule: &Written) -> Option<Finding> {
        if rule.sees != Sees::ExitCodes || !rule.is_in {
            return None;
        }
        let (_, covered, by) = self.reach(at);
        if covered.is_empty() {
            return None;
        }
        let values: Vec<i32> = covered.iter().copied().collect();
        Some(Finding {
            text: format!(
                "{} of rule {at} ({}) never {} it: {} {} first",
                codes(&covered),
                rule.action,
                if covered.len() == 1 { "gets to" } else { "get to" },
                decide(&by),
                if covered.len() == 1 { "it" } else { "them" },
            ),
            help: "take it out of one of the rules"
                .replace("it", if covered.len() == 1 { "it" } else { "them" }),
            change: rule.values.as_ref().map(|_| Change::RemoveValues { rule: at, values }),
            ..self.finding("covered-exit-code", Severity::Warning, at, self.field(".onExitCodes.values"))
        })
    }

    fn endless(&self, at: usize, rule: &Written) -> Option<Finding> {
        if rule.action != "Ignore" || self.deadline_is_set() {
            return None;
        }
        let is_disruption = match rule.sees {
            Sees::Conditions => rule.conditions.iter().all(|kind| kind == DISRUPTION),
            Sees::Reason => true,
            Sees::ExitCodes | Sees::Nothing => false,
        };
        let (severity, what) = if is_disruption {
            (Severity::Note, "pods that are disrupted again and again are retried for ever")
        } else {
            (Severity::Warning, "a failure that comes every time is retried for ever")
        };
        Some(Finding {
            text: format!("rule {at} (Ignore) has no limit: {what}, because ignored failures do not count"),
            help: "set activeDeadlineSeconds, or use Count and a backoffLimit".to_owned(),
            ..self.finding("endless-ignore", severity, at, "")
        })
    }

    /// Rule `at` decides about the exit codes that a disruption leaves behind, before or in want of a rule on disruptions.
    fn disruption(&self, at: usize, rule: &Written) -> Option<Finding> {
        if rule.sees != Sees::ExitCodes {
            return None;
        }
        let caught = self.disruption_codes(at, |role| role != Role::Sidecar);
        if caught.is_empty() {
            return None;
        }
        let action = self.action(at);
        let told = format!("rule {at} ({}) catches {}", rule.action, codes(&caught));
        let asked = self.table.of_condition(DISRUPTION, "True");
        match asked.rule {
            Some(later) if later > at && asked.action != action => Some(Finding {
                text: format!(
                    "{told} of a pod that is being disrupted, before rule {later} ({}) on {DISRUPTION} is asked",
                    asked.action
                ),
                help: format!("put rule {later} in front of rule {at}"),
                change: Some(Change::MoveRule { rule: later, before: at }),
                ..self.finding("disruption-order", Severity::Warning, at, "")
            }),
            // A list that names them means them.
            None if !rule.is_in
                && matches!(action, Action::FailJob | Action::FailIndex)
                && !self.knows_reasons(at) =>
            {
                let victim = if action == Action::FailJob { "the Job" } else { "an index" };
                let is_draft = self.subject.draft.is_some();
                Some(Finding {
                    text: format!("{told} of a pod that is being disrupted: a drained node fails {victim}"),
                    help: if is_draft {
                        "put a rule in front that ignores the status reasons of disruptions".to_owned()
                    } else {
                        format!("put a rule in front that ignores the condition {DISRUPTION}")
                    },
                    change: (!is_draft).then_some(Change::IgnoreDisruptions { before: at }),
                    ..self.finding("disruption-fails-job", Severity::Warning, at, "")
                })
            }
            Some(_) | None => None,
        }
    }

    /// A rule on reasons stands before this one.
    fn knows_reasons(&self, at: usize) -> bool {
        self.rules[..at].iter().any(|rule| rule.sees == Sees::Reason)
    }

    fn action(&self, at: usize) -> Action {
        let actions = self.subject.facts.failure_policy.as_ref().map(|policy| policy.actions());
        actions.and_then(|actions| actions.get(at).copied().flatten()).unwrap_or(Action::Count)
    }

    fn disruption_codes(&self, at: usize, is_asked: impl Fn(Role) -> bool) -> BTreeSet<i32> {
        let rows = self.table.containers.iter().filter(|row| is_asked(row.role));
        rows.flat_map(|row| DISRUPTION_CODES.map(|code| (code, self.table.of_exit(&row.container, code))))
            .filter(|(_, verdict)| verdict.rule == Some(at))
            .map(|(code, _)| code)
            .collect()
    }

    /// A sidecar is ended when the pod is over, and its exit code then is that of a SIGTERM.
    fn sidecar(&self, at: usize, rule: &Written) -> Option<Finding> {
        if rule.sees != Sees::ExitCodes {
            return None;
        }
        let sidecars = || self.table.containers.iter().filter(|row| row.role == Role::Sidecar);
        if let Some(named) = sidecars().find(|row| rule.container.as_deref() == Some(&row.container)) {
            return Some(Finding {
                text: format!(
                    "rule {at} ({}) looks at the sidecar {:?}, whose failure alone is not the pod's: the rule is asked only \
                     when another container fails",
                    rule.action, named.container
                ),
                help: "let the rule look at the container that does the work".to_owned(),
                ..self.finding(
                    "sidecar-exit-code",
                    Severity::Note,
                    at,
                    self.field(".onExitCodes.containerName"),
                )
            });
        }
        let works = || self.table.containers.iter().filter(|row| row.role != Role::Sidecar);
        let taken = |code: i32, verdict: Verdict| {
            let differs = |own: &Verdict| own.first(verdict) != *own && own.action != verdict.action;
            let found = works().find_map(|row| {
                let own = CODES.zip(&row.verdicts).find(|(_, own)| differs(own))?;
                Some((row.container.clone(), own.0, *own.1))
            });
            found.map(|(work, failed, own)| (code, work, failed, own))
        };
        let (sidecar, (code, work, failed, own)) = sidecars().find_map(|row| {
            let caught = DISRUPTION_CODES
                .into_iter()
                .rev()
                .map(|code| (code, self.table.of_exit(&row.container, code)));
            let found = caught.filter(|(_, v)| v.rule == Some(at)).find_map(|(code, v)| taken(code, v))?;
            Some((&row.container, found))
        })?;
        let mut names = works().map(|row| row.container.clone());
        let only = names.next().filter(|_| names.next().is_none() && self.subject.draft.is_none());
        Some(Finding {
            text: format!(
                "rule {at} ({}) also looks at the sidecar {sidecar:?}, which exits with {code} when the pod is over: when {work:?} \
                 exits with {failed}, it is this rule that decides, not {}",
                rule.action,
                match own.rule {
                    Some(rule) => format!("rule {rule} ({})", own.action),
                    None => "none".to_owned(),
                }
            ),
            help: format!("set containerName: {}", only.as_deref().unwrap_or(&work)),
            change: only.map(|container| Change::NameContainer { rule: at, container }),
            ..self.finding("sidecar-exit-code", Severity::Warning, at, "")
        })
    }

    fn fail_index(&self, at: usize, rule: &Written) -> Option<Finding> {
        (rule.action == "FailIndex" && self.subject.facts.per_index.is_none()).then(|| Finding {
            text: format!("rule {at} (FailIndex) has no index to fail: backoffLimitPerIndex is not set"),
            help: "set backoffLimitPerIndex and completionMode: Indexed, or use FailJob".to_owned(),
            ..self.finding("fail-index-without-limit", Severity::Error, at, ".action")
        })
    }

    fn exit_code_zero(&self, at: usize, rule: &Written) -> Option<Finding> {
        let values = rule.values.as_ref().filter(|values| values.contains(&0))?;
        let change = (values.len() > 1).then_some(Change::RemoveValues { rule: at, values: vec![0] });
        let finding = |severity| self.finding("exit-code-zero", severity, at, ".onExitCodes.values");
        if rule.is_in {
            return Some(Finding {
                text: format!("rule {at} ({}) lists exit code 0, which is no failure", rule.action),
                help: "take 0 out of the list".to_owned(),
                change,
                ..finding(Severity::Error)
            });
        }
        // NotIn 0 alone is how one says: any failure.
        change.is_some().then(|| Finding {
            text: format!("rule {at} ({}) excludes exit code 0, which is no failure anyway", rule.action),
            help: "take 0 out of the list".to_owned(),
            change,
            ..finding(Severity::Note)
        })
    }

    fn impossible_codes(&self, at: usize, rule: &Written) -> Option<Finding> {
        let impossible = |value: &i32| *value != 0 && !CODES.contains(value);
        let values: BTreeSet<i32> = rule.values.iter().flatten().copied().filter(impossible).collect();
        (!values.is_empty()).then(|| Finding {
            text: format!(
                "rule {at} ({}) lists {}, but processes on Linux exit with 0 to 255",
                rule.action,
                codes(&values)
            ),
            help: "check the exit codes of the program; a signal gives 128 + its number".to_owned(),
            ..self.finding("impossible-exit-code", Severity::Note, at, ".onExitCodes.values")
        })
    }

    fn unknown_container(&self, at: usize, rule: &Written) -> Option<Finding> {
        let name = rule.container.as_ref()?;
        let mut names = self.subject.containers.iter().map(|(name, _)| name);
        (!names.any(|known| known == name)).then(|| {
            let known: Vec<&str> = self.subject.containers.iter().map(|(name, _)| name.as_str()).collect();
            Finding {
                text: format!(
                    "rule {at} ({}) looks at container {name:?}, and there is none of that name",
                    rule.action
                ),
                help: format!("name one of: {}", known.join(", ")),
                ..self.finding(
                    "unknown-container",
                    Severity::Error,
                    at,
                    self.field(".onExitCodes.containerName"),
                )
            }
        })
    }

    fn terminating_counts(&self) -> Option<Finding> {
        let facts = &self.subject.facts;
        let limit = facts.per_index.map_or(facts.backoff_limit, |limit| limit.backoff_limit);
        if limit > 0 || facts.replace_when != ReplaceWhen::TerminatingOrFailed {
            return None;
        }
        let (field, victim) = match facts.per_index {
            Some(_) => ("backoffLimitPerIndex", "its index"),
            None => ("backoffLimit", "the Job"),
        };
        Some(Finding {
            id: "terminating-counts",
            severity: if self.subject.says_replacement { Severity::Warning } else { Severity::Note },
            path: format!("spec.{field}"),
            text: format!(
                "with {field}: 0, a pod fails {victim} as soon as somebody deletes it, even if it would succeed within its grace \
                 period"
            ),
            help: "set podReplacementPolicy: Failed, so that a pod counts by how it ends".to_owned(),
            change: Some(Change::ReplaceOnlyFailed),
        })
    }
}

/// `rule 1 decides about`, `rules 1 and 3 decide about`.
fn decide(rules: &BTreeSet<usize>) -> String {
    let names: Vec<String> = rules.iter().map(ToString::to_string).collect();
    match names.as_slice() {
        [one] => format!("rule {one} decides about"),
        [start @ .., last] => format!("rules {} and {last} decide about", start.join(", ")),
        [] => "nothing decides about".to_owned(),
    }
}

fn codes(codes: &BTreeSet<i32>) -> String {
    let ranges: ExitCodeRanges = codes.iter().map(|code| *code..=*code).collect();
    let noun = if codes.len() == 1 { "exit code" } else { "exit codes" };
    format!("{noun} {ranges}")
}
