//! What the server puts into new pods, and what it refuses because of other objects: upstream's admission plugins.

mod common;

use common::{Answer, Cluster, failure, pod, shared_cluster};
use serde_json::{Value, json};
use windlass_apiserver::Accounts;

const PODS: &str = common::PODS;
const CLASSES: &str = "/apis/scheduling.k8s.io/v1/priorityclasses";
const ACCOUNTS: &str = "/api/v1/namespaces/default/serviceaccounts";

fn with(name: &str, spec: Value) -> Value {
    let mut pod = pod(name);
    for (field, value) in spec.as_object().expect("a map") {
        pod["spec"][field] = value.clone();
    }
    pod
}

fn class(name: &str, value: i64, is_default: bool) -> Value {
    json!({"metadata": {"name": name}, "value": value, "globalDefault": is_default})
}

async fn made(cluster: &Cluster, path: &str, body: Value) -> Value {
    let answer = cluster.post(path, body).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body
}

fn forbidden(name: &str, why: &str) -> Answer {
    let details = json!({"name": name, "kind": "pods"});
    let body = failure(403, "Forbidden", &format!("pods {name:?} is forbidden: {why}"), details);
    Answer { code: 403, body, warnings: vec![] }
}

fn priority(pod: &Value) -> Value {
    let spec = &pod["spec"];
    json!([spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]])
}

#[tokio::test]
async fn a_pod_has_the_priority_of_its_class_or_of_the_default_class_or_none() {
    let c = shared_cluster(Accounts::Checked);
    let low = json!([null, 0, "PreemptLowerPriority"]);
    assert_eq!(priority(&made(&c, PODS, pod("plain")).await), low);
    let mut never = class("never", 7, false);
    never["preemptionPolicy"] = json!("Never");
    made(&c, CLASSES, never).await;
    made(&c, CLASSES, class("usual", -5, true)).await;
    let cases = [
        (json!({}), json!(["usual", -5, "PreemptLowerPriority"])),
        (json!({"priorityClassName": "never"}), json!(["never", 7, "Never"])),
        (json!({"priorityClassName": "never", "priority": 7}), json!(["never", 7, "Never"])),
        (
            json!({"priorityClassName": "system-node-critical"}),
            json!(["system-node-critical", 2_000_001_000, "PreemptLowerPriority"]),
        ),
        (
            json!({"priorityClassName": "system-cluster-critical"}),
            json!(["system-cluster-critical", 2_000_000_000, "PreemptLowerPriority"]),
        ),
    ];
    for (i, (spec, want)) in cases.into_iter().enumerate() {
        assert_eq!(priority(&made(&c, PODS, with(&format!("p{i}"), spec.clone())).await), want, "{spec}");
    }
    // A PUT that leaves it out does not lose it.
    let mut changed = c.get(&format!("{PODS}/p1")).await.body;
    for field in ["priority", "preemptionPolicy", "tolerations"] {
        changed["spec"].as_object_mut().expect("a spec").remove(field);
    }
    changed["spec"]["activeDeadlineSeconds"] = json!(5);
    let answer = c.put(&format!("{PODS}/p1"), changed).await;
    assert_eq!(answer.code, 200, "{}", answer.body);
    assert_eq!(priority(&answer.body), json!(["never", 7, "Never"]));
    assert_eq!(answer.body["spec"]["tolerations"].as_array().map(Vec::len), Some(2));
}

#[tokio::test]
async fn a_pod_whose_priority_can_not_be_known_is_forbidden() {
    let c = shared_cluster(Accounts::Checked);
    made(&c, CLASSES, class("seven", 7, false)).await;
    let cases = [
        (json!({"priorityClassName": "none"}), "no PriorityClass with name none was found"),
        (
            json!({"priority": 3}),
            "the integer value of priority (3) must not be provided in pod spec; priority admission controller \
             computed 0 from the given PriorityClass name",
        ),
        (
            json!({"priorityClassName": "seven", "priority": 8}),
            "the integer value of priority (8) must not be provided in pod spec; priority admission controller \
             computed 7 from the given PriorityClass name",
        ),
        (
            json!({"priorityClassName": "seven", "preemptionPolicy": "Never"}),
            "the string value of PreemptionPolicy (Never) must not be provided in pod spec; priority admission \
             controller computed PreemptLowerPriority from the given PriorityClass name",
        ),
    ];
    for (spec, why) in cases {
        assert_eq!(c.post(PODS, with("p", spec.clone())).await, forbidden("p", why), "{spec}");
    }
    let mut generated = with("p", json!({"priorityClassName": "none"}));
    generated["metadata"] = json!({"generateName": "p-"});
    let why = "no PriorityClass with name none was found";
    assert_eq!(c.post(PODS, generated).await, forbidden("p-", why), "a name that is still to be made");
}

