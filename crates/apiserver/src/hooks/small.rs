//! Kinds with few rules: Leases, Events, Nodes, Services.

use serde_json::{Value, json};
use windlass_api::field::{Error, Errors, Path};
use windlass_api::validation::meta as meta_rules;

use super::{Context, Warnings, finish, new_meta, same_meta};
use crate::object::Object;
use crate::resources::{self, Resource};
use crate::status::Result;

fn lease() -> &'static Resource {
    resources::find("coordination.k8s.io", "v1", "leases").expect("a row of the table")
}

fn number(object: &Object, field: &str) -> Option<i64> {
    object.get("spec").and_then(|spec| spec.get(field)).and_then(Value::as_i64)
}

pub(super) fn create_lease(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    let mut errors = new_meta(lease(), object)?;
    errors.extend(check_lease(object));
    finish(lease(), object, &errors)
}

pub(super) fn update_lease(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let mut errors = same_meta(lease(), object, old)?;
    errors.extend(check_lease(object));
    finish(lease(), object, &errors)
}

fn check_lease(object: &Object) -> Errors {
    let path = Path::new("spec");
    let mut errors = Errors::new();
    if let Some(seconds) = number(object, "leaseDurationSeconds").filter(|seconds| *seconds <= 0) {
        errors.push(Error::invalid(&path.child("leaseDurationSeconds"), seconds, "must be greater than 0"));
    }
    if let Some(count) = number(object, "leaseTransitions").filter(|count| *count < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(Error::invalid(&path.child("leaseTransitions"), count, why));
    }
    let strategy = object.text_at("spec", "strategy");
    if strategy.is_empty() && !object.text_at("spec", "preferredHolder").is_empty() {
        let why = "may only be specified if `strategy` is defined";
        errors.push(Error::forbidden(&path.child("preferredHolder"), why));
    }
    errors
}

/// upstream: legacyValidateEvent, the rules of core/v1.
pub(super) fn create_event(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    let resource = resources::core("events");
    let errors = check_event(object);
    finish(resource, object, &errors)
}

pub(super) fn update_event(object: &mut Object, _: &Object, context: Context<'_>) -> Result<Warnings> {
    create_event(object, context)
}

fn check_event(object: &Object) -> Errors {
    let text = |field: &str| object.get(field).and_then(Value::as_str).unwrap_or_default();
    let mut errors = Errors::new();
    let about = object.text_at("involvedObject", "namespace");
    let place = object.namespace();
    let has_time = !text("eventTime").is_empty();
    let agrees = match (has_time, about) {
        (false, "") => matches!(place, "" | "default"),
        (false, about) => about == place,
        (true, "") => matches!(place, "default" | "kube-system"),
        (true, _) => true,
    };
    if !agrees {
        let path = Path::new("involvedObject").child("namespace");
        errors.push(Error::invalid(&path, about, "does not match event.namespace"));
    }
    if has_time {
        let reporter = text("reportingComponent");
        let path = Path::new("reportingComponent");
        if reporter.is_empty() {
            errors.push(Error::required(&path, ""));
        }
        errors.extend(meta_rules::each(&path, reporter, meta_rules::qualified_name(reporter)));
        for field in ["reportingInstance", "action", "reason"] {
            let path = Path::new(field);
            if text(field).is_empty() {
                errors.push(Error::required(&path, ""));
            }
            if text(field).len() > 128 {
                errors.push(Error::invalid(&path, "", "can have at most 128 characters"));
            }
        }
        if text("message").len() > 1024 {
            errors.push(Error::invalid(&Path::new("message"), "", "can have at most 1024 characters"));
        }
    }
    errors
}

pub(super) fn create_node(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    let resource = resources::core("nodes");
    let mut errors = new_meta(resource, object)?;
    errors.extend(check_taints(object));
    default_allocatable(object);
    finish(resource, object, &errors)
}

pub(super) fn update_node(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let resource = resources::core("nodes");
    let mut errors = same_meta(resource, object, old)?;
    let path = Path::new("spec");
    let has_cidrs = |object: &Object| object.get("spec").and_then(|spec| spec.get("podCIDRs")).cloned();
    if let Some(before) = has_cidrs(old)
        && before.as_array().is_some_and(|list| !list.is_empty())
        && has_cidrs(object).as_ref() != Some(&before)
    {
        let why = "node updates may not change podCIDR except from \"\" to valid";
        errors.push(Error::forbidden(&path.child("podCIDRs"), why));
    }
    let before = old.text_at("spec", "providerID");
    if !before.is_empty() && before != object.text_at("spec", "providerID") {
        let why = "node updates may not change providerID except from \"\" to valid";
        errors.push(Error::forbidden(&path.child("providerID"), why));
    }
    errors.extend(check_taints(object));
    finish(resource, object, &errors)
}

