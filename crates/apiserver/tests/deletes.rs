//! DELETE in all its cases, eviction and binding.

mod common;

use common::{
    Answer, CONFIGMAPS, Cluster, JOBS, PODS, binding, cluster, cluster_with, configmap, failure, job, pod,
};
use serde_json::{Value, json};
use windlass_api::Gates;
use windlass_store::Limits;

const TRACKING: &str = "batch.kubernetes.io/job-tracking";

fn refusal(answer: &Answer, want: &Value) {
    assert_eq!(answer.body, *want);
    assert_eq!(u64::from(answer.code), want["code"].as_u64().expect("a code"));
}

/// `[deletionTimestamp, deletionGracePeriodSeconds, generation]`
fn deletion(object: &Value) -> Value {
    let meta = &object["metadata"];
    json!([meta["deletionTimestamp"], meta["deletionGracePeriodSeconds"], meta["generation"]])
}

async fn hold(cluster: &Cluster, name: &str) {
    let patch = json!({"metadata": {"finalizers": [TRACKING]}});
    assert_eq!(cluster.merge(&format!("{PODS}/{name}"), patch).await.code, 200);
}

async fn is_gone(cluster: &Cluster, path: &str) -> bool {
    cluster.get(path).await.code == 404
}

#[tokio::test]
async fn a_pod_that_no_node_runs_goes_at_once() {
    let cluster = cluster();
    let path = format!("{PODS}/a");
    cluster.pod("a").await;
    let gone = cluster.delete(&path, json!({"gracePeriodSeconds": 60})).await;
    assert_eq!((gone.code, deletion(&gone.body)), (200, json!(["2026-01-02T03:04:05Z", 0, 2])));
    assert!(is_gone(&cluster, &path).await);

    cluster.running_pod("a").await;
    cluster.merge(&format!("{path}/status"), json!({"status": {"phase": "Failed"}})).await;
    assert_eq!(cluster.delete(&path, Value::Null).await.code, 200);
    assert!(is_gone(&cluster, &path).await);
    let missing = failure(404, "NotFound", "pods \"a\" not found", json!({"name": "a", "kind": "pods"}));
    refusal(&cluster.delete(&path, json!({})).await, &missing);
}

