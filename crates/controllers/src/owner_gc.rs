//! The owner garbage collector: what no owner keeps is deleted; owners that wait for their dependents are let go.
//!
//! It follows the metadata of every kind that can be listed, watched and deleted (but events), keeps them as a graph
//! (`graph`), and asks the server again before it acts (`decide`), because the graph may be behind.

mod decide;
mod graph;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use futures::StreamExt;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{
    DeleteParams, DynamicObject, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use kube::core::{PartialObjectMeta, discovery::ApiResource};
use kube::discovery::{Discovery, Scope, verbs};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use windlass_job::Uid;

use crate::Clock;
use crate::events::{Recorder, Report};
use crate::metrics::Metrics;
use crate::queue::Queue;
use decide::{Action, OwnerState, decide};
use graph::{Fate, Graph, Node, Owner, Place, Task};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";
const WORKERS: usize = 20;
const COMPONENT: &str = "garbage-collector-controller";

type Meta = PartialObjectMeta<DynamicObject>;

/// Deletes what no owner keeps.
pub struct OwnerCollector {
    client: Client,
    kinds: BTreeMap<(String, String), Kind>,
    graph: Mutex<Graph>,
    /// Those who wait for their dependents to be released must not wait for anything else.
    attempts: Queue<Task>,
    orphans: Queue<Task>,
    recorder: Recorder,
}

#[derive(Clone, Debug)]
struct Kind {
    resource: ApiResource,
    is_namespaced: bool,
    api_version: Arc<str>,
    name: Arc<str>,
}

impl OwnerCollector {
    /// Follows everything the server has by its discovery, until cancelled.
    pub async fn run(
        client: Client,
        discovery: Arc<Discovery>,
        clock: Clock,
        metrics: Metrics,
        cancel: CancellationToken,
    ) {
        let (recorder, publishing) = Recorder::new(client.clone(), COMPONENT, clock);
        let kinds = collectable(&discovery);
        let graph = Mutex::new(Graph::default());
        let attempts = Queue::new("garbage_collector_attempt_to_delete", &metrics);
        let orphans = Queue::new("garbage_collector_attempt_to_orphan", &metrics);
        let this = Arc::new(Self { client, kinds, graph, attempts, orphans, recorder });
        let listed = Arc::new(Semaphore::new(0));
        let mut tasks = JoinSet::new();
        for kind in this.kinds.values().cloned() {
            tasks.spawn(Arc::clone(&this).follow(kind, Arc::clone(&listed), cancel.clone()));
        }
        tasks.spawn({
            let cancel = cancel.clone();
            async move {
                tokio::select! { () = cancel.cancelled() => {}, () = publishing => {} }
            }
        });
        // An owner whose kind is not listed yet would look as if it were gone.
        let all = u32::try_from(this.kinds.len()).unwrap_or(u32::MAX);
        tokio::select! { () = cancel.cancelled() => {}, _ = listed.acquire_many(all) => {} }
        for _ in 0..WORKERS {
            tasks.spawn(Arc::clone(&this).work(|this| &this.attempts, cancel.clone()));
            tasks.spawn(Arc::clone(&this).work(|this| &this.orphans, cancel.clone()));
        }
        while tasks.join_next().await.is_some() {}
    }

    async fn follow(self: Arc<Self>, kind: Kind, listed: Arc<Semaphore>, cancel: CancellationToken) {
        let api: Api<Meta> = Api::all_with(self.client.clone(), &kind.resource);
        let mut changes = std::pin::pin!(watcher::watcher(api, watcher::Config::default()).default_backoff());
        let mut seen = BTreeSet::new();
        let mut is_first = true;
        loop {
            let change =
                tokio::select! { () = cancel.cancelled() => return, change = changes.next() => change };
            match change {
                Some(Ok(Event::Init)) => seen.clear(),
                Some(Ok(Event::InitApply(object))) => {
                    seen.extend(uid_of(&object.metadata));
                    self.observe(&kind, &object.metadata);
                }
                Some(Ok(Event::InitDone)) => {
                    let known = self.graph.lock().of_kind(&kind.api_version, &kind.name);
                    known.difference(&seen).for_each(|uid| self.forget(uid));
                    seen.clear();
                    if std::mem::take(&mut is_first) {
                        listed.add_permits(1);
                    }
                }
                Some(Ok(Event::Apply(object))) => self.observe(&kind, &object.metadata),
                Some(Ok(Event::Delete(object))) => {
                    if let Some(uid) = uid_of(&object.metadata) {
                        self.forget(&uid);
                    }
                }
                Some(Err(error)) => {
                    tracing::warn!(kind = %kind.name, %error, "the watch broke, starting again")
                }
                None => return,
            }
        }
    }

