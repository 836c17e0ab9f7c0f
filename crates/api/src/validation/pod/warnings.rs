//! What a template may say, but should not.
//!
//! Not warned about are files of one volume with overlapping paths, addresses in unusual forms, and annotations of
//! seccomp and AppArmor.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{
    Affinity, Container, ContainerPort, NodeSelectorTerm, PodAffinityTerm, PodSpec, Volume,
    WeightedPodAffinityTerm,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::{list, text_of, visit_containers};
use crate::field::Path;
use crate::quantity::Quantity;
use crate::validation::meta::label_value;

const NULL_SELECTOR: &str = "a null labelSelector results in matching no pod";

/// The texts of the `Warning` headers for a template.
pub fn pod_template_warnings(meta: Option<&ObjectMeta>, spec: Option<&PodSpec>, path: &Path) -> Vec<String> {
    let no_spec = PodSpec::default();
    let spec = spec.unwrap_or(&no_spec);
    let at = path.child("spec");
    let affinity = spec.affinity.clone().unwrap_or_default();
    let mut warnings = node_labels(spec, &affinity, &at);
    warnings.extend(spreading(spec, &at.child("topologySpreadConstraints")));
    warnings.extend(annotations(meta, &path.child("metadata.annotations")));
    for (i, volume) in list(&spec.volumes).iter().enumerate() {
        warnings.extend(old_volumes(volume, &at.child("volumes").index(i)));
    }
    warnings.extend(doubled(spec, &at));
    if let Some(overhead) = &spec.overhead {
        warnings.extend(fraction(overhead.get("memory"), &at.child("overhead").key("memory")));
        let storage_at = at.child("overhead").key("ephemeral-storage");
        warnings.extend(fraction(overhead.get("ephemeral-storage"), &storage_at));
    }
    let containers = visit_containers(spec, &at);
    for (container, at) in &containers {
        warnings.extend(container_fractions(container, &at.child("resources")));
        warnings.extend(hidden_variables(container, &at.child("env")));
    }
    warnings.extend(doubled_ports(&containers));
    warnings.extend(doubled_port_names(&containers));
    if spec.termination_grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        let at = at.child("terminationGracePeriodSeconds");
        warnings.push(format!("{at}: must be >= 0; negative values are invalid and will be treated as 1"));
    }
    warnings.extend(null_selectors(&affinity, &at.child("affinity")));
    warnings
}

fn deprecated_label(key: &str) -> Option<&'static str> {
    Some(match key {
        "beta.kubernetes.io/arch" => "deprecated since v1.14; use \"kubernetes.io/arch\" instead",
        "beta.kubernetes.io/os" => "deprecated since v1.14; use \"kubernetes.io/os\" instead",
        "failure-domain.beta.kubernetes.io/region" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/region\" instead"
        }
        "failure-domain.beta.kubernetes.io/zone" => {
            "deprecated since v1.17; use \"topology.kubernetes.io/zone\" instead"
        }
        "beta.kubernetes.io/instance-type" => {
            "deprecated since v1.17; use \"node.kubernetes.io/instance-type\" instead"
        }
        "app.kubernetes.io/created-by" => "deprecated since v1.9",
        "scheduler.alpha.kubernetes.io/preferAvoidPods" => {
            "deprecated since v1.22; use Taints and Tolerations instead"
        }
        "node-role.kubernetes.io/master" => "use \"node-role.kubernetes.io/control-plane\" instead",
        _ => return None,
    })
}

fn node_labels(spec: &PodSpec, affinity: &Affinity, path: &Path) -> Vec<String> {
    let at = path.child("nodeSelector");
    let mut warnings: Vec<String> = spec
        .node_selector
        .iter()
        .flatten()
        .filter_map(|(key, _)| Some(format!("{}: {}", at.key(key), deprecated_label(key)?)))
        .collect();
    let node = affinity.node_affinity.clone().unwrap_or_default();
    let path = path.child("affinity.nodeAffinity");
    let at = path.child("requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms");
    let required = node.required_during_scheduling_ignored_during_execution.unwrap_or_default();
    for (i, term) in required.node_selector_terms.iter().enumerate() {
        warnings.extend(node_term(term, false, &at.index(i)));
    }
    let at = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (i, term) in list(&node.preferred_during_scheduling_ignored_during_execution).iter().enumerate() {
        warnings.extend(node_term(&term.preference, true, &at.index(i).child("preference")));
    }
    warnings
}

fn node_term(term: &NodeSelectorTerm, checks_values: bool, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, expression) in list(&term.match_expressions).iter().enumerate() {
        let at = path.child("matchExpressions").index(i);
        if let Some(text) = deprecated_label(&expression.key) {
            warnings.push(format!("{}: {} is {text}", at.child("key"), expression.key));
        }
        for (j, value) in list(&expression.values).iter().enumerate().filter(|_| checks_values) {
            for text in label_value(value) {
                warnings.push(format!("{}: {value} is invalid, {text}", at.child("values").index(j)));
            }
        }
    }
    warnings
}

