//! How long a burst takes: pods created, bound, reported, released and deleted through `kube::Client`, while watchers
//! look on. Run with `cargo bench -p windlass-apiserver`.

use std::time::{Duration, Instant};

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use serde_json::{Value, json};
use windlass_apiserver::{Config, Server};

const PODS: usize = 10_000;
const WATCHERS: usize = 3;
const CLIENTS: usize = 16;

fn pod(name: &str) -> Pod {
    let owner = json!({"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u", "controller": true});
    let value = json!({
        "metadata": {
            "name": name, "labels": {"job-name": "j", "controller-uid": "u"}, "ownerReferences": [owner],
            "finalizers": ["batch.kubernetes.io/job-tracking"],
            "annotations": {"batch.kubernetes.io/job-completion-index": "1"},
        },
        "spec": {"restartPolicy": "Never", "containers": [{
            "name": "c", "image": "host", "command": ["true"],
            "env": [{"name": "JOB_COMPLETION_INDEX", "value": "1"}],
            "resources": {"requests": {"cpu": "100m", "memory": "64Mi"}},
        }]},
    });
    serde_json::from_value(value).expect("a pod")
}

/// Runs `work` for every pod, from several tasks at once.
async fn each<F>(client: &kube::Client, label: &str, work: impl Fn(Api<Pod>, String) -> F + Copy)
where
    F: Future<Output = ()> + Send + 'static,
{
    let (begin, before) = (Instant::now(), processor_time());
    let tasks: Vec<_> = (0..CLIENTS)
        .map(|task| {
            let api: Api<Pod> = Api::default_namespaced(client.clone());
            let futures: Vec<F> =
                (task..PODS).step_by(CLIENTS).map(|i| work(api.clone(), format!("j-{i:05}"))).collect();
            tokio::spawn(async move {
                for future in futures {
                    future.await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("ran");
    }
    report(label, begin.elapsed(), processor_time() - before);
}

/// The processor time of this process so far. On a machine with other work it says more than the clock.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: u64 =
        after_name.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok()).sum();
    Duration::from_millis(ticks * 10)
}

fn report(label: &str, took: Duration, processor: Duration) {
    let pods = PODS as f64;
    println!(
        "{label:<24} {took:>9.1?}  {:>8.0} pods/s  {:>5.0} µs of processor time a pod",
        pods / took.as_secs_f64(),
        processor.as_secs_f64() * 1e6 / pods,
    );
}

async fn watch(client: kube::Client) -> usize {
    let api: Api<Pod> = Api::all(client);
    let (mut version, mut count, mut gone) = ("0".to_owned(), 0, 0);
    while gone < PODS {
        let mut events = api.watch(&WatchParams::default(), &version).await.expect("open").boxed();
        while let Some(event) = events.try_next().await.expect("an event") {
            let (WatchEvent::Added(pod) | WatchEvent::Modified(pod) | WatchEvent::Deleted(pod)) = &event
            else {
                continue;
            };
            version.clone_from(pod.metadata.resource_version.as_ref().expect("a version"));
            count += 1;
            gone += usize::from(matches!(event, WatchEvent::Deleted(_)));
            if gone == PODS {
                break;
            }
        }
    }
    count
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        println!("as a client, whose fields are told");
        let server = Server::new(Config::default());
        burst(&|| kube::Client::new(server.router(), "default")).await;
        println!("as a component of this process");
        let server = Server::new(Config::default());
        burst(&|| kube::Client::new(server.own_service(), "default")).await;
    });
}

async fn burst(connect: &dyn Fn() -> kube::Client) {
    let client = connect();
    let (begin, before) = (Instant::now(), processor_time());
    let watchers: Vec<_> = (0..WATCHERS).map(|_| tokio::spawn(watch(connect()))).collect();
    each(&client, "create", |api, name| async move {
        api.create(&PostParams::default(), &pod(&name)).await.expect("created");
    })
    .await;
    each(&client, "bind", |api, name| async move {
        let body = json!({"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}});
        let _: Value =
            api.create_subresource("binding", &name, &PostParams::default(), &body).await.expect("bound");
    })
    .await;
    each(&client, "patch status", |api, name| async move {
        let patch = Patch::Strategic(json!({"status": {"phase": "Succeeded"}}));
        api.patch_status(&name, &PatchParams::default(), &patch).await.expect("patched");
    })
    .await;
    each(&client, "release", |api, name| async move {
        let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        api.patch_metadata(&name, &PatchParams::default(), &patch).await.expect("released");
    })
    .await;
    each(&client, "delete", |api, name| async move {
        let _ = api.delete(&name, &DeleteParams::default()).await.expect("deleted");
    })
    .await;
    for watcher in watchers {
        let count = watcher.await.expect("ran");
        println!("a watcher saw {count} events");
    }
    report(&format!("all, with {WATCHERS} watchers"), begin.elapsed(), processor_time() - before);
}
