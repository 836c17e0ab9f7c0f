//! What a pod, or a template of one, has when its author does not say: upstream's defaults.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Container, ContainerPort, DownwardAPIVolumeFile, EmptyDirVolumeSource, EnvVar, HTTPGetAction,
    LifecycleHandler, ObjectFieldSelector, Pod, PodCondition, PodSpec, PodStatus, PodTemplateSpec, Probe,
    ProjectedVolumeSource, ResourceFieldSelector, ResourceRequirements, Volume,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use crate::quantity::Quantity;
use crate::resources::aggregate;

/// Octal 644, the mode of files that a volume makes.
const FILE_MODE: i32 = 0o644;
const GRACE_PERIOD_S: i64 = 30;
const TOKEN_EXPIRATION_S: i64 = 3600;

type ResourceList = BTreeMap<String, Text>;

/// Fills in the template of a Job or another controller.
pub fn default_pod_template(template: &mut PodTemplateSpec) {
    default_pod_spec(template.spec.get_or_insert_default());
}

/// Fills in a pod: what templates get, and what is for pods alone.
pub fn default_pod(pod: &mut Pod) {
    let spec = pod.spec.get_or_insert_default();
    default_pod_spec(spec);
    // Old pods may hold a negative period. Only pods: templates stay as they are.
    spec.termination_grace_period_seconds =
        spec.termination_grace_period_seconds.map(|s| if s < 0 { 1 } else { s });
    for container in containers_mut(spec) {
        request_what_is_limited(container);
    }
    default_pod_level_resources(spec);
    spec.enable_service_links.get_or_insert(true);
    if spec.host_network == Some(true) {
        for port in containers_mut(spec).flat_map(|container| container.ports.iter_mut().flatten()) {
            default_host_port(port);
        }
    }
}

/// The status of a pod that is being created: whatever its author wrote there is gone.
pub fn initial_status(spec: &PodSpec) -> PodStatus {
    let is_gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    let gated = PodCondition {
        type_: "PodScheduled".to_owned(),
        status: "False".to_owned(),
        reason: Some("SchedulingGated".to_owned()),
        message: Some("Scheduling is blocked due to non-empty scheduling gates".to_owned()),
        ..PodCondition::default()
    };
    PodStatus {
        phase: Some("Pending".to_owned()),
        qos_class: Some(qos_class(spec).to_owned()),
        conditions: is_gated.then(|| vec![gated]),
        ..PodStatus::default()
    }
}

/// `Guaranteed` if every container has limits of cpu and memory and requests no less, `BestEffort` if none
/// says anything of either, `Burstable` between. Resources of the pod itself stand for all containers.
pub fn qos_class(spec: &PodSpec) -> &'static str {
    let parts: Vec<Option<&ResourceRequirements>> = match &spec.resources {
        Some(resources) => vec![Some(resources)],
        None => containers(spec).map(|container| container.resources.as_ref()).collect(),
    };
    let amount = |list: Option<&ResourceList>, name: &str| {
        let text = list.and_then(|list| list.get(name))?;
        text.0.parse::<Quantity>().ok().filter(|amount| *amount > Quantity::ZERO)
    };
    let (mut is_best_effort, mut is_guaranteed) = (true, true);
    for (resources, name) in parts.into_iter().flat_map(|part| [(part, "cpu"), (part, "memory")]) {
        let request = amount(resources.and_then(|r| r.requests.as_ref()), name);
        let limit = amount(resources.and_then(|r| r.limits.as_ref()), name);
        is_best_effort &= request.is_none() && limit.is_none();
        is_guaranteed &= limit.is_some() && request == limit;
    }
    match (is_best_effort, is_guaranteed) {
        (true, _) => "BestEffort",
        (false, true) => "Guaranteed",
        (false, false) => "Burstable",
    }
}

fn containers(spec: &PodSpec) -> impl Iterator<Item = &Container> {
    spec.init_containers.iter().flatten().chain(&spec.containers)
}

fn containers_mut(spec: &mut PodSpec) -> impl Iterator<Item = &mut Container> {
    spec.init_containers.iter_mut().flatten().chain(&mut spec.containers)
}

fn default_text(text: &mut Option<String>, value: &str) {
    if text.as_deref().unwrap_or_default().is_empty() {
        *text = Some(value.to_owned());
    }
}

fn default_number(number: &mut Option<i32>, value: i32) {
    if number.unwrap_or_default() == 0 {
        *number = Some(value);
    }
}

