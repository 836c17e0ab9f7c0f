//! The Node object of this agent.

use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::agent::Config;

/// Creates the Node, or brings the one of an agent before up to date.
pub(crate) async fn node(config: &Config) -> Result<(), kube::Error> {
    let nodes = kube::Api::<Node>::all(config.client.clone());
    let name = config.node_name.as_str();
    let wanted = object(config, jiff::Timestamp::now());
    let node: Node = serde_json::from_value(wanted.clone()).map_err(kube::Error::SerdeError)?;
    match nodes.create(&PostParams::default(), &node).await {
        Ok(_) => {}
        Err(kube::Error::Api(status)) if status.code == 409 => {
            let labels = json!({"metadata": {"labels": wanted["metadata"]["labels"]}});
            nodes.patch(name, &PatchParams::default(), &Patch::Merge(labels)).await?;
        }
        Err(error) => return Err(error),
    }
    let status = json!({"status": wanted["status"]});
    nodes.patch_status(name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

fn object(config: &Config, now: jiff::Timestamp) -> Value {
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
        "pods": config.capacity.pods.to_string(),
    });
    let since = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |type_: &str, status: &str, reason: &str, message: &str| {
        json!({
            "type": type_, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": since, "lastTransitionTime": since,
        })
    };
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": config.node_name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": capacity,
            "allocatable": capacity,
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": config.node_name},
            ],
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
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
