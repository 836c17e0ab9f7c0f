//! Reads a draft policy from JSON in any of the three spellings, and says everything that is wrong with it.

use std::collections::BTreeSet;
use std::ops::{BitAnd, BitOr, Sub};

use serde_json::{Map, Value};

use super::{Action, Condition, ExitCodeRanges, Operator, Policy, RULES_MAX, Rule};
use crate::field::{Error, ErrorKind, Errors, Path};

/// How the value of a field says when a rule matches.
#[derive(Clone, Copy)]
enum Kind {
    /// Ranges of exit codes.
    Codes(Operator),
    /// A list of reasons.
    Reasons(Operator),
    /// A list of operators with ranges, which must all hold for one container.
    CodeExpressions,
    /// A list of operators with reasons, which must all hold.
    ReasonExpressions,
    /// An object about exit codes.
    ExitCodeSection,
    /// An object about the pod's status.
    StatusSection,
    /// An object around one of the two sections.
    Nested,
}

/// The fields of one object of which exactly one must be set.
type Choice = &'static [(&'static str, Kind)];

const IN_RULE: Choice = &[
    ("containerExitCodeIn", Kind::Codes(Operator::In)),
    ("containerExitCodeNotIn", Kind::Codes(Operator::NotIn)),
    ("podStatusReasonIn", Kind::Reasons(Operator::In)),
    ("podStatusReasonNotIn", Kind::Reasons(Operator::NotIn)),
    ("onContainerExitCode", Kind::ExitCodeSection),
    ("onPodStatus", Kind::StatusSection),
    ("condition", Kind::Nested),
];
const IN_CONDITION: Choice =
    &[("onContainerExitCode", Kind::ExitCodeSection), ("onPodStatus", Kind::StatusSection)];
const IN_EXIT_CODE_SECTION: Choice = &[
    ("valueIn", Kind::Codes(Operator::In)),
    ("valueNotIn", Kind::Codes(Operator::NotIn)),
    ("valueExpressions", Kind::CodeExpressions),
];
const IN_STATUS_SECTION: Choice = &[
    ("reasonIn", Kind::Reasons(Operator::In)),
    ("reasonNotIn", Kind::Reasons(Operator::NotIn)),
    ("reasonExpressions", Kind::ReasonExpressions),
];

/// Reads a policy; it is whole only if there are no errors. Without `names` container names are not looked
/// up.
pub(super) fn read(value: &Value, names: Option<&[&str]>, path: &Path) -> (Policy, Errors) {
    let mut reader = Reader { names, errors: Errors::new() };
    let rules = reader.rules(value, path).unwrap_or_default();
    (Policy { rules }, reader.errors)
}

struct Reader<'a> {
    names: Option<&'a [&'a str]>,
    errors: Errors,
}

