//! POST: a name, the server's part of `metadata`, the kind's hook, and one attempt at the store.

use std::sync::Arc;

use http::StatusCode;
use windlass_api::field;
use windlass_api::validation::meta as meta_rules;
use windlass_store::{Error, Key};

use crate::body::{check_place, decode, typed_meta};
use crate::decode::Validation;
use crate::hooks::Context;
use crate::managed::{self, Additions, Writer};
use crate::object::Object;
use crate::request::{Query, Target};
use crate::resources::Resource;
use crate::specs::Spec;
use crate::status::{Result, Status};
use crate::write::{Answer, Written, check_size};
use crate::{Accounts, Shared, admission, bootstrap, environment, pods};

/// upstream: how many generated names are tried.
const GENERATE_TRIES: usize = 8;

/// POST to a collection.
pub(crate) fn create(
    shared: &Shared,
    target: &Target,
    query: &Query,
    writer: &Writer,
    body: &[u8],
) -> Result<Answer> {
    let validation = Validation::parse(query, "CreateOptions")?;
    let (object, mut warnings, spec) = match known(shared, target.resource, writer, body) {
        Some((pod, spec)) => (pod, Vec::new(), Some(spec)),
        None => {
            let (object, warnings) = decode(target.resource, body, validation)?;
            (object, warnings, None)
        }
    };
    let is_dry_run = query.dry_run("CreateOptions")?;
    let mut written = create_object(shared, target, Some(writer), object, spec.as_deref(), is_dry_run)
        .map_err(|status| status.with_warnings(&warnings))?;
    warnings.append(&mut written.warnings);
    Ok(written.answer(StatusCode::CREATED, &warnings))
}

/// A pod of a component of this process whose spec is known. Where accounts mean something, admission changes each spec.
fn known(shared: &Shared, resource: &Resource, writer: &Writer, body: &[u8]) -> Option<(Object, Arc<Spec>)> {
    let may_be = writer.is_own && resource.plural == "pods" && shared.config.accounts == Accounts::Ignored;
    let context = Context { gates: &shared.config.gates, now: "", spec: None };
    may_be.then(|| shared.specs.read(body, context)).flatten()
}

/// Stores a new object. Without a writer it says already who owns its fields.
pub(crate) fn create_object(
    shared: &Shared,
    target: &Target,
    writer: Option<&Writer>,
    mut object: Object,
    spec: Option<&Spec>,
    is_dry_run: bool,
) -> Result<Written> {
    let resource = target.resource;
    check_place(&mut object, target)?;
    let given = writer.filter(|writer| !writer.is_own).map(|_| object.clone());
    admission::create(shared, target, &mut object)?;
    let additions = given.map(|given| Additions::new(resource, &given, &object)).unwrap_or_default();
    if !matches!(object.meta_text("resourceVersion"), "" | "0") {
        return Err(Status::version_on_create());
    }
    let base =
        if object.name().is_empty() { object.meta_text("generateName").to_owned() } else { String::new() };
    let writer = writer.map(|writer| (writer, &additions));
    if base.is_empty() {
        let namespace = object.namespace().to_owned();
        return create_named(shared, resource, writer, object, spec, is_dry_run)?
            .map_err(|existing| taken_status(shared, resource, &namespace, &existing));
    }
    let mut taken = base.clone();
    for _ in 0..GENERATE_TRIES {
        let mut candidate = object.clone();
        candidate.set_meta("name", environment::generated_name(&base, shared.config.entropy.next()));
        match create_named(shared, resource, writer, candidate, spec, is_dry_run)? {
            Ok(written) => return Ok(written),
            Err(existing) => taken = existing,
        }
    }
    Err(Status::no_unique_name(resource, &taken))
}

fn taken_status(shared: &Shared, resource: &'static Resource, namespace: &str, name: &str) -> Status {
    let record = shared.store.get(&Key::new(resource.plural, namespace, name));
    let existing = record.and_then(|record| Object::from_stored(&record.bytes).ok());
    if existing.is_some_and(|existing| existing.is_deleting()) {
        Status::still_deleting(resource, name)
    } else {
        Status::already_exists(resource, name)
    }
}

/// The inner error is the name that is taken.
fn create_named(
    shared: &Shared,
    resource: &'static Resource,
    writer: Option<(&Writer, &Additions)>,
    mut object: Object,
    spec: Option<&Spec>,
    is_dry_run: bool,
) -> Result<std::result::Result<Written, String>> {
    let now = shared.now_text();
    for field in ["selfLink", "deletionTimestamp", "deletionGracePeriodSeconds", "resourceVersion"] {
        object.remove_meta(field);
    }
    object.set_meta("uid", environment::uid(shared.config.entropy.next()));
    object.set_meta("creationTimestamp", now.as_str());
    if resource.has_generation {
        object.set_meta("generation", 1);
    }
    let mut warnings = object.dedup_owners();
    let context = Context { gates: &shared.config.gates, now: &now, spec };
    warnings.extend((resource.hooks.create)(&mut object, context)?);
    if !resource.hooks.is_complete {
        check_meta(resource, &object)?;
    }
    admission::validate(shared, resource, &object, true)?;
    let is_pod = resource.plural == "pods";
    let placed = if is_pod && !is_dry_run { pods::place(shared, &mut object, spec, &now) } else { None };
    object.tidy(resource, spec.and_then(|spec| spec.part_of(&object)).cloned().as_ref());
    if let Some((writer, additions)) = writer {
        managed::record_create(resource, writer, &mut object, additions, &now);
    }
    let key = Key::new(resource.plural, object.namespace(), object.name());
    let draft = object.draft(resource);
    check_size(&draft)?;
    if is_dry_run {
        if shared.store.get(&key).is_some() {
            return Ok(Err(object.name().to_owned()));
        }
        return Ok(Ok(Written { bytes: draft.unstamped(), revision: 0, warnings, ticket: None }));
    }
    let attributes = object.attributes(resource, None);
    match shared.store.begin_create(key, attributes, |revision| draft.stamp(revision)) {
        Ok(ticket) => {
            if let Some(placed) = placed {
                placed.keep();
            }
            if resource.plural == "namespaces" {
                let written = Written::begun(ticket, warnings).wait()?;
                bootstrap::fill(shared, object.name());
                return Ok(Ok(written));
            }
            shared.recent.keep(resource, ticket.record(), &draft, object);
            Ok(Ok(Written::begun(ticket, warnings)))
        }
        Err(Error::Exists(_)) => Ok(Err(object.name().to_owned())),
        Err(Error::Log(error)) => Err(Status::not_stored(&error)),
        Err(error) => Err(Status::internal(&error.to_string())),
    }
}

/// The rules of `metadata` that hold for every kind.
fn check_meta(resource: &Resource, object: &Object) -> Result<()> {
    let meta = typed_meta(resource, object)?;
    let path = field::Path::new("metadata");
    let errors = if resource.namespaced {
        meta_rules::validate_object_meta(&meta, &path, meta_rules::dns1123_subdomain)
    } else {
        let rule = if resource.plural == "namespaces" {
            meta_rules::dns1123_label
        } else {
            meta_rules::dns1123_subdomain
        };
        meta_rules::validate_cluster_object_meta(&meta, &path, rule)
    };
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(resource.group, resource.kind, object.name(), &errors))
    }
}
