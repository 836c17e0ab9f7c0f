//! Label and field selectors: what they mean, how queries spell them, and what is wrong with them.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, LabelSelectorRequirement};
use serde_json::Value;

use crate::field::{Error, Errors, Path};
use crate::validation::meta::{each, json, label_value, qualified_name, validate_labels};

mod fields;
mod parse;

pub use fields::FieldSelector;

/// How a requirement relates a label's value to its own values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// The label is there with one of the values.
    In,
    /// The label is not there, or has none of the values.
    NotIn,
    /// `=`: as [`Operator::In`] with one value.
    Equals,
    /// `==`: as [`Operator::Equals`].
    DoubleEquals,
    /// `!=`: as [`Operator::NotIn`] with one value.
    NotEquals,
    /// The label is there.
    Exists,
    /// The label is not there.
    DoesNotExist,
    /// The label is there, an integer, and above the value.
    GreaterThan,
    /// The label is there, an integer, and below the value.
    LessThan,
}

/// One condition on one label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    key: String,
    operator: Operator,
    values: Vec<String>,
}

/// A condition on a set of labels.
///
/// An empty selector matches every set. No selector at all (nil in an API object, such as a
/// PodDisruptionBudget without `spec.selector`) matches none: that is [`Selector::Nothing`], and what
/// [`Selector::from_optional`] makes of `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selector {
    /// Matches no set of labels.
    Nothing,
    /// Matches the sets that meet all the requirements, which are in the order of their keys.
    All(Vec<Requirement>),
}

impl Selector {
    /// The selector that matches every set of labels.
    pub fn everything() -> Self {
        Self::All(Vec::new())
    }

    /// The selector that an API object means with a field that is there.
    pub fn from_label_selector(selector: &LabelSelector) -> Result<Self, String> {
        let mut requirements = Vec::new();
        for (key, value) in selector.match_labels.iter().flatten() {
            requirements.push(Requirement::new(key, Operator::Equals, vec![value.clone()])?);
        }
        for expression in selector.match_expressions.iter().flatten() {
            let operator = match expression.operator.as_str() {
                "In" => Operator::In,
                "NotIn" => Operator::NotIn,
                "Exists" => Operator::Exists,
                "DoesNotExist" => Operator::DoesNotExist,
                other => return Err(format!("{other:?} is not a valid label selector operator")),
            };
            let values = expression.values.clone().unwrap_or_default();
            requirements.push(Requirement::new(&expression.key, operator, values)?);
        }
        Ok(Self::all(requirements))
    }

    /// The selector that an API object means with a field that may be absent: absent matches nothing.
    pub fn from_optional(selector: Option<&LabelSelector>) -> Result<Self, String> {
        selector.map_or(Ok(Self::Nothing), Self::from_label_selector)
    }

    /// Reads the form that queries use: `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1`.
    pub fn parse(text: &str) -> Result<Self, String> {
        parse::requirements(text).map(Self::all)
    }

    fn all(mut requirements: Vec<Requirement>) -> Self {
        requirements.sort_by(|a, b| a.key.cmp(&b.key));
        Self::All(requirements)
    }

    /// Whether it matches everything.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => requirements.is_empty(),
        }
    }

    /// Whether it matches these labels.
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches_values(|key| labels.get(key).map(String::as_str))
    }

    /// Whether it matches the labels that `value` looks up by their key.
    pub fn matches_values<'a>(&self, value: impl Fn(&str) -> Option<&'a str>) -> bool {
        match self {
            Self::Nothing => false,
            Self::All(requirements) => {
                requirements.iter().all(|requirement| requirement.matches(value(&requirement.key)))
            }
        }
    }

    /// It and one more requirement. Nothing stays nothing.
    pub fn and(self, requirement: Requirement) -> Self {
        match self {
            Self::Nothing => Self::Nothing,
            Self::All(mut requirements) => {
                requirements.push(requirement);
                Self::all(requirements)
            }
        }
    }
}

/// The form that [`Selector::parse`] reads; nothing prints as the empty text, as upstream.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::All(requirements) => {
                let texts: Vec<String> = requirements.iter().map(ToString::to_string).collect();
                f.write_str(&texts.join(","))
            }
        }
    }
}