#[tokio::test]
async fn a_running_pod_gets_its_grace_and_ends_with_the_nodes_delete() {
    let cluster = cluster();
    let path = format!("{PODS}/a");
    let pod = cluster.running_pod("a").await;
    let marked = cluster.delete(&path, json!({})).await;
    assert_eq!((marked.code, deletion(&marked.body)), (200, json!(["2026-01-02T03:04:35Z", 30, 2])));
    assert_eq!(cluster.get(&path).await.body, marked.body);

    let text = "Operation cannot be fulfilled on Pod \"a\": the UID in the precondition (other) does not match the UID \
                in record (00000000-0000-4000-8000-000000000004). The object might have been deleted and then recreated";
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": "other"}});
    refusal(
        &cluster.delete(&path, options).await,
        &failure(409, "Conflict", text, json!({"name": "a", "kind": "Pod"})),
    );
    let options = json!({"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}});
    assert_eq!(cluster.delete(&path, options).await.code, 200);
    assert!(is_gone(&cluster, &path).await);
}

#[tokio::test]
async fn a_second_delete_can_only_shorten_the_grace() {
    let cluster = cluster();
    let path = format!("{PODS}/a");
    cluster.running_pod("a").await;
    let first = cluster.delete(&path, json!({"gracePeriodSeconds": 30})).await.body;
    for options in [json!({}), json!({"gracePeriodSeconds": 30}), json!({"gracePeriodSeconds": 31})] {
        assert_eq!(cluster.delete(&path, options).await.body, first);
    }
    cluster.advance(5);
    let shorter = cluster.delete(&path, json!({"gracePeriodSeconds": 20})).await.body;
    assert_eq!(deletion(&shorter), json!(["2026-01-02T03:04:25Z", 20, 2]));
    cluster.advance(10);
    let elapsed = cluster.delete(&path, json!({"gracePeriodSeconds": 10})).await.body;
    assert_eq!(deletion(&elapsed), json!(["2026-01-02T03:04:20Z", 1, 2]));
    let negative = cluster.running_pod("b").await;
    assert_eq!(negative["spec"]["nodeName"], "n1");
    let marked = cluster.delete(&format!("{PODS}/b"), json!({"gracePeriodSeconds": -5})).await.body;
    assert_eq!(deletion(&marked), json!(["2026-01-02T03:04:21Z", 1, 2]));
}

#[tokio::test]
async fn a_finalizer_keeps_a_pod_until_it_is_removed_and_the_grace_is_over() {
    let cluster = cluster();
    let path = format!("{PODS}/a");
    let release = json!({"metadata": {"finalizers": null}});

    // never scheduled: no grace, only the finalizer keeps it
    cluster.pod("a").await;
    hold(&cluster, "a").await;
    let marked = cluster.delete(&path, json!({})).await.body;
    assert_eq!(deletion(&marked), json!(["2026-01-02T03:04:05Z", 0, 2]));
    cluster.advance(3);
    assert_eq!(cluster.delete(&path, json!({})).await.body, marked);
    let released = cluster.merge(&path, release.clone()).await;
    assert_eq!((released.code, released.body["metadata"].get("finalizers")), (200, None));
    assert!(is_gone(&cluster, &path).await);

    // running: the finalizer goes first, the pod waits for its node
    cluster.running_pod("a").await;
    hold(&cluster, "a").await;
    cluster.delete(&path, json!({})).await;
    cluster.merge(&path, release.clone()).await;
    assert!(!is_gone(&cluster, &path).await);
    cluster.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    assert!(is_gone(&cluster, &path).await);

    // running: the node is done first, the pod waits for its finalizer
    cluster.running_pod("a").await;
    hold(&cluster, "a").await;
    cluster.delete(&path, json!({})).await;
    cluster.advance(2);
    let done = cluster.delete(&path, json!({"gracePeriodSeconds": 0})).await.body;
    assert_eq!(deletion(&done), json!(["2026-01-02T03:04:10Z", 0, 2]));
    assert_eq!(cluster.merge(&format!("{path}/status"), release).await.code, 200);
    assert!(is_gone(&cluster, &path).await);
}

#[tokio::test]
async fn an_object_that_is_being_deleted_gets_no_new_finalizer_and_keeps_its_time() {
    let cluster = cluster();
    let path = format!("{PODS}/a");
    cluster.running_pod("a").await;
    hold(&cluster, "a").await;
    let marked = cluster.delete(&path, json!({})).await.body;
    let refused = cluster.merge(&path, json!({"metadata": {"finalizers": [TRACKING, "x/y"]}})).await;
    let text = "Pod \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if the object is \
                being deleted, found new finalizers []string{\"x/y\"}";
    assert_eq!((refused.code, &refused.body["message"]), (422, &json!(text)));
    let patch = json!({"metadata": {"deletionTimestamp": null, "deletionGracePeriodSeconds": 5, "annotations": {"k": "v"}}});
    let patched = cluster.merge(&path, patch).await.body;
    assert_eq!(deletion(&patched), deletion(&marked));
}

#[tokio::test]
async fn preconditions_on_the_version_hold_or_refuse() {
    let cluster = cluster();
    let path = format!("{JOBS}/j");
    let made = cluster.post(JOBS, job("j")).await.body;
    let text = "Operation cannot be fulfilled on Job.batch \"j\": the ResourceVersion in the precondition (1) does not \
                match the ResourceVersion in record (6). The object might have been modified";
    refusal(
        &cluster.delete(&path, json!({"preconditions": {"resourceVersion": "1"}})).await,
        &failure(409, "Conflict", text, json!({"name": "j", "group": "batch", "kind": "Job"})),
    );
    let version = &made["metadata"]["resourceVersion"];
    let options = json!({"preconditions": {"resourceVersion": version}, "propagationPolicy": "Background"});
    let gone = cluster.delete(&path, options).await;
    let details = json!({"name": "j", "group": "batch", "kind": "jobs", "uid": made["metadata"]["uid"]});
    let want = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    });
    assert_eq!((gone.code, gone.body, gone.warnings), (200, want, vec![]));
}

