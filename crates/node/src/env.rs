//! A container's environment and command line: variables from all their sources, and `$(VAR)` expansion.
//!
//! Nothing is fetched here: [`references`] says what a container needs, the caller brings it as [`Sources`].

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::{Container, EnvVarSource, Pod, ResourceFieldSelector};
use windlass_api::quantity::Quantity;

/// An object that environment variables come from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reference {
    /// The ConfigMap of this name in the pod's namespace.
    ConfigMap(String),
    /// The Secret of this name in the pod's namespace.
    Secret(String),
}

/// What the caller found: the data of each object that exists.
pub type Sources = BTreeMap<Reference, BTreeMap<String, String>>;

/// What the node knows and a pod may ask for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts<'a> {
    /// `status.hostIP` and `status.podIP`.
    pub ip: &'a str,
    /// Allocatable CPU of the node: the limit of a container that has none.
    pub cpu: Quantity,
    /// Allocatable memory of the node.
    pub memory: Quantity,
}

/// Why a container's environment cannot be made; upstream's texts, which end in a waiting message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The object is not there.
    #[error("{kind} {name:?} not found")]
    NoObject {
        /// `configmap` or `secret`.
        kind: &'static str,
        /// Its name.
        name: String,
    },
    /// The object does not have the key.
    #[error("couldn't find key {key} in {kind} {namespace}/{name}")]
    NoKey {
        /// The key.
        key: String,
        /// `ConfigMap` or `Secret`.
        kind: &'static str,
        /// The namespace.
        namespace: String,
        /// The name.
        name: String,
    },
    /// The field is not one that environment variables can have.
    #[error("unsupported fieldPath: {0}")]
    BadField(String),
    /// The resource is not one that environment variables can have.
    #[error("unsupported container resource: {0}")]
    BadResource(String),
    /// A source that this node does not have.
    #[error("environment variable {0}: this source is not supported")]
    Unsupported(String),
}

/// The objects that a container's environment needs, those that may be missing too.
pub fn references(container: &Container) -> BTreeSet<Reference> {
    let mut found = BTreeSet::new();
    for from in container.env_from.iter().flatten() {
        found.extend(from.config_map_ref.iter().map(|map| Reference::ConfigMap(map.name.clone())));
        found.extend(from.secret_ref.iter().map(|secret| Reference::Secret(secret.name.clone())));
    }
    for source in container.env.iter().flatten().filter_map(|variable| variable.value_from.as_ref()) {
        found.extend(source.config_map_key_ref.iter().map(|map| Reference::ConfigMap(map.name.clone())));
        found.extend(source.secret_key_ref.iter().map(|secret| Reference::Secret(secret.name.clone())));
    }
    found
}

/// The environment of a container on top of `base`, in the order of definition.
pub fn environment(
    pod: &Pod,
    container: &Container,
    sources: &Sources,
    facts: &Facts<'_>,
    base: &[(String, String)],
) -> Result<Vec<(String, String)>, Error> {
    let mut variables = Variables::default();
    base.iter().for_each(|(name, value)| variables.set(name, value.clone()));
    add_env_from(container, sources, &mut variables)?;
    for variable in container.env.iter().flatten() {
        match (&variable.value, &variable.value_from) {
            (_, Some(source)) => {
                if let Some(value) = resolve(pod, container, &variable.name, source, sources, facts)? {
                    variables.set(&variable.name, value);
                }
            }
            (value, None) => {
                let value = expand(value.as_deref().unwrap_or_default(), &variables.values);
                variables.set(&variable.name, value);
            }
        }
    }
    Ok(variables.ordered())
}

#[derive(Default)]
struct Variables {
    order: Vec<String>,
    values: BTreeMap<String, String>,
}

impl Variables {
    fn set(&mut self, name: &str, value: String) {
        if self.values.insert(name.to_owned(), value).is_none() {
            self.order.push(name.to_owned());
        }
    }

    fn ordered(mut self) -> Vec<(String, String)> {
        let values = &mut self.values;
        self.order.into_iter().filter_map(|name| values.remove_entry(&name)).collect()
    }
}

