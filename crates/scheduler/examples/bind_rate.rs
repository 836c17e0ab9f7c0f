//! How many pods a second the scheduler binds in one process with the API server: `cargo run --release
//! --example bind_rate`.

use std::time::Instant;

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use windlass_scheduler::Scheduler;

const PODS: usize = 10_000;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = windlass_apiserver::Server::new(windlass_apiserver::Config::default());
    let client = kube::Client::new(server.router(), "default");
    let (pods, nodes) = (Api::<Pod>::default_namespaced(client.clone()), Api::<Node>::all(client.clone()));
    for i in 0..100 {
        let name = format!("n{i:03}");
        let node = serde_json::from_value(json!({"metadata": {"name": name}}))?;
        nodes.create(&PostParams::default(), &node).await?;
        let status = json!({"status": {"allocatable": {"cpu": "100", "pods": "110"}}});
        nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    }
    let start = Instant::now();
    for i in 0..PODS {
        let container = json!({"name": "c", "image": "host", "resources": {"requests": {"cpu": "1"}}});
        let pod = json!({"metadata": {"name": format!("p{i}")}, "spec": {"containers": [container]}});
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    }
    println!("{PODS} pods created one by one in {:?}", start.elapsed());
    let start = Instant::now();
    let cancel = CancellationToken::new();
    tokio::spawn(Scheduler::new(client).run(cancel.clone()));
    let bound = watcher(pods, watcher::Config::default()).filter_map(|event| async move {
        match event {
            Ok(watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) => {
                pod.spec.and_then(|spec| spec.node_name).map(|_| ())
            }
            _ => None,
        }
    });
    bound.take(PODS).collect::<Vec<()>>().await;
    let elapsed = start.elapsed();
    println!("{PODS} pods bound in {elapsed:?}: {:.0} a second", PODS as f64 / elapsed.as_secs_f64());
    cancel.cancel();
    Ok(())
}
