//! Server-side apply, and who owns which fields of objects that are created, updated and patched.

mod common;

use common::{
    Answer, CONFIGMAPS, Cluster, JOBS, PODS, cluster, configmap, failure, job, pod, shared_cluster,
};
use http::Method;
use serde_json::{Value, json};

impl Cluster {
    async fn apply(&self, path: &str, body: Value) -> Answer {
        self.send(Method::PATCH, path, "application/apply-patch+yaml", body.to_string()).await
    }
}

fn map(data: Value) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data})
}

/// Who owns what: manager, operation, subresource, fields.
fn owners(object: &Value) -> Value {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let entries = entries.iter().map(|entry| {
        let mut shown = json!([entry["manager"], entry["operation"], entry["fieldsV1"]]);
        if let Some(subresource) = entry.get("subresource") {
            shown.as_array_mut().expect("a list").push(subresource.clone());
        }
        shown
    });
    entries.collect()
}

fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().expect("a version")
}

const C: &str = "/api/v1/namespaces/default/configmaps/c";

#[tokio::test]
async fn an_apply_creates_and_the_same_again_changes_nothing() {
    let cluster = cluster();
    let made = cluster.apply(&format!("{C}?fieldManager=m1"), map(json!({"x": "1"}))).await;
    assert_eq!(made.code, 201, "{made:?}");
    let want = json!([{
        "manager": "m1", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-02T03:04:05Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:x": {}}},
    }]);
    assert_eq!(made.body["metadata"]["managedFields"], want);
    cluster.advance(5);
    let again = cluster.apply(&format!("{C}?fieldManager=m1"), map(json!({"x": "1"}))).await;
    assert_eq!((again.code, &again.body), (200, &made.body));
}

#[tokio::test]
async fn owners_share_a_value_and_neither_can_change_it_but_by_force() {
    let cluster = cluster();
    cluster.apply(&format!("{C}?fieldManager=m1"), map(json!({"x": "1"}))).await;
    let shared = cluster.apply(&format!("{C}?fieldManager=m2"), map(json!({"x": "1"}))).await;
    // upstream: who changes nothing has no time, and stands first
    let want = json!([["m2", "Apply", {"f:data": {"f:x": {}}}], ["m1", "Apply", {"f:data": {"f:x": {}}}]]);
    assert_eq!(owners(&shared.body), want);
    let refused = cluster.apply(&format!("{C}?fieldManager=m2"), map(json!({"x": "2"}))).await;
    let cause =
        json!({"reason": "FieldManagerConflict", "message": "conflict with \"m1\"", "field": ".data.x"});
    let message = "Apply failed with 1 conflict: conflict with \"m1\": .data.x";
    assert_eq!(refused.body, failure(409, "Conflict", message, json!({"causes": [cause]})));
    let forced = cluster.apply(&format!("{C}?fieldManager=m2&force=true"), map(json!({"x": "2"}))).await;
    assert_eq!(forced.body["data"], json!({"x": "2"}));
    assert_eq!(owners(&forced.body), json!([["m2", "Apply", {"f:data": {"f:x": {}}}]]));
}

#[tokio::test]
async fn conflicts_are_told_by_manager_with_all_their_fields() {
    let cluster = cluster();
    cluster.post(&format!("{CONFIGMAPS}?fieldManager=maker"), map(json!({"x": "1", "y": "1"}))).await;
    cluster.apply(&format!("{C}?fieldManager=m1"), map(json!({"x": "1"}))).await;
    let refused = cluster.apply(&format!("{C}?fieldManager=m2"), map(json!({"x": "2", "y": "2"}))).await;
    let want = "Apply failed with 3 conflicts: conflicts with \"m1\":\n- .data.x\nconflicts with \"maker\" using v1:\n\
                - .data.x\n- .data.y";
    assert_eq!(refused.body["message"], want);
}

#[tokio::test]
async fn what_is_applied_no_more_goes_away_unless_somebody_else_owns_it() {
    let cluster = cluster();
    cluster.apply(&format!("{C}?fieldManager=m1"), map(json!({"x": "1", "y": "1", "z": "1"}))).await;
    cluster.apply(&format!("{C}?fieldManager=m2"), map(json!({"y": "1"}))).await;
    cluster.merge(&format!("{C}?fieldManager=editor"), json!({"data": {"w": "1"}})).await;
    let left = cluster.apply(&format!("{C}?fieldManager=m1"), map(json!({"z": "1"}))).await;
    assert_eq!(left.body["data"], json!({"w": "1", "y": "1", "z": "1"}));
}