    fn observe(&self, kind: &Kind, meta: &ObjectMeta) {
        let Some(uid) = uid_of(meta) else { return };
        let tasks = self.graph.lock().observe(&uid, place_of(kind, meta), owners_of(meta), fate_of(meta));
        tasks.into_iter().for_each(|task| self.add(task));
    }

    fn forget(&self, uid: &Uid) {
        let tasks = self.graph.lock().forget(uid);
        tasks.into_iter().for_each(|task| self.add(task));
    }

    fn add(&self, task: Task) {
        match &task {
            Task::Attempt(_) => self.attempts.add(task),
            Task::Orphan(_) => self.orphans.add(task),
        }
    }

    async fn work(self: Arc<Self>, queue: fn(&Self) -> &Queue<Task>, cancel: CancellationToken) {
        let queue = queue(&self);
        loop {
            let task = tokio::select! { () = cancel.cancelled() => return, task = queue.next() => task };
            let done = match &task {
                Task::Attempt(uid) => self.attempt(uid).await,
                Task::Orphan(uid) => self.orphan(uid).await,
            };
            match done {
                Ok(()) => queue.forget_failures(&task),
                Err(Failure::NotYet) => queue.retry(task.clone()),
                Err(Failure::Api(error)) => {
                    tracing::debug!(?task, %error, "garbage collection failed, trying again");
                    queue.retry(task.clone());
                }
            }
            queue.done(&task);
        }
    }

    /// Looks at an object: whether its deletion can go on, whether an owner keeps it.
    async fn attempt(&self, uid: &Uid) -> Result<(), Failure> {
        let Some(node) = self.graph.lock().get(uid).cloned() else { return Ok(()) };
        if node.fate.is_deleting && !node.fate.is_foreground {
            return Ok(());
        }
        let Some(live) = self.live(&node.place, uid).await? else {
            self.forget(uid);
            return Ok(());
        };
        if node.is_virtual {
            // It is there; the watch of its kind will bring it. Until then its dependents are safe.
            return Err(Failure::NotYet);
        }
        if node.fate.is_foreground {
            return self.finish_foreground(uid, &node, &live).await;
        }
        let owners = self.classify(uid, &node, &live).await?;
        let dependents_wait: Vec<bool> = {
            let graph = self.graph.lock();
            let dependents = graph.get(uid).into_iter().flat_map(|node| &node.dependents);
            dependents.map(|one| graph.get(one).is_some_and(|node| node.fate.is_foreground)).collect()
        };
        match decide(&owners, &dependents_wait) {
            Action::Keep => Ok(()),
            Action::Unlink(gone) => self.unlink(&node.place, uid, &gone).await,
            Action::DeleteForeground { unblocks } => {
                if unblocks {
                    self.unblock(&node, uid, &live).await?;
                }
                self.delete(&node, uid, &live, PropagationPolicy::Foreground).await
            }
            Action::Delete => self.delete(&node, uid, &live, asked_policy(&live)).await,
        }
    }

    /// Lets an object go whose dependents no longer block it; otherwise sees to them.
    async fn finish_foreground(&self, uid: &Uid, node: &Node, live: &ObjectMeta) -> Result<(), Failure> {
        let blocking = self.graph.lock().blocking(uid);
        if !blocking.is_empty() {
            blocking.into_iter().for_each(|one| self.add(Task::Attempt(one)));
            return Ok(());
        }
        self.remove_finalizer(node, live, FOREGROUND).await
    }

    /// Releases all dependents, then lets the object go.
    async fn orphan(&self, uid: &Uid) -> Result<(), Failure> {
        let Some(node) = self.graph.lock().get(uid).cloned() else { return Ok(()) };
        for (dependent, place) in self.live_dependents(uid, &node.place).await? {
            self.unlink(&place, &dependent, std::slice::from_ref(uid)).await?;
        }
        match self.live(&node.place, uid).await? {
            Some(live) => self.remove_finalizer(&node, &live, ORPHAN).await,
            None => Ok(()),
        }
    }

    /// What became of each owner that the object names now.
    async fn classify(
        &self,
        uid: &Uid,
        node: &Node,
        live: &ObjectMeta,
    ) -> Result<Vec<(Uid, OwnerState)>, Failure> {
        let mut states = Vec::new();
        for owner in owners_of(live) {
            let state = self.owner_state(uid, node, &owner).await?;
            states.push((owner.uid, state));
        }
        Ok(states)
    }