fn add_env_from(container: &Container, sources: &Sources, variables: &mut Variables) -> Result<(), Error> {
    for from in container.env_from.iter().flatten() {
        let map = from
            .config_map_ref
            .as_ref()
            .map(|map| (Reference::ConfigMap(map.name.clone()), "configmap", map.optional.unwrap_or(false)));
        let secret = from.secret_ref.as_ref().map(|secret| {
            (Reference::Secret(secret.name.clone()), "secret", secret.optional.unwrap_or(false))
        });
        for (reference, kind, is_optional) in map.into_iter().chain(secret) {
            let prefix = from.prefix.as_deref().unwrap_or_default();
            match sources.get(&reference) {
                Some(data) => {
                    data.iter()
                        .for_each(|(key, value)| variables.set(&format!("{prefix}{key}"), value.clone()));
                }
                None if is_optional => {}
                None => return Err(Error::NoObject { kind, name: reference.into_name() }),
            }
        }
    }
    Ok(())
}

impl Reference {
    fn into_name(self) -> String {
        match self {
            Self::ConfigMap(name) | Self::Secret(name) => name,
        }
    }
}

/// The value from a source; `None` when an optional one is not there.
fn resolve(
    pod: &Pod,
    container: &Container,
    name: &str,
    source: &EnvVarSource,
    sources: &Sources,
    facts: &Facts<'_>,
) -> Result<Option<String>, Error> {
    if let Some(field) = &source.field_ref {
        return field_value(pod, &field.field_path, facts).map(Some);
    }
    if let Some(resource) = &source.resource_field_ref {
        return resource_value(pod, container, resource, facts).map(Some);
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    if let Some(map) = &source.config_map_key_ref {
        let reference = Reference::ConfigMap(map.name.clone());
        return key_value(sources, reference, &map.key, map.optional, namespace);
    }
    if let Some(secret) = &source.secret_key_ref {
        let reference = Reference::Secret(secret.name.clone());
        return key_value(sources, reference, &secret.key, secret.optional, namespace);
    }
    Err(Error::Unsupported(name.to_owned()))
}

fn key_value(
    sources: &Sources,
    reference: Reference,
    key: &str,
    optional: Option<bool>,
    namespace: &str,
) -> Result<Option<String>, Error> {
    let (lower, kind) = match &reference {
        Reference::ConfigMap(_) => ("configmap", "ConfigMap"),
        Reference::Secret(_) => ("secret", "Secret"),
    };
    let data = sources.get(&reference);
    match data.and_then(|data| data.get(key)) {
        Some(value) => Ok(Some(value.clone())),
        None if optional == Some(true) => Ok(None),
        None if data.is_none() => Err(Error::NoObject { kind: lower, name: reference.into_name() }),
        None => Err(Error::NoKey {
            key: key.to_owned(),
            kind,
            namespace: namespace.to_owned(),
            name: reference.into_name(),
        }),
    }
}

/// The downward API for files: as for variables, and all labels or annotations at once.
pub(crate) fn volume_field(pod: &Pod, path: &str, facts: &Facts<'_>) -> Result<String, Error> {
    let all = |map: &Option<BTreeMap<String, String>>| {
        let lines = map.iter().flatten().map(|(key, value)| format!("{key}={}", quoted(value)));
        lines.collect::<Vec<_>>().join("\n")
    };
    match path {
        "metadata.labels" => Ok(all(&pod.metadata.labels)),
        "metadata.annotations" => Ok(all(&pod.metadata.annotations)),
        _ => field_value(pod, path, facts),
    }
}

/// As Go quotes a text in a program.
fn quoted(text: &str) -> String {
    let mut out = String::from('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if (c as u32) < 0x20 || c as u32 == 0x7f => out.push_str(&format!("\\x{:02x}", c as u32)),
            c => out.push(c),
        }
    }
    out + "\""
}

