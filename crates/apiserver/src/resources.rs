//! The table of what is served: one row a kind, with everything in which kinds differ.

use serde_json::Value;

use crate::hooks::{self, Hooks};
use crate::object::Object;

/// One kind of object.
#[derive(Debug)]
pub struct Resource {
    /// The API group; empty for the core group.
    pub group: &'static str,
    /// The version.
    pub version: &'static str,
    /// The kind.
    pub kind: &'static str,
    /// The name in paths.
    pub plural: &'static str,
    /// The name of the directory in upstream's storage, which shows in one error text.
    pub registry: &'static str,
    /// Whether objects live in a namespace.
    pub namespaced: bool,
    /// Whether there is a `status` subresource, and the main one leaves `status` alone.
    pub has_status: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub has_generation: bool,
    /// Whether a delete returns the object also when it is gone.
    pub returns_deleted: bool,
    /// Whether a delete that says nothing about dependents leaves them alone.
    pub orphans_by_default: bool,
    /// Whether dependents can be collected at all: not for events.
    pub has_dependents: bool,
    /// Whether a PUT may leave the version out.
    pub unconditional_update: bool,
    /// Whether a PUT may create.
    pub create_on_update: bool,
    /// Fields that can be selected by, besides name and namespace.
    pub fields: &'static [Field],
    /// What is particular to the kind when it is written.
    pub hooks: Hooks,
    /// What kubectl takes for the plural.
    pub short_names: &'static [&'static str],
    /// Whether `kubectl get all` shows it.
    pub is_in_all: bool,
    /// Subresources that are of another kind than the object, by name.
    pub subresources: &'static [Subresource],
    /// Whether nobody acts on such objects here, so that none can be made.
    pub is_read_only: bool,
    /// `batch/v1`, or `v1`.
    pub api_version: &'static str,
    /// What every stored object of this kind begins with, up to and without `"metadata"`.
    pub(crate) type_prefix: &'static str,
    /// What every stored object of this kind begins with, up to the digits of its revision.
    pub(crate) version_prefix: &'static str,
}

/// A subresource of another kind than the object, or with verbs of its own.
#[derive(Debug)]
pub struct Subresource {
    /// The last part of the path.
    pub name: &'static str,
    /// The group of its kind, when it is not that of the object.
    pub group: &'static str,
    /// The version of its kind, when it is not that of the object.
    pub version: &'static str,
    /// Its kind.
    pub kind: &'static str,
    /// What can be done with it.
    pub verbs: &'static [&'static str],
}

impl Subresource {
    /// One that can be created; its kind is still to be said.
    const fn named(name: &'static str) -> Self {
        Self { name, group: "", version: "", kind: "", verbs: &["create"] }
    }
}

/// A field that can be selected by.
#[derive(Debug)]
pub struct Field {
    /// As selectors spell it.
    pub name: &'static str,
    /// Where it is.
    pub pointer: &'static str,
    /// What it counts as when it is not there.
    pub absent: &'static str,
}

impl Field {
    /// The top-level field it is in.
    pub(crate) fn section(&self) -> &'static str {
        self.pointer.split('/').nth(1).unwrap_or_default()
    }

    pub(crate) fn value(&self, object: &Object) -> Option<String> {
        let mut parts = self.pointer.split('/').skip(2);
        let first = object.get(self.section());
        let value = first.and_then(|first| parts.try_fold(first, |value, part| value.get(part)));
        let text = match value {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Bool(flag)) => flag.to_string(),
            Some(Value::Number(number)) => number.to_string(),
            // upstream: the addresses of a pod, with commas between
            Some(Value::Array(items)) => {
                let items: Vec<&str> = items.iter().filter_map(|item| item["ip"].as_str()).collect();
                items.join(",")
            }
            Some(Value::Null | Value::Object(_)) | None => self.absent.to_owned(),
        };
        (!text.is_empty()).then_some(text)
    }
}

