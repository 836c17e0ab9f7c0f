//! Rules for what a pod and its containers may do to the machine.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{
    AppArmorProfile, Container, PodSecurityContext, PodSpec, SeccompProfile, SecurityContext,
};

use super::text::descending_path;
use super::{Context, list, member_of, unique, visit_containers};
use crate::field::{Error, Errors, Path};
use crate::validation::meta::json;

const APPARMOR_BYTES_MAX: usize = 4095;
const SYSCTL_BYTES_MAX: usize = 253;
const SYSCTL: &str = r"^([a-z0-9]([-_a-z0-9]*[a-z0-9])?[\./])*[a-z0-9]([-_a-z0-9]*[a-z0-9])?$";

/// Settings of the namespace for communication between processes, beside those of message queues.
const IPC_SYSCTLS: [&str; 10] = [
    "kernel.sem",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
    "kernel.shm_rmid_forced",
    "kernel.shm",
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.msg",
];

/// Checks `securityContext` of the pod.
pub(super) fn validate_pod_security_context(spec: &PodSpec, path: &Path) -> Errors {
    let Some(context) = &spec.security_context else { return Errors::new() };
    let mut errors = validate_id(context.fs_group, &path.child("fsGroup"));
    errors.extend(validate_id(context.run_as_user, &path.child("runAsUser")));
    errors.extend(validate_id(context.run_as_group, &path.child("runAsGroup")));
    for (i, group) in list(&context.supplemental_groups).iter().enumerate() {
        errors.extend(validate_id(Some(*group), &path.child("supplementalGroups").index(i)));
    }
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        let text = "ShareProcessNamespace and HostPID cannot both be enabled";
        errors.push(Error::invalid(&path.child("shareProcessNamespace"), true, text));
    }
    errors.extend(validate_sysctls(spec, context, &path.child("sysctls")));
    if let Some(policy) = &context.fs_group_change_policy {
        errors.extend(member_of(&path.child("fsGroupChangePolicy"), policy, &["Always", "OnRootMismatch"]));
    }
    errors.extend(validate_profiles(&context.seccomp_profile, &context.app_armor_profile, path));
    if let Some(policy) = &context.supplemental_groups_policy {
        errors.extend(member_of(&path.child("supplementalGroupsPolicy"), policy, &["Merge", "Strict"]));
    }
    // Mounting with a label is a feature of v1.36 that is off.
    if let Some(policy) = &context.se_linux_change_policy {
        errors.extend(member_of(&path.child("seLinuxChangePolicy"), policy, &["Recursive"]));
    }
    errors
}

fn validate_id(id: Option<i64>, path: &Path) -> Errors {
    match id {
        Some(id) if !(0..=i64::from(i32::MAX)).contains(&id) => {
            vec![Error::invalid(path, id, "must be between 0 and 2147483647, inclusive")]
        }
        _ => Errors::new(),
    }
}

fn validate_sysctls(spec: &PodSpec, context: &PodSecurityContext, path: &Path) -> Errors {
    let (mut errors, mut names) = (Errors::new(), BTreeSet::new());
    for (i, sysctl) in list(&context.sysctls).iter().enumerate() {
        let at = path.index(i).child("name");
        let name = sysctl.name.as_str();
        if name.is_empty() {
            errors.push(Error::required(&at, ""));
        } else if !is_sysctl(name) {
            let text = format!("must have at most {SYSCTL_BYTES_MAX} characters and match regex {SYSCTL}");
            errors.push(Error::invalid(&at, name, text));
        } else {
            errors.extend(unique(&mut names, name, &at));
        }
        errors.extend(validate_host_sysctl(spec, name, &at));
    }
    errors
}

fn is_sysctl(name: &str) -> bool {
    let is_word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        bytes.first().is_some_and(|b| is_word(*b))
            && bytes.last().is_some_and(|b| is_word(*b))
            && bytes.iter().all(|b| is_word(*b) || b"-_".contains(b))
    };
    name.len() <= SYSCTL_BYTES_MAX && name.split(['.', '/']).all(is_part)
}

// A setting of a namespace can't be changed where the pod has the host's.
fn validate_host_sysctl(spec: &PodSpec, name: &str, path: &Path) -> Errors {
    let name_with_dots = name.replace('/', ".");
    let is_ipc = IPC_SYSCTLS.contains(&name_with_dots.as_str()) || name_with_dots.starts_with("fs.mqueue.");
    let text = if spec.host_network == Some(true) && name_with_dots.starts_with("net.") {
        "may not be specified when 'hostNetwork' is true"
    } else if spec.host_ipc == Some(true) && is_ipc {
        "may not be specified when 'hostIPC' is true"
    } else {
        return Errors::new();
    };
    vec![Error::invalid(path, name, text)]
}