#[tokio::test]
async fn the_policy_of_a_job_delete_becomes_a_finalizer() {
    let cluster = cluster();
    let path = format!("{JOBS}/j");
    let warning = "299 - \"child pods are preserved by default when jobs are deleted; set propagationPolicy=Background \
                   to remove them or set propagationPolicy=Orphan to suppress this warning\"";
    for (options, finalizer, warnings) in [
        (json!({}), "orphan", vec![warning.to_owned()]),
        (json!({"propagationPolicy": "Orphan"}), "orphan", vec![]),
        (json!({"orphanDependents": true}), "orphan", vec![]),
        (json!({"propagationPolicy": "Foreground"}), "foregroundDeletion", vec![]),
    ] {
        cluster.post(JOBS, job("j")).await;
        let marked = cluster.delete(&path, options).await;
        assert_eq!(marked.code, 200);
        assert_eq!(marked.body["metadata"]["finalizers"], json!([finalizer]));
        assert_eq!(deletion(&marked.body), json!(["2026-01-02T03:04:05Z", 0, 2]));
        assert_eq!(marked.warnings, warnings);
        // what is there stays when a second delete says nothing, and goes when it asks for something else
        let again = cluster.delete(&path, json!({})).await;
        assert_eq!(again.body["metadata"]["finalizers"], json!([finalizer]));
        assert_eq!(
            cluster.delete(&path, json!({"propagationPolicy": "Background"})).await.body["kind"],
            "Status"
        );
        assert!(is_gone(&cluster, &path).await);
    }
    let refused = cluster.delete(&path, json!({"propagationPolicy": "Maybe"})).await;
    let text = "DeleteOptions.meta.k8s.io \"\" is invalid: propagationPolicy: Unsupported value: \"Maybe\": \
                supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\"";
    assert_eq!((refused.code, &refused.body["message"]), (422, &json!(text)));
}