impl Resource {
    const fn new(
        [group, version, kind, plural]: [&'static str; 4],
        [api_version, type_prefix, version_prefix]: [&'static str; 3],
        namespaced: bool,
    ) -> Self {
        Self {
            group,
            version,
            kind,
            plural,
            api_version,
            type_prefix,
            version_prefix,
            registry: plural,
            namespaced,
            has_status: false,
            has_generation: false,
            returns_deleted: false,
            orphans_by_default: false,
            has_dependents: true,
            unconditional_update: true,
            create_on_update: false,
            fields: &[],
            hooks: Hooks::NONE,
            short_names: &[],
            is_in_all: false,
            subresources: &[],
            is_read_only: false,
        }
    }

    /// `jobs.batch`, or `pods`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// Refuses a field that selectors may not name, with upstream's text.
    pub(crate) fn check_field(&self, field: &str) -> Result<(), String> {
        let is_known = field == "metadata.name"
            || (self.namespaced && field == "metadata.namespace")
            || self.fields.iter().any(|known| known.name == field);
        match (is_known, self.kind) {
            (true, _) => Ok(()),
            (false, "Job") => windlass_api::strategy::check_field_label(field),
            (false, _) if !self.fields.is_empty() => Err(format!("field label not supported: {field}")),
            (false, _) => Err(format!(
                "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
            )),
        }
    }
}

macro_rules! fields {
    ($($name:literal => $pointer:literal $(or $absent:literal)?),* $(,)?) => {
        &[$(Field { name: $name, pointer: $pointer, absent: concat!($($absent)?) }),*]
    };
}

/// The beginning of a row: names, and the texts that are put together from them.
macro_rules! row {
    ($scope:ident, $group:literal, $version:literal, $kind:literal, $plural:literal) => {
        row!(@ $scope, $group, $version, $kind, $plural, concat!($group, "/", $version))
    };
    ($scope:ident, $version:literal, $kind:literal, $plural:literal) => {
        row!(@ $scope, "", $version, $kind, $plural, $version)
    };
    (@ $scope:ident, $group:literal, $version:literal, $kind:literal, $plural:literal, $gv:expr) => {
        Resource::new(
            [$group, $version, $kind, $plural],
            [
                $gv,
                concat!("{\"apiVersion\":\"", $gv, "\",\"kind\":\"", $kind, "\","),
                concat!(
                    "{\"apiVersion\":\"", $gv, "\",\"kind\":\"", $kind,
                    "\",\"metadata\":{\"resourceVersion\":\""
                ),
            ],
            row!(@@ $scope),
        )
    };
    (@@ namespaced) => { true };
    (@@ cluster) => { false };
}

static RESOURCES: [Resource; 27] = [
    Resource {
        returns_deleted: true,
        has_status: true,
        fields: fields!["status.phase" => "/status/phase"],
        hooks: hooks::NAMESPACE,
        short_names: &["ns"],
        subresources: &[Subresource {
            name: "finalize",
            group: "",
            version: "",
            kind: "Namespace",
            verbs: &["update"],
        }],
        ..row!(cluster, "v1", "Namespace", "namespaces")
    },
    Resource {
        has_status: true,
        has_generation: true,
        returns_deleted: true,
        fields: fields![
            "spec.nodeName" => "/spec/nodeName",
            "spec.host" => "/spec/nodeName",
            "spec.hostNetwork" => "/spec/hostNetwork" or "false",
            "spec.restartPolicy" => "/spec/restartPolicy",
            "spec.schedulerName" => "/spec/schedulerName",
            "spec.serviceAccountName" => "/spec/serviceAccountName",
            "status.phase" => "/status/phase",
            "status.podIP" => "/status/podIP",
            "status.podIPs" => "/status/podIPs",
            "status.nominatedNodeName" => "/status/nominatedNodeName",
        ],
        hooks: hooks::POD,
        short_names: &["po"],
        is_in_all: true,
        subresources: &[
            Subresource {
                kind: "PodAttachOptions",
                verbs: &["create", "get"],
                ..Subresource::named("attach")
            },
            Subresource { kind: "Binding", ..Subresource::named("binding") },
            Subresource {
                group: "policy",
                version: "v1",
                kind: "Eviction",
                ..Subresource::named("eviction")
            },
            Subresource { kind: "PodExecOptions", verbs: &["create", "get"], ..Subresource::named("exec") },
            Subresource { kind: "Pod", verbs: &["get"], ..Subresource::named("log") },
        ],
        ..row!(namespaced, "v1", "Pod", "pods")
    },
    Resource {
        hooks: hooks::EVENT,
        short_names: &["ev"],
        create_on_update: true,
        has_dependents: false,
        fields: fields![
            "involvedObject.kind" => "/involvedObject/kind",
            "involvedObject.namespace" => "/involvedObject/namespace",
            "involvedObject.name" => "/involvedObject/name",
            "involvedObject.uid" => "/involvedObject/uid",
            "involvedObject.apiVersion" => "/involvedObject/apiVersion",
            "involvedObject.resourceVersion" => "/involvedObject/resourceVersion",
            "involvedObject.fieldPath" => "/involvedObject/fieldPath",
            "reason" => "/reason",
            "reportingComponent" => "/reportingComponent",
            "source" => "/source/component",
            "type" => "/type",
        ],
        ..row!(namespaced, "v1", "Event", "events")
    },
    Resource {
        registry: "minions",
        hooks: hooks::NODE,
        short_names: &["no"],
        has_status: true,
        fields: fields!["spec.unschedulable" => "/spec/unschedulable" or "false"],
        ..row!(cluster, "v1", "Node", "nodes")
    },
    Resource {
        hooks: hooks::CONFIG_MAP,
        short_names: &["cm"],
        ..row!(namespaced, "v1", "ConfigMap", "configmaps")
    },
    Resource {
        hooks: hooks::SECRET,
        fields: fields!["type" => "/type"],
        ..row!(namespaced, "v1", "Secret", "secrets")
    },
    Resource {
        returns_deleted: true,
        short_names: &["sa"],
        subresources: &[Subresource {
            name: "token",
            group: "authentication.k8s.io",
            version: "v1",
            kind: "TokenRequest",
            verbs: &["create"],
        }],
        ..row!(namespaced, "v1", "ServiceAccount", "serviceaccounts")
    },
    Resource {
        returns_deleted: true,
        has_status: true,
        hooks: hooks::SERVICE,
        registry: "services/specs",
        fields: fields!["spec.clusterIP" => "/spec/clusterIP", "spec.type" => "/spec/type"],
        short_names: &["svc"],
        is_in_all: true,
        ..row!(namespaced, "v1", "Service", "services")
    },
    Resource {
        returns_deleted: true,
        has_status: true,
        short_names: &["pvc"],
        ..row!(namespaced, "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    },
    Resource {
        returns_deleted: true,
        has_status: true,
        short_names: &["quota"],
        ..row!(namespaced, "v1", "ResourceQuota", "resourcequotas")
    },
    Resource { short_names: &["limits"], ..row!(namespaced, "v1", "LimitRange", "limitranges") },
    Resource {
        returns_deleted: true,
        has_generation: true,
        ..row!(namespaced, "v1", "PodTemplate", "podtemplates")
    },
    Resource {
        short_names: &["rc"],
        is_in_all: true,
        is_read_only: true,
        ..row!(namespaced, "v1", "ReplicationController", "replicationcontrollers")
    },
    Resource {
        short_names: &["ds"],
        is_in_all: true,
        is_read_only: true,
        ..row!(namespaced, "apps", "v1", "DaemonSet", "daemonsets")
    },
    Resource {
        short_names: &["deploy"],
        is_in_all: true,
        is_read_only: true,
        ..row!(namespaced, "apps", "v1", "Deployment", "deployments")
    },
    Resource {
        short_names: &["rs"],
        is_in_all: true,
        is_read_only: true,
        ..row!(namespaced, "apps", "v1", "ReplicaSet", "replicasets")
    },
    Resource {
        short_names: &["sts"],
        is_in_all: true,
        is_read_only: true,
        ..row!(namespaced, "apps", "v1", "StatefulSet", "statefulsets")
    },
    Resource {
        has_status: true,
        has_generation: true,
        orphans_by_default: true,
        fields: fields!["status.successful" => "/status/succeeded" or "0"],
        hooks: hooks::JOB,
        is_in_all: true,
        ..row!(namespaced, "batch", "v1", "Job", "jobs")
    },
    Resource {
        has_status: true,
        has_generation: true,
        short_names: &["cj"],
        hooks: hooks::CRON_JOB,
        is_in_all: true,
        ..row!(namespaced, "batch", "v1", "CronJob", "cronjobs")
    },
    // Kept as core Events: see [`crate::events`].
    Resource {
        short_names: &["ev"],
        create_on_update: true,
        has_dependents: false,
        ..row!(namespaced, "events.k8s.io", "v1", "Event", "events")
    },
    Resource {
        unconditional_update: false,
        create_on_update: true,
        hooks: hooks::LEASE,
        ..row!(namespaced, "coordination.k8s.io", "v1", "Lease", "leases")
    },
    Resource {
        has_status: true,
        has_generation: true,
        unconditional_update: false,
        hooks: hooks::BUDGET,
        short_names: &["pdb"],
        ..row!(namespaced, "policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
    },
    Resource {
        has_generation: true,
        hooks: hooks::PRIORITY_CLASS,
        short_names: &["pc"],
        ..row!(cluster, "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses")
    },
    Resource { hooks: hooks::ROLE, ..row!(namespaced, "rbac.authorization.k8s.io", "v1", "Role", "roles") },
    Resource {
        hooks: hooks::BINDING,
        ..row!(namespaced, "rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings")
    },
    Resource {
        hooks: hooks::ROLE,
        ..row!(cluster, "rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles")
    },
    Resource {
        hooks: hooks::BINDING,
        ..row!(cluster, "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings")
    },
];

/// The resource at `/apis/{group}/{version}/{plural}`.
pub fn find(group: &str, version: &str, plural: &str) -> Option<&'static Resource> {
    RESOURCES.iter().find(|r| r.group == group && r.version == version && r.plural == plural)
}

/// The resource `plural` of the core group.
pub(crate) fn core(plural: &str) -> &'static Resource {
    find("", "v1", plural).expect("only called with core resources of the table")
}

/// All resources.
pub fn all() -> &'static [Resource] {
    &RESOURCES
}