#[tokio::test]
async fn items_of_a_list_belong_to_those_who_apply_them() {
    let cluster = cluster();
    let of = |containers: Value| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"suspend": true, "template": {"spec": {"restartPolicy": "Never", "containers": containers}}},
        })
    };
    let path = |manager: &str| format!("{JOBS}/j?dryRun=All&fieldManager={manager}");
    let first = json!([
        {"name": "a", "image": "i", "command": ["x", "y"], "ports": [{"containerPort": 80}], "env": [{"name": "E", "value": "1"}]},
        {"name": "b", "image": "i"},
    ]);
    let made = cluster.apply(&path("m1"), of(first)).await;
    assert_eq!(made.code, 201, "{made:?}");
    let want = json!([["m1", "Apply", {"f:spec": {"f:suspend": {}, "f:template": {"f:spec": {
        "f:restartPolicy": {},
        "f:containers": {
            "k:{\"name\":\"a\"}": {
                ".": {}, "f:name": {}, "f:image": {}, "f:command": {},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
                "f:env": {"k:{\"name\":\"E\"}": {".": {}, "f:name": {}, "f:value": {}}},
            },
            "k:{\"name\":\"b\"}": {".": {}, "f:name": {}, "f:image": {}},
        },
    }}}}]]);
    assert_eq!(owners(&made.body), want);
}

#[tokio::test]
async fn an_item_that_is_applied_no_more_goes_and_those_of_others_stay() {
    let cluster = cluster();
    let account = |secrets: Value| json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "s"}, "secrets": secrets});
    let path = |manager: &str| format!("/api/v1/namespaces/default/serviceaccounts/s?fieldManager={manager}");
    cluster.apply(&path("m1"), account(json!([{"name": "a"}, {"name": "b"}]))).await;
    cluster.apply(&path("m2"), account(json!([{"name": "c"}, {"name": "b"}]))).await;
    let left = cluster.apply(&path("m1"), account(json!([{"name": "d"}]))).await;
    assert_eq!(left.body["secrets"], json!([{"name": "c"}, {"name": "b"}, {"name": "d"}]));
}

#[tokio::test]
async fn an_atomic_list_is_replaced_and_has_one_owner() {
    let cluster = cluster();
    let role = |verbs: &[&str]| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "r"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": verbs}],
        })
    };
    let path = |rest: &str| {
        format!("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles/r?fieldManager={rest}")
    };
    cluster.apply(&path("m1"), role(&["get"])).await;
    let refused = cluster.apply(&path("m2"), role(&["list"])).await;
    assert_eq!(refused.body["message"], "Apply failed with 1 conflict: conflict with \"m1\": .rules");
    let forced = cluster.apply(&path("m2&force=true"), role(&["list"])).await;
    assert_eq!(forced.body["rules"][0]["verbs"], json!(["list"]));
    assert_eq!(owners(&forced.body), json!([["m2", "Apply", {"f:rules": {}}]]));
}

#[tokio::test]
async fn the_status_has_owners_of_its_own() {
    let cluster = cluster();
    cluster.post(&format!("{JOBS}?fieldManager=maker"), job("j")).await;
    let config = |status: Value| {
        json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
            "spec": {"parallelism": 9}, "status": status,
        })
    };
    let path = format!("{JOBS}/j/status?fieldManager=m1");
    let applied = cluster.apply(&path, config(json!({"active": 1}))).await;
    assert_eq!(applied.code, 200, "{applied:?}");
    assert_eq!(applied.body["spec"]["parallelism"], 1);
    assert_eq!(owners(&applied.body)[0], json!(["m1", "Apply", {"f:status": {"f:active": {}}}, "status"]));
    let updated =
        cluster.merge(&format!("{JOBS}/j/status?fieldManager=m2"), json!({"status": {"active": 2}})).await;
    let entries = owners(&updated.body);
    assert_eq!(entries[0], json!(["m2", "Update", {"f:status": {"f:active": {}}}, "status"]));
    assert_eq!((&entries[1][0], entries.as_array().map(Vec::len)), (&json!("maker"), Some(2)));
    let refused = cluster.apply(&path, config(json!({"active": 3}))).await;
    let want = "Apply failed with 1 conflict: conflict with \"m2\" with subresource \"status\" using batch/v1: .status.active";
    assert_eq!(refused.body["message"], want);
    let missing = cluster.apply(&format!("{JOBS}/none/status?fieldManager=m1"), config(json!({}))).await;
    assert_eq!(missing.code, 404);
}

