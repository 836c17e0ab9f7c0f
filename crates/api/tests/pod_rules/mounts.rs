//! Rules for what containers mount: what is wrong, in which words and in which order.

use crate::support::Part::Spec;
use crate::support::{Case, check};

#[test]
fn mounts_are_held_to_every_rule() {
    check(CASES);
}

const CASES: &[Case] = &[
    (
        "a mount of a volume is fine",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "a/b"}], "volumeDevices": []}]}"#,
        &[],
    ),
    (
        "a mount names a volume",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "", "mountPath": "/x"}, {"name": "n", "mountPath": "/y"}], "volumeDevices": []}]}"#,
        &[
            "template.spec.containers[0].volumeMounts[0].name: Required value",
            r#"template.spec.containers[0].volumeMounts[0].name: Not found: """#,
            r#"template.spec.containers[0].volumeMounts[1].name: Not found: "n""#,
        ],
    ),
    (
        "a mount has a path of its own",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": ""}, {"name": "v", "mountPath": "/x"}, {"name": "v", "mountPath": "/x"}], "volumeDevices": []}]}"#,
        &[
            "template.spec.containers[0].volumeMounts[0].mountPath: Required value",
            r#"template.spec.containers[0].volumeMounts[2].mountPath: Invalid value: "/x": must be unique"#,
        ],
    ),
    (
        "a path below a volume stays below",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "/a"}, {"name": "v", "mountPath": "/y", "subPath": "a/../.."}, {"name": "v", "mountPath": "/z", "subPathExpr": "../$(A)"}], "volumeDevices": []}]}"#,
        &[
            r#"template.spec.containers[0].volumeMounts.subPath: Invalid value: "/a": must be a relative path"#,
            r#"template.spec.containers[0].volumeMounts.subPath: Invalid value: "a/../..": must not contain '..'"#,
            r#"template.spec.containers[0].volumeMounts.subPathExpr: Invalid value: "../$(A)": must not contain '..'"#,
        ],
    ),
    (
        "a path below a volume is given once",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/x", "subPath": "a", "subPathExpr": "b"}], "volumeDevices": []}]}"#,
        &[
            r#"template.spec.containers[0].volumeMounts[0].subPathExpr: Invalid value: "b": subPathExpr and subPath are mutually exclusive"#,
        ],
    ),
    (
        "propagation is one of three",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/x", "mountPropagation": "Up"}], "volumeDevices": []}]}"#,
        &[
            r#"template.spec.containers[0].volumeMounts.mountPropagation: Unsupported value: "Up": supported values: "Bidirectional", "HostToContainer", "None""#,
        ],
    ),
    (
        "propagation to the host needs privileges",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/x", "mountPropagation": "Bidirectional"}], "volumeDevices": []}]}"#,
        &[
            "template.spec.containers[0].volumeMounts.mountPropagation: Forbidden: Bidirectional mount propagation is available only to privileged containers",
        ],
    ),
    (
        "privileged containers may propagate to the host",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/x", "mountPropagation": "Bidirectional"}], "volumeDevices": [], "securityContext": {"privileged": true}}]}"#,
        &[],
    ),
    (
        "read-only all the way down needs read-only",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "v", "mountPath": "/x", "recursiveReadOnly": "Enabled", "mountPropagation": "HostToContainer"}, {"name": "v", "mountPath": "/y", "recursiveReadOnly": "IfPossible", "readOnly": true, "mountPropagation": "None"}, {"name": "v", "mountPath": "/z", "recursiveReadOnly": "Perhaps"}, {"name": "v", "mountPath": "/w", "recursiveReadOnly": "Disabled"}], "volumeDevices": []}]}"#,
        &[
            "template.spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when readOnly is true",
            "template.spec.containers[0].volumeMounts.recursiveReadOnly: Forbidden: may only be specified when mountPropagation is None or not specified",
            r#"template.spec.containers[0].volumeMounts.recursiveReadOnly: Unsupported value: "Perhaps": supported values: "Disabled", "Enabled", "IfPossible""#,
        ],
    ),
    (
        "a device of a claim is fine",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [], "volumeDevices": [{"name": "p", "devicePath": "/dev/x"}, {"name": "e", "devicePath": "/dev/y"}]}]}"#,
        &[],
    ),
    (
        "a device names a claim",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [], "volumeDevices": [{"name": "", "devicePath": "/a"}, {"name": "v", "devicePath": "/b"}, {"name": "n", "devicePath": "/c"}]}]}"#,
        &[
            "template.spec.containers[0].volumeDevices[0].name: Required value",
            r#"template.spec.containers[0].volumeDevices[0].name: Not found: """#,
            r#"template.spec.containers[0].volumeDevices[1].name: Invalid value: "v": can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"#,
            r#"template.spec.containers[0].volumeDevices[2].name: Not found: "n""#,
        ],
    ),
    (
        "a device has a path of its own",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [], "volumeDevices": [{"name": "p", "devicePath": ""}, {"name": "e", "devicePath": "/x/../y"}]}]}"#,
        &[
            "template.spec.containers[0].volumeDevices[0].devicePath: Required value",
            r#"template.spec.containers[0].volumeDevices[1].devicePath: Invalid value: "/x/../y": can not contain backsteps ('..')"#,
        ],
    ),
    (
        "devices are unique",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [], "volumeDevices": [{"name": "p", "devicePath": "/x"}, {"name": "p", "devicePath": "/x"}]}]}"#,
        &[
            r#"template.spec.containers[0].volumeDevices[1].name: Invalid value: "p": must be unique"#,
            r#"template.spec.containers[0].volumeDevices[1].devicePath: Invalid value: "/x": must be unique"#,
        ],
    ),
    (
        "a volume is a mount or a device, not both",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [{"name": "p", "mountPath": "/x"}], "volumeDevices": [{"name": "p", "devicePath": "/x"}]}]}"#,
        &[
            r#"template.spec.containers[0].volumeMounts[0].name: Invalid value: "p": must not already exist in volumeDevices"#,
            r#"template.spec.containers[0].volumeMounts[0].mountPath: Invalid value: "/x": must not already exist as a path in volumeDevices"#,
            r#"template.spec.containers[0].volumeDevices[0].name: Invalid value: "p": must not already exist in volumeMounts"#,
            r#"template.spec.containers[0].volumeDevices[0].devicePath: Invalid value: "/x": must not already exist as a path in volumeMounts"#,
        ],
    ),
];
