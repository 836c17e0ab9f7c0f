//! Kinds without a life of their own, and PUT.

use serde_json::{Value, json};
use windlass_conformance::session::{MERGE, Session};

/// A pod that no token is mounted into.
pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": "a"}},
        "spec": {
            "restartPolicy": "Never", "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "busybox:1.36"}],
        },
    })
}

pub fn job(name: &str) -> Value {
    json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "busybox:1.36", "command": ["true"]}],
        }}},
    })
}

pub fn config_map(name: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"a": "1"}})
}

/// `body` with the text at a pointer changed.
pub fn with(mut body: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    let parent = body.pointer_mut(parent).expect("the parent is there");
    match parent {
        Value::Array(items) => items[key.parse::<usize>().expect("an index")] = value,
        parent => parent[key] = value,
    }
    body
}

/// PUT: versions, names, UIDs, and what a client can't change.
pub async fn replace(s: &mut Session) {
    let maps = s.core("configmaps");
    let path = format!("{maps}/a");
    let made = s.post("create", &maps, config_map("a")).await;
    let changed = with(made.clone(), "/data", json!({"a": "2"}));
    s.put("with the version", &path, changed.clone()).await;
    s.put("with an old version", &path, changed).await;
    s.put("without a version", &path, with(config_map("a"), "/data", json!({"a": "3"}))).await;
    s.put("the same again", &path, with(config_map("a"), "/data", json!({"a": "3"}))).await;
    s.put("another name", &path, config_map("b")).await;
    let mut nameless = config_map("a");
    nameless["metadata"] = json!({});
    s.put("no name", &path, nameless).await;
    s.put("another namespace", &path, with(config_map("a"), "/metadata/namespace", json!("elsewhere"))).await;
    let uid = "00000000-0000-4000-8000-000000000000";
    s.put("another uid", &path, with(config_map("a"), "/metadata/uid", json!(uid))).await;
    s.put(
        "a version that is no number",
        &path,
        with(config_map("a"), "/metadata/resourceVersion", json!("x")),
    )
    .await;
    let mut fixed = config_map("a");
    fixed["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    fixed["metadata"]["generation"] = json!(7);
    fixed["metadata"]["deletionTimestamp"] = json!("2001-01-01T00:00:00Z");
    s.put("fields of the server", &path, fixed).await;
    s.put("not there", &format!("{maps}/none"), config_map("none")).await;
    s.put("another kind", &path, json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "a"}}))
        .await;
    s.put("another version of the api", &path, with(config_map("a"), "/apiVersion", json!("v2"))).await;
    s.put("no kind", &path, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    s.put("the collection", &maps, config_map("a")).await;
    s.put("dry run", &format!("{path}?dryRun=All"), with(config_map("a"), "/data", json!({"a": "9"}))).await;
    s.get("after the dry run", &path).await;
}

/// ConfigMaps: keys and immutability.
pub async fn config(s: &mut Session) {
    let maps = s.core("configmaps");
    s.post("a bad key", &maps, with(config_map("a"), "/data", json!({"a b": "1"}))).await;
    s.post("a key of dots", &maps, with(config_map("a"), "/data", json!({"..": "1"}))).await;
    let mut both = config_map("a");
    both["binaryData"] = json!({"a": "AAAA"});
    s.post("a key twice", &maps, both).await;
    s.post("data that is no text", &maps, with(config_map("a"), "/data", json!({"a": 1}))).await;
    let mut fixed = config_map("fixed");
    fixed["immutable"] = json!(true);
    s.post("immutable", &maps, fixed).await;
    let path = format!("{maps}/fixed");
    s.patch("change what is immutable", &path, MERGE, json!({"data": {"a": "2"}})).await;
    s.patch("make it mutable", &path, MERGE, json!({"immutable": false})).await;
    s.patch("its labels", &path, MERGE, json!({"metadata": {"labels": {"a": "b"}}})).await;
    s.post("binary", &maps, json!({"metadata": {"name": "bin"}, "binaryData": {"b": "/w=="}})).await;
    s.post(
        "binary that is not base64",
        &maps,
        json!({"metadata": {"name": "bin2"}, "binaryData": {"b": "?"}}),
    )
    .await;
}

