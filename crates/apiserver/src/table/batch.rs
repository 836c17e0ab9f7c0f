//! Jobs and CronJobs.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde::Deserialize;
use serde_json::{Value, json};
use windlass_api::selector::Selector;

use super::{
    AGE, Column, NAME, Printer, Row, age, at, column, has_condition, item_text, items, number, object_age,
    of_type, text, wide,
};
use crate::object::Object;

pub(super) const JOB: Printer = Printer {
    columns: &[
        NAME,
        column("Status"),
        column("Completions"),
        column("Duration"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    row: job,
};

pub(super) const CRON_JOB: Printer = Printer {
    columns: &[
        NAME,
        column("Schedule"),
        column("Timezone"),
        SUSPEND,
        of_type("Active", "integer"),
        column("Last Schedule"),
        AGE,
        wide("Containers"),
        wide("Images"),
        wide("Selector"),
    ],
    row: cron_job,
};

/// Its type says boolean; its cells are texts.
const SUSPEND: Column = of_type("Suspend", "boolean");

fn job(object: &Object, now: Timestamp) -> Row {
    let (names, images) = containers(items(object, "spec/template/spec/containers"));
    Row::from(vec![
        json!(object.name()),
        json!(job_status(object)),
        json!(completions(object)),
        json!(duration(object, now)),
        json!(object_age(object, now)),
        json!(names),
        json!(images),
        json!(selector(at(object, "spec/selector"))),
    ])
}

fn job_status(object: &Object) -> &'static str {
    let conditions = |kinds: &[&'static str]| kinds.iter().copied().find(|kind| has_condition(object, kind));
    if let Some(end) = conditions(&["Complete", "Failed"]) {
        end
    } else if object.is_deleting() {
        "Terminating"
    } else {
        conditions(&["Suspended", "FailureTarget", "SuccessCriteriaMet"]).unwrap_or("Running")
    }
}

fn completions(object: &Object) -> String {
    let succeeded = number(object, "status/succeeded");
    let parallelism = number(object, "spec/parallelism");
    match at(object, "spec/completions").and_then(Value::as_i64) {
        Some(completions) => format!("{succeeded}/{completions}"),
        None if parallelism > 1 => format!("{succeeded}/1 of {parallelism}"),
        None => format!("{succeeded}/1"),
    }
}

/// A Job that failed has no completion time, so its duration goes on.
fn duration(object: &Object, now: Timestamp) -> String {
    let end = text(object, "status/completionTime").parse().unwrap_or(now);
    age::between(text(object, "status/startTime"), end).unwrap_or_default()
}

fn cron_job(object: &Object, now: Timestamp) -> Row {
    let suspend = match at(object, "spec/suspend").and_then(Value::as_bool) {
        Some(true) => "True",
        Some(false) => "False",
        None => "<unset>",
    };
    let last = match text(object, "status/lastScheduleTime") {
        "" => "<none>".to_owned(),
        moment => age::since(moment, now),
    };
    let zone = at(object, "spec/timeZone").and_then(Value::as_str).unwrap_or("<none>");
    let (names, images) = containers(items(object, "spec/jobTemplate/spec/template/spec/containers"));
    Row::from(vec![
        json!(object.name()),
        json!(text(object, "spec/schedule")),
        json!(zone),
        json!(suspend),
        json!(items(object, "status/active").len()),
        json!(last),
        json!(object_age(object, now)),
        json!(names),
        json!(images),
        json!(selector(at(object, "spec/jobTemplate/spec/selector"))),
    ])
}

/// The names and the images of containers.
fn containers(list: &[Value]) -> (String, String) {
    let all = |field: &str| list.iter().map(|item| item_text(item, field)).collect::<Vec<_>>().join(",");
    (all("name"), all("image"))
}

/// A label selector on one line.
fn selector(value: Option<&Value>) -> String {
    let Some(value) = value else { return "<none>".to_owned() };
    let parsed = LabelSelector::deserialize(value)
        .map_err(|error| error.to_string())
        .and_then(|selector| Selector::from_label_selector(&selector));
    match parsed {
        Ok(selector) if selector.is_empty() => "<none>".to_owned(),
        Ok(selector) => selector.to_string(),
        Err(_) => "<error>".to_owned(),
    }
}
