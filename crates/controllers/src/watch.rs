//! Following all objects of a kind: list, then watch, and again from the start when the watch breaks.

use std::fmt::Debug;

use futures::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

/// Gives every change to `take`, until cancelled.
pub(crate) async fn follow<K>(api: Api<K>, cancel: CancellationToken, take: impl FnMut(Event<K>))
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    follow_with(api, watcher::Config::default(), cancel, take).await;
}

/// The same, of the objects that `config` selects.
pub(crate) async fn follow_with<K>(
    api: Api<K>,
    config: watcher::Config,
    cancel: CancellationToken,
    mut take: impl FnMut(Event<K>),
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let mut changes = std::pin::pin!(watcher::watcher(api, config).default_backoff());
    loop {
        let change = tokio::select! {
            () = cancel.cancelled() => return,
            change = changes.next() => change,
        };
        match change {
            Some(Ok(event)) => take(event),
            Some(Err(error)) => {
                tracing::warn!(kind = %K::kind(&()), %error, "the watch broke, starting again")
            }
            None => return,
        }
    }
}
