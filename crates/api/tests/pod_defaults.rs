//! What pods and templates get when their authors do not say.

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodTemplateSpec};
use serde_json::{Value, json};
use windlass_api::defaults::pod::{default_pod, default_pod_template, initial_status};

fn template_spec(fields: &str) -> Value {
    let mut template = PodTemplateSpec { spec: Some(spec(fields)), ..PodTemplateSpec::default() };
    default_pod_template(&mut template);
    serde_json::to_value(template.spec).expect("a spec is JSON")
}

fn pod_spec(fields: &str) -> Value {
    let mut pod = Pod { spec: Some(spec(fields)), ..Pod::default() };
    default_pod(&mut pod);
    serde_json::to_value(pod.spec).expect("a spec is JSON")
}

fn spec(fields: &str) -> PodSpec {
    let mut plain = json!({"containers": [{"name": "a", "image": "i:1"}]});
    let fields: Value = serde_json::from_str(fields).expect("fields are JSON");
    plain.as_object_mut().expect("an object").extend(fields.as_object().cloned().unwrap_or_default());
    serde_json::from_value(plain).expect("a spec")
}

// Only the fields that the case is about.
fn assert_fields(rule: &str, found: &Value, wanted: &str) {
    let wanted: Value = serde_json::from_str(wanted).expect("fields are JSON");
    let found: Value = wanted
        .as_object()
        .expect("an object")
        .keys()
        .map(|name| (name.clone(), found[name].clone()))
        .collect();
    assert_eq!(found, wanted, "{rule}");
}

#[test]
fn a_plain_template_gets_every_default_of_templates_and_no_other() {
    assert_eq!(
        template_spec("{}"),
        json!({
            "containers": [{
                "name": "a",
                "image": "i:1",
                "imagePullPolicy": "IfNotPresent",
                "resources": {},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
            }],
            "dnsPolicy": "ClusterFirst",
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "terminationGracePeriodSeconds": 30,
        })
    );
}

#[test]
fn a_template_without_a_spec_gets_one() {
    let mut template = PodTemplateSpec::default();
    default_pod_template(&mut template);
    assert_eq!(template.spec.and_then(|spec| spec.dns_policy).as_deref(), Some("ClusterFirst"));
}

#[test]
fn parts_of_templates_get_their_defaults() {
    for (rule, fields, wanted) in TEMPLATES {
        assert_fields(rule, &template_spec(fields), wanted);
    }
}

#[test]
fn defaulting_again_changes_nothing() {
    for (rule, fields, _) in TEMPLATES.iter().chain(PODS) {
        let (template, pod) = (template_spec(fields), pod_spec(fields));
        assert_eq!(template_spec(&template.to_string()), template, "{rule}");
        assert_eq!(pod_spec(&pod.to_string()), pod, "{rule}");
    }
}

#[test]
fn pods_get_what_templates_do_not() {
    for (rule, fields, wanted) in PODS {
        assert_fields(rule, &pod_spec(fields), wanted);
    }
}

#[test]
fn images_of_the_latest_version_are_always_pulled() {
    for (image, policy) in IMAGES {
        let fields = json!({"containers": [{"name": "a", "image": image}]}).to_string();
        assert_eq!(template_spec(&fields)["containers"][0]["imagePullPolicy"], *policy, "{image}");
    }
}

