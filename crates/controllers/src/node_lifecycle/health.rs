//! Whether a node is still heard of. Pure.
//!
//! Times of nodes are not compared with ours: what counts is when we saw that something changed.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// The conditions that nobody can vouch for when a node is silent. upstream: the network is the control plane's.
const CONDITIONS: [&str; 4] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure"];

/// How long a node may be silent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Graces {
    pub(crate) monitor: Duration,
    /// If it never said whether it is ready.
    pub(crate) startup: Duration,
}

/// What is remembered of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Health {
    /// When it was last heard of.
    pub(crate) heard: Timestamp,
    /// Its condition `Ready`, as it was.
    pub(crate) ready: Option<NodeCondition>,
    /// The last time on its lease.
    renewed: Option<Timestamp>,
}

/// What a look at a node came to.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Looked {
    /// To be remembered.
    pub(crate) health: Health,
    /// Status of `Ready` as it was found.
    pub(crate) found: String,
    /// Status of `Ready` after what is written, if there is any.
    pub(crate) current: Option<String>,
    /// Conditions to be written.
    pub(crate) write: Vec<NodeCondition>,
}

/// The condition of a type.
pub(crate) fn condition<'a>(node: &'a Node, type_: &str) -> Option<&'a NodeCondition> {
    node.status.as_ref()?.conditions.as_ref()?.iter().find(|one| one.type_ == type_)
}

/// Looks at a node and at the time on its lease.
pub(crate) fn look(
    known: Option<&Health>,
    node: &Node,
    renewed: Option<Timestamp>,
    graces: Graces,
    now: Timestamp,
) -> Looked {
    let ready = condition(node, "Ready");
    let created = node.metadata.creation_timestamp.as_ref().map_or(now, |time| time.0);
    let mut health = remembered(known, ready, created, now);
    let renewed_before = known.and_then(|known| known.renewed);
    if renewed.is_some() && (renewed_before.is_none() || renewed_before < renewed) {
        (health.heard, health.renewed) = (now, renewed);
    }
    let grace = if ready.is_some() { graces.monitor } else { graces.startup };
    let grace = SignedDuration::try_from(grace).unwrap_or(SignedDuration::MAX);
    let found = ready.map_or("Unknown", |ready| &ready.status).to_owned();
    let mut current = ready.map(|ready| ready.status.clone());
    let mut write = Vec::new();
    if now.duration_since(health.heard) > grace {
        let all = CONDITIONS.iter().filter_map(|type_| silent(condition(node, type_), type_, created, now));
        current = Some("Unknown".to_owned());
        // upstream: what is known of the others changes with `Ready` only.
        let all: Vec<NodeCondition> = all.collect();
        if let Some(ready) = all.iter().find(|one| one.type_ == "Ready") {
            (health.ready, health.renewed) = (Some(ready.clone()), renewed);
            write = all;
        }
    }
    Looked { health, found, current, write }
}

fn remembered(
    known: Option<&Health>,
    ready: Option<&NodeCondition>,
    created: Timestamp,
    now: Timestamp,
) -> Health {
    let anew = |heard| Health { heard, ready: ready.cloned(), renewed: None };
    match (known, ready) {
        (None, None) => anew(created),
        (Some(known), None) => Health { ready: None, ..known.clone() },
        (None, Some(_)) => anew(now),
        (Some(known), Some(ready)) => match &known.ready {
            Some(before) if before.last_heartbeat_time == ready.last_heartbeat_time => known.clone(),
            Some(_) | None => anew(now),
        },
    }
}

