//! What failed pods died of, remembered beyond their deletion.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};

use super::report;

/// Pods remembered that nobody asked about yet; rules explain most of them.
const REMEMBERED_MAX: usize = 10_000;
/// How long a deleted pod's last event may take to arrive: it was sent before the decision that is being told.
const LAST_EVENT_WITHIN: Duration = Duration::from_millis(200);

type Name = (String, String);

/// Follows failed pods.
pub struct Failures {
    client: kube::Client,
    events: BoxStream<'static, Result<watcher::Event<Pod>, watcher::Error>>,
    known: HashMap<Name, String>,
    /// Came while the failure of another was waited for.
    unheard: VecDeque<Pod>,
}

impl Failures {
    /// Begins to follow.
    pub fn new(client: kube::Client) -> Self {
        let failed = watcher::Config::default().fields("status.phase=Failed");
        let events = watcher(Api::<Pod>::all(client.clone()), failed).default_backoff().boxed();
        let events = windlass_watch::unhurried(events).boxed();
        Self { client, events, known: HashMap::new(), unheard: VecDeque::new() }
    }

    /// The next pod that has failed. Can be dropped at any time.
    pub async fn next(&mut self) -> Pod {
        match self.unheard.pop_front() {
            Some(pod) => pod,
            None => self.arrival().await,
        }
    }

    async fn arrival(&mut self) -> Pod {
        loop {
            match self.events.next().await {
                Some(Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => {
                    self.take(&pod);
                    return pod;
                }
                Some(Ok(watcher::Event::Init | watcher::Event::InitDone | watcher::Event::Delete(_))) => {}
                Some(Err(error)) => tracing::warn!(%error, "watch failed pods"),
                None => std::future::pending().await,
            }
        }
    }

    fn take(&mut self, pod: &Pod) {
        let meta = &pod.metadata;
        let (Some(namespace), Some(name)) = (meta.namespace.clone(), meta.name.clone()) else { return };
        if let Some(failure) = report::failure_of(pod) {
            if self.known.len() == REMEMBERED_MAX {
                self.known.clear();
            }
            self.known.insert((namespace, name), failure);
        }
    }

    /// What the pod died of, if anybody can tell. A pod that has not ended yet did not die of anything.
    pub async fn of(&mut self, namespace: &str, name: &str) -> Option<String> {
        let key = (namespace.to_owned(), name.to_owned());
        if let Some(known) = self.known.remove(&key) {
            return Some(known);
        }
        let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
        if let Ok(Some(pod)) = pods.get_opt(name).await {
            return report::failure_of(&pod);
        }
        // It is gone already: its last event is on the way.
        let arrives = async {
            while !self.known.contains_key(&key) {
                let pod = self.arrival().await;
                self.unheard.push_back(pod);
            }
        };
        let _ = tokio::time::timeout(LAST_EVENT_WITHIN, arrives).await;
        self.known.remove(&key)
    }
}
