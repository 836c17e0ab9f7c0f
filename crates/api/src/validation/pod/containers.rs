//! Rules for containers and init containers.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{Container, ContainerPort, ContainerResizePolicy, ContainerRestartRule};

use super::probes::{validate_lifecycle, validate_probes};
use super::text::{port_name, port_number};
use super::{Context, env, list, member_of, mounts, one_of, required, resources, security, text_of, unique};
use crate::field::{Error, Errors, Path};
use crate::validation::meta::{dns1123_label, each};

const RULES_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;

/// Checks `containers`.
pub(super) fn validate_containers(context: &Context<'_>, path: &Path) -> Errors {
    let containers = &context.spec.containers;
    if containers.is_empty() {
        return vec![Error::required(path, "")];
    }
    let (mut errors, mut names) = (Errors::new(), BTreeSet::new());
    for (i, container) in containers.iter().enumerate() {
        let at = path.index(i);
        errors.extend(validate_container(context, container, &at));
        errors.extend(unique(&mut names, &container.name, &at.child("name")));
        errors.extend(validate_lifecycle(context, container, &at));
        errors.extend(validate_probes(container, &at));
        errors.extend(validate_restart_policy(container, &at));
    }
    // Containers run side by side: no two may have the same port of the host.
    errors.extend(validate_host_ports(containers, path));
    errors
}

/// Checks `initContainers`. One with `restartPolicy: Always` is a sidecar and may have what containers have.
pub(super) fn validate_init_containers(context: &Context<'_>, path: &Path) -> Errors {
    let mut errors = Errors::new();
    let mut names: BTreeSet<&str> =
        context.spec.containers.iter().map(|container| container.name.as_str()).collect();
    for (i, container) in list(&context.spec.init_containers).iter().enumerate() {
        let at = path.index(i);
        let is_sidecar = container.restart_policy.as_deref() == Some("Always");
        errors.extend(validate_container(context, container, &at));
        errors.extend(validate_init_restart_policy(container, &at));
        if !container.name.is_empty() {
            errors.extend(unique(&mut names, &container.name, &at.child("name")));
        }
        // They run one by one. Upstream looks at each alone, and so always names the first.
        errors.extend(validate_host_ports(std::slice::from_ref(container), path));
        if is_sidecar {
            errors.extend(validate_lifecycle(context, container, &at));
            errors.extend(validate_probes(container, &at));
        } else {
            errors.extend(forbid_in_init(container, &at));
        }
    }
    errors
}

fn forbid_in_init(container: &Container, path: &Path) -> Errors {
    let set = [
        ("lifecycle", container.lifecycle.is_some()),
        ("livenessProbe", container.liveness_probe.is_some()),
        ("readinessProbe", container.readiness_probe.is_some()),
        ("startupProbe", container.startup_probe.is_some()),
    ];
    let mut errors = Errors::new();
    for (name, _) in set.into_iter().filter(|(_, is_set)| *is_set) {
        let text = "may not be set for init containers without restartPolicy=Always";
        errors.push(Error::forbidden(&path.child(name), text));
    }
    for (i, policy) in list(&container.resize_policy).iter().enumerate() {
        if policy.restart_policy == "RestartContainer" {
            let at = path.child("resizePolicy").index(i).child("restartPolicy");
            let text = "must not be set to 'RestartContainer' for non-sidecar initContainers";
            errors.push(Error::invalid(&at, policy.restart_policy.as_str(), text));
        }
    }
    errors
}

// What holds for containers of all kinds.
fn validate_container(context: &Context<'_>, container: &Container, path: &Path) -> Errors {
    let name_at = path.child("name");
    let mut errors = match container.name.as_str() {
        "" => vec![Error::required(&name_at, "")],
        name => each(&name_at, name, dns1123_label(name)),
    };
    errors.extend(required(&path.child("image"), text_of(&container.image)));
    let policy = text_of(&container.termination_message_policy);
    let at = path.child("terminationMessagePolicy");
    errors.extend(one_of(&at, policy, &["File", "FallbackToLogsOnError"]));
    errors.extend(validate_ports(list(&container.ports), &path.child("ports")));
    errors.extend(env::validate_env(list(&container.env), &path.child("env")));
    errors.extend(env::validate_env_from(list(&container.env_from), &path.child("envFrom")));
    errors.extend(mounts::validate_mounts(context, container, &path.child("volumeMounts")));
    errors.extend(mounts::validate_devices(context, container, &path.child("volumeDevices")));
    errors
        .extend(validate_pull_policy(text_of(&container.image_pull_policy), &path.child("imagePullPolicy")));
    if let Some(requirements) = &container.resources {
        errors.extend(resources::validate_requirements(requirements, &path.child("resources")));
    }
    errors.extend(validate_resize(context, list(&container.resize_policy), &path.child("resizePolicy")));
    errors.extend(security::validate_security_context(context, container, &path.child("securityContext")));
    errors
}

