//! Roles and bindings: names that may hold colons, rules that say something, and a `roleRef` that never changes.

use serde_json::{Value, json};
use windlass_api::field::{Error, Errors, Path};
use windlass_api::validation::meta as meta_rules;

use super::{Context, Warnings, finish, new_meta_named};
use crate::auth::policy::{GROUP, RoleRef, Rule, Subject};
use crate::body::unreadable;
use crate::object::Object;
use crate::resources::{self, Resource};
use crate::status::Result;
use crate::write;

pub(super) fn create_role(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    let resource = resource_of(object);
    let mut errors = new_meta_named(resource, object, path_segment)?;
    errors.extend(check_rules(resource, object)?);
    finish(resource, object, &errors)
}

pub(super) fn update_role(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let resource = resource_of(object);
    write::check_meta_update(resource, object, old)?;
    let errors = check_rules(resource, object)?;
    finish(resource, object, &errors)
}

pub(super) fn create_binding(object: &mut Object, _: Context<'_>) -> Result<Warnings> {
    let resource = resource_of(object);
    default_groups(object);
    let mut errors = new_meta_named(resource, object, path_segment)?;
    errors.extend(check_binding(resource, object)?);
    finish(resource, object, &errors)
}

pub(super) fn update_binding(object: &mut Object, old: &Object, _: Context<'_>) -> Result<Warnings> {
    let resource = resource_of(object);
    default_groups(object);
    write::check_meta_update(resource, object, old)?;
    let mut errors = check_binding(resource, object)?;
    if object.get("roleRef") != old.get("roleRef") {
        // upstream: shown with the names of the fields in Go
        let text = |field: &str| object.text_at("roleRef", field).to_owned();
        let value = json!({"APIGroup": text("apiGroup"), "Kind": text("kind"), "Name": text("name")});
        errors.push(Error::invalid(&Path::new("roleRef"), value, "cannot change roleRef"));
    }
    finish(resource, object, &errors)
}

/// The row of the table: these functions serve two kinds each.
fn resource_of(object: &Object) -> &'static Resource {
    let plural = match object.get("kind").and_then(Value::as_str) {
        Some("Role") => "roles",
        Some("RoleBinding") => "rolebindings",
        Some("ClusterRole") => "clusterroles",
        _ => "clusterrolebindings",
    };
    resources::find(GROUP, "v1", plural).expect("a row of the table")
}

/// upstream: any name that can stand in a path.
fn path_segment(name: &str) -> Vec<String> {
    if matches!(name, "." | "..") {
        return vec![format!("may not be '{name}'")];
    }
    let held = ["/", "%"].into_iter().filter(|text| name.contains(text));
    held.map(|text| format!("may not contain '{text}'")).collect()
}

fn part<T: serde::de::DeserializeOwned + Default>(
    resource: &Resource,
    object: &Object,
    field: &str,
) -> Result<T> {
    match object.get(field) {
        None | Some(Value::Null) => Ok(T::default()),
        Some(value) => T::deserialize(value).map_err(|error| unreadable(resource, &error.to_string())),
    }
}

fn check_rules(resource: &Resource, object: &Object) -> Result<Errors> {
    let rules: Vec<Rule> = part(resource, object, "rules")?;
    let mut errors = Errors::new();
    for (i, rule) in rules.iter().enumerate() {
        let path = Path::new("rules").index(i);
        if rule.verbs.is_empty() {
            errors.push(Error::required(&path.child("verbs"), "verbs must contain at least one value"));
        }
        if !rule.non_resource_urls.is_empty() {
            let at = path.child("nonResourceURLs");
            let names_resources =
                !(rule.api_groups.is_empty() && rule.resources.is_empty() && rule.resource_names.is_empty());
            if resource.namespaced {
                let why = "namespaced rules cannot apply to non-resource URLs";
                errors.push(Error::invalid(&at, json!(rule.non_resource_urls), why));
            }
            if names_resources {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(Error::invalid(&at, json!(rule.non_resource_urls), why));
            }
            continue;
        }
        if rule.api_groups.is_empty() {
            let why = "resource rules must supply at least one api group";
            errors.push(Error::required(&path.child("apiGroups"), why));
        }
        if rule.resources.is_empty() {
            let why = "resource rules must supply at least one resource";
            errors.push(Error::required(&path.child("resources"), why));
        }
    }
    Ok(errors)
}

/// upstream: defaults of rbac/v1.
fn default_groups(object: &mut Object) {
    if object.get("roleRef").is_none() {
        object.insert("roleRef", json!({}));
    }
    if let Value::Object(role) = object.get_mut("roleRef") {
        let group = role.entry("apiGroup").or_insert_with(|| json!(""));
        if *group == json!("") {
            *group = json!(GROUP);
        }
    }
    if object.get("subjects").is_none() {
        return;
    }
    for subject in object.get_mut("subjects").as_array_mut().into_iter().flatten() {
        let is_plain = matches!(subject["kind"].as_str(), Some("User" | "Group"));
        if is_plain && subject["apiGroup"].as_str().is_none_or(str::is_empty) && subject.is_object() {
            subject["apiGroup"] = json!(GROUP);
        }
    }
}

fn check_binding(resource: &Resource, object: &Object) -> Result<Errors> {
    let role: RoleRef = part(resource, object, "roleRef")?;
    let subjects: Vec<Subject> = part(resource, object, "subjects")?;
    let mut errors = Errors::new();
    let path = Path::new("roleRef");
    if role.api_group != GROUP {
        errors.push(Error::not_supported(&path.child("apiGroup"), &role.api_group, &[GROUP]));
    }
    let kinds: &[&str] = if resource.namespaced { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&role.kind.as_str()) {
        errors.push(Error::not_supported(&path.child("kind"), &role.kind, kinds));
    }
    if role.name.is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    } else {
        errors.extend(meta_rules::each(&path.child("name"), &role.name, path_segment(&role.name)));
    }
    for (i, subject) in subjects.iter().enumerate() {
        errors.extend(check_subject(subject, &Path::new("subjects").index(i), resource.namespaced));
    }
    Ok(errors)
}

fn check_subject(subject: &Subject, path: &Path, is_namespaced: bool) -> Errors {
    let mut errors = Errors::new();
    if subject.name.is_empty() {
        errors.push(Error::required(&path.child("name"), ""));
    }
    match subject.kind.as_str() {
        "ServiceAccount" => {
            if !subject.name.is_empty() {
                let wrong = meta_rules::dns1123_subdomain(&subject.name);
                errors.extend(meta_rules::each(&path.child("name"), &subject.name, wrong));
            }
            if !subject.api_group.is_empty() {
                errors.push(Error::not_supported(&path.child("apiGroup"), &subject.api_group, &[""]));
            }
            if !is_namespaced && subject.namespace.is_empty() {
                errors.push(Error::required(&path.child("namespace"), ""));
            }
        }
        "User" | "Group" => {
            if subject.api_group != GROUP {
                errors.push(Error::not_supported(&path.child("apiGroup"), &subject.api_group, &[GROUP]));
            }
        }
        other => {
            let kinds = ["ServiceAccount", "User", "Group"];
            errors.push(Error::not_supported(&path.child("kind"), other, &kinds));
        }
    }
    errors
}
