//! Rules for probes and hooks: what is wrong, in which words and in which order.

use crate::support::Part::Container;
use crate::support::{Case, check};

#[test]
fn probes_and_hooks_are_held_to_every_rule() {
    check(CASES);
}

const CASES: &[Case] = &[
    (
        "a probe of each kind is fine",
        Container,
        r#"{"livenessProbe": {"httpGet": {"port": 80}}, "readinessProbe": {"tcpSocket": {"port": "web"}}, "startupProbe": {"grpc": {"port": 80}}}"#,
        &[],
    ),
    (
        "a probe needs a way",
        Container,
        r#"{"livenessProbe": {}}"#,
        &["template.spec.containers[0].livenessProbe: Required value: must specify a handler type"],
    ),
    (
        "a probe has one way",
        Container,
        r#"{"livenessProbe": {"exec": {"command": ["a"]}, "httpGet": {"port": 80}, "tcpSocket": {"port": 80}, "grpc": {"port": 80}}}"#,
        &[
            "template.spec.containers[0].livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type",
            "template.spec.containers[0].livenessProbe.tcpSocket: Forbidden: may not specify more than 1 handler type",
            "template.spec.containers[0].livenessProbe.grpc: Forbidden: may not specify more than 1 handler type",
        ],
    ),
    (
        "a command is not empty",
        Container,
        r#"{"livenessProbe": {"exec": {}}}"#,
        &["template.spec.containers[0].livenessProbe.exec.command: Required value"],
    ),
    (
        "a request has a port, a scheme and headers",
        Container,
        r#"{"livenessProbe": {"httpGet": {"port": 0, "scheme": "FTP", "httpHeaders": [{"name": "a b", "value": "x"}, {"name": "X-A", "value": "x"}, {"name": "", "value": "x"}]}}, "readinessProbe": {"httpGet": {"port": "Web"}}}"#,
        &[
            "template.spec.containers[0].livenessProbe.httpGet.port: Invalid value: 0: must be between 1 and 65535, inclusive",
            r#"template.spec.containers[0].livenessProbe.httpGet.scheme: Unsupported value: "FTP": supported values: "HTTP", "HTTPS""#,
            r#"template.spec.containers[0].livenessProbe.httpGet.httpHeaders: Invalid value: "a b": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"#,
            r#"template.spec.containers[0].livenessProbe.httpGet.httpHeaders: Invalid value: "": a valid HTTP header must consist of alphanumeric characters or '-' (e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"#,
            r#"template.spec.containers[0].readinessProbe.httpGet.port: Invalid value: "Web": must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"#,
        ],
    ),
    (
        "a socket has a port",
        Container,
        r#"{"livenessProbe": {"tcpSocket": {"port": 70000}}, "readinessProbe": {"grpc": {"port": 0}}}"#,
        &[
            "template.spec.containers[0].livenessProbe.tcpSocket.port: Invalid value: 70000: must be between 1 and 65535, inclusive",
            "template.spec.containers[0].readinessProbe.grpc.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ],
    ),
    (
        "numbers of a probe are not negative",
        Container,
        r#"{"readinessProbe": {"exec": {"command": ["true"]}, "initialDelaySeconds": -1, "timeoutSeconds": -1, "periodSeconds": -1, "successThreshold": -1, "failureThreshold": -1}}"#,
        &[
            "template.spec.containers[0].readinessProbe.initialDelaySeconds: Invalid value: -1: must be greater than or equal to 0",
            "template.spec.containers[0].readinessProbe.timeoutSeconds: Invalid value: -1: must be greater than or equal to 0",
            "template.spec.containers[0].readinessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
            "template.spec.containers[0].readinessProbe.successThreshold: Invalid value: -1: must be greater than or equal to 0",
            "template.spec.containers[0].readinessProbe.failureThreshold: Invalid value: -1: must be greater than or equal to 0",
        ],
    ),
    (
        "a probe that ends a container is content with one success",
        Container,
        r#"{"livenessProbe": {"exec": {"command": ["true"]}, "successThreshold": 2}, "startupProbe": {"exec": {"command": ["true"]}, "successThreshold": 2}, "readinessProbe": {"exec": {"command": ["true"]}, "successThreshold": 2}}"#,
        &[
            "template.spec.containers[0].livenessProbe.successThreshold: Invalid value: 2: must be 1",
            "template.spec.containers[0].startupProbe.successThreshold: Invalid value: 2: must be 1",
        ],
    ),
    (
        "a grace period of a probe is positive and not for readiness",
        Container,
        r#"{"livenessProbe": {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 0}, "readinessProbe": {"exec": {"command": ["true"]}, "terminationGracePeriodSeconds": 5}}"#,
        &[
            "template.spec.containers[0].livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
            "template.spec.containers[0].readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes",
        ],
    ),
    (
        "a hook needs one way",
        Container,
        r#"{"lifecycle": {"postStart": {}, "preStop": {"exec": {"command": ["a"]}, "sleep": {"seconds": 1}}}}"#,
        &[
            "template.spec.containers[0].lifecycle.postStart: Required value: must specify a handler type",
            "template.spec.containers[0].lifecycle.preStop.sleep: Forbidden: may not specify more than 1 handler type",
        ],
    ),
    (
        "a hook sleeps within the grace period",
        Container,
        r#"{"lifecycle": {"postStart": {"sleep": {"seconds": -1}}, "preStop": {"sleep": {"seconds": 31}}}}"#,
        &[
            "template.spec.containers[0].lifecycle.postStart.sleep: Invalid value: -1: must be non-negative and less than terminationGracePeriodSeconds (30)",
            "template.spec.containers[0].lifecycle.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)",
        ],
    ),
    (
        "a hook makes a request",
        Container,
        r#"{"lifecycle": {"postStart": {"httpGet": {"port": 80}}, "preStop": {"tcpSocket": {"port": 0}}}}"#,
        &[
            "template.spec.containers[0].lifecycle.preStop.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive",
        ],
    ),
];
