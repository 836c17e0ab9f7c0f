//! Rules for `successPolicy`.

use k8s_openapi::api::batch::v1::{JobSpec, SuccessPolicyRule};

use super::not_negative;
use crate::field::{Error, Errors, Path};
use crate::indexes::IndexSet;
use crate::validation::meta::json;
use crate::view;

const RULES_MAX: usize = 20;
const SUCCEEDED_INDEXES_BYTES_MAX: usize = 65_536;

/// Checks the policy, if there is one.
pub(super) fn validate(spec: &JobSpec, path: &Path) -> Errors {
    let Some(policy) = &spec.success_policy else { return Errors::new() };
    if !view::is_indexed(spec) {
        return vec![Error::invalid(path, json(policy), "requires indexed completion mode")];
    }
    let path = path.child("rules");
    let mut errors = Errors::new();
    if policy.rules.is_empty() {
        let text = "at least one rules must be specified when the successPolicy is specified";
        errors.push(Error::required(&path, text));
    }
    if policy.rules.len() > RULES_MAX {
        errors.push(Error::too_many(&path, policy.rules.len(), RULES_MAX));
    }
    for (i, rule) in policy.rules.iter().enumerate() {
        errors.extend(validate_rule(rule, spec.completions, &path.index(i)));
    }
    errors
}

fn validate_rule(rule: &SuccessPolicyRule, completions: Option<i32>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if rule.succeeded_count.is_none() && rule.succeeded_indexes.is_none() {
        let text = "at least one of succeededCount or succeededIndexes must be specified";
        errors.push(Error::required(path, text));
    }
    // Without completions, an error of its own, there is nothing to compare with.
    let Some(completions) = completions else { return errors };
    let mut listed = None;
    if let Some(text) = &rule.succeeded_indexes {
        let at = path.child("succeededIndexes");
        if text.len() > SUCCEEDED_INDEXES_BYTES_MAX {
            errors.push(Error::too_long(&at, SUCCEEDED_INDEXES_BYTES_MAX));
        }
        let indexes = IndexSet::parse_strict(text, completions);
        if let Err(error) = &indexes {
            let detail = format!("error parsing succeededIndexes: {error}");
            errors.push(Error::invalid(&at, text.as_str(), detail));
        }
        // A text that is no index set lists none.
        listed = Some(indexes.map_or(0, |indexes| indexes.len()));
    }
    if let Some(count) = rule.succeeded_count {
        errors.extend(validate_count(count, completions, listed, &path.child("succeededCount")));
    }
    errors
}

fn validate_count(count: i32, completions: i32, listed: Option<u64>, path: &Path) -> Errors {
    let mut errors = not_negative(Some(count), path);
    if count > completions {
        let text =
            format!("must be less than or equal to {completions} (the number of specified completions)");
        errors.push(Error::invalid(path, count, text));
    }
    if let Some(listed) = listed.filter(|&listed| u64::try_from(count).is_ok_and(|count| count > listed)) {
        let text = format!(
            "must be less than or equal to {listed} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.push(Error::invalid(path, count, text));
    }
    errors
}