impl Requirement {
    /// A requirement that is well formed, or what is wrong with it.
    pub fn new(key: &str, operator: Operator, values: Vec<String>) -> Result<Self, String> {
        let mut errors = Errors::new();
        if let Some(error) = joined(&Path::new("key"), key, qualified_name(key)) {
            errors.push(error);
        }
        let path = Path::new("values");
        if let Some(text) = wrong_count(operator, values.len()) {
            // Upstream has no list rather than an empty one.
            let shown = if values.is_empty() { Value::Null } else { json(&values) };
            errors.push(Error::invalid(&path, shown, text));
        }
        let is_ordering = matches!(operator, Operator::GreaterThan | Operator::LessThan);
        for (i, value) in values.iter().enumerate() {
            if is_ordering && value.parse::<i64>().is_err() {
                let text = "for 'Gt', 'Lt' operators, the value must be an integer";
                errors.push(Error::invalid(&path.index(i), value.as_str(), text));
            }
        }
        for (i, value) in values.iter().enumerate() {
            errors.extend(joined(&path.index(i).key(key), value, label_value(value)));
        }
        match aggregate(&errors) {
            None => Ok(Self { key: key.to_owned(), operator, values }),
            Some(text) => Err(text),
        }
    }

    fn matches(&self, value: Option<&str>) -> bool {
        let is_among = |value: &str| self.values.iter().any(|one| one == value);
        match self.operator {
            Operator::In | Operator::Equals | Operator::DoubleEquals => value.is_some_and(is_among),
            Operator::NotIn | Operator::NotEquals => value.is_none_or(|value| !is_among(value)),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::GreaterThan => self.compare(value).is_some_and(|(have, bound)| have > bound),
            Operator::LessThan => self.compare(value).is_some_and(|(have, bound)| have < bound),
        }
    }

    fn compare(&self, value: Option<&str>) -> Option<(i64, i64)> {
        Some((value?.parse().ok()?, self.values.first()?.parse().ok()?))
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.values.clone();
        sorted.sort();
        let (key, values) = (&self.key, sorted.join(","));
        match self.operator {
            Operator::In => write!(f, "{key} in ({values})"),
            Operator::NotIn => write!(f, "{key} notin ({values})"),
            Operator::Equals => write!(f, "{key}={values}"),
            Operator::DoubleEquals => write!(f, "{key}=={values}"),
            Operator::NotEquals => write!(f, "{key}!={values}"),
            Operator::Exists => write!(f, "{key}"),
            Operator::DoesNotExist => write!(f, "!{key}"),
            Operator::GreaterThan => write!(f, "{key}>{values}"),
            Operator::LessThan => write!(f, "{key}<{values}"),
        }
    }
}

fn wrong_count(operator: Operator, count: usize) -> Option<&'static str> {
    match operator {
        Operator::In | Operator::NotIn => {
            (count == 0).then_some("for 'in', 'notin' operators, values set can't be empty")
        }
        Operator::Equals | Operator::DoubleEquals | Operator::NotEquals => {
            (count != 1).then_some("exact-match compatibility requires one single value")
        }
        Operator::Exists | Operator::DoesNotExist => {
            (count != 0).then_some("values set must be empty for exists and does not exist")
        }
        Operator::GreaterThan | Operator::LessThan => {
            (count != 1).then_some("for 'Gt', 'Lt' operators, exactly one value is required")
        }
    }
}

// One error for all that is wrong with one text.
fn joined(path: &Path, value: &str, wrong: Vec<String>) -> Option<Error> {
    (!wrong.is_empty()).then(|| Error::invalid(path, value, wrong.join("; ")))
}

// How upstream prints several errors as one.
fn aggregate(errors: &[Error]) -> Option<String> {
    let mut texts: Vec<String> = Vec::new();
    for text in errors.iter().map(ToString::to_string) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    if texts.len() > 1 { Some(format!("[{}]", texts.join(", "))) } else { texts.pop() }
}

/// Checks the selector of an API object. Old objects may hold label values that a new one may not.
pub fn validate_label_selector(
    selector: &LabelSelector,
    path: &Path,
    allow_invalid_label_value: bool,
) -> Errors {
    let mut errors = Errors::new();
    if let Some(labels) = &selector.match_labels {
        errors.extend(validate_labels(labels, &path.child("matchLabels")));
    }
    let at = path.child("matchExpressions");
    for (i, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        errors.extend(validate_requirement(requirement, &at.index(i), allow_invalid_label_value));
    }
    errors
}

fn validate_requirement(
    requirement: &LabelSelectorRequirement,
    path: &Path,
    allow_invalid_label_value: bool,
) -> Errors {
    let mut errors = Errors::new();
    let values = requirement.values.as_deref().unwrap_or_default();
    let at = path.child("values");
    match requirement.operator.as_str() {
        "In" | "NotIn" => {
            if values.is_empty() {
                let text = "must be specified when `operator` is 'In' or 'NotIn'";
                errors.push(Error::required(&at, text));
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                let text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
                errors.push(Error::forbidden(&at, text));
            }
        }
        other => errors.push(Error::invalid(&path.child("operator"), other, "not a valid selector operator")),
    }
    errors.extend(each(&path.child("key"), &requirement.key, qualified_name(&requirement.key)));
    if !allow_invalid_label_value {
        for (i, value) in values.iter().enumerate() {
            errors.extend(each(&at.index(i), value, label_value(value)));
        }
    }
    errors
}
