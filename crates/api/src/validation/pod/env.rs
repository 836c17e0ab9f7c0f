//! Rules for the environment of containers, and for the fields and resources it may name.

use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, FileKeySelector, ObjectFieldSelector, PodSpec, ResourceFieldSelector,
};

use super::text::{config_key, env_name, no_backsteps};
use super::{list, required, text_of, visit_containers};
use crate::field::{Error, Errors, Path};
use crate::quantity::Quantity;
use crate::validation::meta::{dns1123_label, dns1123_subdomain, each, mask_trailing_dash, qualified_name};

/// Fields of a pod that an environment variable may hold.
const ENV_FIELDS: [&str; 9] = [
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];
/// Fields of a pod that a file of a downward API volume may hold.
pub(super) const FILE_FIELDS: [&str; 5] =
    ["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];
/// All fields that a reference may name at all.
const FIELDS: [&str; 15] = [
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
    "spec.host",
];
const RESOURCES: [&str; 6] = [
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];
const DIVISORS: [&str; 13] =
    ["1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei"];

/// Checks `env`.
pub(super) fn validate_env(variables: &[EnvVar], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, variable) in variables.iter().enumerate() {
        let at = path.index(i);
        let name_at = at.child("name");
        errors.extend(required(&name_at, &variable.name));
        errors.extend(each(&name_at, &variable.name, env_name(&variable.name)));
        errors.extend(validate_value_from(variable, &at.child("valueFrom")));
    }
    errors
}

fn validate_value_from(variable: &EnvVar, path: &Path) -> Errors {
    let Some(source) = &variable.value_from else { return Errors::new() };
    let (mut errors, mut count) = (Errors::new(), 0);
    if let Some(field) = &source.field_ref {
        count += 1;
        errors.extend(validate_field_ref(field, &ENV_FIELDS, &path.child("fieldRef")));
    }
    if let Some(resource) = &source.resource_field_ref {
        count += 1;
        errors.extend(validate_resource_ref(resource, false, &path.child("resourceFieldRef")));
    }
    let config_map = source.config_map_key_ref.as_ref().map(|key| ("configMapKeyRef", &key.name, &key.key));
    let secret = source.secret_key_ref.as_ref().map(|key| ("secretKeyRef", &key.name, &key.key));
    for (field, name, key) in [config_map, secret].into_iter().flatten() {
        count += 1;
        errors.extend(validate_key_ref(name, key, &path.child(field)));
    }
    if let Some(file) = &source.file_key_ref {
        count += 1;
        errors.extend(validate_file_ref(file, &path.child("fileKeyRef")));
    }
    let text = match count {
        0 => {
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        }
        _ if !text_of(&variable.value).is_empty() => "may not be specified when `value` is not empty",
        1 => return errors,
        _ => "may not have more than one field specified at a time",
    };
    errors.push(Error::invalid(path, "", text));
    errors
}

/// Checks a reference to a field of the pod; `supported` fields may be named without a key.
pub(super) fn validate_field_ref(field: &ObjectFieldSelector, supported: &[&str], path: &Path) -> Errors {
    let version = text_of(&field.api_version);
    for (name, value) in [("apiVersion", version), ("fieldPath", &field.field_path)] {
        if value.is_empty() {
            return vec![Error::required(&path.child(name), "")];
        }
    }
    let at = path.child("fieldPath");
    let named = field.field_path.as_str();
    let (parent, key) = split_key(named);
    let wrong = if version != "v1" {
        format!("unsupported pod version: {version}")
    } else if key.is_some() && !["metadata.annotations", "metadata.labels"].contains(&parent) {
        format!("field label does not support subscript: {named}")
    } else if key.is_none() && !FIELDS.contains(&named) {
        format!("field label not supported: {named}")
    } else {
        String::new()
    };
    if !wrong.is_empty() {
        return vec![Error::invalid(&at, named, format!("error converting fieldPath: {wrong}"))];
    }
    match key {
        Some(key) if parent == "metadata.annotations" => {
            let key = key.to_lowercase();
            each(path, &key, qualified_name(&key))
        }
        Some(key) => each(path, key, qualified_name(key)),
        None => {
            let named = if named == "spec.host" { "spec.nodeName" } else { named };
            super::member_of(&at, named, supported)
        }
    }
}

// `metadata.labels['a']` is the field `metadata.labels` with the key `a`.
fn split_key(named: &str) -> (&str, Option<&str>) {
    match named.strip_suffix("']").and_then(|head| head.split_once("['")) {
        Some((parent, key)) if !parent.is_empty() => (parent, Some(key)),
        _ => (named, None),
    }
}

