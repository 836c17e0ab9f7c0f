//! Rules for changes of pods.

use windlass_api::validation::pod::validate_pod_update;

use crate::support::{pod, report};

#[test]
fn pods_change_only_where_they_may() {
    report(
        CASES
            .iter()
            .map(|(rule, old, new, errors)| (*rule, validate_pod_update(&pod(new), &pod(old)), *errors)),
    );
}

#[test]
fn a_change_elsewhere_is_forbidden_and_shown() {
    for (rule, old, new, difference) in CHANGED {
        let errors = validate_pod_update(&pod(new), &pod(old));
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(texts, [format!("{MAY_CHANGE}\n{difference}")], "{rule}");
    }
}

#[test]
fn a_negative_grace_period_may_become_one() {
    let mut old = pod(r#"{"metadata": {}, "spec": {}}"#);
    let mut new = old.clone();
    old.spec.as_mut().expect("a pod has a spec").termination_grace_period_seconds = Some(-5);
    new.spec.as_mut().expect("a pod has a spec").termination_grace_period_seconds = Some(1);
    assert_eq!(validate_pod_update(&new, &old), []);
}

const MAY_CHANGE: &str = "spec: Forbidden: pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// The rule, the pod before and after, and what is shown of the change.
const CHANGED: &[(&str, &str, &str, &str)] = &[
    (
        "another field does not change",
        r#"{"metadata": {}, "spec": {}}"#,
        r#"{"metadata": {}, "spec": {"nodeName": "n"}}"#,
        "+ nodeName: \"n\"\n",
    ),
    (
        "labels of nodes of a pod without gates do not change",
        r#"{"metadata": {}, "spec": {"nodeSelector": {"a": "b"}}}"#,
        r#"{"metadata": {}, "spec": {"nodeSelector": {"a": "b", "c": "d"}}}"#,
        "- nodeSelector: {\"a\":\"b\"}\n+ nodeSelector: {\"a\":\"b\",\"c\":\"d\"}\n",
    ),
    (
        "a gated pod gets no affinity to pods",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}]}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}],
            "affinity": {"nodeAffinity": {}, "podAffinity": {}}}}"#,
        "+ affinity: {\"podAffinity\":{}}\n",
    ),
];

