//! How many pods the controllers of pods want.

use std::collections::BTreeMap;
use std::sync::Arc;

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIResource, ObjectMeta, OwnerReference};
use kube::Client;
use serde::Deserialize;

use crate::calls::words;
use crate::cluster::PodFact;
use crate::wire;

/// Why it is not known how many pods there should be, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Unknown(pub(crate) String);

/// What a controller of pods is asked for: it, or its `scale`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Scaled {
    metadata: ObjectMeta,
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    replicas: i32,
}

/// The sum of what all controllers of these pods want, and whether there are pods that nobody controls.
pub(crate) async fn of(client: &Client, pods: &[Arc<PodFact>]) -> Result<(i32, bool), Unknown> {
    // By the controller of the pod; several may stand for the same one above them.
    let mut found: BTreeMap<&str, (String, i32)> = BTreeMap::new();
    let mut has_unmanaged = false;
    for pod in pods {
        let Some(owner) = pod.controller.as_deref() else {
            has_unmanaged = true;
            continue;
        };
        if found.contains_key(&*owner.uid) {
            continue;
        }
        let Some(scale) = scale(client, owner, &pod.key.namespace).await? else {
            return Err(Unknown(format!("found no controllers for pod {:?}", &*pod.key.name)));
        };
        found.insert(&owner.uid, scale);
    }
    let scales: BTreeMap<&String, i32> = found.values().map(|(uid, scale)| (uid, *scale)).collect();
    Ok((scales.values().fold(0, |sum: i32, scale| sum.saturating_add(*scale)), has_unmanaged))
}

/// The UID and the wish of a controller, or of the Deployment above it.
async fn scale(
    client: &Client,
    owner: &OwnerReference,
    namespace: &str,
) -> Result<Option<(String, i32)>, Unknown> {
    if is_of(owner, "ReplicaSet")
        && let Some(set) = get(client, &path("apps/v1", namespace, "replicasets", &owner.name)).await?
        && set.metadata.uid.as_ref() == Some(&owner.uid)
        && let Some(above) = wire::controller(&set.metadata).filter(|above| is_of(above, "Deployment"))
        && let Some(above) =
            by_uid(client, above, &path("apps/v1", namespace, "deployments", &above.name)).await?
    {
        return Ok(Some(above));
    }
    let plural = plural(client, owner).await?;
    if !plural.has_scale {
        let group = owner.api_version.split_once('/').map_or(String::new(), |(group, _)| format!(".{group}"));
        return Err(Unknown(format!("{}{group} does not implement the scale subresource", plural.name)));
    }
    let path = format!("{}/scale", path(&owner.api_version, namespace, &plural.name, &owner.name));
    by_uid(client, owner, &path).await
}

fn is_of(owner: &OwnerReference, kind: &str) -> bool {
    let group = owner.api_version.split_once('/').map_or("", |(group, _)| group);
    owner.kind == kind && matches!(group, "apps" | "extensions")
}

fn path(api_version: &str, namespace: &str, plural: &str, name: &str) -> String {
    let root = if api_version.contains('/') { "apis" } else { "api" };
    format!("/{root}/{api_version}/namespaces/{namespace}/{plural}/{name}")
}

async fn by_uid(
    client: &Client,
    owner: &OwnerReference,
    path: &str,
) -> Result<Option<(String, i32)>, Unknown> {
    let found = get(client, path).await?.filter(|found| found.metadata.uid.as_ref() == Some(&owner.uid));
    Ok(found.map(|found| (owner.uid.clone(), found.spec.replicas)))
}

async fn get(client: &Client, path: &str) -> Result<Option<Scaled>, Unknown> {
    let request = Request::get(path).body(Vec::new()).map_err(|error| Unknown(error.to_string()))?;
    match client.request::<Scaled>(request).await {
        Ok(found) => Ok(Some(found)),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(Unknown(words(&error))),
    }
}

/// How a kind is spelled in paths, and whether it can be scaled.
struct Plural {
    name: String,
    has_scale: bool,
}

async fn plural(client: &Client, owner: &OwnerReference) -> Result<Plural, Unknown> {
    let version = &owner.api_version;
    let all = match version.contains('/') {
        true => client.list_api_group_resources(version).await,
        false => client.list_core_api_resources(version).await,
    };
    let all: Vec<APIResource> = match all {
        Ok(list) => list.resources,
        Err(kube::Error::Api(status)) if status.is_not_found() => Vec::new(),
        Err(error) => return Err(Unknown(words(&error))),
    };
    let found = all.iter().find(|one| one.kind == owner.kind && !one.name.contains('/'));
    let Some(found) = found else {
        return Err(Unknown(format!("no matches for kind {:?} in version {version:?}", owner.kind)));
    };
    let scale = format!("{}/scale", found.name);
    Ok(Plural { name: found.name.clone(), has_scale: all.iter().any(|one| one.name == scale) })
}
