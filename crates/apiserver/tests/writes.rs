//! Create, PUT and patches: what is stored, what is refused, and with which text.

mod common;

use common::{Answer, CONFIGMAPS, JOBS, PODS, cluster, cluster_with, configmap, failure, job, pod};
use http::Method;
use serde_json::{Value, json};
use tower::ServiceExt;
use windlass_api::Gates;
use windlass_store::Limits;

fn refusal(answer: &Answer, want: &Value) {
    assert_eq!(answer.body, *want);
    assert_eq!(u64::from(answer.code), want["code"].as_u64().expect("a code"));
}

#[tokio::test]
async fn a_created_object_has_what_the_server_says_and_keeps_what_it_does_not_know() {
    let cluster = cluster();
    let mut body = configmap("c");
    body["metadata"]["uid"] = json!("mine");
    body["metadata"]["generation"] = json!(7);
    body["metadata"]["creationTimestamp"] = Value::Null;
    body["metadata"]["deletionTimestamp"] = json!("2020-01-01T00:00:00Z");
    body["somethingNew"] = json!({"x": [1, {"y": null}]});
    let made = cluster.post(CONFIGMAPS, body).await;
    let want = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {
            "name": "c", "namespace": "default", "resourceVersion": "6",
            "uid": "00000000-0000-4000-8000-000000000004", "creationTimestamp": "2026-01-02T03:04:05Z",
            "generation": 7,
            "managedFields": [{
                "manager": "unknown", "operation": "Update", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
                "fieldsType": "FieldsV1",
                "fieldsV1": {"f:data": {".": {}, "f:a": {}}, "f:somethingNew": {".": {}, "f:x": {}}},
            }],
        },
        "data": {"a": "1"}, "somethingNew": {"x": [1, {}]},
    });
    let warnings = vec![r#"299 - "unknown field \"somethingNew\"""#.to_owned()];
    assert_eq!(made, Answer { code: 201, body: want.clone(), warnings });
    assert_eq!(cluster.get(&format!("{CONFIGMAPS}/c")).await.body, want);
}

#[tokio::test]
async fn a_generated_name_ends_in_five_characters_and_a_taken_one_is_not_given_again() {
    let cluster = cluster();
    let body = json!({"metadata": {"generateName": "c-"}});
    let mut names = Vec::new();
    for _ in 0..3 {
        let made = cluster.post(CONFIGMAPS, body.clone()).await;
        names.push(made.body["metadata"]["name"].as_str().expect("a name").to_owned());
    }
    // the counter of the test gives 4, 6 and 8: the odd ones became UIDs
    assert_eq!(names, ["c-gbbbb", "c-jbbbb", "c-lbbbb"]);
    let long = "x".repeat(80);
    let made = cluster.post(CONFIGMAPS, json!({"metadata": {"generateName": long}})).await;
    assert_eq!(made.body["metadata"]["name"].as_str().map(str::len), Some(63));
}

