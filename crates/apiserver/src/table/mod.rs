//! Tables for people to read: the columns and cells of each kind, as kubectl prints them.

mod age;
mod batch;
mod nodes;
mod pods;
mod small;

use jiff::Timestamp;
use serde_json::{Value, json};
use windlass_api::field;

use crate::object::Object;
use crate::resources::Resource;
use crate::status::{Result, Status};

/// What a row carries besides its cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Include {
    /// Nothing.
    None,
    /// The metadata of the object.
    Metadata,
    /// The object.
    Object,
}

impl Include {
    /// `includeObject` of a query.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => {
                let path = field::Path::new("includeObject");
                let error =
                    field::Error::invalid(&path, other, "must be 'Metadata', 'Object', 'None', or empty");
                Err(Status::bad_request(format!(
                    "Unable to convert to Table as requested: {}: {}",
                    error.path,
                    error.body()
                )))
            }
        }
    }
}

/// A column.
#[derive(Debug)]
struct Column {
    name: &'static str,
    kind: &'static str,
    /// `name` for the column that names the object.
    format: &'static str,
    /// 0, or 1 for those that only `-o wide` shows.
    priority: u8,
}

const fn column(name: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 0 }
}

const fn wide(name: &'static str) -> Column {
    Column { name, kind: "string", format: "", priority: 1 }
}

const fn of_type(name: &'static str, kind: &'static str) -> Column {
    Column { name, kind, format: "", priority: 0 }
}

const NAME: Column = Column { name: "Name", kind: "string", format: "name", priority: 0 };
const AGE: Column = column("Age");

/// What is shown of one object.
#[derive(Debug, PartialEq)]
pub(crate) struct Row {
    /// One for each column.
    pub(crate) cells: Vec<Value>,
    /// What else is known, for those who colour or hide rows.
    pub(crate) conditions: Option<Value>,
}

impl From<Vec<Value>> for Row {
    fn from(cells: Vec<Value>) -> Self {
        Self { cells, conditions: None }
    }
}

/// How a kind is shown.
struct Printer {
    columns: &'static [Column],
    row: fn(&Object, Timestamp) -> Row,
}

fn printer(resource: &Resource) -> &'static Printer {
    match resource.kind {
        "ClusterRole" | "Role" => &small::CREATED_AT,
        "ClusterRoleBinding" | "RoleBinding" => &small::ROLE_BINDING,
        "ConfigMap" => &small::CONFIG_MAP,
        "CronJob" => &batch::CRON_JOB,
        "Event" => &nodes::EVENT,
        "Job" => &batch::JOB,
        "Lease" => &small::LEASE,
        "Namespace" => &small::NAMESPACE,
        "Node" => &nodes::NODE,
        "Pod" => &pods::POD,
        "PodDisruptionBudget" => &small::DISRUPTION_BUDGET,
        "PriorityClass" => &small::PRIORITY_CLASS,
        "Secret" => &small::SECRET,
        "Service" => &small::SERVICE,
        "ServiceAccount" => &small::SERVICE_ACCOUNT,
        _ => &small::CREATED_AT,
    }
}

/// The columns of a kind, as a table defines them.
pub(crate) fn columns(resource: &Resource) -> Value {
    let define = |column: &Column| {
        json!({
            "name": column.name, "type": column.kind, "format": column.format,
            "description": "", "priority": column.priority,
        })
    };
    printer(resource).columns.iter().map(define).collect()
}

/// The row of an object.
pub(crate) fn row(resource: &Resource, object: &Object, now: Timestamp) -> Row {
    (printer(resource).row)(object, now)
}

/// The value at a path below a top-level field: `spec/template/spec`.
fn at<'a>(object: &'a Object, path: &str) -> Option<&'a Value> {
    let mut parts = path.split('/');
    let first = object.get(parts.next()?)?;
    parts.try_fold(first, |value, part| value.get(part))
}

/// The text at a path; empty when it is not there.
fn text<'a>(object: &'a Object, path: &str) -> &'a str {
    at(object, path).and_then(Value::as_str).unwrap_or_default()
}

/// The text at a path, or something else when it is empty.
fn text_or<'a>(object: &'a Object, path: &str, absent: &'a str) -> &'a str {
    match text(object, path) {
        "" => absent,
        text => text,
    }
}

/// The number at a path; 0 when it is not there.
fn number(object: &Object, path: &str) -> i64 {
    at(object, path).and_then(Value::as_i64).unwrap_or(0)
}

/// The items of a list; nothing when it is not there.
fn items<'a>(object: &'a Object, path: &str) -> &'a [Value] {
    at(object, path).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A text in an item; empty when it is not there.
fn item_text<'a>(item: &'a Value, field: &str) -> &'a str {
    item.get(field).and_then(Value::as_str).unwrap_or_default()
}

/// Whether a condition of this type is true.
fn has_condition(object: &Object, kind: &str) -> bool {
    items(object, "status/conditions")
        .iter()
        .any(|condition| item_text(condition, "type") == kind && item_text(condition, "status") == "True")
}

/// The time since the object was made.
fn object_age(object: &Object, now: Timestamp) -> String {
    age::since(object.meta_text("creationTimestamp"), now)
}
