//! Rules for resources: what is wrong, in which words and in which order.

use crate::support::Part::{Container, Spec};
use crate::support::{Case, check};

#[test]
fn resources_are_held_to_every_rule() {
    check(CASES);
}

const CASES: &[Case] = &[
    (
        "requests within limits are fine",
        Container,
        r#"{"resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "500m", "memory": "1Gi", "ephemeral-storage": "1Gi"}}}"#,
        &[],
    ),
    (
        "a request is at most its limit",
        Container,
        r#"{"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "1500m"}}}"#,
        &[
            r#"template.spec.containers[0].resources.requests: Invalid value: "1500m": must be less than or equal to cpu limit of 1"#,
        ],
    ),
    (
        "an amount is not negative",
        Container,
        r#"{"resources": {"limits": {"cpu": "-1"}}}"#,
        &[
            r#"template.spec.containers[0].resources.limits[cpu]: Invalid value: "-1": must be greater than or equal to 0"#,
        ],
    ),
    (
        "a request is not negative",
        Container,
        r#"{"resources": {"requests": {"memory": "-1Ki"}}}"#,
        &[
            r#"template.spec.containers[0].resources.requests[memory]: Invalid value: "-1Ki": must be greater than or equal to 0"#,
        ],
    ),
    (
        "a resource is known or has a domain",
        Container,
        r#"{"resources": {"limits": {"disk": "1"}}}"#,
        &[
            r#"template.spec.containers[0].resources.limits[disk]: Invalid value: "disk": must be a standard resource type or fully qualified"#,
            r#"template.spec.containers[0].resources.limits[disk]: Invalid value: "disk": must be a standard resource for containers"#,
        ],
    ),
    (
        "a resource is one of containers",
        Container,
        r#"{"resources": {"limits": {"pods": "1500m"}}}"#,
        &[
            r#"template.spec.containers[0].resources.limits[pods]: Invalid value: "pods": must be a standard resource for containers"#,
            r#"template.spec.containers[0].resources.limits[pods]: Invalid value: "1500m": must be an integer"#,
        ],
    ),
    (
        "a name of a resource is qualified",
        Container,
        r#"{"resources": {"limits": {"-x": "1"}}}"#,
        &[
            r#"template.spec.containers[0].resources.limits[-x]: Invalid value: "-x": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
            r#"template.spec.containers[0].resources.limits[-x]: Invalid value: "-x": must be a standard resource for containers"#,
        ],
    ),
    (
        "a resource of others is whole",
        Container,
        r#"{"resources": {"limits": {"example.com/gpu": "1500m"}}}"#,
        &[
            r#"template.spec.containers[0].resources.limits[example.com/gpu]: Invalid value: "1500m": must be an integer"#,
        ],
    ),
    (
        "a resource of others is requested as limited",
        Container,
        r#"{"resources": {"limits": {"example.com/gpu": "2"}, "requests": {"example.com/gpu": "1"}}}"#,
        &[
            r#"template.spec.containers[0].resources.requests: Invalid value: "1": must be equal to example.com/gpu limit of 2"#,
        ],
    ),
    (
        "a resource of others needs a limit",
        Container,
        r#"{"resources": {"requests": {"example.com/gpu": "1"}}}"#,
        &[
            "template.spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources",
        ],
    ),
    (
        "a resource of others has a name that a quota can take",
        Container,
        r#"{"resources": {"limits": {"requests.example.com/gpu": "1"}}}"#,
        &[
            r#"template.spec.containers[0].resources.limits[requests.example.com/gpu]: Invalid value: "requests.example.com/gpu": doesn't follow extended resource name standard"#,
        ],
    ),
    (
        "huge pages need cpu or memory",
        Container,
        r#"{"resources": {"limits": {"hugepages-2Mi": "4Mi"}}}"#,
        &["template.spec.containers[0].resources: Forbidden: HugePages require cpu or memory"],
    ),
    (
        "huge pages come whole",
        Container,
        r#"{"resources": {"limits": {"cpu": "1", "hugepages-2Mi": "3Mi"}}}"#,
        &[
            r#"template.spec.containers[0].resources.limits[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi"#,
        ],
    ),
    (
        "huge pages are requested as limited",
        Container,
        r#"{"resources": {"limits": {"cpu": "1", "hugepages-2Mi": "4Mi"}, "requests": {"hugepages-2Mi": "3Mi"}}}"#,
        &[
            r#"template.spec.containers[0].resources.requests: Invalid value: "3Mi": must be equal to hugepages-2Mi limit of 4Mi"#,
            r#"template.spec.containers[0].resources.requests[hugepages-2Mi]: Invalid value: "3Mi": 3Mi is not positive integer multiple of hugepages-2Mi"#,
        ],
    ),
    (
        "huge pages have a size",
        Container,
        r#"{"resources": {"limits": {"cpu": "1", "hugepages-x": "2Mi"}}}"#,
        &[
            r#"template.spec.containers[0].resources.limits[hugepages-x]: Invalid value: "2Mi": 2Mi is not positive integer multiple of hugepages-x"#,
        ],
    ),
    (
        "a resource of Kubernetes with a domain is taken",
        Container,
        r#"{"resources": {"limits": {"kubernetes.io/thing": "1"}}}"#,
        &[],
    ),
    (
        "overhead has the rules of limits",
        Spec,
        r#"{"overhead": {"disk": "1"}}"#,
        &[
            r#"template.spec.overhead.limits[disk]: Invalid value: "disk": must be a standard resource type or fully qualified"#,
            r#"template.spec.overhead.limits[disk]: Invalid value: "disk": must be a standard resource for containers"#,
        ],
    ),
    (
        "resources of a pod are fine",
        Spec,
        r#"{"resources": {"limits": {"cpu": "2", "memory": "1Gi"}, "requests": {"cpu": "1"}}}"#,
        &[],
    ),
    (
        "resources of a pod are cpu, memory and huge pages",
        Spec,
        r#"{"resources": {"limits": {"ephemeral-storage": "1Gi"}}}"#,
        &[
            r#"template.spec.resources.limits[ephemeral-storage]: Unsupported value: "ephemeral-storage": supported values: "cpu", "hugepages-", "memory""#,
        ],
    ),
    (
        "a name of a resource of a pod is qualified",
        Spec,
        r#"{"resources": {"limits": {"-x": "1"}}}"#,
        &[
            r#"template.spec.resources.limits[-x]: Invalid value: "-x": name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"#,
        ],
    ),
    (
        "a pod requests what its containers request",
        Spec,
        r#"{"resources": {"requests": {"cpu": "1"}}, "containers": [{"name": "a", "image": "i", "resources": {"requests": {"cpu": "800m"}}}, {"name": "b", "image": "i", "resources": {"requests": {"cpu": "300m"}}}]}"#,
        &[
            r#"template.spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 1100m"#,
        ],
    ),
    (
        "a pod requests what its initialisation requests",
        Spec,
        r#"{"resources": {"requests": {"cpu": "1"}}, "initContainers": [{"name": "s", "image": "i", "restartPolicy": "Always", "resources": {"requests": {"cpu": "600m"}}}, {"name": "x", "image": "i", "resources": {"requests": {"cpu": "500m"}}}]}"#,
        &[
            r#"template.spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container requests of 1100m"#,
        ],
    ),
    (
        "a limit of a container is within that of its pod",
        Spec,
        r#"{"resources": {"limits": {"cpu": "1"}}, "containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]}"#,
        &[
            r#"template.spec.resources.containers[0][cpu].limits: Invalid value: "2": must be less than or equal to pod limits of 1"#,
        ],
    ),
    (
        "a pod has the huge pages of its containers",
        Spec,
        r#"{"resources": {"limits": {"cpu": "1", "hugepages-2Mi": "2Mi"}}, "containers": [{"name": "a", "image": "i", "resources": {"limits": {"cpu": "500m", "hugepages-2Mi": "2Mi"}}}, {"name": "b", "image": "i", "resources": {"limits": {"cpu": "500m", "hugepages-2Mi": "2Mi"}}}]}"#,
        &[
            r#"template.spec.resources.limits[hugepages-2Mi]: Invalid value: "2Mi": must be greater than or equal to aggregate container limits of 4Mi"#,
        ],
    ),
    (
        "a pod has no claims of its own",
        Spec,
        r#"{"resources": {"claims": []}}"#,
        &["template.spec.resources.claims: Forbidden: claims may not be set for Resources at pod-level"],
    ),
    (
        "a pod of Windows has no resources of its own",
        Spec,
        r#"{"os": {"name": "windows"}, "resources": {"limits": {"cpu": "1"}}}"#,
        &["template.spec.resources: Forbidden: may not be set for a windows pod"],
    ),
];
