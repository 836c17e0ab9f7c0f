//! A status as the API wants it: the JSON merge patch of `jobs/status`.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::decision::StatusWrite;
use crate::job_facts::{Condition, Status};
use crate::uid::Uid;

/// The merge patch that writes `write`: everything in the status that is ours, and nothing else. The resource version
/// makes it fail if the Job has changed since.
pub fn status_patch(write: &StatusWrite) -> Value {
    json!({
        "metadata": { "resourceVersion": write.resource_version },
        "status": status_value(&write.status),
    })
}

/// The status fields; a field that must go is null. Zero counters are left out by the API, so they are null too.
fn status_value(status: &Status) -> Value {
    let count = |number: u32| if number == 0 { Value::Null } else { number.into() };
    let mut value = Map::new();
    let mut set = |key: &str, field: Value| _ = value.insert(key.to_owned(), field);
    set("active", count(status.active));
    set("succeeded", count(status.succeeded));
    set("failed", count(status.failed));
    set("ready", status.ready.into());
    set("terminating", status.terminating.into());
    set("startTime", time(status.start_time));
    set("completionTime", time(status.completion_time));
    let completed = status.completed_indexes.to_string();
    set("completedIndexes", if completed.is_empty() { Value::Null } else { completed.into() });
    set("failedIndexes", status.failed_indexes.as_ref().map(ToString::to_string).into());
    let uncounted = status.uncounted.clone().unwrap_or_default();
    set(
        "uncountedTerminatedPods",
        json!({ "succeeded": uids(&uncounted.succeeded), "failed": uids(&uncounted.failed) }),
    );
    let conditions: Vec<Value> = status.conditions.iter().map(condition).collect();
    set("conditions", if conditions.is_empty() { Value::Null } else { conditions.into() });
    value.into()
}

fn uids(uids: &[Uid]) -> Value {
    if uids.is_empty() { Value::Null } else { uids.iter().map(ToString::to_string).collect() }
}

fn condition(condition: &Condition) -> Value {
    let mut value = Map::new();
    let mut set =
        |key: &str, field: Value| _ = (!field.is_null()).then(|| value.insert(key.to_owned(), field));
    set("type", condition.kind.clone().into());
    set("status", condition.status.clone().into());
    set("reason", condition.reason.clone().into());
    set("message", condition.message.clone().into());
    set("lastProbeTime", time(condition.last_probe));
    set("lastTransitionTime", time(condition.last_transition));
    value.into()
}

/// Times have whole seconds on the wire.
fn time(time: Option<Timestamp>) -> Value {
    let whole = |time: Timestamp| Timestamp::from_second(time.as_second()).unwrap_or(time);
    time.map_or(Value::Null, |time| whole(time).to_string().into())
}