/// Checks a reference to a resource of a container; a volume must say of which.
pub(super) fn validate_resource_ref(
    resource: &ResourceFieldSelector,
    is_volume: bool,
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    let name = resource.resource.as_str();
    let is_hugepages = name.starts_with("limits.hugepages-") || name.starts_with("requests.hugepages-");
    if is_volume && text_of(&resource.container_name).is_empty() {
        errors.push(Error::required(&path.child("containerName"), ""));
    } else if name.is_empty() {
        errors.push(Error::required(&path.child("resource"), ""));
    } else if !is_hugepages {
        errors.extend(super::member_of(&path.child("resource"), name, &RESOURCES));
    }
    let divisor = resource.divisor.as_ref().and_then(|text| text.0.parse::<Quantity>().ok());
    if let Some(divisor) = divisor.filter(|divisor| !divisor.is_zero()) {
        errors.extend(validate_divisor(name, &divisor.to_string(), &path.child("divisor")));
    }
    errors
}

fn validate_divisor(resource: &str, divisor: &str, path: &Path) -> Errors {
    let kind = match resource.split_once('.').map_or("", |(_, kind)| kind) {
        "cpu" if ["1m", "1"].contains(&divisor) => return Errors::new(),
        "cpu" => {
            let text = "only divisor's values 1m and 1 are supported with the cpu resource";
            return vec![Error::invalid(path, resource, text)];
        }
        "memory" => "memory",
        "ephemeral-storage" => "local ephemeral storage",
        kind if kind.starts_with("hugepages-") => "hugepages",
        _ => return Errors::new(),
    };
    if DIVISORS.contains(&divisor) {
        return Errors::new();
    }
    let text =
        format!("only divisor's values {} are supported with the {kind} resource", DIVISORS.join(", "));
    vec![Error::invalid(path, resource, text)]
}

fn validate_key_ref(name: &str, key: &str, path: &Path) -> Errors {
    let mut errors = each(&path.child("name"), name, dns1123_subdomain(name));
    let at = path.child("key");
    errors.extend(required(&at, key));
    errors.extend(each(&at, key, config_key(key)));
    errors
}

fn validate_file_ref(file: &FileKeySelector, path: &Path) -> Errors {
    let key_at = path.child("key");
    let mut errors = required(&key_at, &file.key);
    errors.extend(each(&key_at, &file.key, env_name(&file.key)));
    let at = path.child("volumeName");
    match file.volume_name.as_str() {
        "" => errors.push(Error::required(&at, "")),
        name => errors.extend(each(&at, name, dns1123_label(name))),
    }
    let at = path.child("path");
    errors.extend(required(&at, &file.path));
    errors.extend(no_backsteps(&file.path, &at));
    errors
}

/// Checks `envFrom`.
pub(super) fn validate_env_from(sources: &[EnvFromSource], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, source) in sources.iter().enumerate() {
        let at = path.index(i);
        let prefix = text_of(&source.prefix);
        errors.extend(each(&at.child("prefix"), prefix, env_name(prefix)));
        let config_map = source.config_map_ref.as_ref().map(|source| ("configMapRef", &source.name));
        let secret = source.secret_ref.as_ref().map(|source| ("secretRef", &source.name));
        let named: Vec<_> = [config_map, secret].into_iter().flatten().collect();
        for (field, name) in &named {
            let name_at = at.child(field).child("name");
            match name.as_str() {
                "" => errors.push(Error::required(&name_at, "")),
                // Upstream takes this for the start of a name, which may end in a dash.
                name => errors.extend(each(&name_at, name, dns1123_subdomain(&mask_trailing_dash(name)))),
            }
        }
        match named.len() {
            0 => errors.push(Error::invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")),
            1 => {}
            _ => {
                errors.push(Error::invalid(path, "", "may not have more than one field specified at a time"))
            }
        }
    }
    errors
}

/// Checks that files which variables come from are on volumes that the pod owns.
pub(super) fn validate_file_volumes(spec: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (container, at) in visit_containers(spec, path) {
        for (i, variable) in list(&container.env).iter().enumerate() {
            let Some(file) = variable.value_from.as_ref().and_then(|source| source.file_key_ref.as_ref())
            else {
                continue;
            };
            let at = at.child("env").index(i).child("valueFrom.fileKeyRef.volumeName");
            let name = file.volume_name.as_str();
            match list(&spec.volumes).iter().rfind(|volume| volume.name == name) {
                None => errors.push(Error::not_found(&at, name)),
                Some(volume) if volume.empty_dir.is_none() => {
                    errors.push(Error::invalid(&at, name, "referenced volume must be of type emptyDir"));
                }
                Some(_) => {}
            }
        }
    }
    errors
}
