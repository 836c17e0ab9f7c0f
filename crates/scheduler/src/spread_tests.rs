use serde_json::{Value, json};

use super::*;
use crate::testing::{cluster, merged, node, pod};

fn constraint(skew: i32, key: &str, when: &str, more: Value) -> Value {
    let base = json!({
        "maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": "x"}},
    });
    merged(base, more)
}

fn with(constraints: Value) -> PodFacts {
    pod(
        json!({"metadata": {"labels": {"app": "x", "version": "1"}}, "spec": {"topologySpreadConstraints": constraints}}),
    )
}

/// Nodes a and b in zone 1, c in zone 2, d in none.
fn nodes() -> Vec<NodeFacts> {
    let zone = |name: &str, zone: &str| node(name, json!({"metadata": {"labels": {"zone": zone}}}));
    vec![zone("a", "1"), zone("b", "1"), zone("c", "2"), node("d", json!({}))]
}

fn like(name: &str, more: Value) -> PodFacts {
    pod(merged(json!({"metadata": {"name": name, "labels": {"app": "x", "version": "1"}}}), more))
}

fn said(pod: &PodFacts, cluster: &Cluster) -> String {
    let state = State::of(pod, cluster);
    let word = |node: &Node| match state.check(pod, &node.facts) {
        None => '.',
        Some(Skew::NoLabel) => 'l',
        Some(Skew::TooMany) => 's',
    };
    cluster.nodes().map(word).collect()
}

#[test]
fn no_place_gets_ahead_of_the_others_by_more_than_the_skew() {
    let hard = |skew, more| with(json!([constraint(skew, "zone", "DoNotSchedule", more)]));
    let one = || vec![("a", like("o", json!({})))];
    let two = || vec![("a", like("o", json!({}))), ("b", like("q", json!({})))];
    for (name, pod, others, want) in [
        ("empty", hard(1, json!({})), vec![], "...l"),
        ("one ahead", hard(1, json!({})), one(), "ss.l"),
        ("one ahead of two", hard(2, json!({})), one(), "...l"),
        ("two ahead of two", hard(2, json!({})), two(), "ss.l"),
        ("even", hard(1, json!({})), vec![("a", like("o", json!({}))), ("c", like("q", json!({})))], "...l"),
        (
            "others do not count",
            hard(1, json!({})),
            vec![("a", like("o", json!({"metadata": {"labels": {"app": "y"}}})))],
            "...l",
        ),
        (
            "other namespaces do not count",
            hard(1, json!({})),
            vec![("a", like("o", json!({"metadata": {"namespace": "other"}})))],
            "...l",
        ),
        (
            "those that end do not count",
            hard(1, json!({})),
            vec![("a", like("o", json!({"metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}})))],
            "...l",
        ),
        ("fewer domains than wanted: from zero", hard(1, json!({"minDomains": 3})), one(), "ss.l"),
        (
            "and when all have one",
            hard(1, json!({"minDomains": 3})),
            vec![("a", like("o", json!({}))), ("c", like("q", json!({})))],
            "sssl",
        ),
        ("only its own version", hard(1, json!({"matchLabelKeys": ["version"]})), one(), "ss.l"),
        (
            "not another version",
            hard(1, json!({"matchLabelKeys": ["version"]})),
            vec![("a", like("o", json!({"metadata": {"labels": {"version": "2"}}})))],
            "...l",
        ),
        (
            "it does not count itself",
            hard(1, json!({"labelSelector": {"matchLabels": {"app": "y"}}})),
            one(),
            "...l",
        ),
        (
            "an empty selector counts nothing",
            hard(1, json!({"labelSelector": {"matchLabels": null}})),
            two(),
            "...l",
        ),
        (
            "advice forbids nothing",
            with(json!([constraint(1, "zone", "ScheduleAnyway", json!({}))])),
            two(),
            "....",
        ),
    ] {
        assert_eq!(said(&pod, &cluster(nodes(), others)), want, "{name}");
    }
}

#[test]
fn nodes_that_the_pod_cannot_use_count_as_the_policies_say() {
    let tainted = || {
        let mut nodes = nodes();
        nodes[2] = node(
            "c",
            json!({
                "metadata": {"labels": {"zone": "2", "off": "yes"}},
                "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]},
            }),
        );
        cluster(nodes, [("a", like("o", json!({})))])
    };
    let avoiding = json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "off", "operator": "DoesNotExist"}]}]}}}});
    for (name, more, spec, want) in [
        ("taints are ignored", json!({}), json!({}), "ss.l"),
        ("taints are honoured", json!({"nodeTaintsPolicy": "Honor"}), json!({}), "...l"),
        ("affinity is honoured", json!({}), avoiding.clone(), "...l"),
        ("affinity is ignored", json!({"nodeAffinityPolicy": "Ignore"}), avoiding, "ss.l"),
    ] {
        let constraints = json!([constraint(1, "zone", "DoNotSchedule", more)]);
        let pod = like("p", json!({"spec": merged(json!({"topologySpreadConstraints": constraints}), spec)}));
        assert_eq!(said(&pod, &tainted()), want, "{name}");
    }
}

#[test]
fn pods_that_come_and_go_change_the_state() {
    let pod = with(json!([constraint(1, "zone", "DoNotSchedule", json!({}))]));
    let other = like("o", json!({}));
    let cluster = cluster(nodes(), [("a", other.clone())]);
    let node = &cluster.node("b").expect("a node").facts;
    let mut state = State::of(&pod, &cluster);
    assert_eq!(state.check(&pod, node), Some(Skew::TooMany));
    state.change(&pod, &other, node, -1);
    assert_eq!(state.check(&pod, node), None);
    state.change(&pod, &other, node, 1);
    assert_eq!(state.check(&pod, node), Some(Skew::TooMany));
}

#[test]
fn soft_rules_prefer_the_place_with_the_fewest() {
    let scored = |pod: &PodFacts, others: Vec<(&'static str, PodFacts)>| {
        let cluster = cluster(nodes(), others);
        let nodes: Vec<&Node> = cluster.nodes().collect();
        scores(pod, &cluster, &nodes)
    };
    let by = |key: &str| with(json!([constraint(1, key, "ScheduleAnyway", json!({}))]));
    let others =
        || vec![("a", like("o", json!({}))), ("b", like("q", json!({}))), ("c", like("r", json!({})))];
    assert_eq!(scored(&pod(json!({})), others()), None);
    assert_eq!(
        scored(&by("zone"), vec![]),
        Some(vec![100, 100, 100, 0]),
        "a node without the label gets nothing"
    );
    // ln(4) for two zones: 2 pods score 3, 1 pod scores 1.
    assert_eq!(scored(&by("zone"), others()), Some(vec![33, 33, 100, 0]));
    // ln(6) for four hosts: 1 pod scores 2.
    assert_eq!(scored(&by("kubernetes.io/hostname"), others()), Some(vec![0, 0, 0, 100]));
}
