//! Pods: how many containers are ready, and the one word that says how the pod is.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    AGE, NAME, Printer, Row, age, column, has_condition, item_text, items, object_age, text, text_or, wide,
};
use crate::object::Object;

pub(super) const POD: Printer = Printer {
    columns: &[
        NAME,
        column("Ready"),
        column("Status"),
        column("Restarts"),
        AGE,
        wide("IP"),
        wide("Node"),
        wide("Nominated Node"),
        wide("Readiness Gates"),
    ],
    row: pod,
};

/// What the statuses of the containers add up to.
#[derive(Debug, Default)]
struct Tally {
    reason: String,
    ready: usize,
    restarts: Restarts,
}

/// Restarts, and when the last one was.
#[derive(Clone, Copy, Debug, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, status: &Value) {
        self.count += status.get("restartCount").and_then(Value::as_i64).unwrap_or(0);
        let finished = status.pointer("/lastState/terminated/finishedAt").and_then(Value::as_str);
        self.last = self.last.max(finished.and_then(|moment| moment.parse().ok()));
    }

    fn text(self, now: Timestamp) -> String {
        match self.last {
            Some(last) if self.count != 0 => {
                format!("{} ({} ago)", self.count, age::since(&last.to_string(), now))
            }
            _ => self.count.to_string(),
        }
    }
}

fn pod(object: &Object, now: Timestamp) -> Row {
    let phase = text(object, "status/phase");
    let tally = tally(object);
    let sidecars =
        items(object, "spec/initContainers").iter().filter(|container| is_restartable(container)).count();
    let total = items(object, "spec/containers").len() + sidecars;
    let is_final = matches!(phase, "Succeeded" | "Failed");
    let reason = match object.is_deleting() {
        true if text(object, "status/reason") == "NodeLost" => "Unknown".to_owned(),
        true if !is_final => "Terminating".to_owned(),
        _ => tally.reason,
    };
    let ip = items(object, "status/podIPs").first().map_or("", |ip| item_text(ip, "ip"));
    let cells = vec![
        json!(object.name()),
        json!(format!("{}/{total}", tally.ready)),
        json!(reason),
        json!(tally.restarts.text(now)),
        json!(object_age(object, now)),
        json!(if ip.is_empty() { "<none>" } else { ip }),
        json!(text_or(object, "spec/nodeName", "<none>")),
        json!(text_or(object, "status/nominatedNodeName", "<none>")),
        json!(readiness_gates(object)),
    ];
    Row { cells, conditions: completed(phase) }
}

fn completed(phase: &str) -> Option<Value> {
    let message = match phase {
        "Succeeded" => "The pod has completed successfully.",
        "Failed" => "The pod failed.",
        _ => return None,
    };
    Some(json!([{"type": "Completed", "status": "True", "reason": phase, "message": message}]))
}

fn is_restartable(container: &Value) -> bool {
    item_text(container, "restartPolicy") == "Always"
}

/// The phase, or the reason that stands for it.
fn first_reason(object: &Object) -> &str {
    let is_gated = items(object, "status/conditions").iter().any(|condition| {
        item_text(condition, "type") == "PodScheduled" && item_text(condition, "reason") == "SchedulingGated"
    });
    if is_gated { "SchedulingGated" } else { text_or(object, "status/reason", text(object, "status/phase")) }
}

fn tally(object: &Object) -> Tally {
    let mut tally = Tally { reason: first_reason(object).to_owned(), ..Tally::default() };
    let sidecar_restarts = initialize(object, &mut tally);
    if let Some(restarts) = sidecar_restarts {
        tally.restarts = restarts;
        run(object, &mut tally);
    }
    tally
}

/// Looks at the init containers. Returns the restarts of sidecars when the pod is through with the others.
fn initialize(object: &Object, tally: &mut Tally) -> Option<Restarts> {
    let specs = items(object, "spec/initContainers");
    let mut sidecars = Restarts::default();
    let mut is_initializing = false;
    for (index, status) in items(object, "status/initContainerStatuses").iter().enumerate() {
        let name = item_text(status, "name");
        let is_sidecar = specs.iter().any(|spec| item_text(spec, "name") == name && is_restartable(spec));
        tally.restarts.add(status);
        if is_sidecar {
            sidecars.add(status);
        }
        let terminated = status.pointer("/state/terminated");
        if terminated.is_some_and(|end| exit_code(end) == 0) {
            continue;
        }
        if is_sidecar && is_true(status, "started") {
            tally.ready += usize::from(is_true(status, "ready"));
            continue;
        }
        let waiting = status.pointer("/state/waiting/reason").and_then(Value::as_str).unwrap_or_default();
        tally.reason = match terminated {
            Some(end) => format!("Init:{}", end_reason(end)),
            None if !matches!(waiting, "" | "PodInitializing") => format!("Init:{waiting}"),
            None => format!("Init:{index}/{}", specs.len()),
        };
        is_initializing = true;
        break;
    }
    (!is_initializing || has_condition(object, "Initialized")).then_some(sidecars)
}

/// Looks at the containers, last to first: the first one that has something to say has the last word.
fn run(object: &Object, tally: &mut Tally) {
    let mut has_running = false;
    let mut error = None;
    for status in items(object, "status/containerStatuses").iter().rev() {
        tally.restarts.add(status);
        let waiting = status.pointer("/state/waiting/reason").and_then(Value::as_str).unwrap_or_default();
        if !waiting.is_empty() {
            tally.reason = waiting.to_owned();
        } else if let Some(end) = status.pointer("/state/terminated") {
            tally.reason = end_reason(end);
            if exit_code(end) != 0 {
                error = Some(tally.reason.clone());
            }
        } else if is_true(status, "ready") && status.pointer("/state/running").is_some() {
            has_running = true;
            tally.ready += 1;
        }
    }
    if tally.reason == "Completed" {
        tally.reason = match error {
            _ if has_running && has_condition(object, "Ready") => "Running".to_owned(),
            Some(error) => error,
            None if has_running => "NotReady".to_owned(),
            None => "Completed".to_owned(),
        };
    }
}

fn is_true(status: &Value, field: &str) -> bool {
    status.get(field).and_then(Value::as_bool).unwrap_or(false)
}

fn exit_code(end: &Value) -> i64 {
    end.get("exitCode").and_then(Value::as_i64).unwrap_or(0)
}

fn end_reason(end: &Value) -> String {
    match (item_text(end, "reason"), end.get("signal").and_then(Value::as_i64).unwrap_or(0)) {
        ("", 0) => format!("ExitCode:{}", exit_code(end)),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}

fn readiness_gates(object: &Object) -> String {
    let gates = items(object, "spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let ready = gates.iter().filter(|gate| has_condition(object, item_text(gate, "conditionType"))).count();
    format!("{ready}/{}", gates.len())
}
