//! Pods and nodes as the controllers that end pods know them: watched once, kept once, shared by all of them.

mod facts;
mod table;

use std::fmt;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use crate::wire::SlimPod;
use crate::{pod_watch, watch};
#[cfg(test)]
pub(crate) use facts::Disrupted;
pub(crate) use facts::{PodFact, Reader, condition};
pub(crate) use table::{Change, Key, Row, Table};

/// What is known of pods and nodes, and the way to their server.
pub struct Cluster {
    pub(crate) client: Client,
    pub(crate) pods: Table<PodFact>,
    pub(crate) nodes: Table<Node>,
    reader: Mutex<Reader>,
}

impl fmt::Debug for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cluster").finish_non_exhaustive()
    }
}

impl Cluster {
    /// Nothing is known yet: somebody must follow.
    pub fn new(client: Client) -> Arc<Self> {
        let (pods, nodes) = (Table::default(), Table::default());
        Arc::new(Self { client, pods, nodes, reader: Mutex::default() })
    }

    /// The same, for those who have no disruption budgets: without the labels, which are the larger half of what is kept.
    pub fn without_labels(client: Client) -> Arc<Self> {
        let (pods, nodes) = (Table::default(), Table::default());
        Arc::new(Self { client, pods, nodes, reader: Mutex::new(Reader::without_labels()) })
    }

    /// Keeps up with pods and nodes, until cancelled.
    pub async fn follow(self: Arc<Self>, cancel: CancellationToken) {
        let pods =
            pod_watch::follow(self.client.clone(), None, cancel.clone(), |event| self.take_pod(&event));
        futures::future::join(pods, Arc::clone(&self).follow_nodes(cancel)).await;
    }

    /// Keeps up with nodes, until cancelled. The Job controller shows the pods, which it watches anyway: see
    /// [`job::Config::cluster`](crate::job::Config::cluster).
    pub async fn follow_nodes(self: Arc<Self>, cancel: CancellationToken) {
        let nodes = Api::<Node>::all(self.client.clone());
        watch::follow(nodes, cancel, |event| take(&self.nodes, &event, slim)).await;
    }

    /// What a watch of all pods says.
    pub(crate) fn take_pod(&self, event: &Event<SlimPod>) {
        take(&self.pods, event, |SlimPod(pod)| self.reader.lock().read(pod));
    }

    /// Waits until everything was listed once; false if cancelled before. Before that, every node looks as if it were
    /// gone.
    pub(crate) async fn is_listed(&self, cancel: &CancellationToken) -> bool {
        self.pods.is_listed(cancel).await && self.nodes.is_listed(cancel).await
    }
}

/// Takes in what a watch says.
pub(crate) fn take<K: Resource, R: Row>(table: &Table<R>, event: &Event<K>, read: impl Fn(&K) -> R) {
    match event {
        Event::Init => table.begin_list(),
        Event::InitApply(object) | Event::Apply(object) => table.apply(read(object)),
        Event::InitDone => table.end_list(),
        Event::Delete(object) => table.remove(&Key::of(object.meta())),
    }
}

/// A node without the parts that no decision looks at.
fn slim(node: &Node) -> Node {
    let mut node = node.clone();
    node.metadata.managed_fields = None;
    if let Some(status) = &mut node.status {
        (status.images, status.volumes_attached, status.volumes_in_use) = (None, None, None);
    }
    node
}

impl Row for Node {
    fn key(&self) -> Key {
        Key::of(&self.metadata)
    }

    fn uid(&self) -> &str {
        self.metadata.uid.as_deref().unwrap_or_default()
    }
}
