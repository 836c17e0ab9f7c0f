//! Pods: defaults, validation, what may be changed, and their subresources.

use http::Method;
use serde_json::{Value, json};
use windlass_conformance::session::{MERGE, STRATEGIC, Session};

use crate::delete::running;
use crate::objects::{pod, with};

fn spec(name: &str, spec: Value) -> Value {
    let mut pod = pod(name);
    for (key, value) in spec.as_object().expect("a map") {
        pod["spec"][key] = value.clone();
    }
    pod
}

/// What a pod gets when it says little.
pub async fn defaults(s: &mut Session) {
    let pods = s.core("pods");
    s.post("plain", &pods, pod("plain")).await;
    s.post(
        "as little as can be",
        &pods,
        json!({"metadata": {"name": "little"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    )
    .await;
    s.post(
        "latest is pulled",
        &pods,
        spec("latest", json!({"containers": [{"name": "c", "image": "busybox"}]})),
    )
    .await;
    s.post("probes and ports", &pods, spec("probes", json!({"containers": [{"name": "c", "image": "i:1",
        "ports": [{"containerPort": 80}, {"containerPort": 53, "protocol": "UDP", "name": "dns"}],
        "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 3},
        "startupProbe": {"tcpSocket": {"port": "dns"}}, "lifecycle": {"preStop": {"exec": {"command": ["x"]}}}}]}))).await;
    s.post("volumes", &pods, spec("volumes", json!({"volumes": [
        {"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "m"}}, {"name": "c", "secret": {"secretName": "s"}},
        {"name": "d", "hostPath": {"path": "/x"}}, {"name": "e", "downwardAPI": {"items": [{"path": "l",
            "fieldRef": {"fieldPath": "metadata.labels"}}]}}, {"name": "f", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        "containers": [{"name": "c", "image": "i:1", "volumeMounts": [{"name": "a", "mountPath": "/a"}],
            "env": [{"name": "N", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "R", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}]}]}))).await;
    s.post(
        "resources",
        &pods,
        spec(
            "resources",
            json!({"containers": [{"name": "c", "image": "i:1",
        "resources": {"limits": {"cpu": "500m", "memory": "128Mi"}}}, {"name": "d", "image": "i:1",
        "resources": {"requests": {"cpu": "0.1"}}}]}),
        ),
    )
    .await;
    s.post(
        "init containers",
        &pods,
        spec(
            "init",
            json!({"initContainers": [{"name": "i", "image": "i:1"},
        {"name": "side", "image": "i:1", "restartPolicy": "Always"}]}),
        ),
    )
    .await;
    s.post("a priority that is not there", &pods, spec("prio", json!({"priorityClassName": "none"}))).await;
    s.post(
        "a priority of the system",
        &pods,
        spec("critical", json!({"priorityClassName": "system-node-critical"})),
    )
    .await;
    s.post("with its token", &pods, spec("token", json!({"automountServiceAccountToken": null}))).await;
    s.post("an account that is not there", &pods, spec("account", json!({"serviceAccountName": "none"})))
        .await;
    s.post("a status", &pods, with(pod("status"), "/status", json!({"phase": "Running"}))).await;
    s.post("a gate", &pods, spec("gated", json!({"schedulingGates": [{"name": "example.com/wait"}]}))).await;
    s.post("on a node", &pods, spec("on-node", json!({"nodeName": "n1"}))).await;
    s.post("warnings", &pods, spec("warn", json!({"nodeSelector": {"beta.kubernetes.io/os": "linux"},
        "volumes": [{"name": "g", "gitRepo": {"repository": "r"}}],
        "containers": [{"name": "c", "image": "i:1", "env": [{"name": "A", "value": "1"}, {"name": "A", "value": "2"}],
            "resources": {"limits": {"memory": "100m"}}}]}))).await;
}

/// Errors, all at once and in order.
pub async fn invalid(s: &mut Session) {
    let pods = s.core("pods");
    let mut post = async |step: &str, body: Value| {
        s.post(step, &pods, body).await;
    };
    post("no spec", json!({"metadata": {"name": "x"}})).await;
    post("no containers", spec("x", json!({"containers": []}))).await;
    post(
        "bad policies",
        spec(
            "x",
            json!({"restartPolicy": "Sometimes", "dnsPolicy": "None", "preemptionPolicy": "Maybe",
        "terminationGracePeriodSeconds": -1, "activeDeadlineSeconds": 0}),
        ),
    )
    .await;
    post(
        "bad containers",
        spec(
            "x",
            json!({"containers": [
        {"name": "A", "image": " i "}, {"name": "a"}, {"name": "a", "image": "i", "imagePullPolicy": "No"},
        {"image": "i", "terminationMessagePolicy": "Shout"}]}),
        ),
    )
    .await;
    post(
        "bad ports",
        spec(
            "x",
            json!({"containers": [{"name": "c", "image": "i", "ports": [
        {"containerPort": 0}, {"containerPort": 65536}, {"containerPort": 80, "protocol": "XYZ"},
        {"containerPort": 81, "name": "Bad_Name"}, {"containerPort": 82, "hostPort": 70000}]}]}),
        ),
    )
    .await;
    post(
        "bad env",
        spec(
            "x",
            json!({"containers": [{"name": "c", "image": "i", "env": [{"name": ""}, {"name": "a=b"},
        {"name": "A", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "B", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}},
        {"name": "C", "valueFrom": {"configMapKeyRef": {"name": "m"}}}], "envFrom": [{}]}]}),
        ),
    )
    .await;
    post(
        "bad resources",
        spec(
            "x",
            json!({"containers": [{"name": "c", "image": "i", "resources": {
        "limits": {"gadget": "-1"}}}]}),
        ),
    )
    .await;
    post(
        "a limit that is missing",
        spec(
            "x",
            json!({"containers": [{"name": "c", "image": "i", "resources": {
        "requests": {"example.com/x": "1"}}}]}),
        ),
    )
    .await;
    post(
        "requests over limits",
        spec(
            "x",
            json!({"containers": [{"name": "c", "image": "i", "resources": {
        "limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}]}),
        ),
    )
    .await;
    post("bad volumes", spec("x", json!({"volumes": [{"name": ""}, {"name": "a"}, {"name": "a", "emptyDir": {}},
        {"name": "b", "emptyDir": {}, "hostPath": {"path": "/x"}}, {"name": "c", "hostPath": {"path": "../x"}},
        {"name": "d", "configMap": {"defaultMode": 9999}}]}))).await;
    post(
        "bad mounts",
        spec(
            "x",
            json!({"volumes": [{"name": "v", "emptyDir": {}}], "containers": [{"name": "c", "image": "i",
        "volumeMounts": [{"name": "none", "mountPath": "/a"}, {"name": "v", "mountPath": ""},
            {"name": "v", "mountPath": "/b"}, {"name": "v", "mountPath": "/b", "subPath": "../x"}]}]}),
        ),
    )
    .await;
    post(
        "bad probes",
        spec(
            "x",
            json!({"containers": [{"name": "c", "image": "i",
        "livenessProbe": {"exec": {}, "periodSeconds": -1}, "readinessProbe": {},
        "startupProbe": {"httpGet": {"port": 0, "path": "x"}, "tcpSocket": {"port": 1}}}]}),
        ),
    )
    .await;
    post(
        "bad tolerations",
        spec(
            "x",
            json!({"tolerations": [{"operator": "Equal"}, {"key": "k", "operator": "Near"},
        {"key": "k", "operator": "Exists", "value": "v"}, {"key": "k", "effect": "Maybe"},
        {"key": "k", "effect": "NoSchedule", "tolerationSeconds": 5}]}),
        ),
    )
    .await;
    post("bad affinity", spec("x", json!({"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution":
        {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "b", "operator": "Near"}]}]}},
        "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": {}}]}}}))).await;
    post("bad security", spec("x", json!({"securityContext": {"runAsUser": -1, "sysctls": [{"name": "a b", "value": "x"}]},
        "containers": [{"name": "c", "image": "i", "securityContext": {"privileged": true, "allowPrivilegeEscalation": false}}]}))).await;
    post(
        "bad names",
        spec(
            "x",
            json!({"hostname": "Bad.Host", "subdomain": "-", "nodeName": "Bad_Node", "schedulerName": "",
        "nodeSelector": {"a b": "c!"}}),
        ),
    )
    .await;
    post(
        "bad gates",
        spec("x", json!({"schedulingGates": [{"name": ""}, {"name": "a"}, {"name": "a"}], "nodeName": "n"})),
    )
    .await;
    post("bad init containers", spec("x", json!({"initContainers": [{"name": "c", "image": "i"},
        {"name": "i", "image": "i", "livenessProbe": {"exec": {"command": ["x"]}}},
        {"name": "j", "image": "i", "restartPolicy": "Never", "lifecycle": {"postStart": {"exec": {"command": ["x"]}}}}]}))).await;
    post("bad spread", spec("x", json!({"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Cry"}]}))).await;
    post(
        "bad host aliases",
        spec(
            "x",
            json!({"hostAliases": [{"ip": "x", "hostnames": ["A_"]}], "hostNetwork": true,
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 81}]}]}),
        ),
    )
    .await;
    post("ephemeral containers", spec("x", json!({"ephemeralContainers": [{"name": "e", "image": "i"}]})))
        .await;
}

