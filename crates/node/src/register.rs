//! The Node object of this agent, its conditions, and the lease that says that it is alive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::agent::Config;
use crate::isolation::{self, Isolation};
use crate::pod::Context;
use crate::shutdown;

/// How often the lease is renewed (upstream: a quarter of its duration).
const RENEW_EVERY: Duration = Duration::from_secs(10);
/// Without a renewal for this long a node is not believed to be alive.
const LEASE_SECONDS: i32 = 40;
/// How often the status is sent when nothing has changed (nodeStatusReportFrequency).
const REPORT_EVERY: Duration = Duration::from_secs(300);
/// Where leases of nodes are.
const LEASES: &str = "kube-node-lease";

/// What the node says about itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    /// Its conditions of pressure that are true.
    pub(crate) pressure: Vec<&'static str>,
    /// It shuts down.
    pub(crate) is_closing: bool,
}

/// Creates the Node, or brings the one of an agent before up to date.
pub(crate) async fn node(config: &Config, isolation: Isolation) -> Result<(), kube::Error> {
    let nodes = kube::Api::<Node>::all(config.client.clone());
    let name = config.node_name.as_str();
    let wanted = object(config, isolation, Timestamp::now());
    let node: Node = serde_json::from_value(wanted.clone()).map_err(kube::Error::SerdeError)?;
    match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let mut facts = json!({"metadata": {
                "labels": wanted["metadata"]["labels"], "annotations": wanted["metadata"]["annotations"],
            }});
            // A shutdown that was asked for is over when the node comes back from it.
            facts["metadata"]["annotations"][shutdown::ANNOTATION] = Value::Null;
            nodes.patch(name, &PatchParams::default(), &Patch::Merge(facts)).await?;
        }
        Err(error) => return Err(error),
    }
    let status = json!({"status": wanted["status"]});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// Keeps the Node and its lease fresh, until nobody changes `health` any more.
pub(crate) async fn keep_alive(context: std::sync::Weak<Context>, mut health: watch::Receiver<Health>) {
    let mut ticks = tokio::time::interval(RENEW_EVERY);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut since = BTreeMap::new();
    // What was said when the node was registered.
    conditions(&Health::default(), &mut since, Timestamp::now());
    let mut reported = tokio::time::Instant::now();
    // Something has changed that the API server does not know yet.
    let mut is_changed = false;
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            changed = health.changed() => match changed {
                Ok(()) => is_changed = true,
                Err(_) => return,
            },
        }
        let Some(context) = context.upgrade() else { return };
        let config = &context.config;
        if let Err(error) = renew(config).await {
            tracing::warn!(%error, "renew the lease of the node");
        }
        let is_doubted = is_doubted(config).await;
        if is_doubted {
            // What the others believed in between is over as of now.
            since.clear();
        }
        if is_changed || is_doubted || reported.elapsed() >= REPORT_EVERY {
            let health = health.borrow_and_update().clone();
            let conditions = conditions(&health, &mut since, Timestamp::now());
            match report(&context, conditions, health.is_closing).await {
                Ok(()) => (reported, is_changed) = (tokio::time::Instant::now(), false),
                Err(error) => tracing::warn!(%error, "report the status of the node"),
            }
        }
    }
}

/// Whether the node was given up while it could not be heard, as when a machine sleeps.
async fn is_doubted(config: &Config) -> bool {
    let nodes = kube::Api::<Node>::all(config.client.clone());
    let Ok(node) = nodes.get(&config.node_name).await else { return false };
    let conditions = node.status.and_then(|status| status.conditions).unwrap_or_default();
    conditions.iter().any(|one| one.type_ == "Ready" && one.status == "Unknown")
}

async fn report(context: &Arc<Context>, conditions: Value, is_closing: bool) -> Result<(), kube::Error> {
    let config = &context.config;
    let nodes = kube::Api::<Node>::all(config.client.clone());
    let patch = Patch::Strategic(json!({"status": {"conditions": conditions}}));
    match nodes.patch_status(&config.node_name, &PatchParams::default(), &patch).await {
        Ok(_) => Ok(()),
        // Somebody has deleted it. It is still here, unless it is about to leave.
        Err(kube::Error::Api(status)) if status.code == 404 && is_closing => Ok(()),
        Err(kube::Error::Api(status)) if status.code == 404 => node(config, context.isolation).await,
        Err(error) => Err(error),
    }
}