fn validate_profiles(
    seccomp: &Option<SeccompProfile>,
    apparmor: &Option<AppArmorProfile>,
    path: &Path,
) -> Errors {
    let mut errors = Errors::new();
    if let Some(profile) = seccomp {
        errors.extend(validate_seccomp(profile, &path.child("seccompProfile")));
    }
    if let Some(profile) = apparmor {
        errors.extend(validate_apparmor(profile, &path.child("appArmorProfile")));
    }
    errors
}

fn validate_seccomp(profile: &SeccompProfile, path: &Path) -> Errors {
    let supported = ["Localhost", "RuntimeDefault", "Unconfined"];
    let mut errors = match profile.type_.as_str() {
        "" => vec![Error::required(&path.child("type"), "type is required when seccompProfile is set")],
        kind => member_of(&path.child("type"), kind, &supported),
    };
    let at = path.child("localhostProfile");
    match (&profile.localhost_profile, profile.type_ == "Localhost") {
        (None, true) => errors.push(Error::required(&at, "must be set when seccomp type is Localhost")),
        (Some(file), true) => errors.extend(descending_path(file, &at)),
        (Some(_), false) => {
            errors.push(Error::invalid(&at, json(profile), "can only be set when seccomp type is Localhost"));
        }
        (None, false) => {}
    }
    errors
}

fn validate_apparmor(profile: &AppArmorProfile, path: &Path) -> Errors {
    let at = path.child("localhostProfile");
    let missing = || Error::required(&at, "must be set when AppArmor type is Localhost");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("Localhost", None) => vec![missing()],
        ("Localhost", Some(name)) => {
            let mut errors = Errors::new();
            if name.trim() != name {
                errors.push(Error::invalid(&at, name.as_str(), "must not be padded with whitespace"));
            } else if name.is_empty() {
                errors.push(missing());
            }
            if name.len() > APPARMOR_BYTES_MAX {
                errors.push(Error::too_long(&at, APPARMOR_BYTES_MAX));
            }
            errors
        }
        ("RuntimeDefault" | "Unconfined", None) => Errors::new(),
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            let text = "can only be set when AppArmor type is Localhost";
            vec![Error::invalid(&at, name.as_str(), text)]
        }
        ("", _) => vec![Error::required(&path.child("type"), "type is required when appArmorProfile is set")],
        (kind, _) => member_of(&path.child("type"), kind, &["Localhost", "RuntimeDefault", "Unconfined"]),
    }
}

/// Checks `securityContext` of a container. Privileged containers are allowed.
pub(super) fn validate_security_context(context: &Context<'_>, container: &Container, path: &Path) -> Errors {
    let Some(security) = &container.security_context else { return Errors::new() };
    let mut errors = validate_id(security.run_as_user, &path.child("runAsUser"));
    errors.extend(validate_id(security.run_as_group, &path.child("runAsGroup")));
    if let Some(kind) = &security.proc_mount {
        let at = path.child("procMount");
        errors.extend(member_of(&at, kind, &["Default", "Unmasked"]));
        if context.host_users && kind == "Unmasked" {
            let text = "`hostUsers` must be false to use `Unmasked`";
            errors.push(Error::invalid(&at, kind.as_str(), text));
        }
    }
    if let Some(profile) = &security.seccomp_profile {
        errors.extend(validate_seccomp(profile, &path.child("seccompProfile")));
    }
    errors.extend(validate_escalation(security, path));
    if let Some(profile) = &security.app_armor_profile {
        errors.extend(validate_apparmor(profile, &path.child("appArmorProfile")));
    }
    errors
}

// Who has all rights can't be kept from gaining more.
fn validate_escalation(security: &SecurityContext, path: &Path) -> Errors {
    if security.allow_privilege_escalation != Some(false) {
        return Errors::new();
    }
    let mut errors = Errors::new();
    if security.privileged == Some(true) {
        let text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true";
        errors.push(Error::invalid(path, json(security), text));
    }
    let added = security.capabilities.iter().flat_map(|capabilities| list(&capabilities.add));
    for _ in added.filter(|capability| *capability == "CAP_SYS_ADMIN") {
        let text = "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` CAP_SYS_ADMIN";
        errors.push(Error::invalid(path, json(security), text));
    }
    errors
}

/// Checks what a pod with users of its own may not share with the host.
pub(super) fn validate_host_users(context: &Context<'_>, path: &Path) -> Errors {
    if context.host_users {
        return Errors::new();
    }
    let spec = context.spec;
    let shared = [("hostNetwork", spec.host_network), ("HostPID", spec.host_pid), ("HostIPC", spec.host_ipc)];
    let mut errors = Errors::new();
    for (name, _) in shared.into_iter().filter(|(_, shared)| *shared == Some(true)) {
        errors.push(Error::forbidden(&path.child(name), "when `hostUsers` is false"));
    }
    for (container, at) in visit_containers(spec, path) {
        if !list(&container.volume_devices).is_empty() {
            errors.push(Error::forbidden(&at.child("volumeDevices"), "when `hostUsers` is false"));
        }
    }
    errors
}
