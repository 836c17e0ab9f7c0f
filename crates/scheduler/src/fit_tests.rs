use crate::meter::Unmetered;
use serde_json::{Value, json};

use super::*;
use crate::testing::{cluster, node, pod, sized};

/// What a node says to a pod, on its own.
fn said(pod: &PodFacts, node: NodeFacts) -> Option<(Vec<String>, bool)> {
    let cluster = cluster([node], []);
    let node = cluster.nodes().next().expect("a node");
    let state = State::of(pod, &cluster, &mut Unmetered);
    misfit(pod, &node.facts, &node.usage, &state, &mut Unmetered)
        .map(|misfit| (misfit.reasons.iter().map(ToString::to_string).collect(), misfit.is_resolvable))
}

fn no(reason: &str, is_resolvable: bool) -> Option<(Vec<String>, bool)> {
    Some((vec![reason.to_owned()], is_resolvable))
}

#[test]
fn a_cordoned_node_takes_those_that_tolerate_it() {
    let cordoned = || node("n", json!({"spec": {"unschedulable": true}}));
    assert_eq!(said(&pod(json!({})), cordoned()), no("node(s) were unschedulable", false));
    let toleration =
        json!({"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"});
    assert_eq!(said(&pod(json!({"spec": {"tolerations": [toleration]}})), cordoned()), None);
}

#[test]
fn taints_keep_away_those_that_do_not_tolerate_them() {
    let taint = |effect: &str| json!({"spec": {"taints": [{"key": "k", "value": "v", "effect": effect}]}});
    let (yes, refused) = (None, no("node(s) had untolerated taint(s)", false));
    for (effect, tolerations, want) in [
        ("NoSchedule", json!([]), refused.clone()),
        ("NoExecute", json!([]), refused.clone()),
        ("PreferNoSchedule", json!([]), yes.clone()),
        ("NoSchedule", json!([{"key": "k", "value": "v"}]), yes.clone()),
        (
            "NoSchedule",
            json!([{"key": "k", "value": "v", "operator": "Equal", "effect": "NoSchedule"}]),
            yes.clone(),
        ),
        ("NoSchedule", json!([{"key": "k", "value": "w"}]), refused.clone()),
        ("NoSchedule", json!([{"key": "k", "operator": "Exists"}]), yes.clone()),
        ("NoSchedule", json!([{"operator": "Exists"}]), yes),
        ("NoSchedule", json!([{"key": "j", "operator": "Exists"}]), refused.clone()),
        ("NoSchedule", json!([{"operator": "Exists", "effect": "NoExecute"}]), refused.clone()),
        ("NoSchedule", json!([{"key": "k", "operator": "Gt", "value": "0"}]), refused),
    ] {
        let pod = pod(json!({"spec": {"tolerations": tolerations}}));
        assert_eq!(said(&pod, node("n", taint(effect))), want, "{effect} {tolerations}");
    }
}