/// What may be changed.
pub async fn updates(s: &mut Session) {
    let pods = s.core("pods");
    s.post("create", &pods, pod("p")).await;
    let path = format!("{pods}/p");
    let mut patch = async |step: &str, body: Value| {
        s.patch(step, &path, STRATEGIC, body).await;
    };
    patch("image", json!({"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}})).await;
    patch("image to nothing", json!({"spec": {"containers": [{"name": "c", "image": ""}]}})).await;
    patch("command", json!({"spec": {"containers": [{"name": "c", "command": ["x"]}]}})).await;
    patch("deadline", json!({"spec": {"activeDeadlineSeconds": 100}})).await;
    patch("deadline later", json!({"spec": {"activeDeadlineSeconds": 200}})).await;
    patch("deadline away", json!({"spec": {"activeDeadlineSeconds": null}})).await;
    patch("node", json!({"spec": {"nodeName": "n1"}})).await;
    patch("more tolerations", json!({"spec": {"tolerations": [
        {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"key": "x", "operator": "Exists"}]}})).await;
    patch("fewer tolerations", json!({"spec": {"tolerations": []}})).await;
    patch("a container more", json!({"spec": {"containers": [{"name": "d", "image": "x"}]}})).await;
    patch("labels", json!({"metadata": {"labels": {"a": "b"}}})).await;
    patch("grace", json!({"spec": {"terminationGracePeriodSeconds": 1}})).await;
    patch("restart policy", json!({"spec": {"restartPolicy": "Always"}})).await;
    patch("an owner", json!({"metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"}]}})).await;
    s.post("gated", &pods, spec("gated", json!({"schedulingGates": [{"name": "a"}, {"name": "b"}]}))).await;
    let path = format!("{pods}/gated");
    s.patch(
        "another gate",
        &path,
        MERGE,
        json!({"spec": {"schedulingGates": [{"name": "a"}, {"name": "c"}]}}),
    )
    .await;
    s.patch("a gate less", &path, MERGE, json!({"spec": {"schedulingGates": [{"name": "b"}]}})).await;
    s.patch("a node selector while gated", &path, MERGE, json!({"spec": {"nodeSelector": {"a": "b"}}})).await;
    s.patch("another one while gated", &path, MERGE, json!({"spec": {"nodeSelector": {"a": "c"}}})).await;
    s.patch("no gates", &path, MERGE, json!({"spec": {"schedulingGates": []}})).await;
    s.patch("a node selector after that", &path, MERGE, json!({"spec": {"nodeSelector": {"x": "y"}}})).await;
}

