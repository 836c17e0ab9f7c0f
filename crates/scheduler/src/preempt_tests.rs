use crate::meter::Unmetered;
use serde_json::{Value, json};

use super::*;
use crate::cluster::NodeFacts;
use crate::cycle::node_for;
use crate::testing::{cluster, node, sized};

const NOW: Timestamp = Timestamp::constant(10_000, 0);

fn started(name: &str, cpu: &str, priority: i32, at: i64, more: Value) -> PodFacts {
    let mut pod = sized(name, cpu, priority, more);
    pod.started = Some(Timestamp::from_second(at).expect("a time"));
    pod
}

/// What comes of a pod with 2 CPUs and priority 10 that fits nowhere.
fn looked(pod: &PodFacts, nominated: Option<&str>, cluster: &Cluster) -> String {
    let rejection = node_for(pod, nominated, cluster, 0, &mut Unmetered).expect_err("it fits nowhere");
    match find(pod, nominated, cluster, &rejection, NOW, 0) {
        Preemption::NotAsked => "not asked".to_owned(),
        Preemption::NotEligible(reason) => reason.to_owned(),
        Preemption::NoCandidate(reasons) => format!("none {reasons:?}"),
        Preemption::Chosen(candidate) => {
            let victims: Vec<&str> = candidate.victims.iter().map(|victim| &*victim.name).collect();
            format!("{} {} {}", candidate.node, victims.join(","), candidate.violations)
        }
    }
}

fn high() -> PodFacts {
    sized("high", "2", 10, json!({}))
}

fn nodes(names: &[&str]) -> Vec<NodeFacts> {
    names.iter().map(|name| node(name, json!({}))).collect()
}

fn budget(namespace: &str, app: &str, allowed: i32, disrupted: &[&str]) -> Budget {
    Budget {
        namespace: namespace.into(),
        selector: windlass_api::selector::Selector::parse(app).expect("a selector"),
        allowed,
        disrupted: disrupted.iter().map(|name| (*name).to_owned()).collect(),
    }
}

#[test]
fn only_pods_of_lower_priority_leave_and_no_more_of_them_than_must() {
    for (name, pods, want) in [
        ("all of one", vec![("a", sized("x", "2", 0, json!({})))], "a x 0"),
        (
            "equals stay",
            vec![("a", sized("x", "2", 10, json!({})))],
            "none [[\"No preemption victims found for incoming pod\"]]",
        ),
        (
            "not enough",
            vec![("a", sized("x", "1", 10, json!({}))), ("a", sized("y", "1", 0, json!({})))],
            "none [[\"Insufficient cpu\"]]",
        ),
        (
            "the less important",
            vec![("a", sized("x", "1", 0, json!({}))), ("a", sized("y", "1", 1, json!({})))],
            "a y,x 0",
        ),
    ] {
        assert_eq!(looked(&high(), None, &cluster(nodes(&["a"]), pods)), want, "{name}");
    }
    let small = sized("high", "1", 10, json!({}));
    let pods =
        vec![("a", started("old", "1", 0, 100, json!({}))), ("a", started("new", "1", 0, 200, json!({})))];
    assert_eq!(
        looked(&small, None, &cluster(nodes(&["a"]), pods)),
        "a new 0",
        "the one that ran for less long"
    );
    let pods =
        vec![("a", started("low", "1", 0, 100, json!({}))), ("a", started("mid", "1", 1, 200, json!({})))];
    assert_eq!(looked(&small, None, &cluster(nodes(&["a"]), pods)), "a low 0", "the one of lower priority");
}

#[test]
fn the_node_is_chosen_on_which_least_is_lost() {
    let low = |name: &str, cpu: &str, priority: i32, at: i64| started(name, cpu, priority, at, json!({}));
    for (name, pods, want) in [
        ("lowest highest priority", vec![("a", low("x", "2", 5, 1)), ("b", low("y", "2", 4, 1))], "b y 0"),
        (
            "lowest sum of priorities",
            vec![
                ("a", low("x", "1", 5, 1)),
                ("a", low("y", "1", 4, 1)),
                ("b", low("z", "1", 5, 1)),
                ("b", low("w", "1", 3, 1)),
            ],
            "b z,w 0",
        ),
        (
            "fewest pods",
            vec![("a", low("x", "1", 5, 1)), ("a", low("y", "1", i32::MIN, 1)), ("b", low("z", "2", 5, 1))],
            "b z 0",
        ),
        ("latest start", vec![("a", low("x", "2", 5, 1)), ("b", low("y", "2", 5, 2))], "b y 0"),
        ("first of equals", vec![("a", low("x", "2", 5, 1)), ("b", low("y", "2", 5, 1))], "a x 0"),
        (
            "not started is latest",
            vec![("a", low("x", "2", 5, 1)), ("b", sized("y", "2", 5, json!({})))],
            "b y 0",
        ),
    ] {
        assert_eq!(looked(&high(), None, &cluster(nodes(&["a", "b"]), pods)), want, "{name}");
    }
}

