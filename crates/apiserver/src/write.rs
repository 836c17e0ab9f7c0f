//! PUT and PATCH: one path from a new state to the store, whatever made the new state.

use std::cell::RefCell;

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{Response, StatusCode};
use serde_json::Value;
use windlass_api::field;
use windlass_api::validation::meta as meta_rules;
use windlass_store::{Error, Record, Ticket};

use crate::body::{check_name, check_place, decode, typed_meta};
use crate::create::create_object;
use crate::decode::Validation;
use crate::hooks::{self, Context, Warnings};
use crate::managed::{self, Writer};
use crate::object::{Attributes, Draft, Object};
use crate::patch::Patch;
use crate::request::{Query, Target, media_type};
use crate::resources::Resource;
use crate::status::{Result, Status};
use crate::{Shared, admission, answer, apply};

/// How often a write that names no version starts over because another one came first. Each time somebody made
/// progress; the bound only keeps a request from going on for ever.
const CONFLICT_TRIES: usize = 100;

/// Which part of an object a write may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Everything but the status.
    Main,
    /// The status, labels, annotations and finalizers.
    Status,
    /// The finalizers in the spec of a namespace.
    Finalize,
    /// What the server itself changes: no rules but those of deletion.
    Server,
}

impl Scope {
    /// The subresource that is written.
    pub(crate) fn subresource(self) -> &'static str {
        match self {
            Self::Main | Self::Server => "",
            Self::Status => "status",
            Self::Finalize => "finalize",
        }
    }
}

/// What comes of a write once it is durable.
#[must_use = "a write that was not waited for may be lost"]
pub(crate) struct Written {
    pub(crate) bytes: Bytes,
    /// The revision of the object that is stored then.
    pub(crate) revision: u64,
    pub(crate) warnings: Warnings,
    /// Nothing when nothing had to be written.
    pub(crate) ticket: Option<Ticket<Attributes>>,
}

impl Written {
    /// What is on its way.
    pub(crate) fn begun(ticket: Ticket<Attributes>, warnings: Warnings) -> Self {
        let record = ticket.record();
        Self { bytes: record.bytes.clone(), revision: record.revision, warnings, ticket: Some(ticket) }
    }

    /// Waits for the disk.
    pub(crate) fn wait(mut self) -> Result<Self> {
        if let Some(ticket) = self.ticket.take() {
            ticket.wait().map_err(|error| Status::not_stored(&error))?;
        }
        Ok(self)
    }

    /// The answer that shows the object, to be sent when it is durable.
    pub(crate) fn answer(self, code: StatusCode, warnings: &[String]) -> Answer {
        let response = answer::object(code, self.bytes.clone(), warnings);
        self.told(response)
    }

    /// An answer that tells of it.
    pub(crate) fn told(self, response: Response<Body>) -> Answer {
        Answer { response, ticket: self.ticket }
    }
}

/// An answer that may be sent when what it tells is durable.
pub(crate) struct Answer {
    response: Response<Body>,
    ticket: Option<Ticket<Attributes>>,
}

impl Answer {
    /// Waits for the disk.
    pub(crate) async fn done(self) -> Result<Response<Body>> {
        if let Some(ticket) = self.ticket {
            ticket.done().await.map_err(|error| Status::not_stored(&error))?;
        }
        Ok(self.response)
    }
}

impl From<Response<Body>> for Answer {
    fn from(response: Response<Body>) -> Self {
        Self { response, ticket: None }
    }
}

