//! The kinds of which little is shown.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::{
    AGE, Column, NAME, Printer, Row, at, column, item_text, items, number, object_age, of_type, text, wide,
};
use crate::object::Object;

/// upstream: kinds without columns of their own.
pub(super) const CREATED_AT: Printer =
    Printer { columns: &[NAME, of_type("Created At", "date")], row: created_at };

pub(super) const CONFIG_MAP: Printer = Printer { columns: &[NAME, column("Data"), AGE], row: config_map };
pub(super) const LEASE: Printer = Printer { columns: &[NAME, column("Holder"), AGE], row: lease };
pub(super) const NAMESPACE: Printer = Printer { columns: &[NAME, column("Status"), AGE], row: namespace };
pub(super) const SECRET: Printer =
    Printer { columns: &[NAME, column("Type"), column("Data"), AGE], row: secret };
pub(super) const SERVICE_ACCOUNT: Printer = Printer { columns: &[NAME, AGE], row: service_account };

pub(super) const DISRUPTION_BUDGET: Printer = Printer {
    columns: &[
        NAME,
        column("Min Available"),
        column("Max Unavailable"),
        of_type("Allowed Disruptions", "integer"),
        AGE,
    ],
    row: disruption_budget,
};

pub(super) const PRIORITY_CLASS: Printer = Printer {
    columns: &[NAME, of_type("Value", "integer"), GLOBAL_DEFAULT, AGE, column("PreemptionPolicy")],
    row: priority_class,
};

const GLOBAL_DEFAULT: Column = of_type("Global-Default", "boolean");

pub(super) const ROLE_BINDING: Printer = Printer {
    columns: &[NAME, column("Role"), AGE, wide("Users"), wide("Groups"), wide("ServiceAccounts")],
    row: role_binding,
};

pub(super) const SERVICE: Printer = Printer {
    columns: &[
        NAME,
        column("Type"),
        column("Cluster-IP"),
        column("External-IP"),
        column("Port(s)"),
        AGE,
        wide("Selector"),
    ],
    row: service,
};

fn created_at(object: &Object, _: Timestamp) -> Row {
    Row::from(vec![json!(object.name()), json!(object.meta_text("creationTimestamp"))])
}

/// How many fields a map has.
fn count(object: &Object, field: &str) -> usize {
    at(object, field).and_then(Value::as_object).map_or(0, Map::len)
}

fn config_map(object: &Object, now: Timestamp) -> Row {
    let data = count(object, "data") + count(object, "binaryData");
    Row::from(vec![json!(object.name()), json!(data), json!(object_age(object, now))])
}

fn lease(object: &Object, now: Timestamp) -> Row {
    let holder = text(object, "spec/holderIdentity");
    Row::from(vec![json!(object.name()), json!(holder), json!(object_age(object, now))])
}

fn namespace(object: &Object, now: Timestamp) -> Row {
    let phase = text(object, "status/phase");
    Row::from(vec![json!(object.name()), json!(phase), json!(object_age(object, now))])
}

fn secret(object: &Object, now: Timestamp) -> Row {
    let (kind, data) = (text(object, "type"), count(object, "data"));
    Row::from(vec![json!(object.name()), json!(kind), json!(data), json!(object_age(object, now))])
}

fn service_account(object: &Object, now: Timestamp) -> Row {
    Row::from(vec![json!(object.name()), json!(object_age(object, now))])
}

fn service(object: &Object, now: Timestamp) -> Row {
    let or_none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    let kind = text(object, "spec/type");
    let external = match kind {
        "ExternalName" => text(object, "spec/externalName").to_owned(),
        "LoadBalancer" => "<pending>".to_owned(),
        _ => {
            let addresses = items(object, "spec/externalIPs").iter().filter_map(Value::as_str);
            addresses.collect::<Vec<_>>().join(",")
        }
    };
    let ports = items(object, "spec/ports").iter().map(|port| {
        let node = port["nodePort"].as_i64().filter(|node| *node > 0);
        let node = node.map_or_else(String::new, |node| format!(":{node}"));
        format!("{}{node}/{}", port["port"], item_text(port, "protocol"))
    });
    let selector = at(object, "spec/selector").and_then(Value::as_object).into_iter().flatten();
    let selector = selector.map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()));
    Row::from(vec![
        json!(object.name()),
        json!(kind),
        json!(or_none(text(object, "spec/clusterIP").to_owned())),
        json!(or_none(external)),
        json!(or_none(ports.collect::<Vec<_>>().join(","))),
        json!(object_age(object, now)),
        json!(or_none(selector.collect::<Vec<_>>().join(","))),
    ])
}

fn disruption_budget(object: &Object, now: Timestamp) -> Row {
    let bound = |field: &str| match at(object, field) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | None => "N/A".to_owned(),
    };
    Row::from(vec![
        json!(object.name()),
        json!(bound("spec/minAvailable")),
        json!(bound("spec/maxUnavailable")),
        json!(number(object, "status/disruptionsAllowed")),
        json!(object_age(object, now)),
    ])
}

fn priority_class(object: &Object, now: Timestamp) -> Row {
    let is_default = at(object, "globalDefault").and_then(Value::as_bool).unwrap_or(false);
    Row::from(vec![
        json!(object.name()),
        json!(number(object, "value")),
        json!(is_default),
        json!(object_age(object, now)),
        json!(text(object, "preemptionPolicy")),
    ])
}

fn role_binding(object: &Object, now: Timestamp) -> Row {
    let subjects = |kind: &str| {
        let of_kind = items(object, "subjects").iter().filter(|item| item_text(item, "kind") == kind);
        let names = of_kind.map(|item| match kind {
            "ServiceAccount" => format!("{}/{}", item_text(item, "namespace"), item_text(item, "name")),
            _ => item_text(item, "name").to_owned(),
        });
        names.collect::<Vec<_>>().join(", ")
    };
    let role = format!("{}/{}", text(object, "roleRef/kind"), text(object, "roleRef/name"));
    Row::from(vec![
        json!(object.name()),
        json!(role),
        json!(object_age(object, now)),
        json!(subjects("User")),
        json!(subjects("Group")),
        json!(subjects("ServiceAccount")),
    ])
}
