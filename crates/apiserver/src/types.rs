//! Which typed struct a served kind has: the one place that ties a row of the table to a type.

use k8s_openapi::api::batch::v1::{CronJob, Job};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Namespace, Node, Pod, Secret, ServiceAccount};
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
        "ClusterRole" => visit.visit::<ClusterRole>(),
        "ClusterRoleBinding" => visit.visit::<ClusterRoleBinding>(),
        "ConfigMap" => visit.visit::<ConfigMap>(),
        "CronJob" => visit.visit::<CronJob>(),
        "Event" => visit.visit::<Event>(),
        "Job" => visit.visit::<Job>(),
        "Lease" => visit.visit::<Lease>(),
        "Namespace" => visit.visit::<Namespace>(),
        "Node" => visit.visit::<Node>(),
        "Pod" => visit.visit::<Pod>(),
        "PodDisruptionBudget" => visit.visit::<PodDisruptionBudget>(),
        "PriorityClass" => visit.visit::<PriorityClass>(),
        "Role" => visit.visit::<Role>(),
        "RoleBinding" => visit.visit::<RoleBinding>(),
        "Secret" => visit.visit::<Secret>(),
        "ServiceAccount" => visit.visit::<ServiceAccount>(),
        _ => return None,
    })
}
