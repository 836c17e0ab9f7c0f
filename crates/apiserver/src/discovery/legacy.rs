//! The discovery documents that every client reads: groups, and the resources of each.

use serde_json::{Map, Value, json};

use super::{Entry, Group, STATUS_VERBS, verbs};
use crate::resources::Resource;

/// `/api`.
pub(super) fn versions(address: &str) -> Value {
    json!({
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [{"clientCIDR": "0.0.0.0/0", "serverAddress": address}],
    })
}

/// `/apis`.
pub(super) fn groups() -> Value {
    let groups = super::groups();
    let groups: Vec<Value> =
        groups.iter().filter(|group| !group.name.is_empty()).map(|one| group(one, false)).collect();
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
}

/// A group, alone or in the list of groups.
pub(super) fn group(group: &Group, is_alone: bool) -> Value {
    let version = json!({"groupVersion": group.group_version(), "version": group.version});
    let mut object = json!({"name": group.name, "versions": [version], "preferredVersion": version});
    if is_alone {
        object["kind"] = json!("APIGroup");
        object["apiVersion"] = json!("v1");
    }
    object
}

/// `/api/v1` and `/apis/{group}/{version}`.
pub(super) fn resources(group: &Group) -> Value {
    let mut list = Vec::new();
    for entry in &group.resources {
        match entry {
            Entry::Stored(resource) => {
                list.push(stored(resource));
                list.extend(subresources(resource));
            }
            Entry::Review(review) => list.push(json!({
                "name": review.plural, "singularName": review.kind.to_lowercase(),
                "namespaced": review.namespaced, "kind": review.kind, "verbs": ["create"],
            })),
        }
    }
    let mut object =
        json!({"kind": "APIResourceList", "groupVersion": group.group_version(), "resources": list});
    // upstream: the core group's list does not name its own version
    if !group.name.is_empty() {
        object["apiVersion"] = json!("v1");
    }
    object
}

fn stored(resource: &Resource) -> Value {
    let mut object = Map::new();
    object.insert("name".to_owned(), json!(resource.plural));
    object.insert("singularName".to_owned(), json!(resource.kind.to_lowercase()));
    object.insert("namespaced".to_owned(), json!(resource.namespaced));
    object.insert("kind".to_owned(), json!(resource.kind));
    object.insert("verbs".to_owned(), json!(verbs(resource)));
    if !resource.short_names.is_empty() {
        object.insert("shortNames".to_owned(), json!(resource.short_names));
    }
    if resource.is_in_all {
        object.insert("categories".to_owned(), json!(["all"]));
    }
    Value::Object(object)
}

fn subresources(resource: &Resource) -> Vec<Value> {
    let mut list = Vec::new();
    for subresource in resource.subresources {
        let mut object = json!({
            "name": format!("{}/{}", resource.plural, subresource.name), "singularName": "",
            "namespaced": resource.namespaced, "kind": subresource.kind, "verbs": subresource.verbs,
        });
        if !subresource.group.is_empty() {
            object["group"] = json!(subresource.group);
            object["version"] = json!(subresource.version);
        }
        list.push(object);
    }
    if resource.has_status {
        list.push(json!({
            "name": format!("{}/status", resource.plural), "singularName": "",
            "namespaced": resource.namespaced, "kind": resource.kind, "verbs": STATUS_VERBS,
        }));
    }
    list
}