#[tokio::test]
async fn there_is_one_default_class_and_system_classes_stay() {
    let c = shared_cluster(Accounts::Checked);
    made(&c, CLASSES, class("first", 1, true)).await;
    let refused = |name: &str, why: &str| {
        let details = json!({"name": name, "group": "scheduling.k8s.io", "kind": "priorityclasses"});
        let message = format!("priorityclasses.scheduling.k8s.io {name:?} is forbidden: {why}");
        Answer { code: 403, body: failure(403, "Forbidden", &message, details), warnings: vec![] }
    };
    let why = "PriorityClass first is already marked as default. Only one default can exist";
    assert_eq!(c.post(CLASSES, class("second", 2, true)).await, refused("second", why));
    made(&c, CLASSES, class("second", 2, false)).await;
    let make_default = json!({"globalDefault": true});
    assert_eq!(c.merge(&format!("{CLASSES}/second"), make_default.clone()).await, refused("second", why));
    assert_eq!(
        c.merge(&format!("{CLASSES}/first"), make_default).await.code,
        200,
        "it is the default already"
    );
    let why = "this is a system priority class and cannot be deleted";
    let name = "system-node-critical";
    assert_eq!(c.delete(&format!("{CLASSES}/{name}"), Value::Null).await, refused(name, why));
}

#[tokio::test]
async fn a_class_is_valid_or_refused_with_the_field() {
    let c = shared_cluster(Accounts::Checked);
    made(&c, CLASSES, class("there", 5, false)).await;
    let reserved = |why: &str| {
        format!(
            "metadata.name: Forbidden: priority class names with 'system-' prefix are reserved for system use only. \
             error: {why}"
        )
    };
    let mut odd = class("odd", 1, false);
    odd["preemptionPolicy"] = json!("Sometimes");
    let cases = [
        (class("big", 1_000_000_001, false), "value: Forbidden: maximum allowed value of a user defined priority is 1000000000".to_owned()),
        (class("system-x", 1, false), reserved("system-x is not a known system priority class")),
        (
            class("system-node-critical", 1, false),
            reserved("value of system-node-critical PriorityClass must be 2000001000"),
        ),
        (odd, "preemptionPolicy: Unsupported value: \"Sometimes\": supported values: \"PreemptLowerPriority\", \"Never\"".to_owned()),
    ];
    for (body, why) in cases {
        let name = body["metadata"]["name"].as_str().expect("a name").to_owned();
        let answer = c.post(CLASSES, body).await;
        let message = format!("PriorityClass.scheduling.k8s.io {name:?} is invalid: {why}");
        assert_eq!((answer.code, &answer.body["message"]), (422, &json!(message)));
    }
    let updates = [
        (json!({"value": 6}), "value: Forbidden: may not be changed in an update."),
        (
            json!({"preemptionPolicy": "Never"}),
            "preemptionPolicy: Invalid value: \"Never\": field is immutable",
        ),
    ];
    for (patch, why) in updates {
        let answer = c.merge(&format!("{CLASSES}/there"), patch).await;
        let message = format!("PriorityClass.scheduling.k8s.io \"there\" is invalid: {why}");
        assert_eq!((answer.code, &answer.body["message"]), (422, &json!(message)));
    }
    let class = c.merge(&format!("{CLASSES}/there"), json!({"description": "d"})).await.body;
    assert_eq!(class["preemptionPolicy"], "PreemptLowerPriority");
    assert_eq!(class["metadata"]["generation"], 1, "upstream never counts it up");
}

#[tokio::test]
async fn a_pod_tolerates_a_lost_node_for_five_minutes_unless_it_says_otherwise() {
    let c = shared_cluster(Accounts::Checked);
    let added = |key: &str| {
        json!({
            "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute",
            "tolerationSeconds": 300,
        })
    };
    let (not_ready, unreachable) = (added("not-ready"), added("unreachable"));
    let own = |value: Value| json!({"tolerations": [value]});
    let brief = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "tolerationSeconds": 1, "effect": "NoExecute"});
    let other = json!({"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoSchedule"});
    let all = json!({"operator": "Exists"});
    let cases = [
        (json!({}), json!([not_ready, unreachable])),
        (own(brief.clone()), json!([brief, unreachable])),
        (own(other.clone()), json!([other, not_ready, unreachable])),
        (own(all.clone()), json!([all])),
    ];
    for (i, (spec, want)) in cases.into_iter().enumerate() {
        assert_eq!(made(&c, PODS, with(&format!("p{i}"), spec)).await["spec"]["tolerations"], want);
    }
}

