//! Pods: defaults, the first status, and what a status write may not change.

use k8s_openapi::api::core::v1::Pod;
use serde_json::json;
use windlass_api::defaults;

use super::{Context, Warnings};
use crate::object::Object;
use crate::resources;
use crate::status::Result;
use crate::view;

pub(super) fn create(object: &mut Object, context: Context<'_>) -> Result<Warnings> {
    object.0.remove("status");
    view::edit(resources::core("pods"), object, |pod: &mut Pod| {
        defaults::pod::default_pod(pod);
        pod.status = pod.spec.as_ref().map(defaults::pod::initial_status);
    })?;
    let conditions = object.section_mut("status").get_mut("conditions");
    for condition in conditions.into_iter().filter_map(|list| list.as_array_mut()).flatten() {
        condition["lastTransitionTime"] = json!(context.now);
    }
    Ok(Warnings::new())
}

pub(super) fn update(_: &mut Object, _: &Object, _: Context<'_>) -> Result<Warnings> {
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
    Ok(Warnings::new())
}
