//! Rules for volumes: what is wrong, in which words and in which order.

use crate::support::Part::Spec;
use crate::support::{Case, check};

#[test]
fn volumes_are_held_to_every_rule() {
    check(CASES);
}

const CASES: &[Case] = &[
    ("a volume without a source is an emptyDir", Spec, r#"{"volumes": [{"name": "v"}]}"#, &[]),
    (
        "a volume needs a name",
        Spec,
        r#"{"volumes": [{"name": "", "emptyDir": {}}]}"#,
        &["template.spec.volumes[0].name: Required value"],
    ),
    (
        "a name of a volume is a DNS label",
        Spec,
        r#"{"volumes": [{"name": "A", "emptyDir": {}}]}"#,
        &[
            r#"template.spec.volumes[0].name: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#,
        ],
    ),
    (
        "names of volumes are unique",
        Spec,
        r#"{"volumes": [{"name": "v", "emptyDir": {}}, {"name": "v", "emptyDir": {}}]}"#,
        &[r#"template.spec.volumes[1].name: Duplicate value: "v""#],
    ),
    (
        "a limit of a size is not negative",
        Spec,
        r#"{"volumes": [{"name": "v", "emptyDir": {"sizeLimit": "-1"}}, {"name": "w", "emptyDir": {"sizeLimit": "1Gi"}}]}"#,
        &[
            "template.spec.volumes[0].emptyDir.sizeLimit: Forbidden: SizeLimit field must be a valid resource quantity",
        ],
    ),
    (
        "a volume has one source",
        Spec,
        r#"{"volumes": [{"name": "v", "emptyDir": {}, "hostPath": {"path": "/x"}, "gitRepo": {"repository": "r"}, "downwardAPI": {}, "cephfs": {"monitors": ["m"]}, "image": {"reference": "i"}}]}"#,
        &[
            "template.spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
            "template.spec.volumes[0].gitRepo: Forbidden: may not specify more than 1 volume type",
            "template.spec.volumes[0].cephFS: Forbidden: may not specify more than 1 volume type",
            "template.spec.volumes[0].downwarAPI: Forbidden: may not specify more than 1 volume type",
            "template.spec.volumes[0].image: Forbidden: may not specify more than 1 volume type",
        ],
    ),
    (
        "a path of the host is given and goes down",
        Spec,
        r#"{"volumes": [{"name": "a", "hostPath": {"path": ""}}, {"name": "b", "hostPath": {"path": "/x/../y"}}]}"#,
        &[
            "template.spec.volumes[0].hostPath.path: Required value",
            r#"template.spec.volumes[1].hostPath.path: Invalid value: "/x/../y": must not contain '..'"#,
        ],
    ),
    (
        "a type of a path of the host is known",
        Spec,
        r#"{"volumes": [{"name": "a", "hostPath": {"path": "/x", "type": "Pipe"}}, {"name": "b", "hostPath": {"path": "/x", "type": "Directory"}}]}"#,
        &[
            r#"template.spec.volumes[0].hostPath.type: Unsupported value: "Pipe": supported values: "", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket""#,
        ],
    ),
    (
        "a share of NFS has a server and an absolute path",
        Spec,
        r#"{"volumes": [{"name": "a", "nfs": {"server": "", "path": ""}}, {"name": "b", "nfs": {"server": "s", "path": "x"}}]}"#,
        &[
            "template.spec.volumes[0].nfs.server: Required value",
            "template.spec.volumes[0].nfs.path: Required value",
            r#"template.spec.volumes[0].nfs.path: Invalid value: "": must be an absolute path"#,
            r#"template.spec.volumes[1].nfs.path: Invalid value: "x": must be an absolute path"#,
        ],
    ),
    (
        "a claim has a name",
        Spec,
        r#"{"volumes": [{"name": "a", "persistentVolumeClaim": {"claimName": ""}}]}"#,
        &["template.spec.volumes[0].persistentVolumeClaim.claimName: Required value"],
    ),
    (
        "a Secret has a name, a mode and items",
        Spec,
        r#"{"volumes": [{"name": "a", "secret": {"secretName": "", "defaultMode": 512}}, {"name": "b", "secret": {"secretName": "s", "defaultMode": -1, "items": [{"key": "", "path": ""}, {"key": "k", "path": "/a", "mode": 1000}, {"key": "k", "path": "../b"}, {"key": "k", "path": "..b"}]}}]}"#,
        &[
            "template.spec.volumes[0].secret.secretName: Required value",
            "template.spec.volumes[0].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            "template.spec.volumes[1].secret.defaultMode: Invalid value: -1: must be a number between 0 and 0777 (octal), both inclusive",
            "template.spec.volumes[1].secret.items[0].key: Required value",
            "template.spec.volumes[1].secret.items[0].path: Required value",
            r#"template.spec.volumes[1].secret.items[1].path: Invalid value: "/a": must be a relative path"#,
            "template.spec.volumes[1].secret.items[1].mode: Invalid value: 1000: must be a number between 0 and 0777 (octal), both inclusive",
            r#"template.spec.volumes[1].secret.items[2].path: Invalid value: "../b": must not contain '..'"#,
            r#"template.spec.volumes[1].secret.items[3].path: Invalid value: "..b": must not start with '..'"#,
        ],
    ),
    (
        "a ConfigMap has a name, a mode and items",
        Spec,
        r#"{"volumes": [{"name": "a", "configMap": {"name": "", "defaultMode": 512}}, {"name": "b", "configMap": {"name": "s", "items": [{"key": "", "path": "a"}]}}]}"#,
        &[
            "template.spec.volumes[0].configMap.name: Required value",
            "template.spec.volumes[0].configMap.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            "template.spec.volumes[1].configMap.items[0].key: Required value",
        ],
    ),
    (
        "a file of the downward API has a path and one source",
        Spec,
        r#"{"volumes": [{"name": "a", "downwardAPI": {"defaultMode": 512, "items": [{"path": ""}, {"path": "a", "fieldRef": {"fieldPath": "metadata.name"}, "resourceFieldRef": {"resource": "limits.cpu", "containerName": "a"}}, {"path": "b", "resourceFieldRef": {"resource": "limits.cpu"}}, {"path": "c", "fieldRef": {"fieldPath": "status.podIP"}}, {"path": "/d", "mode": 512, "fieldRef": {"fieldPath": "metadata.labels['a']"}}, {"path": "e", "resourceFieldRef": {"resource": "limits.cpu", "containerName": "a"}}]}}]}"#,
        &[
            "template.spec.volumes[0].downwardAPI.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            "template.spec.volumes[0].downwardAPI.path: Required value",
            "template.spec.volumes[0].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
            r#"template.spec.volumes[0].downwardAPI: Invalid value: "resource": fieldRef and resourceFieldRef can not be specified simultaneously"#,
            "template.spec.volumes[0].downwardAPI.resourceFieldRef.containerName: Required value",
            r#"template.spec.volumes[0].downwardAPI.fieldRef.fieldPath: Unsupported value: "status.podIP": supported values: "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid""#,
            r#"template.spec.volumes[0].downwardAPI.path: Invalid value: "/d": must be a relative path"#,
            "template.spec.volumes[0].downwardAPI.mode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
        ],
    ),
    (
        "a projection has one source at a time",
        Spec,
        r#"{"volumes": [{"name": "a", "projected": {"defaultMode": 512, "sources": [{"secret": {"name": "s"}, "configMap": {"name": "c"}}, {"downwardAPI": {}, "serviceAccountToken": {"path": "t"}}]}}]}"#,
        &[
            "template.spec.volumes[0].projected.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive",
            "template.spec.volumes[0].projected.sources[0]: Forbidden: may not specify more than 1 volume type per source",
            "template.spec.volumes[0].projected.sources[1]: Forbidden: may not specify more than 1 volume type per source",
        ],
    ),
    (
        "sources of a projection have names and files",
        Spec,
        r#"{"volumes": [{"name": "a", "projected": {"sources": [{"secret": {"name": "", "items": [{"key": "", "path": "x"}]}}, {"configMap": {"name": "", "items": [{"key": "k", "path": ""}]}}, {"downwardAPI": {"items": [{"path": "z"}]}}]}}]}"#,
        &[
            "template.spec.volumes[0].projected.sources[0].secret.name: Required value",
            "template.spec.volumes[0].projected.sources[0].secret.items[0].key: Required value",
            "template.spec.volumes[0].projected.sources[1].configMap.name: Required value",
            "template.spec.volumes[0].projected.sources[1].configMap.items[0].path: Required value",
            "template.spec.volumes[0].projected.sources[2].downwardAPI: Required value: one of fieldRef and resourceFieldRef is required",
        ],
    ),
    (
        "files of a projection are unique",
        Spec,
        r#"{"volumes": [{"name": "a", "projected": {"sources": [{"secret": {"name": "s", "items": [{"key": "k", "path": "x"}, {"key": "k", "path": "x"}]}}, {"configMap": {"name": "c", "items": [{"key": "k", "path": "x"}]}}, {"downwardAPI": {"items": [{"path": "x", "fieldRef": {"fieldPath": "metadata.name"}}]}}]}}]}"#,
        &[
            r#"template.spec.volumes[0].projected: Invalid value: "s": conflicting duplicate paths"#,
            r#"template.spec.volumes[0].projected: Invalid value: "c": conflicting duplicate paths"#,
            r#"template.spec.volumes[0].projected: Invalid value: "x": conflicting duplicate paths"#,
        ],
    ),
    (
        "a token lasts ten minutes to 2^32 seconds and has a path",
        Spec,
        r#"{"volumes": [{"name": "a", "projected": {"sources": [{"serviceAccountToken": {"path": "", "expirationSeconds": 599}}, {"serviceAccountToken": {"path": "../x", "expirationSeconds": 4294967297}}]}}]}"#,
        &[
            "template.spec.volumes[0].projected.sources[0].serviceAccountToken.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
            "template.spec.volumes[0].projected.path: Required value",
            "template.spec.volumes[0].projected.sources[1].serviceAccountToken.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
            r#"template.spec.volumes[0].projected.path: Invalid value: "../x": must not contain '..'"#,
        ],
    ),
    (
        "an ephemeral volume has a template",
        Spec,
        r#"{"volumes": [{"name": "a", "ephemeral": {}}]}"#,
        &["template.spec.volumes[0].ephemeral.volumeClaimTemplate: Required value"],
    ),
    (
        "an image has a known pull policy, and in a template no name yet",
        Spec,
        r#"{"volumes": [{"name": "a", "image": {"pullPolicy": "Perhaps"}}]}"#,
        &[
            r#"template.spec.volumes[0].image.pullPolicy: Unsupported value: "Perhaps": supported values: "Always", "IfNotPresent", "Never""#,
        ],
    ),
    (
        "a source of an old driver is taken as it is",
        Spec,
        r#"{"volumes": [{"name": "gcepersistentdisk", "gcePersistentDisk": {"pdName": "p"}}, {"name": "awselasticblockstore", "awsElasticBlockStore": {"volumeID": "v"}}, {"name": "cinder", "cinder": {"volumeID": "v"}}, {"name": "portworxvolume", "portworxVolume": {"volumeID": "v"}}, {"name": "csi", "csi": {"driver": "d"}}, {"name": "vspherevolume", "vsphereVolume": {"volumePath": "p"}}, {"name": "photonpersistentdisk", "photonPersistentDisk": {"pdID": "p"}}]}"#,
        &[],
    ),
];