#[tokio::test]
async fn a_create_owns_what_was_given_and_defaulted_but_not_what_the_server_fills_in() {
    let cluster = cluster();
    let made = cluster.post(&format!("{JOBS}?fieldManager=maker"), job("j")).await;
    let want = json!([["maker", "Update", {"f:spec": {
        "f:backoffLimit": {}, "f:completionMode": {}, "f:completions": {}, "f:manualSelector": {},
        "f:parallelism": {}, "f:podReplacementPolicy": {}, "f:suspend": {},
        "f:template": {"f:spec": {
            "f:containers": {"k:{\"name\":\"c\"}": {
                ".": {}, "f:command": {}, "f:image": {}, "f:imagePullPolicy": {}, "f:name": {},
                "f:resources": {}, "f:terminationMessagePath": {}, "f:terminationMessagePolicy": {},
            }},
            "f:dnsPolicy": {}, "f:restartPolicy": {}, "f:schedulerName": {}, "f:securityContext": {},
            "f:terminationGracePeriodSeconds": {},
        }},
    }}]]);
    assert_eq!(owners(&made.body), want);
}

#[tokio::test]
async fn an_update_owns_what_it_changes_and_its_time_moves_only_then() {
    let cluster = cluster();
    let request = |agent: &'static str, body: Value| {
        let cluster = &cluster;
        async move {
            let request = http::Request::builder()
                .method(Method::PATCH)
                .uri(C)
                .header("content-type", "application/merge-patch+json")
                .header("user-agent", agent)
                .body(axum::body::Body::from(body.to_string()));
            cluster.answer(request.expect("a request")).await
        }
    };
    cluster.post(&format!("{CONFIGMAPS}?fieldManager=maker"), map(json!({"x": "1", "y": "1"}))).await;
    cluster.advance(5);
    let changed = request("editor/v1.2 (linux/amd64)", json!({"data": {"x": "2"}})).await;
    let want = json!([
        ["maker", "Update", {"f:data": {".": {}, "f:y": {}}}],
        ["editor", "Update", {"f:data": {"f:x": {}}}],
    ]);
    assert_eq!(owners(&changed.body), want);
    cluster.advance(5);
    let same = request("editor/v1.2 (linux/amd64)", json!({"data": {"x": "2"}})).await;
    assert_eq!(same.body, changed.body);
    let removed = request("cutter", json!({"data": {"x": null}})).await;
    assert_eq!(owners(&removed.body), json!([["maker", "Update", {"f:data": {".": {}, "f:y": {}}}]]));
    let more = request("maker", json!({"data": {"z": "1"}})).await;
    assert_eq!(owners(&more.body), json!([["maker", "Update", {"f:data": {".": {}, "f:y": {}, "f:z": {}}}]]));
    assert_eq!(more.body["metadata"]["managedFields"][0]["time"], "2026-01-02T03:04:15Z");
    let nameless = request("", json!({"data": {"q": "1"}})).await;
    assert_eq!(owners(&nameless.body)[1], json!(["unknown", "Update", {"f:data": {"f:q": {}}}]));
}

#[tokio::test]
async fn managers_can_be_rewritten_and_reset_and_nonsense_is_not_taken() {
    let cluster = cluster();
    cluster.post(&format!("{CONFIGMAPS}?fieldManager=maker"), map(json!({"x": "1"}))).await;
    let entry = json!({
        "manager": "kubectl", "operation": "Apply", "apiVersion": "v1", "time": "2026-01-01T00:00:00Z",
        "fieldsType": "FieldsV1", "fieldsV1": {"f:data": {"f:x": {}}},
    });
    let patch = json!([{"op": "replace", "path": "/metadata/managedFields", "value": [entry]}]);
    let rewritten = cluster.json_patch(C, patch).await;
    assert_eq!(rewritten.body["metadata"]["managedFields"], json!([entry]));
    let odd = cluster
        .merge(C, json!({"metadata": {"managedFields": [{"manager": "x", "operation": "Eat"}]}}))
        .await;
    assert_eq!(odd.body, rewritten.body);
    let reset = cluster.merge(C, json!({"metadata": {"managedFields": [{}]}})).await;
    assert_eq!(reset.body["metadata"].get("managedFields"), None);
    let after = cluster.merge(C, json!({"data": {"x": "2"}})).await;
    assert_eq!(after.body["metadata"].get("managedFields"), None);
    let refused = cluster.apply(&format!("{C}?fieldManager=m1"), map(json!({"x": "3"}))).await;
    let want = "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .data.x";
    assert_eq!(refused.body["message"], want);
}

