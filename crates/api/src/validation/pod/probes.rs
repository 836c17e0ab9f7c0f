//! Rules for probes and for what is run at the start and the end of a container.

use k8s_openapi::api::core::v1::{
    Container, ExecAction, GRPCAction, HTTPGetAction, LifecycleHandler, Probe, SleepAction, TCPSocketAction,
};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::text::{header_name, port_name, port_number};
use super::{Context, list, member_of, required, text_of};
use crate::field::{Error, Errors, Path};
use crate::validation::meta::{NOT_NEGATIVE, each};

/// Checks the three probes of a container.
pub(super) fn validate_probes(container: &Container, path: &Path) -> Errors {
    let mut errors = Errors::new();
    if let Some(probe) = &container.liveness_probe {
        errors.extend(validate_deciding_probe(probe, &path.child("livenessProbe")));
    }
    if let Some(probe) = &container.readiness_probe {
        let at = path.child("readinessProbe");
        errors.extend(validate_probe(probe, &at));
        if let Some(seconds) = probe.termination_grace_period_seconds {
            let text = "must not be set for readinessProbes";
            errors.push(Error::invalid(&at.child("terminationGracePeriodSeconds"), seconds, text));
        }
    }
    if let Some(probe) = &container.startup_probe {
        errors.extend(validate_deciding_probe(probe, &path.child("startupProbe")));
    }
    errors
}

// A probe that can end a container is content with one success.
fn validate_deciding_probe(probe: &Probe, path: &Path) -> Errors {
    let mut errors = validate_probe(probe, path);
    let threshold = probe.success_threshold.unwrap_or_default();
    if threshold != 1 {
        errors.push(Error::invalid(&path.child("successThreshold"), threshold, "must be 1"));
    }
    errors
}

fn validate_probe(probe: &Probe, path: &Path) -> Errors {
    let handler = Handler {
        exec: probe.exec.as_ref(),
        http_get: probe.http_get.as_ref(),
        tcp_socket: probe.tcp_socket.as_ref(),
        grpc: probe.grpc.as_ref(),
        sleep: None,
    };
    let mut errors = validate_handler(&handler, None, path);
    let numbers = [
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ];
    for (name, number) in numbers {
        if let Some(number) = number.filter(|number| *number < 0) {
            errors.push(Error::invalid(&path.child(name), number, NOT_NEGATIVE));
        }
    }
    if let Some(seconds) = probe.termination_grace_period_seconds.filter(|seconds| *seconds <= 0) {
        let at = path.child("terminationGracePeriodSeconds");
        errors.push(Error::invalid(&at, seconds, "must be greater than 0"));
    }
    errors
}

/// Checks `lifecycle`.
pub(super) fn validate_lifecycle(context: &Context<'_>, container: &Container, path: &Path) -> Errors {
    let Some(lifecycle) = &container.lifecycle else { return Errors::new() };
    let at = path.child("lifecycle");
    let hooks = [("postStart", &lifecycle.post_start), ("preStop", &lifecycle.pre_stop)];
    let mut errors = Errors::new();
    for (name, hook) in hooks {
        if let Some(hook) = hook {
            let grace = context.spec.termination_grace_period_seconds;
            errors.extend(validate_handler(&Handler::from(hook), grace, &at.child(name)));
        }
    }
    errors
}

/// The ways to do something in a container; exactly one must be there.
struct Handler<'a> {
    exec: Option<&'a ExecAction>,
    http_get: Option<&'a HTTPGetAction>,
    tcp_socket: Option<&'a TCPSocketAction>,
    grpc: Option<&'a GRPCAction>,
    sleep: Option<&'a SleepAction>,
}

impl<'a> From<&'a LifecycleHandler> for Handler<'a> {
    fn from(hook: &'a LifecycleHandler) -> Self {
        Self {
            exec: hook.exec.as_ref(),
            http_get: hook.http_get.as_ref(),
            tcp_socket: hook.tcp_socket.as_ref(),
            grpc: None,
            sleep: hook.sleep.as_ref(),
        }
    }
}

fn validate_handler(handler: &Handler<'_>, grace: Option<i64>, path: &Path) -> Errors {
    let child = |name: &str| path.child(name);
    let found = [
        ("exec", handler.exec.map(|exec| validate_exec(exec, &child("exec")))),
        ("httpGet", handler.http_get.map(|get| validate_http_get(get, &child("httpGet")))),
        ("tcpSocket", handler.tcp_socket.map(|tcp| validate_port(&tcp.port, &child("tcpSocket.port")))),
        ("grpc", handler.grpc.map(|grpc| port_number(grpc.port, &child("grpc.port")))),
        ("sleep", handler.sleep.map(|sleep| validate_sleep(sleep, grace, &child("sleep")))),
    ];
    let mut found = found.into_iter().filter_map(|(name, errors)| Some((name, errors?)));
    let Some((_, mut errors)) = found.next() else {
        return vec![Error::required(path, "must specify a handler type")];
    };
    for (name, _) in found {
        errors.push(Error::forbidden(&child(name), "may not specify more than 1 handler type"));
    }
    errors
}

fn validate_exec(exec: &ExecAction, path: &Path) -> Errors {
    if list(&exec.command).is_empty() {
        vec![Error::required(&path.child("command"), "")]
    } else {
        Errors::new()
    }
}

fn validate_http_get(get: &HTTPGetAction, path: &Path) -> Errors {
    let mut errors = required(&path.child("path"), text_of(&get.path));
    errors.extend(validate_port(&get.port, &path.child("port")));
    errors.extend(member_of(&path.child("scheme"), text_of(&get.scheme), &["HTTP", "HTTPS"]));
    for header in list(&get.http_headers) {
        errors.extend(each(&path.child("httpHeaders"), &header.name, header_name(&header.name)));
    }
    errors
}

fn validate_port(port: &IntOrString, path: &Path) -> Errors {
    match port {
        IntOrString::Int(number) => port_number(*number, path),
        IntOrString::String(name) => each(path, name, port_name(name)),
    }
}

fn validate_sleep(sleep: &SleepAction, grace: Option<i64>, path: &Path) -> Errors {
    match grace {
        Some(grace) if !(0..=grace).contains(&sleep.seconds) => {
            let text = format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
            vec![Error::invalid(path, sleep.seconds, text)]
        }
        _ => Errors::new(),
    }
}