#[tokio::test]
async fn creates_are_refused_with_upstreams_texts() {
    let cluster = cluster();
    cluster.post(CONFIGMAPS, configmap("c")).await;
    let details = json!({"name": "c", "kind": "configmaps"});
    refusal(
        &cluster.post(CONFIGMAPS, configmap("c")).await,
        &failure(409, "AlreadyExists", "configmaps \"c\" already exists", details),
    );
    let mut body = configmap("d");
    body["metadata"]["namespace"] = json!("other");
    let text = "the namespace of the provided object does not match the namespace sent on the request";
    refusal(&cluster.post(CONFIGMAPS, body).await, &failure(400, "BadRequest", text, Value::Null));
    let mut body = configmap("d");
    body["metadata"]["resourceVersion"] = json!("5");
    let text = "resourceVersion should not be set on objects to be created";
    refusal(&cluster.post(CONFIGMAPS, body).await, &failure(500, "", text, Value::Null));
    refusal(
        &cluster.post("/api/v1/namespaces/nope/configmaps", configmap("d")).await,
        &failure(
            404,
            "NotFound",
            "namespaces \"nope\" not found",
            json!({"name": "nope", "kind": "namespaces"}),
        ),
    );
    let text = "ConfigMap in version \"v2\" cannot be handled as a ConfigMap: no kind \"ConfigMap\" is registered for version \"v2\" in scheme \"pkg/runtime/scheme.go:111\"";
    let body = json!({"apiVersion": "v2", "kind": "ConfigMap", "metadata": {"name": "d"}});
    refusal(&cluster.post(CONFIGMAPS, body).await, &failure(400, "BadRequest", text, Value::Null));
    let text = "Secret in version \"v1\" cannot be handled as a ConfigMap: converting (v1.Secret) to \
                (core.ConfigMap): unknown conversion";
    let body = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "d"}});
    refusal(&cluster.post(CONFIGMAPS, body).await, &failure(400, "BadRequest", text, Value::Null));
    let text = "ConfigMap \"\" is invalid: metadata.name: Required value: name or generateName is required";
    let causes = json!([{
        "reason": "FieldValueRequired", "message": "Required value: name or generateName is required",
        "field": "metadata.name",
    }]);
    refusal(
        &cluster.post(CONFIGMAPS, json!({})).await,
        &failure(422, "Invalid", text, json!({"kind": "ConfigMap", "causes": causes})),
    );
}

#[tokio::test]
async fn paths_methods_and_types_that_are_not_served_are_refused() {
    let cluster = cluster();
    let missing = failure(404, "NotFound", "the server could not find the requested resource", json!({}));
    for path in [
        "/nope",
        "/api/v2",
        "/apis/nope",
        "/apis/batch/v2",
        "/apis//v1",
        "/openapi/v3/apis/nope/v1",
        "/healthz/nope",
        "/api/v1/foos",
        "/apis/batch/v2/jobs",
        "/api/v1/namespaces/default/nodes",
        "/api/v1/pods/x",
        "/api/v1/namespaces/default/pods/x/y/z",
        "/api/v1/namespaces/default/pods/x%2Fy/nope",
        "/api/v1/%zz",
    ] {
        refusal(&cluster.get(path).await, &missing);
    }
    let text = "the server does not allow this method on the requested resource";
    let not_allowed = failure(405, "MethodNotAllowed", text, json!({}));
    refusal(&cluster.post("/api/v1/pods", pod("a")).await, &not_allowed);
    refusal(&cluster.post(&format!("{PODS}/a"), pod("a")).await, &not_allowed);
    refusal(&cluster.put(PODS, pod("a")).await, &not_allowed);
    refusal(&cluster.delete("/api/v1/namespaces", json!({})).await, &not_allowed);
    let text = "the body of the request was in an unknown format - accepted media types include: \
         application/json, application/yaml, application/vnd.kubernetes.protobuf";
    refusal(
        &cluster.send(Method::POST, PODS, "application/xml", "<pod/>".into()).await,
        &failure(415, "UnsupportedMediaType", text, Value::Null),
    );
    refusal(
        &cluster.send(Method::PATCH, &format!("{PODS}/a"), "application/json", "{}".into()).await,
        &failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", json!({})),
    );
    refusal(
        &cluster.send(Method::POST, PODS, "application/json", " ".repeat((3 << 20) + 1)).await,
        &failure(413, "RequestEntityTooLarge", "Request entity too large: limit is 3145728", Value::Null),
    );
}