#[tokio::test]
async fn objects_of_our_own_components_have_no_owners_until_somebody_applies() {
    use tower::ServiceExt;
    let cluster = cluster();
    let request =
        http::Request::builder().method(Method::POST).uri(PODS).header("content-type", "application/json");
    let request = request.body(axum::body::Body::from(pod("p").to_string())).expect("a request");
    let made = cluster.server.own_service().oneshot(request).await.expect("infallible");
    assert_eq!(made.status(), 201);
    let path = format!("{PODS}/p");
    let patched = cluster.merge(&path, json!({"metadata": {"labels": {"x": "y"}}})).await;
    assert_eq!(patched.body["metadata"].get("managedFields"), None);
    let config = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "labels": {"x": "z"}}});
    let refused = cluster.apply(&format!("{path}?fieldManager=m1"), config.clone()).await;
    let want =
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using v1: .metadata.labels.x";
    assert_eq!(refused.body["message"], want);
    let forced = cluster.apply(&format!("{path}?fieldManager=m1&force=true"), config).await;
    assert_eq!(owners(&forced.body)[0], json!(["m1", "Apply", {"f:metadata": {"f:labels": {"f:x": {}}}}]));
}

#[tokio::test]
async fn kubectl_goes_on_from_client_side_applies_without_conflict() {
    let cluster = cluster();
    let last = "kubectl.kubernetes.io/last-applied-configuration";
    let applied = map(json!({"a": "1", "b": "1"})).to_string();
    let mut object = map(json!({"a": "1", "b": "1"}));
    object["metadata"]["annotations"] = json!({last: applied});
    cluster.post(&format!("{CONFIGMAPS}?fieldManager=kubectl-client-side-apply"), object).await;
    let config = map(json!({"a": "2"}));
    let refused = cluster.apply(&format!("{C}?fieldManager=other"), config.clone()).await;
    assert_eq!(refused.code, 409);
    let moved = cluster.apply(&format!("{C}?fieldManager=kubectl"), config.clone()).await;
    assert_eq!(moved.code, 200, "{moved:?}");
    assert_eq!(moved.body["data"], json!({"a": "2", "b": "1"}));
    assert_eq!(moved.body["metadata"]["annotations"], json!({last: format!("{config}\n")}));
    cluster.merge(C, json!({"data": {"b": "9"}})).await;
    let refused = cluster.apply(&format!("{C}?fieldManager=kubectl"), map(json!({"b": "3"}))).await;
    assert_eq!(
        refused.body["message"],
        "Apply failed with 1 conflict: conflict with \"unknown\" using v1: .data.b"
    );
}

#[tokio::test]
async fn bodies_that_are_no_configuration_of_the_object_are_refused() {
    let cluster = cluster();
    let made = cluster.apply(&format!("{C}?fieldManager=m1"), map(json!({"x": "1"}))).await;
    let with = |field: &str, value: Value| {
        let mut config = map(json!({}));
        *config.pointer_mut(field).expect("a field") = value;
        config
    };
    let cases = [
        (json!({}), 400, "invalid object type: /, Kind="),
        (with("/apiVersion", json!("v2")), 400, "invalid object type: /v2, Kind=ConfigMap"),
        (with("/kind", json!("Pod")), 400, "invalid object type: /v1, Kind=Pod"),
        (
            with("/metadata", json!({"name": "d"})),
            400,
            "the name of the object (d) does not match the name on the URL (c)",
        ),
        (
            with("/metadata", json!({"name": "c", "managedFields": []})),
            400,
            "metadata.managedFields must be nil",
        ),
        (
            with("/metadata", json!({"name": "c", "uid": "x"})),
            422,
            "ConfigMap \"c\" is invalid: metadata.uid: Invalid value: \"x\": field is immutable",
        ),
        (
            with("/metadata", json!({"name": "c", "resourceVersion": "1"})),
            409,
            "Operation cannot be fulfilled on configmaps \"c\": the object has been modified; please apply your changes \
             to the latest version and try again",
        ),
        (
            with("/data", json!({"x": 1})),
            500,
            "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .data.x: expected string, got \
             &value.valueUnstructured{Value:1}",
        ),
        (
            with("/data", json!(["x", 1])),
            500,
            "failed to create typed patch object (/c; /v1, Kind=ConfigMap): .data: expected map, got &{[x 1]}",
        ),
    ];
    for (config, code, message) in cases {
        let refused = cluster.apply(&format!("{C}?fieldManager=m1"), config).await;
        assert_eq!((refused.code, refused.body["message"].as_str()), (code, Some(message)));
    }
    let message =
        "PatchOptions.meta.k8s.io \"\" is invalid: fieldManager: Required value: is required for apply patch";
    assert_eq!(cluster.apply(C, map(json!({}))).await.body["message"], message);
    assert_eq!(cluster.get(C).await.body, made.body);
}