/// PUT of an object or of its status.
pub(crate) fn replace(
    shared: &Shared,
    target: &Target,
    query: &Query,
    head: &Parts,
    body: &[u8],
    scope: Scope,
) -> Result<Answer> {
    let writer = Writer::parse(query, head, "UpdateOptions", scope.subresource())?;
    let (mut object, mut warnings) =
        decode(target.resource, body, Validation::parse(query, "UpdateOptions")?)?;
    check_place(&mut object, target)?;
    check_name(&object, target)?;
    let is_dry_run = query.dry_run("UpdateOptions")?;
    let updated = update(shared, target, scope, Some(&writer), is_dry_run, |_| Ok(object.clone()));
    match updated {
        Err(status) if status.is_not_found() && target.resource.create_on_update && scope == Scope::Main => {
            object.meta_mut().remove("resourceVersion");
            let mut written = create_object(shared, target, Some(&writer), object, None, is_dry_run)?;
            warnings.append(&mut written.warnings);
            Ok(written.answer(StatusCode::CREATED, &warnings))
        }
        updated => {
            let mut written = updated.map_err(|status| status.with_warnings(&warnings))?;
            warnings.append(&mut written.warnings);
            Ok(written.answer(StatusCode::OK, &warnings))
        }
    }
}

/// PATCH of an object or of its status.
pub(crate) fn patch(
    shared: &Shared,
    target: &Target,
    query: &Query,
    head: &Parts,
    body: &[u8],
    scope: Scope,
) -> Result<Answer> {
    if media_type(&head.headers) == apply::MEDIA_TYPE {
        return apply::apply(shared, target, query, head, body, scope);
    }
    let mut patch = Patch::parse(&head.headers, body)?;
    if query.flag("force").is_some() {
        let path = field::Path::new("force");
        let error = field::Error::forbidden(&path, "may not be specified for non-apply patch");
        return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
    }
    let writer = Writer::parse(query, head, "PatchOptions", scope.subresource())?;
    let validation = Validation::parse(query, "PatchOptions")?;
    let meant = if writer.is_own { patch.take_uid() } else { None };
    // Of the last try: an earlier one that was overtaken by another write does not count.
    let texts = RefCell::new(Warnings::new());
    let mut written = update(shared, target, scope, Some(&writer), query.dry_run("PatchOptions")?, |old| {
        let mut new = patch.apply(target.resource, old)?;
        if let Some(uid) = meant.as_deref().filter(|uid| *uid != old.uid()) {
            new.set_meta("uid", uid);
        }
        if !writer.is_own {
            texts.replace(patch.check_fields(target.resource, body, &new, old, validation)?);
        }
        check_place(&mut new, target)?;
        check_name(&new, target)?;
        apply::check_uid(target.resource, &new, old)?;
        Ok(new)
    })?;
    let mut warnings = texts.into_inner();
    warnings.append(&mut written.warnings);
    Ok(written.answer(StatusCode::OK, &warnings))
}

/// Changes an object: `change` makes the new state from the old. Starts over when another write came first, unless the
/// new state names the version it is based on.
pub(crate) fn update(
    shared: &Shared,
    target: &Target,
    scope: Scope,
    writer: Option<&Writer>,
    is_dry_run: bool,
    change: impl Fn(&Object) -> Result<Object>,
) -> Result<Written> {
    let key = target.key();
    let how = How { scope, writer, is_dry_run };
    for _ in 0..CONFLICT_TRIES {
        let record =
            shared.store.get(&key).ok_or_else(|| Status::not_found(target.resource, &target.name))?;
        let old = shared.recent.read(&record)?;
        let new = change(&old)?;
        if let Some(written) = try_update(shared, target, how, &record, &old, new)? {
            return Ok(written);
        }
    }
    Err(Status::modified(target.resource, &target.name))
}

/// How an object is changed.
#[derive(Clone, Copy)]
struct How<'a> {
    scope: Scope,
    /// Nobody when the new state says already who owns its fields.
    writer: Option<&'a Writer>,
    is_dry_run: bool,
}

