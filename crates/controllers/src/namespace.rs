//! Namespaces that are deleted: their pods go first, then all else, then they themselves.

mod conditions;

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Namespace;
use kube::api::{DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::discovery::ApiResource;
use kube::core::{ObjectList, PartialObjectMeta};
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::{Clock, watch};
use conditions::{Findings, conditions};

const WORKERS: usize = 10;
/// The finalizer, in the spec, that keeps a namespace until it is empty.
const FINALIZER: &str = "kubernetes";
/// Until the next look at what is left.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

type Meta = PartialObjectMeta<DynamicObject>;

/// Empties and ends namespaces that are deleted, until cancelled.
pub async fn run(
    client: Client,
    discovery: Arc<Discovery>,
    clock: Clock,
    metrics: Metrics,
    cancel: CancellationToken,
) {
    let queue = Queue::new("namespace", &metrics);
    let this = Arc::new(Controller { kinds: deletable(&discovery), client, clock, queue });
    let mut tasks = JoinSet::new();
    for _ in 0..WORKERS {
        tasks.spawn(Arc::clone(&this).work(cancel.clone()));
    }
    let namespaces: Api<Namespace> = Api::all(this.client.clone());
    watch::follow(namespaces, cancel, |event| {
        if let Event::InitApply(namespace) | Event::Apply(namespace) = event
            && namespace.metadata.deletion_timestamp.is_some()
        {
            this.queue.add(namespace.name_any());
        }
    })
    .await;
    while tasks.join_next().await.is_some() {}
}

struct Controller {
    client: Client,
    clock: Clock,
    kinds: Vec<ApiResource>,
    queue: Queue<String>,
}

impl Controller {
    async fn work(self: Arc<Self>, cancel: CancellationToken) {
        loop {
            let name = tokio::select! { () = cancel.cancelled() => return, name = self.queue.next() => name };
            match self.look(&name).await {
                Ok(true) => self.queue.forget_failures(&name),
                Ok(false) => self.queue.add_at(name.clone(), Instant::now() + LOOK_AGAIN),
                Err(error) => {
                    tracing::debug!(namespace = name, %error, "a namespace was not ended, trying again");
                    self.queue.retry(name.clone());
                }
            }
            self.queue.done(&name);
        }
    }

    /// Goes on with the end of a namespace. Says whether there is nothing more to do.
    async fn look(&self, name: &str) -> kube::Result<bool> {
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        let Some(namespace) = namespaces.get_opt(name).await? else { return Ok(true) };
        if namespace.metadata.deletion_timestamp.is_none() || is_finalized(&namespace) {
            return Ok(true);
        }
        let findings = self.empty(name).await;
        self.tell(&namespaces, &namespace, &findings).await?;
        if !findings.is_empty() {
            return Ok(false);
        }
        self.finalize(name).await.map(|()| true)
    }

    /// Deletes what is in the namespace; other kinds only when there are no more pods, which may need them.
    async fn empty(&self, namespace: &str) -> Findings {
        let mut findings = Findings::default();
        let (pods, others): (Vec<_>, Vec<_>) =
            self.kinds.iter().partition(|kind| kind.group.is_empty() && kind.plural == "pods");
        for kinds in [pods, others] {
            for kind in kinds {
                if let Err(error) = self.empty_of(namespace, kind, &mut findings).await {
                    findings.errors.push(error.to_string());
                }
            }
            if !findings.is_empty() {
                break;
            }
        }
        findings
    }

    async fn empty_of(
        &self,
        namespace: &str,
        kind: &ApiResource,
        findings: &mut Findings,
    ) -> kube::Result<()> {
        let api: Api<Meta> = Api::namespaced_with(self.client.clone(), namespace, kind);
        if api.list(&ListParams::default().limit(1)).await?.items.is_empty() {
            return Ok(());
        }
        api.delete_collection(&DeleteParams::background(), &ListParams::default()).await?;
        let left: ObjectList<Meta> = api.list(&ListParams::default()).await?;
        if !left.items.is_empty() {
            findings.remaining.insert(format!("{}.{}", kind.plural, kind.group), left.items.len());
        }
        for finalizer in left.items.iter().flat_map(|one| one.finalizers()) {
            *findings.finalizers.entry(finalizer.clone()).or_default() += 1;
        }
        Ok(())
    }

    /// Writes what is left into the namespace's status, where it changed.
    async fn tell(
        &self,
        namespaces: &Api<Namespace>,
        namespace: &Namespace,
        findings: &Findings,
    ) -> kube::Result<()> {
        let old = namespace.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or(&[]);
        let Some(new) = conditions(old, findings, (self.clock)()) else { return Ok(()) };
        let patch = Patch::Merge(json!({"status": {"conditions": new}}));
        namespaces.patch_status(&namespace.name_any(), &PatchParams::default(), &patch).await.map(drop)
    }

    /// Takes the finalizer, so that the namespace can go. Written back whole, so it is read whole.
    async fn finalize(&self, name: &str) -> kube::Result<()> {
        let kind = ApiResource::erase::<Namespace>(&());
        let namespaces: Api<DynamicObject> = Api::all_with(self.client.clone(), &kind);
        let Some(mut namespace) = namespaces.get_opt(name).await? else { return Ok(()) };
        if let Some(finalizers) = namespace.data["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|one| one != FINALIZER);
        }
        let params = PostParams::default();
        match namespaces.replace_subresource("finalize", name, &params, &namespace).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            other => other.map(drop),
        }
    }
}

fn is_finalized(namespace: &Namespace) -> bool {
    let finalizers = namespace.spec.as_ref().and_then(|spec| spec.finalizers.as_ref());
    finalizers.is_none_or(Vec::is_empty)
}

/// Everything in namespaces that can be listed and deleted.
fn deletable(discovery: &Discovery) -> Vec<ApiResource> {
    let all = discovery.groups().flat_map(|group| group.recommended_resources());
    all.filter(|(_, can)| can.scope == Scope::Namespaced)
        .filter(|(_, can)| {
            [verbs::LIST, verbs::DELETE_COLLECTION].iter().all(|verb| can.supports_operation(verb))
        })
        .map(|(resource, _)| resource)
        .collect()
}