/// Secrets: types and stringData.
pub async fn secrets(s: &mut Session) {
    let secrets = s.core("secrets");
    s.post(
        "opaque",
        &secrets,
        json!({"metadata": {"name": "a"}, "stringData": {"k": "v"}, "data": {"d": "AAEC"}}),
    )
    .await;
    s.post(
        "basic auth without a name",
        &secrets,
        json!({"metadata": {"name": "b"}, "type": "kubernetes.io/basic-auth", "data": {}}),
    )
    .await;
    s.post("tls without its keys", &secrets, json!({"metadata": {"name": "t"}, "type": "kubernetes.io/tls"}))
        .await;
    s.patch("another type", &format!("{secrets}/a"), MERGE, json!({"type": "other"})).await;
    s.get("by type", &format!("{secrets}?fieldSelector=type%3DOpaque")).await;
    s.get("by a field that is not selectable", &format!("{secrets}?fieldSelector=data%3Dx")).await;
}

/// Leases: created by PUT, and never without a version.
pub async fn leases(s: &mut Session) {
    let leases = s.group("coordination.k8s.io/v1", "leases");
    let lease = |name: &str| {
        json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name},
            "spec": {"holderIdentity": "h", "leaseDurationSeconds": 10, "renewTime": "2026-01-01T00:00:00.123456Z"}})
    };
    s.post("create", &leases, lease("a")).await;
    s.put("create by update", &format!("{leases}/b"), lease("b")).await;
    s.put("without a version", &format!("{leases}/b"), lease("b")).await;
    s.post("a duration of nothing", &leases, with(lease("c"), "/spec/leaseDurationSeconds", json!(0))).await;
    s.post("a time that is none", &leases, with(lease("d"), "/spec/renewTime", json!("soon"))).await;
    s.patch(
        "renew",
        &format!("{leases}/a"),
        MERGE,
        json!({"spec": {"renewTime": "2026-01-01T00:00:01.000000Z"}}),
    )
    .await;
}

/// Events: selected by what they are about.
pub async fn events(s: &mut Session) {
    let events = s.core("events");
    let namespace = s.namespace.clone();
    let event = |name: &str, kind: &str, reason: &str| {
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": name},
            "involvedObject": {"kind": kind, "name": "x", "namespace": namespace, "apiVersion": "v1"},
            "reason": reason, "message": "m", "type": "Normal", "source": {"component": "test"},
            "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:00Z", "count": 1})
    };
    s.post("create", &events, event("a", "Pod", "Started")).await;
    s.post("another", &events, event("b", "Job", "Completed")).await;
    s.get("by kind", &format!("{events}?fieldSelector=involvedObject.kind%3DJob")).await;
    s.get("by reason", &format!("{events}?fieldSelector=reason%3DStarted,type%3DNormal")).await;
    s.get("by source", &format!("{events}?fieldSelector=source%3Dtest,reason!%3DStarted")).await;
    s.post(
        "about another namespace",
        &events,
        with(event("c", "Pod", "r"), "/involvedObject/namespace", json!("elsewhere")),
    )
    .await;
    s.put("create by update", &format!("{events}/d"), event("d", "Pod", "r")).await;
    s.patch("count", &format!("{events}/a"), MERGE, json!({"count": 2})).await;
    s.delete("delete", &format!("{events}/a"), Value::Null).await;
}