fn spreading(spec: &PodSpec, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    for (i, constraint) in list(&spec.topology_spread_constraints).iter().enumerate() {
        let at = path.index(i);
        if let Some(text) = deprecated_label(&constraint.topology_key) {
            warnings.push(format!("{}: {} is {text}", at.child("topologyKey"), constraint.topology_key));
        }
        if constraint.label_selector.is_none() {
            warnings.push(format!("{}: {NULL_SELECTOR}", at.child("labelSelector")));
        }
    }
    warnings
}

fn annotations(meta: Option<&ObjectMeta>, path: &Path) -> Vec<String> {
    const SYSCTLS: &str = "non-functional in v1.11+; use the \"sysctls\" field instead";
    let deprecated = [
        (
            "scheduler.alpha.kubernetes.io/critical-pod",
            "non-functional in v1.16+; use the \"priorityClassName\" field instead",
        ),
        ("security.alpha.kubernetes.io/sysctls", SYSCTLS),
        ("security.alpha.kubernetes.io/unsafe-sysctls", SYSCTLS),
    ];
    let Some(annotations) = meta.and_then(|meta| meta.annotations.as_ref()) else { return Vec::new() };
    let found = deprecated.into_iter().filter(|(key, _)| annotations.contains_key(*key));
    found.map(|(key, text)| format!("{}: {text}", path.key(key))).collect()
}

fn old_volumes(volume: &Volume, path: &Path) -> Vec<String> {
    let old = [
        (volume.photon_persistent_disk.is_some(), "photonPersistentDisk", "v1.11, non-functional in v1.16+"),
        (volume.git_repo.is_some(), "gitRepo", "v1.11, and disabled by default in v1.33+"),
        (volume.scale_io.is_some(), "scaleIO", "v1.16, non-functional in v1.22+"),
        (volume.flocker.is_some(), "flocker", "v1.22, non-functional in v1.25+"),
        (volume.storageos.is_some(), "storageOS", "v1.22, non-functional in v1.25+"),
        (volume.quobyte.is_some(), "quobyte", "v1.22, non-functional in v1.25+"),
        (volume.glusterfs.is_some(), "glusterfs", "v1.25, non-functional in v1.26+"),
        (volume.cephfs.is_some(), "cephfs", "v1.28, non-functional in v1.31+"),
        (volume.rbd.is_some(), "rbd", "v1.28, non-functional in v1.31+"),
    ];
    let used = old.into_iter().filter(|(is_used, _, _)| *is_used);
    used.map(|(_, name, text)| format!("{}: deprecated in {text}", path.child(name))).collect()
}

// Lists that are merged by a key, where an item with the key of another would be lost.
fn doubled(spec: &PodSpec, path: &Path) -> Vec<String> {
    let (mut warnings, mut ips, mut names) = (Vec::new(), BTreeSet::new(), BTreeSet::new());
    let at = path.child("hostAliases");
    for (i, alias) in list(&spec.host_aliases).iter().enumerate() {
        if !ips.insert(alias.ip.as_str()) {
            warnings.push(format!("{}: duplicate ip {:?}", at.index(i).child("ip"), alias.ip));
        }
    }
    let at = path.child("imagePullSecrets");
    let secrets = list(&spec.image_pull_secrets);
    for (i, secret) in secrets.iter().enumerate() {
        if !names.insert(secret.name.as_str()) {
            warnings.push(format!("{}: duplicate name {:?}", at.index(i).child("name"), secret.name));
        }
    }
    for (i, _) in secrets.iter().enumerate().filter(|(_, secret)| secret.name.is_empty()) {
        warnings.push(format!("{}: invalid empty name \"\"", at.index(i).child("name")));
    }
    warnings
}

fn container_fractions(container: &Container, path: &Path) -> Vec<String> {
    let resources = container.resources.clone().unwrap_or_default();
    let (limits, requests) = (resources.limits.unwrap_or_default(), resources.requests.unwrap_or_default());
    let mut warnings = Vec::new();
    for name in ["memory", "ephemeral-storage"] {
        warnings.extend(fraction(limits.get(name), &path.child("limits").key(name)));
        warnings.extend(fraction(requests.get(name), &path.child("requests").key(name)));
    }
    warnings
}

fn fraction(text: Option<&Text>, path: &Path) -> Option<String> {
    let amount = text?.0.parse::<Quantity>().ok().filter(|amount| amount.milli_value() % 1000 != 0)?;
    Some(format!("{path}: fractional byte value \"{amount}\" is invalid, must be an integer"))
}