#[tokio::test]
async fn yaml_is_read_and_keys_that_are_given_twice_are_told_or_refused() {
    let cluster = cluster();
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c}\ndata:\n  x: \"1\"\n  x: \"2\"\n";
    let send = |rest: &'static str, text: &'static str| {
        let (cluster, path) = (&cluster, format!("{C}?fieldManager=m1{rest}"));
        async move { cluster.send(Method::PATCH, &path, "application/apply-patch+yaml", text.to_owned()).await }
    };
    let told = send("", text).await;
    assert_eq!((told.code, &told.body["data"]), (201, &json!({"x": "2"})));
    assert_eq!(told.warnings, ["299 - \"line 6: key \\\"x\\\" already set in map\""]);
    let refused = send("&fieldValidation=Strict", text).await;
    let want = "error strict decoding YAML: error converting YAML to JSON: yaml: unmarshal errors:\n  line 6: key \"x\" \
                already set in map";
    assert_eq!((refused.code, refused.body["message"].as_str()), (400, Some(want)));
    assert_eq!(send("&fieldValidation=Ignore", text).await.warnings, Vec::<String>::new());
    for (text, want) in [
        (
            "- 1\n",
            "error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal array into Go value of type map[string]interface {}",
        ),
        ("", "invalid object type: /, Kind="),
    ] {
        assert_eq!(send("", text).await.body["message"], want);
    }
    let bomb = "a: &a [1,1]\nb: [*a,*a]\n";
    assert_eq!(send("", bomb).await.code, 400);
}

#[tokio::test]
async fn a_dry_run_shows_owners_and_stores_nothing() {
    let cluster = cluster();
    let made = cluster.post(&format!("{CONFIGMAPS}?fieldManager=maker"), configmap("c")).await;
    let dry = cluster.apply(&format!("{C}?fieldManager=m1&dryRun=All"), map(json!({"x": "1"}))).await;
    assert_eq!(owners(&dry.body)[0], json!(["m1", "Apply", {"f:data": {"f:x": {}}}]));
    assert_eq!(version(&dry.body), version(&made.body));
    assert_eq!(cluster.get(C).await.body, made.body);
}

#[tokio::test]
async fn what_admission_adds_belongs_to_nobody() {
    let cluster = shared_cluster(windlass_apiserver::Accounts::Mounted);
    let mut body = pod("p");
    body["spec"]["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    let made = cluster.post(&format!("{PODS}?fieldManager=maker"), body).await;
    assert_eq!(made.code, 201, "{made:?}");
    assert_eq!(made.body["spec"]["serviceAccountName"], "default");
    let owned = made.body["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"].clone();
    let fields: Vec<&String> = owned.as_object().expect("a map").keys().collect();
    let want = [
        "f:containers",
        "f:dnsPolicy",
        "f:enableServiceLinks",
        "f:restartPolicy",
        "f:schedulerName",
        "f:securityContext",
        "f:terminationGracePeriodSeconds",
        "f:volumes",
    ];
    assert_eq!(fields, want);
    let volumes = json!({".": {}, "k:{\"name\":\"v\"}": {".": {}, "f:emptyDir": {}, "f:name": {}}});
    assert_eq!(owned["f:volumes"], volumes);
    assert_eq!(owned["f:containers"]["k:{\"name\":\"c\"}"].get("f:volumeMounts"), None);
}

#[tokio::test]
async fn a_cron_job_has_its_defaults() {
    let cluster = cluster();
    let template = json!({"spec": {"template": job("j")["spec"]["template"]}});
    let body = json!({
        "apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "c"},
        "spec": {"schedule": "* * * * *", "jobTemplate": template},
    });
    let made = cluster.post("/apis/batch/v1/namespaces/default/cronjobs", body).await;
    assert_eq!(made.code, 201, "{made:?}");
    let mut spec = made.body["spec"].clone();
    assert_eq!(spec["jobTemplate"]["spec"]["template"]["spec"]["dnsPolicy"], "ClusterFirst");
    spec.as_object_mut().expect("a map").remove("jobTemplate");
    let want = json!({
        "concurrencyPolicy": "Allow", "failedJobsHistoryLimit": 1, "schedule": "* * * * *",
        "successfulJobsHistoryLimit": 3, "suspend": false,
    });
    assert_eq!((spec, &made.body["status"]), (want, &json!({})));
}