impl Reader<'_> {
    fn rules(&mut self, value: &Value, path: &Path) -> Option<Vec<Rule>> {
        let policy = self.object(value, &["rules"], &[], path)?;
        let path = path.child("rules");
        // No rules are fine, as in a podFailurePolicy.
        let rules = self.array(field(policy, "rules")?, &path)?;
        if rules.len() > RULES_MAX {
            self.errors.push(Error::too_many(&path, rules.len(), RULES_MAX));
        }
        Some(rules.iter().enumerate().filter_map(|(i, rule)| self.rule(rule, &path.index(i))).collect())
    }

    fn rule(&mut self, value: &Value, path: &Path) -> Option<Rule> {
        let rule = self.object(value, &["action", "containerName"], IN_RULE, path)?;
        let action = self.action(rule, &path.child("action"));
        let container = self.rule_container(rule, path);
        let when = self.one_of(rule, IN_RULE, container, path);
        Some(Rule { action: action?, when: when? })
    }

    fn action(&mut self, rule: &Map<String, Value>, path: &Path) -> Option<Action> {
        match self.text(rule, "action", r#"valid values: ["Ignore" "Terminate"]"#, path)? {
            "Terminate" => Some(Action::Terminate),
            "Ignore" => Some(Action::Ignore),
            other => {
                self.errors.push(Error::not_supported(path, other, &["Ignore", "Terminate"]));
                None
            }
        }
    }

    fn operator(&mut self, expression: &Map<String, Value>, path: &Path) -> Option<Operator> {
        match self.text(expression, "operator", r#"valid values: ["In" "NotIn"]"#, path)? {
            "In" => Some(Operator::In),
            "NotIn" => Some(Operator::NotIn),
            other => {
                self.errors.push(Error::not_supported(path, other, &["In", "NotIn"]));
                None
            }
        }
    }

    /// The rule's own `containerName`, which the draft allows only beside the rule's own exit codes.
    fn rule_container(&mut self, rule: &Map<String, Value>, path: &Path) -> Option<String> {
        let has_codes =
            ["containerExitCodeIn", "containerExitCodeNotIn"].iter().any(|name| field(rule, name).is_some());
        if field(rule, "containerName").is_some() && !has_codes {
            let detail = "may only be used with containerExitCodeIn or containerExitCodeNotIn";
            self.errors.push(Error::forbidden(&path.child("containerName"), detail));
            return None;
        }
        self.container(rule, path)
    }

    fn container(&mut self, object: &Map<String, Value>, path: &Path) -> Option<String> {
        let path = path.child("containerName");
        let name = self.string(field(object, "containerName")?, &path)?;
        if self.names.is_some_and(|names| !names.contains(&name)) {
            let detail = "must be one of the container or initContainer names in the pod template";
            self.errors.push(Error::invalid(&path, name, detail));
        }
        Some(name.to_owned())
    }

    /// What the one field of `choice` that is set in `object` says.
    fn one_of(
        &mut self,
        object: &Map<String, Value>,
        choice: Choice,
        container: Option<String>,
        path: &Path,
    ) -> Option<Condition> {
        let set = choice.iter().filter_map(|(name, kind)| Some((*name, *kind, field(object, name)?)));
        match *set.collect::<Vec<_>>() {
            [(name, kind, value)] => self.condition(kind, value, container, &path.child(name)),
            [] => {
                let names: Vec<&str> = choice.iter().map(|(name, _)| *name).collect();
                let detail = format!("specifying one of {} is required", names.join(", "));
                self.errors.push(Error::invalid_omitted(path, detail));
                None
            }
            ref several => {
                let names: Vec<&str> = several.iter().map(|(name, ..)| *name).collect();
                let detail = format!("specifying more than one of {} is not supported", names.join(", "));
                self.errors.push(Error::invalid_omitted(path, detail));
                None
            }
        }
    }

    fn condition(
        &mut self,
        kind: Kind,
        value: &Value,
        container: Option<String>,
        path: &Path,
    ) -> Option<Condition> {
        match kind {
            Kind::Codes(operator) => {
                let ranges = self.codes(operator, value, path)?;
                Some(Condition::ExitCodes { container, operator, ranges })
            }
            Kind::CodeExpressions => {
                let (operator, ranges) = self.expressions(value, Self::code_list, path)?;
                Some(Condition::ExitCodes { container, operator, ranges })
            }
            Kind::Reasons(operator) => {
                let reasons = self.reasons(operator, value, path)?;
                Some(Condition::Reason { operator, reasons })
            }
            Kind::ReasonExpressions => {
                let (operator, reasons) = self.expressions(value, Self::reasons, path)?;
                Some(Condition::Reason { operator, reasons })
            }
            Kind::ExitCodeSection => {
                let section = self.object(value, &["containerName"], IN_EXIT_CODE_SECTION, path)?;
                let container = self.container(section, path);
                self.one_of(section, IN_EXIT_CODE_SECTION, container, path)
            }
            Kind::StatusSection => {
                let section = self.object(value, &[], IN_STATUS_SECTION, path)?;
                self.one_of(section, IN_STATUS_SECTION, None, path)
            }
            Kind::Nested => {
                let nested = self.object(value, &[], IN_CONDITION, path)?;
                self.one_of(nested, IN_CONDITION, None, path)
            }
        }
    }

    /// A text of ranges, or one code as a number: YAML reads an unquoted `42` as one.
    fn codes(&mut self, operator: Operator, value: &Value, path: &Path) -> Option<ExitCodeRanges> {
        let parsed = match value {
            Value::Number(code) => ExitCodeRanges::parse(&code.to_string()),
            other => ExitCodeRanges::parse(self.string(other, path)?),
        };
        match parsed {
            Ok(ranges) if operator == Operator::In && ranges.contains(0) => {
                self.errors.push(Error::invalid(path, value.clone(), "must not be 0 for the In operator"));
                None
            }
            Ok(ranges) => Some(ranges),
            Err(error) => {
                self.errors.push(Error::invalid(path, value.clone(), error.to_string()));
                None
            }
        }
    }

    fn code_list(&mut self, operator: Operator, value: &Value, path: &Path) -> Option<ExitCodeRanges> {
        let items = self.filled(value, "at least one value is required", path)?;
        let read: Vec<_> =
            items.iter().enumerate().map(|(i, item)| self.codes(operator, item, &path.index(i))).collect();
        let sets = read.into_iter().collect::<Option<Vec<_>>>()?;
        Some(sets.iter().flat_map(|set| set.ranges()).cloned().collect())
    }

    fn reasons(&mut self, _: Operator, value: &Value, path: &Path) -> Option<BTreeSet<String>> {
        let items = self.filled(value, "at least one value is required", path)?;
        let read: Vec<_> = items
            .iter()
            .enumerate()
            .map(|(i, item)| self.string(item, &path.index(i)).map(str::to_owned))
            .collect();
        read.into_iter().collect()
    }

    /// Several expressions as one: they must all hold for the same value, so together they are one set again.
    fn expressions<S>(
        &mut self,
        value: &Value,
        values: fn(&mut Self, Operator, &Value, &Path) -> Option<S>,
        path: &Path,
    ) -> Option<(Operator, S)>
    where
        S: Default + PartialEq,
        for<'s> &'s S: BitAnd<Output = S> + BitOr<Output = S> + Sub<Output = S>,
    {
        let items = self.filled(value, "at least one expression is required", path)?;
        let mut read = Vec::with_capacity(items.len());
        for (i, item) in items.iter().enumerate() {
            read.push(self.expression(item, values, &path.index(i)));
        }
        let all = read.into_iter().collect::<Option<Vec<_>>>()?.into_iter().reduce(both)?;
        if all.0 == Operator::In && all.1 == S::default() {
            self.errors.push(Error::invalid_omitted(path, "no value satisfies all expressions"));
            return None;
        }
        Some(all)
    }

    fn expression<S>(
        &mut self,
        value: &Value,
        values: fn(&mut Self, Operator, &Value, &Path) -> Option<S>,
        path: &Path,
    ) -> Option<(Operator, S)> {
        let expression = self.object(value, &["operator", "values"], &[], path)?;
        let operator = self.operator(expression, &path.child("operator"))?;
        let listed = field(expression, "values").unwrap_or(const { &Value::Array(Vec::new()) });
        Some((operator, values(self, operator, listed, &path.child("values"))?))
    }

    /// The object at `path`; fields that are neither in `names` nor in `choice` are reported.
    fn object<'v>(
        &mut self,
        value: &'v Value,
        names: &[&str],
        choice: Choice,
        path: &Path,
    ) -> Option<&'v Map<String, Value>> {
        let Some(object) = value.as_object() else { return self.mistyped(value, "an object", path) };
        for key in object.keys() {
            if !names.contains(&key.as_str()) && choice.iter().all(|(name, _)| name != key) {
                self.errors.push(Error::forbidden(&path.child(key), "unknown field"));
            }
        }
        Some(object)
    }

    fn array<'v>(&mut self, value: &'v Value, path: &Path) -> Option<&'v Vec<Value>> {
        value.as_array().or_else(|| self.mistyped(value, "a list", path))
    }

    /// A list with at least one item.
    fn filled<'v>(&mut self, value: &'v Value, detail: &str, path: &Path) -> Option<&'v Vec<Value>> {
        let items = self.array(value, path)?;
        if items.is_empty() {
            self.errors.push(Error::invalid(path, value.clone(), detail));
            return None;
        }
        Some(items)
    }

    fn string<'v>(&mut self, value: &'v Value, path: &Path) -> Option<&'v str> {
        value.as_str().or_else(|| self.mistyped(value, "a string", path))
    }

    /// A text that must be there and not be empty.
    fn text<'v>(
        &mut self,
        object: &'v Map<String, Value>,
        name: &str,
        valid: &str,
        path: &Path,
    ) -> Option<&'v str> {
        let text = field(object, name).map_or(Some(""), |value| self.string(value, path))?;
        if text.is_empty() {
            self.errors.push(Error::required(path, valid));
            return None;
        }
        Some(text)
    }

    fn mistyped<T>(&mut self, value: &Value, wanted: &str, path: &Path) -> Option<T> {
        self.errors.push(Error {
            kind: ErrorKind::TypeInvalid,
            path: path.clone(),
            value: Some(value.clone()),
            detail: format!("must be {wanted}"),
        });
        None
    }
}

/// The field `name`, if it is set: null is as good as absent.
fn field<'v>(object: &'v Map<String, Value>, name: &str) -> Option<&'v Value> {
    object.get(name).filter(|value| !value.is_null())
}

/// The one comparison that holds when both do.
fn both<S>((a_operator, a): (Operator, S), (b_operator, b): (Operator, S)) -> (Operator, S)
where
    for<'s> &'s S: BitAnd<Output = S> + BitOr<Output = S> + Sub<Output = S>,
{
    match (a_operator, b_operator) {
        (Operator::In, Operator::In) => (Operator::In, &a & &b),
        (Operator::In, Operator::NotIn) => (Operator::In, &a - &b),
        (Operator::NotIn, Operator::In) => (Operator::In, &b - &a),
        (Operator::NotIn, Operator::NotIn) => (Operator::NotIn, &a | &b),
    }
}