    async fn owner_state(&self, uid: &Uid, node: &Node, owner: &Owner) -> Result<OwnerState, Failure> {
        if self.graph.lock().is_absent(&owner.uid) {
            return Ok(OwnerState::Dangling);
        }
        let key = (owner.api_version.to_string(), owner.kind.to_string());
        let Some(kind) = self.kinds.get(&key) else {
            // A kind that this server does not have may come back: nothing is deleted for that.
            return Ok(OwnerState::Solid);
        };
        if kind.is_namespaced && node.place.namespace.is_none() {
            self.say_invalid_namespace(uid, node, owner);
            return Ok(OwnerState::Solid);
        }
        let place = Place {
            api_version: Arc::clone(&owner.api_version),
            kind: Arc::clone(&owner.kind),
            namespace: node.place.namespace.clone(),
            name: Arc::clone(&owner.name),
        };
        Ok(match self.live(&place, &owner.uid).await? {
            None => {
                if self.is_elsewhere(node, owner) {
                    self.say_invalid_namespace(uid, node, owner);
                }
                OwnerState::Dangling
            }
            Some(live) if fate_of(&live).is_foreground => OwnerState::Waiting,
            Some(_) => OwnerState::Solid,
        })
    }

    fn is_elsewhere(&self, node: &Node, owner: &Owner) -> bool {
        let graph = self.graph.lock();
        let place = graph.get(&owner.uid).filter(|owner| !owner.is_virtual).map(|owner| &owner.place);
        place.is_some_and(|place| place.namespace.is_some() && place.namespace != node.place.namespace)
    }

    fn say_invalid_namespace(&self, uid: &Uid, node: &Node, owner: &Owner) {
        let place = &node.place;
        let reference = format!(
            "[{}/{}, namespace: {}, name: {}, uid: {}]",
            owner.api_version,
            owner.kind,
            place.namespace.as_deref().unwrap_or_default(),
            owner.name,
            owner.uid
        );
        let about = ObjectReference {
            api_version: Some(place.api_version.to_string()),
            kind: Some(place.kind.to_string()),
            namespace: place.namespace.as_deref().map(str::to_owned),
            name: Some(place.name.to_string()),
            uid: Some(uid.to_string()),
            ..ObjectReference::default()
        };
        let namespace = place.namespace.as_deref().unwrap_or_default();
        self.recorder.publish(Report {
            about,
            is_warning: true,
            reason: "OwnerRefInvalidNamespace".to_owned(),
            message: format!("ownerRef {reference} does not exist in namespace {namespace:?}"),
        });
    }

    /// The object's metadata now, if it is still the same object.
    async fn live(&self, place: &Place, uid: &Uid) -> Result<Option<ObjectMeta>, Failure> {
        let Some(api) = self.api(place) else { return Ok(None) };
        let found = api.get_opt(&place.name).await?;
        Ok(found.map(|object| object.metadata).filter(|meta| uid_of(meta).as_ref() == Some(uid)))
    }

    /// What names the object as its owner now. The watches may not have shown all of it, and what is not freed before its
    /// owner is gone is collected.
    async fn live_dependents(&self, owner: &Uid, place: &Place) -> Result<Vec<(Uid, Place)>, Failure> {
        let mut found = Vec::new();
        // Who lives in a namespace owns nothing outside of it.
        for kind in self.kinds.values().filter(|kind| kind.is_namespaced || place.namespace.is_none()) {
            let api: Api<Meta> = match place.namespace.as_deref() {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &kind.resource),
                None => Api::all_with(self.client.clone(), &kind.resource),
            };
            for Meta { metadata: meta, .. } in api.list(&ListParams::default()).await? {
                let is_its = owners_of(&meta).iter().any(|one| one.uid == *owner);
                found.extend(uid_of(&meta).filter(|_| is_its).map(|uid| (uid, place_of(kind, &meta))));
            }
        }
        Ok(found)
    }

    fn api(&self, place: &Place) -> Option<Api<Meta>> {
        let kind = self.kinds.get(&(place.api_version.to_string(), place.kind.to_string()))?;
        let client = self.client.clone();
        Some(match place.namespace.as_deref().filter(|_| kind.is_namespaced) {
            Some(namespace) => Api::namespaced_with(client, namespace, &kind.resource),
            None => Api::all_with(client, &kind.resource),
        })
    }

    async fn unlink(&self, place: &Place, uid: &Uid, gone: &[Uid]) -> Result<(), Failure> {
        let references: Vec<_> =
            gone.iter().map(|owner| json!({"$patch": "delete", "uid": owner.to_string()})).collect();
        let patch = json!({"metadata": {"uid": uid.to_string(), "ownerReferences": references}});
        self.patch(place, Patch::Strategic(patch)).await
    }

    async fn unblock(&self, node: &Node, uid: &Uid, live: &ObjectMeta) -> Result<(), Failure> {
        let open = |owner: &OwnerReference| OwnerReference {
            block_owner_deletion: owner.block_owner_deletion.map(|_| false),
            ..owner.clone()
        };
        let references: Vec<_> = live.owner_references.iter().flatten().map(open).collect();
        let version = &live.resource_version;
        let meta = json!({"uid": uid.to_string(), "resourceVersion": version, "ownerReferences": references});
        self.patch(&node.place, Patch::Merge(json!({"metadata": meta}))).await
    }