/// `None` when another write came first.
fn try_update(
    shared: &Shared,
    target: &Target,
    How { scope, writer, is_dry_run }: How<'_>,
    record: &Record<Attributes>,
    old: &Object,
    mut new: Object,
) -> Result<Option<Written>> {
    let resource = target.resource;
    admission::node_restriction::update(target, old, &new)?;
    check_versions(target, scope, old, &mut new)?;
    let mut warnings = if new.is_same(old, "metadata") { Warnings::new() } else { new.dedup_owners() };
    let now = shared.now_text();
    let context = Context { gates: &shared.config.gates, now: &now, spec: None };
    match scope {
        Scope::Main => {
            warnings.extend(prepare_main(resource, &mut new, old, context)?);
            admission::validate(shared, resource, &new, false)?;
        }
        Scope::Status => warnings.extend(prepare_status(resource, &mut new, old, context)?),
        Scope::Finalize => warnings.extend(prepare_finalize(resource, &mut new, old)?),
        Scope::Server => {}
    }
    new.tidy(resource, Some(old));
    match writer {
        Some(writer) => managed::record_update(resource, writer, &mut new, old, &now),
        None => managed::keep_times(&mut new, old),
    }
    if new == *old {
        let (bytes, revision) = (record.bytes.clone(), record.revision);
        return Ok(Some(Written { bytes, revision, warnings, ticket: None }));
    }
    let draft = new.draft(resource);
    check_size(&draft)?;
    if is_dry_run {
        let revision = record.revision;
        return Ok(Some(Written { bytes: draft.stamp(revision), revision, warnings, ticket: None }));
    }
    let attributes = new.attributes(resource, Some((old, &record.attributes)));
    let stamp = |revision| draft.stamp(revision);
    let is_gone = is_released(&new, old);
    let stored = if is_gone {
        shared.store.begin_delete(&record.key, record.revision, attributes, stamp)
    } else {
        shared.store.begin_update(&record.key, record.revision, attributes, stamp)
    };
    match stored {
        Ok(ticket) if is_gone => {
            // upstream: an object that a write releases is shown at the revision it had
            let revision = record.revision;
            Ok(Some(Written { bytes: draft.stamp(revision), revision, warnings, ticket: Some(ticket) }))
        }
        Ok(ticket) => {
            shared.recent.keep(resource, ticket.record(), &draft, new);
            Ok(Some(Written::begun(ticket, warnings)))
        }
        Err(Error::Conflict(_)) => Ok(None),
        Err(Error::NotFound(_)) => Err(Status::not_found(resource, &target.name)),
        Err(Error::Log(error)) => Err(Status::not_stored(&error)),
        Err(error) => Err(Status::internal(&error.to_string())),
    }
}

/// Checks the UID and version that the new state names, and puts back what a client cannot change.
fn check_versions(target: &Target, scope: Scope, old: &Object, new: &mut Object) -> Result<()> {
    let resource = target.resource;
    if !matches!(new.uid(), "") && new.uid() != old.uid() {
        let (asked, found) = (new.uid(), old.uid());
        return Err(Status::another_uid(resource, &target.namespace, &target.name, asked, found));
    }
    match new.meta_text("resourceVersion") {
        "" | "0" if !resource.unconditional_update && scope != Scope::Server => {
            return Err(Status::version_required(resource, &target.name));
        }
        "" | "0" => {}
        given if given.parse::<u64>().is_err() => return Err(Status::no_version(given)),
        given if given != old.meta_text("resourceVersion") => {
            return Err(Status::modified(resource, &target.name));
        }
        _ => {}
    }
    for field in ["resourceVersion", "uid", "creationTimestamp", "selfLink"] {
        new.copy_meta(old, field);
    }
    if scope != Scope::Server {
        for field in ["generation", "generateName"] {
            new.copy_meta(old, field);
        }
        // upstream: a deletion can't be undone, and not be begun by a write either: that is refused later
        if old.is_deleting() {
            new.copy_meta(old, "deletionTimestamp");
            new.copy_meta(old, "deletionGracePeriodSeconds");
        }
    }
    Ok(())
}

fn prepare_main(
    resource: &Resource,
    new: &mut Object,
    old: &Object,
    context: Context<'_>,
) -> Result<Warnings> {
    if resource.has_status {
        new.copy_section(old, "status");
    }
    let warnings = (resource.hooks.update)(new, old, context)?;
    if resource.hooks.is_complete {
        return Ok(warnings);
    }
    check_meta_update(resource, new, old)?;
    if resource.has_generation && has_changed_spec(new, old) {
        new.set_meta("generation", old.generation() + 1);
    }
    Ok(warnings)
}