/// What is to be said of a node that is silent, if it is not said already.
fn silent(
    condition: Option<&NodeCondition>,
    type_: &str,
    created: Timestamp,
    now: Timestamp,
) -> Option<NodeCondition> {
    let unknown = |reason: &str, message: &str, heartbeat| NodeCondition {
        type_: type_.to_owned(),
        status: "Unknown".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        last_heartbeat_time: heartbeat,
        last_transition_time: Some(Time(now)),
    };
    match condition {
        None => {
            Some(unknown("NodeStatusNeverUpdated", "Kubelet never posted node status.", Some(Time(created))))
        }
        Some(one) if one.status != "Unknown" => {
            let heartbeat = one.last_heartbeat_time.clone();
            Some(unknown("NodeStatusUnknown", "Kubelet stopped posting node status.", heartbeat))
        }
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const GRACES: Graces = Graces { monitor: Duration::from_secs(50), startup: Duration::from_secs(60) };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn node(ready: Option<(&str, i64)>) -> Node {
        let conditions: Vec<_> = ready
            .into_iter()
            .map(|(status, beat)| json!({"type": "Ready", "status": status, "lastHeartbeatTime": at(beat), "lastTransitionTime": at(0)}))
            .collect();
        let node = json!({"metadata": {"name": "n", "creationTimestamp": at(0)}, "status": {"conditions": conditions}});
        serde_json::from_value(node).expect("a node")
    }

    /// When somebody looks, the Ready condition with the time of its heartbeat, and when the lease was renewed.
    type Look<'a> = (i64, Option<(&'a str, i64)>, Option<i64>);

    /// Times of looks, what is seen then, and the status of `Ready` that comes of it; written ones with a star.
    fn story(looks: &[Look<'_>]) -> Vec<String> {
        let mut health = None;
        let mut told = Vec::new();
        for (time, ready, renewed) in looks {
            let looked = look(health.as_ref(), &node(*ready), renewed.map(at), GRACES, at(*time));
            let star = if looked.write.is_empty() { "" } else { "*" };
            told.push(format!("{}{star}", looked.current.unwrap_or_else(|| "-".to_owned())));
            health = Some(looked.health);
        }
        told
    }

    #[test]
    fn a_node_is_unknown_when_neither_its_status_nor_its_lease_changed_for_a_while() {
        let stories: [(&str, &[Look<'_>], &[&str]); 8] = [
            (
                "its status changes",
                &[
                    (100, Some(("True", 1)), None),
                    (140, Some(("True", 2)), None),
                    (180, Some(("True", 3)), None),
                ],
                &["True", "True", "True"],
            ),
            (
                "its lease is renewed",
                &[
                    (100, Some(("True", 1)), Some(1)),
                    (140, Some(("True", 1)), Some(2)),
                    (180, Some(("True", 1)), Some(3)),
                ],
                &["True", "True", "True"],
            ),
            (
                "nothing changes",
                &[
                    (100, Some(("True", 1)), Some(1)),
                    (150, Some(("True", 1)), Some(1)),
                    (151, Some(("True", 1)), Some(1)),
                ],
                &["True", "True", "Unknown*"],
            ),
            (
                "it was not ready",
                &[(100, Some(("False", 1)), None), (151, Some(("False", 1)), None)],
                &["False", "Unknown*"],
            ),
            (
                "it is unknown already",
                &[(100, Some(("Unknown", 1)), None), (151, Some(("Unknown", 1)), None)],
                &["Unknown", "Unknown"],
            ),
            (
                "it comes back",
                &[
                    (100, Some(("True", 1)), None),
                    (151, Some(("True", 1)), None),
                    (160, Some(("Unknown", 1)), None),
                    (170, Some(("True", 2)), None),
                ],
                &["True", "Unknown*", "Unknown", "True"],
            ),
            (
                "it never said anything",
                &[(30, None, None), (60, None, None), (61, None, None)],
                &["-", "-", "Unknown*"],
            ),
            (
                "it only renews its lease",
                &[(30, None, Some(1)), (61, None, Some(2)), (100, None, Some(3))],
                &["-", "-", "-"],
            ),
        ];
        for (name, looks, expected) in stories {
            assert_eq!(story(looks), expected, "{name}");
        }
    }

    #[test]
    fn all_that_a_silent_node_says_is_unknown_each_with_its_reason() {
        let mut silent = node(Some(("True", 1)));
        let pressure = json!({"type": "DiskPressure", "status": "Unknown", "reason": "r"});
        let conditions = silent.status.as_mut().and_then(|status| status.conditions.as_mut());
        conditions.expect("conditions").push(serde_json::from_value(pressure).expect("a condition"));
        let known = look(None, &silent, None, GRACES, at(100)).health;
        let looked = look(Some(&known), &silent, None, GRACES, at(200));
        let told = |one: &NodeCondition| {
            let time = |time: &Option<Time>| time.as_ref().map_or(-1, |time| time.0.as_second());
            format!(
                "{}={} {}: {} {} {}",
                one.type_,
                one.status,
                one.reason.as_deref().unwrap_or_default(),
                one.message.as_deref().unwrap_or_default(),
                time(&one.last_heartbeat_time),
                time(&one.last_transition_time)
            )
        };
        assert_eq!(
            looked.write.iter().map(told).collect::<Vec<_>>(),
            [
                "Ready=Unknown NodeStatusUnknown: Kubelet stopped posting node status. 1 200",
                "MemoryPressure=Unknown NodeStatusNeverUpdated: Kubelet never posted node status. 0 200",
                "PIDPressure=Unknown NodeStatusNeverUpdated: Kubelet never posted node status. 0 200",
            ]
        );
        assert_eq!((&*looked.found, looked.current.as_deref()), ("True", Some("Unknown")));
    }
}
