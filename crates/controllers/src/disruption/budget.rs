//! The arithmetic of a disruption budget. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::policy::v1::{PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, LabelSelector, Time};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use crate::cluster::{Key, PodFact};

const CONDITION: &str = "DisruptionAllowed";

/// How many pods there should be, and how many of them healthy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) expected: i32,
    pub(crate) desired: i32,
}

/// Whether the pods' controllers must be asked how many pods they want.
pub(crate) fn needs_scale(spec: &PodDisruptionBudgetSpec) -> bool {
    spec.max_unavailable.is_some() || matches!(spec.min_available, Some(IntOrString::String(_)))
}

/// What a budget wants of `pods` matching pods whose controllers want `scale` of them.
pub(crate) fn wanted(spec: &PodDisruptionBudgetSpec, pods: usize, scale: i32) -> Result<Wanted, String> {
    match (&spec.max_unavailable, &spec.min_available) {
        (Some(max), _) => {
            Ok(Wanted { expected: scale, desired: (scale.saturating_sub(scaled(max, scale)?)).max(0) })
        }
        (None, Some(IntOrString::Int(desired))) => {
            Ok(Wanted { expected: i32::try_from(pods).unwrap_or(i32::MAX), desired: *desired })
        }
        (None, Some(min)) => Ok(Wanted { expected: scale, desired: scaled(min, scale)? }),
        (None, None) => Ok(Wanted::default()),
    }
}

/// A number, or a share of the whole, rounded up. upstream: GetScaledValueFromIntOrPercent.
fn scaled(value: &IntOrString, whole: i32) -> Result<i32, String> {
    match value {
        IntOrString::Int(value) => Ok(*value),
        IntOrString::String(text) => {
            let wrong =
                || "invalid value for IntOrString: invalid type: string is not a percentage".to_owned();
            let percent: i64 = text.strip_suffix('%').ok_or_else(wrong)?.parse().map_err(|_| wrong())?;
            let product = percent.saturating_mul(i64::from(whole));
            Ok(i32::try_from(product.saturating_add(99).div_euclid(100)).unwrap_or(i32::MAX))
        }
    }
}

/// What became of a look at a budget.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Judged {
    /// To be written, if it is another.
    pub(crate) status: Option<PodDisruptionBudgetStatus>,
    /// When a pod that was to be deleted counts again.
    pub(crate) recheck: Option<Timestamp>,
    /// Pods that should have been deleted by now.
    pub(crate) not_deleted: Vec<Key>,
}

/// The status of a budget with these pods. An eviction that was allowed has `patience` to show.
pub(crate) fn judge(
    budget: &PodDisruptionBudget,
    pods: &[Arc<PodFact>],
    wanted: Wanted,
    patience: Duration,
    now: Timestamp,
) -> Judged {
    let old = budget.status.clone().unwrap_or_default();
    let mut judged = Judged { status: None, recheck: None, not_deleted: Vec::new() };
    let mut disrupted_pods = BTreeMap::new();
    let mut healthy: i32 = 0;
    for pod in pods.iter().filter(|pod| !pod.is_deleting) {
        let since = old.disrupted_pods.as_ref().and_then(|pods| pods.get(&*pod.key.name));
        let gone_by = since.map(|since| later(since.0, patience));
        match (since, gone_by) {
            (Some(_), Some(gone_by)) if gone_by < now => judged.not_deleted.push(pod.key.clone()),
            (Some(since), Some(gone_by)) => {
                judged.recheck = Some(judged.recheck.map_or(gone_by, |recheck| recheck.min(gone_by)));
                disrupted_pods.insert(pod.key.name.to_string(), since.clone());
            }
            (Some(_), None) | (None, _) => {}
        }
        if pod.ready == Some(true) && gone_by.is_none_or(|gone_by| gone_by <= now) {
            healthy = healthy.saturating_add(1);
        }
    }
    // upstream: one that has no pods allows nothing, so that it is safe when the first appear.
    let allowed = if wanted.expected <= 0 { 0 } else { healthy.saturating_sub(wanted.desired).max(0) };
    let generation = budget.metadata.generation.unwrap_or_default();
    let new = PodDisruptionBudgetStatus {
        current_healthy: Some(healthy),
        desired_healthy: Some(wanted.desired),
        expected_pods: Some(wanted.expected),
        disruptions_allowed: Some(allowed),
        disrupted_pods: Some(disrupted_pods),
        observed_generation: Some(generation),
        conditions: old.conditions.clone(),
    };
    if !is_same(&old, &new) || !is_told(&old, generation) {
        judged.status = Some(with_condition(new, allowed_condition(allowed), now));
    }
    judged
}