    async fn remove_finalizer(&self, node: &Node, live: &ObjectMeta, name: &str) -> Result<(), Failure> {
        let all = live.finalizers.iter().flatten();
        if !all.clone().any(|one| one == name) {
            return Ok(());
        }
        let rest: Vec<&String> = all.filter(|one| *one != name).collect();
        let meta = json!({"uid": live.uid, "resourceVersion": live.resource_version, "finalizers": rest});
        self.patch(&node.place, Patch::Merge(json!({"metadata": meta}))).await
    }

    async fn patch(&self, place: &Place, patch: Patch<serde_json::Value>) -> Result<(), Failure> {
        let Some(api) = self.api(place) else { return Ok(()) };
        match api.patch(&place.name, &PatchParams::default(), &patch).await {
            Ok(_) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the object that was looked at, unless its owners are others by now.
    async fn delete(
        &self,
        node: &Node,
        uid: &Uid,
        live: &ObjectMeta,
        policy: PropagationPolicy,
    ) -> Result<(), Failure> {
        let Some(api) = self.api(&node.place) else { return Ok(()) };
        let params = |resource_version: Option<String>| DeleteParams {
            propagation_policy: Some(policy.clone()),
            preconditions: Some(Preconditions { uid: Some(uid.to_string()), resource_version }),
            ..DeleteParams::default()
        };
        let mut done = api.delete(&node.place.name, &params(live.resource_version.clone())).await;
        if let Err(kube::Error::Api(status)) = &done
            && status.is_conflict()
            && let Some(now) = self.live(&node.place, uid).await?
            && now.owner_references == live.owner_references
        {
            done = api.delete(&node.place.name, &params(None)).await;
        }
        match done {
            Ok(_) => Ok(()),
            Err(error) if is_gone(&error) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

/// Why a task must be done again.
enum Failure {
    /// The watch has not brought what is known to be there.
    NotYet,
    /// The server refused, or could not be reached.
    Api(kube::Error),
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::Api(error)
    }
}

fn place_of(kind: &Kind, meta: &ObjectMeta) -> Place {
    Place {
        api_version: Arc::clone(&kind.api_version),
        kind: Arc::clone(&kind.name),
        namespace: meta.namespace.as_deref().map(Arc::from),
        name: meta.name.as_deref().unwrap_or_default().into(),
    }
}

fn is_gone(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.is_not_found())
}

/// Everything that can be listed, watched and deleted, but events: they own nothing and nobody waits for them.
fn collectable(discovery: &Discovery) -> BTreeMap<(String, String), Kind> {
    let mut kinds = BTreeMap::new();
    for group in discovery.groups() {
        for (resource, can) in group.recommended_resources() {
            let needed = [verbs::LIST, verbs::WATCH, verbs::DELETE];
            if resource.kind == "Event" || !needed.iter().all(|verb| can.supports_operation(verb)) {
                continue;
            }
            let key = (resource.api_version.clone(), resource.kind.clone());
            let kind = Kind {
                is_namespaced: can.scope == Scope::Namespaced,
                api_version: resource.api_version.as_str().into(),
                name: resource.kind.as_str().into(),
                resource,
            };
            kinds.insert(key, kind);
        }
    }
    kinds
}

fn uid_of(meta: &ObjectMeta) -> Option<Uid> {
    meta.uid.as_deref().map(Uid::new)
}

fn owners_of(meta: &ObjectMeta) -> Vec<Owner> {
    let owner = |owner: &OwnerReference| Owner {
        uid: Uid::new(&owner.uid),
        api_version: owner.api_version.as_str().into(),
        kind: owner.kind.as_str().into(),
        name: owner.name.as_str().into(),
        blocks: owner.block_owner_deletion == Some(true),
    };
    meta.owner_references.iter().flatten().map(owner).collect()
}

fn fate_of(meta: &ObjectMeta) -> Fate {
    let is_deleting = meta.deletion_timestamp.is_some();
    let has = |name: &str| meta.finalizers.iter().flatten().any(|one| one == name);
    Fate {
        is_deleting,
        is_foreground: is_deleting && has(FOREGROUND),
        is_orphaning: is_deleting && has(ORPHAN),
    }
}

/// The policy that the object's own finalizers ask for.
fn asked_policy(live: &ObjectMeta) -> PropagationPolicy {
    let has = |name: &str| live.finalizers.iter().flatten().any(|one| one == name);
    if has(ORPHAN) {
        PropagationPolicy::Orphan
    } else if has(FOREGROUND) {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    }
}
