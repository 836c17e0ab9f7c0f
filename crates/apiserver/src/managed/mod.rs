//! Who owns which fields: `metadata.managedFields` of objects that are created, updated and patched.
//!
//! ```text
//!  old ──┐                                    ┌─► taken from everybody who had it
//!        ├─► diff (changed, removed) ─────────┤
//!  new ──┘   typed by `fields`, without what  └─► changed: given to the writer, now
//!            the server sets (`metadata.uid`, …)
//!            and the part that this path can't write
//! ```

pub(crate) mod entries;
pub(crate) mod set;
#[cfg(test)]
mod tests;
pub(crate) mod walk;

use http::request::Parts;
use http::{HeaderMap, header};
use serde_json::{Map, Value};
use windlass_api::field;

use crate::fields::{self, Type};
use crate::object::Object;
use crate::request::Query;
use crate::resources::Resource;
use crate::status::{Result, Status};
use entries::{Entries, Given, Manager, Operation};
use set::Set;
use walk::{Diff, Sides};

/// upstream: the longest name of a manager.
const NAME_BYTES_MAX: usize = 128;
/// upstream: the name of those who do not say who they are.
const UNKNOWN: &str = "unknown";

/// upstream: fields of `metadata` that nobody owns.
const UNOWNED_META: [&str; 9] = [
    "clusterName",
    "creationTimestamp",
    "generation",
    "managedFields",
    "name",
    "namespace",
    "resourceVersion",
    "selfLink",
    "uid",
];

/// Who writes, and through which path.
#[derive(Clone, Debug)]
pub(crate) struct Writer {
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: &'static str,
    /// A component of this process: objects that it creates do not say who owns their fields, and its patches have only
    /// fields that there are.
    pub(crate) is_own: bool,
}

impl Writer {
    /// The server itself.
    pub(crate) fn server() -> Self {
        Self { name: "windlass".to_owned(), subresource: "", is_own: false }
    }

    /// The `fieldManager` of a query for these options, or what the client calls itself.
    pub(crate) fn parse(
        query: &Query,
        head: &Parts,
        options: &str,
        subresource: &'static str,
    ) -> Result<Self> {
        let given = query.text("fieldManager");
        check_name(given, options)?;
        let name = if given.is_empty() { agent_name(&head.headers) } else { given.to_owned() };
        Ok(Self { name, subresource, is_own: head.extensions.get::<Own>().is_some() })
    }

    /// The manager that an operation of this writer makes of it.
    pub(crate) fn manager(&self, resource: &Resource, operation: Operation) -> Manager {
        let name = if self.name.is_empty() { UNKNOWN } else { &self.name };
        Manager {
            name: name.to_owned(),
            operation,
            api_version: resource.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
        }
    }
}

/// Marks the requests of components of this process. See [`crate::Server::own_service`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own;

/// Refuses a name that is too long, or that can't be shown.
fn check_name(name: &str, options: &str) -> Result<()> {
    let path = field::Path::new("fieldManager");
    let mut errors = Vec::new();
    if name.len() > NAME_BYTES_MAX {
        errors.push(field::Error::too_long(&path, NAME_BYTES_MAX));
    }
    for (place, c) in name.char_indices().filter(|(_, c)| !is_printable(*c)) {
        let why = format!("invalid character U+{:04X} (at position {place})", u32::from(c));
        errors.push(field::Error::invalid(&path, name, why));
    }
    if errors.is_empty() { Ok(()) } else { Err(Status::invalid("meta.k8s.io", options, "", &errors)) }
}

fn is_printable(c: char) -> bool {
    c == ' ' || !(c.is_control() || c.is_whitespace())
}

/// upstream: prefixFromUserAgent.
fn agent_name(headers: &HeaderMap) -> String {
    let agent = headers.get(header::USER_AGENT).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let agent = agent.unwrap_or_default();
    let mut name = String::new();
    for c in agent.split('/').next().unwrap_or_default().chars().filter(|c| is_printable(*c)) {
        if name.len() + c.len_utf8() > NAME_BYTES_MAX {
            break;
        }
        name.push(c);
    }
    name
}

/// Paths that the server fills in after a client's fields are known; a client owns them only if it gave them.
fn filled_in(resource: &Resource) -> &'static [&'static [&'static str]] {
    match resource.kind {
        // upstream: strategy
        "Job" => &[
            &["spec", "selector"],
            &["spec", "template", "metadata", "labels", "batch.kubernetes.io/controller-uid"],
            &["spec", "template", "metadata", "labels", "batch.kubernetes.io/job-name"],
            &["spec", "template", "metadata", "labels", "controller-uid"],
            &["spec", "template", "metadata", "labels", "job-name"],
        ],
        "Namespace" => &[&["spec", "finalizers"]],
        _ => &[],
    }
}

