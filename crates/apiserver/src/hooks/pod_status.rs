//! The status of a pod: what a node may not write.

use serde_json::Value;
use windlass_api::field::{Error, Errors, Path};
use windlass_api::validation::meta as meta_rules;

use crate::object::Object;

/// upstream: conditions of the system, whose names need no look.
const SYSTEM: [&str; 3] = ["PodScheduled", "Ready", "Initialized"];

/// upstream: ValidatePodStatusUpdate, as far as a node of ours could break it.
pub(super) fn check(new: &Object, old: &Object) -> Errors {
    let path = Path::new("status");
    let mut errors = conditions(new, &path.child("conditions"));
    let class = |object: &Object| object.text_at("status", "qosClass").to_owned();
    if class(new) != class(old) {
        errors.push(Error::invalid(&path.child("qosClass"), class(new), "field is immutable"));
    }
    errors.extend(transitions(new, old, &path));
    errors.extend(addresses(new, old, &path.child("podIPs")));
    errors
}

fn list<'a>(object: &'a Object, section: &str, field: &str) -> &'a [Value] {
    let list = object.get(section).and_then(|section| section.get(field)).and_then(Value::as_array);
    list.map_or(&[], Vec::as_slice)
}

fn conditions(new: &Object, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, condition) in list(new, "status", "conditions").iter().enumerate() {
        let name = condition["type"].as_str().unwrap_or_default();
        if !SYSTEM.contains(&name) {
            // upstream: the name of the field in Go
            let at = path.index(i).child("Type");
            errors.extend(meta_rules::each(&at, name, meta_rules::qualified_name(name)));
        }
    }
    errors
}

/// What has ended, and is not to be started again, does not run again.
fn transitions(new: &Object, old: &Object, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let at = path.child("containerStatuses");
    for (i, before) in list(old, "status", "containerStatuses").iter().enumerate() {
        let Some(ended) = before["state"].get("terminated").filter(|ended| ended.is_object()) else {
            continue;
        };
        let name = &before["name"];
        let after = list(new, "status", "containerStatuses").iter().find(|after| after["name"] == *name);
        let is_running = after.is_some_and(|after| !after["state"]["terminated"].is_object());
        if is_running && !restarts(old, name, ended["exitCode"].as_i64().unwrap_or(0)) {
            let why = "may not be transitioned to non-terminated state";
            errors.push(Error::forbidden(&at.index(i).child("state"), why));
        }
    }
    errors
}

/// Whether a container that ended with this code is started again. Rules of its own are the node's business.
fn restarts(pod: &Object, name: &Value, code: i64) -> bool {
    let container = list(pod, "spec", "containers").iter().find(|container| container["name"] == *name);
    let own = container.and_then(|container| container["restartPolicy"].as_str());
    if container.is_some_and(|container| container["restartPolicyRules"].is_array()) {
        return true;
    }
    match own.unwrap_or_else(|| pod.text_at("spec", "restartPolicy")) {
        "Never" => false,
        "OnFailure" => code != 0,
        _ => true,
    }
}

fn addresses(new: &Object, old: &Object, path: &Path) -> Errors {
    let texts = |object: &Object| -> Vec<String> {
        let list = list(object, "status", "podIPs").iter();
        list.map(|item| item["ip"].as_str().unwrap_or_default().to_owned()).collect()
    };
    let before = texts(old);
    let mut errors = Errors::new();
    for (i, text) in texts(new).iter().enumerate().filter(|(_, text)| !before.contains(text)) {
        if text.parse::<std::net::IpAddr>().is_err() {
            let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
            errors.push(Error::invalid(&path.index(i), text.as_str(), why));
        }
    }
    errors
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(policy: &str, status: Value) -> Object {
        let Value::Object(map) = json!({
            "spec": {"restartPolicy": policy, "containers": [{"name": "c"}]}, "status": status,
        }) else {
            unreachable!("a map is written above")
        };
        Object::from(map)
    }

    #[test]
    fn a_container_that_is_not_started_again_stays_ended() {
        let ended = |code: i64| json!({"containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": code}}}]});
        let running = json!({"containerStatuses": [{"name": "c", "state": {"running": {}}}]});
        let cases = [("Never", 1, 1), ("OnFailure", 1, 0), ("OnFailure", 0, 1), ("Always", 0, 0)];
        for (policy, code, wrong) in cases {
            let errors = check(&pod(policy, running.clone()), &pod(policy, ended(code)));
            assert_eq!(errors.len(), wrong, "{policy} {code}");
        }
    }
}