#[tokio::test]
async fn a_put_names_the_version_it_is_based_on_or_none() {
    let cluster = cluster();
    let made = cluster.post(CONFIGMAPS, configmap("c")).await.body;
    let path = format!("{CONFIGMAPS}/c");
    let mut first = made.clone();
    first["data"]["a"] = json!("2");
    let put = cluster.put(&path, first).await;
    assert_eq!(
        (put.code, &put.body["data"]["a"], &put.body["metadata"]["resourceVersion"]),
        (200, &json!("2"), &json!("7"))
    );
    assert_eq!(put.body["metadata"]["uid"], made["metadata"]["uid"]);
    let text = "Operation cannot be fulfilled on configmaps \"c\": the object has been modified; \
                please apply your changes to the latest version and try again";
    let details = json!({"name": "c", "kind": "configmaps"});
    refusal(&cluster.put(&path, made.clone()).await, &failure(409, "Conflict", text, details.clone()));
    let mut unconditional = configmap("c");
    unconditional["data"]["a"] = json!("3");
    assert_eq!(cluster.put(&path, unconditional).await.body["data"]["a"], "3");
    let mut other = configmap("c");
    other["metadata"]["uid"] = json!("u");
    let text = "Operation cannot be fulfilled on configmaps \"c\": StorageError: invalid object, Code: 4, Key: \
                /registry/configmaps/default/c, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: \
                UID in precondition: u, UID in object meta: 00000000-0000-4000-8000-000000000004";
    refusal(&cluster.put(&path, other).await, &failure(409, "Conflict", text, details));
    let text = "the name of the object (d) does not match the name on the URL (c)";
    refusal(&cluster.put(&path, configmap("d")).await, &failure(400, "BadRequest", text, Value::Null));
    refusal(
        &cluster.put(&format!("{CONFIGMAPS}/d"), configmap("d")).await,
        &failure(404, "NotFound", "configmaps \"d\" not found", json!({"name": "d", "kind": "configmaps"})),
    );
}

