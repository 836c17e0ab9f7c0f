//! DELETE: preconditions, grace periods, finalizers and propagation policies.
//!
//! ```text
//!            grace > 0 (a bound, running pod)             finalizers
//!  live ───────────────────────────────────► terminating ───────────► kept until the last one is removed
//!    │  grace 0 or not graceful                   │ DELETE with grace 0
//!    └──────────────────────► finalizers? ◄───────┘
//!                             none: removed at once
//! ```

use axum::body::Body;
use bytes::{BufMut, BytesMut};
use http::{Response, StatusCode};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_store::{Error, Key};

use crate::form::Form;
use crate::go_json;
use crate::object::{self, Object};
use crate::read::{Selection, list_body};
use crate::request::{Query, Target, bad_dry_run};
use crate::resources::Resource;
use crate::status::{self, Result, Status};
use crate::write::namespace_finalizers;
use crate::{Shared, admission, answer, environment};

/// upstream: the namespaces that may not be deleted.
const IMMORTAL: [&str; 3] = ["default", "kube-public", "kube-system"];
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";
/// How often a delete starts over because another write came first.
const CONFLICT_TRIES: usize = 100;

/// How an object is to be deleted.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Options {
    pub(crate) grace_period_seconds: Option<i64>,
    pub(crate) preconditions: Option<Preconditions>,
    orphan_dependents: Option<bool>,
    propagation_policy: Option<String>,
    dry_run: Vec<String>,
    /// The first draft of the failure policy: why, for `status.reason` of a pod.
    reason: Option<String>,
    /// The node that asks, if it is one.
    #[serde(skip)]
    node: Option<String>,
}

/// What must hold for a delete to happen.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Preconditions {
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
}

impl Options {
    /// From the body, or from the query when there is none.
    pub(crate) fn parse(query: &Query, body: &[u8]) -> Result<Self> {
        let mut options: Self = if matches!(body.trim_ascii(), b"" | b"null") {
            let policy = query.text("propagationPolicy");
            Self {
                grace_period_seconds: query.number("gracePeriodSeconds")?,
                orphan_dependents: query.flag("orphanDependents"),
                propagation_policy: (!policy.is_empty()).then(|| policy.to_owned()),
                ..Self::default()
            }
        } else {
            let (mut value, _) = go_json::parse(body).map_err(Status::bad_request)?;
            object::strip_nulls(&mut value);
            check_options_type(&value)?;
            Self::deserialize(value)
                .map_err(|error| Status::bad_request(format!("decode DeleteOptions: {error}")))?
        };
        if query.dry_run("DeleteOptions")? && options.dry_run.is_empty() {
            options.dry_run.push("All".to_owned());
        }
        options.check()?;
        Ok(options)
    }

    fn check(&self) -> Result<()> {
        use windlass_api::field::{Error, Path};
        let policy = self.propagation_policy.as_deref();
        let mut errors = Vec::new();
        if let Some(policy) = policy {
            let path = Path::new("propagationPolicy");
            if self.orphan_dependents.is_some() {
                let why = "orphanDependents and deletionPropagation cannot be both set";
                errors.push(Error::invalid(&path, policy, why));
            }
            if !matches!(policy, "Foreground" | "Background" | "Orphan") {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                errors.push(Error::not_supported(&path, policy, &known));
            }
        }
        if self.dry_run.iter().any(|value| value != "All") {
            let values: Vec<&str> = self.dry_run.iter().map(String::as_str).collect();
            errors.push(bad_dry_run(&values));
        }
        if errors.is_empty() {
            Ok(())
        } else {
            Err(Status::invalid("meta.k8s.io", "DeleteOptions", "", &errors))
        }
    }

    /// What a client is told that deletes a Job and does not say what becomes of its pods.
    fn warnings(&self, resource: &Resource) -> Vec<String> {
        let is_said = self.propagation_policy.is_some() || self.orphan_dependents.is_some();
        if resource.orphans_by_default && !is_said {
            vec![windlass_api::warnings::PODS_ARE_PRESERVED.to_owned()]
        } else {
            Vec::new()
        }
    }

    /// The version that must be there.
    pub(crate) fn version(&self) -> Option<&str> {
        self.preconditions.as_ref()?.resource_version.as_deref()
    }

