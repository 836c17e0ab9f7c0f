//! Warnings about templates.

use windlass_api::field::Path;
use windlass_api::validation::pod::pod_template_warnings;

use crate::support::Part::{Container, Spec, Template};
use crate::support::{Case, compare, template};

#[test]
fn templates_are_warned_of_all_that_they_should_not_say() {
    compare(CASES.iter().map(|(rule, part, fields, warnings)| {
        let template = template(part, fields);
        let (meta, spec) = (template.metadata.as_ref(), template.spec.as_ref());
        (*rule, pod_template_warnings(meta, spec, &Path::new("template")), *warnings)
    }));
}

const CASES: &[Case] = &[
    ("a plain template has no warnings", Container, "{}", &[]),
    (
        "old labels of nodes",
        Spec,
        r#"{"nodeSelector": {"beta.kubernetes.io/arch": "a"}, "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "beta.kubernetes.io/os", "operator": "Exists"}]}]}, "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [{"key": "failure-domain.beta.kubernetes.io/region", "operator": "In", "values": ["a b"]}]}}]}}}"#,
        &[
            r#"template.spec.nodeSelector[beta.kubernetes.io/arch]: deprecated since v1.14; use "kubernetes.io/arch" instead"#,
            r#"template.spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0].matchExpressions[0].key: beta.kubernetes.io/os is deprecated since v1.14; use "kubernetes.io/os" instead"#,
            r#"template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].key: failure-domain.beta.kubernetes.io/region is deprecated since v1.17; use "topology.kubernetes.io/region" instead"#,
            "template.spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].preference.matchExpressions[0].values[0]: a b is invalid, a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ],
    ),
    (
        "old label failure-domain.beta.kubernetes.io/zone",
        Spec,
        r#"{"nodeSelector": {"failure-domain.beta.kubernetes.io/zone": "a"}}"#,
        &[
            r#"template.spec.nodeSelector[failure-domain.beta.kubernetes.io/zone]: deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
        ],
    ),
    (
        "old label beta.kubernetes.io/instance-type",
        Spec,
        r#"{"nodeSelector": {"beta.kubernetes.io/instance-type": "a"}}"#,
        &[
            r#"template.spec.nodeSelector[beta.kubernetes.io/instance-type]: deprecated since v1.17; use "node.kubernetes.io/instance-type" instead"#,
        ],
    ),
    (
        "old label app.kubernetes.io/created-by",
        Spec,
        r#"{"nodeSelector": {"app.kubernetes.io/created-by": "a"}}"#,
        &["template.spec.nodeSelector[app.kubernetes.io/created-by]: deprecated since v1.9"],
    ),
    (
        "old label scheduler.alpha.kubernetes.io/preferAvoidPods",
        Spec,
        r#"{"nodeSelector": {"scheduler.alpha.kubernetes.io/preferAvoidPods": "a"}}"#,
        &[
            "template.spec.nodeSelector[scheduler.alpha.kubernetes.io/preferAvoidPods]: deprecated since v1.22; use Taints and Tolerations instead",
        ],
    ),
    (
        "old label node-role.kubernetes.io/master",
        Spec,
        r#"{"nodeSelector": {"disk": "ssd", "node-role.kubernetes.io/master": "a"}}"#,
        &[
            r#"template.spec.nodeSelector[node-role.kubernetes.io/master]: use "node-role.kubernetes.io/control-plane" instead"#,
        ],
    ),
    (
        "spreading by an old label, and of no pods",
        Spec,
        r#"{"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "failure-domain.beta.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]}"#,
        &[
            r#"template.spec.topologySpreadConstraints[0].topologyKey: failure-domain.beta.kubernetes.io/zone is deprecated since v1.17; use "topology.kubernetes.io/zone" instead"#,
            "template.spec.topologySpreadConstraints[0].labelSelector: a null labelSelector results in matching no pod",
        ],
    ),
    (
        "old annotations",
        Template,
        r#"{"metadata": {"annotations": {"scheduler.alpha.kubernetes.io/critical-pod": "", "security.alpha.kubernetes.io/sysctls": "", "security.alpha.kubernetes.io/unsafe-sysctls": ""}}}"#,
        &[
            r#"template.metadata.annotations[scheduler.alpha.kubernetes.io/critical-pod]: non-functional in v1.16+; use the "priorityClassName" field instead"#,
            r#"template.metadata.annotations[security.alpha.kubernetes.io/sysctls]: non-functional in v1.11+; use the "sysctls" field instead"#,
            r#"template.metadata.annotations[security.alpha.kubernetes.io/unsafe-sysctls]: non-functional in v1.11+; use the "sysctls" field instead"#,
        ],
    ),
    (
        "old volumes",
        Spec,
        r#"{"volumes": [{"name": "a", "photonPersistentDisk": {"pdID": "p"}}, {"name": "a", "gitRepo": {"repository": "r"}}, {"name": "a", "scaleIO": {"gateway": "g", "system": "s", "secretRef": {}}}, {"name": "a", "flocker": {}}, {"name": "a", "storageos": {}}, {"name": "a", "quobyte": {"registry": "r", "volume": "v"}}, {"name": "a", "glusterfs": {"endpoints": "e", "path": "p"}}, {"name": "a", "cephfs": {"monitors": []}}, {"name": "a", "rbd": {"monitors": [], "image": "i"}}]}"#,
        &[
            "template.spec.volumes[0].photonPersistentDisk: deprecated in v1.11, non-functional in v1.16+",
            "template.spec.volumes[1].gitRepo: deprecated in v1.11, and disabled by default in v1.33+",
            "template.spec.volumes[2].scaleIO: deprecated in v1.16, non-functional in v1.22+",
            "template.spec.volumes[3].flocker: deprecated in v1.22, non-functional in v1.25+",
            "template.spec.volumes[4].storageOS: deprecated in v1.22, non-functional in v1.25+",
            "template.spec.volumes[5].quobyte: deprecated in v1.22, non-functional in v1.25+",
            "template.spec.volumes[6].glusterfs: deprecated in v1.25, non-functional in v1.26+",
            "template.spec.volumes[7].cephfs: deprecated in v1.28, non-functional in v1.31+",
            "template.spec.volumes[8].rbd: deprecated in v1.28, non-functional in v1.31+",
        ],
    ),
    (
        "aliases and secrets that stand twice",
        Spec,
        r#"{"hostAliases": [{"ip": "1.2.3.4"}, {"ip": "1.2.3.4"}], "imagePullSecrets": [{"name": "a"}, {"name": "a"}, {"name": ""}]}"#,
        &[
            r#"template.spec.hostAliases[1].ip: duplicate ip "1.2.3.4""#,
            r#"template.spec.imagePullSecrets[1].name: duplicate name "a""#,
            r#"template.spec.imagePullSecrets[2].name: invalid empty name """#,
        ],
    ),
    (
        "fractions of bytes",
        Spec,
        r#"{"overhead": {"memory": "1500m", "ephemeral-storage": "2500m"}, "containers": [{"name": "a", "image": "i", "resources": {"limits": {"memory": "1500m", "ephemeral-storage": "1"}, "requests": {"memory": "1", "ephemeral-storage": "100m"}}}]}"#,
        &[
            r#"template.spec.overhead[memory]: fractional byte value "1500m" is invalid, must be an integer"#,
            r#"template.spec.overhead[ephemeral-storage]: fractional byte value "2500m" is invalid, must be an integer"#,
            r#"template.spec.containers[0].resources.limits[memory]: fractional byte value "1500m" is invalid, must be an integer"#,
            r#"template.spec.containers[0].resources.requests[ephemeral-storage]: fractional byte value "100m" is invalid, must be an integer"#,
        ],
    ),
    (
        "variables that hide others",
        Container,
        r#"{"env": [{"name": "A", "value": "1"}, {"name": "A", "value": "$(A)2"}, {"name": "A", "value": "$(A)"}, {"name": "A", "value": "3"}, {"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}"#,
        &[
            r#"template.spec.containers[0].env[2]: hides previous definition of "A", which may be dropped when using apply"#,
            r#"template.spec.containers[0].env[3]: hides previous definition of "A", which may be dropped when using apply"#,
            r#"template.spec.containers[0].env[4]: hides previous definition of "A", which may be dropped when using apply"#,
        ],
    ),
    (
        "ports that clash",
        Spec,
        r#"{"initContainers": [{"name": "s", "image": "i", "ports": [{"containerPort": 80}]}], "containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 80, "hostPort": 5}, {"containerPort": 81, "hostIP": "1.2.3.4", "name": "x"}, {"containerPort": 82, "hostPort": 6}, {"containerPort": 82, "hostPort": 6, "hostIP": "1.2.3.4"}, {"containerPort": 82, "hostPort": 7}]}]}"#,
        &[
            "template.spec.containers[0].ports[0]: duplicate port definition with template.spec.initContainers[0].ports[0]",
            "template.spec.containers[0].ports[1]: overlapping port definition with template.spec.initContainers[0].ports[0]",
            "template.spec.containers[0].ports[1]: overlapping port definition with template.spec.containers[0].ports[0]",
            "template.spec.containers[0].ports[2]: hostIP set without hostPort: {Name:x HostPort:0 ContainerPort:81 Protocol:TCP HostIP:1.2.3.4}",
            "template.spec.containers[0].ports[4]: dangerously ambiguous port definition with template.spec.containers[0].ports[3]",
        ],
    ),
    (
        "names of ports that stand twice",
        Spec,
        r#"{"containers": [{"name": "a", "image": "i", "ports": [{"containerPort": 80, "name": "x"}]}, {"name": "b", "image": "i", "ports": [{"containerPort": 81, "name": "x"}]}]}"#,
        &[
            r#"template.spec.containers[1].ports[0]: duplicate port name "x" with template.spec.containers[0].ports[0], services and probes that select ports by name will use template.spec.containers[0].ports[0]"#,
        ],
    ),
    (
        "a negative grace period",
        Spec,
        r#"{"terminationGracePeriodSeconds": -1}"#,
        &[
            "template.spec.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1",
        ],
    ),
    (
        "affinity to no pods",
        Spec,
        r#"{"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h"}], "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "h"}}]}, "podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "h"}], "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {"topologyKey": "h"}}]}}}"#,
        &[
            "template.spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod",
            "template.spec.affinity.podAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod",
            "template.spec.affinity.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0].labelSelector: a null labelSelector results in matching no pod",
            "template.spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.labelSelector: a null labelSelector results in matching no pod",
        ],
    ),
];