// A variable may be defined again to add to itself.
fn hidden_variables(container: &Container, path: &Path) -> Vec<String> {
    let (mut warnings, mut names) = (Vec::new(), BTreeSet::new());
    for (i, variable) in list(&container.env).iter().enumerate() {
        if names.insert(variable.name.as_str()) {
            continue;
        }
        let (own, value) = (format!("$({})", variable.name), text_of(&variable.value));
        if variable.value_from.is_some() || value == own || !value.contains(&own) {
            let (at, name) = (path.index(i), &variable.name);
            warnings.push(format!(
                "{at}: hides previous definition of {name:?}, which may be dropped when using apply"
            ));
        }
    }
    warnings
}

fn doubled_ports(containers: &[(&Container, Path)]) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut seen: BTreeMap<String, Vec<(Path, &ContainerPort)>> = BTreeMap::new();
    for (port, at) in containers.iter().flat_map(ports) {
        let (ip, number) = (text_of(&port.host_ip), port.host_port.unwrap_or_default());
        if !ip.is_empty() && number == 0 {
            warnings.push(format!(
                "{at}: hostIP set without hostPort: {{Name:{} HostPort:{number} ContainerPort:{} Protocol:{} HostIP:{ip}}}",
                text_of(&port.name),
                port.container_port,
                text_of(&port.protocol),
            ));
        }
        let others = seen.entry(format!("{}/{}", port.container_port, text_of(&port.protocol))).or_default();
        for (other_at, other) in others.iter() {
            if let Some(text) = clash(port, other) {
                warnings.push(format!("{at}: {text} port definition with {other_at}"));
            }
        }
        others.push((at, port));
    }
    warnings
}

fn clash(port: &ContainerPort, other: &ContainerPort) -> Option<&'static str> {
    let (ip, number) = (text_of(&port.host_ip), port.host_port.unwrap_or_default());
    let (other_ip, other_number) = (text_of(&other.host_ip), other.host_port.unwrap_or_default());
    if ip == other_ip && number == other_number {
        Some("duplicate")
    } else if number == 0 || other_number == 0 {
        Some("overlapping")
    } else if number == other_number && (ip.is_empty() || other_ip.is_empty()) {
        Some("dangerously ambiguous")
    } else {
        None
    }
}

fn ports<'a>(
    (container, path): &'a (&'a Container, Path),
) -> impl Iterator<Item = (&'a ContainerPort, Path)> {
    let at = path.child("ports");
    list(&container.ports).iter().enumerate().map(move |(i, port)| (port, at.index(i)))
}

fn doubled_port_names(containers: &[(&Container, Path)]) -> Vec<String> {
    let mut warnings = Vec::new();
    let mut seen: BTreeMap<&str, Path> = BTreeMap::new();
    for (port, at) in containers.iter().flat_map(ports) {
        let name = text_of(&port.name);
        match seen.get(name) {
            Some(first) => warnings.push(format!(
                "{at}: duplicate port name {name:?} with {first}, services and probes that select ports by name will \
                 use {first}"
            )),
            None if name.is_empty() => {}
            None => drop(seen.insert(name, at)),
        }
    }
    warnings
}

fn null_selectors(affinity: &Affinity, path: &Path) -> Vec<String> {
    let mut warnings = Vec::new();
    if let Some(affinity) = &affinity.pod_affinity {
        warnings.extend(null_terms(
            list(&affinity.required_during_scheduling_ignored_during_execution),
            list(&affinity.preferred_during_scheduling_ignored_during_execution),
            &path.child("podAffinity"),
        ));
    }
    if let Some(affinity) = &affinity.pod_anti_affinity {
        warnings.extend(null_terms(
            list(&affinity.required_during_scheduling_ignored_during_execution),
            list(&affinity.preferred_during_scheduling_ignored_during_execution),
            &path.child("podAntiAffinity"),
        ));
    }
    warnings
}

fn null_terms(
    required: &[PodAffinityTerm],
    preferred: &[WeightedPodAffinityTerm],
    path: &Path,
) -> Vec<String> {
    let mut warnings = Vec::new();
    let at = path.child("requiredDuringSchedulingIgnoredDuringExecution");
    for (i, _) in required.iter().enumerate().filter(|(_, term)| term.label_selector.is_none()) {
        warnings.push(format!("{}: {NULL_SELECTOR}", at.index(i).child("labelSelector")));
    }
    let at = path.child("preferredDuringSchedulingIgnoredDuringExecution");
    for (i, _) in
        preferred.iter().enumerate().filter(|(_, term)| term.pod_affinity_term.label_selector.is_none())
    {
        warnings.push(format!("{}: {NULL_SELECTOR}", at.index(i).child("podAffinityTerm.labelSelector")));
    }
    warnings
}