#[tokio::test]
async fn options_may_stand_in_the_query() {
    let cluster = cluster();
    cluster.post(JOBS, job("j")).await;
    let path = format!("{JOBS}/j?propagationPolicy=Foreground");
    let marked = cluster.send(http::Method::DELETE, &path, "", String::new()).await;
    assert_eq!(marked.body["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    cluster.running_pod("a").await;
    let path = format!("{PODS}/a?gracePeriodSeconds=7");
    let marked = cluster.send(http::Method::DELETE, &path, "", String::new()).await;
    assert_eq!(deletion(&marked.body), json!(["2026-01-02T03:04:12Z", 7, 2]));
}

#[tokio::test]
async fn a_collection_is_deleted_as_far_as_it_is_selected() {
    let cluster = cluster();
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        let mut body = configmap(name);
        body["metadata"]["labels"] = json!({"l": label});
        cluster.post(CONFIGMAPS, body).await;
    }
    let deleted = cluster.delete(&format!("{CONFIGMAPS}?labelSelector=l%3Dx"), json!({})).await;
    let names = |list: &Value| -> Vec<String> {
        let items = list["items"].as_array().expect("items");
        items.iter().map(|item| item["metadata"]["name"].as_str().expect("name").to_owned()).collect()
    };
    assert_eq!((deleted.code, &deleted.body["kind"]), (200, &json!("ConfigMapList")));
    assert_eq!(names(&deleted.body), ["a", "c"]);
    assert_eq!(names(&cluster.get(CONFIGMAPS).await.body), ["b"]);
}

#[tokio::test]
async fn a_namespace_terminates_and_takes_nothing_new_but_some_stay() {
    let cluster = cluster();
    cluster.post("/api/v1/namespaces", json!({"metadata": {"name": "n"}})).await;
    let marked = cluster.delete("/api/v1/namespaces/n", json!({})).await.body;
    assert_eq!(
        (&marked["status"]["phase"], &marked["spec"]["finalizers"]),
        (&json!("Terminating"), &json!(["kubernetes"]))
    );
    let text = "configmaps \"c\" is forbidden: unable to create new content in namespace n because it is being terminated";
    let cause = json!([{
        "reason": "NamespaceTerminating", "message": "namespace n is being terminated", "field": "metadata.namespace",
    }]);
    refusal(
        &cluster.post("/api/v1/namespaces/n/configmaps", configmap("c")).await,
        &failure(403, "Forbidden", text, json!({"name": "c", "kind": "configmaps", "causes": cause})),
    );
    refusal(
        &cluster.delete("/api/v1/namespaces/default", json!({})).await,
        &failure(
            403,
            "Forbidden",
            "namespaces \"default\" is forbidden: this namespace may not be deleted",
            json!({"name": "default", "kind": "namespaces"}),
        ),
    );
}

#[tokio::test]
async fn an_eviction_marks_the_pod_and_deletes_it_with_its_own_options() {
    let cluster = cluster();
    cluster.running_pod("a").await;
    let path = format!("{PODS}/a");
    let body = json!({
        "apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": "a", "namespace": "default"},
        "deleteOptions": {"gracePeriodSeconds": 12},
    });
    let evicted = cluster.post(&format!("{path}/eviction"), body.clone()).await;
    let want =
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
    assert_eq!((evicted.code, evicted.body), (201, want));
    let pod = cluster.get(&path).await.body;
    assert_eq!(deletion(&pod), json!(["2026-01-02T03:04:17Z", 12, 2]));
    let disrupted = json!({
        "type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
        "message": "Eviction API: evicting", "lastTransitionTime": "2026-01-02T03:04:05Z", "lastProbeTime": null,
    });
    assert_eq!(pod["status"]["conditions"][1], disrupted);
    // once more: the condition keeps its time
    cluster.advance(3);
    assert_eq!(cluster.post(&format!("{path}/eviction"), body).await.code, 201);
    assert_eq!(cluster.get(&path).await.body, pod);
    refusal(
        &cluster.post(&format!("{path}/eviction"), json!({"metadata": {"name": "b"}})).await,
        &failure(400, "BadRequest", "name in URL does not match name in Eviction object", Value::Null),
    );
    refusal(
        &cluster.post(&format!("{PODS}/b/eviction"), json!({"metadata": {"name": "b"}})).await,
        &failure(404, "NotFound", "pods \"b\" not found", json!({"name": "b", "kind": "pods"})),
    );
}

#[tokio::test]
async fn an_eviction_honours_preconditions_across_its_two_writes() {
    let cluster = cluster();
    let pod = cluster.running_pod("a").await;
    let eviction = |version: &Value| json!({"metadata": {"name": "a"}, "deleteOptions": {"preconditions": {"resourceVersion": version}}});
    let path = format!("{PODS}/a/eviction");
    assert_eq!(cluster.post(&path, eviction(&json!("1"))).await.code, 409);
    assert_eq!(cluster.get(&format!("{PODS}/a")).await.body, pod);
    assert_eq!(cluster.post(&path, eviction(&pod["metadata"]["resourceVersion"])).await.code, 201);
}

