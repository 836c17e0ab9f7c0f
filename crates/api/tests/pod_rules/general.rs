//! Rules for the pod as a whole: what is wrong, in which words and in which order.

use crate::support::Part::{Spec, Template};
use crate::support::{Case, check};

#[test]
fn templates_are_held_to_every_rule_of_their_own() {
    check(CASES);
}

const CASES: &[Case] = &[
    (
        "a restart policy is one of three",
        Spec,
        r#"{"restartPolicy": "Sometimes"}"#,
        &[
            r#"template.spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never""#,
        ],
    ),
    (
        "a DNS policy is one of four",
        Spec,
        r#"{"dnsPolicy": "Mine"}"#,
        &[
            r#"template.spec.dnsPolicy: Unsupported value: "Mine": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None""#,
        ],
    ),
    (
        "no DNS policy needs a configuration",
        Spec,
        r#"{"dnsPolicy": "None"}"#,
        &["template.spec.dnsConfig: Required value: must provide `dnsConfig` when `dnsPolicy` is None"],
    ),
    (
        "no DNS policy needs a server",
        Spec,
        r#"{"dnsPolicy": "None", "dnsConfig": {"searches": ["a"]}}"#,
        &[
            "template.spec.dnsConfig.nameservers: Required value: must provide at least one DNS nameserver when `dnsPolicy` is None",
        ],
    ),
    (
        "a DNS configuration is fine",
        Spec,
        r#"{"dnsConfig": {"nameservers": ["1.2.3.4", "::1"], "searches": [".", "a.b.", "_x._y_z.b"], "options": [{"name": "ndots", "value": "2"}]}}"#,
        &[],
    ),
    (
        "a DNS configuration has at most three servers, of proper addresses",
        Spec,
        r#"{"dnsConfig": {"nameservers": ["1.2.3.4", "01.2.3.4", "::ffff:1.2.3.4", "x"]}}"#,
        &[
            r#"template.spec.dnsConfig.nameservers: Invalid value: ["1.2.3.4","01.2.3.4","::ffff:1.2.3.4","x"]: must not have more than 3 nameservers"#,
            r#"template.spec.dnsConfig.nameservers[1]: Invalid value: "01.2.3.4": must not have leading 0s"#,
            r#"template.spec.dnsConfig.nameservers[2]: Invalid value: "::ffff:1.2.3.4": must not be an IPv4-mapped IPv6 address"#,
            r#"template.spec.dnsConfig.nameservers[3]: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
        ],
    ),
    (
        "a DNS configuration has proper searches and options",
        Spec,
        r#"{"dnsConfig": {"searches": ["A", "a_", "__a", "-a"], "options": [{"value": "2"}]}}"#,
        &[
            r#"template.spec.dnsConfig.searches[0]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"#,
            r#"template.spec.dnsConfig.searches[1]: Invalid value: "a_": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"#,
            r#"template.spec.dnsConfig.searches[2]: Invalid value: "__a": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"#,
            r#"template.spec.dnsConfig.searches[3]: Invalid value: "-a": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*')"#,
            "template.spec.dnsConfig.options[0]: Required value: must not be empty",
        ],
    ),
    (
        "a DNS configuration has at most 32 searches",
        Spec,
        r#"{"dnsConfig": {"searches": {"@times": 33, "@of": "a"}}}"#,
        &[
            r#"template.spec.dnsConfig.searches: Invalid value: ["a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a","a"]: must not have more than 32 search paths"#,
        ],
    ),
    (
        "searches have at most 2048 characters",
        Spec,
        r#"{"dnsConfig": {"searches": ["<a250>", "<a250>", "<a250>", "<a250>", "<a250>", "<a250>", "<a250>", "<a250>", "<a250>"]}}"#,
        &[
            r#"template.spec.dnsConfig.searches: Invalid value: ["<a250>","<a250>","<a250>","<a250>","<a250>","<a250>","<a250>","<a250>","<a250>"]: must not have more than 2048 characters (including spaces) in the search list"#,
        ],
    ),
    (
        "a search has at most 253 characters",
        Spec,
        r#"{"dnsConfig": {"searches": ["<a254>"]}}"#,
        &[
            r#"template.spec.dnsConfig.searches[0]: Invalid value: "<a254>": must be no more than 253 characters"#,
        ],
    ),
    (
        "a deadline is positive",
        Spec,
        r#"{"activeDeadlineSeconds": 0}"#,
        &[
            "template.spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive",
        ],
    ),
    (
        "a deadline is at most 2^31-1",
        Spec,
        r#"{"activeDeadlineSeconds": 2147483648}"#,
        &[
            "template.spec.activeDeadlineSeconds: Invalid value: 2147483648: must be between 1 and 2147483647, inclusive",
        ],
    ),
    (
        "names of the host are DNS labels",
        Spec,
        r#"{"hostname": "A", "subdomain": "b.c"}"#,
        &[
            r#"template.spec.hostname: Invalid value: "A": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#,
            r#"template.spec.subdomain: Invalid value: "b.c": must not contain dots"#,
        ],
    ),
    (
        "names of account, node, class and runtime are DNS subdomains",
        Spec,
        r#"{"serviceAccountName": "A", "nodeName": "B", "priorityClassName": "C", "runtimeClassName": "D"}"#,
        &[
            r#"template.spec.serviceAccountName: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
            r#"template.spec.nodeName: Invalid value: "B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
            r#"template.spec.priorityClassName: Invalid value: "C": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
            r#"template.spec.runtimeClassName: Invalid value: "D": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        "preemption is one of two",
        Spec,
        r#"{"preemptionPolicy": "Always"}"#,
        &[
            r#"template.spec.preemptionPolicy: Unsupported value: "Always": supported values: "PreemptLowerPriority", "Never""#,
        ],
    ),
    (
        "preemption is not empty",
        Spec,
        r#"{"preemptionPolicy": ""}"#,
        &["template.spec.preemptionPolicy: Required value"],
    ),
    (
        "an operating system is one of two",
        Spec,
        r#"{"os": {"name": "plan9"}}"#,
        &[r#"template.spec.os: Unsupported value: "plan9": supported values: "linux", "windows""#],
    ),
    (
        "an operating system has a name",
        Spec,
        r#"{"os": {"name": ""}}"#,
        &["template.spec.os.name: Required value"],
    ),
    ("an operating system is fine", Spec, r#"{"os": {"name": "linux"}}"#, &[]),
    (
        "aliases of hosts have an address and names",
        Spec,
        r#"{"hostAliases": [{"ip": "x", "hostnames": ["A", "b"]}, {"ip": "1.2.3.4"}]}"#,
        &[
            r#"template.spec.hostAliases[0].ip: Invalid value: "x": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"#,
            r#"template.spec.hostAliases[0].hostnames[0]: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        "a replaced hostname is a DNS subdomain",
        Spec,
        r#"{"hostnameOverride": "A", "setHostnameAsFQDN": true, "hostNetwork": true}"#,
        &[
            "template.spec.hostnameOverride: Forbidden: may not be specified when setHostnameAsFQDN is true",
            "template.spec.hostnameOverride: Forbidden: may not be specified when hostNetwork is true",
            r#"template.spec.hostnameOverride: Invalid value: "A": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
        ],
    ),
    (
        "a replaced hostname has at most 64 characters",
        Spec,
        r#"{"hostnameOverride": "<a65>"}"#,
        &["template.spec.hostnameOverride: Too long: may not be more than 64 bytes"],
    ),
    ("a replaced hostname is fine", Spec, r#"{"hostnameOverride": "a.b"}"#, &[]),
    (
        "a port on the network of the host is that of the host, or left to the pod",
        Spec,
        r#"{"hostNetwork": true, "containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 81, "hostPort": 82}, {"containerPort": 83, "hostPort": 83}]}]}"#,
        &[
            "template.spec.containers[0].ports[1].hostPort: Invalid value: 82: must match `containerPort` when `hostNetwork` is true",
        ],
    ),
    (
        "ephemeral containers are for pods that run",
        Spec,
        r#"{"ephemeralContainers": [{"name": "e", "image": "i", "terminationMessagePolicy": "File", "imagePullPolicy": "Always"}]}"#,
        &["template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"],
    ),
    (
        "labels and annotations have rules",
        Template,
        r#"{"metadata": {"labels": {"-a": "b c"}, "annotations": {"-C": "d"}}}"#,
        &[
            r#"template.labels: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"template.labels: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
            r#"template.annotations: Invalid value: "-C": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
    (
        "a mirror has a node",
        Template,
        r#"{"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}}"#,
        &[
            r#"template.annotations[kubernetes.io/config.mirror]: Invalid value: "x": must set spec.nodeName if mirror pod annotation is set"#,
        ],
    ),
    (
        "a mirror with a node is fine",
        Template,
        r#"{"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": "n"}}"#,
        &[],
    ),
    (
        "a cost of deletion is a 32 bit integer: ",
        Template,
        r#"{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": ""}}}"#,
        &[
            r#"template.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "": must be a 32bit integer"#,
        ],
    ),
    (
        "a cost of deletion is a 32 bit integer: x",
        Template,
        r#"{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "x"}}}"#,
        &[
            r#"template.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "x": must be a 32bit integer"#,
        ],
    ),
    (
        "a cost of deletion is a 32 bit integer: +1",
        Template,
        r#"{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "+1"}}}"#,
        &[
            r#"template.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "+1": must be a 32bit integer"#,
        ],
    ),
    (
        "a cost of deletion is a 32 bit integer: 01",
        Template,
        r#"{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "01"}}}"#,
        &[
            r#"template.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "01": must be a 32bit integer"#,
        ],
    ),
    (
        "a cost of deletion is a 32 bit integer: 0",
        Template,
        r#"{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "0"}}}"#,
        &[],
    ),
    (
        "a cost of deletion is a 32 bit integer: -5",
        Template,
        r#"{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "-5"}}}"#,
        &[],
    ),
    (
        "a cost of deletion is a 32 bit integer: 2147483648",
        Template,
        r#"{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "2147483648"}}}"#,
        &[
            r#"template.annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: "2147483648": must be a 32bit integer"#,
        ],
    ),
    (
        "a cost of deletion is a 32 bit integer: 7",
        Template,
        r#"{"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "7"}}}"#,
        &[],
    ),
];
