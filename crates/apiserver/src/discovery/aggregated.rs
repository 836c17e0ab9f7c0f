//! All groups with all their resources in one document.

use serde_json::{Map, Value, json};

use super::{Entry, Group, Review, STATUS_VERBS, verbs};
use crate::resources::Resource;

/// `APIGroupDiscoveryList` in a version of `apidiscovery.k8s.io`.
pub(super) fn list(groups: impl Iterator<Item = Group>, version: &str) -> Value {
    let items: Vec<Value> = groups.map(|one| group(&one)).collect();
    json!({
        "kind": "APIGroupDiscoveryList",
        "apiVersion": format!("apidiscovery.k8s.io/{version}"),
        "metadata": {},
        "items": items,
    })
}

fn group(group: &Group) -> Value {
    let resources: Vec<Value> = group
        .resources
        .iter()
        .map(|entry| match entry {
            Entry::Stored(resource) => stored(resource),
            Entry::Review(one) => review(one),
        })
        .collect();
    json!({
        "metadata": {"name": group.name},
        "versions": [{"version": group.version, "resources": resources, "freshness": "Current"}],
    })
}

fn scope(namespaced: bool) -> &'static str {
    if namespaced { "Namespaced" } else { "Cluster" }
}

fn kind(group: &str, version: &str, kind: &str) -> Value {
    json!({"group": group, "version": version, "kind": kind})
}

fn review(review: &Review) -> Value {
    json!({
        "resource": review.plural,
        "responseKind": kind(review.group, "v1", review.kind),
        "scope": scope(review.namespaced),
        "singularResource": review.kind.to_lowercase(),
        "verbs": ["create"],
    })
}

fn stored(resource: &Resource) -> Value {
    let own_kind = || kind(resource.group, resource.version, resource.kind);
    let mut object = Map::new();
    object.insert("resource".to_owned(), json!(resource.plural));
    object.insert("responseKind".to_owned(), own_kind());
    object.insert("scope".to_owned(), json!(scope(resource.namespaced)));
    object.insert("singularResource".to_owned(), json!(resource.kind.to_lowercase()));
    object.insert("verbs".to_owned(), json!(verbs(resource)));
    if !resource.short_names.is_empty() {
        object.insert("shortNames".to_owned(), json!(resource.short_names));
    }
    if resource.is_in_all {
        object.insert("categories".to_owned(), json!(["all"]));
    }
    let mut subresources: Vec<Value> = Vec::new();
    for subresource in resource.subresources {
        let group = if subresource.group.is_empty() { resource.group } else { subresource.group };
        let version = if subresource.version.is_empty() { resource.version } else { subresource.version };
        subresources.push(json!({
            "subresource": subresource.name,
            "responseKind": kind(group, version, subresource.kind),
            "verbs": subresource.verbs,
        }));
    }
    if resource.has_status {
        subresources.push(json!({
            "subresource": "status", "responseKind": own_kind(), "verbs": STATUS_VERBS,
        }));
    }
    if !subresources.is_empty() {
        object.insert("subresources".to_owned(), Value::Array(subresources));
    }
    Value::Object(object)
}
