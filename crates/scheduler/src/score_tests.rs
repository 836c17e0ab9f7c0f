use crate::meter::Unmetered;
use serde_json::{Value, json};

use super::*;
use crate::cluster::NodeFacts;
use crate::testing::{cluster, node, pod, sized};

fn chosen(pod: &PodFacts, nodes: Vec<NodeFacts>, pods: Vec<(&'static str, PodFacts)>) -> String {
    let cluster = cluster(nodes, pods);
    let nodes: Vec<&Node> = cluster.nodes().collect();
    best(pod, &cluster, &nodes, &mut Unmetered).expect("a node").facts.name.clone()
}

fn plain(names: &[&str]) -> Vec<NodeFacts> {
    names.iter().map(|name| node(name, json!({}))).collect()
}

#[test]
fn the_emptiest_node_is_the_best_and_the_first_of_equals() {
    let small = || sized("p", "100m", 0, json!({}));
    for (pods, want) in [
        (vec![], "a"),
        (vec![("a", sized("x", "100m", 0, json!({})))], "b"),
        (vec![("a", sized("x", "100m", 0, json!({}))), ("b", sized("y", "100m", 0, json!({})))], "c"),
        (
            vec![
                ("a", sized("x", "200m", 0, json!({}))),
                ("b", sized("y", "100m", 0, json!({}))),
                ("c", sized("z", "2", 0, json!({}))),
            ],
            "b",
        ),
        // Pods that say nothing count as well.
        (vec![("a", pod(json!({"metadata": {"name": "x"}})))], "b"),
    ] {
        assert_eq!(chosen(&small(), plain(&["a", "b", "c"]), pods.clone()), want, "{}", pods.len());
    }
}

#[test]
fn scores_are_upstreams() {
    let cluster = cluster(plain(&["a", "b"]), [("b", sized("x", "1", 0, json!({})))]);
    let nodes: Vec<&Node> = cluster.nodes().collect();
    // a: cpu 1000 of 2000 left 50, memory 200 MiB of 1 GiB left 80: 65. Balance: 0.5 and 0: 75 after 100: 62.
    // b: cpu 2000 of 2000 left 0, memory 400 MiB left 60: 30. Balance: 1 and 0: 50 after 75: 62.
    // Taints: 100 with weight 3 for both.
    assert_eq!(
        totals(&sized("p", "1", 0, json!({})), &cluster, &nodes, &mut Unmetered),
        [65 + 62 + 300, 30 + 62 + 300]
    );
    // Without requests there is no balance.
    assert_eq!(totals(&pod(json!({})), &cluster, &nodes, &mut Unmetered), [87 + 300, 52 + 300]);
}

#[test]
fn a_node_that_offers_nothing_gets_nothing_and_pods_spread_by_number() {
    let bare = |name: &str| node(name, json!({"status": {"allocatable": {"cpu": "0", "memory": "0"}}}));
    let other = pod(json!({"metadata": {"name": "x"}}));
    assert_eq!(chosen(&pod(json!({})), vec![bare("a"), bare("b")], vec![("a", other)]), "b");
}

#[test]
fn taints_and_wishes_weigh_more_than_emptiness() {
    let tainted =
        |name: &str| node(name, json!({"spec": {"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}}));
    let labelled = |name: &str| node(name, json!({"metadata": {"labels": {"disk": "ssd"}}}));
    let busy = |on: &'static str| vec![(on, sized("x", "500m", 0, json!({})))];
    let preference = |weight: i32, key: &str| json!({"weight": weight, "preference": {"matchExpressions": [{"key": key, "operator": "Exists"}]}});
    let wishing = |preferences: Value| {
        pod(
            json!({"spec": {"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferences}}}}),
        )
    };
    assert_eq!(chosen(&pod(json!({})), vec![tainted("a"), node("b", json!({}))], busy("b")), "b");
    let tolerating = pod(json!({"spec": {"tolerations": [{"key": "k", "operator": "Exists"}]}}));
    assert_eq!(chosen(&tolerating, vec![tainted("a"), node("b", json!({}))], busy("b")), "a");
    let nodes = || vec![node("a", json!({})), labelled("b")];
    assert_eq!(chosen(&wishing(json!([preference(1, "disk")])), nodes(), busy("b")), "b");
    assert_eq!(chosen(&wishing(json!([preference(1, "other")])), nodes(), busy("b")), "a");
    let both = json!([preference(1, "disk"), preference(100, "kubernetes.io/hostname")]);
    assert_eq!(chosen(&wishing(both), nodes(), busy("b")), "a", "1 in 101 is nothing");
}

#[test]
fn other_pods_draw_and_drive_away() {
    let terms = |name: &str| {
        json!([{"weight": 1, "podAffinityTerm": {"labelSelector": {"matchLabels": {"app": name}},
                "topologyKey": "kubernetes.io/hostname"}}])
    };
    let feeling = |kind: &str| {
        pod(
            json!({"spec": {"affinity": {kind: {"preferredDuringSchedulingIgnoredDuringExecution": terms("web")}}}}),
        )
    };
    let web = || sized("web", "100m", 0, json!({"metadata": {"labels": {"app": "web"}}}));
    assert_eq!(chosen(&feeling("podAffinity"), plain(&["a", "b"]), vec![("b", web())]), "b");
    let busier = sized("x", "1", 0, json!({}));
    assert_eq!(
        chosen(&feeling("podAntiAffinity"), plain(&["a", "b"]), vec![("a", web()), ("b", busier)]),
        "b"
    );
    let spread = json!([{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
                         "labelSelector": {"matchLabels": {"app": "web"}}}]);
    let spreading =
        pod(json!({"metadata": {"labels": {"app": "web"}}, "spec": {"topologySpreadConstraints": spread}}));
    let busy = sized("x", "1", 0, json!({}));
    assert_eq!(chosen(&spreading, plain(&["a", "b"]), vec![("a", web()), ("b", busy)]), "b");
}