#[tokio::test]
async fn a_pod_is_labelled_with_the_zone_and_region_of_its_node() {
    let c = shared_cluster(Accounts::Checked);
    let place = json!({"topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"});
    let mut labels = place.clone();
    labels["disk"] = json!("fast");
    made(&c, "/api/v1/nodes", json!({"metadata": {"name": "here", "labels": labels}})).await;
    let mut own = with("own", json!({"nodeName": "here"}));
    own["metadata"]["labels"] = json!({"topology.kubernetes.io/zone": "elsewhere", "app": "a"});
    let mut want = place.clone();
    want["app"] = json!("a");
    assert_eq!(made(&c, PODS, own).await["metadata"]["labels"], want);
    let lost = made(&c, PODS, with("lost", json!({"nodeName": "gone"}))).await;
    assert_eq!(lost["metadata"]["labels"], pod("lost")["metadata"]["labels"]);

    for (name, kind, is_labelled) in [("bound", "Node", true), ("odd", "", false)] {
        let before = made(&c, PODS, pod(name)).await["metadata"]["labels"].clone();
        let binding = json!({"metadata": {"name": name}, "target": {"kind": kind, "name": "here"}});
        assert_eq!(c.post(&format!("{PODS}/{name}/binding"), binding).await.code, 201);
        let after = c.get(&format!("{PODS}/{name}")).await.body["metadata"]["labels"].clone();
        let mut want = before.clone();
        if is_labelled {
            for (label, value) in place.as_object().expect("a map") {
                want[label] = value.clone();
            }
        }
        assert_eq!(after, want, "{name}");
    }
}

#[tokio::test]
async fn a_new_node_takes_no_pods_until_somebody_says_that_it_is_ready() {
    let c = shared_cluster(Accounts::Checked);
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let other = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"});
    let cases = [
        (json!({}), json!([not_ready])),
        (json!({"spec": {"taints": null}}), json!([not_ready])),
        (json!({"spec": {"taints": [other]}}), json!([other, not_ready])),
        (json!({"spec": {"taints": [not_ready, other]}}), json!([not_ready, other])),
    ];
    for (i, (mut node, want)) in cases.into_iter().enumerate() {
        node["metadata"] = json!({"name": format!("n{i}")});
        assert_eq!(made(&c, "/api/v1/nodes", node).await["spec"]["taints"], want, "{i}");
    }
    let open = c.merge("/api/v1/nodes/n0", json!({"spec": {"taints": null}})).await;
    assert_eq!(open.body["spec"]["taints"], json!(null), "only new ones");
    let alone = shared_cluster(Accounts::Ignored);
    let node = made(&alone, "/api/v1/nodes", json!({"metadata": {"name": "n"}})).await;
    assert_eq!(node["spec"]["taints"], json!(null), "nobody would take it away");
}

#[tokio::test]
async fn every_pod_has_an_account_that_is_there() {
    let c = shared_cluster(Accounts::Checked);
    let secrets = json!([{"name": "registry"}]);
    made(&c, ACCOUNTS, json!({"metadata": {"name": "own"}, "imagePullSecrets": secrets})).await;
    let of = |pod: &Value| {
        let spec = &pod["spec"];
        json!([spec["serviceAccountName"], spec["serviceAccount"], spec["imagePullSecrets"], spec["volumes"]])
    };
    let cases = [
        (json!({}), json!(["default", "default", null, null])),
        (json!({"serviceAccountName": "own"}), json!(["own", "own", secrets, null])),
        (json!({"serviceAccount": "own"}), json!(["own", "own", secrets, null])),
        (
            json!({"serviceAccountName": "own", "imagePullSecrets": [{"name": "mine"}]}),
            json!(["own", "own", [{"name": "mine"}], null]),
        ),
    ];
    for (i, (spec, want)) in cases.into_iter().enumerate() {
        assert_eq!(of(&made(&c, PODS, with(&format!("p{i}"), spec)).await), want);
    }
    let why = "error looking up service account default/no: serviceaccount \"no\" not found";
    assert_eq!(c.post(PODS, with("p", json!({"serviceAccountName": "no"}))).await, forbidden("p", why));
    let mut mirror = with("m", json!({"serviceAccountName": "own"}));
    mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
    let why = "a mirror pod may not reference service accounts";
    assert_eq!(c.post(PODS, mirror).await, forbidden("m", why));
}