/// What a new object does not say, of what the server fills in: for each path, as far as the object has it and one more.
fn absent(resource: &Resource, object: &Object) -> Vec<&'static [&'static str]> {
    let missing = |path: &'static [&'static str]| {
        let mut value = object.get(path[0]);
        for (place, name) in path.iter().enumerate().skip(1) {
            let Some(found) = value else { return Some(&path[..place]) };
            value = found.get(name);
        }
        value.is_none().then_some(path)
    };
    let mut paths: Vec<_> = filled_in(resource).iter().filter_map(|path| missing(path)).collect();
    // upstream: what admission says about the account is said again when the pod is encoded
    let names_account = |field: &str| object.get("spec").is_some_and(|spec| spec.get(field).is_some());
    if resource.kind == "Pod" && !names_account("serviceAccountName") && !names_account("serviceAccount") {
        paths.push(&["spec", "serviceAccount"]);
    }
    // upstream: a Job without labels has those of its template, when it is decoded and whenever it is read
    let template = object.get("spec").and_then(|spec| spec.pointer("/template/metadata/labels"));
    let has = |labels: Option<&Value>| labels.and_then(Value::as_object).is_some_and(|map| !map.is_empty());
    if resource.kind == "Job" && !has(object.meta().and_then(|meta| meta.get("labels"))) {
        if has(template) {
            paths.extend(JOB_LABELS);
        } else {
            paths.push(&["metadata", "labels"]);
        }
    }
    paths
}

const JOB_LABELS: [&[&str]; 4] = [
    &["metadata", "labels", "batch.kubernetes.io/controller-uid"],
    &["metadata", "labels", "batch.kubernetes.io/job-name"],
    &["metadata", "labels", "controller-uid"],
    &["metadata", "labels", "job-name"],
];

/// What the server adds to a new object: it belongs to nobody.
#[derive(Debug, Default)]
pub(crate) struct Additions {
    /// By the strategy of the kind, to what the client left open.
    absent: Vec<&'static [&'static str]>,
    /// By admission.
    admitted: Set,
}

impl Additions {
    /// What admission has added, and what the strategy will add, to what a client gave.
    pub(crate) fn new(resource: &Resource, given: &Object, admitted: &Object) -> Self {
        let ty = fields::of_kind(resource.api_version, resource.kind);
        let diff = ty.map(|ty| diff(resource, &ty, "", Some(given), admitted)).unwrap_or_default();
        let mut admitted = diff.changed.unwrap_or_default();
        leave_given(&mut admitted, &|field| given.get(field));
        Self { absent: absent(resource, given), admitted }
    }
}

/// Takes out what the client gave too: a list that admission adds to, such as the taints of a node, stays the client's.
fn leave_given<'a>(set: &mut Set, given: &dyn Fn(&str) -> Option<&'a Value>) {
    set.retain(|element, node| {
        let value = element.strip_prefix("f:").and_then(given);
        let (Some(value), Value::Object(below)) = (value, node) else { return true };
        leave_given(below, &|field| value.get(field));
        !below.is_empty()
    });
}

/// Says in a new object who owns its fields.
pub(crate) fn record_create(
    resource: &Resource,
    writer: &Writer,
    object: &mut Object,
    additions: &Additions,
    now: &str,
) {
    let mut entries = match Given::parse(object.managed()) {
        Given::Entries(entries) => entries,
        Given::Nothing | Given::Reset => Entries::default(),
    };
    let ty = fields::of_kind(resource.api_version, resource.kind).filter(|_| !writer.is_own);
    let Some(ty) = ty else { return object.set_managed(None) };
    let mut changed = diff(resource, &ty, writer.subresource, None, object).changed.unwrap_or_default();
    additions.absent.iter().for_each(|path| set::remove_below(&mut changed, path));
    set::subtract_below(&mut changed, &additions.admitted);
    give(resource, writer, &mut entries, changed, &Set::new(), now);
    object.set_managed(entries.into_json());
}

/// Says in a changed object who owns its fields.
pub(crate) fn record_update(resource: &Resource, writer: &Writer, new: &mut Object, old: &Object, now: &str) {
    let given = if writer.subresource.is_empty() && !new.shares_managed(old) {
        Given::parse(new.managed())
    } else {
        Given::Nothing
    };
    let Some(ty) = fields::of_kind(resource.api_version, resource.kind) else { return };
    let is_given = matches!(given, Given::Entries(_));
    let mut entries = match given {
        Given::Reset => return new.set_managed(None),
        Given::Entries(entries) => entries,
        Given::Nothing if old.managed().is_none() => return new.set_managed(None),
        Given::Nothing => Entries::default(),
    };
    let Diff { changed, removed } = diff(resource, &ty, writer.subresource, Some(old), new);
    if changed.is_none() && removed.is_none() && !is_given {
        return new.copy_managed(old);
    }
    if !is_given {
        entries = Entries::stored(old.managed());
        if entries.is_empty() {
            return new.set_managed(None);
        }
    }
    give(resource, writer, &mut entries, changed.unwrap_or_default(), &removed.unwrap_or_default(), now);
    new.set_managed(entries.into_json());
}