fn prepare_status(
    resource: &Resource,
    new: &mut Object,
    old: &Object,
    context: Context<'_>,
) -> Result<Warnings> {
    let is_touched = |field: &&str| !matches!(*field, "status" | "metadata") && !new.is_shared(old, field);
    let touched: Vec<String> =
        new.fields().chain(old.fields()).filter(is_touched).map(str::to_owned).collect();
    for field in &touched {
        new.copy_section(old, field);
    }
    let warnings = (resource.hooks.status)(new, old, context)?;
    if !resource.hooks.is_complete {
        check_meta_update(resource, new, old)?;
    }
    Ok(warnings)
}

/// upstream: namespaceFinalizeStrategy. Everything but the finalizers stays.
fn prepare_finalize(resource: &Resource, new: &mut Object, old: &Object) -> Result<Warnings> {
    new.copy_section(old, "status");
    hooks::set_name_label(new);
    check_meta_update(resource, new, old)?;
    Ok(Warnings::new())
}

/// upstream: what etcd takes in one request.
const OBJECT_BYTES_MAX: usize = 3 << 19;

/// Refuses an object that is too large to be stored.
pub(crate) fn check_size(draft: &Draft) -> Result<()> {
    if draft.size() > OBJECT_BYTES_MAX { Err(Status::object_too_large(OBJECT_BYTES_MAX)) } else { Ok(()) }
}

/// Metadata is looked at only when it was changed: most writes change a status or one finalizer.
pub(crate) fn check_meta_update(resource: &Resource, new: &Object, old: &Object) -> Result<()> {
    let errors = meta_update_errors(resource, new, old, true)?;
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Status::invalid(resource.group, resource.kind, new.name(), &errors))
    }
}

/// What is wrong with changed metadata. upstream: rest.BeforeUpdate looks first, as at the metadata of a new object and
/// as at a change, and then the strategy of the kind looks once more; the client is told all of it.
pub(crate) fn meta_update_errors(
    resource: &Resource,
    new: &Object,
    old: &Object,
    with_strategy: bool,
) -> Result<field::Errors> {
    if new.is_same(old, "metadata") {
        return Ok(field::Errors::new());
    }
    let path = field::Path::new("metadata");
    let (new_meta, old_meta) = (typed_meta(resource, new)?, typed_meta(resource, old)?);
    let any_name = |_: &str| Vec::new();
    let mut errors = if resource.namespaced {
        meta_rules::validate_object_meta(&new_meta, &path, any_name)
    } else {
        meta_rules::validate_cluster_object_meta(&new_meta, &path, any_name)
    };
    let update = meta_rules::validate_object_meta_update(&new_meta, &old_meta, &path);
    if with_strategy {
        errors.extend(update.iter().cloned());
    }
    errors.extend(update);
    Ok(errors)
}

/// Everything that is neither metadata nor status counts as spec.
fn has_changed_spec(new: &Object, old: &Object) -> bool {
    let mut fields =
        new.fields().chain(old.fields()).filter(|field| !matches!(*field, "metadata" | "status"));
    fields.any(|field| !new.is_same(old, field))
}

/// upstream: ShouldDeleteDuringUpdate. The last finalizer is gone, and nobody is waited for any more.
fn is_released(new: &Object, old: &Object) -> bool {
    old.is_deleting()
        && old.grace().unwrap_or(0) == 0
        && new.finalizers().is_empty()
        && namespace_finalizers(new) == 0
}

/// A namespace has a second list of finalizers, in its spec.
pub(crate) fn namespace_finalizers(object: &Object) -> usize {
    if object.get("kind").and_then(Value::as_str) != Some("Namespace") {
        return 0;
    }
    let list = object.get("spec").and_then(|spec| spec.get("finalizers")).and_then(Value::as_array);
    list.map_or(0, Vec::len)
}
