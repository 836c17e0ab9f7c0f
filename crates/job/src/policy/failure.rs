//! Which rule of a pod failure policy matches a pod, and what that means.

use std::fmt;

use k8s_openapi::api::batch::v1::PodFailurePolicy;
use k8s_openapi::api::core::v1::{ContainerStatus, PodStatus};
use windlass_api::draft;

/// What a matching rule asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The Job fails.
    FailJob,
    /// The failure counts, and its index fails.
    FailIndex,
    /// The failure does not count.
    Ignore,
    /// The failure counts, as it would without a rule.
    Count,
}

impl Action {
    fn parse(text: &str) -> Option<Self> {
        match text {
            "FailJob" => Some(Self::FailJob),
            "FailIndex" => Some(Self::FailIndex),
            "Ignore" => Some(Self::Ignore),
            "Count" => Some(Self::Count),
            _ => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::FailJob => "FailJob",
            Self::FailIndex => "FailIndex",
            Self::Ignore => "Ignore",
            Self::Count => "Count",
        })
    }
}

/// What in the pod a rule matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A container's exit code.
    ExitCode {
        /// Which container.
        container: String,
        /// Its exit code; never 0.
        code: i32,
    },
    /// A pod condition of this type.
    Condition(String),
    /// The pod's `status.reason` (first draft only).
    Reason(String),
}

/// The rule that decides about a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleMatch {
    /// Which rule, from 0.
    pub rule: usize,
    /// What it asks for.
    pub action: Action,
    /// What it matched.
    pub evidence: Evidence,
    /// The action's name in the policy: the draft calls `FailJob` `Terminate`.
    pub action_name: &'static str,
}

impl RuleMatch {
    /// The message of the Job's condition when this match fails it.
    pub fn message(&self, namespace: &str, pod: &str) -> String {
        let Self { rule, action_name, .. } = self;
        match &self.evidence {
            Evidence::ExitCode { container, code } => format!(
                "Container {container} for pod {namespace}/{pod} failed with exit code {code} matching \
                 {action_name} rule at index {rule}"
            ),
            Evidence::Condition(kind) => {
                format!(
                    "Pod {namespace}/{pod} has condition {kind} matching {action_name} rule at index {rule}"
                )
            }
            Evidence::Reason(reason) => format!(
                "Pod {namespace}/{pod} has status reason {reason} matching {action_name} rule at index {rule}"
            ),
        }
    }
}

/// A policy, ready to be asked about many pods.
#[derive(Clone, Debug)]
pub struct FailurePolicy(Rules);

#[derive(Clone, Debug)]
enum Rules {
    Final(Vec<Rule>),
    Draft(draft::Policy),
}

#[derive(Clone, Debug)]
struct Rule {
    /// `None`: an action that this version does not know, or whose gate is off. The rule is passed over.
    action: Option<Action>,
    requirement: Requirement,
}

#[derive(Clone, Debug)]
enum Requirement {
    ExitCodes {
        container: Option<String>,
        is_in: bool,
        codes: Vec<i32>,
    },
    Conditions(Vec<(String, String)>),
    /// Nothing that can match, for example an unknown operator.
    Nothing,
}

/// What about a pod a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sees {
    /// Exit codes of containers.
    ExitCodes,
    /// Conditions of the pod.
    Conditions,
    /// The pod's `status.reason` (first draft only).
    Reason,
    /// Nothing: the rule never matches, or is passed over.
    Nothing,
}

impl FailurePolicy {
    /// The policy as Kubernetes has it. Without per-index back-off a `FailIndex` rule is passed over.
    pub fn new(policy: &PodFailurePolicy, knows_fail_index: bool) -> Self {
        let rules = policy.rules.iter().map(|rule| Rule {
            action: Action::parse(&rule.action).filter(|a| knows_fail_index || *a != Action::FailIndex),
            requirement: requirement(rule),
        });
        Self(Rules::Final(rules.collect()))
    }

    /// The policy of the first draft.
    pub fn from_draft(policy: draft::Policy) -> Self {
        Self(Rules::Draft(policy))
    }

    /// What each rule looks at.
    pub fn sees(&self) -> Vec<Sees> {
        match &self.0 {
            Rules::Final(rules) => rules.iter().map(Rule::sees).collect(),
            Rules::Draft(policy) => policy.rules.iter().map(sees_in_draft).collect(),
        }
    }

    /// What each rule asks for; `None` for a rule that is passed over.
    pub fn actions(&self) -> Vec<Option<Action>> {
        match &self.0 {
            Rules::Final(rules) => rules.iter().map(|rule| rule.action).collect(),
            Rules::Draft(policy) => {
                policy.rules.iter().map(|rule| Some(draft_action(rule.action).0)).collect()
            }
        }
    }