/// The rule, the pod before and after, and all the errors.
const CASES: &[(&str, &str, &str, &[&str])] = &[
    ("nothing changes", r#"{"metadata": {}, "spec": {}}"#, r#"{"metadata": {}, "spec": {}}"#, &[]),
    (
        "metadata is free",
        r#"{"metadata": {}, "spec": {}}"#,
        r#"{"metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}, "finalizers": ["x/y"], "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": "o", "uid": "u"}]}, "spec": {}}"#,
        &[],
    ),
    (
        "the name stays",
        r#"{"metadata": {}, "spec": {}}"#,
        r#"{"metadata": {"name": "q"}, "spec": {}}"#,
        &[r#"metadata.name: Invalid value: "q": field is immutable"#],
    ),
    (
        "the new pod has the rules of a pod",
        r#"{"metadata": {}, "spec": {}}"#,
        r#"{"metadata": {"labels": {"-a": "b"}}, "spec": {}}"#,
        &[
            r#"metadata.labels: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"metadata.labels: Invalid value: "-a": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
    (
        "images change",
        r#"{"metadata": {}, "spec": {"initContainers": [{"name": "b", "image": "i"}]}}"#,
        r#"{"metadata": {}, "spec": {"containers": [{"name": "a", "image": "j", "imagePullPolicy": "Always"}], "initContainers": [{"name": "b", "image": "j"}]}}"#,
        &[],
    ),
    (
        "images do not vanish",
        r#"{"metadata": {}, "spec": {}}"#,
        r#"{"metadata": {}, "spec": {"containers": [{"name": "a", "image": "", "imagePullPolicy": "Always"}]}}"#,
        &["spec.containers[0].image: Required value", "spec.containers[0].image: Required value"],
    ),
    (
        "images have no blanks around",
        r#"{"metadata": {}, "spec": {}}"#,
        r#"{"metadata": {}, "spec": {"containers": [{"name": "a", "image": "i ", "imagePullPolicy": "Always"}]}}"#,
        &[
            r#"spec.containers[0].image: Invalid value: "i ": must not have leading or trailing whitespace"#,
            r#"spec.containers[0].image: Invalid value: "i ": must not have leading or trailing whitespace"#,
        ],
    ),
    (
        "containers are not added",
        r#"{"metadata": {}, "spec": {}}"#,
        r#"{"metadata": {}, "spec": {"containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}}"#,
        &["spec.containers: Forbidden: pod updates may not add or remove containers"],
    ),
    (
        "init containers are not removed",
        r#"{"metadata": {}, "spec": {"initContainers": [{"name": "b", "image": "i"}]}}"#,
        r#"{"metadata": {}, "spec": {}}"#,
        &["spec.initContainers: Forbidden: pod updates may not add or remove containers"],
    ),
    (
        "a deadline may come",
        r#"{"metadata": {}, "spec": {}}"#,
        r#"{"metadata": {}, "spec": {"activeDeadlineSeconds": 5}}"#,
        &[],
    ),
    (
        "a deadline may shrink",
        r#"{"metadata": {}, "spec": {"activeDeadlineSeconds": 9}}"#,
        r#"{"metadata": {}, "spec": {"activeDeadlineSeconds": 5}}"#,
        &[],
    ),
    (
        "a deadline does not grow",
        r#"{"metadata": {}, "spec": {"activeDeadlineSeconds": 5}}"#,
        r#"{"metadata": {}, "spec": {"activeDeadlineSeconds": 9}}"#,
        &["spec.activeDeadlineSeconds: Invalid value: 9: must be less than or equal to previous value"],
    ),
    (
        "a deadline does not go",
        r#"{"metadata": {}, "spec": {"activeDeadlineSeconds": 5}}"#,
        r#"{"metadata": {}, "spec": {}}"#,
        &[
            "spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value",
        ],
    ),
    (
        "a deadline is not negative",
        r#"{"metadata": {}, "spec": {}}"#,
        r#"{"metadata": {}, "spec": {"activeDeadlineSeconds": -1}}"#,
        &[
            "spec.activeDeadlineSeconds: Invalid value: -1: must be between 1 and 2147483647, inclusive",
            "spec.activeDeadlineSeconds: Invalid value: -1: must be between 0 and 2147483647, inclusive",
        ],
    ),
    (
        "tolerations come, and their seconds change",
        r#"{"metadata": {}, "spec": {"tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}]}}"#,
        r#"{"metadata": {}, "spec": {"tolerations": [{"key": "b", "operator": "Exists"}, {"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}]}}"#,
        &[],
    ),
    (
        "tolerations do not go",
        r#"{"metadata": {}, "spec": {"tolerations": [{"key": "a", "operator": "Exists"}]}}"#,
        r#"{"metadata": {}, "spec": {}}"#,
        &[
            "spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds",
        ],
    ),
    (
        "tolerations that come have rules",
        r#"{"metadata": {}, "spec": {}}"#,
        r#"{"metadata": {}, "spec": {"tolerations": [{"key": "a", "operator": "Like"}]}}"#,
        &[
            r#"spec.tolerations[0].operator: Unsupported value: "Like": supported values: "Equal", "Exists""#,
            r#"spec.tolerations[0].operator: Unsupported value: "Like": supported values: "Equal", "Exists""#,
        ],
    ),
    (
        "gates go",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}]}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "h"}]}}"#,
        &[],
    ),
    (
        "gates do not come",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "h"}]}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "x"}, {"name": "h"}, {"name": "g"}]}}"#,
        &[
            "spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'x'",
            "spec.schedulingGates[2].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'",
        ],
    ),
    (
        "a gated pod gets more labels of nodes",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "nodeSelector": {"a": "b"}}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "nodeSelector": {"a": "b", "c": "d"}}}"#,
        &[],
    ),
    (
        "a gated pod keeps its labels of nodes",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "nodeSelector": {"a": "b"}}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "nodeSelector": {"a": "c"}}}"#,
        &[
            r#"spec.nodeSelector: Invalid value: {"a":"c"}: only additions to spec.nodeSelector are allowed (no mutations or deletions)"#,
        ],
    ),
    (
        "a gated pod gets affinity to nodes",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}]}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}}}}"#,
        &[],
    ),
    (
        "a gated pod keeps its affinity to nodes",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}}}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}]}}"#,
        &[
            "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid value: null: no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        ],
    ),
    (
        "a gated pod gets more expressions",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}}}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}, {"key": "c", "operator": "Exists"}], "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}]}}}}}"#,
        &[],
    ),
    (
        "a gated pod keeps its expressions",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}}}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "c", "operator": "Exists"}]}]}}}}}"#,
        &[
            r#"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value: {"MatchExpressions":[{"Key":"c","Operator":"Exists","Values":null}],"MatchFields":null}: only additions are allowed (no mutations or deletions)"#,
        ],
    ),
    (
        "a gated pod gets no further terms",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}}}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, {"matchExpressions": [{"key": "c", "operator": "Exists"}]}]}}}}}"#,
        &[
            r#"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: Invalid value: [{"MatchExpressions":[{"Key":"a","Operator":"In","Values":["b"]}],"MatchFields":null},{"MatchExpressions":[{"Key":"c","Operator":"Exists","Values":null}],"MatchFields":null}]: no additions/deletions to non-empty NodeSelectorTerms list are allowed"#,
        ],
    ),
    (
        "a gated pod may prefer other nodes",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}}}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}, "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [{"key": "c", "operator": "Exists"}]}}]}}}}"#,
        &[],
    ),
    (
        "a term that matches nothing stays so",
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}}}}"#,
        r#"{"metadata": {}, "spec": {"schedulingGates": [{"name": "g"}, {"name": "h"}], "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]}}}}}"#,
        &[
            r#"spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]: Invalid value: {"MatchExpressions":[{"Key":"a","Operator":"In","Values":["b"]}],"MatchFields":null}: only additions are allowed (no mutations or deletions)"#,
        ],
    ),
    (
        "a mirror is not made",
        r#"{"metadata": {}, "spec": {"nodeName": "n"}}"#,
        r#"{"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": "n"}}"#,
        &["metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not add mirror pod annotation"],
    ),
    (
        "a mirror stays one",
        r#"{"metadata": {"annotations": {"kubernetes.io/config.mirror": "x"}}, "spec": {"nodeName": "n"}}"#,
        r#"{"metadata": {"annotations": {"kubernetes.io/config.mirror": "y"}}, "spec": {"nodeName": "n"}}"#,
        &[
            "metadata.annotations[kubernetes.io/config.mirror]: Forbidden: may not remove or update mirror pod annotation",
        ],
    ),
    (
        "an empty list is no change",
        r#"{"metadata": {}, "spec": {}}"#,
        r#"{"metadata": {}, "spec": {"tolerations": [], "hostAliases": []}}"#,
        &[],
    ),
];