#[test]
fn budgets_are_respected_where_that_is_possible() {
    let labels = |app: &str| json!({"metadata": {"labels": {"app": app}}});
    let guarded = |name: &str, cpu: &str, priority: i32| sized(name, cpu, priority, labels("web"));
    let free = |name: &str, cpu: &str, priority: i32| sized(name, cpu, priority, labels("other"));
    let with = |pods: Vec<(&'static str, PodFacts)>, names: &[&str], budgets: Vec<Budget>| {
        let mut cluster = cluster(nodes(names), pods);
        for (i, budget) in budgets.into_iter().enumerate() {
            cluster.budgets.insert((budget.namespace.clone(), i.to_string()), budget);
        }
        cluster
    };
    let on_two = || vec![("a", guarded("x", "2", 0)), ("b", free("y", "2", 5))];
    let strict = || budget("default", "app=web", 0, &[]);
    for (name, cluster, want) in [
        ("another node", with(on_two(), &["a", "b"], vec![strict()]), "b y 0"),
        ("no other node", with(vec![("a", guarded("x", "2", 0))], &["a"], vec![strict()]), "a x 1"),
        ("it allows one", with(on_two(), &["a", "b"], vec![budget("default", "app=web", 1, &[])]), "a x 0"),
        (
            "counted already",
            with(on_two(), &["a", "b"], vec![budget("default", "app=web", 0, &["x"])]),
            "a x 0",
        ),
        ("another namespace", with(on_two(), &["a", "b"], vec![budget("other", "app=web", 0, &[])]), "a x 0"),
        (
            "an empty selector is about nobody",
            with(on_two(), &["a", "b"], vec![budget("default", "", 0, &[])]),
            "a x 0",
        ),
        (
            "the stricter of two",
            with(on_two(), &["a", "b"], vec![budget("default", "app=web", 1, &[]), strict()]),
            "b y 0",
        ),
    ] {
        assert_eq!(looked(&high(), None, &cluster), want, "{name}");
    }
    // One has to leave: of two that are guarded alike the budget lets the first go; the other is kept first.
    let small = sized("high", "1", 10, json!({}));
    let pods = vec![("a", guarded("x", "1", 0)), ("a", free("y", "1", 5))];
    assert_eq!(
        looked(&small, None, &with(pods, &["a"], vec![strict()])),
        "a y 0",
        "rather the one that matters more"
    );
}

#[test]
fn who_may_make_room() {
    let never = sized("high", "2", 10, json!({"spec": {"preemptionPolicy": "Never"}}));
    let victims = || vec![("a", sized("x", "2", 0, json!({})))];
    assert_eq!(
        looked(&never, None, &cluster(nodes(&["a"]), victims())),
        "not eligible due to preemptionPolicy=Never."
    );
    let leaving = |reason: &str| {
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": reason});
        sized(
            "x",
            "2",
            0,
            json!({
                "metadata": {"deletionTimestamp": "2026-01-02T03:04:05Z"}, "status": {"conditions": [condition]},
            }),
        )
    };
    let waits = "not eligible due to a terminating pod on the nominated node.";
    for (name, nominated, victim, more, want) in [
        ("its victim is leaving", Some("a"), leaving("PreemptionByScheduler"), json!({}), waits),
        ("another node was meant", Some("b"), leaving("PreemptionByScheduler"), json!({}), "a x 0"),
        ("it was never nominated", None, leaving("PreemptionByScheduler"), json!({}), "a x 0"),
        ("it leaves for another reason", Some("a"), leaving("DeletionByTaintManager"), json!({}), "a x 0"),
        ("it has not left yet", Some("a"), sized("x", "2", 0, json!({})), json!({}), "a x 0"),
        (
            "the node is of no use any more",
            Some("a"),
            leaving("PreemptionByScheduler"),
            json!({"spec": {"unschedulable": true}}),
            "none []",
        ),
    ] {
        let cluster = cluster([node("a", more)], [("a", victim)]);
        assert_eq!(looked(&high(), nominated, &cluster), want, "{name}");
    }
}

#[test]
fn pods_that_keep_others_away_can_be_made_to_leave() {
    let selector = json!({"matchLabels": {"app": "high"}});
    let term = json!({"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"});
    let anti = json!({"spec": {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}});
    let hermit = sized("hermit", "0", 0, anti);
    let bystander = sized("bystander", "1", 0, json!({}));
    let high = sized("high", "1", 10, json!({"metadata": {"labels": {"app": "high"}}}));
    let cluster = cluster(nodes(&["a"]), [("a", hermit), ("a", bystander)]);
    assert_eq!(looked(&high, None, &cluster), "a hermit 0");
}

#[test]
fn room_that_another_waits_for_is_not_given_away() {
    let mut cluster = cluster(nodes(&["a"]), [("a", sized("x", "1", 0, json!({})))]);
    cluster.nominate(&Arc::new(sized("first", "1", 10, json!({}))), Some("a"));
    assert_eq!(looked(&high(), None, &cluster), "none [[\"Insufficient cpu\"]]");
}

#[test]
fn nodes_that_are_no_use_are_not_asked() {
    let cordoned = node("a", json!({"spec": {"unschedulable": true}}));
    let small = node("b", json!({"status": {"allocatable": {"cpu": "1"}}}));
    let cluster = cluster(
        [cordoned, small],
        [("a", sized("x", "2", 0, json!({}))), ("b", sized("y", "1", 0, json!({})))],
    );
    assert_eq!(looked(&high(), None, &cluster), "none []");
}