/// Checks a policy of pulling images, of containers and of volumes.
pub(super) fn validate_pull_policy(policy: &str, path: &Path) -> Errors {
    one_of(path, policy, &["Always", "IfNotPresent", "Never"])
}

/// Checks what only pods must keep: templates of old may hold blanks.
pub(super) fn validate_images(containers: &[Container], path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, container) in containers.iter().enumerate() {
        let image = text_of(&container.image);
        if image.trim() != image {
            let at = path.index(i).child("image");
            errors.push(Error::invalid(&at, image, "must not have leading or trailing whitespace"));
        }
    }
    errors
}

fn validate_ports(ports: &[ContainerPort], path: &Path) -> Errors {
    let (mut errors, mut names) = (Errors::new(), BTreeSet::new());
    for (i, port) in ports.iter().enumerate() {
        let at = path.index(i);
        let name = text_of(&port.name);
        if !name.is_empty() {
            let wrong = port_name(name);
            if wrong.is_empty() {
                errors.extend(unique(&mut names, name, &at.child("name")));
            }
            errors.extend(each(&at.child("name"), name, wrong));
        }
        let number_at = at.child("containerPort");
        if port.container_port == 0 {
            errors.push(Error::required(&number_at, ""));
        } else {
            errors.extend(port_number(port.container_port, &number_at));
        }
        if let Some(host_port) = port.host_port.filter(|host_port| *host_port != 0) {
            errors.extend(port_number(host_port, &at.child("hostPort")));
        }
        errors.extend(one_of(&at.child("protocol"), text_of(&port.protocol), &["SCTP", "TCP", "UDP"]));
    }
    errors
}

fn validate_host_ports(containers: &[Container], path: &Path) -> Errors {
    let (mut errors, mut taken) = (Errors::new(), BTreeSet::new());
    for (i, container) in containers.iter().enumerate() {
        for (j, port) in list(&container.ports).iter().enumerate() {
            let Some(number) = port.host_port.filter(|number| *number != 0) else { continue };
            let id = format!("{}/{}/{number}", text_of(&port.protocol), text_of(&port.host_ip));
            if !taken.insert(id.clone()) {
                let at = path.index(i).child("ports").index(j).child("hostPort");
                errors.push(Error::duplicate(&at, id));
            }
        }
    }
    errors
}

fn validate_resize(context: &Context<'_>, policies: &[ContainerResizePolicy], path: &Path) -> Errors {
    let (mut errors, mut names) = (Errors::new(), BTreeSet::new());
    for (i, policy) in policies.iter().enumerate() {
        errors.extend(unique(&mut names, &policy.resource_name, &path.index(i)));
        errors.extend(one_of(path, &policy.resource_name, &["cpu", "memory"]));
        errors.extend(one_of(path, &policy.restart_policy, &["NotRequired", "RestartContainer"]));
        if context.spec.restart_policy.as_deref() == Some("Never") && policy.restart_policy != "NotRequired" {
            let text = "must be 'NotRequired' when pod `restartPolicy` is 'Never'";
            errors.push(Error::invalid(path, policy.restart_policy.as_str(), text));
        }
    }
    errors
}

fn validate_init_restart_policy(container: &Container, path: &Path) -> Errors {
    if container.restart_policy.is_some() {
        return validate_restart_policy(container, path);
    }
    missing_restart_policy(container, path)
}

fn missing_restart_policy(container: &Container, path: &Path) -> Errors {
    if list(&container.restart_policy_rules).is_empty() {
        return Errors::new();
    }
    let text = "must specify restartPolicy when restart rules are used";
    vec![Error::required(&path.child("restartPolicy"), text)]
}

fn validate_restart_policy(container: &Container, path: &Path) -> Errors {
    let mut errors = match &container.restart_policy {
        None => missing_restart_policy(container, path),
        Some(policy) => member_of(&path.child("restartPolicy"), policy, &["Always", "Never", "OnFailure"]),
    };
    let rules = list(&container.restart_policy_rules);
    let at = path.child("restartPolicyRules");
    if rules.len() > RULES_MAX {
        errors.push(Error::too_many(&at, rules.len(), RULES_MAX));
    }
    for (i, rule) in rules.iter().enumerate() {
        errors.extend(validate_restart_rule(rule, &at.index(i)));
    }
    errors
}

fn validate_restart_rule(rule: &ContainerRestartRule, path: &Path) -> Errors {
    let mut errors = member_of(&path.child("action"), &rule.action, &["Restart", "RestartAllContainers"]);
    let at = path.child("exitCodes");
    let Some(codes) = &rule.exit_codes else {
        errors.push(Error::required(&at, "must be specified"));
        return errors;
    };
    errors.extend(member_of(&at.child("operator"), &codes.operator, &["In", "NotIn"]));
    let count = list(&codes.values).len();
    if count > EXIT_CODES_MAX {
        errors.push(Error::too_many(&at.child("values"), count, EXIT_CODES_MAX));
    }
    errors
}
