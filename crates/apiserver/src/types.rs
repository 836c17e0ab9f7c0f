//! Which typed struct a served kind has: the one place that ties a row of the table to a type.

use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{
    ConfigMap, Event, LimitRange, Namespace, Node, PersistentVolumeClaim, Pod, PodTemplate,
    ReplicationController, ResourceQuota, Secret, Service, ServiceAccount,
};
use k8s_openapi::api::events;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::resources::Resource;

/// Something to do with the type of a kind.
pub(crate) trait Visit {
    /// What comes of it.
    type Output;

    /// Does it.
    fn visit<T: DeserializeOwned + JsonSchema>(self) -> Self::Output;
}

/// Does something with the type of a kind; `None` for a kind that has none.
pub(crate) fn of<V: Visit>(resource: &Resource, visit: V) -> Option<V::Output> {
    Some(match resource.kind {
        "Event" if resource.group == "events.k8s.io" => visit.visit::<events::v1::Event>(),
        "ClusterRole" => visit.visit::<ClusterRole>(),
        "ClusterRoleBinding" => visit.visit::<ClusterRoleBinding>(),
        "ConfigMap" => visit.visit::<ConfigMap>(),
        "CronJob" => visit.visit::<CronJob>(),
        "DaemonSet" => visit.visit::<DaemonSet>(),
        "Deployment" => visit.visit::<Deployment>(),
        "Event" => visit.visit::<Event>(),
        "Job" => visit.visit::<Job>(),
        "Lease" => visit.visit::<Lease>(),
        "LimitRange" => visit.visit::<LimitRange>(),
        "Namespace" => visit.visit::<Namespace>(),
        "Node" => visit.visit::<Node>(),
        "PersistentVolumeClaim" => visit.visit::<PersistentVolumeClaim>(),
        "Pod" => visit.visit::<Pod>(),
        "PodDisruptionBudget" => visit.visit::<PodDisruptionBudget>(),
        "PodTemplate" => visit.visit::<PodTemplate>(),
        "PriorityClass" => visit.visit::<PriorityClass>(),
        "ReplicaSet" => visit.visit::<ReplicaSet>(),
        "ReplicationController" => visit.visit::<ReplicationController>(),
        "ResourceQuota" => visit.visit::<ResourceQuota>(),
        "Role" => visit.visit::<Role>(),
        "RoleBinding" => visit.visit::<RoleBinding>(),
        "Secret" => visit.visit::<Secret>(),
        "Service" => visit.visit::<Service>(),
        "ServiceAccount" => visit.visit::<ServiceAccount>(),
        "StatefulSet" => visit.visit::<StatefulSet>(),
        _ => return None,
    })
}
