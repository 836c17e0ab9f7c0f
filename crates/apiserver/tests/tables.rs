//! Tables and metadata: the forms of an answer that a client can ask for.

mod common;

use axum::body::Body;
use common::{CONFIGMAPS, Cluster, JOBS, PODS, cluster, configmap, failure, job, pod};
use http::{Method, Request};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,\
                     application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
const PARTIAL: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
const PARTIAL_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

fn column(name: &str, kind: &str, format: &str, priority: u8) -> Value {
    json!({"name": name, "type": kind, "format": format, "description": "", "priority": priority})
}

/// The cells of the only row of the table at a path.
async fn cells(cluster: &Cluster, path: &str) -> Value {
    let table = cluster.get_as(path, TABLE).await;
    assert_eq!(table.code, 200, "{table:?}");
    assert_eq!(table.body["rows"].as_array().map(Vec::len), Some(1), "{table:?}");
    table.body["rows"][0]["cells"].clone()
}

/// `name:type:priority` of each column of the table at a path.
async fn columns(cluster: &Cluster, path: &str) -> Vec<String> {
    let table = cluster.get_as(path, TABLE).await.body;
    let columns = table["columnDefinitions"].as_array().expect("columns").iter();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    columns.map(|c| format!("{}:{}:{}", text(&c["name"]), text(&c["type"]), c["priority"])).collect()
}

#[tokio::test]
async fn a_table_has_columns_and_a_row_for_each_object_with_its_metadata() {
    let cluster = cluster();
    let made = cluster.post(CONFIGMAPS, configmap("a")).await.body;
    cluster.advance(61);
    let metadata = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]});
    let mut want = json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": "6"},
        "columnDefinitions": [
            column("Name", "string", "name", 0), column("Data", "string", "", 0), column("Age", "string", "", 0),
        ],
        "rows": [{"cells": ["a", 1, "61s"], "object": metadata}],
    });
    assert_eq!(cluster.get_as(CONFIGMAPS, TABLE).await.body, want);
    assert_eq!(cluster.get_as(&format!("{CONFIGMAPS}/a"), TABLE).await.body, want);

    want["rows"][0]["object"] = made.clone();
    assert_eq!(cluster.get_as(&format!("{CONFIGMAPS}?includeObject=Object"), TABLE).await.body, want);
    want["rows"][0]["object"] = Value::Null;
    assert_eq!(cluster.get_as(&format!("{CONFIGMAPS}?includeObject=None"), TABLE).await.body, want);
    let refused = cluster.get_as(&format!("{CONFIGMAPS}?includeObject=x"), TABLE).await;
    let text = "Unable to convert to Table as requested: includeObject: Invalid value: \"x\": must be \
                'Metadata', 'Object', 'None', or empty";
    assert_eq!(refused.body, failure(400, "BadRequest", text, Value::Null));

    cluster.post(CONFIGMAPS, configmap("b")).await;
    let page = cluster.get_as(&format!("{CONFIGMAPS}?limit=1"), TABLE).await.body;
    assert_eq!(page["metadata"]["remainingItemCount"], 1);
    assert!(page["metadata"]["continue"].is_string(), "{page}");
    let beta = cluster.get_as(CONFIGMAPS, "application/json;as=Table;v=v1beta1;g=meta.k8s.io").await.body;
    assert_eq!(beta["apiVersion"], "meta.k8s.io/v1beta1");
    assert_eq!(beta["rows"][0]["object"]["apiVersion"], "meta.k8s.io/v1beta1");
    let missing = cluster.get_as(&format!("{CONFIGMAPS}/nope"), TABLE).await;
    assert_eq!(missing.body["kind"], "Status", "errors are never tables");
}