/// A request or limit of the container that the selector names.
pub(crate) fn resource_of_named(
    pod: &Pod,
    selector: &ResourceFieldSelector,
    facts: &Facts<'_>,
) -> Result<String, Error> {
    let spec = pod.spec.as_ref().ok_or_else(|| Error::BadResource(selector.resource.clone()))?;
    let container = spec.containers.first().ok_or_else(|| Error::BadResource(selector.resource.clone()))?;
    resource_value(pod, container, selector, facts)
}

/// The downward API for environment variables.
fn field_value(pod: &Pod, path: &str, facts: &Facts<'_>) -> Result<String, Error> {
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref());
    let text = |value: Option<&String>| value.cloned().unwrap_or_default();
    let in_map =
        |map: &Option<BTreeMap<String, String>>, key: &str| text(map.as_ref().and_then(|map| map.get(key)));
    if let Some((field, key)) = path.strip_suffix("']").and_then(|path| path.split_once("['")) {
        return match field {
            "metadata.labels" => Ok(in_map(&meta.labels, key)),
            "metadata.annotations" => Ok(in_map(&meta.annotations, key)),
            _ => Err(Error::BadField(path.to_owned())),
        };
    }
    match path {
        "metadata.name" => Ok(text(meta.name.as_ref())),
        "metadata.namespace" => Ok(text(meta.namespace.as_ref())),
        "metadata.uid" => Ok(text(meta.uid.as_ref())),
        "spec.nodeName" => Ok(text(spec.and_then(|spec| spec.node_name.as_ref()))),
        "spec.serviceAccountName" => Ok(text(spec.and_then(|spec| spec.service_account_name.as_ref()))),
        "status.hostIP" | "status.hostIPs" | "status.podIP" | "status.podIPs" => Ok(facts.ip.to_owned()),
        _ => Err(Error::BadField(path.to_owned())),
    }
}

/// A request or limit of a container, divided and rounded up; a limit that is not set is the node's
/// allocatable.
fn resource_value(
    pod: &Pod,
    container: &Container,
    selector: &ResourceFieldSelector,
    facts: &Facts<'_>,
) -> Result<String, Error> {
    let bad = || Error::BadResource(selector.resource.clone());
    let all = pod.spec.iter().flat_map(|spec| spec.init_containers.iter().flatten().chain(&spec.containers));
    let container = match &selector.container_name {
        Some(name) => all.into_iter().find(|other| other.name == *name).ok_or_else(bad)?,
        None => container,
    };
    let (list, resource) = selector.resource.split_once('.').ok_or_else(bad)?;
    let resources = container.resources.as_ref();
    let amounts = match list {
        "limits" => resources.and_then(|resources| resources.limits.as_ref()),
        "requests" => resources.and_then(|resources| resources.requests.as_ref()),
        _ => return Err(bad()),
    };
    let given = amounts.and_then(|amounts| amounts.get(resource)).and_then(|amount| amount.0.parse().ok());
    let amount: Quantity = match (given, list, resource) {
        (Some(amount), _, _) => amount,
        (None, "limits", "cpu") => facts.cpu,
        (None, "limits", "memory") => facts.memory,
        (None, _, "cpu" | "memory" | "ephemeral-storage") => Quantity::ZERO,
        (None, _, other) if other.starts_with("hugepages-") => Quantity::ZERO,
        (None, _, _) => return Err(bad()),
    };
    let divisor = selector.divisor.as_ref().and_then(|divisor| divisor.0.parse::<Quantity>().ok());
    let divisor = divisor.filter(|divisor| !divisor.is_zero()).unwrap_or(Quantity::from_value(1));
    Ok(match resource {
        "cpu" => divide_up(amount.milli_value(), divisor.milli_value()),
        _ => divide_up(amount.value(), divisor.value()),
    })
}

fn divide_up(amount: i64, divisor: i64) -> String {
    let (quotient, rest) = (amount / divisor.max(1), amount % divisor.max(1));
    (quotient + i64::from(rest > 0)).to_string()
}

/// The command line of a container: `command` and `args`, expanded.
pub fn command_line(container: &Container, environment: &[(String, String)]) -> Vec<String> {
    let variables: BTreeMap<String, String> = environment.iter().cloned().collect();
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    words.map(|word| expand(word, &variables)).collect()
}