fn default_pod_spec(spec: &mut PodSpec) {
    default_text(&mut spec.dns_policy, "ClusterFirst");
    default_text(&mut spec.restart_policy, "Always");
    default_text(&mut spec.scheduler_name, "default-scheduler");
    spec.security_context.get_or_insert_default();
    spec.termination_grace_period_seconds.get_or_insert(GRACE_PERIOD_S);
    mirror_service_account(spec);
    for volume in spec.volumes.iter_mut().flatten() {
        default_volume(volume);
    }
    for container in containers_mut(spec) {
        default_container(container);
    }
    canonicalize(spec.overhead.as_mut());
    if let Some(resources) = &mut spec.resources {
        default_resources(resources);
    }
}

// `serviceAccount` is the old spelling; objects show both.
fn mirror_service_account(spec: &mut PodSpec) {
    let names = [&spec.service_account_name, &spec.service_account];
    let name = names.into_iter().flatten().find(|name| !name.is_empty()).cloned();
    spec.service_account_name.clone_from(&name);
    spec.service_account = name;
}

fn default_container(container: &mut Container) {
    let policy = pull_policy(container.image.as_deref().unwrap_or_default());
    default_text(&mut container.image_pull_policy, policy);
    default_text(&mut container.termination_message_path, "/dev/termination-log");
    default_text(&mut container.termination_message_policy, "File");
    for port in container.ports.iter_mut().flatten() {
        default_text(&mut port.protocol, "TCP");
    }
    for variable in container.env.iter_mut().flatten() {
        default_env(variable);
    }
    default_resources(container.resources.get_or_insert_default());
    let probes =
        [&mut container.liveness_probe, &mut container.readiness_probe, &mut container.startup_probe];
    for probe in probes.into_iter().flatten() {
        default_probe(probe);
    }
    if let Some(lifecycle) = &mut container.lifecycle {
        for handler in [&mut lifecycle.post_start, &mut lifecycle.pre_stop].into_iter().flatten() {
            default_handler(handler);
        }
    }
}

// `Always` if the tag is `latest` or, without a digest, missing; a name that can't be read has no tag.
fn pull_policy(image: &str) -> &'static str {
    let (named, digest) = image.split_once('@').map_or((image, None), |(name, digest)| (name, Some(digest)));
    let (name, tag) = match named.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (named, None),
    };
    let is_latest = match (tag, digest) {
        (Some(tag), _) => tag == "latest",
        (None, Some(_)) => false,
        (None, None) => true,
    };
    if is_latest && is_image_name(name) { "Always" } else { "IfNotPresent" }
}

fn is_image_name(name: &str) -> bool {
    let is_word = |word: &str| {
        let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        word.starts_with(is_alphanumeric)
            && word.ends_with(is_alphanumeric)
            && word.chars().all(|c| is_alphanumeric(c) || "._-".contains(c))
    };
    let path = match name.split_once('/') {
        Some((host, path)) if host.contains(['.', ':']) || host == "localhost" => path,
        _ => name,
    };
    path.split('/').all(is_word)
}

fn default_env(variable: &mut EnvVar) {
    let Some(source) = &mut variable.value_from else { return };
    if let Some(field) = &mut source.field_ref {
        default_field_ref(field);
    }
    if let Some(resource) = &mut source.resource_field_ref {
        default_resource_ref(resource);
    }
    if let Some(file) = &mut source.file_key_ref {
        file.optional.get_or_insert(false);
    }
}

fn default_field_ref(field: &mut ObjectFieldSelector) {
    default_text(&mut field.api_version, "v1");
}

// Upstream's type can't be absent, and prints as nothing.
fn default_resource_ref(resource: &mut ResourceFieldSelector) {
    let divisor = resource.divisor.get_or_insert_with(|| Text("0".to_owned()));
    canonicalize_one(divisor, |amount| amount);
}