/// The status of a budget that can't be judged: it allows nothing, and says why.
pub(crate) fn failed(budget: &PodDisruptionBudget, why: &str, now: Timestamp) -> PodDisruptionBudgetStatus {
    let mut status = budget.status.clone().unwrap_or_default();
    status.disruptions_allowed = Some(0);
    with_condition(status, ("False", "SyncFailed", why), now)
}

/// When a pod whose eviction was allowed at that time must be gone.
fn later(since: Timestamp, patience: Duration) -> Timestamp {
    let patience = SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX);
    since.checked_add(patience).unwrap_or(Timestamp::MAX)
}

fn is_same(old: &PodDisruptionBudgetStatus, new: &PodDisruptionBudgetStatus) -> bool {
    let numbers = |status: &PodDisruptionBudgetStatus| {
        [status.current_healthy, status.desired_healthy, status.expected_pods, status.disruptions_allowed]
            .map(Option::unwrap_or_default)
    };
    numbers(old) == numbers(new)
        && old.observed_generation.unwrap_or_default() == new.observed_generation.unwrap_or_default()
        && old.disrupted_pods.clone().unwrap_or_default() == new.disrupted_pods.clone().unwrap_or_default()
}

/// Whether the condition says what the numbers say. upstream: ConditionsAreUpToDate.
fn is_told(status: &PodDisruptionBudgetStatus, generation: i64) -> bool {
    let (should_be, reason, _) = allowed_condition(status.disruptions_allowed.unwrap_or_default());
    let condition = status.conditions.iter().flatten().find(|one| one.type_ == CONDITION);
    status.observed_generation.unwrap_or_default() == generation
        && condition.is_some_and(|one| one.status == should_be && one.reason == reason)
}

/// Status, reason and message.
fn allowed_condition(allowed: i32) -> (&'static str, &'static str, &'static str) {
    match allowed > 0 {
        true => ("True", "SufficientPods", ""),
        false => ("False", "InsufficientPods", ""),
    }
}