#[tokio::test]
async fn without_its_gate_an_eviction_is_just_a_delete() {
    let gates = Gates { pod_disruption_conditions: false, ..Gates::default() };
    let cluster = cluster_with(gates, Limits::default());
    cluster.running_pod("a").await;
    let evicted = cluster.post(&format!("{PODS}/a/eviction"), json!({"metadata": {"name": "a"}})).await;
    assert_eq!(evicted.code, 201);
    let pod = cluster.get(&format!("{PODS}/a")).await.body;
    assert_eq!(pod["status"]["conditions"].as_array().map(Vec::len), Some(1));
    assert_eq!(deletion(&pod), json!(["2026-01-02T03:04:35Z", 30, 2]));
}

#[tokio::test]
async fn the_reason_of_a_delete_reaches_the_status_with_the_draft_gate_only() {
    let gates = Gates { retriable_and_non_retriable_failures: true, ..Gates::default() };
    for (gates, reason) in [(gates, json!("Preempted")), (Gates::default(), Value::Null)] {
        let cluster = cluster_with(gates, Limits::default());
        cluster.running_pod("a").await;
        let marked = cluster.delete(&format!("{PODS}/a"), json!({"reason": "Preempted"})).await.body;
        assert_eq!(marked["status"]["reason"], reason);
    }
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let cluster = cluster();
    cluster.pod("a").await;
    let path = format!("{PODS}/a/binding");
    let mut body = binding("a", "n1");
    body["metadata"]["annotations"] = json!({"k": "v"});
    assert_eq!(cluster.post(&path, body).await.code, 201);
    let pod = cluster.get(&format!("{PODS}/a")).await.body;
    assert_eq!((&pod["spec"]["nodeName"], &pod["metadata"]["annotations"]["k"]), (&json!("n1"), &json!("v")));
    let scheduled = json!({
        "type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z", "lastProbeTime": null,
    });
    assert_eq!(pod["status"]["conditions"], json!([scheduled]));
    assert_eq!(pod["metadata"]["generation"], 1);
    let details = json!({"name": "a", "kind": "pods/binding"});
    let text =
        "Operation cannot be fulfilled on pods/binding \"a\": pod a is already assigned to node \"n1\"";
    refusal(&cluster.post(&path, binding("a", "n2")).await, &failure(409, "Conflict", text, details.clone()));
    cluster.delete(&format!("{PODS}/a"), json!({})).await;
    let text = "Operation cannot be fulfilled on pods/binding \"a\": pod a is being deleted, cannot be assigned to a host";
    refusal(&cluster.post(&path, binding("a", "n2")).await, &failure(409, "Conflict", text, details));
}

#[tokio::test]
async fn a_binding_that_is_wrong_or_meant_for_another_pod_is_refused() {
    let cluster = cluster();
    let mut gated = pod("g");
    gated["spec"]["schedulingGates"] = json!([{"name": "x/y"}]);
    let made = cluster.post(PODS, gated).await.body;
    assert_eq!(made["status"]["conditions"][0]["reason"], "SchedulingGated");
    let text =
        "Operation cannot be fulfilled on pods/binding \"g\": pod g has non-empty .spec.schedulingGates";
    let details = json!({"name": "g", "kind": "pods/binding"});
    refusal(
        &cluster.post(&format!("{PODS}/g/binding"), binding("g", "n1")).await,
        &failure(409, "Conflict", text, details),
    );
    cluster.pod("a").await;
    let path = format!("{PODS}/a/binding");
    let mut other = binding("a", "n1");
    other["metadata"]["uid"] = json!("other");
    assert_eq!(cluster.post(&path, other).await.body["reason"], "Conflict");
    refusal(
        &cluster.post(&path, binding("a", "")).await,
        &failure(500, "", "target.name: Required value", Value::Null),
    );
    let text = "name in URL does not match name in Binding object";
    refusal(&cluster.post(&path, binding("b", "n1")).await, &failure(400, "BadRequest", text, Value::Null));
    refusal(
        &cluster.post(&format!("{PODS}/x/binding"), binding("x", "n1")).await,
        &failure(404, "NotFound", "pods \"x\" not found", json!({"name": "x", "kind": "pods"})),
    );
}
