//! What is left of a scenario, without what differs from run to run: times, UIDs and random parts of names.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::mirror::{Item, Kind, Seen};
use super::settled::{condition_of, is_deleted, is_finished, is_held};
use super::{JOB, list, number, text};

/// More events about one object are not all published.
const EVENTS_MAX: usize = 20;

/// The end of a scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The status in one line.
    pub summary: String,
    /// The Job's status and metadata; null if it is gone.
    pub job: Value,
    /// Every pod that there ever was, as it was last seen.
    pub pods: Vec<Value>,
    /// How often each reason was told, or null if there were too many events to be told of all.
    pub events: Value,
}

impl Record {
    /// What is seen now.
    pub fn of(seen: &Seen, namespace: &str) -> Self {
        let job = seen.job(JOB);
        let pods = seen.all(Kind::Pod);
        let shapes = Shapes::of(&pods, namespace);
        let mut normal: Vec<Value> = pods.iter().map(|item| pod_record(item, &shapes)).collect();
        normal.sort_by_cached_key(Value::to_string);
        Self {
            summary: summary(job),
            job: job.map_or(Value::Null, |job| job_record(job, &shapes)),
            pods: normal,
            events: events(seen),
        }
    }

    /// Without how often each reason was told: where that is a matter of chance.
    pub fn telling_once(mut self) -> Self {
        self.events.as_object_mut().into_iter().flatten().for_each(|(_, count)| *count = json!(1));
        self
    }

    /// Each difference in a line; nothing if they are equal. Events are compared only on wish.
    pub fn differences(&self, other: &Self, with_events: bool) -> Vec<String> {
        let mut found = Vec::new();
        differences("job", &self.job, &other.job, &mut found);
        differences("pods", &json!(self.pods), &json!(other.pods), &mut found);
        if with_events && !self.events.is_null() && !other.events.is_null() {
            differences("events", &self.events, &other.events, &mut found);
        }
        found
    }
}

/// The status of a Job in one line: conditions, then counters that are not 0, then indexes. A condition that announces
/// the end is left out when the end, with the same reason, is there.
pub fn summary(job: Option<&Value>) -> String {
    let Some(job) = job else { return "gone".to_owned() };
    let mut parts: Vec<String> = Vec::new();
    let conditions = list(job, "/status/conditions");
    for condition in conditions {
        let (kind, status) = (text(condition, "/type"), text(condition, "/status"));
        let end = match kind {
            "FailureTarget" => "Failed",
            "SuccessCriteriaMet" => "Complete",
            _ => "",
        };
        let ended = conditions.iter().find(|other| text(other, "/type") == end);
        if ended.is_some_and(|other| text(other, "/reason") == text(condition, "/reason")) {
            continue;
        }
        let status = if status == "True" { String::new() } else { format!("={status}") };
        parts.push(format!("{kind}{status}({})", text(condition, "/reason")));
    }
    for name in ["active", "ready", "succeeded", "failed", "terminating"] {
        match number(job, &format!("/status/{name}")) {
            0 => {}
            count => parts.push(format!("{name}={count}")),
        }
    }
    for name in ["completedIndexes", "failedIndexes"] {
        match text(job, &format!("/status/{name}")) {
            "" => {}
            indexes => parts.push(format!("{name}={indexes}")),
        }
    }
    if text(job, "/status/startTime").is_empty() {
        parts.push("unstarted".to_owned());
    }
    parts.join(" ")
}

/// Job and pods, for a message.
pub fn describe(seen: &Seen) -> String {
    let pods = seen.all(Kind::Pod);
    let pods = pods.iter().map(|item| {
        let (pod, gone) = (&item.object, if item.is_gone { " gone" } else { "" });
        let held = if is_held(pod) { " held" } else { "" };
        let deleted = if is_deleted(pod) { " deleted" } else { "" };
        format!("{} {}{held}{deleted}{gone}", text(pod, "/metadata/name"), text(pod, "/status/phase"))
    });
    let pods: Vec<String> = pods.collect();
    let uncounted = seen.job(JOB).and_then(|job| job.pointer("/status/uncountedTerminatedPods")).cloned();
    format!(
        "the Job is [{}], uncounted {}, pods: {}",
        summary(seen.job(JOB)),
        uncounted.unwrap_or_default(),
        pods.join("; ")
    )
}

