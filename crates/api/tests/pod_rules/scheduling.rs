//! Rules for scheduling: what is wrong, in which words and in which order.

use crate::support::Part::Spec;
use crate::support::{Case, check};

#[test]
fn scheduling_is_held_to_every_rule() {
    check(CASES);
}

const CASES: &[Case] = &[
    (
        "labels of nodes have rules",
        Spec,
        r#"{"nodeSelector": {"-a": "b c"}}"#,
        &[
            r#"template.spec.nodeSelector: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"template.spec.nodeSelector: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
        ],
    ),
    (
        "tolerations of each kind are fine",
        Spec,
        r#"{"tolerations": [{"operator": "Exists"}, {"key": "a", "value": "b"}, {"key": "a", "operator": "Equal", "effect": "NoExecute", "tolerationSeconds": 5}]}"#,
        &[],
    ),
    (
        "a toleration without a key tolerates all",
        Spec,
        r#"{"tolerations": [{"operator": "Equal", "value": "b"}, {}]}"#,
        &[
            r#"template.spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when `key` is empty, which means "match all values and all keys""#,
            r#"template.spec.tolerations[1].operator: Invalid value: "": operator must be Exists when `key` is empty, which means "match all values and all keys""#,
        ],
    ),
    (
        "a key of a toleration is qualified",
        Spec,
        r#"{"tolerations": [{"key": "-a"}]}"#,
        &[
            r#"template.spec.tolerations[0].key: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
    (
        "seconds of a toleration are for NoExecute",
        Spec,
        r#"{"tolerations": [{"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5}]}"#,
        &[
            r#"template.spec.tolerations[0].effect: Invalid value: "NoSchedule": effect must be 'NoExecute' when `tolerationSeconds` is set"#,
        ],
    ),
    (
        "a value of a toleration is that of a label",
        Spec,
        r#"{"tolerations": [{"key": "a", "value": "b c"}, {"key": "a", "value": "-<a63>"}]}"#,
        &[
            r#"template.spec.tolerations[0].operator: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
            r#"template.spec.tolerations[1].operator: Invalid value: "-<a63>": must be no more than 63 bytes;a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
        ],
    ),
    (
        "a toleration of existence has no value",
        Spec,
        r#"{"tolerations": [{"key": "a", "operator": "Exists", "value": "b"}]}"#,
        &[
            r#"template.spec.tolerations[0].operator: Invalid value: "b": value must be empty when `operator` is 'Exists'"#,
        ],
    ),
    (
        "an operator of a toleration is known",
        Spec,
        r#"{"tolerations": [{"key": "a", "operator": "Like"}, {"key": "a", "operator": "Lt", "value": "5"}]}"#,
        &[
            r#"template.spec.tolerations[0].operator: Unsupported value: "Like": supported values: "Equal", "Exists""#,
            r#"template.spec.tolerations[1].operator: Unsupported value: "Lt": supported values: "Equal", "Exists", "Lt", "Gt""#,
        ],
    ),
    (
        "an effect of a toleration is known",
        Spec,
        r#"{"tolerations": [{"key": "a", "effect": "Never"}]}"#,
        &[
            r#"template.spec.tolerations[0].effect: Unsupported value: "Never": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#,
        ],
    ),
    (
        "affinity to nodes has terms",
        Spec,
        r#"{"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}}"#,
        &[
            "template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Required value: must have at least one node selector term",
        ],
    ),
    (
        "affinity to nodes of each kind is fine",
        Spec,
        r#"{"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}, {"key": "a", "operator": "Exists"}, {"key": "a", "operator": "Gt", "values": ["5"]}], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}, "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b c"]}]}}]}}}"#,
        &[],
    ),
    (
        "expressions on nodes fit their operators",
        Spec,
        r#"{"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In"}, {"key": "a", "operator": "Exists", "values": ["b"]}, {"key": "a", "operator": "Lt", "values": ["1", "2"]}, {"key": "a", "operator": "Like", "values": ["b"]}]}]}}}}"#,
        &[
            "template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            "template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[1].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            "template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[2].values: Required value: must be specified single value when `operator` is 'Lt' or 'Gt'",
            r#"template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[3].operator: Invalid value: "Like": not a valid selector operator"#,
        ],
    ),
    (
        "expressions on nodes have keys and values of labels",
        Spec,
        r#"{"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "-a", "operator": "In", "values": ["b c"]}]}]}}}}"#,
        &[
            r#"template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].values[0]: Invalid value: "b c": a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"#,
        ],
    ),
    (
        "fields of nodes are their names",
        Spec,
        r#"{"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a", "B"]}, {"key": "metadata.uid", "operator": "Exists"}]}]}}}}"#,
        &[
            "template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values: Required value: must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            r#"template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[0].values[1]: Invalid value: "B": a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"#,
            r#"template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[1].operator: Invalid value: "Exists": not a valid selector operator"#,
            r#"template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchFields[1].key: Invalid value: "metadata.uid": not a valid field selector key"#,
        ],
    ),
    (
        "a weight is from 1 to 100",
        Spec,
        r#"{"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "preference": {}}, {"weight": 101, "preference": {"matchExpressions": [{"key": "-a", "operator": "Exists"}]}}]}}}"#,
        &[
            "template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100",
            "template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[1].weight: Invalid value: 101: must be in the range 1-100",
            r#"template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[1].preference.matchExpressions[0].key: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
    (
        "affinity to pods is fine",
        Spec,
        r#"{"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h", "labelSelector": {"matchLabels": {"a": "b"}}}], "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": {"topologyKey": "h"}}]}}}"#,
        &[],
    ),
    (
        "affinity to pods has a topology",
        Spec,
        r#"{"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": ""}], "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 0, "podAffinityTerm": {"topologyKey": "-h"}}]}}}"#,
        &[
            "template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Required value: can not be empty",
            r#"template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must be non-empty"#,
            r#"template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].topologyKey: Invalid value: "": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            "template.spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 0: must be in the range 1-100",
            r#"template.spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey: Invalid value: "-h": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
    (
        "affinity to pods has selectors and namespaces",
        Spec,
        r#"{"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h", "labelSelector": {"matchLabels": {"-a": "b"}}, "namespaceSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, "namespaces": ["N"]}], "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 101, "podAffinityTerm": {"topologyKey": "h"}}]}}}"#,
        &[
            r#"template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector.matchLabels: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            "template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespaceSelector.matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'",
            r#"template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].namespace: Invalid value: "N": a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"#,
            "template.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100",
        ],
    ),
    (
        "keys of labels need a selector",
        Spec,
        r#"{"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h", "matchLabelKeys": ["a"], "mismatchLabelKeys": ["b"]}]}}}"#,
        &[
            "template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
            "template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].mismatchLabelKeys: Forbidden: must not be specified when labelSelector is not set",
        ],
    ),
    (
        "keys of labels are qualified and of one list",
        Spec,
        r#"{"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h", "labelSelector": {"matchLabels": {"a": "b"}}, "matchLabelKeys": ["-x", "c"], "mismatchLabelKeys": ["c"]}]}}}"#,
        &[
            r#"template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys[0]: Invalid value: "-x": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].matchLabelKeys[1]: Invalid value: "c": exists in both matchLabelKeys and mismatchLabelKeys"#,
        ],
    ),
    (
        "keys of labels are not in the selector",
        Spec,
        r#"{"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h", "labelSelector": {"matchLabels": {"a": "b"}, "matchExpressions": [{"key": "a", "operator": "In", "values": ["x"]}, {"key": "z", "operator": "Exists"}]}, "matchLabelKeys": ["a"]}]}}}"#,
        &[
            r#"template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0][0]: Invalid value: "a": exists in both matchLabelKeys and labelSelector"#,
        ],
    ),
    (
        "gates are qualified and unique",
        Spec,
        r#"{"schedulingGates": [{"name": "a"}, {"name": "a"}, {"name": "-b"}], "readinessGates": [{"conditionType": "-c"}, {"conditionType": "d"}]}"#,
        &[
            r#"template.spec.readinessGates[0].conditionType: Invalid value: "-c": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"template.spec.schedulingGates[1]: Duplicate value: "a""#,
            r#"template.spec.schedulingGates[2]: Invalid value: "-b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
    (
        "spreading is fine",
        Spec,
        r#"{"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "minDomains": 2, "nodeAffinityPolicy": "Honor", "nodeTaintsPolicy": "Ignore", "labelSelector": {"matchLabels": {"a": "b"}}}]}"#,
        &[],
    ),
    (
        "spreading has a skew, a key and an action",
        Spec,
        r#"{"topologySpreadConstraints": [{"maxSkew": 0, "topologyKey": "", "whenUnsatisfiable": "Wait"}]}"#,
        &[
            "template.spec.topologySpreadConstraints[0].maxSkew: Invalid value: 0: must be greater than zero",
            "template.spec.topologySpreadConstraints[0].topologyKey: Required value: can not be empty",
            r#"template.spec.topologySpreadConstraints[0].whenUnsatisfiable: Unsupported value: "Wait": supported values: "DoNotSchedule", "ScheduleAnyway""#,
        ],
    ),
    (
        "spreading is given once for a key and an action",
        Spec,
        r#"{"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}, {"maxSkew": 2, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}]}"#,
        &[
            r#"template.spec.topologySpreadConstraints[0].{topologyKey, whenUnsatisfiable}: Duplicate value: "{z, DoNotSchedule}""#,
        ],
    ),
    (
        "domains are positive and for DoNotSchedule",
        Spec,
        r#"{"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 0}]}"#,
        &[
            "template.spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: must be greater than zero",
            "template.spec.topologySpreadConstraints[0].minDomains: Invalid value: 0: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway",
        ],
    ),
    (
        "policies of spreading are known",
        Spec,
        r#"{"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "nodeAffinityPolicy": "a", "nodeTaintsPolicy": "b"}]}"#,
        &[
            r#"template.spec.topologySpreadConstraints[0].nodeAffinityPolicy: Unsupported value: "a": supported values: "Honor", "Ignore""#,
            r#"template.spec.topologySpreadConstraints[0].nodeTaintsPolicy: Unsupported value: "b": supported values: "Honor", "Ignore""#,
        ],
    ),
    (
        "spreading has a selector and keys",
        Spec,
        r#"{"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"-a": "b"}}, "matchLabelKeys": ["-b"]}]}"#,
        &[
            r#"template.spec.topologySpreadConstraints[0].matchLabelKeys[0]: Invalid value: "-b": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"template.spec.topologySpreadConstraints[0].labelSelector.matchLabels: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
];
