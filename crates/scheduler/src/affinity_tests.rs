use serde_json::{Value, json};

use super::*;
use crate::testing::{cluster, merged, node, pod};

const HOST: &str = "kubernetes.io/hostname";

fn term(selector: Value, key: &str) -> Value {
    json!({"labelSelector": selector, "topologyKey": key})
}

fn app(name: &str) -> Value {
    json!({"matchLabels": {"app": name}})
}

/// A pod with labels and affinity of a kind, required.
fn with(name: &str, labels: Value, kind: &str, terms: Value) -> PodFacts {
    let affinity = json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}});
    pod(json!({"metadata": {"name": name, "labels": labels}, "spec": {"affinity": affinity}}))
}

fn plain(name: &str, app: &str) -> PodFacts {
    pod(json!({"metadata": {"name": name, "labels": {"app": app}}}))
}

/// Nodes a and b in zone 1, c in zone 2, d in none.
fn nodes() -> Vec<NodeFacts> {
    let zone = |name: &str, zone: &str| node(name, json!({"metadata": {"labels": {"zone": zone}}}));
    vec![zone("a", "1"), zone("b", "1"), zone("c", "2"), node("d", json!({}))]
}

/// What each node says.
fn said(pod: &PodFacts, cluster: &Cluster) -> String {
    let state = State::of(pod, cluster);
    let word = |node: &crate::cluster::Node| match state.check(pod, &node.facts) {
        None => '.',
        Some(Clash::NotNear) => 'f',
        Some(Clash::Near) => 'n',
        Some(Clash::Unwelcome) => 'u',
    };
    cluster.nodes().map(word).collect()
}

#[test]
fn required_affinity_and_anti_affinity_both_ways() {
    let near = |key: &str| with("p", json!({"app": "x"}), "podAffinity", json!([term(app("web"), key)]));
    let far = |key: &str| with("p", json!({"app": "x"}), "podAntiAffinity", json!([term(app("web"), key)]));
    let hermit = with("hermit", json!({"app": "hermit"}), "podAntiAffinity", json!([term(app("x"), "zone")]));
    for (name, pod, others, want) in [
        ("near on a host", near(HOST), vec![("a", plain("w", "web"))], ".fff"),
        ("near in a zone", near("zone"), vec![("a", plain("w", "web"))], "..ff"),
        ("near to nobody", near("zone"), vec![("a", plain("w", "other"))], "ffff"),
        ("far on a host", far(HOST), vec![("a", plain("w", "web"))], "n..."),
        ("far in a zone", far("zone"), vec![("a", plain("w", "web"))], "nn.."),
        ("unwelcome", plain("p", "x"), vec![("a", hermit.clone())], "uu.."),
        ("not meant", plain("p", "y"), vec![("a", hermit.clone())], "...."),
        ("both", far(HOST), vec![("c", hermit), ("b", plain("w", "web"))], ".nu."),
    ] {
        assert_eq!(said(&pod, &cluster(nodes(), others)), want, "{name}");
    }
}

#[test]
fn one_pod_must_match_all_terms_and_the_first_of_its_kind_may_go_anywhere_with_the_labels() {
    let itself = |terms: Value| with("p", json!({"app": "web", "tier": "1"}), "podAffinity", terms);
    let tier = json!({"matchLabels": {"tier": "1"}});
    let both = || json!([term(app("web"), "zone"), term(tier.clone(), "zone")]);
    assert_eq!(said(&itself(both()), &cluster(nodes(), [])), "...f", "d has no zone");
    let half = [("a", plain("w", "web"))];
    assert_eq!(said(&itself(both()), &cluster(nodes(), half)), "...f", "matches one term only: nobody");
    let whole = pod(json!({"metadata": {"name": "w", "labels": {"app": "web", "tier": "1"}}}));
    assert_eq!(said(&itself(both()), &cluster(nodes(), [("c", whole)])), "ff.f");
    let other = with("p", json!({"app": "x"}), "podAffinity", json!([term(app("web"), "zone")]));
    assert_eq!(said(&other, &cluster(nodes(), [])), "ffff", "does not match itself");
}

