use crate::meter::Unmetered;
use std::sync::Arc;

use serde_json::{Value, json};

use super::*;
use crate::testing::{cluster, node, pod, sized};

fn naming(terms: &[&[&[&str]]]) -> PodFacts {
    let field = |values: &&[&str]| json!({"key": "metadata.name", "operator": "In", "values": values});
    let term = |fields: &&[&[&str]]| json!({"matchFields": fields.iter().map(field).collect::<Vec<_>>()});
    let terms: Vec<Value> = terms.iter().map(term).collect();
    pod(
        json!({"spec": {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}}}),
    )
}

fn three() -> Cluster {
    cluster(["a", "b", "c"].map(|name| node(name, json!({}))), [])
}

fn found(pod: &PodFacts, nominated: Option<&str>, cluster: &Cluster) -> Option<String> {
    node_for(pod, nominated, cluster, 0, &mut Unmetered).ok().map(|node| node.facts.name.clone())
}

#[test]
fn a_pod_goes_on_the_best_node_that_does() {
    let busy = cluster(["a", "b"].map(|name| node(name, json!({}))), [("a", sized("x", "1", 0, json!({})))]);
    assert_eq!(found(&sized("p", "1", 0, json!({})), None, &busy).as_deref(), Some("b"));
    assert_eq!(found(&sized("p", "1", 0, json!({})), Some("a"), &busy).as_deref(), Some("a"), "kept for it");
    assert_eq!(
        found(&sized("p", "2", 0, json!({})), Some("a"), &busy).as_deref(),
        Some("b"),
        "no longer enough"
    );
    assert_eq!(found(&sized("p", "1", 0, json!({})), Some("gone"), &busy).as_deref(), Some("b"));
}

#[test]
fn nodes_named_by_fields_are_the_only_ones_that_are_asked() {
    for (pod, want) in [
        (naming(&[&[&["b"]]]), Ok("b")),
        (naming(&[&[&["x"]], &[&["c"]]]), Ok("c")),
        (naming(&[&[&["a", "b"], &["b", "c"]]]), Ok("b")),
        (naming(&[&[&["x"]]]), Err((None, 0, 3))),
        (naming(&[&[&["a"], &["b"]]]), Err((Some("pod affinity terms conflict"), 0, 0))),
    ] {
        let cluster = three();
        let got = node_for(&pod, None, &cluster, 0, &mut Unmetered);
        let got = got.map(|node| node.facts.name.as_str());
        let got = got
            .map_err(|rejection| (rejection.before_nodes, rejection.misfits.len(), rejection.others_count));
        assert_eq!(got, want, "{:?}", pod.demand.node_affinity);
    }
    let rejection =
        node_for(&naming(&[&[&["x"]]]), None, &three(), 0, &mut Unmetered).expect_err("no such node");
    assert_eq!(rejection.filters, [Filter::NodeAffinity].into());
}

#[test]
fn a_rejection_says_what_every_node_said() {
    let nodes = [
        node("a", json!({"spec": {"unschedulable": true}})),
        node("b", json!({"status": {"allocatable": {"cpu": "1"}}})),
        node("c", json!({})),
    ];
    let cluster = cluster(nodes, [("c", sized("x", "1", 0, json!({})))]);
    let rejection =
        node_for(&sized("p", "2", 0, json!({})), None, &cluster, 0, &mut Unmetered).expect_err("no room");
    let said: Vec<(&str, &str, bool)> = rejection
        .misfits
        .iter()
        .map(|(name, misfit)| (name.as_str(), &*misfit.reasons[0], misfit.is_resolvable))
        .collect();
    let want = [
        ("a", "node(s) were unschedulable", false),
        ("b", "Insufficient cpu", false),
        ("c", "Insufficient cpu", true),
    ];
    assert_eq!(said, want);
    assert_eq!(rejection.filters, [Filter::NodeUnschedulable, Filter::NodeResourcesFit].into());
    assert_eq!((rejection.nodes_count, rejection.others_count), (3, 0));
    let empty =
        node_for(&pod(json!({})), None, &Cluster::default(), 0, &mut Unmetered).expect_err("no nodes");
    assert_eq!((empty.nodes_count, empty.filters.len()), (0, 0));
}

#[test]
fn in_a_large_cluster_not_all_nodes_are_asked_and_others_come_first_each_time() {
    for (nodes, want) in [(1, 1), (99, 99), (100, 100), (150, 100), (250, 120), (1000, 420), (6000, 300)] {
        assert_eq!(feasible_enough(nodes), want, "{nodes}");
    }
    let nodes = (0..250).map(|i| node(&format!("n{i:03}"), json!({})));
    let cluster = cluster(nodes, []);
    for (start, want) in [(0, "n000"), (7, "n007"), (249, "n249"), (250, "n000")] {
        let got = node_for(&pod(json!({})), None, &cluster, start, &mut Unmetered).expect("room");
        assert_eq!(got.facts.name, want);
    }
}

#[test]
fn a_pod_that_waits_for_a_node_does_not_stand_in_its_own_way() {
    let mut cluster = three();
    let pod = Arc::new(sized("p", "2", 5, json!({})));
    cluster.nominate(&pod, Some("c"));
    assert_eq!(found(&pod, Some("c"), &cluster).as_deref(), Some("c"));
    let other = sized("q", "2", 5, json!({}));
    assert_eq!(found(&other, Some("c"), &cluster).as_deref(), Some("a"));
}
