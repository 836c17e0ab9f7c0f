//! Rules for what containers mount.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, VolumeMount};

use super::text::{descending_path, no_backsteps};
use super::{Context, list, member_of, required, text_of};
use crate::field::{Error, Errors, Path};

/// Checks `volumeMounts`.
pub(super) fn validate_mounts(context: &Context<'_>, container: &Container, path: &Path) -> Errors {
    let (mut errors, mut paths) = (Errors::new(), BTreeSet::new());
    let devices = list(&container.volume_devices);
    for (i, mount) in list(&container.volume_mounts).iter().enumerate() {
        let at = path.index(i);
        let (name_at, path_at) = (at.child("name"), at.child("mountPath"));
        errors.extend(required(&name_at, &mount.name));
        if !context.volumes.contains_key(mount.name.as_str()) {
            errors.push(Error::not_found(&name_at, mount.name.as_str()));
        }
        errors.extend(required(&path_at, &mount.mount_path));
        if !paths.insert(mount.mount_path.as_str()) {
            errors.push(Error::invalid(&path_at, mount.mount_path.as_str(), "must be unique"));
        }
        if devices.iter().any(|device| device.name == mount.name) {
            let text = "must not already exist in volumeDevices";
            errors.push(Error::invalid(&name_at, mount.name.as_str(), text));
        }
        if devices.iter().any(|device| device.device_path == mount.mount_path) {
            let text = "must not already exist as a path in volumeDevices";
            errors.push(Error::invalid(&path_at, mount.mount_path.as_str(), text));
        }
        errors.extend(validate_sub_path(mount, path, &at));
        errors.extend(validate_propagation(mount, container, &path.child("mountPropagation")));
        errors.extend(validate_recursive_read_only(mount, &path.child("recursiveReadOnly")));
    }
    errors
}

// Upstream names the list, not the item, in most of these.
fn validate_sub_path(mount: &VolumeMount, path: &Path, at: &Path) -> Errors {
    let (sub_path, expression) = (text_of(&mount.sub_path), text_of(&mount.sub_path_expr));
    let mut errors = descending_path(sub_path, &path.child("subPath"));
    if !expression.is_empty() && !sub_path.is_empty() {
        let text = "subPathExpr and subPath are mutually exclusive";
        errors.push(Error::invalid(&at.child("subPathExpr"), expression, text));
    }
    errors.extend(descending_path(expression, &path.child("subPathExpr")));
    errors
}

fn validate_propagation(mount: &VolumeMount, container: &Container, path: &Path) -> Errors {
    let Some(mode) = &mount.mount_propagation else { return Errors::new() };
    let mut errors = member_of(path, mode, &["Bidirectional", "HostToContainer", "None"]);
    let is_privileged = container.security_context.as_ref().is_some_and(|c| c.privileged == Some(true));
    if mode == "Bidirectional" && !is_privileged {
        let text = "Bidirectional mount propagation is available only to privileged containers";
        errors.push(Error::forbidden(path, text));
    }
    errors
}

fn validate_recursive_read_only(mount: &VolumeMount, path: &Path) -> Errors {
    let mode = mount.recursive_read_only.as_deref().unwrap_or("Disabled");
    let mut errors = member_of(path, mode, &["Disabled", "Enabled", "IfPossible"]);
    if !["Enabled", "IfPossible"].contains(&mode) {
        return errors;
    }
    if mount.read_only != Some(true) {
        errors.push(Error::forbidden(path, "may only be specified when readOnly is true"));
    }
    if mount.mount_propagation.as_deref().is_some_and(|mode| mode != "None") {
        let text = "may only be specified when mountPropagation is None or not specified";
        errors.push(Error::forbidden(path, text));
    }
    errors
}

/// Checks `volumeDevices`: raw block devices, which only claims can give.
pub(super) fn validate_devices(context: &Context<'_>, container: &Container, path: &Path) -> Errors {
    let (mut errors, mut names, mut paths) = (Errors::new(), BTreeSet::new(), BTreeSet::new());
    let mounts = list(&container.volume_mounts);
    for (i, device) in list(&container.volume_devices).iter().enumerate() {
        let at = path.index(i);
        let (name, target) = (device.name.as_str(), device.device_path.as_str());
        let (name_at, path_at) = (at.child("name"), at.child("devicePath"));
        errors.extend(required(&name_at, name));
        if !name.is_empty() && !names.insert(name) {
            errors.push(Error::invalid(&name_at, name, "must be unique"));
        }
        match context.volumes.get(name) {
            None => errors.push(Error::not_found(&name_at, name)),
            Some(volume) if volume.persistent_volume_claim.is_none() && volume.ephemeral.is_none() => {
                let text =
                    "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode";
                errors.push(Error::invalid(&name_at, name, text));
            }
            Some(_) => {}
        }
        errors.extend(required(&path_at, target));
        if paths.contains(target) {
            errors.push(Error::invalid(&path_at, target, "must be unique"));
        }
        if no_backsteps(target, &path_at).is_empty() {
            paths.insert(target);
        } else {
            errors.push(Error::invalid(&path_at, target, "can not contain backsteps ('..')"));
        }
        if mounts.iter().any(|mount| mount.name == name) {
            errors.push(Error::invalid(&name_at, name, "must not already exist in volumeMounts"));
        }
        if mounts.iter().any(|mount| mount.mount_path == target) {
            let text = "must not already exist as a path in volumeMounts";
            errors.push(Error::invalid(&path_at, target, text));
        }
    }
    errors
}
