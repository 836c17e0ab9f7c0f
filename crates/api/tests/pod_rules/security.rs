//! Rules for security: what is wrong, in which words and in which order.

use crate::support::Part::{Container, Spec};
use crate::support::{Case, check};

#[test]
fn security_is_held_to_every_rule() {
    check(CASES);
}

const CASES: &[Case] = &[
    (
        "identities of containers are not negative",
        Container,
        r#"{"securityContext": {"runAsUser": -1, "runAsGroup": 2147483648}}"#,
        &[
            "template.spec.containers[0].securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "template.spec.containers[0].securityContext.runAsGroup: Invalid value: 2147483648: must be between 0 and 2147483647, inclusive",
        ],
    ),
    (
        "identities of pods are not negative",
        Spec,
        r#"{"securityContext": {"fsGroup": -1, "runAsUser": -1, "runAsGroup": -1, "supplementalGroups": [1, -1]}}"#,
        &[
            "template.spec.securityContext.fsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "template.spec.securityContext.runAsUser: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "template.spec.securityContext.runAsGroup: Invalid value: -1: must be between 0 and 2147483647, inclusive",
            "template.spec.securityContext.supplementalGroups[1]: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ],
    ),
    (
        "a mount of /proc is one of two",
        Container,
        r#"{"securityContext": {"procMount": "Open"}}"#,
        &[
            r#"template.spec.containers[0].securityContext.procMount: Unsupported value: "Open": supported values: "Default", "Unmasked""#,
        ],
    ),
    (
        "an unmasked /proc needs users of its own",
        Container,
        r#"{"securityContext": {"procMount": "Unmasked"}}"#,
        &[
            r#"template.spec.containers[0].securityContext.procMount: Invalid value: "Unmasked": `hostUsers` must be false to use `Unmasked`"#,
        ],
    ),
    ("a privileged container escalates", Container, r#"{"securityContext": {"privileged": true}}"#, &[]),
    (
        "a seccomp profile has a known type",
        Container,
        r#"{"securityContext": {"seccompProfile": {"type": "Mine"}}}"#,
        &[
            r#"template.spec.containers[0].securityContext.seccompProfile.type: Unsupported value: "Mine": supported values: "Localhost", "RuntimeDefault", "Unconfined""#,
        ],
    ),
    (
        "a seccomp profile has a type",
        Container,
        r#"{"securityContext": {"seccompProfile": {"type": ""}}}"#,
        &[
            "template.spec.containers[0].securityContext.seccompProfile.type: Required value: type is required when seccompProfile is set",
        ],
    ),
    (
        "a seccomp profile of this host has a file",
        Container,
        r#"{"securityContext": {"seccompProfile": {"type": "Localhost"}}}"#,
        &[
            "template.spec.containers[0].securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
        ],
    ),
    (
        "a file of a seccomp profile goes down",
        Container,
        r#"{"securityContext": {"seccompProfile": {"type": "Localhost", "localhostProfile": "/a/../b"}}}"#,
        &[
            r#"template.spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: "/a/../b": must be a relative path"#,
            r#"template.spec.containers[0].securityContext.seccompProfile.localhostProfile: Invalid value: "/a/../b": must not contain '..'"#,
        ],
    ),
    (
        "an AppArmor profile has a known type",
        Container,
        r#"{"securityContext": {"appArmorProfile": {"type": "Mine"}}}"#,
        &[
            r#"template.spec.containers[0].securityContext.appArmorProfile.type: Unsupported value: "Mine": supported values: "Localhost", "RuntimeDefault", "Unconfined""#,
        ],
    ),
    (
        "an AppArmor profile has a type",
        Container,
        r#"{"securityContext": {"appArmorProfile": {"type": ""}}}"#,
        &[
            "template.spec.containers[0].securityContext.appArmorProfile.type: Required value: type is required when appArmorProfile is set",
        ],
    ),
    (
        "an AppArmor profile of this host has a name",
        Container,
        r#"{"securityContext": {"appArmorProfile": {"type": "Localhost"}}}"#,
        &[
            "template.spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost",
        ],
    ),
    (
        "a name of an AppArmor profile is not empty",
        Container,
        r#"{"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": ""}}}"#,
        &[
            "template.spec.containers[0].securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost",
        ],
    ),
    (
        "a name of an AppArmor profile has no blanks around",
        Container,
        r#"{"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": " a"}}}"#,
        &[
            r#"template.spec.containers[0].securityContext.appArmorProfile.localhostProfile: Invalid value: " a": must not be padded with whitespace"#,
        ],
    ),
    (
        "a name of an AppArmor profile has a limit",
        Container,
        r#"{"securityContext": {"appArmorProfile": {"type": "Localhost", "localhostProfile": "<a4096>"}}}"#,
        &[
            "template.spec.containers[0].securityContext.appArmorProfile.localhostProfile: Too long: may not be more than 4095 bytes",
        ],
    ),
    (
        "an AppArmor profile of the runtime has no name",
        Container,
        r#"{"securityContext": {"appArmorProfile": {"type": "RuntimeDefault", "localhostProfile": "a"}}}"#,
        &[
            r#"template.spec.containers[0].securityContext.appArmorProfile.localhostProfile: Invalid value: "a": can only be set when AppArmor type is Localhost"#,
        ],
    ),
    (
        "profiles of the runtime are fine",
        Container,
        r#"{"securityContext": {"appArmorProfile": {"type": "RuntimeDefault"}, "seccompProfile": {"type": "RuntimeDefault"}}}"#,
        &[],
    ),
    (
        "profiles of a pod have the same rules",
        Spec,
        r#"{"securityContext": {"seccompProfile": {"type": "Localhost"}, "appArmorProfile": {"type": "Localhost"}}}"#,
        &[
            "template.spec.securityContext.seccompProfile.localhostProfile: Required value: must be set when seccomp type is Localhost",
            "template.spec.securityContext.appArmorProfile.localhostProfile: Required value: must be set when AppArmor type is Localhost",
        ],
    ),
    (
        "policies of a pod are known",
        Spec,
        r#"{"securityContext": {"fsGroupChangePolicy": "a", "supplementalGroupsPolicy": "b", "seLinuxChangePolicy": "c"}}"#,
        &[
            r#"template.spec.securityContext.fsGroupChangePolicy: Unsupported value: "a": supported values: "Always", "OnRootMismatch""#,
            r#"template.spec.securityContext.supplementalGroupsPolicy: Unsupported value: "b": supported values: "Merge", "Strict""#,
            r#"template.spec.securityContext.seLinuxChangePolicy: Unsupported value: "c": supported values: "Recursive""#,
        ],
    ),
    (
        "policies of a pod are fine",
        Spec,
        r#"{"securityContext": {"fsGroupChangePolicy": "Always", "supplementalGroupsPolicy": "Strict", "seLinuxChangePolicy": "Recursive"}}"#,
        &[],
    ),
    (
        "a sysctl has a name, once",
        Spec,
        r#"{"securityContext": {"sysctls": [{"name": "", "value": "1"}, {"name": "A", "value": "1"}, {"name": "kernel/sem", "value": "1"}, {"name": "net.a", "value": "1"}, {"name": "net.a", "value": "1"}, {"name": "_a", "value": "1"}, {"name": "<a254>", "value": "1"}]}}"#,
        &[
            "template.spec.securityContext.sysctls[0].name: Required value",
            r#"template.spec.securityContext.sysctls[1].name: Invalid value: "A": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"#,
            r#"template.spec.securityContext.sysctls[4].name: Duplicate value: "net.a""#,
            r#"template.spec.securityContext.sysctls[5].name: Invalid value: "_a": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"#,
            r#"template.spec.securityContext.sysctls[6].name: Invalid value: "<a254>": must have at most 253 characters and match regex ^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$"#,
        ],
    ),
    (
        "a sysctl of a namespace is not set in that of the host",
        Spec,
        r#"{"securityContext": {"sysctls": [{"name": "net.a", "value": "1"}, {"name": "kernel/sem", "value": "1"}, {"name": "fs.mqueue.a", "value": "1"}, {"name": "vm.a", "value": "1"}]}, "hostNetwork": true, "hostIPC": true}"#,
        &[
            r#"template.spec.securityContext.sysctls[0].name: Invalid value: "net.a": may not be specified when 'hostNetwork' is true"#,
            r#"template.spec.securityContext.sysctls[1].name: Invalid value: "kernel/sem": may not be specified when 'hostIPC' is true"#,
            r#"template.spec.securityContext.sysctls[2].name: Invalid value: "fs.mqueue.a": may not be specified when 'hostIPC' is true"#,
        ],
    ),
    (
        "processes are shared within the pod or with the host",
        Spec,
        r#"{"securityContext": {}, "hostPID": true, "shareProcessNamespace": true}"#,
        &[
            "template.spec.securityContext.shareProcessNamespace: Invalid value: true: ShareProcessNamespace and HostPID cannot both be enabled",
        ],
    ),
    (
        "users of its own share no namespace of the host",
        Spec,
        r#"{"hostUsers": false, "hostNetwork": true, "hostPID": true, "hostIPC": true}"#,
        &[
            "template.spec.hostNetwork: Forbidden: when `hostUsers` is false",
            "template.spec.HostPID: Forbidden: when `hostUsers` is false",
            "template.spec.HostIPC: Forbidden: when `hostUsers` is false",
        ],
    ),
    (
        "users of its own have no devices",
        Spec,
        r#"{"volumes": [{"name": "v"}, {"name": "p", "persistentVolumeClaim": {"claimName": "c"}}, {"name": "e", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}], "containers": [{"name": "a", "image": "i", "volumeMounts": [], "volumeDevices": [{"name": "p", "devicePath": "/x"}]}], "hostUsers": false}"#,
        &["template.spec.containers[0].volumeDevices: Forbidden: when `hostUsers` is false"],
    ),
    (
        "users of its own may unmask /proc",
        Spec,
        r#"{"hostUsers": false, "containers": [{"name": "a", "image": "i", "securityContext": {"procMount": "Unmasked"}}]}"#,
        &[],
    ),
];
