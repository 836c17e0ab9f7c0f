//! `windlass shutdown`: asks a node of a server to end its pods, as before its machine is switched off, and waits for it.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{ListParams, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio::time::Instant;
use windlass_node::shutdown::ANNOTATION;

use crate::{EXIT_FAILED, durations, reach, with_threads};

/// How often to look how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// How many pods to look at; more than a node runs.
const PODS_MAX: u32 = 5_000;

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The node.
    pub node: String,
    /// It is to take pods again.
    pub is_cancelled: bool,
    /// How long to wait for it.
    pub timeout: Duration,
    /// How to reach the server.
    pub kubeconfig: Option<PathBuf>,
}

/// Asks, and waits until it is done.
pub fn main(options: &Options) -> ExitCode {
    crate::log_to_stderr("off");
    with_threads(async {
        match ask(options).await {
            Ok(said) => {
                eprintln!("{said}");
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(EXIT_FAILED)
            }
        }
    })
}

async fn ask(options: &Options) -> Result<String, String> {
    let (client, _) = reach::server(options.kubeconfig.as_deref()).await?;
    let (name, nodes) = (options.node.as_str(), Api::<Node>::all(client.clone()));
    let failed = |error: kube::Error| match error {
        kube::Error::Api(status) if status.is_not_found() => {
            format!("there is no node {name:?}\nhint: kubectl get nodes lists them")
        }
        error => reach::failed(&error),
    };
    let node = nodes.get(name).await.map_err(failed)?;
    if !is_ours(&node) {
        return Err(format!(
            "node {name:?} is not run by windlass, and would not hear of it\nhint: kubectl drain {name} ends its pods"
        ));
    }
    let wanted = if options.is_cancelled { Value::Null } else { json!("true") };
    let patch = Patch::Merge(json!({"metadata": {"annotations": {ANNOTATION: wanted}}}));
    nodes.patch(name, &PatchParams::default(), &patch).await.map_err(failed)?;
    let give_up = Instant::now() + options.timeout;
    let mut said = None;
    loop {
        let is_ready = is_ready(&nodes.get(name).await.map_err(failed)?);
        let running = if options.is_cancelled { 0 } else { running(&client, name).await.map_err(failed)? };
        if is_ready == options.is_cancelled && running == 0 {
            return Ok(match options.is_cancelled {
                true => format!("node/{name}: takes pods again"),
                false => format!("node/{name}: has shut down, no pods run"),
            });
        }
        if Instant::now() >= give_up {
            let timeout = durations::text(durations::signed(options.timeout));
            return Err(match is_ready == options.is_cancelled {
                true => format!(
                    "after {timeout} {running} pods of node {name:?} still run\nhint: give a longer --timeout"
                ),
                false => format!(
                    "node {name:?} did not answer within {timeout}\nhint: look whether its agent runs"
                ),
            });
        }
        if !options.is_cancelled && said.replace(running) != Some(running) {
            eprintln!("node/{name}: shuts down, {running} pods run");
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Whether an agent of ours reports for the node.
fn is_ours(node: &Node) -> bool {
    let info = node.status.as_ref().and_then(|status| status.node_info.as_ref());
    info.is_some_and(|info| info.kubelet_version.starts_with("windlass-"))
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|one| one.type_ == "Ready" && one.status == "True")
}

/// How many pods of a node have not ended.
async fn running(client: &Client, node: &str) -> kube::Result<usize> {
    let of_node = ListParams::default().fields(&format!("spec.nodeName={node}")).limit(PODS_MAX);
    let pods = Api::<Pod>::all(client.clone()).list(&of_node).await?.items;
    let has_ended = |pod: &Pod| {
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    Ok(pods.iter().filter(|pod| !has_ended(pod)).count())
}
