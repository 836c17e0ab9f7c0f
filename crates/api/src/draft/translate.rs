//! Says a draft policy as a `podFailurePolicy`, or why that cannot be.

use std::collections::BTreeSet;
use std::fmt;

use k8s_openapi::api::batch::v1::{
    PodFailurePolicy, PodFailurePolicyOnExitCodesRequirement, PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
};

use super::{Action, Condition, ExitCodeRanges, Operator, Policy, RULES_MAX};

/// The most exit codes one rule of a `podFailurePolicy` may list.
const VALUES_MAX: usize = 255;

/// Reasons of disruptions: those that the draft names, those that a kubelet or the node controller write to
/// `status.reason`, and those of the `DisruptionTarget` condition.
const DISRUPTIONS: [&str; 12] = [
    "Preemption",
    "NodePressureEviction",
    "Evicted",
    "Preempting",
    "Terminated",
    "NodeShutdown",
    "NodeLost",
    "PreemptionByScheduler",
    "DeletionByTaintManager",
    "EvictionByEvictionAPI",
    "DeletionByPodGC",
    "TerminationByKubelet",
];

/// What became of a draft policy.
#[derive(Clone, Debug, PartialEq)]
pub struct Translation {
    /// The policy that says the same. There is none as soon as one rule has no equal, because the order of
    /// rules matters: without that rule the others would decide what it decided.
    pub policy: Option<PodFailurePolicy>,
    /// One for each rule that has no equal.
    pub notes: Vec<Note>,
}

/// Why a rule of a draft policy has no equal in a `podFailurePolicy`.
#[derive(Clone, Debug, PartialEq)]
pub struct Note {
    /// The position of the rule in the draft policy.
    pub rule: usize,
    /// What stands in the way.
    pub why: String,
    /// The rule that comes nearest, and does not mean the same.
    pub nearest: Option<PodFailurePolicyRule>,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rules[{}]: {}", self.rule, self.why)
    }
}

impl Policy {
    /// The `podFailurePolicy` that treats every failed pod as this policy does, or the rules that have no
    /// equal in one.
    pub fn translate(&self) -> Translation {
        let mut rules = Vec::new();
        let mut notes = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            match &rule.when {
                Condition::ExitCodes { container, operator, ranges } => {
                    let room = RULES_MAX.saturating_sub(rules.len());
                    match exit_code_rules(rule.action, container.as_deref(), *operator, ranges, room) {
                        Some(equal) => rules.extend(equal),
                        None => notes.push(Note { rule: index, why: too_many(ranges), nearest: None }),
                    }
                }
                Condition::Reason { operator, reasons } => {
                    let (why, nearest) = unlike(rule.action, *operator, reasons);
                    notes.push(Note { rule: index, why, nearest });
                }
            }
        }
        Translation { policy: notes.is_empty().then_some(PodFailurePolicy { rules }), notes }
    }
}

/// At most `room` rules that together match what one rule of the draft does: none if that never matches, and
/// several if the codes are too many for one.
fn exit_code_rules(
    action: Action,
    container: Option<&str>,
    operator: Operator,
    ranges: &ExitCodeRanges,
    room: usize,
) -> Option<Vec<PodFailurePolicyRule>> {
    let rule = |operator: &str, values: &[i32]| PodFailurePolicyRule {
        action: action_name(action),
        on_exit_codes: Some(PodFailurePolicyOnExitCodesRequirement {
            container_name: container.map(str::to_owned),
            operator: operator.to_owned(),
            values: values.to_vec(),
        }),
        on_pod_conditions: None,
    };
    // A container with exit code 0 has not failed: 0 may be among the codes or not, as it suits.
    let zero = ExitCodeRanges::from_iter([0..=0]);
    let (inside, outside) = match operator {
        Operator::In => (ranges - &zero, ranges.complement()),
        Operator::NotIn => (&ranges.complement() - &zero, ranges.clone()),
    };
    // At least one value must stand in a rule.
    let outside = if outside.is_empty() { zero.clone() } else { outside };
    if room > 0
        && let Some(values) =
            at_most(&outside, VALUES_MAX).or_else(|| at_most(&(&outside - &zero), VALUES_MAX))
    {
        return Some(vec![rule("NotIn", &values)]);
    }
    let values = at_most(&inside, VALUES_MAX * room)?;
    Some(values.chunks(VALUES_MAX).map(|values| rule("In", values)).collect())
}

fn too_many(ranges: &ExitCodeRanges) -> String {
    format!(
        "the exit codes {ranges} are too many to list: \
         a podFailurePolicy has at most {RULES_MAX} rules of at most {VALUES_MAX} values"
    )
}

/// The codes, if they are no more than `max`.
fn at_most(ranges: &ExitCodeRanges, max: usize) -> Option<Vec<i32>> {
    let codes: Vec<i32> = ranges.codes().take(max + 1).collect();
    (codes.len() <= max).then_some(codes)
}

/// Why a rule about reasons has no equal, and what comes nearest.
fn unlike(
    action: Action,
    operator: Operator,
    reasons: &BTreeSet<String>,
) -> (String, Option<PodFailurePolicyRule>) {
    let unseen = "a podFailurePolicy does not see status.reason";
    match beside_disruption(operator, reasons) {
        Some(difference) => (
            format!("{unseen}; the nearest is the condition DisruptionTarget, which {difference}"),
            Some(on_disruption(action)),
        ),
        None => {
            let but = match operator {
                Operator::In => "",
                Operator::NotIn => "all but ",
            };
            (format!("{unseen}, and nothing else stands for {but}{}", quoted(reasons)), None)
        }
    }
}

/// How the `DisruptionTarget` condition differs from the reasons, if it is anything like them.
fn beside_disruption(operator: Operator, reasons: &BTreeSet<String>) -> Option<String> {
    let (known, other): (Vec<&String>, Vec<&String>) =
        reasons.iter().partition(|reason| DISRUPTIONS.contains(&reason.as_str()));
    match operator {
        Operator::NotIn if reasons.iter().eq([""]) => {
            Some("is not set for every reason and may be set without one".to_owned())
        }
        Operator::NotIn => None,
        Operator::In if known.is_empty() => None,
        Operator::In => {
            let more = format!("is set for every disruption and not only for {}", quoted(known));
            Some(if other.is_empty() { more } else { format!("{more}, and not for {}", quoted(other)) })
        }
    }
}

fn quoted<'a>(reasons: impl IntoIterator<Item = &'a String>) -> String {
    reasons.into_iter().map(|reason| format!("{reason:?}")).collect::<Vec<_>>().join(", ")
}

fn on_disruption(action: Action) -> PodFailurePolicyRule {
    PodFailurePolicyRule {
        action: action_name(action),
        on_exit_codes: None,
        on_pod_conditions: Some(vec![PodFailurePolicyOnPodConditionsPattern {
            status: Some("True".to_owned()),
            type_: "DisruptionTarget".to_owned(),
        }]),
    }
}

fn action_name(action: Action) -> String {
    match action {
        Action::Terminate => "FailJob",
        Action::Ignore => "Ignore",
    }
    .to_owned()
}