/// Replaces `$(NAME)` by the value of a variable that is defined; `$$` stands for one `$`; all else stays as
/// it is.
pub fn expand(text: &str, variables: &BTreeMap<String, String>) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        if let Some(after) = rest.strip_prefix('$') {
            out.push('$');
            rest = after;
            continue;
        }
        let reference = rest.strip_prefix('(').and_then(|inner| inner.split_once(')'));
        match reference {
            Some((name, after)) => {
                match variables.get(name) {
                    Some(value) => out.push_str(value),
                    None => out.extend(["$(", name, ")"]),
                }
                rest = after;
            }
            None => out.push('$'),
        }
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn expansion_follows_the_rules_of_kubernetes() {
        let variables = [("A", "1"), ("B", "$(A)"), ("E", "")];
        let variables = variables.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        for (text, want) in [
            ("", ""),
            ("plain", "plain"),
            ("$(A)", "1"),
            ("x$(A)y$(A)", "x1y1"),
            ("$(B)", "$(A)"),
            ("[$(E)]", "[]"),
            ("$(MISSING)", "$(MISSING)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$A ${A} $", "$A ${A} $"),
            ("$(A", "$(A"),
            ("$()", "$()"),
            ("ü$(A)ü", "ü1ü"),
        ] {
            assert_eq!(expand(text, &variables), want, "{text}");
        }
    }

    fn pod(container: Value) -> Pod {
        serde_json::from_value(json!({
            "metadata": {
                "name": "p", "namespace": "ns", "uid": "u",
                "labels": {"batch.kubernetes.io/job-completion-index": "7"}, "annotations": {"note": "n"},
            },
            "spec": {"nodeName": "node", "serviceAccountName": "sa", "containers": [container]},
        }))
        .expect("a pod")
    }

    fn sources() -> Sources {
        let data = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        BTreeMap::from([
            (Reference::ConfigMap("m".into()), data(&[("k", "from-map"), ("l", "2")])),
            (Reference::Secret("s".into()), data(&[("k", "from-secret")])),
        ])
    }

    fn facts() -> Facts<'static> {
        Facts { ip: "127.0.0.1", cpu: Quantity::from_value(4), memory: Quantity::from_value(8 << 30) }
    }

    fn env_of(container: Value) -> Result<Vec<(String, String)>, Error> {
        let pod = pod(container);
        let container = &pod.spec.as_ref().expect("a spec").containers[0];
        environment(&pod, container, &sources(), &facts(), &[("PATH".into(), "/bin".into())])
    }

    fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    }

    #[test]
    fn later_variables_see_and_replace_earlier_ones() {
        let got = env_of(json!({"name": "c", "env": [
            {"name": "A", "value": "1"}, {"name": "B", "value": "$(A)2$(LATER)"}, {"name": "LATER", "value": "x"},
            {"name": "A", "value": "3"}, {"name": "PATH", "value": "/opt:$(PATH)"}, {"name": "EMPTY"},
        ]}));
        let want = [("PATH", "/opt:/bin"), ("A", "3"), ("B", "12$(LATER)"), ("LATER", "x"), ("EMPTY", "")];
        assert_eq!(got, Ok(pairs(&want)));
    }

    #[test]
    fn every_downward_field_has_its_value() {
        for (path, want) in [
            ("metadata.name", "p"),
            ("metadata.namespace", "ns"),
            ("metadata.uid", "u"),
            ("metadata.labels['batch.kubernetes.io/job-completion-index']", "7"),
            ("metadata.labels['none']", ""),
            ("metadata.annotations['note']", "n"),
            ("spec.nodeName", "node"),
            ("spec.serviceAccountName", "sa"),
            ("status.hostIP", "127.0.0.1"),
            ("status.podIP", "127.0.0.1"),
        ] {
            let got = env_of(json!({"name": "c", "env": [
                {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}},
            ]}));
            assert_eq!(got, Ok(pairs(&[("PATH", "/bin"), ("JOB_COMPLETION_INDEX", want)])), "{path}");
        }
    }

    #[test]
    fn resources_are_divided_and_rounded_up() {
        let resources = json!({"requests": {"cpu": "250m", "memory": "100Mi"}, "limits": {"cpu": "1500m"}});
        for (resource, divisor, want) in [
            ("requests.cpu", json!(null), "1"),
            ("requests.cpu", json!("1m"), "250"),
            ("limits.cpu", json!("0"), "2"),
            ("requests.memory", json!("1Mi"), "100"),
            ("requests.memory", json!(null), "104857600"),
            ("limits.memory", json!("1Gi"), "8"),
            ("requests.ephemeral-storage", json!(null), "0"),
        ] {
            let got = env_of(json!({"name": "c", "resources": resources, "env": [
                {"name": "R", "valueFrom": {"resourceFieldRef": {"resource": resource, "divisor": divisor}}},
            ]}));
            assert_eq!(got, Ok(pairs(&[("PATH", "/bin"), ("R", want)])), "{resource} {divisor}");
        }
    }

    #[test]
    fn maps_and_secrets_are_taken_whole_or_by_key_and_may_be_optional() {
        let got = env_of(json!({"name": "c",
            "envFrom": [
                {"configMapRef": {"name": "m"}, "prefix": "M_"}, {"secretRef": {"name": "s"}},
                {"secretRef": {"name": "none", "optional": true}},
            ],
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}},
                {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s", "key": "none", "optional": true}}},
                {"name": "D", "value": "$(M_l)"},
            ],
        }));
        let want = [
            ("PATH", "/bin"),
            ("M_k", "from-map"),
            ("M_l", "2"),
            ("k", "from-secret"),
            ("A", "from-map"),
            ("B", "from-secret"),
            ("D", "2"),
        ];
        assert_eq!(got, Ok(pairs(&want)));
    }

    #[test]
    fn what_is_missing_is_named() {
        for (container, want) in [
            (json!({"envFrom": [{"configMapRef": {"name": "x"}}]}), "configmap \"x\" not found"),
            (
                json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "x", "key": "k"}}}]}),
                "secret \"x\" not found",
            ),
            (
                json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "z"}}}]}),
                "couldn't find key z in ConfigMap ns/m",
            ),
            (
                json!({"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.nope"}}}]}),
                "unsupported fieldPath: spec.nope",
            ),
            (
                json!({"env": [{"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.gold"}}}]}),
                "unsupported container resource: limits.gold",
            ),
            (
                json!({"env": [{"name": "A", "valueFrom": {}}]}),
                "environment variable A: this source is not supported",
            ),
        ] {
            let mut container = container;
            container["name"] = json!("c");
            assert_eq!(env_of(container).map_err(|error| error.to_string()), Err(want.to_owned()));
        }
    }

    #[test]
    fn references_are_all_objects_that_have_to_be_fetched() {
        let container = serde_json::from_value(json!({"name": "c",
            "envFrom": [{"configMapRef": {"name": "a"}}, {"secretRef": {"name": "b"}}],
            "env": [
                {"name": "A", "valueFrom": {"configMapKeyRef": {"name": "c", "key": "k"}}},
                {"name": "B", "valueFrom": {"secretKeyRef": {"name": "b", "key": "k"}}},
                {"name": "C", "value": "v"},
            ],
        }));
        let want = [
            Reference::ConfigMap("a".into()),
            Reference::ConfigMap("c".into()),
            Reference::Secret("b".into()),
        ];
        assert_eq!(references(&container.expect("a container")), BTreeSet::from(want));
    }

    #[test]
    fn command_and_args_are_joined_and_expanded() {
        let container = serde_json::from_value(
            json!({"name": "c", "command": ["sh", "-c"], "args": ["echo $(A) $$(A) $(B)"]}),
        );
        let line = command_line(&container.expect("a container"), &pairs(&[("A", "1")]));
        assert_eq!(line, ["sh", "-c", "echo 1 $(A) $(B)"]);
    }
}
