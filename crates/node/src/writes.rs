//! The two writes of a node agent to a pod: its status, and the last delete. Which errors are worth another
//! try.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::Request;
use serde::Deserialize;
use windlass_watch::{Caller, is_gone};

/// The longest pause between two tries.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// What became of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The API has it.
    Done(Answer),
    /// The pod is gone, or another one has its name.
    Gone,
    /// Not now.
    Retry,
}

/// A pod as a write has left it. It is read only when somebody asks.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(crate) struct Answer(Bytes);

#[derive(Deserialize)]
struct Written {
    metadata: Meta,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Meta {
    resource_version: String,
}

impl Answer {
    /// Whether a pod was seen before this write. Not if their versions cannot be compared.
    pub(crate) fn is_newer_than(&self, seen: &ObjectMeta) -> bool {
        let number = |version: &str| version.parse::<u64>().ok();
        let own = serde_json::from_slice::<Written>(&self.0).ok();
        let own = own.and_then(|written| number(&written.metadata.resource_version));
        let seen = seen.resource_version.as_deref().and_then(number);
        own.zip(seen).is_some_and(|(own, seen)| seen < own)
    }
}

/// The pause after the next failure.
pub(crate) fn longer(delay: Duration) -> Duration {
    (delay * 2).min(RETRY_MAX)
}

/// Patches a pod's status.
pub(crate) fn status(caller: &Caller, pod: &Pod, patch: serde_json::Value) -> BoxFuture<'static, Outcome> {
    let caller = caller.clone();
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let name = pod.metadata.name.clone().unwrap_or_default();
    async move {
        let pods = Request::new(Pod::url_path(&(), Some(&namespace)));
        let patch = Patch::Strategic(patch);
        let request = pods.patch_subresource("status", &name, &PatchParams::default(), &patch);
        let result = match request {
            Ok(request) => send(&caller, request).await,
            Err(error) => Err(kube::Error::BuildRequest(error)),
        };
        judge(result, "patch status", &namespace, &name)
    }
    .boxed()
}

/// Sends a request of which at first only a refusal is read.
async fn send(caller: &Caller, request: http::Request<Vec<u8>>) -> kube::Result<Answer> {
    let answer = caller.send(request.map(Bytes::from)).await?;
    if answer.status().is_success() {
        return Ok(Answer(answer.into_body()));
    }
    Err(windlass_watch::json_refusal(answer.status(), answer.body()))
}

/// Deletes a pod that has ended, at once and only this one. Tries until it is gone.
pub(crate) async fn delete(client: &kube::Client, pod: &Pod) {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let name = pod.metadata.name.as_deref().unwrap_or_default();
    let pods = kube::Api::<Pod>::namespaced(client.clone(), namespace);
    let params = DeleteParams {
        grace_period_seconds: Some(0),
        preconditions: Some(Preconditions { uid: pod.metadata.uid.clone(), resource_version: None }),
        ..DeleteParams::default()
    };
    let mut delay = Duration::from_millis(10);
    loop {
        let result = pods.delete(name, &params).await.map(|_| Answer::default());
        if judge(result, "delete", namespace, name) != Outcome::Retry {
            return;
        }
        tokio::time::sleep(delay).await;
        delay = longer(delay);
    }
}

fn judge(result: kube::Result<Answer>, operation: &str, namespace: &str, name: &str) -> Outcome {
    match result {
        Ok(answer) => Outcome::Done(answer),
        Err(error) if is_gone(&error) => Outcome::Gone,
        Err(error) => {
            tracing::warn!(%error, "{operation} of pod {namespace}/{name}");
            Outcome::Retry
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_before_a_write_is_older_than_its_answer() {
        let answer = |version: &str| {
            let pod = serde_json::json!({"metadata": {"name": "p", "resourceVersion": version}, "spec": {}});
            Answer(pod.to_string().into())
        };
        let seen =
            |version: &str| ObjectMeta { resource_version: Some(version.into()), ..ObjectMeta::default() };
        for (own, version, want) in [
            ("10", "9", true),
            ("10", "10", false),
            ("10", "11", false),
            ("x", "9", false),
            ("10", "x", false),
        ] {
            assert_eq!(answer(own).is_newer_than(&seen(version)), want, "{own} {version}");
        }
        assert!(!Answer::default().is_newer_than(&seen("1")));
        assert!(!answer("1").is_newer_than(&ObjectMeta::default()));
    }
}
