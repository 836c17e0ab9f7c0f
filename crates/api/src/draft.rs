//! The `backoffPolicy` of KEP-3329's first draft: what became `podFailurePolicy`, with ranges and status
//! reasons.
//!
//! The draft spells a policy in three ways (a main one and two alternatives); all are read into one
//! [`Policy`]. `translate` says the same as a `podFailurePolicy` where one can. Note that a Job with a
//! `podFailurePolicy` must have `restartPolicy: Never` and replaces pods only once they have failed; the
//! draft asks for neither.

mod ranges;
mod read;
mod translate;

use std::collections::BTreeSet;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};

use crate::field::{Errors, Path};

pub use ranges::{ExitCodeRanges, ParseError};
pub use translate::{Note, Translation};

/// The most rules a policy may have, as in a `podFailurePolicy`.
pub const RULES_MAX: usize = 20;

/// What to do with failed pods: the first rule that matches decides, and none means the failure is counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// In the order in which they are tried.
    pub rules: Vec<Rule>,
}

/// One action and when to take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What to do.
    pub action: Action,
    /// When to do it.
    pub when: Condition,
}

/// What a rule does with a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The Job fails.
    Terminate,
    /// The pod is replaced, and the failure does not count.
    Ignore,
}

impl Action {
    /// The name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Terminate => "Terminate",
            Self::Ignore => "Ignore",
        }
    }
}

/// How a value is compared with the values of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// It is one of them.
    In,
    /// It is none of them.
    NotIn,
}

impl Operator {
    fn holds(self, is_member: bool) -> bool {
        match self {
            Self::In => is_member,
            Self::NotIn => !is_member,
        }
    }
}

/// When a rule matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Some failed container has such an exit code.
    ExitCodes {
        /// Only this container is looked at; all if there is none.
        container: Option<String>,
        /// Within or outside of the ranges.
        operator: Operator,
        /// The exit codes.
        ranges: ExitCodeRanges,
    },
    /// The pod has such a `status.reason`.
    Reason {
        /// One or none of the reasons.
        operator: Operator,
        /// The reasons; the empty one is that of a pod without a reason.
        reasons: BTreeSet<String>,
    },
}

/// The rule that decided about a failed pod, and by what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The position of the rule.
    pub rule: usize,
    /// What the rule asks for.
    pub action: Action,
    /// What made it match.
    pub evidence: Evidence,
}

/// What made a rule match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// A container's exit code.
    Exit {
        /// The container.
        container: String,
        /// Its exit code.
        code: i32,
    },
    /// The pod's `status.reason`.
    Reason(String),
}

impl Policy {
    /// Reads a policy in any of the draft's three spellings. Whether the containers exist only [`validate`]
    /// can say.
    pub fn from_value(value: &Value) -> Result<Self, Errors> {
        let (policy, errors) = read::read(value, None, &Path::root());
        if errors.is_empty() { Ok(policy) } else { Err(errors) }
    }

    /// The first rule that matches a failed pod. `containers` are the terminated ones, main containers before
    /// init containers; those with exit code 0 have not failed and match nothing.
    pub fn evaluate<'a>(
        &self,
        containers: impl Iterator<Item = (&'a str, i32)> + Clone,
        status_reason: &str,
    ) -> Option<Match> {
        self.rules.iter().enumerate().find_map(|(index, rule)| {
            let evidence = rule.when.evidence(containers.clone(), status_reason)?;
            Some(Match { rule: index, action: rule.action, evidence })
        })
    }
}

impl Condition {
    fn evidence<'a>(
        &self,
        mut containers: impl Iterator<Item = (&'a str, i32)>,
        status_reason: &str,
    ) -> Option<Evidence> {
        match self {
            Self::ExitCodes { container, operator, ranges } => containers
                .find(|&(name, code)| {
                    code != 0
                        && container.as_ref().is_none_or(|wanted| wanted == name)
                        && operator.holds(ranges.contains(code))
                })
                .map(|(name, code)| Evidence::Exit { container: name.to_owned(), code }),
            Self::Reason { operator, reasons } => operator
                .holds(reasons.contains(status_reason))
                .then(|| Evidence::Reason(status_reason.to_owned())),
        }
    }

    /// The field of the main spelling that says this, with its value.
    fn field(&self) -> (&'static str, Value) {
        match self {
            Self::ExitCodes { operator: Operator::In, ranges, .. } => {
                ("containerExitCodeIn", ranges.to_string().into())
            }
            Self::ExitCodes { operator: Operator::NotIn, ranges, .. } => {
                ("containerExitCodeNotIn", ranges.to_string().into())
            }
            Self::Reason { operator: Operator::In, reasons } => {
                ("podStatusReasonIn", reasons.iter().cloned().collect())
            }
            Self::Reason { operator: Operator::NotIn, reasons } => {
                ("podStatusReasonNotIn", reasons.iter().cloned().collect())
            }
        }
    }
}

/// All that is wrong with the `backoffPolicy` at `path` of a Job whose pod template has these containers and
/// init containers.
pub fn validate(policy: &Value, template_container_names: &[&str], path: &Path) -> Errors {
    read::read(policy, Some(template_container_names), path).1
}

/// Writes the main spelling, whichever was read.
impl Serialize for Policy {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rules: Vec<Value> = self.rules.iter().map(main_spelling).collect();
        Map::from_iter([("rules".to_owned(), Value::from(rules))]).serialize(serializer)
    }
}

fn main_spelling(rule: &Rule) -> Value {
    let (name, value) = rule.when.field();
    let mut fields = Map::from_iter([(name.to_owned(), value)]);
    if let Condition::ExitCodes { container: Some(container), .. } = &rule.when {
        fields.insert("containerName".to_owned(), container.as_str().into());
    }
    fields.insert("action".to_owned(), rule.action.name().into());
    fields.into()
}

/// Reads any spelling; see [`Policy::from_value`].
impl<'de> Deserialize<'de> for Policy {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::from_value(&Value::deserialize(deserializer)?).map_err(|errors| {
            let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
            serde::de::Error::custom(texts.join(", "))
        })
    }
}
