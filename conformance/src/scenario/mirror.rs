//! What an API server shows of Jobs, pods and events, by namespace, kept up by watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Event as KubeEvent, Pod};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::settled::is_deleted;
use super::{record, text};

/// No step takes longer, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(180);

/// What is mirrored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Jobs.
    Job,
    /// Pods.
    Pod,
    /// Events.
    Event,
}

/// An object as it was last seen.
#[derive(Clone, Debug)]
pub struct Item {
    /// The object.
    pub object: Value,
    /// It is deleted.
    pub is_gone: bool,
    /// Objects are numbered as they are first seen.
    pub order: usize,
}

/// Everything that was ever seen in a namespace, by UID.
#[derive(Debug, Default)]
pub struct Seen {
    items: BTreeMap<(Kind, String), Item>,
    count: usize,
    deleted_by_others: BTreeSet<String>,
}

impl Seen {
    /// All objects of a kind, in the order in which they came.
    pub fn all(&self, kind: Kind) -> Vec<&Item> {
        let mut items: Vec<&Item> =
            self.items.iter().filter(|((of, _), _)| *of == kind).map(|(_, item)| item).collect();
        items.sort_by_key(|item| item.order);
        items
    }

    /// Those that are there.
    pub fn live(&self, kind: Kind) -> Vec<&Item> {
        self.all(kind).into_iter().filter(|item| !item.is_gone).collect()
    }

    /// The Job of this name that is there.
    pub fn job(&self, name: &str) -> Option<&Value> {
        let jobs = self.live(Kind::Job);
        jobs.into_iter().map(|item| &item.object).find(|job| text(job, "/metadata/name") == name)
    }

    /// The pods that the controller itself deleted.
    pub fn deleted_by_controller(&self) -> usize {
        let is_its_own = |item: &&Item| {
            is_deleted(&item.object) && !self.deleted_by_others.contains(text(&item.object, "/metadata/uid"))
        };
        self.all(Kind::Pod).iter().filter(|item| is_its_own(item)).count()
    }

    fn apply(&mut self, kind: Kind, object: Value, is_gone: bool) {
        let key = (kind, text(&object, "/metadata/uid").to_owned());
        let next = self.count;
        match self.items.get_mut(&key) {
            Some(item) => {
                let is_newer = revision(&object) > revision(&item.object);
                if is_newer || is_gone {
                    item.object = object;
                }
                item.is_gone |= is_gone;
            }
            None => {
                self.items.insert(key, Item { object, is_gone, order: next });
                self.count += 1;
            }
        }
    }
}

fn revision(object: &Value) -> u64 {
    text(object, "/metadata/resourceVersion").parse().unwrap_or_default()
}

/// A namespace.
#[derive(Debug)]
pub struct Space {
    seen: Mutex<Seen>,
    changes: watch::Sender<u64>,
}

impl Space {
    /// Looks at what is there now.
    pub fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.seen.lock())
    }

    /// Takes in what the API server answered, before the watch shows it.
    pub fn answered(&self, kind: Kind, object: Value) {
        self.seen.lock().apply(kind, object, false);
        self.changes.send_modify(|version| *version += 1);
    }

    /// Somebody else than the controller is about to delete the pod, unless it is deleted already.
    pub fn others_delete(&self, uid: &str) {
        let mut seen = self.seen.lock();
        let pods = seen.all(Kind::Pod);
        let is_known = |item: &Item| text(&item.object, "/metadata/uid") == uid && is_deleted(&item.object);
        if !pods.into_iter().any(is_known) {
            seen.deleted_by_others.insert(uid.to_owned());
        }
    }

    /// Waits until `find` finds something.
    pub async fn until<T>(&self, what: &str, find: impl Fn(&Seen) -> Option<T>) -> Result<T> {
        let mut changes = self.changes.subscribe();
        let found = tokio::time::timeout(PATIENCE, async {
            loop {
                changes.mark_unchanged();
                if let Some(found) = find(&self.seen.lock()) {
                    return found;
                }
                _ = changes.changed().await;
            }
        });
        match found.await {
            Ok(found) => Ok(found),
            Err(_) => bail!("waited for {what} in vain: {}", self.look(record::describe)),
        }
    }
}

/// The mirror of an API server.
#[derive(Debug)]
pub struct Mirror {
    spaces: Mutex<BTreeMap<String, Arc<Space>>>,
}

impl Mirror {
    /// Starts to mirror; it ends when the tasks are dropped.
    pub fn start(client: &Client) -> (Arc<Self>, JoinSet<()>) {
        let mirror = Arc::new(Self { spaces: Mutex::default() });
        let mut tasks = JoinSet::new();
        let kinds = [
            (Kind::Job, ApiResource::erase::<Job>(&())),
            (Kind::Pod, ApiResource::erase::<Pod>(&())),
            (Kind::Event, ApiResource::erase::<KubeEvent>(&())),
        ];
        for (kind, resource) in kinds {
            let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
            tasks.spawn(Arc::clone(&mirror).follow(kind, api));
        }
        (mirror, tasks)
    }

    /// A namespace, whether anything is in it or not.
    pub fn space(&self, namespace: &str) -> Arc<Space> {
        let make = || Arc::new(Space { seen: Mutex::default(), changes: watch::Sender::new(0) });
        Arc::clone(self.spaces.lock().entry(namespace.to_owned()).or_insert_with(make))
    }

    async fn follow(self: Arc<Self>, kind: Kind, api: Api<DynamicObject>) {
        let mut changes = watcher::watcher(api, watcher::Config::default()).default_backoff().boxed();
        let mut listed = BTreeSet::new();
        let mut is_first = true;
        while let Some(change) = changes.next().await {
            match change {
                Ok(Event::Init) => listed.clear(),
                Ok(Event::InitApply(object)) => {
                    listed.insert(object.metadata.uid.clone().unwrap_or_default());
                    self.take(kind, &object, false);
                }
                Ok(Event::InitDone) => {
                    // What is known before the first list is younger than it: our own answers.
                    if !is_first {
                        self.only(kind, &listed);
                    }
                    is_first = false;
                }
                Ok(Event::Apply(object)) => self.take(kind, &object, false),
                Ok(Event::Delete(object)) => self.take(kind, &object, true),
                Err(error) => tracing::warn!(?kind, %error, "the watch of the mirror broke"),
            }
        }
    }

    fn take(&self, kind: Kind, object: &DynamicObject, is_gone: bool) {
        let namespace = object.metadata.namespace.clone().unwrap_or_default();
        let Ok(value) = serde_json::to_value(object) else { return };
        let space = self.space(&namespace);
        space.seen.lock().apply(kind, value, is_gone);
        space.changes.send_modify(|version| *version += 1);
    }

    /// A list was complete: what is not in it is gone.
    fn only(&self, kind: Kind, listed: &BTreeSet<String>) {
        for space in self.spaces.lock().values() {
            let mut seen = space.seen.lock();
            for ((of, uid), item) in &mut seen.items {
                item.is_gone |= *of == kind && !listed.contains(uid);
            }
            drop(seen);
            space.changes.send_modify(|version| *version += 1);
        }
    }
}