    /// The same, but only if the object is at this version; one that the client names counts more.
    pub(crate) fn at_version(&self, version: &str) -> Self {
        let mut options = self.clone();
        options
            .preconditions
            .get_or_insert_default()
            .resource_version
            .get_or_insert_with(|| version.to_owned());
        options
    }

    pub(crate) fn is_dry_run(&self) -> bool {
        !self.dry_run.is_empty()
    }

    /// The same, asked for by a node.
    fn by_node(self, node: Option<&String>) -> Self {
        Self { node: node.cloned(), ..self }
    }

    /// The same, for this reason unless the client gives one.
    pub(crate) fn because(mut self, reason: &str) -> Self {
        self.reason.get_or_insert_with(|| reason.to_owned());
        self
    }

    /// Whether this object, as it is now, may be deleted.
    pub(crate) fn check_preconditions(&self, resource: &Resource, object: &Object) -> Result<()> {
        if let Some(node) = self.node.as_deref().filter(|_| resource.plural == "pods") {
            admission::node_restriction::delete_pod(node, object)?;
        }
        let Some(wanted) = &self.preconditions else { return Ok(()) };
        if let Some(uid) = wanted.uid.as_deref().filter(|uid| *uid != object.uid()) {
            return Err(Status::uid_precondition(resource, object.name(), uid, object.uid()));
        }
        let found = object.meta_text("resourceVersion");
        if let Some(version) = wanted.resource_version.as_deref().filter(|version| *version != found) {
            return Err(Status::version_precondition(resource, object.name(), version, found));
        }
        Ok(())
    }
}

/// Options may say that they are options, of any group, and nothing else.
fn check_options_type(options: &Value) -> Result<()> {
    let text = |field: &str| options.get(field).and_then(Value::as_str).unwrap_or_default();
    match text("kind") {
        "" | "DeleteOptions" => Ok(()),
        kind => Err(Status::bad_request(go_json::unregistered(kind, text("apiVersion")))),
    }
}

/// What came of a delete.
#[derive(Debug)]
pub(crate) struct Deleted {
    /// The object as it is now, or as it was last.
    pub(crate) bytes: bytes::Bytes,
    pub(crate) uid: String,
    /// Whether it is gone.
    pub(crate) is_gone: bool,
}

/// DELETE of one object.
pub(crate) fn one(shared: &Shared, target: &Target, query: &Query, body: &[u8]) -> Result<Response<Body>> {
    let options = Options::parse(query, body)?.by_node(target.node.as_ref());
    let resource = target.resource;
    let is_system = admission::SYSTEM_CLASSES.iter().any(|(name, ..)| *name == target.name);
    if is_system && resource.plural == "priorityclasses" {
        let why = "this is a system priority class and cannot be deleted";
        return Err(Status::forbidden(resource, &target.name, why));
    }
    let deleted = object_at(shared, resource, &target.key(), &options)?;
    let warnings = options.warnings(resource);
    // upstream: only a client that asked for dependents to go the old way learns from the code that they have to go first
    let is_waiting = !deleted.is_gone && options.orphan_dependents == Some(false);
    let code = if is_waiting { StatusCode::ACCEPTED } else { StatusCode::OK };
    if resource.returns_deleted || !deleted.is_gone {
        return Ok(answer::object(code, deleted.bytes, &warnings));
    }
    let mut details = json!({"name": target.name, "kind": resource.plural, "uid": deleted.uid});
    if !resource.group.is_empty() {
        details["group"] = json!(resource.group);
    }
    Ok(answer::json(code, &status::success(code, Some(details)), &warnings))
}