#[tokio::test]
async fn leases_are_made_by_put_and_need_a_version_to_be_changed() {
    let cluster = cluster();
    let path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/n1";
    let made = cluster.put(path, json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n1"}})).await;
    assert_eq!(made.code, 201);
    let text = "leases.coordination.k8s.io \"n1\" is invalid: metadata.resourceVersion: Invalid value: 0: \
                must be specified for an update";
    let causes = json!([{
        "reason": "FieldValueInvalid", "message": "Invalid value: 0: must be specified for an update",
        "field": "metadata.resourceVersion",
    }]);
    let details = json!({"name": "n1", "group": "coordination.k8s.io", "kind": "leases", "causes": causes});
    refusal(
        &cluster.put(path, json!({"metadata": {"name": "n1"}, "spec": {"holderIdentity": "n2"}})).await,
        &failure(422, "Invalid", text, details),
    );
    let mut renewed = made.body;
    renewed["spec"]["renewTime"] = json!("2026-01-02T03:04:05.000000Z");
    assert_eq!(cluster.put(path, renewed).await.code, 200);
}

#[tokio::test]
async fn a_write_that_changes_nothing_makes_no_revision() {
    let cluster = cluster();
    let made = cluster.pod("a").await;
    let path = format!("{PODS}/a");
    assert_eq!(cluster.put(&path, made.clone()).await.body, made);
    assert_eq!(cluster.merge(&path, json!({"metadata": {"labels": {"app": "a"}}})).await.body, made);
    assert_eq!(
        cluster.strategic(&format!("{path}/status"), json!({"status": {"phase": "Pending"}})).await.body,
        made
    );
    assert_eq!(cluster.server.store().revision(), 6);
}

#[tokio::test]
async fn each_patch_type_patches_and_unknown_fields_stay() {
    let cluster = cluster();
    let mut body = pod("a");
    body["metadata"]["finalizers"] = json!(["x/1", "x/2"]);
    body["spec"]["fieldOfTomorrow"] = json!({"a": 1});
    let made = cluster.post(PODS, body).await;
    assert_eq!(made.code, 201, "{made:?}");
    let path = format!("{PODS}/a");
    let patch = json!({"metadata": {"annotations": {"k": "v"}, "labels": {"app": null}}});
    let merged = cluster.merge(&path, patch).await.body;
    assert_eq!(merged["metadata"]["annotations"], json!({"k": "v"}));
    assert_eq!(merged["metadata"].get("labels"), None);
    let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x/1"], "finalizers": ["x/3"]}});
    let merged = cluster.strategic(&path, patch).await.body;
    assert_eq!(merged["metadata"]["finalizers"], json!(["x/3", "x/2"]));
    let patch = json!([
        {"op": "test", "path": "/metadata/finalizers/0", "value": "x/3"},
        {"op": "remove", "path": "/metadata/finalizers/0"},
    ]);
    let patched = cluster.json_patch(&path, patch.clone()).await.body;
    assert_eq!(patched["metadata"]["finalizers"], json!(["x/2"]));
    assert_eq!(patched["spec"]["fieldOfTomorrow"], json!({"a": 1}));
    assert_eq!(patched["metadata"]["generation"], 1);
    let text = "the server rejected our request due to an error in our request";
    refusal(&cluster.json_patch(&path, patch).await, &failure(422, "Invalid", text, json!({})));
    let patch = json!({"status": {"conditions": [{"status": "True"}]}});
    let text = "map: map[status:True] does not contain declared merge key: type";
    refusal(&cluster.strategic(&format!("{path}/status"), patch).await, &failure(500, "", text, Value::Null));
}

#[tokio::test]
async fn a_patch_may_name_the_version_and_the_uid_it_is_meant_for() {
    let cluster = cluster();
    let made = cluster.pod("a").await;
    let path = format!("{PODS}/a");
    let patch = |meta: Value| {
        let mut patch = json!({"metadata": {"annotations": {"k": "v"}}});
        for (field, value) in meta.as_object().expect("a map") {
            patch["metadata"][field] = value.clone();
        }
        patch
    };
    let text = "Operation cannot be fulfilled on pods \"a\": the object has been modified; \
                please apply your changes to the latest version and try again";
    let details = json!({"name": "a", "kind": "pods"});
    let stale = cluster.merge(&path, patch(json!({"resourceVersion": "5"}))).await;
    refusal(&stale, &failure(409, "Conflict", text, details));
    let cause = json!({"reason": "FieldValueInvalid", "message": "Invalid value: \"other\": field is immutable", "field": "metadata.uid"});
    let text = "Pod \"a\" is invalid: metadata.uid: Invalid value: \"other\": field is immutable";
    let details = json!({"name": "a", "kind": "Pod", "causes": [cause, cause]});
    let other = cluster.strategic(&format!("{path}/status"), patch(json!({"uid": "other"}))).await;
    refusal(&other, &failure(422, "Invalid", text, details));
    let both = json!({"resourceVersion": "6", "uid": made["metadata"]["uid"]});
    assert_eq!(cluster.merge(&path, patch(both)).await.code, 200);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_patches_without_a_version_all_happen() {
    let cluster = std::sync::Arc::new(cluster());
    cluster.post(CONFIGMAPS, configmap("c")).await;
    let tasks: Vec<_> = (0..20)
        .map(|i| {
            let cluster = std::sync::Arc::clone(&cluster);
            tokio::spawn(async move {
                cluster.merge(&format!("{CONFIGMAPS}/c"), json!({"data": {format!("k{i}"): "v"}})).await.code
            })
        })
        .collect();
    for task in tasks {
        assert_eq!(task.await.expect("ran"), 200);
    }
    let stored = cluster.get(&format!("{CONFIGMAPS}/c")).await.body;
    assert_eq!(stored["data"].as_object().map(serde_json::Map::len), Some(21));
    assert_eq!(stored["metadata"]["resourceVersion"], "26");
}

#[tokio::test]
async fn status_and_the_rest_are_written_apart() {
    let cluster = cluster();
    let mut body = pod("a");
    body["status"] = json!({"phase": "Succeeded"});
    let made = cluster.post(PODS, body).await.body;
    assert_eq!(made["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
    let path = format!("{PODS}/a");
    let main = cluster
        .merge(&path, json!({"metadata": {"labels": {"x": "y"}}, "status": {"phase": "Failed"}}))
        .await
        .body;
    assert_eq!(
        (&main["status"]["phase"], &main["metadata"]["labels"]["x"]),
        (&json!("Pending"), &json!("y"))
    );
    let patch = json!({
        "metadata": {"annotations": {"k": "v"}, "ownerReferences": [{"apiVersion": "v1", "kind": "X", "name": "x", "uid": "u"}]},
        "spec": {"restartPolicy": "Always"},
        "status": {"phase": "Failed", "qosClass": null},
    });
    let status = cluster.merge(&format!("{path}/status"), patch).await.body;
    assert_eq!(status["spec"], made["spec"]);
    assert_eq!(status["status"], json!({"phase": "Failed", "qosClass": "BestEffort"}));
    assert_eq!(status["metadata"]["annotations"], json!({"k": "v"}));
    assert_eq!(status["metadata"].get("ownerReferences"), None);
    assert_eq!(status["metadata"]["generation"], 1);
    assert_eq!(cluster.get(&format!("{path}/status")).await.body, status);
}

#[tokio::test]
async fn a_pod_is_defaulted_validated_and_changed_only_where_it_may_be() {
    let cluster = cluster();
    let made = cluster.pod("a").await;
    assert_eq!(made["spec"]["terminationGracePeriodSeconds"], 30);
    assert_eq!(made["spec"]["containers"][0]["imagePullPolicy"], "Always");
    let path = format!("{PODS}/a");
    let image = json!({"spec": {"containers": [{"name": "c", "image": "host:2"}]}});
    let changed = cluster.strategic(&path, image).await.body;
    assert_eq!(
        (&changed["spec"]["containers"][0]["image"], &changed["metadata"]["generation"]),
        (&json!("host:2"), &json!(2))
    );
    let refused = cluster.merge(&path, json!({"spec": {"nodeName": "n"}})).await;
    assert_eq!((refused.code, &refused.body["reason"]), (422, &json!("Invalid")));
    let refused = cluster.post(PODS, json!({"metadata": {"name": "b"}, "spec": {"containers": []}})).await;
    let text = "Pod \"b\" is invalid: spec.containers: Required value";
    let causes =
        json!([{"reason": "FieldValueRequired", "message": "Required value", "field": "spec.containers"}]);
    refusal(&refused, &failure(422, "Invalid", text, json!({"name": "b", "kind": "Pod", "causes": causes})));
}

#[tokio::test]
async fn a_quantity_given_as_a_number_is_shown_as_text_and_decides_the_class() {
    let cluster = cluster();
    let mut body = pod("a");
    body["spec"]["containers"][0]["resources"] =
        json!({"limits": {"cpu": 1, "memory": "1Gi"}, "claimsOfTomorrow": 1});
    let made = cluster.post(PODS, body).await.body;
    let amounts = json!({"cpu": "1", "memory": "1Gi"});
    assert_eq!(
        made["spec"]["containers"][0]["resources"],
        json!({"limits": amounts, "requests": amounts, "claimsOfTomorrow": 1})
    );
    assert_eq!(made["status"]["qosClass"], "Guaranteed");
}

#[tokio::test]
async fn a_name_that_cannot_be_made_unique_is_refused_with_a_time_to_come_back() {
    struct Always;
    impl windlass_apiserver::Entropy for Always {
        fn next(&self) -> u128 {
            0
        }
    }
    let config = windlass_apiserver::Config { entropy: std::sync::Arc::new(Always), ..Default::default() };
    let cluster = common::Cluster { server: windlass_apiserver::Server::new(config), clock: cluster().clock };
    let body = json!({"metadata": {"generateName": "c-"}});
    assert_eq!(cluster.post(CONFIGMAPS, body.clone()).await.code, 201);
    let text = "configmaps \"c-bbbbb\" already exists, the server was not able to generate a unique name for the object";
    let details = json!({"name": "c-bbbbb", "kind": "configmaps", "retryAfterSeconds": 1});
    refusal(&cluster.post(CONFIGMAPS, body.clone()).await, &failure(409, "AlreadyExists", text, details));
    let response = cluster.raw(Method::POST, CONFIGMAPS, "application/json", body.to_string()).await;
    assert_eq!(response.headers().get("retry-after").map(|value| value.as_bytes()), Some(b"1".as_slice()));
}

#[tokio::test]
async fn a_job_is_defaulted_and_gets_its_selector_and_labels() {
    let cluster = cluster();
    let made = cluster.post(JOBS, job("j")).await;
    assert_eq!((made.code, &made.warnings), (201, &vec![]));
    let uid = made.body["metadata"]["uid"].clone();
    let labels = json!({
        "batch.kubernetes.io/controller-uid": uid, "controller-uid": uid,
        "batch.kubernetes.io/job-name": "j", "job-name": "j",
    });
    let spec = &made.body["spec"];
    assert_eq!(spec["template"]["metadata"]["labels"], labels);
    assert_eq!(spec["selector"], json!({"matchLabels": {"batch.kubernetes.io/controller-uid": uid}}));
    let numbers = json!([spec["parallelism"], spec["completions"], spec["backoffLimit"], spec["suspend"]]);
    assert_eq!(numbers, json!([1, 1, 6, false]));
    assert_eq!(made.body["status"], json!({}));
    let path = format!("{JOBS}/j");
    let patched = cluster.merge(&path, json!({"spec": {"parallelism": 3}})).await.body;
    assert_eq!((&patched["metadata"]["generation"], &patched["spec"]["parallelism"]), (&json!(2), &json!(3)));
    let patched = cluster.merge(&path, json!({"metadata": {"annotations": {"a": "b"}}})).await.body;
    assert_eq!(patched["metadata"]["generation"], 2);
    let refused = cluster.merge(&path, json!({"spec": {"completionMode": "Indexed"}})).await;
    let text =
        "Job.batch \"j\" is invalid: spec.completionMode: Invalid value: \"Indexed\": field is immutable";
    assert_eq!((refused.code, &refused.body["message"]), (422, &json!(text)));
    let status = json!({"status": {"active": 1, "startTime": "2026-01-02T03:04:05Z"}});
    let active = cluster.merge(&format!("{path}/status"), status).await;
    assert_eq!(
        (active.code, &active.body["status"]["active"], &active.body["metadata"]["generation"]),
        (200, &json!(1), &json!(2))
    );
    let refused = cluster.merge(&format!("{path}/status"), json!({"status": {"active": -1}})).await;
    assert_eq!(
        (refused.code, &refused.body["details"]["causes"][0]["field"]),
        (422, &json!("status.active"))
    );
}

#[tokio::test]
async fn a_job_that_is_wrong_is_refused_with_all_its_errors() {
    let cluster = cluster();
    let mut body = job("j");
    body["spec"]["parallelism"] = json!(-1);
    body["spec"]["template"]["spec"]["restartPolicy"] = json!("Always");
    let refused = cluster.post(JOBS, body).await;
    let text = "Job.batch \"j\" is invalid: [spec.parallelism: Invalid value: -1: must be greater than or equal to 0, \
                spec.template.spec.restartPolicy: Required value: valid values: \"OnFailure\", \"Never\"]";
    let causes = json!([
        {"reason": "FieldValueInvalid", "message": "Invalid value: -1: must be greater than or equal to 0",
         "field": "spec.parallelism"},
        {"reason": "FieldValueRequired",
         "message": "Required value: valid values: \"OnFailure\", \"Never\"",
         "field": "spec.template.spec.restartPolicy"},
    ]);
    let details = json!({"name": "j", "group": "batch", "kind": "Job", "causes": causes});
    refusal(&refused, &failure(422, "Invalid", text, details));
}

#[tokio::test]
async fn the_draft_policy_is_kept_with_its_gate_and_dropped_without() {
    let mut body = job("j");
    let policy = json!({"rules": [{"action": "Terminate", "onExitCodes": {"containerName": "c", "operator": "In", "values": [1]}}]});
    body["spec"]["backoffPolicy"] = policy;
    body["spec"]["fieldOfTomorrow"] = json!(true);
    let without = cluster().post(JOBS, body.clone()).await.body;
    assert_eq!(
        (without["spec"].get("backoffPolicy"), &without["spec"]["fieldOfTomorrow"]),
        (None, &json!(true))
    );
    let gates = Gates { retriable_and_non_retriable_failures: true, ..Gates::default() };
    let with = cluster_with(gates, Limits::default());
    body["spec"]["backoffPolicy"] = json!({"rules": []});
    let made = with.post(JOBS, body).await;
    assert_eq!(
        (made.code, made.body["spec"].get("backoffPolicy")),
        (201, Some(&json!({"rules": []}))),
        "{made:?}"
    );
}

#[tokio::test]
async fn a_dry_run_answers_as_if_and_stores_nothing() {
    let cluster = cluster();
    let made = cluster.post(&format!("{CONFIGMAPS}?dryRun=All"), configmap("c")).await;
    assert_eq!((made.code, made.body["metadata"].get("resourceVersion")), (201, None));
    assert_eq!(made.body["metadata"]["name"], "c");
    assert_eq!(cluster.get(&format!("{CONFIGMAPS}/c")).await.code, 404);
    cluster.pod("a").await;
    let patched =
        cluster.merge(&format!("{PODS}/a?dryRun=All"), json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!((patched.code, &patched.body["metadata"]["labels"]["x"]), (200, &json!("y")));
    assert_eq!(cluster.delete(&format!("{PODS}/a?dryRun=All"), json!({})).await.code, 200);
    let stored = cluster.get(&format!("{PODS}/a")).await.body;
    assert_eq!(stored["metadata"]["labels"], json!({"app": "a"}));
}

/// What a component of the server's own process is answered to a new pod.
async fn own_pod(cluster: &common::Cluster, metadata: Value, spec: &Value) -> common::Answer {
    let body = json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}).to_string();
    let request =
        http::Request::post("/api/v1/namespaces/default/pods").header("content-type", "application/json");
    let request = request.body(axum::body::Body::from(body)).expect("a request");
    common::answer(cluster.server.own_service().oneshot(request).await.expect("infallible")).await
}

#[tokio::test]
async fn pods_of_a_spec_that_is_known_are_what_they_would_be_if_it_were_not() {
    let spec = json!({
        "restartPolicy": "Never", "terminationGracePeriodSeconds": 5,
        "containers": [{"name": "c", "image": "host", "command": ["true"], "resources": {"limits": {"cpu": 1}}}],
    });
    let metas = [
        json!({"name": "plain"}),
        json!({"name": "labelled", "labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["e.f/g"]}),
        json!({"generateName": "made-", "labels": {"a": null}}),
        json!({"name": "with.dots"}),
        json!({"name": "Bad_Name"}),
        json!({"name": "mirror", "annotations": {"kubernetes.io/config.mirror": "x"}}),
        json!({"name": "label", "labels": {"a": "-"}}),
        json!({"name": "plain"}),
    ];
    // To one server each spec is new, to the other the same is known after two pods.
    let (new, known) = (cluster(), cluster());
    for (n, meta) in metas.iter().enumerate() {
        let mut other = spec.clone();
        other["containers"][0]["args"] = json!([n.to_string()]);
        let mut want = own_pod(&new, meta.clone(), &other).await;
        let mut got = own_pod(&known, meta.clone(), &spec).await;
        for answer in [&mut want.body, &mut got.body] {
            if let Some(container) = answer.pointer_mut("/spec/containers/0").and_then(Value::as_object_mut) {
                container.remove("args");
            }
        }
        assert_eq!(got, want, "{meta}");
    }
    let list = |answer: common::Answer| answer.body["items"].as_array().map_or(0, Vec::len);
    assert_eq!(list(known.get("/api/v1/pods").await), list(new.get("/api/v1/pods").await));
}