/// Names as they look, without their random parts.
struct Shapes {
    replaced: Vec<(String, String)>,
}

impl Shapes {
    fn of(pods: &[&Item], namespace: &str) -> Self {
        let mut replaced = Vec::new();
        for item in pods {
            let name = text(&item.object, "/metadata/name");
            let shape = shape(name, text(&item.object, "/metadata/generateName"));
            replaced.push((name.to_owned(), shape));
        }
        replaced.push((format!(" {namespace}/"), " <namespace>/".to_owned()));
        Self { replaced }
    }

    fn plain(&self, text: &str) -> String {
        self.replaced.iter().fold(text.to_owned(), |text, (name, shape)| text.replace(name, shape))
    }
}

/// The name with its generated part as stars, if it is one that Kubernetes could have generated.
fn shape(name: &str, prefix: &str) -> String {
    const ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";
    match name.strip_prefix(prefix) {
        Some(rest) if !prefix.is_empty() && rest.len() == 5 && rest.chars().all(|c| ALPHABET.contains(c)) => {
            format!("{prefix}*****")
        }
        _ => name.to_owned(),
    }
}

fn job_record(job: &Value, shapes: &Shapes) -> Value {
    let mut status = job.pointer("/status").cloned().unwrap_or_default();
    for name in ["startTime", "completionTime"] {
        if let Some(time) = status.get_mut(name) {
            *time = json!("<time>");
        }
    }
    for condition in status.get_mut("conditions").and_then(Value::as_array_mut).into_iter().flatten() {
        let message = shapes.plain(text(condition, "/message"));
        condition["message"] = json!(message);
        let Some(condition) = condition.as_object_mut() else { continue };
        // A time that nobody set is null on the wire, or left out.
        condition.retain(|_, value| !value.is_null());
        for name in ["lastProbeTime", "lastTransitionTime"] {
            if let Some(time) = condition.get_mut(name) {
                *time = json!("<time>");
            }
        }
    }
    json!({
        "status": status,
        "finalizers": list(job, "/metadata/finalizers"),
        "annotations": annotations(job),
        "isDeleted": is_deleted(job),
    })
}

/// Those that are not ours: what became of failed pods is kept in one, and the built-in controller keeps none.
fn annotations(job: &Value) -> Option<Value> {
    let all = job.pointer("/metadata/annotations")?.as_object()?;
    let others: serde_json::Map<String, Value> = all
        .iter()
        .filter(|(key, _)| !key.starts_with("windlass.dev/"))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    (!others.is_empty()).then_some(Value::Object(others))
}

