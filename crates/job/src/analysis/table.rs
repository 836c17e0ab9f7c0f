//! The decision table of a failure policy: which sign of a failed pod leads to which rule.
//!
//! A sign is one thing about a pod that rules can see. The rule that decides about a pod is the first of those that its
//! signs lead to, so the signs one by one are the whole table: there is nothing in combinations that is not in it.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, PodCondition, PodStatus,
};
use serde_json::Value;
use windlass_api::draft::{self, ExitCodeRanges};

use super::{Role, Subject};
use crate::policy::failure::{Action, FailurePolicy, Sees};

/// The exit codes that a process on Linux can fail with.
pub const CODES: std::ops::RangeInclusive<i32> = 1..=255;
/// The condition of a pod that somebody ends for reasons of their own.
pub const DISRUPTION: &str = "DisruptionTarget";

/// What becomes of a failed pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The rule that decides; `None` when none matches.
    pub rule: Option<usize>,
    /// What it asks for; without a rule the failure counts.
    pub action: Action,
}

impl Verdict {
    /// No rule matches.
    pub const NONE: Self = Self { rule: None, action: Action::Count };

    /// The verdict about a pod that has the signs of both.
    pub fn first(self, other: Self) -> Self {
        match (self.rule, other.rule) {
            (Some(a), Some(b)) if b < a => other,
            (None, Some(_)) => other,
            (Some(_), Some(_) | None) | (None, None) => self,
        }
    }
}

/// One thing about a failed pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A container ended with this code, which is not 0.
    Exit {
        /// Which container.
        container: String,
        /// Its exit code.
        code: i32,
    },
    /// The pod has a condition.
    Condition {
        /// Its type.
        kind: String,
        /// Its status.
        status: String,
    },
    /// The pod's `status.reason`. Every pod has one, if only the empty one.
    Reason(String),
}

/// The verdicts about one container's exit codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerRow {
    /// The container.
    pub container: String,
    /// What it is.
    pub role: Role,
    /// One for each of [`CODES`].
    pub verdicts: Vec<Verdict>,
}

impl ContainerRow {
    /// The exit codes of each verdict, those of the first rule first, those without a rule last.
    pub fn groups(&self) -> Vec<(ExitCodeRanges, Verdict)> {
        let mut verdicts: Vec<Verdict> = Vec::new();
        for verdict in &self.verdicts {
            if !verdicts.contains(verdict) {
                verdicts.push(*verdict);
            }
        }
        verdicts.sort_by_key(|verdict| verdict.rule.unwrap_or(usize::MAX));
        let codes = |wanted: &Verdict| {
            CODES
                .zip(&self.verdicts)
                .filter(|(_, verdict)| *verdict == wanted)
                .map(|(code, _)| code..=code)
                .collect()
        };
        verdicts.iter().map(|verdict| (codes(verdict), *verdict)).collect()
    }
}

/// The verdict about a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionRow {
    /// Its type.
    pub kind: String,
    /// Its status.
    pub status: String,
    /// The verdict.
    pub verdict: Verdict,
}

/// The verdict about a `status.reason`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReasonRow {
    /// The reason; `None` stands for every one that no rule names.
    pub reason: Option<String>,
    /// The verdict.
    pub verdict: Verdict,
}

/// Every sign that can make a difference, with its verdict.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// What each container's exit codes lead to.
    pub containers: Vec<ContainerRow>,
    /// What the conditions lead to that the policy names, and `DisruptionTarget`.
    pub conditions: Vec<ConditionRow>,
    /// What reasons lead to; empty unless the policy is a draft.
    pub reasons: Vec<ReasonRow>,
    /// How many rules there are.
    pub rules: usize,
}

impl Table {
    pub(super) fn new(subject: &Subject) -> Self {
        let policy = subject.facts.failure_policy.as_ref();
        let ask = |sees: Sees, status: &PodStatus| {
            policy.map_or(Verdict::NONE, |policy| ask(&policy.restricted(|_, seen| seen == sees), status))
        };
        let codes = policy.map(|policy| policy.restricted(|_, seen| seen == Sees::ExitCodes));
        let row = |(container, role): &(String, Role)| ContainerRow {
            container: container.clone(),
            role: *role,
            verdicts: CODES
                .map(|code| codes.as_ref().map_or(Verdict::NONE, |policy| ask_exit(policy, container, code)))
                .collect(),
        };
        Self {
            containers: subject.containers.iter().map(row).collect(),
            conditions: conditions(subject)
                .into_iter()
                .map(|(kind, status)| {
                    let verdict = ask(Sees::Conditions, &with_condition(&kind, &status));
                    ConditionRow { kind, status, verdict }
                })
                .collect(),
            reasons: reasons(subject)
                .into_iter()
                .map(|reason| {
                    let verdict = ask(Sees::Reason, &with_reason(reason.as_deref().unwrap_or(UNNAMED)));
                    ReasonRow { reason, verdict }
                })
                .collect(),
            rules: policy.map_or(0, |policy| policy.sees().len()),
        }
    }

    /// The verdict about a failed pod with these signs: the first rule that one of them leads to. A pod without a
    /// [`Sign::Reason`] has the empty one.
    pub fn verdict(&self, signs: &[Sign]) -> Verdict {
        let has_reason = signs.iter().any(|sign| matches!(sign, Sign::Reason(_)));
        let empty = if has_reason { Verdict::NONE } else { self.of_reason("") };
        signs.iter().map(|sign| self.of_sign(sign)).fold(empty, Verdict::first)
    }