#[test]
fn a_pod_chooses_its_nodes() {
    let terms = |terms: Value| json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}});
    let expression = |key: &str, operator: &str, values: &[&str]| json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
    let name = |operator: &str, values: &[&str]| json!({"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]});
    for (spec, want) in [
        (json!({"nodeSelector": {"disk": "ssd"}}), true),
        (json!({"nodeSelector": {"disk": "hdd"}}), false),
        (json!({"nodeSelector": {"disk": "ssd", "gpu": "yes"}}), false),
        (terms(json!([])), false),
        (terms(json!([{}])), false),
        (terms(json!([{}, expression("disk", "Exists", &[])])), true),
        (terms(json!([expression("disk", "In", &["hdd", "ssd"])])), true),
        (terms(json!([expression("disk", "NotIn", &["ssd"])])), false),
        (terms(json!([expression("gpu", "NotIn", &["yes"])])), true),
        (terms(json!([expression("gpu", "DoesNotExist", &[])])), true),
        (terms(json!([expression("gpu", "Exists", &[])])), false),
        (terms(json!([expression("cores", "Gt", &["7"])])), true),
        (terms(json!([expression("cores", "Gt", &["8"])])), false),
        (terms(json!([expression("cores", "Lt", &["9"])])), true),
        (terms(json!([expression("disk", "Lt", &["9"])])), false),
        (terms(json!([expression("disk", "Like", &["ssd"])])), false),
        (terms(json!([name("In", &["n"])])), true),
        (terms(json!([name("NotIn", &["n"])])), false),
        (
            terms(json!([{"matchFields": [{"key": "metadata.uid", "operator": "NotIn", "values": ["n"]}]}])),
            false,
        ),
        (
            terms(json!([{"matchExpressions": [{"key": "disk", "operator": "Exists"}],
                          "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["other"]}]}])),
            false,
        ),
    ] {
        let node = node("n", json!({"metadata": {"labels": {"disk": "ssd", "cores": "8"}}}));
        let want = if want { None } else { no("node(s) didn't match Pod's node affinity/selector", false) };
        assert_eq!(said(&pod(json!({"spec": spec})), node), want, "{spec}");
    }
}

#[test]
fn a_port_of_the_node_is_taken_once() {
    let wants = |port: i32| json!({"spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1, "hostPort": port}]}]}});
    let mut other = pod(wants(80));
    other.uid = "other".into();
    let cluster = cluster([node("n", json!({}))], [("n", other)]);
    let node = cluster.node("n").expect("a node");
    let check = |pod: PodFacts| {
        let state = State::of(&pod, &cluster, &mut Unmetered);
        misfit(&pod, &node.facts, &node.usage, &state, &mut Unmetered)
            .map(|misfit| (misfit.filter, misfit.is_resolvable))
    };
    assert_eq!(check(pod(wants(80))), Some((Filter::NodePorts, true)));
    assert_eq!(check(pod(wants(81))), None);
}

#[test]
fn all_that_is_short_is_named_and_too_much_for_an_empty_node_is_hopeless() {
    let requests = |requests: Value| json!({"spec": {"containers": [{"name": "c", "resources": {"requests": requests}}]}});
    let busy = || [("n", sized("a", "1500m", 0, json!({})))];
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    for (want_of, node_more, want) in [
        (json!({"cpu": "500m"}), json!({}), None),
        (json!({"cpu": "501m"}), json!({}), Some((texts(&["Insufficient cpu"]), true))),
        (json!({"cpu": "3"}), json!({}), Some((texts(&["Insufficient cpu"]), false))),
        (
            json!({}),
            json!({"status": {"allocatable": {"pods": "1"}}}),
            Some((texts(&["Too many pods"]), true)),
        ),
        (
            json!({"cpu": "1", "memory": "2Gi", "ephemeral-storage": "1", "example.com/gpu": "1"}),
            json!({"status": {"allocatable": {"pods": "1", "example.com/gpu": "1"}}}),
            Some((
                texts(&[
                    "Too many pods",
                    "Insufficient cpu",
                    "Insufficient memory",
                    "Insufficient ephemeral-storage",
                ]),
                false,
            )),
        ),
        (json!({"example.com/gpu": "1"}), json!({}), Some((texts(&["Insufficient example.com/gpu"]), false))),
    ] {
        let cluster = cluster([node("n", node_more)], busy());
        let node = cluster.node("n").expect("a node");
        let pod = pod(requests(want_of.clone()));
        let got = misfit(
            &pod,
            &node.facts,
            &node.usage,
            &State::of(&pod, &cluster, &mut Unmetered),
            &mut Unmetered,
        );
        let got = got.map(|misfit| {
            (misfit.reasons.iter().map(ToString::to_string).collect::<Vec<_>>(), misfit.is_resolvable)
        });
        assert_eq!(got, want, "{want_of}");
    }
}

#[test]
fn room_that_was_made_for_a_pod_is_kept_for_it_from_those_that_matter_no_more() {
    for (priority, uid, want) in [
        (5, "p", Some("Insufficient cpu")),
        (4, "p", Some("Insufficient cpu")),
        (6, "p", None),
        (5, "first", None),
    ] {
        let mut cluster = cluster([node("n", json!({}))], []);
        let first = std::sync::Arc::new(sized("first", "2", 5, json!({})));
        cluster.nominate(&first, Some("n"));
        let pod = sized(uid, "2", priority, json!({}));
        let node = cluster.node("n").expect("a node");
        let state = State::of(&pod, &cluster, &mut Unmetered);
        let got = misfit_with_nominated(&pod, node, &node.usage, &state, &cluster, &mut Unmetered);
        assert_eq!(got.map(|misfit| misfit.reasons[0].to_string()).as_deref(), want, "{priority} {uid}");
    }
}