fn pod_record(item: &Item, shapes: &Shapes) -> Value {
    let pod = &item.object;
    let uid =
        list(pod, "/metadata/ownerReferences").first().map(|owner| text(owner, "/uid")).unwrap_or_default();
    let labels = pod.pointer("/metadata/labels").and_then(Value::as_object).cloned().unwrap_or_default();
    let uid = if uid.is_empty() {
        labels.get("controller-uid").and_then(Value::as_str).unwrap_or_default()
    } else {
        uid
    };
    let hide = |value: &Value| match value.as_str() {
        Some(text) if !uid.is_empty() && text == uid => json!("<job uid>"),
        Some(text) => json!(shapes.plain(text)),
        None => value.clone(),
    };
    let hidden = |map: &Map<String, Value>| -> Map<String, Value> {
        map.iter().map(|(key, value)| (key.clone(), hide(value))).collect()
    };
    let owners: Vec<Value> = list(pod, "/metadata/ownerReferences")
        .iter()
        .filter_map(Value::as_object)
        .map(|owner| Value::Object(hidden(owner)))
        .collect();
    let containers: Vec<Value> = ["/spec/initContainers", "/spec/containers"]
        .iter()
        .flat_map(|pointer| list(pod, pointer))
        .map(|container| json!({"name": container["name"], "env": container.get("env"), "resources": container.get("resources")}))
        .collect();
    json!({
        "name": shapes.plain(text(pod, "/metadata/name")),
        "generateName": pod.pointer("/metadata/generateName"),
        "labels": hidden(&labels),
        "annotations": pod.pointer("/metadata/annotations"),
        // How an object looked when its last finalizer was removed is not told.
        "finalizers": if item.is_gone { &[] } else { list(pod, "/metadata/finalizers") },
        "owners": owners,
        "hostname": pod.pointer("/spec/hostname"),
        "nodeSelector": pod.pointer("/spec/nodeSelector"),
        "containers": containers,
        "phase": pod.pointer("/status/phase"),
        "isGone": item.is_gone,
        "isDeleted": is_deleted(pod),
    })
}

/// Events about the Job of the scenario, or those that had its name: reason and how often.
fn counts(seen: &Seen) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for item in seen.all(Kind::Event) {
        let event = &item.object;
        if text(event, "/involvedObject/name") == JOB && text(event, "/involvedObject/kind") == "Job" {
            let key = format!("{} {}", text(event, "/type"), text(event, "/reason"));
            *counts.entry(key).or_default() += number(event, "/count").max(1);
        }
    }
    counts
}

fn created(seen: &Seen) -> usize {
    let made = |item: &&Item| {
        let generated = text(&item.object, "/metadata/generateName");
        generated == format!("{JOB}-")
            || (generated.starts_with(&format!("{JOB}-")) && generated.ends_with('-'))
    };
    seen.all(Kind::Pod).into_iter().filter(made).count()
}

fn events(seen: &Seen) -> Value {
    if created(seen) * 2 > EVENTS_MAX { Value::Null } else { json!(counts(seen)) }
}

/// The last events that must come have come: a recorder publishes in order.
pub fn events_are_in(seen: &Seen) -> bool {
    if created(seen) * 2 > EVENTS_MAX {
        return true;
    }
    let counts = counts(seen);
    let told =
        |kind: &str, reason: &str| counts.get(&format!("{kind} {reason}")).copied().unwrap_or_default();
    if told("Normal", "SuccessfulCreate") < created(seen) as u64
        || told("Normal", "SuccessfulDelete") < seen.deleted_by_controller() as u64
    {
        return false;
    }
    let Some(job) = seen.job(JOB) else { return true };
    if is_finished(job) {
        let failed = list(job, "/status/conditions").iter().find(|c| text(c, "/type") == "Failed");
        return match failed {
            Some(condition) => told("Warning", text(condition, "/reason")) > 0,
            None => told("Normal", "Completed") > 0,
        };
    }
    match condition_of(job, "Suspended") {
        Some("True") => told("Normal", "Suspended") > 0,
        Some(_) => told("Normal", "Resumed") > 0,
        None => true,
    }
}

fn differences(place: &str, left: &Value, right: &Value, found: &mut Vec<String>) {
    match (left, right) {
        (Value::Object(a), Value::Object(b)) => {
            let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                let (left, right) = (a.get(key).unwrap_or(&Value::Null), b.get(key).unwrap_or(&Value::Null));
                differences(&format!("{place}.{key}"), left, right, found);
            }
        }
        (Value::Array(a), Value::Array(b)) => {
            for n in 0..a.len().max(b.len()) {
                let (left, right) = (a.get(n).unwrap_or(&Value::Null), b.get(n).unwrap_or(&Value::Null));
                differences(&format!("{place}[{n}]"), left, right, found);
            }
        }
        (left, right) if left == right => {}
        (left, right) => found.push(format!("{place}: {left} / {right}")),
    }
}