/// DELETE of a collection.
pub(crate) fn collection(
    shared: &Shared,
    target: &Target,
    query: &Query,
    body: &[u8],
) -> Result<Response<Body>> {
    let resource = target.resource;
    if resource.plural == "namespaces" || (resource.namespaced && target.namespace.is_empty()) {
        return Err(Status::method_not_allowed());
    }
    let options = Options::parse(query, body)?.by_node(target.node.as_ref());
    let selection = Selection::parse(target, query)?;
    let list = shared.store.list(&target.prefix());
    let mut items = BytesMut::new();
    for record in list.records.iter().filter(|record| selection.matches(record)) {
        match object_at(shared, resource, &record.key, &options) {
            Ok(_) => {}
            Err(status) if status.is_not_found() => continue,
            Err(status) => return Err(status),
        }
        items.put_slice(if items.is_empty() { b"{" } else { b",{" });
        items.put_slice(object::list_item(resource, &record.bytes));
    }
    Ok(answer::object(
        StatusCode::OK,
        list_body(Form::OBJECT, target, list.revision, "", &items)?,
        &options.warnings(resource),
    ))
}

/// Deletes one object, or begins to.
pub(crate) fn object_at(
    shared: &Shared,
    resource: &'static Resource,
    key: &Key,
    options: &Options,
) -> Result<Deleted> {
    if resource.plural == "namespaces" && IMMORTAL.contains(&key.name()) {
        return Err(Status::namespace_protected(resource, key.name()));
    }
    for _ in 0..CONFLICT_TRIES {
        let record = shared.store.get(key).ok_or_else(|| Status::not_found(resource, key.name()))?;
        let old = shared.recent.read(&record)?;
        let mut object = old.clone();
        options.check_preconditions(resource, &object)?;
        let uid = object.uid().to_owned();
        let step = decide(shared, resource, &mut object, options);
        let draft = object.draft(resource);
        if step == Step::Keep || options.is_dry_run() {
            let bytes = if step == Step::Keep { record.bytes.clone() } else { draft.stamp(record.revision) };
            return Ok(Deleted { bytes, uid, is_gone: step == Step::Remove });
        }
        let attributes = object.attributes(resource, Some((&old, &record.attributes)));
        let stamp = |revision| draft.stamp(revision);
        let stored = match step {
            Step::Remove => shared.store.delete(key, record.revision, attributes, stamp),
            Step::Mark | Step::Keep => shared.store.update(key, record.revision, attributes, stamp),
        };
        match stored {
            Ok(record) => {
                return Ok(Deleted { bytes: record.bytes.clone(), uid, is_gone: step == Step::Remove });
            }
            Err(Error::Conflict(_)) => {}
            Err(Error::NotFound(_)) => return Err(Status::not_found(resource, key.name())),
            Err(Error::Log(error)) => return Err(Status::not_stored(&error)),
            Err(error) => return Err(Status::internal(&error.to_string())),
        }
    }
    Err(Status::modified(resource, key.name()))
}

/// What to do with the object that was prepared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Nothing: the delete was accepted before, and this one asks for no more.
    Keep,
    /// Store it: it is being deleted.
    Mark,
    /// Remove it.
    Remove,
}

/// upstream: rest.BeforeDelete and Store.Delete, in one step.
fn decide(shared: &Shared, resource: &Resource, object: &mut Object, options: &Options) -> Step {
    let now = shared.config.clock.now();
    let is_pod = resource.plural == "pods";
    let before = object.clone();
    let grace = if is_pod {
        match pod_grace(object, options, now) {
            Grace::Pending => return Step::Keep,
            Grace::Marked(grace) => Some(grace),
            Grace::Over => None,
        }
    } else {
        None
    };
    if resource.has_dependents {
        set_propagation(resource, object, options);
    }
    if resource.plural == "namespaces" {
        object.section_mut("status").insert("phase".to_owned(), json!("Terminating"));
    }
    let is_held = !object.finalizers().is_empty() || namespace_finalizers(object) > 0;
    if resource.plural == "namespaces" {
        // upstream: a namespace has a way of its own, that knows no grace
        if !object.is_deleting() {
            object.set_meta("deletionTimestamp", environment::text(now));
            object.bump_generation();
        }
    } else if grace.is_none() && is_held {
        mark(object, now);
    }
    if is_pod && shared.config.gates.retriable_and_non_retriable_failures {
        set_reason(object, options);
    }
    match (is_held || grace.is_some_and(|grace| grace > 0), *object == before) {
        (false, _) => Step::Remove,
        (true, true) => Step::Keep,
        (true, false) => Step::Mark,
    }
}

enum Grace {
    /// Being deleted with a period that is not longer than the one asked for.
    Pending,
    /// `metadata` now says this period.
    Marked(i64),
    /// Being deleted, and its period is over: only finalizers keep it.
    Over,
}