fn default_probe(probe: &mut Probe) {
    default_number(&mut probe.timeout_seconds, 1);
    default_number(&mut probe.period_seconds, 10);
    default_number(&mut probe.success_threshold, 1);
    default_number(&mut probe.failure_threshold, 3);
    if let Some(get) = &mut probe.http_get {
        default_http_get(get);
    }
    if let Some(grpc) = &mut probe.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn default_handler(handler: &mut LifecycleHandler) {
    if let Some(get) = &mut handler.http_get {
        default_http_get(get);
    }
}

fn default_http_get(get: &mut HTTPGetAction) {
    default_text(&mut get.path, "/");
    default_text(&mut get.scheme, "HTTP");
}

fn default_volume(volume: &mut Volume) {
    // Without its name, a volume is its source.
    let name = std::mem::take(&mut volume.name);
    let has_source = *volume != Volume::default();
    volume.name = name;
    if !has_source {
        volume.empty_dir = Some(EmptyDirVolumeSource::default());
    }
    if let Some(limit) = volume.empty_dir.as_mut().and_then(|source| source.size_limit.as_mut()) {
        canonicalize_one(limit, |amount| amount);
    }
    if let Some(source) = &mut volume.host_path {
        source.type_.get_or_insert_default();
    }
    if let Some(source) = &mut volume.secret {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.config_map {
        source.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(source) = &mut volume.downward_api {
        source.default_mode.get_or_insert(FILE_MODE);
        for item in source.items.iter_mut().flatten() {
            default_downward_file(item);
        }
    }
    if let Some(source) = &mut volume.projected {
        default_projected(source);
    }
    if let Some(source) = &mut volume.image {
        let policy = pull_policy(source.reference.as_deref().unwrap_or_default());
        default_text(&mut source.pull_policy, policy);
    }
    if let Some(claim) = volume.ephemeral.as_mut().and_then(|source| source.volume_claim_template.as_mut()) {
        default_text(&mut claim.spec.volume_mode, "Filesystem");
    }
}

fn default_downward_file(item: &mut DownwardAPIVolumeFile) {
    if let Some(field) = &mut item.field_ref {
        default_field_ref(field);
    }
    if let Some(resource) = &mut item.resource_field_ref {
        default_resource_ref(resource);
    }
}

fn default_projected(source: &mut ProjectedVolumeSource) {
    source.default_mode.get_or_insert(FILE_MODE);
    for part in source.sources.iter_mut().flatten() {
        let items = part.downward_api.iter_mut().flat_map(|api| api.items.iter_mut().flatten());
        for item in items {
            default_downward_file(item);
        }
        if let Some(token) = &mut part.service_account_token {
            token.expiration_seconds.get_or_insert(TOKEN_EXPIRATION_S);
        }
    }
}

fn default_resources(resources: &mut ResourceRequirements) {
    canonicalize(resources.limits.as_mut());
    canonicalize(resources.requests.as_mut());
}

fn canonicalize(list: Option<&mut ResourceList>) {
    for amount in list.into_iter().flat_map(BTreeMap::values_mut) {
        canonicalize_one(amount, Quantity::round_up_to_milli);
    }
}

// What can't be read stays as it is, for validation to complain about.
fn canonicalize_one(text: &mut Text, round: fn(Quantity) -> Quantity) {
    if let Ok(amount) = text.0.parse::<Quantity>() {
        text.0 = round(amount).to_string();
    }
}

fn default_host_port(port: &mut ContainerPort) {
    default_number(&mut port.host_port, port.container_port);
}

fn request_what_is_limited(container: &mut Container) {
    let Some(ResourceRequirements { limits: Some(limits), requests, .. }) = &mut container.resources else {
        return;
    };
    let requests = requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

fn is_hugepages(name: &str) -> bool {
    name.starts_with("hugepages-")
}

// Only where the author set resources of the pod: limits of huge pages come from the containers, requests from the
// containers where they have some and from the limits otherwise.
fn default_pod_level_resources(spec: &mut PodSpec) {
    let container_limits = aggregate(spec, |resources| resources.limits.as_ref());
    let container_requests = aggregate(spec, |resources| resources.requests.as_ref());
    let Some(resources) = &mut spec.resources else { return };
    let is_empty = |list: &Option<ResourceList>| list.as_ref().is_none_or(BTreeMap::is_empty);
    if is_empty(&resources.limits) && is_empty(&resources.requests) {
        return;
    }
    for (name, limit) in container_limits.iter().filter(|(name, _)| is_hugepages(name)) {
        if resources.requests.as_ref().is_none_or(|requests| !requests.contains_key(name)) {
            let limits = resources.limits.get_or_insert_default();
            limits.entry(name.clone()).or_insert_with(|| Text(limit.to_string()));
        }
    }
    let Some(limits) = resources.limits.clone().filter(|limits| !limits.is_empty()) else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, request) in
        container_requests.iter().filter(|(name, _)| ["cpu", "memory"].contains(&name.as_str()))
    {
        requests.entry(name.clone()).or_insert_with(|| Text(request.to_string()));
    }
    let is_supported = |name: &str| ["cpu", "memory"].contains(&name) || is_hugepages(name);
    for (name, limit) in limits.into_iter().filter(|(name, _)| is_supported(name)) {
        requests.entry(name).or_insert(limit);
    }
}
