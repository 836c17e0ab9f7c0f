//! Rules for the environment of containers: what is wrong, in which words and in which order.

use crate::support::Part::{Container, Spec};
use crate::support::{Case, check};

#[test]
fn environments_are_held_to_every_rule() {
    check(CASES);
}

const CASES: &[Case] = &[
    (
        "a variable needs a name",
        Container,
        r#"{"env": [{"name": "", "value": "x"}]}"#,
        &["template.spec.containers[0].env[0].name: Required value"],
    ),
    (
        "a name of a variable is printable and without =",
        Container,
        r#"{"env": [{"name": "a=b"}, {"name": "ä"}, {"name": "a\tb"}, {"name": "any 1-thing.else"}]}"#,
        &[
            r#"template.spec.containers[0].env[0].name: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='"#,
            r#"template.spec.containers[0].env[1].name: Invalid value: "ä": a valid environment variable name must consist only of printable ASCII characters other than '='"#,
            r#"template.spec.containers[0].env[2].name: Invalid value: "a\tb": a valid environment variable name must consist only of printable ASCII characters other than '='"#,
        ],
    ),
    (
        "a variable comes from exactly one source",
        Container,
        r#"{"env": [{"name": "a", "valueFrom": {}}, {"name": "b", "value": "x", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}, {"name": "c", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}, "resourceFieldRef": {"resource": "limits.cpu"}}}]}"#,
        &[
            r#"template.spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"#,
            r#"template.spec.containers[0].env[1].valueFrom: Invalid value: "": may not be specified when `value` is not empty"#,
            r#"template.spec.containers[0].env[2].valueFrom: Invalid value: "": may not have more than one field specified at a time"#,
        ],
    ),
    (
        "a field must be named",
        Container,
        r#"{"env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": ""}}}]}"#,
        &["template.spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Required value"],
    ),
    (
        "a field is of version v1",
        Container,
        r#"{"env": [{"name": "a", "valueFrom": {"fieldRef": {"apiVersion": "v2", "fieldPath": "metadata.name"}}}]}"#,
        &[
            r#"template.spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name": error converting fieldPath: unsupported pod version: v2"#,
        ],
    ),
    (
        "a field must be known",
        Container,
        r#"{"env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.colour"}}}, {"name": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels"}}}, {"name": "c", "valueFrom": {"fieldRef": {"fieldPath": "spec.host"}}}, {"name": "d", "valueFrom": {"fieldRef": {"fieldPath": "['x']"}}}]}"#,
        &[
            r#"template.spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.colour": error converting fieldPath: field label not supported: metadata.colour"#,
            r#"template.spec.containers[0].env[1].valueFrom.fieldRef.fieldPath: Unsupported value: "metadata.labels": supported values: "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName", "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs""#,
            r#"template.spec.containers[0].env[3].valueFrom.fieldRef.fieldPath: Invalid value: "['x']": error converting fieldPath: field label not supported: ['x']"#,
        ],
    ),
    (
        "only labels and annotations have keys",
        Container,
        r#"{"env": [{"name": "a", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name['x']"}}}, {"name": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['x/Y']"}}}, {"name": "c", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['x/Y']"}}}]}"#,
        &[
            r#"template.spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "metadata.name['x']": error converting fieldPath: field label does not support subscript: metadata.name['x']"#,
        ],
    ),
    (
        "keys of labels and annotations are qualified names",
        Container,
        r#"{"env": [{"name": "b", "valueFrom": {"fieldRef": {"fieldPath": "metadata.labels['-x']"}}}, {"name": "c", "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['-X']"}}}]}"#,
        &[
            r#"template.spec.containers[0].env[0].valueFrom.fieldRef: Invalid value: "-x": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"template.spec.containers[0].env[1].valueFrom.fieldRef: Invalid value: "-x": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
    (
        "a resource must be named and known",
        Container,
        r#"{"env": [{"name": "a", "valueFrom": {"resourceFieldRef": {"resource": ""}}}, {"name": "b", "valueFrom": {"resourceFieldRef": {"resource": "limits.gpu"}}}, {"name": "c", "valueFrom": {"resourceFieldRef": {"resource": "limits.hugepages-2Mi"}}}]}"#,
        &[
            "template.spec.containers[0].env[0].valueFrom.resourceFieldRef.resource: Required value",
            r#"template.spec.containers[0].env[1].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.gpu": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory""#,
        ],
    ),
    (
        "a divisor fits its resource",
        Container,
        r#"{"env": [{"name": "a", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "1m"}}}, {"name": "b", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu", "divisor": "2"}}}, {"name": "c", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "1Mi"}}}, {"name": "d", "valueFrom": {"resourceFieldRef": {"resource": "requests.memory", "divisor": "2Mi"}}}, {"name": "e", "valueFrom": {"resourceFieldRef": {"resource": "limits.ephemeral-storage", "divisor": "3"}}}, {"name": "f", "valueFrom": {"resourceFieldRef": {"resource": "requests.hugepages-2Mi", "divisor": "5"}}}, {"name": "g", "valueFrom": {"resourceFieldRef": {"resource": "limits.gpu", "divisor": "7"}}}]}"#,
        &[
            r#"template.spec.containers[0].env[1].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.cpu": only divisor's values 1m and 1 are supported with the cpu resource"#,
            r#"template.spec.containers[0].env[3].valueFrom.resourceFieldRef.divisor: Invalid value: "requests.memory": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource"#,
            r#"template.spec.containers[0].env[4].valueFrom.resourceFieldRef.divisor: Invalid value: "limits.ephemeral-storage": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource"#,
            r#"template.spec.containers[0].env[5].valueFrom.resourceFieldRef.divisor: Invalid value: "requests.hugepages-2Mi": only divisor's values 1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the hugepages resource"#,
            r#"template.spec.containers[0].env[6].valueFrom.resourceFieldRef.resource: Unsupported value: "limits.gpu": supported values: "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu", "requests.ephemeral-storage", "requests.memory""#,
        ],
    ),
    (
        "a key of a ConfigMap or a Secret has a name",
        Container,
        r#"{"env": [{"name": "a", "valueFrom": {"configMapKeyRef": {"name": "A", "key": ""}}}, {"name": "b", "valueFrom": {"secretKeyRef": {"name": "", "key": "k"}}}]}"#,
        &[
            r#"template.spec.containers[0].env[0].valueFrom.configMapKeyRef.name: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
            "template.spec.containers[0].env[0].valueFrom.configMapKeyRef.key: Required value",
            r#"template.spec.containers[0].env[1].valueFrom.secretKeyRef.name: Invalid value: "": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        "a key has few characters and is no step up",
        Container,
        r#"{"env": [{"name": "a", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "a b"}}}, {"name": "a", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "."}}}, {"name": "a", "valueFrom": {"configMapKeyRef": {"name": "a", "key": ".."}}}, {"name": "a", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "..x"}}}, {"name": "a", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "<a254>"}}}]}"#,
        &[
            r#"template.spec.containers[0].env[0].valueFrom.configMapKeyRef.key: Invalid value: "a b": a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"#,
            r#"template.spec.containers[0].env[1].valueFrom.configMapKeyRef.key: Invalid value: ".": must not be '.'"#,
            r#"template.spec.containers[0].env[2].valueFrom.configMapKeyRef.key: Invalid value: "..": must not be '..'"#,
            r#"template.spec.containers[0].env[3].valueFrom.configMapKeyRef.key: Invalid value: "..x": must not start with '..'"#,
            r#"template.spec.containers[0].env[4].valueFrom.configMapKeyRef.key: Invalid value: "<a254>": must be no more than 253 characters"#,
        ],
    ),
    (
        "a file of variables is on an emptyDir",
        Spec,
        r#"{"volumes": [{"name": "e", "emptyDir": {}}, {"name": "h", "hostPath": {"path": "/x"}}], "containers": [{"name": "a", "image": "i", "env": [{"name": "a", "valueFrom": {"fileKeyRef": {"volumeName": "e", "path": "p", "key": "k"}}}, {"name": "a", "valueFrom": {"fileKeyRef": {"volumeName": "h", "path": "p", "key": "k"}}}, {"name": "a", "valueFrom": {"fileKeyRef": {"volumeName": "n", "path": "p", "key": "k"}}}]}]}"#,
        &[
            r#"template.spec.containers[0].env[1].valueFrom.fileKeyRef.volumeName: Invalid value: "h": referenced volume must be of type emptyDir"#,
            r#"template.spec.containers[0].env[2].valueFrom.fileKeyRef.volumeName: Not found: "n""#,
        ],
    ),
    (
        "a file of variables has a key, a volume and a path",
        Container,
        r#"{"env": [{"name": "a", "valueFrom": {"fileKeyRef": {"volumeName": "", "path": "", "key": ""}}}, {"name": "b", "valueFrom": {"fileKeyRef": {"volumeName": "A", "path": "../x", "key": "a=b"}}}]}"#,
        &[
            "template.spec.containers[0].env[0].valueFrom.fileKeyRef.key: Required value",
            "template.spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Required value",
            "template.spec.containers[0].env[0].valueFrom.fileKeyRef.path: Required value",
            r#"template.spec.containers[0].env[1].valueFrom.fileKeyRef.key: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='"#,
            r#"template.spec.containers[0].env[1].valueFrom.fileKeyRef.volumeName: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#,
            r#"template.spec.containers[0].env[1].valueFrom.fileKeyRef.path: Invalid value: "../x": must not contain '..'"#,
            r#"template.spec.containers[0].env[0].valueFrom.fileKeyRef.volumeName: Not found: """#,
            r#"template.spec.containers[0].env[1].valueFrom.fileKeyRef.volumeName: Not found: "A""#,
        ],
    ),
    (
        "a set of variables comes from exactly one source",
        Container,
        r#"{"envFrom": [{}, {"configMapRef": {"name": "a"}, "secretRef": {"name": "b"}}]}"#,
        &[
            r#"template.spec.containers[0].envFrom: Invalid value: "": must specify one of: `configMapRef` or `secretRef`"#,
            r#"template.spec.containers[0].envFrom: Invalid value: "": may not have more than one field specified at a time"#,
        ],
    ),
    (
        "a source of a set of variables has a name",
        Container,
        r#"{"envFrom": [{"configMapRef": {"name": ""}}, {"secretRef": {"name": "B"}}, {"secretRef": {"name": "b-"}}, {"configMapRef": {"name": "a"}, "prefix": "a=b"}, {"configMapRef": {"name": "a"}, "prefix": "P_"}]}"#,
        &[
            "template.spec.containers[0].envFrom[0].configMapRef.name: Required value",
            r#"template.spec.containers[0].envFrom[1].secretRef.name: Invalid value: "B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
            r#"template.spec.containers[0].envFrom[3].prefix: Invalid value: "a=b": a valid environment variable name must consist only of printable ASCII characters other than '='"#,
        ],
    ),
];