#[test]
fn namespaces_are_listed_or_selected_or_the_pods_own() {
    let elsewhere = |namespace: &str| {
        pod(json!({"metadata": {"name": "w", "namespace": namespace, "labels": {"app": "web"}}}))
    };
    let with_term =
        |more: Value| with("p", json!({}), "podAntiAffinity", json!([merged(term(app("web"), HOST), more)]));
    for (more, namespace, want) in [
        (json!({}), "default", "n..."),
        (json!({}), "other", "...."),
        (json!({"namespaces": ["other"]}), "other", "n..."),
        (json!({"namespaces": ["other"]}), "default", "...."),
        (json!({"namespaceSelector": {}}), "other", "n..."),
        (json!({"namespaceSelector": {}}), "unknown", "n..."),
        (json!({"namespaceSelector": {"matchLabels": {"team": "a"}}}), "other", "n..."),
        (json!({"namespaceSelector": {"matchLabels": {"team": "b"}}}), "other", "...."),
        (
            json!({"namespaceSelector": {"matchLabels": {"team": "b"}}, "namespaces": ["other"]}),
            "other",
            "n...",
        ),
    ] {
        let mut cluster = cluster(nodes(), [("a", elsewhere(namespace))]);
        cluster.namespaces.insert("other".into(), [("team".into(), "a".into())].into());
        cluster.namespaces.insert("default".into(), BTreeMap::new());
        assert_eq!(said(&with_term(more.clone()), &cluster), want, "{more} {namespace}");
    }
}

#[test]
fn label_keys_narrow_a_term_to_pods_with_the_same_or_other_values() {
    let labelled = |name: &str, version: &str| {
        pod(json!({"metadata": {"name": name, "labels": {"app": "web", "version": version}}}))
    };
    for (more, want) in [
        (json!({"matchLabelKeys": ["version"]}), "n..."),
        (json!({"mismatchLabelKeys": ["version"]}), ".n.."),
        (json!({"matchLabelKeys": ["absent"]}), "nn.."),
    ] {
        let terms = json!([merged(term(app("web"), HOST), more.clone())]);
        let pod = with("p", json!({"app": "web", "version": "1"}), "podAntiAffinity", terms);
        let cluster = cluster(nodes(), [("a", labelled("x", "1")), ("b", labelled("y", "2"))]);
        assert_eq!(said(&pod, &cluster), want, "{more}");
    }
}

#[test]
fn pods_that_come_and_go_change_the_state() {
    let pod = with("p", json!({"app": "x"}), "podAntiAffinity", json!([term(app("web"), HOST)]));
    let hermit = with("hermit", json!({"app": "web"}), "podAntiAffinity", json!([term(app("x"), HOST)]));
    let cluster = cluster(nodes(), [("a", hermit.clone())]);
    let node = &cluster.node("a").expect("a node").facts;
    let mut state = State::of(&pod, &cluster);
    assert_eq!(state.check(&pod, node), Some(Clash::Near));
    state.change(&pod, &hermit, node, -1, &cluster);
    assert_eq!(state.check(&pod, node), None);
    state.change(&pod, &hermit, node, 1, &cluster);
    assert_eq!(state.check(&pod, node), Some(Clash::Near));
}

#[test]
fn nodes_are_liked_for_whom_they_hold_and_by_whom_they_hold() {
    let weighted = |kind: &str, weight: i32, name: &str| {
        let terms = json!([{"weight": weight, "podAffinityTerm": term(app(name), "zone")}]);
        json!({"spec": {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms}}}})
    };
    let named = |name: &str, labels: Value, more: Value| {
        pod(merged(json!({"metadata": {"name": name, "labels": labels}}), more))
    };
    let likes = |pod: &PodFacts, others: Vec<(&'static str, PodFacts)>| -> Vec<i64> {
        let cluster = cluster(nodes(), others);
        let liking = Liking::of(pod, &cluster);
        cluster.nodes().map(|node| liking.of_node(&node.facts)).collect()
    };
    let plain_x = || named("p", json!({"app": "x"}), json!({}));
    let fan = |kind: &str| named("fan", json!({"app": "fan"}), weighted(kind, 7, "x"));
    let needs = with("needs", json!({}), "podAffinity", json!([term(app("x"), "zone")]));
    for (name, pod, others, want) in [
        (
            "near",
            named("p", json!({}), weighted("podAffinity", 5, "web")),
            vec![("a", plain("w", "web"))],
            [5, 5, 0, 0],
        ),
        (
            "twice",
            named("p", json!({}), weighted("podAffinity", 5, "web")),
            vec![("a", plain("v", "web")), ("b", plain("w", "web"))],
            [10, 10, 0, 0],
        ),
        (
            "far",
            named("p", json!({}), weighted("podAntiAffinity", 5, "web")),
            vec![("c", plain("w", "web"))],
            [0, 0, -5, 0],
        ),
        ("wanted", plain_x(), vec![("c", fan("podAffinity"))], [0, 0, 7, 0]),
        ("unwanted", plain_x(), vec![("c", fan("podAntiAffinity"))], [0, 0, -7, 0]),
        ("needed", plain_x(), vec![("c", needs)], [0, 0, 1, 0]),
        ("nobody", plain_x(), vec![("c", plain("w", "web"))], [0, 0, 0, 0]),
    ] {
        assert_eq!(likes(&pod, others), want, "{name}");
    }
}
