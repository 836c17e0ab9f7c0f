//! upstream: admission plugin ServiceAccount. Every pod runs as somebody, and may be given a token of theirs.

use serde_json::{Map, Value, json};
use windlass_api::names::ROOT_CA;
use windlass_store::Key;

use super::refused;
use crate::environment::generated_name;
use crate::object::Object;
use crate::resources;
use crate::status::Result;
use crate::{Accounts, Shared};

/// The account of pods that name none.
const DEFAULT: &str = "default";
const MIRROR: &str = "kubernetes.io/config.mirror";
const VOLUME: &str = "kube-api-access-";
/// Where clients in a pod look for their token.
const MOUNT_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// upstream: one hour and seven seconds, by which an injected token is told from one that was asked for.
pub(crate) const TOKEN_SECONDS: i64 = 3607;

/// Gives a new pod its account.
pub(super) fn admit(shared: &Shared, object: &mut Object) -> Result<()> {
    let pods = resources::core("pods");
    let given = match object.text_at("spec", "serviceAccountName") {
        "" => object.text_at("spec", "serviceAccount"),
        name => name,
    };
    let annotations = object.meta().and_then(|meta| meta.get("annotations"));
    if annotations.is_some_and(|annotations| annotations.get(MIRROR).is_some()) {
        if given.is_empty() {
            return Ok(());
        }
        return Err(refused(pods, object, "a mirror pod may not reference service accounts"));
    }
    let name = if given.is_empty() { DEFAULT.to_owned() } else { given.to_owned() };
    let namespace = object.namespace().to_owned();
    let Some(record) = shared.store.get(&Key::new("serviceaccounts", &namespace, &name)) else {
        let why =
            format!("error looking up service account {namespace}/{name}: serviceaccount {name:?} not found");
        return Err(refused(pods, object, &why));
    };
    let account = Object::from_stored(&record.bytes)?;
    let spec = object.section_mut("spec");
    spec.insert("serviceAccountName".to_owned(), json!(name));
    if shared.config.accounts == Accounts::Mounted && is_mounted(&account, spec) {
        mount(spec, || generated_name(VOLUME, shared.config.entropy.next()));
    }
    let is_empty = |list: Option<&Value>| list.and_then(Value::as_array).is_none_or(Vec::is_empty);
    let secrets = account.get("imagePullSecrets");
    if is_empty(spec.get("imagePullSecrets")) && !is_empty(secrets) {
        spec.insert("imagePullSecrets".to_owned(), json!(secrets));
    }
    Ok(())
}

/// upstream: the pod decides, then the account.
fn is_mounted(account: &Object, spec: &Map<String, Value>) -> bool {
    let field = "automountServiceAccountToken";
    let flag = |value: Option<&Value>| value.and_then(Value::as_bool);
    flag(spec.get(field)).or_else(|| flag(account.get(field))).unwrap_or(true)
}

fn mount(spec: &mut Map<String, Value>, new_name: impl FnOnce() -> String) {
    let volumes = spec.get("volumes").and_then(Value::as_array).into_iter().flatten();
    let existing = volumes.filter_map(|volume| volume["name"].as_str()).find(|name| name.starts_with(VOLUME));
    let has_volume = existing.is_some();
    let name = existing.map_or_else(new_name, str::to_owned);
    let mut is_needed = false;
    for list in ["initContainers", "containers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            is_needed |= mount_in(container, &name);
        }
    }
    if has_volume || !is_needed {
        return;
    }
    let volumes = spec.entry("volumes").or_insert_with(|| json!([]));
    if let Some(volumes) = volumes.as_array_mut() {
        volumes.push(volume(&name));
    }
}

/// Whether it was added: something else may be there already.
fn mount_in(container: &mut Value, volume: &str) -> bool {
    let Some(container) = container.as_object_mut() else { return false };
    let mounts = container.entry("volumeMounts").or_insert_with(|| json!([]));
    let Some(mounts) = mounts.as_array_mut() else { return false };
    if mounts.iter().any(|mount| mount["mountPath"] == MOUNT_PATH) {
        return false;
    }
    mounts.push(json!({"name": volume, "readOnly": true, "mountPath": MOUNT_PATH}));
    true
}

fn volume(name: &str) -> Value {
    json!({"name": name, "projected": {"defaultMode": 0o644, "sources": [
        {"serviceAccountToken": {"expirationSeconds": TOKEN_SECONDS, "path": "token"}},
        {"configMap": {"name": ROOT_CA, "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [
            {"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}},
        ]}},
    ]}})
}
