//! Pods: defaults, the first status, validation, and what a status write may not change.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use windlass_api::field::Errors;
use windlass_api::{defaults, validation, warnings};

use super::{Context, Warnings, pod_status};
use crate::body::typed_meta;
use crate::object::Object;
use crate::resources;
use crate::specs::Spec;
use crate::status::Result;
use crate::{admission, view, write};

fn check(object: &Object, errors: &Errors) -> Result<()> {
    super::check(resources::core("pods"), object, errors)
}

pub(super) fn create(object: &mut Object, context: Context<'_>) -> Result<Warnings> {
    if let Some(spec) = context.spec.filter(|spec| spec.is_in(object)) {
        return create_known(object, spec);
    }
    object.remove("status");
    let pod = view::edit(resources::core("pods"), object, |pod: &mut Pod| {
        defaults::pod::default_pod(pod);
        pod.status = pod.spec.as_ref().map(defaults::pod::initial_status);
    })?;
    check(object, &validation::pod::validate_pod_create(&pod))?;
    let conditions = object.section_mut("status").get_mut("conditions");
    for condition in conditions.into_iter().filter_map(|list| list.as_array_mut()).flatten() {
        condition["lastTransitionTime"] = json!(context.now);
    }
    Ok(warnings::pod_on_create(&pod))
}

/// Of a pod whose spec is known only the metadata are looked at.
fn create_known(object: &mut Object, spec: &Spec) -> Result<Warnings> {
    let metadata = typed_meta(resources::core("pods"), object)?;
    let pod = Pod { metadata, ..Pod::default() };
    let node = object.text_at("spec", "nodeName");
    check(object, &validation::pod::validate_pod_meta(&pod.metadata, node))?;
    spec.begin(object);
    Ok(warnings::pod_on_create(&pod))
}

/// Most writes of a pod release a finalizer or change labels: they cost no typed view.
pub(super) fn update(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let resource = resources::core("pods");
    let annotations = |object: &Object| object.meta().and_then(|meta| meta.get("annotations")).cloned();
    if object.is_same(old, "spec") && annotations(object) == annotations(old) {
        write::check_meta_update(resource, object, old)?;
        return Ok(Warnings::new());
    }
    admission::update_pod(object, old);
    let before: Pod = view::read(resource, old)?;
    let pod = view::edit(resource, object, defaults::pod::default_pod)?;
    let mut errors = write::meta_update_errors(resource, object, old, false)?;
    errors.extend(validation::pod::validate_pod_update(&pod, &before));
    check(object, &errors)?;
    if !object.is_same(old, "spec") {
        object.set_meta("generation", old.generation() + 1);
    }
    Ok(Warnings::new())
}

/// upstream: podStatusStrategy. Owners are not changed by a status write, and a QoS class is never lost.
pub(super) fn status(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    object.copy_meta(old, "ownerReferences");
    if object.text_at("status", "qosClass").is_empty() {
        let class = old.text_at("status", "qosClass").to_owned();
        if !class.is_empty() {
            object.section_mut("status").insert("qosClass".to_owned(), json!(class));
        }
    }
    let resource = resources::core("pods");
    let mut errors = write::meta_update_errors(resource, object, old, true)?;
    if !object.is_same(old, "status") {
        errors.extend(pod_status::check(object, old));
    }
    check(object, &errors)?;
    Ok(Warnings::new())
}
