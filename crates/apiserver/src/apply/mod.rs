//! Server-side apply: a configuration is laid over the object, and its fields belong to who applied it.
//!
//! ```text
//!  config ──► check (its type) ──► merge over the live object ──► prune (what was applied before and is no more)
//!                                                                   │
//!       changed fields that others own: conflict, or taken by force ◄── diff with the live object
//!                                                                   │
//!                                  create, or the path of every update
//! ```

mod check;
mod merge;
mod ownership;

use http::StatusCode;
use http::request::Parts;
use serde_json::{Value, json};
use windlass_api::field;

use crate::body::{check_name, check_place};
use crate::create::create_object;
use crate::decode::Validation;
use crate::fields::{self, Type};
use crate::hooks::Warnings;
use crate::managed::Writer;
use crate::object::{self, Object};
use crate::request::{Query, Target};
use crate::resources::Resource;
use crate::status::{Result, Status};
use crate::write::{self, Answer, Scope};
use crate::{Shared, yaml};

use ownership::Applier;

/// The type of the body of an apply.
pub(crate) const MEDIA_TYPE: &str = "application/apply-patch+yaml";

/// PATCH of an object or of its status with a configuration.
pub(crate) fn apply(
    shared: &Shared,
    target: &Target,
    query: &Query,
    head: &Parts,
    body: &[u8],
    scope: Scope,
) -> Result<Answer> {
    if query.text("fieldManager").is_empty() {
        let path = field::Path::new("fieldManager");
        let error = field::Error::required(&path, "is required for apply patch");
        return Err(Status::invalid("meta.k8s.io", "PatchOptions", "", &[error]));
    }
    let writer = Writer::parse(query, head, "PatchOptions", scope.subresource())?;
    let validation = Validation::parse(query, "PatchOptions")?;
    let is_dry_run = query.dry_run("PatchOptions")?;
    let resource = target.resource;
    let ty = fields::of_kind(resource.api_version, resource.kind)
        .ok_or_else(|| Status::internal(&format!("the fields of {} are not known", resource.kind)))?;
    let config =
        Config { resource, ty, value: read(body)?, writer, force: query.flag("force").unwrap_or(false) };
    let warnings = || check_duplicates(body, validation);
    let updated = write::update(shared, target, scope, None, is_dry_run, |old| {
        let new = config.over(Some(old), &shared.now_text())?;
        check_uid(resource, &new, old)?;
        warnings()?;
        place(new, target)
    });
    let (code, mut written) = match updated {
        Err(status) if status.is_not_found() && scope == Scope::Main => {
            let mut new = config.over(None, &shared.now_text())?;
            if !new.uid().is_empty() {
                return Err(Status::no_object_of_uid(resource, &target.name, new.uid()));
            }
            warnings()?;
            new.remove_meta("resourceVersion");
            let new = place(new, target)?;
            (StatusCode::CREATED, create_object(shared, target, None, new, None, is_dry_run)?)
        }
        updated => (StatusCode::OK, updated?),
    };
    let mut texts = warnings()?;
    texts.append(&mut written.warnings);
    Ok(written.answer(code, &texts))
}

fn read(body: &[u8]) -> Result<Value> {
    let decoded = |why: String| Status::bad_request(format!("error decoding YAML: {why}"));
    let value =
        yaml::to_json(body).map_err(|why| decoded(format!("error converting YAML to JSON: {why}")))?;
    let kind = match &value {
        Value::Null => return Ok(json!({})),
        Value::Object(_) => return Ok(value),
        Value::Array(_) => "array",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
    };
    Err(decoded(format!(
        "error unmarshaling JSON: while decoding JSON: json: cannot unmarshal {kind} into Go value of type \
         map[string]interface {{}}"
    )))
}

/// Texts about keys that are given twice, or the refusal when the client wants to be strict.
fn check_duplicates(body: &[u8], validation: Validation) -> Result<Warnings> {
    let texts = match validation {
        Validation::Ignore => return Ok(Warnings::new()),
        Validation::Warn | Validation::Strict => yaml::duplicates(body),
    };
    if validation == Validation::Strict && !texts.is_empty() {
        return Err(Status::bad_request(format!(
            "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  {}",
            texts.join("\n  ")
        )));
    }
    Ok(texts)
}

/// upstream: a patch that names another UID is refused by validation, twice.
pub(crate) fn check_uid(resource: &Resource, new: &Object, old: &Object) -> Result<()> {
    if new.uid() == old.uid() {
        return Ok(());
    }
    let path = field::Path::new("metadata").child("uid");
    let error = || field::Error::invalid(&path, new.uid(), "field is immutable");
    Err(Status::invalid(resource.group, resource.kind, old.name(), &[error(), error()]))
}

fn place(mut object: Object, target: &Target) -> Result<Object> {
    check_place(&mut object, target)?;
    if object.name().is_empty() {
        return Err(Status::bad_request(format!(
            "the name of the object ({} based on URL) was undeterminable: name must be provided",
            target.name
        )));
    }
    check_name(&object, target)?;
    Ok(object)
}

/// A configuration that was read, not yet applied.
struct Config {
    resource: &'static Resource,
    ty: Type,
    value: Value,
    writer: Writer,
    force: bool,
}

impl Config {
    /// The object that comes of applying this to one that is there, or to none.
    fn over(&self, old: Option<&Object>, now: &str) -> Result<Object> {
        self.check()?;
        let live = old.map_or_else(|| json!({}), |old| old.to_value(|_| true));
        let applier = Applier { resource: self.resource, ty: &self.ty, writer: &self.writer, now };
        let (mut value, entries) = applier.apply(old, &live, &self.value, self.force)?;
        object::strip_nulls(&mut value);
        let Value::Object(map) = value else { return Err(Status::patch_failed()) };
        let mut new = Object::from(map);
        new.insert("apiVersion", json!(self.resource.api_version));
        new.insert("kind", json!(self.resource.kind));
        for section in old.into_iter().flat_map(Object::fields).map(str::to_owned).collect::<Vec<_>>() {
            if let Some(old) = old.filter(|old| new.is_same(old, &section)) {
                new.copy_section(old, &section);
            }
        }
        new.set_managed(entries.into_json());
        Ok(new)
    }

    fn check(&self) -> Result<()> {
        let Resource { group, version, kind, api_version, .. } = self.resource;
        let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
        let (given_version, given_kind) = (text(self.value.get("apiVersion")), text(self.value.get("kind")));
        if (given_version.as_str(), given_kind.as_str()) != (*api_version, *kind) {
            let shown = if given_version.contains('/') { given_version } else { format!("/{given_version}") };
            return Err(Status::bad_request(format!("invalid object type: {shown}, Kind={given_kind}")));
        }
        let meta = self.value.get("metadata");
        if meta.and_then(|meta| meta.get("managedFields")).is_some_and(|managed| !managed.is_null()) {
            return Err(Status::bad_request("metadata.managedFields must be nil"));
        }
        check::check(&self.ty, &self.value).map_or(Ok(()), |why| {
            let part = |field: &str| text(meta.and_then(|meta| meta.get(field)));
            let place = format!("{}/{}; {group}/{version}, Kind={kind}", part("namespace"), part("name"));
            Err(Status::unexplained(&format!("failed to create typed patch object ({place}): {why}")))
        })
    }
}
