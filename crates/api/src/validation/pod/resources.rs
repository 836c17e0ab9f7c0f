//! Rules for resources: names, amounts, requests within limits, and pods against their containers.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PodSpec, ResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as Text;

use crate::field::{Error, Errors, Path};
use crate::quantity::Quantity;
use crate::resources::{self, Amounts};
use crate::validation::meta::{NOT_NEGATIVE, each, qualified_name};

const HUGEPAGES: &str = "hugepages-";
/// Resources that Kubernetes itself names, beside huge pages.
const STANDARD: [&str; 20] = [
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "storage",
    "requests.storage",
    "services.nodeports",
    "services.loadbalancers",
];

type ResourceList = BTreeMap<String, Text>;

/// Checks `resources` of a container.
pub(super) fn validate_requirements(requirements: &ResourceRequirements, path: &Path) -> Errors {
    validate_lists(requirements, path, validate_container_resource)
}

/// Checks `overhead`, which has the rules of limits.
pub(super) fn validate_overhead(overhead: &ResourceList, path: &Path) -> Errors {
    let requirements =
        ResourceRequirements { limits: Some(overhead.clone()), ..ResourceRequirements::default() };
    validate_requirements(&requirements, path)
}

/// Checks `resources` of the pod itself.
pub(super) fn validate_pod_resources(spec: &PodSpec, path: &Path) -> Errors {
    let Some(requirements) = &spec.resources else { return Errors::new() };
    if spec.os.as_ref().is_some_and(|os| os.name == "windows") {
        return vec![Error::forbidden(path, "may not be set for a windows pod")];
    }
    let mut errors = Errors::new();
    if requirements.claims.is_some() {
        let text = "claims may not be set for Resources at pod-level";
        errors.push(Error::forbidden(&path.child("claims"), text));
    }
    errors.extend(validate_lists(requirements, path, validate_pod_resource));
    errors.extend(validate_within_pod(spec, requirements, path));
    errors
}

fn validate_lists(
    requirements: &ResourceRequirements,
    path: &Path,
    name_rule: fn(&str, &Path) -> Errors,
) -> Errors {
    let mut errors = Errors::new();
    let (limits_at, requests_at) = (path.child("limits"), path.child("requests"));
    let limits = amounts(requirements.limits.as_ref(), &limits_at, &mut errors);
    for (name, limit) in &limits {
        errors.extend(validate_amount(name, *limit, &limits_at.key(name), name_rule));
        errors.extend(validate_pages(name, *limit, &limits_at.key(name)));
    }
    let requests = amounts(requirements.requests.as_ref(), &requests_at, &mut errors);
    for (name, request) in &requests {
        errors.extend(validate_amount(name, *request, &requests_at.key(name), name_rule));
        errors.extend(validate_request(name, *request, limits.get(name), &requests_at, &limits_at));
        errors.extend(validate_pages(name, *request, &requests_at.key(name)));
    }
    let mut names = limits.keys().chain(requests.keys());
    let has_pages = names.clone().any(|name| name.starts_with(HUGEPAGES));
    if has_pages && !names.any(|name| ["cpu", "memory"].contains(&name.as_str())) {
        errors.push(Error::forbidden(path, "HugePages require cpu or memory"));
    }
    errors
}

// Upstream can't even decode an object with a text that is no quantity.
fn amounts(list: Option<&ResourceList>, path: &Path, errors: &mut Errors) -> Amounts {
    let mut amounts = Amounts::new();
    for (name, text) in list.into_iter().flatten() {
        match text.0.parse::<Quantity>() {
            Ok(amount) => drop(amounts.insert(name.clone(), amount)),
            Err(error) => errors.push(Error::invalid(&path.key(name), text.0.as_str(), error.to_string())),
        }
    }
    amounts
}

fn validate_amount(
    name: &str,
    amount: Quantity,
    path: &Path,
    name_rule: fn(&str, &Path) -> Errors,
) -> Errors {
    let mut errors = name_rule(name, path);
    if amount.is_negative() {
        errors.push(Error::invalid(path, amount.to_string(), NOT_NEGATIVE));
    }
    if is_counted(name) && amount.milli_value() % 1000 != 0 {
        errors.push(Error::invalid(path, amount.to_string(), "must be an integer"));
    }
    errors
}

fn validate_request(
    name: &str,
    request: Quantity,
    limit: Option<&Quantity>,
    requests_at: &Path,
    limits_at: &Path,
) -> Errors {
    let may_overcommit = is_native(name) && !name.starts_with(HUGEPAGES);
    let text = match limit {
        None if may_overcommit => return Errors::new(),
        None => {
            return vec![Error::required(limits_at, "Limit must be set for non overcommitable resources")];
        }
        Some(limit) if request != *limit && !may_overcommit => {
            format!("must be equal to {name} limit of {limit}")
        }
        Some(limit) if request > *limit => format!("must be less than or equal to {name} limit of {limit}"),
        Some(_) => return Errors::new(),
    };
    vec![Error::invalid(requests_at, request.to_string(), text)]
}

