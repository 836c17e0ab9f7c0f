//! `pods/{name}/eviction`: ends a pod on behalf of somebody who disrupts it, as far as its disruption budget allows.
//!
//! ```text
//!  ended, pending or being deleted ──────────────────────────────────────────────────────► mark, delete
//!  one budget: not ready and enough others are, or it has one disruption left (take it) ─► mark, delete
//!              otherwise 429
//! ```

use axum::body::Body;
use http::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_api::field::{Error, Path};
use windlass_api::names;
use windlass_api::selector::Selector;
use windlass_store::Prefix;

use crate::delete::{self, Options, Preconditions};
use crate::object::Object;
use crate::pods::{decode, set_condition};
use crate::request::{Query, Target};
use crate::resources::{self, Resource};
use crate::status::{self, Result, Status};
use crate::write::{self, Scope};
use crate::{Shared, answer};

const GROUP: &str = "policy";
const BUDGETS: &str = "poddisruptionbudgets";
/// upstream: evictions that nobody has confirmed yet.
const DISRUPTED_MAX: usize = 2000;
/// upstream: how often a delete is tried while others change the pod.
const CONFLICT_TRIES: usize = 20;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Eviction {
    api_version: String,
    kind: String,
    metadata: Meta,
    delete_options: Option<Value>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Meta {
    name: String,
}

/// POST of an Eviction.
pub(crate) fn create(shared: &Shared, target: &Target, query: &Query, body: &[u8]) -> Result<Response<Body>> {
    let eviction: Eviction = decode("Eviction", body)?;
    if !matches!(eviction.kind.as_str(), "" | "Eviction")
        || !matches!(eviction.api_version.as_str(), "" | "policy/v1" | "policy/v1beta1")
    {
        return Err(Status::bad_request(format!("not a Eviction object: {}", eviction.kind)));
    }
    if eviction.metadata.name != target.name {
        return Err(Status::bad_request("name in URL does not match name in Eviction object"));
    }
    refuse_broken(&target.name, eviction.delete_options.as_ref())?;
    let options = eviction.delete_options.map_or_else(String::new, |options| options.to_string());
    let options = Options::parse(query, options.as_bytes())?;
    // The first draft of the failure policy: who deletes a pod says why.
    let options = options.because(names::disruption::EVICTION_BY_EVICTION_API);
    evict(shared, target, &options)?;
    Ok(answer::json(StatusCode::CREATED, &status::success(StatusCode::CREATED, None), &[]))
}

/// An option for objects that can't be read has no place here: those can't be evicted.
fn refuse_broken(name: &str, options: Option<&Value>) -> Result<()> {
    const OPTION: &str = "ignoreStoreReadErrorWithClusterBreakingPotential";
    if !options.is_some_and(|options| options[OPTION] == true) {
        return Ok(());
    }
    let path = Path::new("deleteOptions").child(OPTION);
    let why = "can not be set for pod eviction, try after removing the option";
    Err(Status::invalid(GROUP, "Eviction", name, &[Error::invalid(&path, true, why)]))
}

fn evict(shared: &Shared, target: &Target, options: &Options) -> Result<()> {
    for _ in 0..CONFLICT_TRIES {
        let pod = get(shared, target)?;
        if !is_unguarded(&pod) {
            return evict_guarded(shared, target, &pod, options);
        }
        // A pod that has not ended may become ready meanwhile, and then a budget has to be asked.
        let is_over = pod.is_deleting() || matches!(pod.text_at("status", "phase"), "Succeeded" | "Failed");
        let done = if is_over || options.version().is_some() {
            mark_and_delete(shared, target, options)
        } else {
            mark_and_delete(shared, target, &options.at_version(pod.meta_text("resourceVersion")))
        };
        match done {
            Err(status) if status.is_conflict() && options.version().is_none() => {}
            done => return done,
        }
    }
    Err(Status::modified(target.resource, &target.name))
}

fn get(shared: &Shared, target: &Target) -> Result<Object> {
    let record = shared.store.get(&target.key());
    Object::from_stored(&record.ok_or_else(|| Status::not_found(target.resource, &target.name))?.bytes)
}

/// Whether no budget has a say: the pod does no work, or not for long.
fn is_unguarded(pod: &Object) -> bool {
    pod.is_deleting() || matches!(pod.text_at("status", "phase"), "Succeeded" | "Failed" | "Pending")
}

fn evict_guarded(shared: &Shared, target: &Target, pod: &Object, options: &Options) -> Result<()> {
    let budgets = budgets_of(shared, target, pod)?;
    let budget = match budgets.as_slice() {
        [] => return mark_and_delete(shared, target, options),
        [budget] => budget,
        _ => return Err(Status::several_budgets()),
    };
    if is_ready(pod) || !spares_unready(budget) {
        take_disruption(shared, target, budget.name(), options.is_dry_run())?;
        return mark_and_delete(shared, target, options);
    }
    // It must still be as unready as it was when the budget was asked.
    let done = mark_and_delete(shared, target, &options.at_version(pod.meta_text("resourceVersion")));
    match done {
        Err(status) if status.is_conflict() && options.version().is_none() => {
            Err(still_processed(budget.name()))
        }
        done => done,
    }
}

fn budgets_of(shared: &Shared, target: &Target, pod: &Object) -> Result<Vec<Object>> {
    let labels = pod.attributes(target.resource, None).labels;
    let mut found = Vec::new();
    for record in shared.store.list(&Prefix::namespaced(BUDGETS, &target.namespace)).records {
        let budget = Object::from_stored(&record.bytes)?;
        let selector = budget.get("spec").and_then(|spec| spec.get("selector"));
        let selector = selector.and_then(|selector| Deserialize::deserialize(selector).ok());
        // One that can't be read selects nothing, as one that is not there.
        let selects =
            Selector::from_optional(selector.as_ref()).is_ok_and(|selector| selector.matches(&labels));
        if selects {
            found.push(budget);
        }
    }
    Ok(found)
}

fn is_ready(pod: &Object) -> bool {
    let conditions = pod.get("status").and_then(|status| status.get("conditions")).and_then(Value::as_array);
    conditions.into_iter().flatten().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

fn number(budget: &Object, field: &str) -> i64 {
    let status = budget.get("status");
    status.and_then(|status| status.get(field)).and_then(Value::as_i64).unwrap_or(0)
}

/// Whether a pod that is not ready may go without being counted.
fn spares_unready(budget: &Object) -> bool {
    let (current, desired) = (number(budget, "currentHealthy"), number(budget, "desiredHealthy"));
    budget.text_at("spec", "unhealthyPodEvictionPolicy") == "AlwaysAllow"
        || (current >= desired && desired > 0)
}

fn still_processed(budget: &str) -> Status {
    let why = format!("The disruption budget {budget} is still being processed by the server.");
    Status::eviction_refused(10, &why)
}

/// Takes one of the disruptions that a budget has left. upstream: checkAndDecrement.
fn take_disruption(shared: &Shared, pod: &Target, budget: &str, is_dry_run: bool) -> Result<()> {
    let resource: &'static Resource = resources::find(GROUP, "v1", BUDGETS).expect("a row of the table");
    let target = Target {
        resource,
        namespace: pod.namespace.clone(),
        name: budget.to_owned(),
        subresource: String::new(),
        // The budget is changed in the name of the server.
        node: None,
    };
    let now = shared.now_text();
    write::update(shared, &target, Scope::Server, None, is_dry_run, |old| {
        check_budget(old)?;
        Ok(disrupted_budget(old, &pod.name, &now))
    })?
    .wait()
    .map(drop)
}

fn check_budget(budget: &Object) -> Result<()> {
    let name = budget.name();
    let forbidden = |why: &str| Err(Status::denied(GROUP, "poddisruptionbudget", name, why));
    if number(budget, "observedGeneration") < budget.generation() {
        return Err(still_processed(name));
    }
    let left = number(budget, "disruptionsAllowed");
    if left < 0 {
        return forbidden("pdb disruptions allowed is negative");
    }
    let disrupted = budget.get("status").and_then(|status| status.get("disruptedPods"));
    if disrupted.and_then(Value::as_object).is_some_and(|pods| pods.len() > DISRUPTED_MAX) {
        return forbidden("DisruptedPods map too big - too many evictions not confirmed by PDB controller");
    }
    if left > 0 { Ok(()) } else { Err(Status::eviction_refused(0, &why_none_left(budget))) }
}

fn why_none_left(budget: &Object) -> String {
    let name = budget.name();
    let conditions = budget.get("status").and_then(|status| status.get("conditions"));
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let refused =
        conditions.find(|one| one["type"] == "DisruptionAllowed").filter(|one| one["status"] == "False");
    let text = |field: &str| refused.and_then(|one| one[field].as_str()).unwrap_or_default();
    let (reason, message) = (text("reason"), text("message"));
    let (desired, current) = (number(budget, "desiredHealthy"), number(budget, "currentHealthy"));
    // upstream: the numbers of a budget that failed to sync can't be trusted
    if !message.is_empty() && reason == "SyncFailed" {
        format!(
            "The disruption budget {name} does not allow evicting pods currently because it failed sync: {message}"
        )
    } else if current <= desired {
        format!("The disruption budget {name} needs {desired} healthy pods and has {current} currently")
    } else if message.is_empty() {
        format!("The disruption budget {name} does not allow evicting pods currently")
    } else {
        format!("The disruption budget {name} does not allow evicting pods currently ({reason}): {message}")
    }
}

fn disrupted_budget(old: &Object, pod: &str, now: &str) -> Object {
    let mut budget = old.clone();
    let left = number(old, "disruptionsAllowed") - 1;
    let generation = number(old, "observedGeneration");
    let status = budget.section_mut("status");
    status.insert("disruptionsAllowed".to_owned(), json!(left));
    let pods = status.entry("disruptedPods").or_insert_with(|| json!({}));
    pods[pod] = json!(now);
    if left == 0 {
        let condition = json!({
            "type": "DisruptionAllowed", "status": "False", "reason": "InsufficientPods", "message": "",
            "observedGeneration": generation, "lastTransitionTime": now,
        });
        set_condition(status, condition);
    }
    budget
}

/// Says why the pod ends, then ends it.
fn mark_and_delete(shared: &Shared, target: &Target, options: &Options) -> Result<()> {
    let mut options = options.clone();
    if shared.config.gates.pod_disruption_conditions && !options.is_dry_run() {
        let now = shared.now_text();
        let written = write::update(shared, target, Scope::Server, None, false, |old| {
            options.check_preconditions(target.resource, old)?;
            Ok(disrupted(old, &now))
        })?
        .wait()?;
        // The condition is a write of its own, so a version that held before it holds after it.
        if let Some(Preconditions { resource_version: Some(version), .. }) = &mut options.preconditions {
            *version = written.revision.to_string();
        }
    }
    delete::object_at(shared, target.resource, &target.key(), &options)?;
    Ok(())
}

fn disrupted(old: &Object, now: &str) -> Object {
    let mut pod = old.clone();
    let condition = json!({
        "type": names::DISRUPTION_TARGET, "status": "True",
        "reason": names::disruption::EVICTION_BY_EVICTION_API, "message": "Eviction API: evicting",
        "lastTransitionTime": now,
    });
    set_condition(pod.section_mut("status"), condition);
    pod
}