pub(super) fn status_node(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let resource = resources::core("nodes");
    default_allocatable(object);
    let errors = same_meta(resource, object, old)?;
    finish(resource, object, &errors)
}

/// upstream: SetDefaults_NodeStatus.
fn default_allocatable(object: &mut Object) {
    let Some(capacity) = object.get("status").and_then(|status| status.get("capacity")).cloned() else {
        return;
    };
    object.section_mut("status").entry("allocatable").or_insert(capacity);
}

/// upstream: names these `metadata.taints`.
fn check_taints(object: &Object) -> Errors {
    let mut errors = Errors::new();
    let mut seen: Vec<(&str, &str)> = Vec::new();
    let taints = object.get("spec").and_then(|spec| spec.get("taints")).and_then(Value::as_array);
    for (i, taint) in taints.into_iter().flatten().enumerate() {
        let path = Path::new("metadata").child("taints").index(i);
        let text = |field: &str| taint[field].as_str().unwrap_or_default();
        let (key, value, effect) = (text("key"), text("value"), text("effect"));
        errors.extend(meta_rules::each(&path.child("key"), key, meta_rules::qualified_name(key)));
        let wrong = meta_rules::label_value(value);
        if !wrong.is_empty() {
            errors.push(Error::invalid(&path.child("value"), value, wrong.join(";")));
        }
        let effects = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
        match effect {
            "" => errors.push(Error::required(&path.child("effect"), "")),
            known if effects.contains(&known) => {}
            other => errors.push(Error::not_supported(&path.child("effect"), other, &effects)),
        }
        if seen.contains(&(key, effect)) {
            let mut shown = json!({"Key": key, "Value": value, "Effect": effect});
            shown["TimeAdded"] = Value::Null;
            let error = Error::duplicate(&path, shown);
            errors.push(Error { detail: "taints must be unique by key and effect pair".to_owned(), ..error });
            continue;
        }
        seen.push((key, effect));
    }
    errors
}

/// Defaults of a Service. No address is given to it: nobody would answer there.
pub(super) fn create_service(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    default_service(object);
    object.insert("status", json!({"loadBalancer": {}}));
    let resource = resources::core("services");
    let mut errors = super::new_meta_named(resource, object, meta_rules::dns1035_label)?;
    errors.extend(check_service(object));
    finish(resource, object, &errors)
}

pub(super) fn update_service(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    default_service(object);
    let resource = resources::core("services");
    let mut errors = same_meta(resource, object, old)?;
    errors.extend(check_service(object));
    finish(resource, object, &errors)
}

fn default_service(object: &mut Object) {
    let spec = object.section_mut("spec");
    for (field, value) in [("sessionAffinity", "None"), ("type", "ClusterIP")] {
        spec.entry(field).or_insert_with(|| json!(value));
    }
    if spec.get("type").and_then(Value::as_str) != Some("ExternalName") {
        spec.entry("internalTrafficPolicy").or_insert_with(|| json!("Cluster"));
    }
    for port in spec.get_mut("ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(port) = port.as_object_mut() {
            port.entry("protocol").or_insert_with(|| json!("TCP"));
            let number = port.get("port").cloned().unwrap_or_default();
            port.entry("targetPort").or_insert(number);
        }
    }
}

fn check_service(object: &Object) -> Errors {
    let path = Path::new("spec");
    let mut errors = Errors::new();
    let ports = object.get("spec").and_then(|spec| spec.get("ports")).and_then(Value::as_array);
    let is_headless = object.text_at("spec", "clusterIP") == "None";
    let kind = object.text_at("spec", "type");
    if ports.is_none_or(Vec::is_empty) && !is_headless && kind != "ExternalName" {
        errors.push(Error::required(&path.child("ports"), ""));
    }
    for (i, port) in ports.into_iter().flatten().enumerate() {
        let number = port["port"].as_i64().unwrap_or(0);
        if !(1..=65535).contains(&number) {
            let at = path.child("ports").index(i).child("port");
            errors.push(Error::invalid(&at, number, "must be between 1 and 65535, inclusive"));
        }
    }
    let kinds = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
    if !kinds.contains(&kind) {
        errors.push(Error::not_supported(&path.child("type"), kind, &kinds));
    }
    errors
}
