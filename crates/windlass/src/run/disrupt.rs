//! `--disrupt`: evicts running pods, one at a time, as somebody who drains a node would.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::PostParams;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass_api::names;

use super::{Heard, JobName};

/// From the first pod that could be evicted to the choice: pods that start together all have their chance.
const CHOICE_DELAY: Duration = Duration::from_millis(20);

/// A running pod.
#[derive(Clone, Debug)]
struct Target {
    job: JobName,
    pod: String,
    resource_version: String,
}

/// Evicts `count` pods, then returns. With `gives_reason` they get a `status.reason` too, as the draft policy wants it.
pub async fn disrupt(
    client: kube::Client,
    count: u32,
    gives_reason: bool,
    hear: mpsc::UnboundedSender<Heard>,
) {
    let pods = Api::<Pod>::all(client.clone());
    // To the watch a pod that stops running is gone.
    let running = watcher::Config::default().fields("status.phase=Running");
    let mut events = std::pin::pin!(watcher(pods, running).default_backoff());
    let mut targets: BTreeMap<String, Target> = BTreeMap::new();
    // The one that was evicted and has not stopped yet, by UID.
    let mut evicted: Option<String> = None;
    let mut done = 0;
    let mut choose_at = None;
    while done < count || evicted.is_some() {
        let is_idle = evicted.is_none() && !targets.is_empty();
        choose_at = is_idle.then(|| choose_at.unwrap_or_else(|| Instant::now() + CHOICE_DELAY));
        tokio::select! {
            event = events.next() => match event {
                Some(Ok(event)) => take(event, &mut targets, &mut evicted),
                Some(Err(error)) => tracing::warn!(%error, "watch running pods"),
                None => return,
            },
            () = sleep_until(choose_at), if is_idle => {
                choose_at = None;
                let Some((uid, target)) = choose(&targets) else { continue };
                targets.remove(&uid);
                // Refused: the pod has changed, and may have ended. Another takes its turn, or the same as it is now.
                if evict(&client, &target, &uid, gives_reason).await {
                    done += 1;
                    evicted = Some(uid);
                    let Target { job, pod, .. } = target;
                    let _ = hear.send(Heard::Evicting { job, pod, nth: done, of: count });
                }
            }
        }
    }
}

async fn sleep_until(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

fn take(event: watcher::Event<Pod>, targets: &mut BTreeMap<String, Target>, evicted: &mut Option<String>) {
    match event {
        watcher::Event::Init => {
            targets.clear();
            *evicted = None;
        }
        watcher::Event::InitDone => {}
        watcher::Event::InitApply(pod) | watcher::Event::Apply(pod) => {
            let Some(uid) = pod.metadata.uid.clone() else { return };
            let is_deleting = pod.metadata.deletion_timestamp.is_some();
            match target(&pod).filter(|_| !is_deleting && evicted.as_ref() != Some(&uid)) {
                Some(target) => targets.insert(uid, target),
                None => targets.remove(&uid),
            };
        }
        watcher::Event::Delete(pod) => {
            let uid = pod.metadata.uid.unwrap_or_default();
            targets.remove(&uid);
            evicted.take_if(|evicted| *evicted == uid);
        }
    }
}

fn target(pod: &Pod) -> Option<Target> {
    let resource_version = pod.metadata.resource_version.clone()?;
    Some(Target { job: super::owner(pod)?, pod: pod.metadata.name.clone()?, resource_version })
}

fn choose(targets: &BTreeMap<String, Target>) -> Option<(String, Target)> {
    let random = usize::try_from(uuid::Uuid::new_v4().as_u64_pair().1 & 0xffff_ffff).ok()?;
    let (uid, target) = targets.iter().nth(random % targets.len().max(1))?;
    Some((uid.clone(), target.clone()))
}

/// Evicts the pod as it was seen. One that has ended by itself meanwhile is not made to look evicted.
async fn evict(client: &kube::Client, target: &Target, uid: &str, gives_reason: bool) -> bool {
    let Target { job: JobName { namespace, .. }, pod, resource_version } = target;
    let mut options = json!({"preconditions": {"uid": uid, "resourceVersion": resource_version}});
    if gives_reason {
        options["reason"] = json!(names::disruption::EVICTION_BY_EVICTION_API);
    }
    let eviction = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod, "namespace": namespace},
        "deleteOptions": options,
    });
    let pods = Api::<Pod>::namespaced(client.clone(), namespace);
    let sent = pods.create_subresource::<_, Value>("eviction", pod, &PostParams::default(), &eviction).await;
    sent.inspect_err(|error| tracing::debug!(%error, "evict pod {namespace}/{pod}")).is_ok()
}