fn validate_pages(name: &str, amount: Quantity, path: &Path) -> Errors {
    let Some(size) = name.strip_prefix(HUGEPAGES) else { return Errors::new() };
    let size = size.parse::<Quantity>().ok().filter(|size| *size > Quantity::ZERO && size.is_integer());
    if size.is_some_and(|size| amount.value() % size.value() == 0) {
        return Errors::new();
    }
    let text = format!("{amount} is not positive integer multiple of {name}");
    vec![Error::invalid(path, amount.to_string(), text)]
}

fn validate_resource(name: &str, path: &Path) -> Errors {
    let errors = each(path, name, qualified_name(name));
    let is_standard = STANDARD.contains(&name) || name.starts_with(HUGEPAGES) || is_quota_of_pages(name);
    if !errors.is_empty() || name.contains('/') || is_standard {
        return errors;
    }
    vec![Error::invalid(path, name, "must be a standard resource type or fully qualified")]
}

fn is_quota_of_pages(name: &str) -> bool {
    name.strip_prefix("requests.").is_some_and(|rest| rest.starts_with(HUGEPAGES))
}

fn validate_container_resource(name: &str, path: &Path) -> Errors {
    let mut errors = validate_resource(name, path);
    let is_of_containers =
        ["cpu", "memory", "ephemeral-storage"].contains(&name) || name.starts_with(HUGEPAGES);
    if !name.contains('/') && !is_of_containers {
        errors.push(Error::invalid(path, name, "must be a standard resource for containers"));
    } else if !is_native(name) && !is_extended(name) {
        errors.push(Error::invalid(path, name, "doesn't follow extended resource name standard"));
    }
    errors
}

fn validate_pod_resource(name: &str, path: &Path) -> Errors {
    let errors = validate_resource(name, path);
    if !errors.is_empty() || ["cpu", "memory"].contains(&name) || name.starts_with(HUGEPAGES) {
        return errors;
    }
    vec![Error::not_supported(path, name, &["cpu", HUGEPAGES, "memory"])]
}

/// Whether Kubernetes itself gave it its meaning.
fn is_native(name: &str) -> bool {
    !name.contains('/') || name.contains("kubernetes.io/")
}

/// Whether a device plugin or an administrator gave it its meaning.
fn is_extended(name: &str) -> bool {
    !is_native(name)
        && !name.starts_with("requests.")
        && qualified_name(&format!("requests.{name}")).is_empty()
}

fn is_counted(name: &str) -> bool {
    let counted = ["pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps"];
    let is_other = ["persistentvolumeclaims", "services.nodeports", "services.loadbalancers"].contains(&name);
    counted.contains(&name) || is_other || is_extended(name)
}

// A pod may not promise less than its containers need, nor a container take more than its pod.
fn validate_within_pod(spec: &PodSpec, requirements: &ResourceRequirements, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let read = |list: Option<&ResourceList>| amounts(list, path, &mut Errors::new());
    let (requests, limits) = (read(requirements.requests.as_ref()), read(requirements.limits.as_ref()));
    for (name, needed) in resources::aggregate(spec, |resources| resources.requests.as_ref()) {
        if let Some(request) = requests.get(&name).filter(|request| needed > **request) {
            let text = format!("must be greater than or equal to aggregate container requests of {needed}");
            errors.push(Error::invalid(&path.child("requests").key(&name), request.to_string(), text));
        }
    }
    let needed = resources::aggregate(spec, |resources| resources.limits.as_ref());
    for (name, needed) in needed.into_iter().filter(|(name, _)| name.starts_with(HUGEPAGES)) {
        if let Some(limit) = limits.get(&name).filter(|limit| needed > **limit) {
            let text = format!("must be greater than or equal to aggregate container limits of {needed}");
            errors.push(Error::invalid(&path.child("limits").key(&name), limit.to_string(), text));
        }
    }
    for (i, container) in spec.containers.iter().enumerate() {
        let list = container.resources.as_ref().and_then(|resources| resources.limits.as_ref());
        for (name, limit) in read(list) {
            if let Some(most) = limits.get(&name).filter(|most| limit > **most) {
                let at = path.child("containers").index(i).key(&name).child("limits");
                let text = format!("must be less than or equal to pod limits of {most}");
                errors.push(Error::invalid(&at, limit.to_string(), text));
            }
        }
    }
    errors
}
