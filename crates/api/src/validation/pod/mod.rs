//! Rules for pods and for templates of pods.
//!
//! A spec is checked after defaulting, as upstream does it. Not checked are sources of volumes that only old drivers
//! of cloud providers know, Windows options, ephemeral containers (they may stand in no template and in no new pod),
//! and claims of dynamic resources.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodTemplateSpec, Volume};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::meta::{
    dns1123_label, dns1123_subdomain, each, validate_annotations, validate_labels, validate_object_meta,
};
use crate::field::{Error, Errors, Path};

mod containers;
mod env;
mod mounts;
mod network;
mod probes;
mod resources;
mod scheduling;
mod security;
mod text;
mod update;
mod volumes;
mod warnings;

pub use text::config_key;
pub use update::validate_pod_update;
pub use warnings::pod_template_warnings;

const MIRROR_ANNOTATION: &str = "kubernetes.io/config.mirror";
const DELETION_COST_ANNOTATION: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Checks the template of a Job or another controller.
pub fn validate_pod_template(template: &PodTemplateSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let (no_meta, no_spec) = (ObjectMeta::default(), PodSpec::default());
    let meta = template.metadata.as_ref().unwrap_or(&no_meta);
    let spec = template.spec.as_ref().unwrap_or(&no_spec);
    if let Some(labels) = &meta.labels {
        errors.extend(validate_labels(labels, &path.child("labels")));
    }
    if let Some(annotations) = &meta.annotations {
        errors.extend(validate_annotations(annotations, &path.child("annotations")));
    }
    errors.extend(validate_pod_annotations(meta, text_of(&spec.node_name), &path.child("annotations")));
    let at = path.child("spec");
    errors.extend(validate_pod_spec(spec, None, &at));
    if !list(&spec.ephemeral_containers).is_empty() {
        let text = "ephemeral containers not allowed in pod template";
        errors.push(Error::forbidden(&at.child("ephemeralContainers"), text));
    }
    errors
}

/// Checks a pod that is being created.
pub fn validate_pod_create(pod: &Pod) -> Errors {
    let mut errors = validate_pod(pod);
    let no_spec = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let at = Path::new("spec");
    if !list(&spec.ephemeral_containers).is_empty() {
        errors.push(Error::forbidden(&at.child("ephemeralContainers"), "cannot be set on create"));
    }
    if !text_of(&spec.node_name).is_empty() && !list(&spec.scheduling_gates).is_empty() {
        let text = "cannot be set until all schedulingGates have been cleared";
        errors.push(Error::forbidden(&at.child("nodeName"), text));
    }
    errors
}

// What holds for a pod at its creation and after every update.
fn validate_pod(pod: &Pod) -> Errors {
    let no_spec = PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&no_spec);
    let at = Path::new("spec");
    let mut errors = validate_pod_meta(&pod.metadata, text_of(&spec.node_name));
    errors.extend(validate_pod_spec(spec, Some(&pod.metadata), &at));
    if text_of(&spec.service_account_name).is_empty() {
        errors.extend(volumes::forbid_tokens(list(&spec.volumes), &at.child("volumes")));
    }
    errors.extend(containers::validate_images(&spec.containers, &at.child("containers")));
    errors.extend(containers::validate_images(list(&spec.init_containers), &at.child("initContainers")));
    errors
}

/// Checks the metadata of a pod that is on this node, or on none.
pub fn validate_pod_meta(meta: &ObjectMeta, node_name: &str) -> Errors {
    let at = Path::new("metadata");
    let mut errors = validate_object_meta(meta, &at, dns1123_subdomain);
    errors.extend(validate_pod_annotations(meta, node_name, &at.child("annotations")));
    errors
}

fn validate_pod_annotations(meta: &ObjectMeta, node_name: &str, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let annotation = |key: &str| meta.annotations.as_ref().and_then(|annotations| annotations.get(key));
    if let Some(value) = annotation(MIRROR_ANNOTATION).filter(|_| node_name.is_empty()) {
        let text = "must set spec.nodeName if mirror pod annotation is set";
        errors.push(Error::invalid(&path.key(MIRROR_ANNOTATION), value.as_str(), text));
    }
    if let Some(value) = annotation(DELETION_COST_ANNOTATION).filter(|value| !is_deletion_cost(value)) {
        let at = path.key(DELETION_COST_ANNOTATION);
        errors.push(Error::invalid(&at, value.as_str(), "must be a 32bit integer"));
    }
    errors
}

// Neither a plus sign nor leading zeros.
fn is_deletion_cost(value: &str) -> bool {
    let starts_well = value == "0" || value.starts_with(|c: char| c == '-' || ('1'..='9').contains(&c));
    starts_well && value.parse::<i32>().is_ok()
}

/// What the rules of a part of a spec need to know of the rest.
struct Context<'a> {
    spec: &'a PodSpec,
    /// The metadata of the pod; `None` in a template, whose pods have no names yet.
    meta: Option<&'a ObjectMeta>,
    /// The volumes that are well formed, by name.
    volumes: BTreeMap<&'a str, &'a Volume>,
    /// Whether containers see the users of the host, which is the default.
    host_users: bool,
}

impl Context<'_> {
    fn is_pod(&self) -> bool {
        self.meta.is_some()
    }
}