/// What a node writes.
pub async fn status(s: &mut Session) {
    let pods = s.core("pods");
    running(s, "p").await;
    let path = format!("{pods}/p/status");
    let time = "2026-01-01T00:00:00Z";
    s.get("as it is", &path).await;
    s.patch("container statuses", &path, STRATEGIC, json!({"status": {"phase": "Running", "startTime": time, "podIP": "10.0.0.1",
        "podIPs": [{"ip": "10.0.0.1"}], "hostIP": "1.2.3.4", "containerStatuses": [{"name": "c", "image": "i", "imageID": "x",
        "ready": true, "restartCount": 1, "state": {"running": {"startedAt": time}}}]}})).await;
    s.patch(
        "a negative exit code",
        &path,
        STRATEGIC,
        json!({"status": {"phase": "Failed", "containerStatuses": [{"name": "c",
        "image": "i", "imageID": "x", "ready": false, "restartCount": 1,
        "state": {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": time}}}]}}),
    )
    .await;
    s.patch("terminated becomes running", &path, STRATEGIC, json!({"status": {"phase": "Running", "containerStatuses": [{"name": "c",
        "image": "i", "imageID": "x", "ready": true, "restartCount": 1, "state": {"terminated": null, "running": {"startedAt": time}}}]}})).await;
    s.patch("a phase that is none", &path, MERGE, json!({"status": {"phase": "Dreaming"}})).await;
    s.patch(
        "a bad condition",
        &path,
        MERGE,
        json!({"status": {"conditions": [{"type": "", "status": "Maybe"}]}}),
    )
    .await;
    s.patch("bad addresses", &path, MERGE, json!({"status": {"podIP": "x", "podIPs": [{"ip": "x"}]}})).await;
    s.patch(
        "a spec in the status",
        &path,
        MERGE,
        json!({"spec": {"nodeName": "other", "activeDeadlineSeconds": 3}}),
    )
    .await;
    s.patch("its class", &path, MERGE, json!({"status": {"qosClass": "Guaranteed"}})).await;
    s.patch(
        "owners in the status",
        &path,
        MERGE,
        json!({"metadata": {"ownerReferences":
        [{"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1"}], "annotations": {"a": "b"}}}),
    )
    .await;
    let pod = s.get("the pod", &format!("{pods}/p")).await;
    s.put("put of the status", &path, with(pod, "/status/reason", json!("because"))).await;
    s.patch("of a pod that is not there", &format!("{pods}/none/status"), MERGE, json!({"status": {}})).await;
    s.get("by phase", &format!("{pods}?fieldSelector=status.phase%3DFailed,spec.nodeName%3Dn1")).await;
    s.get("by address", &format!("{pods}?fieldSelector=status.podIP%3D10.0.0.1")).await;
}

/// The scheduler's word.
pub async fn binding(s: &mut Session) {
    let pods = s.core("pods");
    s.post("create", &pods, pod("p")).await;
    let path = format!("{pods}/p/binding");
    let to = |name: &str, node: &str| json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": {"apiVersion": "v1", "kind": "Node", "name": node}});
    s.post("another name", &path, to("q", "n1")).await;
    s.post("no node", &path, to("p", "")).await;
    s.post("not a node", &path, with(to("p", "n1"), "/target/kind", json!("Pod"))).await;
    s.post("another uid", &path, with(to("p", "n1"), "/metadata/uid", json!("x"))).await;
    s.post("dry run", &format!("{path}?dryRun=All"), to("p", "n1")).await;
    s.post("bound", &path, with(to("p", "n1"), "/metadata/annotations", json!({"a": "b"}))).await;
    s.get("where it is", &format!("{pods}/p")).await;
    s.post("bound again", &path, to("p", "n2")).await;
    s.post("not there", &format!("{pods}/none/binding"), to("none", "n1")).await;
    s.post("gated", &pods, spec("gated", json!({"schedulingGates": [{"name": "g"}]}))).await;
    s.post("bind what is gated", &format!("{pods}/gated/binding"), to("gated", "n1")).await;
    s.post("held", &pods, with(pod("held"), "/metadata/finalizers", json!(["a/b"]))).await;
    s.delete("delete it", &format!("{pods}/held"), Value::Null).await;
    s.post("bind what goes", &format!("{pods}/held/binding"), to("held", "n1")).await;
    s.post("other", &pods, pod("other")).await;
    s.post("by the collection of bindings", &s.core("bindings"), to("other", "n3")).await;
    s.get("where the other is", &format!("{pods}/other")).await;
}

/// The call of `kubectl drain`.
pub async fn eviction(s: &mut Session) {
    let (pods, budgets) = (s.core("pods"), s.group("policy/v1", "poddisruptionbudgets"));
    let eviction =
        |name: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
    for name in ["a", "b", "c", "d"] {
        running(s, name).await;
    }
    s.post("another name", &format!("{pods}/a/eviction"), eviction("x")).await;
    s.post("not there", &format!("{pods}/none/eviction"), eviction("none")).await;
    s.post("dry run", &format!("{pods}/a/eviction?dryRun=All"), eviction("a")).await;
    s.get("untouched", &format!("{pods}/a")).await;
    s.post("evicted", &format!("{pods}/a/eviction"), eviction("a")).await;
    s.get("on its way", &format!("{pods}/a")).await;
    s.post(
        "with options",
        &format!("{pods}/b/eviction"),
        with(eviction("b"), "/deleteOptions", json!({"gracePeriodSeconds": 0})),
    )
    .await;
    s.get("gone", &format!("{pods}/b")).await;
    s.post(
        "another uid",
        &format!("{pods}/c/eviction"),
        with(
            eviction("c"),
            "/deleteOptions",
            json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}}),
        ),
    )
    .await;
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "keep"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}}});
    s.prepare(Method::POST, &budgets, budget).await.expect("a budget");
    s.post("a budget nobody has looked at", &format!("{pods}/c/eviction"), eviction("c")).await;
    let status = |allowed: i64| {
        json!({"status": {"observedGeneration": 1, "currentHealthy": 2, "desiredHealthy": 1,
        "expectedPods": 2, "disruptionsAllowed": allowed}})
    };
    s.prepare(Method::PATCH, &format!("{budgets}/keep/status"), status(0)).await.expect("a status");
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    s.prepare(Method::PATCH, &format!("{pods}/c/status"), ready).await.expect("ready");
    s.post("a budget that allows none", &format!("{pods}/c/eviction"), eviction("c")).await;
    s.prepare(Method::PATCH, &format!("{budgets}/keep/status"), status(1)).await.expect("a status");
    s.post("a budget that allows one", &format!("{pods}/c/eviction"), eviction("c")).await;
    s.get("the budget after that", &format!("{budgets}/keep")).await;
    s.post(
        "an older version",
        &format!("{pods}/d/eviction"),
        with(eviction("d"), "/apiVersion", json!("policy/v1beta1")),
    )
    .await;
    s.post("no body", &format!("{pods}/d/eviction"), json!({})).await;
}

/// Quality of service.
pub async fn quality(s: &mut Session) {
    let pods = s.core("pods");
    let full = json!({"limits": {"cpu": "1", "memory": "1Gi"}});
    for (name, resources) in
        [("guaranteed", full), ("burstable", json!({"requests": {"cpu": "1"}})), ("best", json!({}))]
    {
        let pod = spec(name, json!({"containers": [{"name": "c", "image": "i:1", "resources": resources}]}));
        s.post(name, &pods, pod).await;
    }
}
