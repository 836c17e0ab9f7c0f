use serde_json::{Value, json};

use super::*;
use crate::testing::{merged, node, pod, sized};

fn helps_with(change: Change<'_>, pod: &PodFacts, filter: Filter) -> bool {
    helps(change, pod, &[filter].into(), &BTreeMap::new())
}

#[test]
fn without_nodes_only_a_node_helps() {
    let (pod, node) = (pod(json!({})), node("n", json!({})));
    let filters = BTreeSet::new();
    assert!(helps(Change::NodeAdded(&node), &pod, &filters, &BTreeMap::new()));
    assert!(!helps(Change::PodGone(&pod), &pod, &filters, &BTreeMap::new()));
}

#[test]
fn a_node_helps_when_it_becomes_what_it_was_not() {
    let chooses = json!({"spec": {"nodeSelector": {"disk": "ssd"}}});
    let tainted = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    for (filter, bad, good, more) in [
        (Filter::NodeUnschedulable, json!({"spec": {"unschedulable": true}}), json!({}), json!({})),
        (Filter::TaintToleration, tainted, json!({}), json!({})),
        (Filter::NodeAffinity, json!({}), json!({"metadata": {"labels": {"disk": "ssd"}}}), chooses),
        (Filter::NodeResourcesFit, json!({"status": {"allocatable": {"cpu": "1"}}}), json!({}), json!({})),
    ] {
        let pod = sized("p", "2", 0, more);
        let (bad, good) = (node("n", bad), node("n", good));
        for (change, want) in [
            (Change::NodeAdded(&good), true),
            (Change::NodeAdded(&bad), false),
            (Change::NodeChanged(&bad, &good), true),
            (Change::NodeChanged(&good, &bad), false),
            (Change::NodeChanged(&good, &good), false),
            (Change::NodeGone(&good), false),
            (Change::PodPlaced(&pod), false),
        ] {
            assert_eq!(helps_with(change, &pod, filter), want, "{filter:?} {}", change.name());
        }
    }
}

#[test]
fn more_of_what_is_wanted_helps() {
    let pod = sized("p", "1", 0, json!({}));
    let offers = |cpu: &str, memory: &str, pods: &str| {
        node("n", json!({"status": {"allocatable": {"cpu": cpu, "memory": memory, "pods": pods}}}))
    };
    let fit = |change: Change<'_>| helps_with(change, &pod, Filter::NodeResourcesFit);
    assert!(fit(Change::PodGone(&sized("x", "0", 0, json!({})))), "its place, if nothing else");
    assert!(fit(Change::PodChanged(&sized("x", "2", 0, json!({})), &sized("x", "1", 0, json!({})))));
    assert!(!fit(Change::PodChanged(&sized("x", "1", 0, json!({})), &sized("x", "2", 0, json!({})))));
    assert!(fit(Change::NodeChanged(&offers("1", "1", "1"), &offers("2", "1", "1"))));
    assert!(fit(Change::NodeChanged(&offers("1", "1", "1"), &offers("1", "1", "2"))));
    assert!(!fit(Change::NodeChanged(&offers("1", "1", "1"), &offers("1", "2", "1"))), "not what it lacks");
    assert!(
        !fit(Change::NodeChanged(&offers("100m", "1", "1"), &offers("200m", "1", "1"))),
        "still not enough"
    );
}

#[test]
fn a_freed_port_helps_those_that_want_it() {
    let with_port = |name: &str, port: i32| {
        let port = json!({"containerPort": 1, "hostPort": port});
        pod(json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "ports": [port]}]}}))
    };
    let ports = |change: Change<'_>| helps_with(change, &with_port("p", 80), Filter::NodePorts);
    assert!(ports(Change::PodGone(&with_port("x", 80))));
    assert!(!ports(Change::PodGone(&with_port("x", 81))));
    assert!(!ports(Change::PodGone(&pod(json!({})))));
    assert!(ports(Change::NodeAdded(&node("n", json!({})))));
    assert!(!ports(Change::NodeChanged(&node("n", json!({})), &node("n", json!({})))));
}

fn labelled(name: &str, app: &str, more: Value) -> PodFacts {
    pod(merged(json!({"metadata": {"name": name, "labels": {"app": app}}}), more))
}

