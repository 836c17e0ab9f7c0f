//! Nodes and events.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    AGE, Column, NAME, Printer, Row, age, at, column, item_text, items, number, object_age, text, text_or,
    wide,
};
use crate::object::Object;

pub(super) const NODE: Printer = Printer {
    columns: &[
        NAME,
        column("Status"),
        column("Roles"),
        AGE,
        column("Version"),
        wide("Internal-IP"),
        wide("External-IP"),
        wide("OS-Image"),
        wide("Kernel-Version"),
        wide("Container-Runtime"),
    ],
    row: node,
};

pub(super) const EVENT: Printer = Printer {
    columns: &[
        column("Last Seen"),
        column("Type"),
        column("Reason"),
        column("Object"),
        wide("Subobject"),
        wide("Source"),
        column("Message"),
        wide("First Seen"),
        wide("Count"),
        Column { priority: 1, ..NAME },
    ],
    row: event,
};

const ROLE_PREFIX: &str = "node-role.kubernetes.io/";
const ROLE_LABEL: &str = "kubernetes.io/role";

fn node(object: &Object, now: Timestamp) -> Row {
    let info = |field: &str| text_or(object, &format!("status/nodeInfo/{field}"), "<unknown>").to_owned();
    let mut kernel = info("kernelVersion");
    let arch = text(object, "status/nodeInfo/architecture");
    if !arch.is_empty() {
        kernel.push_str(&format!(" ({arch})"));
    }
    Row::from(vec![
        json!(object.name()),
        json!(node_status(object)),
        json!(roles(object)),
        json!(object_age(object, now)),
        json!(text(object, "status/nodeInfo/kubeletVersion")),
        json!(address(object, "InternalIP")),
        json!(address(object, "ExternalIP")),
        json!(info("osImage")),
        json!(kernel),
        json!(info("containerRuntimeVersion")),
    ])
}

fn node_status(object: &Object) -> String {
    let ready = items(object, "status/conditions").iter().rfind(|item| item_text(item, "type") == "Ready");
    let ready = match ready.map(|condition| item_text(condition, "status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let is_cordoned = at(object, "spec/unschedulable").and_then(Value::as_bool).unwrap_or(false);
    if is_cordoned { format!("{ready},SchedulingDisabled") } else { ready.to_owned() }
}

fn roles(object: &Object) -> String {
    let labels = at(object, "metadata/labels").and_then(Value::as_object);
    let role = |(key, value): (&String, &Value)| match key.strip_prefix(ROLE_PREFIX) {
        Some(role) => Some(role.to_owned()),
        None if key == ROLE_LABEL => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: BTreeSet<String> =
        labels.into_iter().flatten().filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.into_iter().collect::<Vec<_>>().join(",") }
}

fn address<'a>(object: &'a Object, kind: &str) -> &'a str {
    let found = items(object, "status/addresses").iter().find(|item| item_text(item, "type") == kind);
    found.map_or("<none>", |item| item_text(item, "address"))
}

fn event(object: &Object, now: Timestamp) -> Row {
    let first = text_or(object, "firstTimestamp", text(object, "eventTime"));
    let (last, count) = match at(object, "series") {
        Some(_) => (text(object, "series/lastObservedTime"), number(object, "series/count")),
        // upstream: an event that happened once has no count in the newer API
        None => (text_or(object, "lastTimestamp", first), number(object, "count").max(1)),
    };
    let kind = text(object, "involvedObject/kind").to_lowercase();
    let target = match text(object, "involvedObject/name") {
        "" => kind,
        name => format!("{kind}/{name}"),
    };
    Row::from(vec![
        json!(age::since(last, now)),
        json!(text(object, "type")),
        json!(text(object, "reason")),
        json!(target),
        json!(text(object, "involvedObject/fieldPath")),
        json!(source(object)),
        json!(text(object, "message").trim()),
        json!(age::since(first, now)),
        json!(count),
        json!(object.name()),
    ])
}

fn source(object: &Object) -> String {
    let component = text_or(object, "source/component", text(object, "reportingComponent"));
    match text_or(object, "source/host", text(object, "reportingInstance")) {
        "" => component.to_owned(),
        instance => format!("{component}, {instance}"),
    }
}
