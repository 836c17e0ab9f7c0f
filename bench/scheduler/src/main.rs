//! How many pods a second the scheduler binds on 100 nodes, in one process with the API server, as `windlass server`
//! runs both. Ends with an error when the bar is missed.

use std::pin::pin;
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use windlass_scheduler::Scheduler;

const NODES: usize = 100;
const ZONES: usize = 5;
/// Pods a second that must be bound when pods only ask for resources.
const BAR: f64 = 1000.0;

/// Pods of a kind.
struct Load {
    name: &'static str,
    pods: usize,
    spec: fn() -> Value,
    bar: Option<f64>,
}

fn constraint(when: &str) -> Value {
    json!({"topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": when, "labelSelector": {"matchLabels": {"app": "load"}},
    }]})
}

fn anti_affinity() -> Value {
    let term =
        json!({"labelSelector": {"matchLabels": {"app": "load"}}, "topologyKey": "kubernetes.io/hostname"});
    json!({"affinity": {"podAntiAffinity": {
        "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": term}],
    }}})
}

const LOADS: [Load; 4] = [
    Load { name: "resources only", pods: 10_000, spec: || json!({}), bar: Some(BAR) },
    Load { name: "spread, required", pods: 2_000, spec: || constraint("DoNotSchedule"), bar: None },
    Load { name: "spread, preferred", pods: 2_000, spec: || constraint("ScheduleAnyway"), bar: None },
    Load { name: "anti-affinity, preferred", pods: 2_000, spec: anti_affinity, bar: None },
];

#[tokio::main]
async fn main() -> ExitCode {
    println!("| pods on {NODES} nodes | pods | seconds | pods a second | bar |\n|---|---|---|---|---|");
    let mut is_missed = false;
    for load in &LOADS {
        let rate = match measure(load).await {
            Ok(seconds) => {
                let rate = load.pods as f64 / seconds;
                let bar = load.bar.map_or_else(|| "-".to_owned(), |bar| format!("{bar:.0}"));
                println!("| {} | {} | {seconds:.2} | {rate:.0} | {bar} |", load.name, load.pods);
                rate
            }
            Err(error) => {
                eprintln!("error: {}: {error:#}", load.name);
                return ExitCode::from(2);
            }
        };
        is_missed |= load.bar.is_some_and(|bar| rate < bar);
    }
    if is_missed {
        println!("MISSED");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

/// Seconds from the start of the scheduler until the last of all pods, which wait already, is seen to be bound.
async fn measure(load: &Load) -> Result<f64> {
    let server = windlass_apiserver::Server::new(windlass_apiserver::Config::default());
    let client = Client::new(server.router(), "default");
    let nodes: Api<Node> = Api::all(client.clone());
    for i in 0..NODES {
        make_node(&nodes, i).await.context("make the nodes")?;
    }
    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    for i in 0..load.pods {
        make_pod(&pods, i, (load.spec)()).await.context("make the pods")?;
    }
    let (start, cancel) = (Instant::now(), CancellationToken::new());
    let scheduler = tokio::spawn(Scheduler::new(client).run(cancel.clone()));
    until_bound(pods, load.pods).await?;
    let seconds = start.elapsed().as_secs_f64();
    cancel.cancel();
    scheduler.await.context("the scheduler")?;
    Ok(seconds)
}

async fn make_node(nodes: &Api<Node>, i: usize) -> Result<()> {
    let name = format!("n{i:03}");
    let labels = json!({"kubernetes.io/hostname": name, "zone": format!("z{}", i % ZONES)});
    let node = serde_json::from_value(json!({"metadata": {"name": name, "labels": labels}}))?;
    nodes.create(&PostParams::default(), &node).await?;
    // A new node is tainted until somebody sees that it is ready.
    let open = json!({"spec": {"taints": null}});
    nodes.patch(&name, &PatchParams::default(), &Patch::Merge(open)).await?;
    let status = json!({"status": {"allocatable": {"cpu": "110", "memory": "100Gi", "pods": "110"}}});
    nodes.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

async fn make_pod(pods: &Api<Pod>, i: usize, mut spec: Value) -> Result<()> {
    let requests = json!({"cpu": "1", "memory": "100Mi"});
    spec["containers"] = json!([{"name": "c", "image": "host", "resources": {"requests": requests}}]);
    let pod = json!({"metadata": {"name": format!("p{i}"), "labels": {"app": "load"}}, "spec": spec});
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    Ok(())
}

async fn until_bound(pods: Api<Pod>, count: usize) -> Result<()> {
    let mut events = pin!(watcher(pods, watcher::Config::default()).default_backoff());
    let mut bound = std::collections::HashSet::new();
    while let Some(event) = events.next().await {
        let (watcher::Event::InitApply(pod) | watcher::Event::Apply(pod)) = event? else { continue };
        if pod.spec.is_some_and(|spec| spec.node_name.is_some()) {
            bound.extend(pod.metadata.name);
        }
        if bound.len() == count {
            return Ok(());
        }
    }
    bail!("the watch ended")
}
