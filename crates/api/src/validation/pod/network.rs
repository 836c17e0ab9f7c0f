//! Rules for names, addresses and ports that a pod has on the network.

use k8s_openapi::api::core::v1::PodSpec;

use super::text::ip;
use super::{Context, list, one_of, text_of};
use crate::field::{Error, Errors, Path};
use crate::validation::meta::{dns1123_subdomain, dns1123_subdomain_with_underscore, each, json};

const NAMESERVERS_MAX: usize = 3;
const SEARCHES_MAX: usize = 32;
const SEARCHES_BYTES_MAX: usize = 2048;
const HOSTNAME_BYTES_MAX: usize = 64;

/// On the network of the host, a container's port is the host's port. A template may leave it to the pods.
pub(super) fn validate_host_ports(context: &Context<'_>, path: &Path) -> Errors {
    if context.spec.host_network != Some(true) {
        return Errors::new();
    }
    let mut errors = Errors::new();
    for (i, container) in context.spec.containers.iter().enumerate() {
        let at = path.child("containers").index(i).child("ports");
        for (j, port) in list(&container.ports).iter().enumerate() {
            let host_port = port.host_port.unwrap_or_default();
            if (context.is_pod() || host_port != 0) && host_port != port.container_port {
                let text = "must match `containerPort` when `hostNetwork` is true";
                errors.push(Error::invalid(&at.index(j).child("hostPort"), host_port, text));
            }
        }
    }
    errors
}

/// Checks `dnsPolicy`.
pub(super) fn validate_dns_policy(spec: &PodSpec, path: &Path) -> Errors {
    let supported = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    one_of(path, text_of(&spec.dns_policy), &supported)
}

/// Checks `dnsConfig`, which the policy `None` needs.
pub(super) fn validate_dns_config(spec: &PodSpec, path: &Path) -> Errors {
    let is_none = spec.dns_policy.as_deref() == Some("None");
    let Some(config) = &spec.dns_config else {
        let text = "must provide `dnsConfig` when `dnsPolicy` is None";
        return if is_none { vec![Error::required(path, text)] } else { Errors::new() };
    };
    let (servers, searches) = (list(&config.nameservers), list(&config.searches));
    let servers_at = path.child("nameservers");
    if is_none && servers.is_empty() {
        let text = "must provide at least one DNS nameserver when `dnsPolicy` is None";
        return vec![Error::required(&servers_at, text)];
    }
    let mut errors = Errors::new();
    if servers.len() > NAMESERVERS_MAX {
        let text = format!("must not have more than {NAMESERVERS_MAX} nameservers");
        errors.push(Error::invalid(&servers_at, json(&servers), text));
    }
    for (i, server) in servers.iter().enumerate() {
        errors.extend(ip(server, &servers_at.index(i)));
    }
    errors.extend(validate_searches(searches, &path.child("searches")));
    for (i, option) in list(&config.options).iter().enumerate() {
        if text_of(&option.name).is_empty() {
            errors.push(Error::required(&path.child("options").index(i), "must not be empty"));
        }
    }
    errors
}

fn validate_searches(searches: &[String], path: &Path) -> Errors {
    let mut errors = Errors::new();
    if searches.len() > SEARCHES_MAX {
        let text = format!("must not have more than {SEARCHES_MAX} search paths");
        errors.push(Error::invalid(path, json(&searches), text));
    }
    if searches.join(" ").len() > SEARCHES_BYTES_MAX {
        let text = format!(
            "must not have more than {SEARCHES_BYTES_MAX} characters (including spaces) in the search list"
        );
        errors.push(Error::invalid(path, json(&searches), text));
    }
    for (i, search) in searches.iter().enumerate().filter(|(_, search)| *search != ".") {
        let name = search.strip_suffix('.').unwrap_or(search);
        errors.extend(each(&path.index(i), name, dns1123_subdomain_with_underscore(name)));
    }
    errors
}

/// Checks `hostnameOverride`.
pub(super) fn validate_hostname_override(spec: &PodSpec, path: &Path) -> Errors {
    let Some(name) = &spec.hostname_override else { return Errors::new() };
    let mut errors = Errors::new();
    if spec.set_hostname_as_fqdn == Some(true) {
        errors.push(Error::forbidden(path, "may not be specified when setHostnameAsFQDN is true"));
    }
    if spec.host_network == Some(true) {
        errors.push(Error::forbidden(path, "may not be specified when hostNetwork is true"));
    }
    if name.len() > HOSTNAME_BYTES_MAX {
        errors.push(Error::too_long(path, HOSTNAME_BYTES_MAX));
    }
    errors.extend(each(path, name, dns1123_subdomain(name)));
    errors
}

/// Checks `hostAliases`.
pub(super) fn validate_host_aliases(spec: &PodSpec, path: &Path) -> Errors {
    let mut errors = Errors::new();
    for (i, alias) in list(&spec.host_aliases).iter().enumerate() {
        let at = path.index(i);
        errors.extend(ip(&alias.ip, &at.child("ip")));
        for (j, name) in list(&alias.hostnames).iter().enumerate() {
            errors.extend(each(&at.child("hostnames").index(j), name, dns1123_subdomain(name)));
        }
    }
    errors
}