#[test]
fn an_amount_that_is_no_quantity_stays_for_validation() {
    let fields = r#"{"overhead": {"cpu": "much"}, "resources": {"limits": {"cpu": "more"}}}"#;
    assert_fields("no quantities", &pod_spec(fields), r#"{"overhead": {"cpu": "much"}}"#);
}

#[test]
fn a_new_pod_is_pending_and_has_a_class_of_service() {
    for (fields, class) in CLASSES {
        let mut pod = Pod { spec: Some(spec(fields)), ..Pod::default() };
        default_pod(&mut pod);
        let status = initial_status(&pod.spec.expect("a pod has a spec"));
        assert_eq!(
            serde_json::to_value(status).expect("a status is JSON"),
            json!({"phase": "Pending", "qosClass": class}),
            "{fields}"
        );
    }
}

#[test]
fn a_new_pod_with_gates_says_that_it_is_not_scheduled() {
    let status = initial_status(&spec(r#"{"schedulingGates": [{"name": "g"}]}"#));
    assert_eq!(
        serde_json::to_value(status).expect("a status is JSON"),
        json!({
            "phase": "Pending",
            "qosClass": "BestEffort",
            "conditions": [{
                "type": "PodScheduled",
                "status": "False",
                "reason": "SchedulingGated",
                "message": "Scheduling is blocked due to non-empty scheduling gates",
            }],
        })
    );
}

/// What is defaulted, fields of a template, and what becomes of them.
const TEMPLATES: &[(&str, &str, &str)] = &[
    (
        "the image of a container",
        r#"{"containers": [{"name": "a", "image": "busybox"}]}"#,
        r#"{"containers": [{"name": "a", "image": "busybox", "resources": {}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}]}"#,
    ),
    (
        "what is given stays",
        r#"{"initContainers": [{"name": "i", "image": "x/y:1", "imagePullPolicy": "Never", "terminationMessagePath": "/t", "terminationMessagePolicy": "FallbackToLogsOnError", "resources": {"limits": {"memory": "1Gi"}}}]}"#,
        r#"{"initContainers": [{"name": "i", "image": "x/y:1", "resources": {"limits": {"memory": "1Gi"}}, "terminationMessagePath": "/t", "terminationMessagePolicy": "FallbackToLogsOnError", "imagePullPolicy": "Never"}]}"#,
    ),
    (
        "protocols of ports",
        r#"{"containers": [{"name": "a", "image": "i:1", "ports": [{"containerPort": 80}, {"containerPort": 81, "protocol": "UDP", "hostPort": 9}]}]}"#,
        r#"{"containers": [{"name": "a", "image": "i:1", "ports": [{"containerPort": 80, "protocol": "TCP"}, {"hostPort": 9, "containerPort": 81, "protocol": "UDP"}], "resources": {}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}]}"#,
    ),
    (
        "references of variables",
        r#"{"containers": [{"name": "a", "image": "i:1", "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}, {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1000m"}}}, {"name": "D", "valueFrom": {"fileKeyRef": {"key": "k", "path": "p", "volumeName": "v"}}}, {"name": "E", "value": "x"}]}]}"#,
        r#"{"containers": [{"name": "a", "image": "i:1", "env": [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}, {"name": "B", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "0"}}}, {"name": "C", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1"}}}, {"name": "D", "valueFrom": {"fileKeyRef": {"volumeName": "v", "path": "p", "key": "k", "optional": false}}}, {"name": "E", "value": "x"}], "resources": {}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}]}"#,
    ),
    (
        "amounts are canonical and whole thousandths",
        r#"{"containers": [{"name": "a", "image": "i:1", "resources": {"limits": {"cpu": "0.5", "memory": "0.5Gi"}, "requests": {"cpu": "1n"}}}]}"#,
        r#"{"containers": [{"name": "a", "image": "i:1", "resources": {"limits": {"cpu": "500m", "memory": "512Mi"}, "requests": {"cpu": "1m"}}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}]}"#,
    ),
    (
        "probes",
        r#"{"containers": [{"name": "a", "image": "i:1", "livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"grpc": {"port": 80}}, "startupProbe": {"exec": {"command": ["x"]}, "timeoutSeconds": 2, "periodSeconds": 3, "successThreshold": 1, "failureThreshold": 5}}]}"#,
        r#"{"containers": [{"name": "a", "image": "i:1", "resources": {}, "livenessProbe": {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}, "readinessProbe": {"grpc": {"port": 80, "service": ""}, "timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}, "startupProbe": {"exec": {"command": ["x"]}, "timeoutSeconds": 2, "periodSeconds": 3, "successThreshold": 1, "failureThreshold": 5}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}]}"#,
    ),
    (
        "hooks",
        r#"{"containers": [{"name": "a", "image": "i:1", "lifecycle": {"postStart": {"httpGet": {"port": 80, "path": "/x", "scheme": "HTTPS"}}, "preStop": {"httpGet": {"port": 81}}}}]}"#,
        r#"{"containers": [{"name": "a", "image": "i:1", "resources": {}, "lifecycle": {"postStart": {"httpGet": {"path": "/x", "port": 80, "scheme": "HTTPS"}}, "preStop": {"httpGet": {"path": "/", "port": 81, "scheme": "HTTP"}}}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}]}"#,
    ),
    (
        "volume: none",
        r#"{"volumes": [{"name": "none"}]}"#,
        r#"{"volumes": [{"name": "none", "emptyDir": {}}]}"#,
    ),
    (
        "volume: dir",
        r#"{"volumes": [{"name": "dir", "emptyDir": {"sizeLimit": "0.5Gi"}}]}"#,
        r#"{"volumes": [{"name": "dir", "emptyDir": {"sizeLimit": "512Mi"}}]}"#,
    ),
    (
        "volume: host",
        r#"{"volumes": [{"name": "host", "hostPath": {"path": "/x"}}]}"#,
        r#"{"volumes": [{"name": "host", "hostPath": {"path": "/x", "type": ""}}]}"#,
    ),
    (
        "volume: secret",
        r#"{"volumes": [{"name": "secret", "secret": {"secretName": "s"}}]}"#,
        r#"{"volumes": [{"name": "secret", "secret": {"secretName": "s", "defaultMode": 420}}]}"#,
    ),
    (
        "volume: map",
        r#"{"volumes": [{"name": "map", "configMap": {"name": "c"}}]}"#,
        r#"{"volumes": [{"name": "map", "configMap": {"name": "c", "defaultMode": 420}}]}"#,
    ),
    (
        "volume: down",
        r#"{"volumes": [{"name": "down", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}, {"path": "q", "resourceFieldRef": {"containerName": "a", "resource": "limits.cpu"}}]}}]}"#,
        r#"{"volumes": [{"name": "down", "downwardAPI": {"items": [{"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}, {"path": "q", "resourceFieldRef": {"containerName": "a", "resource": "limits.cpu", "divisor": "0"}}], "defaultMode": 420}}]}"#,
    ),
    (
        "volume: proj",
        r#"{"volumes": [{"name": "proj", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}, {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}}]}"#,
        r#"{"volumes": [{"name": "proj", "projected": {"sources": [{"serviceAccountToken": {"expirationSeconds": 3600, "path": "t"}}, {"downwardAPI": {"items": [{"path": "p", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]}}], "defaultMode": 420}}]}"#,
    ),
    (
        "volume: image",
        r#"{"volumes": [{"name": "image", "image": {"reference": "r"}}]}"#,
        r#"{"volumes": [{"name": "image", "image": {"reference": "r", "pullPolicy": "Always"}}]}"#,
    ),
    (
        "volume: claim",
        r#"{"volumes": [{"name": "claim", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}]}"#,
        r#"{"volumes": [{"name": "claim", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}, "volumeMode": "Filesystem"}}}}]}"#,
    ),
    (
        "the old name of the service account",
        r#"{"serviceAccount": "old"}"#,
        r#"{"serviceAccount": "old", "serviceAccountName": "old"}"#,
    ),
    (
        "the new name of the service account",
        r#"{"serviceAccountName": "new", "serviceAccount": "old"}"#,
        r#"{"serviceAccount": "new", "serviceAccountName": "new"}"#,
    ),
    ("overhead", r#"{"overhead": {"cpu": "0.25"}}"#, r#"{"overhead": {"cpu": "250m"}}"#),
    (
        "resources of the pod",
        r#"{"resources": {"limits": {"cpu": "0.5"}, "requests": {"cpu": "1n"}}}"#,
        r#"{"resources": {"limits": {"cpu": "500m"}, "requests": {"cpu": "1m"}}}"#,
    ),
    (
        "a negative grace period of a template",
        r#"{"terminationGracePeriodSeconds": -3}"#,
        r#"{"terminationGracePeriodSeconds": -3}"#,
    ),
];

/// What is defaulted, fields of a pod, and what becomes of them.
const PODS: &[(&str, &str, &str)] = &[
    (
        "requests are the limits where not given",
        r#"{"containers": [{"name": "a", "image": "i:1", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}}, {"name": "a", "image": "i:1", "resources": {"requests": {"cpu": "1"}}}], "initContainers": [{"name": "a", "image": "i:1", "resources": {"limits": {"cpu": "1"}}}]}"#,
        r#"{"containers": [{"name": "a", "image": "i:1", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi"}}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}, {"name": "a", "image": "i:1", "resources": {"requests": {"cpu": "1"}}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}], "initContainers": [{"name": "a", "image": "i:1", "resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1"}}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}]}"#,
    ),
    ("links to services", r#"{}"#, r#"{"enableServiceLinks": true}"#),
    (
        "links to services that are not wanted",
        r#"{"enableServiceLinks": false}"#,
        r#"{"enableServiceLinks": false}"#,
    ),
    (
        "ports on the network of the host",
        r#"{"hostNetwork": true, "containers": [{"name": "a", "image": "i:1", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 9}]}], "initContainers": [{"name": "a", "image": "i:1", "ports": [{"containerPort": 82}]}]}"#,
        r#"{"containers": [{"name": "a", "image": "i:1", "ports": [{"hostPort": 80, "containerPort": 80, "protocol": "TCP"}, {"hostPort": 9, "containerPort": 81, "protocol": "TCP"}], "resources": {}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}], "hostNetwork": true, "initContainers": [{"name": "a", "image": "i:1", "ports": [{"hostPort": 82, "containerPort": 82, "protocol": "TCP"}], "resources": {}, "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File", "imagePullPolicy": "IfNotPresent"}]}"#,
    ),
    (
        "a negative grace period of a pod",
        r#"{"terminationGracePeriodSeconds": -3}"#,
        r#"{"terminationGracePeriodSeconds": 1}"#,
    ),
    (
        "resources of the pod, 0",
        r#"{"resources": {"limits": {"cpu": "2"}}, "containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}}}, {"name": "a", "image": "i", "resources": {"requests": {"cpu": "250m", "example.com/x": "1"}}}]}"#,
        r#"{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "750m", "memory": "1Gi"}}}"#,
    ),
    (
        "resources of the pod, 1",
        r#"{"resources": {"limits": {"cpu": "2"}}, "containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "500m"}}}], "initContainers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "100m"}}, "restartPolicy": "Always"}, {"name": "a", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}"#,
        r#"{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1100m"}}}"#,
    ),
    (
        "resources of the pod, 2",
        r#"{"resources": {"requests": {"cpu": "2"}}, "containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}}}]}"#,
        r#"{"resources": {"limits": {"hugepages-2Mi": "4Mi"}, "requests": {"cpu": "2", "hugepages-2Mi": "4Mi"}}}"#,
    ),
    (
        "resources of the pod, 3",
        r#"{"resources": {"requests": {"cpu": "2"}}, "containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}"#,
        r#"{"resources": {"requests": {"cpu": "2"}}}"#,
    ),
    (
        "resources of the pod, 4",
        r#"{"resources": {}, "containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}"#,
        r#"{"resources": {}}"#,
    ),
    (
        "resources of the pod, 5",
        r#"{"resources": {"limits": {"cpu": "2", "hugepages-2Mi": "8Mi"}, "requests": {"cpu": "1"}}, "containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}}}]}"#,
        r#"{"resources": {"limits": {"cpu": "2", "hugepages-2Mi": "8Mi"}, "requests": {"cpu": "1", "hugepages-2Mi": "8Mi"}}}"#,
    ),
    (
        "resources of the pod, 6",
        r#"{"resources": {"requests": {"cpu": "2", "hugepages-2Mi": "8Mi"}}, "containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}}}]}"#,
        r#"{"resources": {"requests": {"cpu": "2", "hugepages-2Mi": "8Mi"}}}"#,
    ),
];

/// An image and its pull policy.
const IMAGES: &[(&str, &str)] = &[
    ("busybox", "Always"),
    ("busybox:latest", "Always"),
    ("busybox:1.36", "IfNotPresent"),
    ("busybox@sha256:0000000000000000000000000000000000000000000000000000000000000000", "IfNotPresent"),
    ("busybox:latest@sha256:0000000000000000000000000000000000000000000000000000000000000000", "Always"),
    ("busybox:1@sha256:0000000000000000000000000000000000000000000000000000000000000000", "IfNotPresent"),
    ("localhost:5000/x", "Always"),
    ("localhost/X", "IfNotPresent"),
    ("Example.com/x", "Always"),
    ("r.io:80/a/b:v1", "IfNotPresent"),
    ("UPPER", "IfNotPresent"),
    ("", "IfNotPresent"),
    ("a//b", "IfNotPresent"),
    ("a/b-", "IfNotPresent"),
];

/// Fields of a pod and its class of service.
const CLASSES: &[(&str, &str)] = &[
    (r#"{"containers": [{"name": "a", "image": "i", "resources": {}}]}"#, "BestEffort"),
    (
        r#"{"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}"#,
        "Guaranteed",
    ),
    (
        r#"{"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}, {"name": "a", "image": "i", "resources": {}}]}"#,
        "Burstable",
    ),
    (
        r#"{"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m"}}}]}"#,
        "Burstable",
    ),
    (
        r#"{"containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "1"}}}]}"#,
        "Burstable",
    ),
    (r#"{"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1"}}}]}"#, "Burstable"),
    (
        r#"{"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}], "initContainers": [{"name": "a", "image": "i", "resources": {}}]}"#,
        "Burstable",
    ),
    (
        r#"{"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}], "initContainers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}"#,
        "Guaranteed",
    ),
    (
        r#"{"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "0", "memory": "0"}}}]}"#,
        "BestEffort",
    ),
    (
        r#"{"containers": [{"name": "a", "image": "i", "resources": {"limits": {"example.com/gpu": "1"}}}]}"#,
        "BestEffort",
    ),
    (
        r#"{"containers": [{"name": "a", "image": "i", "resources": {}}], "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}"#,
        "Guaranteed",
    ),
    (
        r#"{"containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}], "resources": {"requests": {"cpu": "2"}}}"#,
        "Burstable",
    ),
];