#[tokio::test]
async fn a_token_is_mounted_where_nodes_have_volumes_unless_pod_or_account_say_no() {
    let c = shared_cluster(Accounts::Mounted);
    let pod = made(&c, PODS, with("p", json!({"initContainers": [{"name": "i", "image": "host"}]}))).await;
    let name = pod["spec"]["volumes"][0]["name"].as_str().expect("a volume").to_owned();
    assert!(name.starts_with("kube-api-access-") && name.len() == "kube-api-access-".len() + 5, "{name}");
    let mounts = json!([{
        "name": name, "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
    }]);
    let volumes = json!([{"name": name, "projected": {"defaultMode": 420, "sources": [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}}]);
    assert_eq!(pod["spec"]["volumes"], volumes);
    assert_eq!(pod["spec"]["containers"][0]["volumeMounts"], mounts);
    assert_eq!(pod["spec"]["initContainers"][0]["volumeMounts"], mounts);

    made(&c, ACCOUNTS, json!({"metadata": {"name": "no"}, "automountServiceAccountToken": false})).await;
    let own = json!([{"name": "v", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]);
    let cases = [
        (json!({"automountServiceAccountToken": false}), 0),
        (json!({"serviceAccountName": "no"}), 0),
        (json!({"serviceAccountName": "no", "automountServiceAccountToken": true}), 1),
        (
            json!({
                "volumes": [{"name": "v", "emptyDir": {}}],
                "containers": [{"name": "c", "image": "host", "volumeMounts": own}],
            }),
            1,
        ),
    ];
    for (i, (spec, count)) in cases.into_iter().enumerate() {
        let pod = made(&c, PODS, with(&format!("p{i}"), spec.clone())).await;
        assert_eq!(pod["spec"]["volumes"].as_array().map_or(0, Vec::len), count, "{spec}");
    }
}

#[tokio::test]
async fn a_namespace_has_an_account_and_the_certificate_from_the_start() {
    let c = shared_cluster(Accounts::Checked);
    made(&c, "/api/v1/namespaces", json!({"metadata": {"name": "early"}})).await;
    c.server.publish_ca("PEM").expect("published");
    made(&c, "/api/v1/namespaces", json!({"metadata": {"name": "late"}})).await;
    for namespace in ["default", "kube-system", "early", "late"] {
        let base = format!("/api/v1/namespaces/{namespace}");
        let ca = format!("{base}/configmaps/kube-root-ca.crt");
        let account = format!("{base}/serviceaccounts/default");
        assert_eq!(c.get(&account).await.code, 200, "{account}");
        assert_eq!(c.get(&ca).await.body["data"], json!({"ca.crt": "PEM"}), "{ca}");
    }
}

#[tokio::test]
async fn the_service_of_the_api_is_there() {
    let c = shared_cluster(Accounts::Checked);
    let service = c.get("/api/v1/namespaces/default/services/kubernetes").await.body;
    let shown = json!([service["metadata"]["labels"], service["spec"], service["status"]]);
    let spec = json!({
        "clusterIP": "None", "internalTrafficPolicy": "Cluster", "sessionAffinity": "None", "type": "ClusterIP",
        "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": 6443}],
    });
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    assert_eq!(shown, json!([labels, spec, {"loadBalancer": {}}]));
}

#[tokio::test]
async fn nothing_is_made_in_a_namespace_that_is_not_there_or_ends() {
    let c = shared_cluster(Accounts::Checked);
    let missing =
        failure(404, "NotFound", "namespaces \"no\" not found", json!({"name": "no", "kind": "namespaces"}));
    assert_eq!(c.post("/api/v1/namespaces/no/pods", pod("p")).await.body, missing);
    made(&c, "/api/v1/namespaces", json!({"metadata": {"name": "ending"}})).await;
    assert_eq!(c.delete("/api/v1/namespaces/ending", Value::Null).await.code, 200);
    let why = "unable to create new content in namespace ending because it is being terminated";
    let details = json!({"name": "p", "kind": "pods", "causes": [{
        "reason": "NamespaceTerminating", "message": "namespace ending is being terminated",
        "field": "metadata.namespace",
    }]});
    let want = failure(403, "Forbidden", &format!("pods \"p\" is forbidden: {why}"), details);
    assert_eq!(c.post("/api/v1/namespaces/ending/pods", pod("p")).await.body, want);
    for name in ["default", "kube-public", "kube-system"] {
        let message = format!("namespaces {name:?} is forbidden: this namespace may not be deleted");
        let answer = c.delete(&format!("/api/v1/namespaces/{name}"), Value::Null).await;
        assert_eq!((answer.code, &answer.body["message"]), (403, &json!(message)));
    }
    assert_eq!(c.delete("/api/v1/namespaces/kube-node-lease", Value::Null).await.code, 200);
}