/// The period of a pod. upstream: podStrategy.CheckGracefulDelete and rest.BeforeDelete.
fn pod_grace(object: &mut Object, options: &Options, now: Timestamp) -> Grace {
    if !object.is_deleting() {
        let period = first_period(object, options);
        set_deletion(object, now + SignedDuration::from_secs(period), period);
        object.bump_generation();
        return Grace::Marked(period);
    }
    let Some(running) = object.grace().filter(|grace| *grace > 0) else { return Grace::Over };
    let Some(asked) = options.grace_period_seconds.filter(|asked| *asked < running) else {
        return Grace::Pending;
    };
    let mut period = asked.max(0);
    let end: Option<Timestamp> = object.meta_text("deletionTimestamp").parse().ok();
    let started = end.map_or(now, |end| end - SignedDuration::from_secs(running));
    let mut end = started + SignedDuration::from_secs(period);
    if end < now {
        end = now;
        period = period.min(1);
    }
    set_deletion(object, end, period);
    Grace::Marked(period)
}

/// The period of a first delete: none for a pod that no node runs.
fn first_period(object: &Object, options: &Options) -> i64 {
    let spec = object.get("spec");
    let own = spec.and_then(|spec| spec.get("terminationGracePeriodSeconds")).and_then(Value::as_i64);
    let period = options.grace_period_seconds.or(own).unwrap_or(0);
    let is_unscheduled = object.text_at("spec", "nodeName").is_empty();
    let is_terminal = matches!(object.text_at("status", "phase"), "Succeeded" | "Failed");
    match period {
        _ if is_unscheduled || is_terminal => 0,
        ..0 => 1,
        period => period,
    }
}

fn set_deletion(object: &mut Object, end: Timestamp, period: i64) {
    object.set_meta("deletionTimestamp", environment::text(end));
    object.set_meta("deletionGracePeriodSeconds", period);
}

/// upstream: markAsDeleting. For kinds without grace, and for pods whose grace is over.
fn mark(object: &mut Object, now: Timestamp) {
    if object.grace().is_none() {
        object.bump_generation();
    }
    let end: Option<Timestamp> = object.meta_text("deletionTimestamp").parse().ok();
    let end = end.filter(|end| *end <= now).unwrap_or(now);
    set_deletion(object, end, 0);
}

/// upstream: deletionFinalizersForGarbageCollection. What is asked for, else what is there, else the kind's default.
fn set_propagation(resource: &Resource, object: &mut Object, options: &Options) {
    let finalizers = object.finalizers();
    let wanted = match (options.orphan_dependents, options.propagation_policy.as_deref()) {
        (Some(true), _) | (None, Some("Orphan")) => Some(ORPHAN),
        (None, Some("Foreground")) => Some(FOREGROUND),
        (Some(false), _) | (None, Some(_)) => None,
        (None, None) if finalizers.contains(&ORPHAN) => Some(ORPHAN),
        (None, None) if finalizers.contains(&FOREGROUND) => Some(FOREGROUND),
        (None, None) if resource.orphans_by_default => Some(ORPHAN),
        (None, None) => None,
    };
    let has = |finalizer| finalizers.contains(&finalizer);
    if has(ORPHAN) == (wanted == Some(ORPHAN)) && has(FOREGROUND) == (wanted == Some(FOREGROUND)) {
        return;
    }
    let mut finalizers: Vec<String> = finalizers
        .into_iter()
        .filter(|finalizer| !matches!(*finalizer, ORPHAN | FOREGROUND))
        .map(str::to_owned)
        .collect();
    finalizers.extend(wanted.map(str::to_owned));
    if finalizers.is_empty() {
        object.meta_mut().remove("finalizers");
    } else {
        object.set_meta("finalizers", finalizers);
    }
}

/// The first draft of the failure policy: `DeleteOptions.reason` ends in `status.reason`, where rules can match it.
fn set_reason(object: &mut Object, options: &Options) {
    if let Some(reason) = options.reason.as_deref().filter(|reason| !reason.is_empty()) {
        object.section_mut("status").insert("reason".to_owned(), json!(reason));
    }
}
