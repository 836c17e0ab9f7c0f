//! All scenarios.
//!
//! `covers` of a scenario names what it proves: a test of `test/integration/job` of Kubernetes, a user story of a
//! document (`KEP-3329 story 1`), an issue of Kubernetes whose repair must not be lost (`#121147`), or a rule.

mod deletion;
mod failure_policy;
mod index_limits;
mod lifecycle;
mod ownership;
mod replacement;
mod stories;
mod success_policy;
mod tracking;

use serde_json::{Value, json};

use super::Scenario;
use super::compare::Known;

/// Every scenario that fits the test command.
pub fn all() -> Vec<Scenario> {
    let groups = [
        failure_policy::all(),
        success_policy::all(),
        index_limits::all(),
        replacement::all(),
        lifecycle::all(),
        deletion::all(),
        ownership::all(),
        tracking::all(),
        stories::all(),
    ];
    groups.into_iter().flatten().collect()
}

/// Those that take hundreds of pods.
pub fn large() -> Vec<Scenario> {
    tracking::large()
}

/// Differences from the built-in controller that we want.
pub const KNOWN: &[Known] = &[
    Known {
        body: None,
        scenario: "*",
        line: "events.Normal PodFailureIgnored",
        why: "each kind of verdict is told once, with rule, container and exit code",
    },
    Known {
        body: None,
        scenario: "*",
        line: "events.Normal PodFailureCounted",
        why: "each kind of verdict is told once, with rule, container and exit code",
    },
    Known {
        body: None,
        scenario: "*",
        line: "events.Warning PodFailureFailsIndex",
        why: "each kind of verdict is told once, with rule, container and exit code",
    },
    Known {
        body: None,
        scenario: "*",
        line: "events.Warning PodFailureFailsJob",
        why: "each kind of verdict is told once, with rule, container and exit code",
    },
    Known {
        body: None,
        scenario: "suspend-fails-when-resumed",
        line: "job.status.conditions",
        why: "a Job that is resumed says so, also when it ends at once; the built-in controller leaves it Suspended",
    },
    Known {
        body: None,
        scenario: "suspend-fails-when-resumed",
        line: "events.Normal Resumed",
        why: "as above",
    },
];

/// A failure policy.
pub(super) fn policy(rules: impl IntoIterator<Item = Value>) -> Value {
    json!({"podFailurePolicy": {"rules": rules.into_iter().collect::<Vec<_>>()}})
}

pub(super) fn on_exit(action: &str, operator: &str, values: &[i32]) -> Value {
    json!({"action": action, "onExitCodes": {"operator": operator, "values": values}})
}

fn on_disruption(action: &str) -> Value {
    json!({"action": action, "onPodConditions": [{"type": "DisruptionTarget"}]})
}

/// Both merged.
fn and(mut a: Value, b: Value) -> Value {
    super::merge(&mut a, b);
    a
}