#[test]
fn pods_like_it_and_the_labels_of_nodes_move_the_spread() {
    let constraint = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
                            "labelSelector": {"matchLabels": {"app": "x"}}});
    let pod = labelled("p", "x", json!({"spec": {"topologySpreadConstraints": [constraint]}}));
    let like = labelled("o", "x", json!({}));
    let other = labelled("o", "y", json!({}));
    let far = labelled("o", "x", json!({"metadata": {"namespace": "other"}}));
    let zone = |zone: &str| node("n", json!({"metadata": {"labels": {"zone": zone}}}));
    let bare = node("n", json!({}));
    let tainted = node(
        "n",
        json!({"metadata": {"labels": {"zone": "1"}}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}}),
    );
    for (change, want) in [
        (Change::PodPlaced(&like), true),
        (Change::PodGone(&like), true),
        (Change::PodGone(&other), false),
        (Change::PodGone(&far), false),
        (Change::PodChanged(&like, &other), true),
        (Change::PodChanged(&like, &like), false),
        (Change::NodeAdded(&zone("1")), true),
        (Change::NodeAdded(&bare), false),
        (Change::NodeGone(&zone("1")), true),
        (Change::NodeGone(&bare), false),
        (Change::NodeChanged(&bare, &zone("1")), true),
        (Change::NodeChanged(&zone("1"), &zone("2")), true),
        (Change::NodeChanged(&zone("1"), &zone("1")), false),
        (Change::NodeChanged(&zone("1"), &tainted), true),
        (Change::NodeChanged(&bare, &bare), false),
    ] {
        assert_eq!(helps_with(change, &pod, Filter::PodTopologySpread), want, "{change:?}");
    }
}

#[test]
fn pods_that_come_draw_and_pods_that_go_free() {
    let term = |app: &str| json!({"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": "zone"});
    let with = |name: &str, app: &str, kind: &str, of: &str| {
        let affinity = json!({kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term(of)]}});
        labelled(name, app, json!({"spec": {"affinity": affinity}}))
    };
    let (near, far) = (with("p", "x", "podAffinity", "web"), with("p", "x", "podAntiAffinity", "web"));
    let plain = labelled("p", "x", json!({}));
    let (web, other) = (labelled("o", "web", json!({})), labelled("o", "other", json!({})));
    let hermit = with("h", "other", "podAntiAffinity", "x");
    let zone = |zone: &str| node("n", json!({"metadata": {"labels": {"zone": zone}}}));
    let bare = node("n", json!({}));
    for (pod, change, want) in [
        (&near, Change::PodPlaced(&web), true),
        (&near, Change::PodPlaced(&other), false),
        (&near, Change::PodGone(&web), false),
        (&near, Change::PodChanged(&other, &web), true),
        (&near, Change::NodeAdded(&zone("1")), true),
        (&near, Change::NodeAdded(&bare), false),
        (&near, Change::NodeChanged(&bare, &zone("1")), true),
        (&near, Change::NodeChanged(&zone("1"), &bare), false),
        (&far, Change::PodGone(&web), true),
        (&far, Change::PodGone(&other), false),
        (&far, Change::PodGone(&hermit), true),
        (&far, Change::PodPlaced(&web), false),
        (&far, Change::PodChanged(&web, &other), true),
        (&far, Change::NodeAdded(&bare), true),
        (&far, Change::NodeChanged(&zone("1"), &bare), true),
        (&far, Change::NodeChanged(&bare, &zone("1")), false),
        (&far, Change::NodeChanged(&zone("1"), &zone("2")), true),
        (&far, Change::NodeGone(&bare), false),
        (&plain, Change::PodGone(&hermit), true),
        (&plain, Change::PodGone(&web), false),
        (&plain, Change::NodeAdded(&bare), true),
    ] {
        assert_eq!(helps_with(change, pod, Filter::InterPodAffinity), want, "{} {change:?}", pod.name);
    }
}

#[test]
fn one_filter_that_hopes_is_enough() {
    let pod = sized("p", "1", 0, json!({}));
    let filters = [Filter::NodeAffinity, Filter::NodeResourcesFit].into();
    assert!(helps(Change::PodGone(&pod), &pod, &filters, &BTreeMap::new()));
    assert!(!helps(Change::PodPlaced(&pod), &pod, &filters, &BTreeMap::new()));
}
