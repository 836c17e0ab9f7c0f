//! Namespaces: the finalizer that keeps one until it is empty, its phase, its label.

use serde_json::json;
use windlass_api::field::{Error, Path};

use super::{Context, Warnings};
use crate::object::Object;
use crate::status::{Result, Status};

/// The label by which selectors can name a namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

/// The label that says the name, whatever a client says.
pub(crate) fn set_name_label(object: &mut Object) {
    let name = object.name().to_owned();
    let labels = object.meta_mut().entry("labels").or_insert_with(|| json!({}));
    labels[NAME_LABEL] = json!(name);
}

pub(super) fn create(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    set_name_label(object);
    object.section_mut("spec").insert("finalizers".to_owned(), json!(["kubernetes"]));
    object.insert("status", json!({"phase": "Active"}));
    Ok(Warnings::new())
}

/// Only the `finalize` subresource changes `spec.finalizers`.
pub(super) fn update(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    object.copy_section(old, "spec");
    set_name_label(object);
    Ok(Warnings::new())
}

/// The phase follows from the deletion, and from nothing else.
pub(super) fn status(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let phase = object.text_at("status", "phase");
    let (wanted, why) = if old.is_deleting() {
        ("Terminating", "may only be 'Terminating' if `deletionTimestamp` is not empty")
    } else {
        ("Active", "may only be 'Active' if `deletionTimestamp` is empty")
    };
    if phase == wanted {
        return Ok(Warnings::new());
    }
    // upstream: the name of the field in Go
    let error = Error::invalid(&Path::new("status").child("Phase"), phase, why);
    Err(Status::invalid("", "Namespace", object.name(), &[error]))
}
