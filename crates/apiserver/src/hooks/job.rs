//! Jobs: defaults, strategy, validation and warnings of `windlass_api`, applied to the raw object through a view.

use k8s_openapi::api::batch::v1::Job;
use serde_json::Value;
use windlass_api::field::Errors;
use windlass_api::{Gates, defaults, strategy, validation, warnings};

use super::{Context, Warnings};
use crate::object::Object;
use crate::resources::{self, Resource};
use crate::status::Result;
use crate::{view, write};

fn resource() -> &'static Resource {
    resources::find("batch", "v1", "jobs").expect("a row of the table")
}

fn check(object: &Object, errors: &Errors) -> Result<()> {
    super::check(resource(), object, errors)
}

/// The spec in its raw form, which is what the rules of the draft policy look at.
fn raw_spec(object: &Object) -> Value {
    object.to_value(|field| field == "spec")
}

/// Drops the draft policy where its gate says so.
fn drop_draft(object: &mut Object, old: Option<&Value>, gates: &Gates) -> Value {
    let mut raw = raw_spec(object);
    strategy::drop_disabled_draft(&mut raw, old, gates);
    if let Some(spec) = raw.get("spec").filter(|spec| object.get("spec") != Some(spec)) {
        object.insert("spec", spec.clone());
    }
    raw
}

/// Whether the Job or its template says anything of labels.
fn has_labels(object: &Object) -> bool {
    let template = object.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels"));
    object.meta().is_some_and(|meta| meta.contains_key("labels")) || template.is_some()
}

pub(super) fn create(object: &mut Object, context: Context<'_>) -> Result<Warnings> {
    let gates = context.gates;
    object.remove("status");
    let has_labels = has_labels(object);
    let job = view::edit(resource(), object, |job: &mut Job| {
        strategy::default_and_prepare_for_create(job, gates);
    })?;
    let mut errors = validation::job::validate_create(&job, gates);
    // upstream: labels of the template that the server makes become those of the Job when it is read back
    errors.retain(|error| has_labels || error.path.to_string() != "metadata.labels");
    let raw = drop_draft(object, None, gates);
    errors.extend(validation::job::validate_draft(&raw, &job, gates));
    check(object, &errors)?;
    Ok(warnings::on_create(&job))
}

pub(super) fn update(object: &mut Object, old: &Object, context: Context<'_>) -> Result<Warnings> {
    let gates = context.gates;
    let before: Job = view::read(resource(), old)?;
    let job = view::edit(resource(), object, |job: &mut Job| {
        defaults::job::apply_with(job, gates);
        strategy::prepare_for_update(job, &before, gates);
    })?;
    let old_raw = raw_spec(old);
    let mut errors = write::meta_update_errors(resource(), object, old, false)?;
    errors.extend(validation::job_update::validate_update(&job, &before, gates));
    let raw = drop_draft(object, Some(&old_raw), gates);
    errors.extend(validation::job_update::validate_draft_update(&raw, &old_raw));
    check(object, &errors)?;
    Ok(warnings::on_update(&job, &before))
}

pub(super) fn status(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let before: Job = view::read(resource(), old)?;
    let job =
        view::edit(resource(), object, |job: &mut Job| strategy::prepare_for_status_update(job, &before))?;
    let mut errors = write::meta_update_errors(resource(), object, old, false)?;
    errors.extend(validation::job_status::validate_status_update(&job, &before));
    check(object, &errors)?;
    Ok(Warnings::new())
}
