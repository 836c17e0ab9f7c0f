//! What is there before anybody asks for it: the first namespaces, the system's priority classes, and in every namespace
//! an account and the certificate to trust.

use serde_json::{Value, json};
use windlass_api::names::{ROOT_CA, ROOT_CA_DESCRIPTION};
use windlass_store::{Key, Prefix};

use crate::admission::SYSTEM_CLASSES;
use crate::managed::Writer;
use crate::request::{Query, Target};
use crate::status::{Result, Status};
use crate::{Accounts, Shared, create};

/// The namespaces that every server starts with.
const NAMESPACES: [&str; 4] = ["default", "kube-node-lease", "kube-public", "kube-system"];
/// The account of pods that name none.
const ACCOUNT: &str = "default";

/// A collection, and the object that is to be in it.
pub(crate) type Wanted = (String, Value);

/// Creates what every server has and this one has not.
pub(crate) fn install(shared: &Shared) -> Result<()> {
    let namespace = |name: &str| ("/api/v1/namespaces".to_owned(), json!({"metadata": {"name": name}}));
    create_all(shared, NAMESPACES.map(namespace).to_vec())?;
    if shared.config.accounts == Accounts::Ignored {
        return Ok(());
    }
    let classes = SYSTEM_CLASSES.map(|(name, value, description)| {
        let class = json!({"metadata": {"name": name}, "value": value, "description": description});
        ("/apis/scheduling.k8s.io/v1/priorityclasses".to_owned(), class)
    });
    create_all(shared, classes.into_iter().chain([service()]).chain(missing(shared)).collect())
}

/// The Service by which clients in a cluster know its API. Without an address: there is no proxy that would answer.
fn service() -> Wanted {
    let labels = json!({"component": "apiserver", "provider": "kubernetes"});
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": labels},
        "spec": {"clusterIP": "None", "ports": [{"name": "https", "port": 443, "targetPort": 6443}]},
    });
    ("/api/v1/namespaces/default/services".to_owned(), service)
}

/// Gives every namespace what it lacks.
pub(crate) fn fill_all(shared: &Shared) -> Result<()> {
    create_all(shared, missing(shared))
}

/// What namespaces lack.
fn missing(shared: &Shared) -> Vec<Wanted> {
    let namespaces = shared.store.list(&Prefix::resource_wide("namespaces")).records;
    namespaces.iter().flat_map(|record| missing_in(shared, record.key.name())).collect()
}

/// Gives a new namespace what every namespace has, so that pods can be made in it at once. That it comes back when
/// somebody deletes it is the work of a controller. What fails is tried again when the server starts.
pub(crate) fn fill(shared: &Shared, namespace: &str) {
    if let Err(status) = create_all(shared, missing_in(shared, namespace)) {
        tracing::warn!("fill namespace {namespace}: {}", status.to_json()["message"]);
    }
}

/// A namespace that is being deleted gets nothing.
fn missing_in(shared: &Shared, namespace: &str) -> Vec<Wanted> {
    let record = shared.store.get(&Key::new("namespaces", "", namespace));
    let is_ignored = shared.config.accounts == Accounts::Ignored;
    if is_ignored
        || record.is_none_or(|record| record.attributes.field("status.phase") == Some("Terminating"))
    {
        return Vec::new();
    }
    let place = |plural: &str| format!("/api/v1/namespaces/{namespace}/{plural}");
    let mut wanted = Vec::new();
    if shared.store.get(&Key::new("serviceaccounts", namespace, ACCOUNT)).is_none() {
        wanted.push((place("serviceaccounts"), json!({"metadata": {"name": ACCOUNT}})));
    }
    if let Some(ca) = shared.root_ca.get()
        && shared.store.get(&Key::new("configmaps", namespace, ROOT_CA)).is_none()
    {
        let meta = json!({"name": ROOT_CA, "annotations": {ROOT_CA_DESCRIPTION.0: ROOT_CA_DESCRIPTION.1}});
        wanted.push((place("configmaps"), json!({"metadata": meta, "data": {"ca.crt": ca}})));
    }
    wanted
}

/// Creates objects that need not be there yet. Those that are stay as they are: somebody may have changed them.
pub(crate) fn create_all(shared: &Shared, wanted: Vec<Wanted>) -> Result<()> {
    if !shared.is_durable || wanted.len() < 2 {
        return wanted.iter().try_for_each(|one| create_one(shared, one));
    }
    // Writes that wait for the disk at the same time share one sync.
    std::thread::scope(|scope| {
        let threads: Vec<_> = wanted.iter().map(|one| scope.spawn(|| create_one(shared, one))).collect();
        threads.into_iter().try_for_each(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(Status::internal("create a first object: the thread panicked")))
        })
    })
}

fn create_one(shared: &Shared, (path, body): &Wanted) -> Result<()> {
    let target = Target::parse(path)?;
    match create::create(shared, &target, &Query::default(), &Writer::server(), body.to_string().as_bytes()) {
        Err(status) if !status.is_taken() => Err(status),
        Ok(_) | Err(_) => Ok(()),
    }
}
