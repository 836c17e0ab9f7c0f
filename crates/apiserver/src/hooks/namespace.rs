//! Namespaces: the finalizer that keeps one until it is empty, its phase, its label.

use serde_json::json;

use super::{Context, Warnings};
use crate::object::Object;
use crate::status::Result;

/// The label by which selectors can name a namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) fn create(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    let name = object.name().to_owned();
    let labels = object.meta_mut().entry("labels").or_insert_with(|| json!({}));
    labels[NAME_LABEL] = json!(name);
    object.section_mut("spec").insert("finalizers".to_owned(), json!(["kubernetes"]));
    object.insert("status", json!({"phase": "Active"}));
    Ok(Warnings::new())
}

/// Only the `finalize` subresource changes `spec.finalizers`.
pub(super) fn update(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    object.copy_section(old, "spec");
    Ok(Warnings::new())
}
