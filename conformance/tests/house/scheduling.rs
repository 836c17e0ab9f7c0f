//! Which pods are placed where, and what those are told that are not.

use anyhow::Result;
use serde_json::{Value, json};
use windlass_conformance::scenario::text;

use crate::place::{NODES, PODS, Place, and, needs};

/// A node offers this instead.
pub fn room(resources: Value) -> Value {
    json!({"status": {"capacity": resources, "allocatable": resources}})
}

fn labels(labels: Value) -> Value {
    json!({"metadata": {"labels": labels}})
}

fn spec(spec: Value) -> Value {
    json!({"spec": spec})
}

/// A pod on a node that it must be on: expressions of one term.
fn only_on(expressions: Value) -> Value {
    let terms = json!([{"matchExpressions": expressions}]);
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
    spec(json!({"affinity": {"nodeAffinity": required}}))
}

fn near(kind: &str, key: &str, app: &str) -> Value {
    let term = json!({"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}});
    spec(json!({"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}))
}

fn spread(key: &str) -> Value {
    let constraint = json!({"maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}}});
    spec(json!({"topologySpreadConstraints": [constraint]}))
}

const WEB: &str = "web";

fn web() -> Value {
    labels(json!({"app": WEB}))
}

/// Makes a pod, waits until it is refused, and writes it and its events down.
async fn refused(p: &mut Place, more: Value) -> Result<()> {
    p.pod("new", more).await?;
    let pod = p.until_refused("new").await?;
    p.write_down("refused", pod);
    p.events(&["Pod new FailedScheduling"]).await
}

/// Makes a pod, waits until it is placed, and writes it and its events down.
async fn placed(p: &mut Place, more: Value) -> Result<()> {
    p.pod("new", more).await?;
    is_placed(p).await
}

/// The pod is placed at last.
async fn is_placed(p: &mut Place) -> Result<()> {
    let pod = p.until_placed("new").await?;
    p.write_down("placed", pod);
    p.events(&["Pod new Scheduled"]).await
}

/// A pod that fits is placed.
pub async fn fits(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    placed(p, needs(json!({"cpu": "1", "memory": "1Gi"}))).await
}

/// One that asks for more than there is is told so.
pub async fn too_little_cpu(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    refused(p, needs(json!({"cpu": "5"}))).await
}

/// Each node lacks something else.
pub async fn too_little_of_everything(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", room(json!({"cpu": "16", "memory": "1Gi", "ephemeral-storage": "1Gi", "pods": "10"})))
        .await?;
    p.node("c", room(json!({"cpu": "1", "memory": "1Gi", "ephemeral-storage": "100Gi", "pods": "10"})))
        .await?;
    refused(p, needs(json!({"cpu": "5", "memory": "2Gi", "ephemeral-storage": "20Gi"}))).await
}

/// A node takes no more pods.
pub async fn too_many_pods(p: &mut Place) -> Result<()> {
    p.node("a", room(json!({"cpu": "4", "memory": "8Gi", "pods": "1"}))).await?;
    p.running("old", "a", json!({})).await?;
    refused(p, json!({})).await
}

/// Nobody offers what is asked for.
pub async fn an_unknown_resource(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", room(json!({"cpu": "4", "memory": "8Gi", "pods": "10", "example.com/gpu": "1"}))).await?;
    let resources = json!({"limits": {"example.com/gpu": "2"}});
    refused(p, spec(json!({"containers": [{"name": "main", "image": "host", "resources": resources}]}))).await
}

/// The largest init container and sidecars count.
pub async fn init_containers_and_overhead(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    let init = json!([
        {"name": "side", "image": "host", "restartPolicy": "Always", "resources": {"requests": {"cpu": "2"}}},
        {"name": "init", "image": "host", "resources": {"requests": {"cpu": "3"}}},
    ]);
    refused(p, and(needs(json!({"cpu": "1"})), spec(json!({"initContainers": init})))).await
}

/// There is nothing to place it on.
pub async fn no_nodes(p: &mut Place) -> Result<()> {
    refused(p, json!({})).await
}

/// A node gets the label that is asked for.
pub async fn a_selector_that_matches_later(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    refused(p, spec(json!({"nodeSelector": {"tier": "fast"}}))).await?;
    p.patch(NODES, &p.on("a"), labels(json!({"tier": "fast"}))).await?;
    is_placed(p).await
}

/// Every operator.
pub async fn affinity_to_nodes(p: &mut Place) -> Result<()> {
    p.node("a", labels(json!({"tier": "fast", "size": "3"}))).await?;
    p.node("b", labels(json!({"tier": "slow", "size": "7"}))).await?;
    p.node("c", labels(json!({"size": "5"}))).await?;
    for (name, expressions) in [
        ("in", json!([{"key": "tier", "operator": "In", "values": ["slow", "other"]}])),
        ("not-in", json!([{"key": "tier", "operator": "NotIn", "values": ["slow", "fast"]}])),
        ("without", json!([{"key": "tier", "operator": "DoesNotExist"}])),
        (
            "with",
            json!([{"key": "tier", "operator": "Exists"}, {"key": "size", "operator": "Lt", "values": ["4"]}]),
        ),
        ("greater", json!([{"key": "size", "operator": "Gt", "values": ["6"]}])),
    ] {
        p.pod(name, only_on(expressions)).await?;
        let pod = p.until_placed(name).await?;
        p.write_down(name, pod);
    }
    let fields = json!([{"key": "metadata.name", "operator": "In", "values": [p.on("c")]}]);
    let required = json!({"nodeSelectorTerms": [{"matchFields": fields}]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": required});
    p.pod("named", spec(json!({"affinity": {"nodeAffinity": required}}))).await?;
    let pod = p.until_placed("named").await?;
    p.write_down("named", pod);
    Ok(())
}

/// Neither selector nor affinity is met.
pub async fn affinity_that_no_node_has(p: &mut Place) -> Result<()> {
    p.node("a", labels(json!({"tier": "fast"}))).await?;
    p.node("b", json!({})).await?;
    let more = only_on(json!([{"key": "tier", "operator": "In", "values": ["slow"]}]));
    refused(p, and(more, needs(json!({"cpu": "1"})))).await
}

/// A node that is preferred is taken.
pub async fn preferred_nodes(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", labels(json!({"tier": "fast"}))).await?;
    p.node("c", json!({})).await?;
    let expression = json!({"key": "tier", "operator": "In", "values": ["fast"]});
    let preferred = json!([{"weight": 100, "preference": {"matchExpressions": [expression]}}]);
    let affinity = json!({"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}});
    placed(p, spec(json!({"affinity": affinity}))).await
}

fn taint(effect: &str) -> Value {
    spec(json!({"taints": [{"key": "k", "value": "v", "effect": effect}]}))
}

/// A taint keeps pods away as long as it is there.
pub async fn a_taint(p: &mut Place) -> Result<()> {
    p.node("a", taint("NoSchedule")).await?;
    p.node("b", taint("NoExecute")).await?;
    refused(p, json!({})).await?;
    p.taint("b", json!([])).await?;
    is_placed(p).await
}

/// Who tolerates a taint is placed.
pub async fn a_tolerated_taint(p: &mut Place) -> Result<()> {
    p.node("a", taint("NoSchedule")).await?;
    p.node("b", spec(json!({"taints": [{"key": "other", "effect": "NoSchedule"}]}))).await?;
    placed(p, spec(json!({"tolerations": [{"key": "k", "operator": "Equal", "value": "v"}]}))).await
}

/// One that would rather have no pods gets none while there is another.
pub async fn a_taint_to_be_avoided(p: &mut Place) -> Result<()> {
    p.node("a", taint("PreferNoSchedule")).await?;
    p.node("b", json!({})).await?;
    p.node("c", taint("PreferNoSchedule")).await?;
    placed(p, json!({})).await
}

/// A node is closed, and opened again.
pub async fn a_cordoned_node(p: &mut Place) -> Result<()> {
    p.node("a", spec(json!({"unschedulable": true}))).await?;
    refused(p, json!({})).await?;
    p.patch(NODES, &p.on("a"), spec(json!({"unschedulable": null}))).await?;
    is_placed(p).await
}

/// Nobody looks at a pod before its gates are open.
pub async fn gates(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.pod(
        "new",
        spec(json!({"schedulingGates": [{"name": "example.com/one"}, {"name": "example.com/two"}]})),
    )
    .await?;
    p.pod("other", json!({})).await?;
    p.until_placed("other").await?;
    p.note("gated", PODS, "new").await?;
    p.patch(PODS, "new", spec(json!({"schedulingGates": [{"name": "example.com/two"}]}))).await?;
    p.pod("another", json!({})).await?;
    p.until_placed("another").await?;
    p.note("still gated", PODS, "new").await?;
    p.patch(PODS, "new", spec(json!({"schedulingGates": []}))).await?;
    let pod = p.until_placed("new").await?;
    p.write_down("placed", pod);
    p.events(&["Pod new Scheduled", "Pod other Scheduled", "Pod another Scheduled"]).await
}

/// A pod wants to be where another is.
pub async fn affinity_to_pods(p: &mut Place) -> Result<()> {
    p.node("a", labels(json!({"topology.kubernetes.io/zone": "one"}))).await?;
    p.node("b", labels(json!({"topology.kubernetes.io/zone": "two"}))).await?;
    refused(p, near("podAffinity", "topology.kubernetes.io/zone", WEB)).await?;
    p.running("web", "b", web()).await?;
    is_placed(p).await
}

/// The first of those that want to be together goes anywhere.
pub async fn affinity_to_itself(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    placed(p, and(near("podAffinity", "kubernetes.io/hostname", WEB), web())).await?;
    p.node("b", json!({})).await?;
    p.pod("second", and(near("podAffinity", "kubernetes.io/hostname", WEB), web())).await?;
    let pod = p.until_placed("second").await?;
    p.write_down("second", pod);
    Ok(())
}

/// A pod wants to be where another is not.
pub async fn anti_affinity(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", taint("NoSchedule")).await?;
    p.running("web", "a", web()).await?;
    refused(p, near("podAntiAffinity", "kubernetes.io/hostname", WEB)).await?;
    p.taint("b", json!([])).await?;
    is_placed(p).await
}

/// Those that are there want to be alone.
pub async fn anti_affinity_of_those_that_are_there(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("lonely", "a", near("podAntiAffinity", "kubernetes.io/hostname", WEB)).await?;
    refused(p, web()).await
}

/// No zone may have more than one more than another.
pub async fn spread_over_zones(p: &mut Place) -> Result<()> {
    p.node("a", labels(json!({"topology.kubernetes.io/zone": "one"}))).await?;
    p.node(
        "b",
        and(
            labels(json!({"topology.kubernetes.io/zone": "two"})),
            room(json!({"cpu": "100m", "pods": "10"})),
        ),
    )
    .await?;
    p.node("c", and(labels(json!({"topology.kubernetes.io/zone": "two"})), taint("NoSchedule"))).await?;
    p.running("web", "a", web()).await?;
    refused(p, and(and(web(), spread("topology.kubernetes.io/zone")), needs(json!({"cpu": "1"})))).await?;
    p.taint("c", json!([])).await?;
    is_placed(p).await
}

/// A node that does not say where it is can't be spread over.
pub async fn spread_without_the_label(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    refused(p, and(web(), spread("example.com/rack"))).await
}

/// A port can be taken once.
pub async fn ports_of_the_host(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    let port = spec(json!({"containers": [
        {"name": "main", "image": "host", "ports": [{"containerPort": 80, "hostPort": 8080}]},
    ]}));
    p.running("old", "a", port.clone()).await?;
    refused(p, port).await
}

/// Each node has another reason, and one has two.
pub async fn many_reasons(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", taint("NoSchedule")).await?;
    p.node("c", spec(json!({"unschedulable": true}))).await?;
    p.node("d", room(json!({"cpu": "1", "memory": "64Mi", "pods": "110"}))).await?;
    p.node("e", json!({})).await?;
    p.running("full", "e", needs(json!({"cpu": "3"}))).await?;
    let here = json!({"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "NotIn", "values": [p.on("a")]}]});
    let required = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [here]}});
    refused(
        p,
        and(
            needs(json!({"cpu": "2", "memory": "1Gi"})),
            spec(json!({"affinity": {"nodeAffinity": required}})),
        ),
    )
    .await
}

/// A pod ends, and the one that waits takes its place.
pub async fn room_when_a_pod_ends(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("old", "a", needs(json!({"cpu": "3"}))).await?;
    refused(p, needs(json!({"cpu": "2"}))).await?;
    p.ends("old", 0).await?;
    is_placed(p).await
}

/// One that is being deleted still takes its room.
pub async fn no_room_while_a_pod_ends(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.running("old", "a", needs(json!({"cpu": "3"}))).await?;
    p.delete(PODS, "old", json!({})).await?;
    refused(p, needs(json!({"cpu": "2"}))).await?;
    p.ends_and_goes("old", 143).await?;
    is_placed(p).await
}

/// Pods go where the most room is.
pub async fn spread_by_room(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.node("b", json!({})).await?;
    let mut counts = [0, 0];
    for name in ["one", "two", "three", "four"] {
        p.pod(name, needs(json!({"cpu": "1", "memory": "1Gi"}))).await?;
        let pod = p.until_placed(name).await?;
        counts[usize::from(text(&pod, "/spec/nodeName") == p.on("b"))] += 1;
    }
    p.write_down("pods of each node", json!(counts));
    Ok(())
}

/// A pod of another scheduler is not touched.
pub async fn another_scheduler(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    p.pod("foreign", spec(json!({"schedulerName": "other"}))).await?;
    placed(p, json!({})).await?;
    p.note("foreign", PODS, "foreign").await
}

/// Who names a node is asked no questions.
pub async fn placed_by_hand(p: &mut Place) -> Result<()> {
    p.node("a", taint("NoSchedule")).await?;
    p.pod("by-hand", and(needs(json!({"cpu": "5"})), spec(json!({"nodeName": p.on("a")})))).await?;
    refused(p, json!({})).await?;
    p.note("by hand", PODS, "by-hand").await
}

/// Nobody waits for the end of a pod that was never placed.
pub async fn deleted_while_it_waits(p: &mut Place) -> Result<()> {
    p.node("a", json!({})).await?;
    refused(p, needs(json!({"cpu": "5"}))).await?;
    p.delete(PODS, "new", json!({})).await?;
    p.until_gone(PODS, "new").await
}