/// Fields that changed go to the writer; who had them, or what is gone, has them no more.
fn give(resource: &Resource, writer: &Writer, entries: &mut Entries, changed: Set, removed: &Set, now: &str) {
    entries.keep_version(resource.api_version);
    entries.subtract(&changed);
    entries.subtract(removed);
    if !changed.is_empty() {
        entries.add(writer.manager(resource, Operation::Update), changed, now);
    }
}

/// Puts the times back when nothing else changed. upstream: IgnoreManagedFieldsTimestampsTransformer.
pub(crate) fn keep_times(new: &mut Object, old: &Object) {
    if new.shares_managed(old) || !new.is_same_but_managed(old) {
        return;
    }
    let untimed = |object: &Object| Entries::stored(object.managed()).without_times();
    if untimed(new) == untimed(old) {
        new.copy_managed(old);
    }
}

/// Whether a path does not write this top-level field, so that it owns nothing of it. upstream: GetResetFields.
pub(crate) fn is_reset(resource: &Resource, subresource: &str, section: &str) -> bool {
    match (section, subresource) {
        ("status", "") => resource.has_status,
        ("spec", "status") => true,
        _ => false,
    }
}

/// Whether nobody owns this field of `metadata` through a path.
pub(crate) fn is_unowned_meta(resource: &Resource, subresource: &str, name: &str) -> bool {
    let is_pod_status = subresource == "status" && resource.kind == "Pod";
    UNOWNED_META.contains(&name) || (is_pod_status && matches!(name, "deletionTimestamp" | "ownerReferences"))
}

/// The differences that count.
fn diff(resource: &Resource, ty: &Type, subresource: &str, old: Option<&Object>, new: &Object) -> Diff {
    let (mut changed, mut removed) = (Set::new(), Set::new());
    let nothing = Map::new();
    let gone = old.into_iter().flat_map(Object::fields).filter(|section| new.get(section).is_none());
    for section in new.fields().chain(gone) {
        let is_type = matches!(section, "apiVersion" | "kind");
        if is_type
            || is_reset(resource, subresource, section)
            || old.is_some_and(|old| new.is_shared(old, section))
        {
            continue;
        }
        let (ty, field) = ty.member(section);
        let diff = if section == "metadata" {
            let before = old.and_then(Object::meta).unwrap_or(&nothing);
            let skip = |name: &str| is_unowned_meta(resource, subresource, name);
            walk::diff_maps(Sides::OBJECTS, ty, before, new.meta().unwrap_or(&nothing), skip)
        } else {
            walk::field_diff(
                Sides::OBJECTS,
                ty,
                field,
                old.and_then(|old| old.get(section)),
                new.get(section),
            )
        };
        set::put(&mut changed, set::field(section), diff.changed);
        set::put(&mut removed, set::field(section), diff.removed);
    }
    let some = |set: Set| (!set.is_empty()).then_some(set);
    Diff { changed: some(changed), removed: some(removed) }
}

/// Every field of an object that somebody can own through a path.
pub(crate) fn owned(resource: &Resource, ty: &Type, subresource: &str, object: &Object) -> Set {
    diff(resource, ty, subresource, None, object).changed.unwrap_or_default()
}

/// The differences of two objects as JSON that count, for an apply.
pub(crate) fn diff_values(
    resource: &Resource,
    ty: &Type,
    subresource: &str,
    old: &Value,
    new: &Value,
) -> Diff {
    let part = |value: &Value| filtered(resource, subresource, value);
    let (Value::Object(old), Value::Object(new)) = (part(old), part(new)) else { return Diff::default() };
    walk::diff_maps(Sides::APPLY, ty, &old, &new, |_| false)
}

/// The part of an object that a path writes.
pub(crate) fn written(resource: &Resource, subresource: &str, value: &Value) -> Value {
    let fields = value.as_object().into_iter().flatten();
    let fields = fields.filter(|(section, _)| !is_reset(resource, subresource, section));
    Value::Object(fields.map(|(section, value)| (section.clone(), value.clone())).collect())
}

/// The part of an object that a path owns fields of.
pub(crate) fn filtered(resource: &Resource, subresource: &str, value: &Value) -> Value {
    let Value::Object(mut part) = written(resource, subresource, value) else { return value.clone() };
    part.retain(|section, _| !matches!(section.as_str(), "apiVersion" | "kind"));
    if let Some(Value::Object(meta)) = part.get_mut("metadata") {
        meta.retain(|name, _| !is_unowned_meta(resource, subresource, name));
    }
    // upstream: `metadata` itself is nobody's
    part.retain(|section, value| {
        section != "metadata" || value.as_object().is_some_and(|meta| !meta.is_empty())
    });
    Value::Object(part)
}
