//! PodDisruptionBudgets: one bound, not both; and a status that counts.

use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::json;
use windlass_api::field::{Error, Errors, Path};
use windlass_api::selector;

use super::cron_job::counts;
use super::{Context, Warnings, finish, new_meta, same_meta};
use crate::object::Object;
use crate::resources::{self, Resource};
use crate::status::Result;
use crate::view;

const POLICIES: [&str; 2] = ["AlwaysAllow", "IfHealthyBudget"];
const COUNTS: [&str; 4] = ["disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"];

fn resource() -> &'static Resource {
    resources::find("policy", "v1", "poddisruptionbudgets").expect("a row of the table")
}

pub(super) fn create(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    // upstream: these are shown also when they are 0
    let zero = json!({"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0});
    object.insert("status", zero);
    let mut errors = new_meta(resource(), object)?;
    errors.extend(check(object, None)?);
    finish(resource(), object, &errors)
}

pub(super) fn update(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let mut errors = same_meta(resource(), object, old)?;
    errors.extend(check(object, Some(old))?);
    if !object.is_same(old, "spec") {
        object.bump_generation();
    }
    finish(resource(), object, &errors)
}

pub(super) fn status(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let mut errors = same_meta(resource(), object, old)?;
    errors.extend(counts(object.get("status"), &COUNTS, &Path::new("status")));
    finish(resource(), object, &errors)
}

fn spec(object: &Object) -> Result<PodDisruptionBudgetSpec> {
    let budget: PodDisruptionBudget = view::read(resource(), object)?;
    Ok(budget.spec.unwrap_or_default())
}

fn check(object: &Object, old: Option<&Object>) -> Result<Errors> {
    let path = Path::new("spec");
    let spec = spec(object)?;
    let mut errors = Errors::new();
    if spec.min_available.is_some() && spec.max_unavailable.is_some() {
        let value = object.get("spec").cloned().unwrap_or_default();
        errors.push(Error::invalid(&path, value, "minAvailable and maxUnavailable cannot be both set"));
    }
    for (field, bound) in [("minAvailable", &spec.min_available), ("maxUnavailable", &spec.max_unavailable)] {
        if let Some(bound) = bound {
            errors.extend(check_bound(bound, &path.child(field)));
        }
    }
    if let Some(found) = &spec.selector {
        // upstream: a value that was let in before it was checked may stay
        let had_wrong = match old {
            Some(old) => self::spec(old)?
                .selector
                .is_some_and(|old| !selector::validate_label_selector(&old, &path, false).is_empty()),
            None => false,
        };
        errors.extend(selector::validate_label_selector(found, &path.child("selector"), had_wrong));
    }
    if let Some(policy) = spec.unhealthy_pod_eviction_policy.as_deref().filter(|one| !POLICIES.contains(one))
    {
        errors.push(Error::not_supported(&path.child("unhealthyPodEvictionPolicy"), policy, &POLICIES));
    }
    Ok(errors)
}

/// upstream: ValidatePositiveIntOrPercent and IsNotMoreThan100Percent.
fn check_bound(bound: &IntOrString, path: &Path) -> Errors {
    match bound {
        IntOrString::Int(count) if *count < 0 => {
            vec![Error::invalid(path, *count, "must be greater than or equal to 0")]
        }
        IntOrString::Int(_) => Errors::new(),
        IntOrString::String(text) => match percent(text) {
            Some(percent) if percent > 100 => {
                vec![Error::invalid(path, text.as_str(), "must not be greater than 100%")]
            }
            Some(_) => Errors::new(),
            None => {
                let why = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or \
                           '93%', regex used for validation is '[0-9]+%')";
                vec![Error::invalid(path, text.as_str(), why)]
            }
        },
    }
}

fn percent(text: &str) -> Option<u64> {
    let digits = text.strip_suffix('%').filter(|digits| !digits.is_empty())?;
    digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().unwrap_or(u64::MAX))
}