    fn of_sign(&self, sign: &Sign) -> Verdict {
        match sign {
            Sign::Exit { container, code } => self.of_exit(container, *code),
            Sign::Condition { kind, status } => self.of_condition(kind, status),
            Sign::Reason(reason) => self.of_reason(reason),
        }
    }

    /// The verdict about an exit code of [`CODES`].
    pub fn of_exit(&self, container: &str, code: i32) -> Verdict {
        let row = self.containers.iter().find(|row| row.container == container);
        let at = usize::try_from(code - CODES.start()).ok();
        row.zip(at).and_then(|(row, at)| row.verdicts.get(at).copied()).unwrap_or(Verdict::NONE)
    }

    /// The verdict about a condition; about one that no rule names there is none.
    pub fn of_condition(&self, kind: &str, status: &str) -> Verdict {
        let row = self.conditions.iter().find(|row| row.kind == kind && row.status == status);
        row.map_or(Verdict::NONE, |row| row.verdict)
    }

    fn of_reason(&self, reason: &str) -> Verdict {
        let named = self.reasons.iter().find(|row| row.reason.as_deref() == Some(reason));
        let other = self.reasons.iter().find(|row| row.reason.is_none());
        named.or(other).map_or(Verdict::NONE, |row| row.verdict)
    }

    /// Some pod is decided by this rule.
    pub fn is_reachable(&self, rule: usize) -> bool {
        let mut exits = self.containers.iter().flat_map(|row| &row.verdicts).copied();
        let mut conditions = self.conditions.iter().map(|row| row.verdict);
        // Every pod has a reason. A rule that comes after the rule of each reason is never asked.
        let after_reasons = |verdict: Verdict| {
            let is_asked = |row: &ReasonRow| verdict.first(row.verdict) == verdict;
            verdict.rule == Some(rule) && (self.reasons.is_empty() || self.reasons.iter().any(is_asked))
        };
        exits.any(after_reasons)
            || conditions.any(after_reasons)
            || self.reasons.iter().any(|row| row.verdict.rule == Some(rule))
    }
}

/// A reason that nobody names.
const UNNAMED: &str = "\u{0}";

fn ask(policy: &FailurePolicy, status: &PodStatus) -> Verdict {
    policy
        .evaluate(status)
        .map_or(Verdict::NONE, |found| Verdict { rule: Some(found.rule), action: found.action })
}

/// What the policy says about one container's exit code, and nothing else.
pub(super) fn ask_exit(policy: &FailurePolicy, container: &str, code: i32) -> Verdict {
    ask(policy, &pod_status(&[Sign::Exit { container: container.to_owned(), code }]))
}

fn with_condition(kind: &str, status: &str) -> PodStatus {
    pod_status(&[Sign::Condition { kind: kind.to_owned(), status: status.to_owned() }])
}

fn with_reason(reason: &str) -> PodStatus {
    pod_status(&[Sign::Reason(reason.to_owned())])
}

/// The status of a failed pod with these signs.
pub fn pod_status(signs: &[Sign]) -> PodStatus {
    let mut status = PodStatus { phase: Some("Failed".to_owned()), ..PodStatus::default() };
    for sign in signs {
        match sign {
            Sign::Exit { container, code } => {
                status.container_statuses.get_or_insert_default().push(ended(container, *code));
            }
            Sign::Condition { kind, status: value } => {
                status.conditions.get_or_insert_default().push(PodCondition {
                    type_: kind.clone(),
                    status: value.clone(),
                    ..PodCondition::default()
                });
            }
            Sign::Reason(reason) => status.reason = Some(reason.clone()),
        }
    }
    status
}

pub(super) fn ended(container: &str, code: i32) -> ContainerStatus {
    let terminated = ContainerStateTerminated { exit_code: code, ..ContainerStateTerminated::default() };
    ContainerStatus {
        name: container.to_owned(),
        state: Some(ContainerState { terminated: Some(terminated), ..ContainerState::default() }),
        ..ContainerStatus::default()
    }
}

/// The conditions that the policy names, in its order, and that of a disruption.
fn conditions(subject: &Subject) -> Vec<(String, String)> {
    let rules = super::findings::final_rules(&subject.job);
    let patterns = rules.iter().flat_map(|rule| rule.on_pod_conditions.iter().flatten());
    let named = patterns.map(|p| (p.type_.clone(), p.status.clone().unwrap_or_else(|| "True".to_owned())));
    let mut conditions: Vec<(String, String)> = Vec::new();
    for condition in named.chain([(DISRUPTION.to_owned(), "True".to_owned())]) {
        if !conditions.contains(&condition) {
            conditions.push(condition);
        }
    }
    conditions
}

/// The reasons that a draft names, the empty one, and `None` for all others.
fn reasons(subject: &Subject) -> Vec<Option<String>> {
    let Some(policy) = subject.draft.as_ref().and_then(draft_policy) else { return Vec::new() };
    let named = policy.rules.iter().flat_map(|rule| match &rule.when {
        draft::Condition::Reason { reasons, .. } => reasons.iter().cloned().collect(),
        draft::Condition::ExitCodes { .. } => Vec::new(),
    });
    let named: BTreeSet<String> = named.collect();
    if named.is_empty() {
        return Vec::new();
    }
    let mut reasons: Vec<Option<String>> = named.into_iter().filter(|r| !r.is_empty()).map(Some).collect();
    reasons.extend([Some(String::new()), None]);
    reasons
}

pub(super) fn draft_policy(value: &Value) -> Option<draft::Policy> {
    draft::Policy::from_value(value).ok()
}