#[tokio::test]
async fn metadata_alone_is_shown_to_those_who_ask() {
    let cluster = cluster();
    let made = cluster.post(CONFIGMAPS, configmap("a")).await.body;
    let path = format!("{CONFIGMAPS}/a");
    let want = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": made["metadata"]});
    assert_eq!(cluster.get_as(&path, PARTIAL).await.body, want);
    let list = json!({
        "kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": "6"}, "items": [want],
    });
    assert_eq!(cluster.get_as(CONFIGMAPS, PARTIAL_LIST).await.body, list);
    for (path, accept, text) in [
        (
            CONFIGMAPS,
            PARTIAL,
            "you requested PartialObjectMetadata, but the requested object is a list (*core.ConfigMapList)",
        ),
        (
            &path,
            PARTIAL_LIST,
            "you requested PartialObjectMetadataList, but the requested object is not a list (*core.ConfigMap)",
        ),
        (&path, "text/html", "only the following media types are accepted: application/json"),
    ] {
        let refused = cluster.get_as(path, accept).await;
        assert_eq!(refused.body, failure(406, "NotAcceptable", text, Value::Null), "{accept}");
    }
    for accept in
        ["*/*", "application/*", "application/vnd.kubernetes.protobuf", "text/html, application/json"]
    {
        assert_eq!(cluster.get_as(&path, accept).await.body, made, "{accept}");
    }
    let patch = Request::builder().method(Method::PATCH).uri(&path).header("accept", PARTIAL);
    let patch = patch.header("content-type", "application/merge-patch+json");
    let patch = patch.body(Body::from(r#"{"metadata": {"labels": {"a": "b"}}}"#)).expect("a request");
    let response = cluster.server.router().oneshot(patch).await.expect("infallible");
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let mut want = want.clone();
    want["metadata"]["labels"] = json!({"a": "b"});
    want["metadata"]["managedFields"][0]["fieldsV1"]["f:metadata"] =
        json!({"f:labels": {".": {}, "f:a": {}}});
    want["metadata"]["resourceVersion"] = json!("7");
    assert_eq!(serde_json::from_slice::<Value>(&bytes).expect("JSON"), want);
}

#[tokio::test]
async fn a_watch_of_tables_has_columns_in_its_first_event_only() {
    let cluster = cluster();
    for name in ["a", "b"] {
        cluster.post(CONFIGMAPS, configmap(name)).await;
    }
    let path = format!("{CONFIGMAPS}?watch=1&timeoutSeconds=1&allowWatchBookmarks=true");
    let request = Request::builder().uri(path).header("accept", TABLE).body(Body::empty());
    tokio::time::pause();
    let response = cluster.server.router().oneshot(request.expect("a request")).await.expect("infallible");
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let events: Vec<Value> = lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect();
    let brief: Vec<Value> = events
        .iter()
        .map(|event| {
            let table = &event["object"];
            json!([
                event["type"],
                table["kind"],
                table["metadata"]["resourceVersion"],
                table["columnDefinitions"].as_array().map(Vec::len),
                table["rows"][0]["cells"],
            ])
        })
        .collect();
    let want = [
        json!(["ADDED", "Table", "6", 3, ["a", 1, "0s"]]),
        json!(["ADDED", "Table", "7", null, ["b", 1, "0s"]]),
        json!(["BOOKMARK", "Table", "7", null, ["", 0, "<unknown>"]]),
    ];
    assert_eq!(brief, want);
}

#[tokio::test]
async fn a_job_is_shown_with_its_status_completions_and_duration() {
    let cluster = cluster();
    let mut body = job("j");
    body["spec"]["completions"] = json!(3);
    body["spec"]["template"]["spec"]["containers"][0]["image"] = json!("busybox:1");
    let made = cluster.post(JOBS, body).await.body;
    let path = format!("{JOBS}/j");
    let want = [
        "Name:string:0",
        "Status:string:0",
        "Completions:string:0",
        "Duration:string:0",
        "Age:string:0",
        "Containers:string:1",
        "Images:string:1",
        "Selector:string:1",
    ];
    assert_eq!(columns(&cluster, JOBS).await, want);
    let selector =
        format!("batch.kubernetes.io/controller-uid={}", made["metadata"]["uid"].as_str().expect("uid"));
    cluster.advance(5);
    let row = |status: &str, completions: &str, duration: &str, age: &str| {
        json!(["j", status, completions, duration, age, "c", "busybox:1", selector])
    };
    assert_eq!(cells(&cluster, &path).await, row("Running", "0/3", "", "5s"));
    let start = json!({"status": {"startTime": "2026-01-02T03:04:05Z", "active": 1}});
    assert_eq!(cluster.merge(&format!("{path}/status"), start).await.code, 200);
    cluster.advance(125);
    assert_eq!(cells(&cluster, &path).await, row("Running", "0/3", "2m10s", "2m10s"));
}

/// Jobs as a controller would leave them, in a server that takes them as they are: by way of their status.
#[tokio::test]
async fn the_status_of_a_job_is_the_first_that_holds() {
    let cluster = cluster();
    for (name, spec, conditions, status, completions) in [
        ("a", json!({"suspend": true}), json!(["Suspended"]), "Suspended", "0/1"),
        ("b", json!({"completions": 4}), json!(["FailureTarget"]), "FailureTarget", "0/4"),
        ("c", json!({"completions": 4}), json!(["SuccessCriteriaMet"]), "SuccessCriteriaMet", "0/4"),
        ("d", json!({"parallelism": 3}), json!([]), "Running", "0/1 of 3"),
        ("e", json!({"parallelism": 1}), json!([]), "Running", "0/1"),
    ] {
        let mut body = job(name);
        for (field, value) in spec.as_object().expect("a map") {
            body["spec"][field] = value.clone();
        }
        assert_eq!(cluster.post(JOBS, body).await.code, 201);
        let conditions: Vec<Value> = conditions
            .as_array()
            .expect("a list")
            .iter()
            .map(|kind| json!({"type": kind, "status": "True", "reason": "r", "lastTransitionTime": "2026-01-02T03:04:05Z"}))
            .collect();
        let path = format!("{JOBS}/{name}");
        let written =
            cluster.merge(&format!("{path}/status"), json!({"status": {"conditions": conditions}})).await;
        assert_eq!(written.code, 200, "{written:?}");
        let cells = cells(&cluster, &path).await;
        assert_eq!((&cells[1], &cells[2]), (&json!(status), &json!(completions)), "{name}");
    }
}

/// What a pod shows as `[ready, status, restarts]` with this status.
async fn shown(cluster: &Cluster, name: &str, status: Value) -> Value {
    let mut body = pod(name);
    body["spec"]["containers"].as_array_mut().expect("a list").push(json!({"name": "d", "image": "i"}));
    body["spec"]["initContainers"] = json!([
        {"name": "i", "image": "i"}, {"name": "s", "image": "i", "restartPolicy": "Always"},
    ]);
    let made = cluster.post(PODS, body).await;
    assert_eq!(made.code, 201, "{made:?}");
    let written = cluster.merge(&format!("{PODS}/{name}/status"), json!({"status": status})).await;
    assert_eq!(written.code, 200, "{written:?}");
    let cells = cells(cluster, &format!("{PODS}/{name}")).await;
    json!([cells[1], cells[2], cells[3]])
}

fn container(name: &str, ready: bool, restarts: u32, state: Value) -> Value {
    json!({
        "name": name, "ready": ready, "started": ready, "restartCount": restarts, "state": state,
        "image": "i", "imageID": "",
    })
}

#[tokio::test]
async fn a_pod_is_shown_with_what_its_containers_say() {
    let cluster = cluster();
    let running = || json!({"running": {"startedAt": "2026-01-02T03:04:05Z"}});
    let ended = |code: i32, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
    let waiting = |reason: &str| json!({"waiting": {"reason": reason}});
    let done = || container("i", false, 0, ended(0, "Completed"));
    let sidecar = || container("s", true, 1, running());
    let initialized = json!([{"type": "Initialized", "status": "True"}]);
    let table = [
        ("a", json!({"phase": "Pending"}), json!(["0/3", "Pending", "0"])),
        ("b", json!({"phase": "Failed", "reason": "Evicted"}), json!(["0/3", "Evicted", "0"])),
        (
            "c",
            json!({"phase": "Pending", "initContainerStatuses": [container("i", false, 2, ended(3, ""))]}),
            json!(["0/3", "Init:ExitCode:3", "2"]),
        ),
        (
            "d",
            json!({"phase": "Pending", "initContainerStatuses": [container("i", false, 0, waiting("PodInitializing"))]}),
            json!(["0/3", "Init:0/2", "0"]),
        ),
        (
            "e",
            json!({"phase": "Pending", "initContainerStatuses": [container("i", false, 0, waiting("ErrImagePull"))]}),
            json!(["0/3", "Init:ErrImagePull", "0"]),
        ),
        (
            "f",
            json!({
                "phase": "Running", "conditions": initialized, "initContainerStatuses": [done(), sidecar()],
                "containerStatuses": [container("c", true, 2, running()), container("d", false, 1, waiting("CrashLoopBackOff"))],
            }),
            json!(["2/3", "CrashLoopBackOff", "4"]),
        ),
        (
            "g",
            json!({
                "phase": "Running", "initContainerStatuses": [done(), sidecar()],
                "containerStatuses": [container("c", false, 0, ended(0, "Completed")), container("d", true, 0, running())],
            }),
            json!(["2/3", "NotReady", "1"]),
        ),
        (
            "h",
            json!({
                "phase": "Running", "conditions": [{"type": "Ready", "status": "True"}],
                "containerStatuses": [container("c", false, 0, ended(0, "Completed")), container("d", true, 0, running())],
            }),
            json!(["1/3", "Running", "0"]),
        ),
        (
            "i",
            json!({
                "phase": "Failed",
                "containerStatuses": [container("c", false, 0, ended(0, "Completed")), container("d", false, 0, ended(137, "OOMKilled"))],
            }),
            json!(["0/3", "OOMKilled", "0"]),
        ),
        (
            "j",
            json!({
                "phase": "Failed",
                "containerStatuses": [container("c", false, 0, json!({"terminated": {"exitCode": 137, "signal": 9}}))],
            }),
            json!(["0/3", "Signal:9", "0"]),
        ),
    ];
    for (name, status, want) in table {
        assert_eq!(shown(&cluster, name, status).await, want, "{name}");
    }
    let last = json!({"terminated": {"exitCode": 1, "finishedAt": "2026-01-02T03:03:05Z"}});
    let mut status = container("c", true, 3, running());
    status["lastState"] = last;
    let got = shown(&cluster, "k", json!({"phase": "Running", "containerStatuses": [status]})).await;
    assert_eq!(got, json!(["1/3", "Running", "3 (60s ago)"]));
}

#[tokio::test]
async fn a_finished_pod_has_a_condition_on_its_row_and_a_deleted_one_is_terminating() {
    let cluster = cluster();
    cluster.running_pod("a").await;
    let path = format!("{PODS}/a");
    let wide = json!(["a", "0/1", "Running", "0", "0s", "<none>", "n1", "<none>", "<none>"]);
    assert_eq!(cells(&cluster, &path).await, wide);
    assert_eq!(cluster.delete(&path, json!({})).await.code, 200);
    assert_eq!(cells(&cluster, &path).await[2], "Terminating");
    cluster.pod("b").await;
    let path = format!("{PODS}/b");
    let status = json!({"status": {"phase": "Succeeded", "podIPs": [{"ip": "10.0.0.1"}]}});
    assert_eq!(cluster.merge(&format!("{path}/status"), status).await.code, 200);
    let row = cluster.get_as(&path, TABLE).await.body["rows"][0].clone();
    let want = json!([{
        "type": "Completed", "status": "True", "reason": "Succeeded",
        "message": "The pod has completed successfully.",
    }]);
    assert_eq!((&row["conditions"], &row["cells"][5]), (&want, &json!("10.0.0.1")));
}

#[tokio::test]
async fn every_kind_has_its_columns_and_cells() {
    let cluster = cluster();
    let in_default = |group: &str, plural: &str| format!("{group}/namespaces/default/{plural}");
    let table = [
        (
            in_default("/apis/batch/v1", "cronjobs"),
            json!({
                "metadata": {"name": "x"},
                "spec": {
                    "schedule": "@daily", "timeZone": "Etc/UTC", "suspend": false,
                    "jobTemplate": {"spec": job("x")["spec"]},
                },
            }),
            "Name:string:0 Schedule:string:0 Timezone:string:0 Suspend:boolean:0 Active:integer:0 \
             Last Schedule:string:0 Age:string:0 Containers:string:1 Images:string:1 Selector:string:1",
            json!(["x", "@daily", "Etc/UTC", "False", 0, "<none>", "3s", "c", "host", "<none>"]),
        ),
        (
            "/api/v1/nodes".to_owned(),
            json!({
                "metadata": {"name": "x", "labels": {"node-role.kubernetes.io/worker": "", "kubernetes.io/role": "a"}},
                "spec": {"unschedulable": true},
                "status": {
                    "conditions": [{"type": "Ready", "status": "True"}],
                    "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                    "nodeInfo": {
                        "kubeletVersion": "v1.36.4", "osImage": "Linux", "kernelVersion": "6.1", "architecture": "amd64",
                        "bootID": "", "machineID": "", "systemUUID": "", "containerRuntimeVersion": "",
                        "kubeProxyVersion": "", "operatingSystem": "linux",
                    },
                },
            }),
            "Name:string:0 Status:string:0 Roles:string:0 Age:string:0 Version:string:0 Internal-IP:string:1 \
             External-IP:string:1 OS-Image:string:1 Kernel-Version:string:1 Container-Runtime:string:1",
            json!([
                "x",
                "Ready,SchedulingDisabled",
                "a,worker",
                "3s",
                "v1.36.4",
                "10.0.0.1",
                "<none>",
                "Linux",
                "6.1 (amd64)",
                "<unknown>",
            ]),
        ),
        (
            in_default("/api/v1", "events"),
            json!({
                "metadata": {"name": "x"}, "type": "Warning", "reason": "Failed", "message": " it did \n",
                "involvedObject": {"kind": "Pod", "name": "p", "fieldPath": "spec.containers{c}"},
                "source": {"component": "kubelet", "host": "n1"}, "count": 2,
                "firstTimestamp": "2026-01-02T03:03:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
            }),
            "Last Seen:string:0 Type:string:0 Reason:string:0 Object:string:0 Subobject:string:1 Source:string:1 \
             Message:string:0 First Seen:string:1 Count:string:1 Name:string:1",
            json!([
                "3s",
                "Warning",
                "Failed",
                "pod/p",
                "spec.containers{c}",
                "kubelet, n1",
                "it did",
                "63s",
                2,
                "x"
            ]),
        ),
        (
            "/api/v1/namespaces".to_owned(),
            json!({"metadata": {"name": "x"}}),
            "Name:string:0 Status:string:0 Age:string:0",
            json!(["x", "Active", "3s"]),
        ),
        (
            in_default("/api/v1", "secrets"),
            json!({"metadata": {"name": "x"}, "stringData": {"a": "b", "c": "d"}}),
            "Name:string:0 Type:string:0 Data:string:0 Age:string:0",
            json!(["x", "Opaque", 2, "3s"]),
        ),
        (
            in_default("/api/v1", "serviceaccounts"),
            json!({"metadata": {"name": "x"}}),
            "Name:string:0 Age:string:0",
            json!(["x", "3s"]),
        ),
        (
            in_default("/apis/policy/v1", "poddisruptionbudgets"),
            json!({"metadata": {"name": "x"}, "spec": {"minAvailable": "50%"}}),
            "Name:string:0 Min Available:string:0 Max Unavailable:string:0 Allowed Disruptions:integer:0 Age:string:0",
            json!(["x", "50%", "N/A", 0, "3s"]),
        ),
        (
            "/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(),
            json!({"metadata": {"name": "x"}, "value": 7, "globalDefault": true, "preemptionPolicy": "Never"}),
            "Name:string:0 Value:integer:0 Global-Default:boolean:0 Age:string:0 PreemptionPolicy:string:0",
            json!(["x", 7, true, "3s", "Never"]),
        ),
        (
            in_default("/apis/coordination.k8s.io/v1", "leases"),
            json!({"metadata": {"name": "x"}, "spec": {"holderIdentity": "me"}}),
            "Name:string:0 Holder:string:0 Age:string:0",
            json!(["x", "me", "3s"]),
        ),
        (
            in_default("/apis/rbac.authorization.k8s.io/v1", "roles"),
            json!({"metadata": {"name": "x"}, "rules": []}),
            "Name:string:0 Created At:date:0",
            json!(["x", "2026-01-02T03:04:05Z"]),
        ),
        (
            in_default("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
            json!({
                "metadata": {"name": "x"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
                "subjects": [
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "u"},
                    {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "v"},
                    {"kind": "ServiceAccount", "namespace": "default", "name": "s"},
                ],
            }),
            "Name:string:0 Role:string:0 Age:string:0 Users:string:1 Groups:string:1 ServiceAccounts:string:1",
            json!(["x", "Role/r", "3s", "u, v", "", "default/s"]),
        ),
    ];
    for (path, body, _, _) in &table {
        let made = cluster.post(path, body.clone()).await;
        assert_eq!(made.code, 201, "{path}: {made:?}");
    }
    cluster.advance(3);
    for (path, _, want_columns, want_cells) in table {
        assert_eq!(columns(&cluster, &path).await.join(" "), want_columns, "{path}");
        assert_eq!(cells(&cluster, &format!("{path}/x")).await, want_cells, "{path}");
    }
}
