//! Rules for containers: what is wrong, in which words and in which order.

use crate::support::Part::{Container, Spec};
use crate::support::{Case, check};

#[test]
fn containers_are_held_to_every_rule() {
    check(CASES);
}

const CASES: &[Case] = &[
    ("a plain container is fine", Container, "{}", &[]),
    (
        "a template needs a container",
        Spec,
        r#"{"containers": []}"#,
        &["template.spec.containers: Required value"],
    ),
    (
        "a container needs a name",
        Container,
        r#"{"name": ""}"#,
        &["template.spec.containers[0].name: Required value"],
    ),
    (
        "a name is a DNS label",
        Container,
        r#"{"name": "A_b"}"#,
        &[
            r#"template.spec.containers[0].name: Invalid value: "A_b": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#,
        ],
    ),
    (
        "a name has no dots",
        Container,
        r#"{"name": "a.b"}"#,
        &[r#"template.spec.containers[0].name: Invalid value: "a.b": must not contain dots"#],
    ),
    (
        "a name has at most 63 characters",
        Container,
        r#"{"name": "<a64>"}"#,
        &[r#"template.spec.containers[0].name: Invalid value: "<a64>": must be no more than 63 characters"#],
    ),
    (
        "a container needs an image",
        Container,
        r#"{"image": ""}"#,
        &["template.spec.containers[0].image: Required value"],
    ),
    (
        "the termination message policy is one of two",
        Container,
        r#"{"terminationMessagePolicy": "Both"}"#,
        &[
            r#"template.spec.containers[0].terminationMessagePolicy: Unsupported value: "Both": supported values: "File", "FallbackToLogsOnError""#,
        ],
    ),
    (
        "the pull policy is one of three",
        Container,
        r#"{"imagePullPolicy": "Sometimes"}"#,
        &[
            r#"template.spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: "Always", "IfNotPresent", "Never""#,
        ],
    ),
    (
        "names of containers are unique",
        Spec,
        r#"{"containers": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]}"#,
        &[r#"template.spec.containers[1].name: Duplicate value: "a""#],
    ),
    (
        "names of init containers are unique among all containers",
        Spec,
        r#"{"initContainers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}, {"name": "b", "image": "i"}, {"name": "", "image": "i"}, {"name": "", "image": "i"}]}"#,
        &[
            r#"template.spec.initContainers[0].name: Duplicate value: "a""#,
            r#"template.spec.initContainers[2].name: Duplicate value: "b""#,
            "template.spec.initContainers[3].name: Required value",
            "template.spec.initContainers[4].name: Required value",
        ],
    ),
    (
        "a port has a number from 1 to 65535",
        Container,
        r#"{"ports": [{"containerPort": 0}, {"containerPort": 65536}, {"containerPort": 80, "hostPort": 70000}]}"#,
        &[
            "template.spec.containers[0].ports[0].containerPort: Required value",
            "template.spec.containers[0].ports[1].containerPort: Invalid value: 65536: must be between 1 and 65535, inclusive",
            "template.spec.containers[0].ports[2].hostPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
        ],
    ),
    (
        "a protocol is one of three",
        Container,
        r#"{"ports": [{"containerPort": 80, "protocol": "HTTP"}]}"#,
        &[
            r#"template.spec.containers[0].ports[0].protocol: Unsupported value: "HTTP": supported values: "SCTP", "TCP", "UDP""#,
        ],
    ),
    (
        "names of ports are unique",
        Container,
        r#"{"ports": [{"containerPort": 80, "name": "web"}, {"containerPort": 81, "name": "web"}]}"#,
        &[r#"template.spec.containers[0].ports[1].name: Duplicate value: "web""#],
    ),
    (
        "a name of a port is short",
        Container,
        r#"{"ports": [{"containerPort": 80, "name": "abcdefghijklmnop"}]}"#,
        &[
            r#"template.spec.containers[0].ports[0].name: Invalid value: "abcdefghijklmnop": must be no more than 15 characters"#,
        ],
    ),
    (
        "a name of a port has few characters",
        Container,
        r#"{"ports": [{"containerPort": 80, "name": "Web"}, {"containerPort": 80, "name": "1-1"}, {"containerPort": 80, "name": "a--b"}, {"containerPort": 80, "name": "-a"}]}"#,
        &[
            r#"template.spec.containers[0].ports[0].name: Invalid value: "Web": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"#,
            r#"template.spec.containers[0].ports[1].name: Invalid value: "1-1": must contain at least one letter (a-z)"#,
            r#"template.spec.containers[0].ports[2].name: Invalid value: "a--b": must not contain consecutive hyphens"#,
            r#"template.spec.containers[0].ports[3].name: Invalid value: "-a": must not begin or end with a hyphen"#,
        ],
    ),
    (
        "ports of the host are unique among containers",
        Spec,
        r#"{"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 80, "protocol": "UDP"}]}, {"name": "b", "image": "i", "ports": [{"containerPort": 3, "hostPort": 80}, {"containerPort": 4, "hostPort": 80, "hostIP": "1.2.3.4"}]}]}"#,
        &[r#"template.spec.containers[1].ports[0].hostPort: Duplicate value: "TCP//80""#],
    ),
    (
        "ports of the host are unique within one init container",
        Spec,
        r#"{"initContainers": [{"name": "x", "image": "i", "ports": [{"containerPort": 1, "hostPort": 80}]}, {"name": "y", "image": "i", "ports": [{"containerPort": 1, "hostPort": 80}, {"containerPort": 2, "hostPort": 80}]}]}"#,
        &[r#"template.spec.initContainers[0].ports[1].hostPort: Duplicate value: "TCP//80""#],
    ),
    (
        "an init container has neither hooks nor probes",
        Spec,
        r#"{"initContainers": [{"name": "x", "image": "i", "lifecycle": {}, "livenessProbe": {"exec": {"command": ["true"]}}, "readinessProbe": {"exec": {"command": ["true"]}}, "startupProbe": {"exec": {"command": ["true"]}}}]}"#,
        &[
            "template.spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always",
            "template.spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            "template.spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
            "template.spec.initContainers[0].startupProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
        ],
    ),
    (
        "a sidecar has hooks and probes",
        Spec,
        r#"{"initContainers": [{"name": "x", "image": "i", "restartPolicy": "Always", "lifecycle": {"preStop": {"sleep": {"seconds": 1}}}, "livenessProbe": {"exec": {"command": ["true"]}}, "readinessProbe": {"exec": {"command": ["true"]}}, "startupProbe": {"exec": {"command": ["true"]}}}]}"#,
        &[],
    ),
    (
        "hooks and probes of a sidecar have rules",
        Spec,
        r#"{"initContainers": [{"name": "x", "image": "i", "restartPolicy": "Always", "lifecycle": {"preStop": {}}, "livenessProbe": {}}]}"#,
        &[
            "template.spec.initContainers[0].lifecycle.preStop: Required value: must specify a handler type",
            "template.spec.initContainers[0].livenessProbe: Required value: must specify a handler type",
        ],
    ),
    (
        "a restart policy of a container is one of three",
        Container,
        r#"{"restartPolicy": "Sometimes"}"#,
        &[
            r#"template.spec.containers[0].restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "Never", "OnFailure""#,
        ],
    ),
    (
        "restart rules need a restart policy",
        Container,
        r#"{"restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]}"#,
        &[
            "template.spec.containers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
        ],
    ),
    (
        "restart rules of an init container need a restart policy",
        Spec,
        r#"{"initContainers": [{"name": "x", "image": "i", "restartPolicyRules": [{"action": "Go"}]}]}"#,
        &[
            "template.spec.initContainers[0].restartPolicy: Required value: must specify restartPolicy when restart rules are used",
        ],
    ),
    (
        "an init container may have a restart policy of its own",
        Spec,
        r#"{"initContainers": [{"name": "x", "image": "i", "restartPolicy": "OnFailure"}, {"name": "y", "image": "i", "restartPolicy": "No"}]}"#,
        &[
            r#"template.spec.initContainers[1].restartPolicy: Unsupported value: "No": supported values: "Always", "Never", "OnFailure""#,
        ],
    ),
    (
        "a restart rule has a known action, exit codes and an operator",
        Container,
        r#"{"restartPolicy": "Never", "restartPolicyRules": [{"action": "Go"}, {"action": "RestartAllContainers", "exitCodes": {"operator": "Is", "values": [1]}}]}"#,
        &[
            r#"template.spec.containers[0].restartPolicyRules[0].action: Unsupported value: "Go": supported values: "Restart", "RestartAllContainers""#,
            "template.spec.containers[0].restartPolicyRules[0].exitCodes: Required value: must be specified",
            r#"template.spec.containers[0].restartPolicyRules[1].exitCodes.operator: Unsupported value: "Is": supported values: "In", "NotIn""#,
        ],
    ),
    (
        "restart rules are at most 20",
        Container,
        r#"{"restartPolicy": "Never", "restartPolicyRules": {"@times": 21, "@of": {"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}}}"#,
        &["template.spec.containers[0].restartPolicyRules: Too many: 21: must have at most 20 items"],
    ),
    (
        "exit codes of a restart rule are at most 255",
        Container,
        r#"{"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": {"@times": 256, "@of": 1}}}]}"#,
        &[
            "template.spec.containers[0].restartPolicyRules[0].exitCodes.values: Too many: 256: must have at most 255 items",
        ],
    ),
    (
        "resize policies are of known resources, once each",
        Container,
        r#"{"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "NotRequired"}, {"resourceName": "cpu", "restartPolicy": "NotRequired"}, {"resourceName": "disk", "restartPolicy": "Perhaps"}, {"resourceName": "", "restartPolicy": ""}]}"#,
        &[
            r#"template.spec.containers[0].resizePolicy[1]: Duplicate value: "cpu""#,
            r#"template.spec.containers[0].resizePolicy: Unsupported value: "disk": supported values: "cpu", "memory""#,
            r#"template.spec.containers[0].resizePolicy: Unsupported value: "Perhaps": supported values: "NotRequired", "RestartContainer""#,
            r#"template.spec.containers[0].resizePolicy: Invalid value: "Perhaps": must be 'NotRequired' when pod `restartPolicy` is 'Never'"#,
            "template.spec.containers[0].resizePolicy: Required value",
            "template.spec.containers[0].resizePolicy: Required value",
            r#"template.spec.containers[0].resizePolicy: Invalid value: "": must be 'NotRequired' when pod `restartPolicy` is 'Never'"#,
        ],
    ),
    (
        "a pod that never restarts resizes without a restart",
        Container,
        r#"{"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}"#,
        &[
            r#"template.spec.containers[0].resizePolicy: Invalid value: "RestartContainer": must be 'NotRequired' when pod `restartPolicy` is 'Never'"#,
        ],
    ),
    (
        "an init container resizes without a restart",
        Spec,
        r#"{"restartPolicy": "OnFailure", "initContainers": [{"name": "x", "image": "i", "resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]}]}"#,
        &[
            r#"template.spec.initContainers[0].resizePolicy[0].restartPolicy: Invalid value: "RestartContainer": must not be set to 'RestartContainer' for non-sidecar initContainers"#,
        ],
    ),
];
