//! The two writes of a node agent to a pod: its status, and the last delete. Which errors are worth another
//! try.

use std::time::Duration;

use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use k8s_openapi::api::core::v1::Pod;
use kube::Resource;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::core::Request;
use windlass_watch::Caller;

/// The longest pause between two tries.
const RETRY_MAX: Duration = Duration::from_secs(5);

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The API has it.
    Done,
    /// The pod is gone, or another one has its name.
    Gone,
    /// Not now.
    Retry,
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
        judge(result.err(), "patch status", &namespace, &name)
    }
    .boxed()
}

/// Sends a request of which only a refusal is read.
async fn send(caller: &Caller, request: http::Request<Vec<u8>>) -> kube::Result<()> {
    let answer = caller.send(request.map(Bytes::from)).await?;
    if answer.status().is_success() {
        return Ok(());
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
    while judge(pods.delete(name, &params).await.err(), "delete", namespace, name) == Outcome::Retry {
        tokio::time::sleep(delay).await;
        delay = longer(delay);
    }
}

fn judge(error: Option<kube::Error>, operation: &str, namespace: &str, name: &str) -> Outcome {
    match error {
        None => Outcome::Done,
        // The conflict is that of the UID: there is no resourceVersion in what we send.
        Some(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Outcome::Gone,
        Some(error) => {
            tracing::warn!(%error, "{operation} of pod {namespace}/{name}");
            Outcome::Retry
        }
    }
}
