//! Rules for pods that are being created.

use windlass_api::validation::pod::validate_pod_create;

use crate::support::{pod, report};

#[test]
fn new_pods_are_held_to_every_rule_of_their_own() {
    report(CASES.iter().map(|(rule, fields, errors)| (*rule, validate_pod_create(&pod(fields)), *errors)));
}

/// The rule, the fields of the pod, and all the errors.
const CASES: &[(&str, &str, &[&str])] = &[
    ("a plain pod is fine", r#"{"metadata": {}, "spec": {}}"#, &[]),
    (
        "a pod has a name and a namespace",
        r#"{"metadata": {"name": "", "namespace": ""}, "spec": {}}"#,
        &[
            "metadata.name: Required value: name or generateName is required",
            "metadata.namespace: Required value",
        ],
    ),
    (
        "a name of a pod is a DNS subdomain",
        r#"{"metadata": {"name": "P_"}, "spec": {}}"#,
        &[
            r#"metadata.name: Invalid value: "P_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        "a pod has the rules of a template",
        r#"{"metadata": {}, "spec": {"containers": []}}"#,
        &["spec.containers: Required value"],
    ),
    (
        "an image has no blanks around",
        r#"{"metadata": {}, "spec": {"containers": [{"name": "a", "image": " i"}], "initContainers": [{"name": "b", "image": "i "}]}}"#,
        &[
            r#"spec.containers[0].image: Invalid value: " i": must not have leading or trailing whitespace"#,
            r#"spec.initContainers[0].image: Invalid value: "i ": must not have leading or trailing whitespace"#,
        ],
    ),
    (
        "a token needs an account",
        r#"{"metadata": {}, "spec": {"volumes": [{"name": "v", "emptyDir": {}}, {"name": "w", "projected": {"sources": [{"secret": {"name": "s"}}, {"serviceAccountToken": {"path": "t"}}]}}]}}"#,
        &[
            "spec.volumes[1].projected.sources[1].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set",
        ],
    ),
    (
        "a token of an account is fine",
        r#"{"metadata": {}, "spec": {"serviceAccountName": "s", "volumes": [{"name": "w", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]}}"#,
        &[],
    ),
    (
        "a gated pod has no node",
        r#"{"metadata": {}, "spec": {"nodeName": "n", "schedulingGates": [{"name": "g"}]}}"#,
        &["spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"],
    ),
    (
        "a new pod has no ephemeral containers",
        r#"{"metadata": {}, "spec": {"ephemeralContainers": [{"name": "e", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}]}}"#,
        &["spec.ephemeralContainers: Forbidden: cannot be set on create"],
    ),
    (
        "a cost of deletion is a number",
        r#"{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "x"}}, "spec": {}}"#,
        &[
            r#"metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "x": must be a 32bit integer"#,
        ],
    ),
    (
        "a port on the network of the host is that of the host",
        r#"{"metadata": {}, "spec": {"hostNetwork": true, "containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 82}]}]}}"#,
        &[
            "spec.containers[0].ports[1].hostPort: Invalid value: 82: must match `containerPort` when `hostNetwork` is true",
        ],
    ),
    (
        "an image of a volume has a name",
        r#"{"metadata": {}, "spec": {"volumes": [{"name": "v", "image": {"pullPolicy": "Always"}}]}}"#,
        &["spec.volumes[0].image.reference: Required value"],
    ),
    (
        "a claim is not one that will be made",
        r#"{"metadata": {}, "spec": {"volumes": [{"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}, {"name": "c", "persistentVolumeClaim": {"claimName": "p-e"}}]}}"#,
        &[
            r#"spec.volumes[1].persistentVolumeClaim.claimName: Invalid value: "p-e": must not reference a PVC that gets created for an ephemeral volume"#,
        ],
    ),
    (
        "a claim that will be made has a name",
        r#"{"metadata": {"name": "<a250>"}, "spec": {"volumes": [{"name": "eeee", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}]}}"#,
        &[
            r#"spec.volumes[0].name: Invalid value: "eeee": PVC name "<a250>-eeee": must be no more than 253 characters"#,
        ],
    ),
];