/// Sets the condition; its time changes with its status. upstream: SetStatusCondition.
fn with_condition(
    mut status: PodDisruptionBudgetStatus,
    (is, reason, message): (&str, &str, &str),
    now: Timestamp,
) -> PodDisruptionBudgetStatus {
    let mut new = Condition {
        type_: CONDITION.to_owned(),
        status: is.to_owned(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        observed_generation: status.observed_generation,
        last_transition_time: Time(now),
    };
    let conditions = status.conditions.get_or_insert_default();
    match conditions.iter_mut().find(|one| one.type_ == CONDITION) {
        None => conditions.push(new),
        Some(old) => {
            if old.status == new.status {
                new.last_transition_time = old.last_transition_time.clone();
            }
            *old = new;
        }
    }
    status
}

/// As Go prints it, in an event.
pub(crate) fn shown(selector: Option<&LabelSelector>) -> String {
    let Some(selector) = selector else { return "nil".to_owned() };
    let labels = selector.match_labels.iter().flatten().map(|(key, value)| format!("{key}: {value},"));
    let expressions = selector.match_expressions.iter().flatten().map(|one| {
        let values = one.values.as_deref().unwrap_or_default().join(" ");
        format!("LabelSelectorRequirement{{Key:{},Operator:{},Values:[{values}],}},", one.key, one.operator)
    });
    format!(
        "&LabelSelector{{MatchLabels:map[string]string{{{}}},MatchExpressions:[]LabelSelectorRequirement{{{}}},}}",
        labels.collect::<String>(),
        expressions.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(120);

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn budget(spec: Value, status: Value) -> PodDisruptionBudget {
        let object = json!({"metadata": {"name": "b", "generation": 2}, "spec": spec, "status": status});
        serde_json::from_value(object).expect("a budget")
    }

    fn pod(name: &str, ready: bool) -> PodFact {
        PodFact { ready: Some(ready), ..PodFact::named(name) }
    }

    #[test]
    fn what_a_budget_wants_depends_on_what_it_names_and_rounds_up() {
        let cases = [
            (json!({"minAvailable": 2}), 3, 0, Ok((3, 2))),
            (json!({"minAvailable": 0}), 0, 0, Ok((0, 0))),
            (json!({"minAvailable": "50%"}), 9, 3, Ok((3, 2))),
            (json!({"minAvailable": "0%"}), 9, 3, Ok((3, 0))),
            (json!({"minAvailable": "100%"}), 9, 3, Ok((3, 3))),
            (json!({"maxUnavailable": 1}), 9, 3, Ok((3, 2))),
            (json!({"maxUnavailable": 5}), 9, 3, Ok((3, 0))),
            (json!({"maxUnavailable": "30%"}), 9, 10, Ok((10, 7))),
            (json!({"maxUnavailable": "1%"}), 9, 10, Ok((10, 9))),
            (json!({}), 9, 3, Ok((0, 0))),
            (
                json!({"minAvailable": "many"}),
                9,
                3,
                Err("invalid value for IntOrString: invalid type: string is not a percentage"),
            ),
        ];
        for (spec, pods, scale, expected) in cases {
            let expected =
                expected.map(|(expected, desired)| Wanted { expected, desired }).map_err(str::to_owned);
            let needs = needs_scale(&budget(spec.clone(), json!({})).spec.expect("a spec"));
            let is_number = spec["minAvailable"].is_number() || spec == json!({});
            assert_eq!(needs, !is_number, "{spec}");
            let spec = serde_json::from_value(spec).expect("a spec");
            assert_eq!(wanted(&spec, pods, scale), expected, "{spec:?}");
        }
    }

    #[test]
    fn only_ready_pods_that_nobody_ends_are_healthy() {
        let deleting = PodFact { is_deleting: true, ..pod("deleting", true) };
        let bare = PodFact::named("bare");
        let pods = [pod("a", true), pod("b", true), pod("slow", false), deleting, bare].map(Arc::new);
        let want = Wanted { expected: 5, desired: 1 };
        let status = judge(&budget(json!({}), json!({})), &pods, want, PATIENCE, at(9)).status;
        let expected = PodDisruptionBudgetStatus {
            current_healthy: Some(2),
            desired_healthy: Some(1),
            expected_pods: Some(5),
            disruptions_allowed: Some(1),
            disrupted_pods: Some(BTreeMap::new()),
            observed_generation: Some(2),
            conditions: Some(vec![Condition {
                type_: "DisruptionAllowed".to_owned(),
                status: "True".to_owned(),
                reason: "SufficientPods".to_owned(),
                message: String::new(),
                observed_generation: Some(2),
                last_transition_time: Time(at(9)),
            }]),
        };
        assert_eq!(status, Some(expected.clone()));
        let written = PodDisruptionBudget { status: Some(expected), ..budget(json!({}), json!({})) };
        assert_eq!(judge(&written, &pods, want, PATIENCE, at(10)).status, None, "nothing changed");
        let mut newer = written;
        newer.metadata.generation = Some(3);
        let status = judge(&newer, &pods, want, PATIENCE, at(10)).status.expect("it was observed");
        assert_eq!(status.observed_generation, Some(3));
        let condition = &status.conditions.expect("conditions")[0];
        assert_eq!((condition.observed_generation, &condition.last_transition_time), (Some(3), &Time(at(9))));
    }

    #[test]
    fn a_budget_allows_what_is_healthy_beyond_what_it_wants_and_nothing_while_it_has_no_pods() {
        let cases =
            [((3, 2), 3, 1), ((3, 3), 3, 0), ((3, 9), 3, 0), ((0, 0), 3, 0), ((-1, 0), 3, 0), ((3, 0), 0, 0)];
        for ((expected, desired), healthy, allowed) in cases {
            let pods: Vec<_> = (0..healthy).map(|n| Arc::new(pod(&n.to_string(), true))).collect();
            let want = Wanted { expected, desired };
            let status = judge(&budget(json!({}), json!({})), &pods, want, PATIENCE, at(9)).status;
            let status = status.expect("it is new");
            assert_eq!(status.disruptions_allowed, Some(allowed), "{want:?} {healthy}");
            let reason = &status.conditions.expect("conditions")[0].reason;
            assert_eq!(reason, if allowed > 0 { "SufficientPods" } else { "InsufficientPods" }, "{want:?}");
        }
    }

    #[test]
    fn a_pod_whose_eviction_was_allowed_counts_again_after_a_while_if_it_is_still_there() {
        let deleting = PodFact { is_deleting: true, ..pod("deleting", true) };
        let pods = [pod("new", true), pod("old", true), pod("other", true), deleting].map(Arc::new);
        let since = |second| json!(at(second));
        let disrupted =
            json!({"new": since(100), "old": since(10), "deleting": since(100), "unknown": since(100)});
        let budget = budget(json!({}), json!({"disruptedPods": disrupted}));
        let judged = judge(&budget, &pods, Wanted { expected: 4, desired: 1 }, PATIENCE, at(131));
        let status = judged.status.expect("it changed");
        assert_eq!(judged.not_deleted, [Key::new("ns", "old")]);
        assert_eq!(judged.recheck, Some(at(220)));
        assert_eq!(status.disrupted_pods, Some(BTreeMap::from([("new".to_owned(), Time(at(100)))])));
        assert_eq!((status.current_healthy, status.disruptions_allowed), (Some(2), Some(1)));
    }

    #[test]
    fn a_budget_that_cannot_be_judged_allows_nothing_and_says_why() {
        let condition = json!({"type": "DisruptionAllowed", "status": "True", "reason": "SufficientPods",
                               "message": "", "observedGeneration": 1, "lastTransitionTime": at(1)});
        let status = json!({"disruptionsAllowed": 3, "currentHealthy": 4, "observedGeneration": 1,
                            "conditions": [condition]});
        let status = failed(&budget(json!({}), status), "it is so", at(9));
        let condition = &status.conditions.as_ref().expect("conditions")[0];
        assert_eq!(
            (status.disruptions_allowed, status.current_healthy, status.observed_generation),
            (Some(0), Some(4), Some(1))
        );
        assert_eq!(
            (&*condition.status, &*condition.reason, &*condition.message, &condition.last_transition_time),
            ("False", "SyncFailed", "it is so", &Time(at(9)))
        );
    }

    #[test]
    fn a_selector_is_shown_as_go_prints_it() {
        let selector = json!({"matchLabels": {"b": "2", "a": "1"},
                              "matchExpressions": [{"key": "k", "operator": "In", "values": ["x", "y"]}]});
        let selector = serde_json::from_value(selector).expect("a selector");
        assert_eq!(
            shown(Some(&selector)),
            "&LabelSelector{MatchLabels:map[string]string{a: 1,b: 2,},MatchExpressions:[]LabelSelectorRequirement{\
             LabelSelectorRequirement{Key:k,Operator:In,Values:[x y],},},}"
        );
        assert_eq!(
            shown(Some(&LabelSelector::default())),
            "&LabelSelector{MatchLabels:map[string]string{},MatchExpressions:[]LabelSelectorRequirement{},}"
        );
        assert_eq!(shown(None), "nil");
    }
}