async fn renew(config: &Config) -> Result<(), kube::Error> {
    let leases = kube::Api::<Lease>::namespaced(config.client.clone(), LEASES);
    let now = Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let spec = json!({
        "holderIdentity": config.node_name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now,
    });
    let patch = Patch::Merge(json!({"spec": spec}));
    match leases.patch(&config.node_name, &PatchParams::default(), &patch).await {
        Err(kube::Error::Api(status)) if status.code == 404 => {}
        result => return result.map(drop),
    }
    let node = kube::Api::<Node>::all(config.client.clone()).get(&config.node_name).await?;
    let owner =
        json!({"apiVersion": "v1", "kind": "Node", "name": config.node_name, "uid": node.metadata.uid});
    let lease = json!({"metadata": {"name": config.node_name, "ownerReferences": [owner]}, "spec": spec});
    let lease = serde_json::from_value(lease).map_err(kube::Error::SerdeError)?;
    leases.create(&PostParams::default(), &lease).await.map(drop)
}

/// The conditions of a node; `since` remembers when each changed.
fn conditions(
    health: &Health,
    since: &mut BTreeMap<&'static str, (bool, Timestamp)>,
    now: Timestamp,
) -> Value {
    let mut condition = |type_: &'static str, is_true: bool, reason: &str, message: &str| {
        let known = since.get(type_).filter(|(was_true, _)| *was_true == is_true).map(|(_, at)| *at);
        let at = known.unwrap_or(now);
        since.insert(type_, (is_true, at));
        let text = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        json!({
            "type": type_, "status": if is_true { "True" } else { "False" }, "reason": reason, "message": message,
            "lastHeartbeatTime": text(now), "lastTransitionTime": text(at),
        })
    };
    let has = |type_: &str| health.pressure.contains(&type_);
    let memory = match has("MemoryPressure") {
        true => ("KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
        false => ("KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    };
    let disk = match has("DiskPressure") {
        true => ("KubeletHasDiskPressure", "kubelet has disk pressure"),
        false => ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    };
    let pids = match has("PIDPressure") {
        true => ("KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
        false => ("KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    };
    let ready = match health.is_closing {
        true => ("KubeletNotReady", "node is shutting down"),
        false => ("KubeletReady", "kubelet is posting ready status"),
    };
    json!([
        condition("MemoryPressure", has("MemoryPressure"), memory.0, memory.1),
        condition("DiskPressure", has("DiskPressure"), disk.0, disk.1),
        condition("PIDPressure", has("PIDPressure"), pids.0, pids.1),
        condition("Ready", !health.is_closing, ready.0, ready.1),
    ])
}

fn object(config: &Config, isolation: Isolation, now: Timestamp) -> Value {
    let uname = rustix::system::uname();
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let mut labels = json!({
        "kubernetes.io/hostname": config.node_name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": arch,
    });
    for (name, value) in &config.labels {
        labels[name] = json!(value);
    }
    let capacity = json!({
        "cpu": config.capacity.cpu.to_string(),
        "memory": config.capacity.memory.to_string(),
        "ephemeral-storage": config.capacity.storage.to_string(),
        "pods": config.capacity.pods.to_string(),
    });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": config.node_name, "labels": labels,
            "annotations": {isolation::ANNOTATION: isolation.to_string()},
        },
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": config.node_name},
            ],
            "conditions": conditions(&Health::default(), &mut BTreeMap::new(), now),
            "nodeInfo": {
                "architecture": arch,
                "bootID": "",
                "containerRuntimeVersion": concat!("host://", env!("CARGO_PKG_VERSION")),
                "kernelVersion": uname.release().to_string_lossy(),
                "kubeProxyVersion": "",
                "kubeletVersion": concat!("windlass-", env!("CARGO_PKG_VERSION")),
                "machineID": "",
                "operatingSystem": "linux",
                "osImage": uname.sysname().to_string_lossy(),
                "systemUUID": "",
            },
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::fixtures::at;

    #[test]
    fn conditions_say_what_is_short_and_since_when() {
        let mut since = BTreeMap::new();
        let brief = |conditions: &Value| -> Vec<String> {
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let all = conditions.as_array().expect("a list").iter();
            all.map(|c| {
                format!("{}={} {}", text(&c["type"]), text(&c["status"]), text(&c["lastTransitionTime"]))
            })
            .collect()
        };
        let first = conditions(&Health::default(), &mut since, at(0));
        assert_eq!(brief(&first)[3], "Ready=True 1970-01-01T00:00:00Z");
        let health = Health { pressure: vec!["DiskPressure"], is_closing: true };
        let second = conditions(&health, &mut since, at(60));
        assert_eq!(
            brief(&second),
            [
                "MemoryPressure=False 1970-01-01T00:00:00Z",
                "DiskPressure=True 1970-01-01T00:01:00Z",
                "PIDPressure=False 1970-01-01T00:00:00Z",
                "Ready=False 1970-01-01T00:01:00Z",
            ]
        );
        assert_eq!(second[3]["message"], "node is shutting down");
    }
}