fn validate_pod_spec(spec: &PodSpec, meta: Option<&ObjectMeta>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if spec.termination_grace_period_seconds.is_none() {
        errors.push(Error::required(&path.child("terminationGracePeriodSeconds"), ""));
    }
    let host_users = spec.host_users.unwrap_or(true);
    let mut context = Context { spec, meta, volumes: BTreeMap::new(), host_users };
    let (named, wrong) = volumes::validate_volumes(&context, &path.child("volumes"));
    errors.extend(wrong);
    context.volumes = named;
    let context = &context;
    errors.extend(containers::validate_containers(context, &path.child("containers")));
    errors.extend(containers::validate_init_containers(context, &path.child("initContainers")));
    errors.extend(resources::validate_pod_resources(spec, &path.child("resources")));
    errors.extend(network::validate_host_ports(context, path));
    errors.extend(validate_restart_policy(spec, &path.child("restartPolicy")));
    errors.extend(network::validate_dns_policy(spec, &path.child("dnsPolicy")));
    if let Some(selector) = &spec.node_selector {
        errors.extend(validate_labels(selector, &path.child("nodeSelector")));
    }
    errors.extend(security::validate_pod_security_context(spec, &path.child("securityContext")));
    errors.extend(scheduling::validate_affinity(spec, &path.child("affinity")));
    errors.extend(network::validate_dns_config(spec, &path.child("dnsConfig")));
    errors.extend(scheduling::validate_gates(spec, path));
    errors.extend(scheduling::validate_spread(spec, &path.child("topologySpreadConstraints")));
    errors.extend(security::validate_host_users(context, path));
    errors.extend(network::validate_hostname_override(spec, &path.child("hostnameOverride")));
    errors.extend(validate_names(spec, path));
    errors.extend(scheduling::validate_tolerations(list(&spec.tolerations), &path.child("tolerations")));
    errors.extend(network::validate_host_aliases(spec, &path.child("hostAliases")));
    errors.extend(validate_class_names(spec, path));
    errors.extend(env::validate_file_volumes(spec, path));
    errors
}

fn validate_restart_policy(spec: &PodSpec, path: &Path) -> Errors {
    one_of(path, text_of(&spec.restart_policy), &["Always", "OnFailure", "Never"])
}

fn validate_names(spec: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (name, value) in [("serviceAccountName", &spec.service_account_name), ("nodeName", &spec.node_name)] {
        let value = text_of(value);
        if !value.is_empty() {
            errors.extend(each(&path.child(name), value, dns1123_subdomain(value)));
        }
    }
    if let Some(seconds) = spec.active_deadline_seconds.filter(|s| !(1..=i64::from(i32::MAX)).contains(s)) {
        let at = path.child("activeDeadlineSeconds");
        errors.push(Error::invalid(&at, seconds, "must be between 1 and 2147483647, inclusive"));
    }
    for (name, value) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        let value = text_of(value);
        if !value.is_empty() {
            errors.extend(each(&path.child(name), value, dns1123_label(value)));
        }
    }
    errors
}

fn validate_class_names(spec: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let class = text_of(&spec.priority_class_name);
    if !class.is_empty() {
        errors.extend(each(&path.child("priorityClassName"), class, dns1123_subdomain(class)));
    }
    if let Some(class) = &spec.runtime_class_name {
        errors.extend(each(&path.child("runtimeClassName"), class, dns1123_subdomain(class)));
    }
    if let Some(policy) = &spec.preemption_policy {
        errors.extend(one_of(&path.child("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]));
    }
    if let Some(overhead) = &spec.overhead {
        errors.extend(resources::validate_overhead(overhead, &path.child("overhead")));
    }
    if let Some(os) = &spec.os {
        let at = path.child("os");
        if os.name.is_empty() {
            errors.push(Error::required(&at.child("name"), ""));
        } else if !["linux", "windows"].contains(&os.name.as_str()) {
            errors.push(Error::not_supported(&at, &os.name, &["linux", "windows"]));
        }
    }
    errors
}

/// Init containers first, as upstream visits them, each with its path.
fn visit_containers<'a>(spec: &'a PodSpec, path: &Path) -> Vec<(&'a Container, Path)> {
    let lists = [("initContainers", list(&spec.init_containers)), ("containers", &spec.containers)];
    lists
        .into_iter()
        .flat_map(|(name, containers)| {
            let at = path.child(name);
            containers.iter().enumerate().map(move |(i, container)| (container, at.index(i)))
        })
        .collect()
}

fn text_of(text: &Option<String>) -> &str {
    text.as_deref().unwrap_or_default()
}

fn list<T>(items: &Option<Vec<T>>) -> &[T] {
    items.as_deref().unwrap_or_default()
}

/// Required, and one of a closed set.
fn one_of(path: &Path, value: &str, supported: &[&str]) -> Errors {
    if value.is_empty() {
        return vec![Error::required(path, "")];
    }
    member_of(path, value, supported)
}

/// One of a closed set.
fn member_of(path: &Path, value: &str, supported: &[&str]) -> Errors {
    if supported.contains(&value) {
        return Errors::new();
    }
    vec![Error::not_supported(path, value, supported)]
}

fn required(path: &Path, value: &str) -> Errors {
    if value.is_empty() { vec![Error::required(path, "")] } else { Errors::new() }
}

/// Complains about the second of equal names.
fn unique<'a>(seen: &mut BTreeSet<&'a str>, name: &'a str, path: &Path) -> Errors {
    if seen.insert(name) { Errors::new() } else { vec![Error::duplicate(path, name)] }
}