    /// The policy with all rules but these passed over. Rules keep their numbers.
    pub(crate) fn restricted(&self, keeps: impl Fn(usize, Sees) -> bool) -> Self {
        let seen = self.sees();
        let is_kept = |at: usize| keeps(at, seen[at]);
        Self(match &self.0 {
            Rules::Final(rules) => Rules::Final(
                rules
                    .iter()
                    .enumerate()
                    .map(|(at, rule)| Rule { action: rule.action.filter(|_| is_kept(at)), ..rule.clone() })
                    .collect(),
            ),
            Rules::Draft(policy) => {
                let mut policy = policy.clone();
                for (_, rule) in policy.rules.iter_mut().enumerate().filter(|(at, _)| !is_kept(*at)) {
                    rule.when = never();
                }
                Rules::Draft(policy)
            }
        })
    }

    /// The first rule that matches, or `None`: then the failure counts.
    pub fn evaluate(&self, status: &PodStatus) -> Option<RuleMatch> {
        match &self.0 {
            Rules::Final(rules) => rules.iter().enumerate().find_map(|(at, rule)| {
                let action = rule.action?;
                let evidence = rule.requirement.evidence(status)?;
                Some(RuleMatch { rule: at, action, evidence, action_name: final_name(action) })
            }),
            Rules::Draft(policy) => evaluate_draft(policy, status),
        }
    }
}

impl Rule {
    fn sees(&self) -> Sees {
        match (self.action, &self.requirement) {
            (None, _) | (_, Requirement::Nothing) => Sees::Nothing,
            (Some(_), Requirement::ExitCodes { .. }) => Sees::ExitCodes,
            (Some(_), Requirement::Conditions(_)) => Sees::Conditions,
        }
    }
}

fn sees_in_draft(rule: &draft::Rule) -> Sees {
    match rule.when {
        draft::Condition::ExitCodes { .. } => Sees::ExitCodes,
        draft::Condition::Reason { .. } => Sees::Reason,
    }
}

/// No exit code is one of none.
fn never() -> draft::Condition {
    draft::Condition::ExitCodes {
        container: None,
        operator: draft::Operator::In,
        ranges: draft::ExitCodeRanges::default(),
    }
}

fn draft_action(action: draft::Action) -> (Action, &'static str) {
    match action {
        draft::Action::Terminate => (Action::FailJob, "Terminate"),
        draft::Action::Ignore => (Action::Ignore, "Ignore"),
    }
}

fn final_name(action: Action) -> &'static str {
    match action {
        Action::FailJob => "FailJob",
        Action::FailIndex => "FailIndex",
        Action::Ignore => "Ignore",
        Action::Count => "Count",
    }
}

fn requirement(rule: &k8s_openapi::api::batch::v1::PodFailurePolicyRule) -> Requirement {
    if let Some(on) = &rule.on_exit_codes {
        let is_in = match on.operator.as_str() {
            "In" => true,
            "NotIn" => false,
            _ => return Requirement::Nothing,
        };
        let mut codes = on.values.clone();
        codes.sort_unstable();
        return Requirement::ExitCodes { container: on.container_name.clone(), is_in, codes };
    }
    match &rule.on_pod_conditions {
        Some(patterns) => Requirement::Conditions(
            patterns
                .iter()
                .map(|p| (p.type_.clone(), p.status.clone().unwrap_or_else(|| "True".to_owned())))
                .collect(),
        ),
        None => Requirement::Nothing,
    }
}

impl Requirement {
    fn evidence(&self, status: &PodStatus) -> Option<Evidence> {
        match self {
            Self::Nothing => None,
            Self::ExitCodes { container, is_in, codes } => failed_containers(status)
                .filter(|(name, _)| container.as_ref().is_none_or(|wanted| wanted == name))
                .find(|(_, code)| codes.binary_search(code).is_ok() == *is_in)
                .map(|(container, code)| Evidence::ExitCode { container: container.to_owned(), code }),
            Self::Conditions(patterns) => status
                .conditions
                .iter()
                .flatten()
                .find(|c| patterns.iter().any(|(kind, wanted)| *kind == c.type_ && *wanted == c.status))
                .map(|c| Evidence::Condition(c.type_.clone())),
        }
    }
}

/// Containers, then init containers, that have ended with a code other than 0.
fn failed_containers(status: &PodStatus) -> impl Iterator<Item = (&str, i32)> + Clone {
    let exit = |c: &ContainerStatus| c.state.as_ref()?.terminated.as_ref().map(|t| t.exit_code);
    status
        .container_statuses
        .iter()
        .flatten()
        .chain(status.init_container_statuses.iter().flatten())
        .filter_map(move |c| exit(c).filter(|code| *code != 0).map(|code| (c.name.as_str(), code)))
}

fn evaluate_draft(policy: &draft::Policy, status: &PodStatus) -> Option<RuleMatch> {
    let reason = status.reason.as_deref().unwrap_or_default();
    let found = policy.evaluate(failed_containers(status), reason)?;
    let (action, action_name) = draft_action(found.action);
    let evidence = match found.evidence {
        draft::Evidence::Exit { container, code } => Evidence::ExitCode { container, code },
        draft::Evidence::Reason(reason) => Evidence::Reason(reason),
    };
    Some(RuleMatch { rule: found.rule, action, evidence, action_name })
}