/// Nodes: cluster-wide, with a status.
pub async fn nodes(s: &mut Session) {
    let nodes = "/api/v1/nodes";
    let node = |name: &str| json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
    s.post("create", nodes, node("node-a")).await;
    s.post(
        "taints",
        nodes,
        json!({"metadata": {"name": "node-b"},
        "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}], "unschedulable": true}}),
    )
    .await;
    s.post(
        "a taint without effect",
        nodes,
        json!({"metadata": {"name": "node-c"}, "spec": {"taints": [{"key": "k"}]}}),
    )
    .await;
    s.post("a bad name", nodes, node("Node_C")).await;
    s.get("schedulable", "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dfalse").await;
    s.get("unschedulable", "/api/v1/nodes?fieldSelector=spec.unschedulable%3Dtrue").await;
    let status = json!({"status": {"capacity": {"cpu": "2", "memory": "1Gi", "pods": "110"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "m",
            "lastHeartbeatTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    s.patch("its status", "/api/v1/nodes/node-a/status", MERGE, status).await;
    s.patch(
        "taint",
        "/api/v1/nodes/node-a",
        MERGE,
        json!({"spec": {"taints": [{"key": "k", "effect": "NoExecute"}]}}),
    )
    .await;
    s.patch("cordon", "/api/v1/nodes/node-a", MERGE, json!({"spec": {"unschedulable": true}})).await;
    s.patch(
        "a status in the main resource",
        "/api/v1/nodes/node-a",
        MERGE,
        json!({"status": {"phase": "x"}}),
    )
    .await;
    s.delete("delete", "/api/v1/nodes/node-a", Value::Null).await;
    s.delete("delete another", "/api/v1/nodes/node-b", json!({"propagationPolicy": "Background"})).await;
    s.get("gone", "/api/v1/nodes/node-a").await;
}

/// PodDisruptionBudgets.
pub async fn budgets(s: &mut Session) {
    let budgets = s.group("policy/v1", "poddisruptionbudgets");
    let budget = |name: &str, spec: Value| json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec});
    let selector = json!({"matchLabels": {"app": "a"}});
    let made =
        s.post("create", &budgets, budget("a", json!({"minAvailable": 1, "selector": selector}))).await;
    s.post("percent", &budgets, budget("b", json!({"maxUnavailable": "50%", "selector": selector}))).await;
    s.post(
        "both",
        &budgets,
        budget("c", json!({"minAvailable": 1, "maxUnavailable": 1, "selector": selector})),
    )
    .await;
    s.post("negative", &budgets, budget("d", json!({"minAvailable": -1, "selector": selector}))).await;
    s.post("too many percent", &budgets, budget("e", json!({"minAvailable": "101%", "selector": selector})))
        .await;
    s.post(
        "a policy that is none",
        &budgets,
        budget("f", json!({"minAvailable": 1, "unhealthyPodEvictionPolicy": "Never"})),
    )
    .await;
    s.put(
        "without a version",
        &format!("{budgets}/a"),
        budget("a", json!({"minAvailable": 2, "selector": selector})),
    )
    .await;
    s.put("with the version", &format!("{budgets}/a"), with(made, "/spec/minAvailable", json!(2))).await;
    s.patch(
        "its status",
        &format!("{budgets}/a/status"),
        MERGE,
        json!({"status": {"currentHealthy": 1,
        "desiredHealthy": 2, "disruptionsAllowed": 0, "expectedPods": 3, "observedGeneration": 1}}),
    )
    .await;
    s.delete("delete", &format!("{budgets}/b"), Value::Null).await;
}

/// Roles and their bindings.
pub async fn roles(s: &mut Session) {
    let group = "rbac.authorization.k8s.io/v1";
    let (roles, bindings) = (s.group(group, "roles"), s.group(group, "rolebindings"));
    s.post(
        "role",
        &roles,
        json!({"metadata": {"name": "a:b"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]}),
    )
    .await;
    s.post(
        "rules without verbs",
        &roles,
        json!({"metadata": {"name": "b"}, "rules": [{"apiGroups": [""], "resources": ["pods"]}]}),
    )
    .await;
    s.post("rules of nothing", &roles, json!({"metadata": {"name": "b"}, "rules": [{}]})).await;
    s.post(
        "paths in a namespace",
        &roles,
        json!({"metadata": {"name": "b"},
        "rules": [{"nonResourceURLs": ["/x"], "verbs": ["get"]}]}),
    )
    .await;
    s.post("binding", &bindings, json!({"metadata": {"name": "a"}, "roleRef": {"kind": "Role", "name": "a:b"},
        "subjects": [{"kind": "User", "name": "u"}, {"kind": "ServiceAccount", "name": "s", "namespace": "n"}]})).await;
    s.post("binding of nothing", &bindings, json!({"metadata": {"name": "b"}})).await;
    s.patch("another role", &format!("{bindings}/a"), MERGE, json!({"roleRef": {"name": "other"}})).await;
    s.post(
        "subjects of no kind",
        &bindings,
        json!({"metadata": {"name": "c"}, "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [{"kind": "Robot", "name": "r"}, {"kind": "User"}]}),
    )
    .await;
    s.delete("delete", &format!("{roles}/a:b"), Value::Null).await;
}

/// CronJobs: their schedules.
pub async fn cron_jobs(s: &mut Session) {
    let cron_jobs = s.group("batch/v1", "cronjobs");
    let cron_job = |name: &str, spec: Value| {
        let mut all = json!({"schedule": "*/5 * * * *", "jobTemplate": {"spec": job("x")["spec"]}});
        for (key, value) in spec.as_object().expect("a map") {
            all[key] = value.clone();
        }
        json!({"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": all})
    };
    s.post("create", &cron_jobs, cron_job("a", json!({}))).await;
    s.post("no schedule", &cron_jobs, cron_job("b", json!({"schedule": ""}))).await;
    s.post("a bad schedule", &cron_jobs, cron_job("b", json!({"schedule": "every day"}))).await;
    s.post("a bad time zone", &cron_jobs, cron_job("b", json!({"timeZone": "Mars/Olympus"}))).await;
    s.post("a time zone in the schedule", &cron_jobs, cron_job("b", json!({"schedule": "TZ=UTC 1 * * * *"})))
        .await;
    s.post(
        "limits",
        &cron_jobs,
        cron_job(
            "b",
            json!({"successfulJobsHistoryLimit": -1, "failedJobsHistoryLimit": -1,
        "startingDeadlineSeconds": -1, "concurrencyPolicy": "Sometimes"}),
        ),
    )
    .await;
    s.post(
        "a bad template",
        &cron_jobs,
        cron_job(
            "b",
            json!({"jobTemplate": {"spec": {"template": {"spec": {
        "restartPolicy": "Always", "containers": []}}}}}),
        ),
    )
    .await;
    s.post("a long name", &cron_jobs, cron_job(&"x".repeat(53), json!({}))).await;
    s.patch("suspend", &format!("{cron_jobs}/a"), MERGE, json!({"spec": {"suspend": true}})).await;
    s.patch(
        "its status",
        &format!("{cron_jobs}/a/status"),
        MERGE,
        json!({"status": {"lastScheduleTime": "2026-01-01T00:00:00Z"}}),
    )
    .await;
    s.delete("delete", &format!("{cron_jobs}/a"), Value::Null).await;
}

/// PriorityClasses.
pub async fn priority_classes(s: &mut Session) {
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    let class = |name: &str, value: i64| json!({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value});
    s.post("create", classes, class("high", 1000)).await;
    s.post("too high", classes, class("higher", 2_000_000_000)).await;
    s.post("a name of the system", classes, class("system-x", 1)).await;
    s.post("a policy that is none", classes, with(class("p", 1), "/preemptionPolicy", json!("Sometimes")))
        .await;
    s.patch("another value", &format!("{classes}/high"), MERGE, json!({"value": 2000})).await;
    s.patch("a description", &format!("{classes}/high"), MERGE, json!({"description": "d"})).await;
    s.get("of the system", &format!("{classes}/system-node-critical")).await;
    s.delete("delete", &format!("{classes}/high"), Value::Null).await;
}
