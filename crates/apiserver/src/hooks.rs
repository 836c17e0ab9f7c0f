//! What is particular to a kind when it is written: defaults, strategy and validation, as functions in the table.

mod budget;
mod config;
mod cron_job;
mod job;
mod namespace;
mod pod;
mod pod_status;
mod priority_class;
mod rbac;
mod small;

use windlass_api::Gates;
use windlass_api::field::{Errors, Path};
use windlass_api::validation::meta as meta_rules;

pub(crate) use namespace::set_name_label;

use crate::body::{typed_meta, unreadable};
use crate::object::Object;
use crate::resources::Resource;
use crate::specs::Spec;
use crate::status::{Result, Status};
use crate::write;

/// What a hook may look at besides the objects.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// Which features are on.
    pub gates: &'a Gates,
    /// The time, as objects write it.
    pub now: &'a str,
    /// What is known about the spec of a new pod.
    pub(crate) spec: Option<&'a Spec>,
}

/// Texts for the client, sent as `Warning` headers.
pub type Warnings = Vec<String>;

/// A hook for a new object.
pub type OnCreate = fn(&mut Object, Context<'_>) -> Result<Warnings>;
/// A hook for a change: the new object, and the old.
pub type OnUpdate = fn(&mut Object, &Object, Context<'_>) -> Result<Warnings>;

/// The functions of one kind. They run after the rules that hold for all kinds.
#[derive(Clone, Copy, Debug)]
pub struct Hooks {
    /// Before a new object is stored.
    pub create: OnCreate,
    /// Before a changed object is stored.
    pub update: OnUpdate,
    /// Before a changed status is stored.
    pub status: OnUpdate,
    /// Whether these functions also check `metadata`, so that its errors stand among the others, and keep `generation`.
    pub is_complete: bool,
}

impl Hooks {
    /// Nothing particular.
    pub const NONE: Self = Self {
        create: |_, _| Ok(Warnings::new()),
        update: |_, _, _| Ok(Warnings::new()),
        status: |_, _, _| Ok(Warnings::new()),
        is_complete: false,
    };
}

/// Refuses an object with errors. upstream: a quantity that is none is found out by the decoder, before all rules.
fn check(resource: &Resource, object: &Object, errors: &Errors) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    match errors.iter().find(|error| error.detail.starts_with("quantities must match")) {
        Some(error) => Err(unreadable(resource, &error.detail)),
        None => Err(Status::invalid(resource.group, resource.kind, object.name(), errors)),
    }
}

/// Pods.
pub const POD: Hooks =
    Hooks { create: pod::create, update: pod::update, status: pod::status, is_complete: true };
/// Jobs.
pub const JOB: Hooks =
    Hooks { create: job::create, update: job::update, status: job::status, is_complete: true };
/// ConfigMaps.
pub const CONFIG_MAP: Hooks = Hooks {
    create: config::create_config_map,
    update: config::update_config_map,
    status: Hooks::NONE.status,
    is_complete: true,
};
/// CronJobs.
pub const CRON_JOB: Hooks =
    Hooks { create: cron_job::create, update: cron_job::update, status: cron_job::status, is_complete: true };
/// PodDisruptionBudgets.
pub const BUDGET: Hooks =
    Hooks { create: budget::create, update: budget::update, status: budget::status, is_complete: true };
/// Leases.
pub const LEASE: Hooks = Hooks {
    create: small::create_lease,
    update: small::update_lease,
    status: Hooks::NONE.status,
    is_complete: true,
};
/// Events.
pub const EVENT: Hooks = Hooks { create: small::create_event, update: small::update_event, ..Hooks::NONE };
/// Nodes.
pub const NODE: Hooks = Hooks {
    create: small::create_node,
    update: small::update_node,
    status: small::status_node,
    is_complete: true,
};
/// Services.
pub const SERVICE: Hooks = Hooks {
    create: small::create_service,
    update: small::update_service,
    status: Hooks::NONE.status,
    is_complete: true,
};
/// Secrets.
pub const SECRET: Hooks = Hooks {
    create: config::create_secret,
    update: config::update_secret,
    status: Hooks::NONE.status,
    is_complete: true,
};
/// Namespaces.
pub const NAMESPACE: Hooks = Hooks {
    create: namespace::create,
    update: namespace::update,
    status: namespace::status,
    is_complete: false,
};
/// PriorityClasses.
pub const PRIORITY_CLASS: Hooks = Hooks {
    create: priority_class::create,
    update: priority_class::update,
    status: Hooks::NONE.status,
    is_complete: true,
};
/// Roles and ClusterRoles.
pub const ROLE: Hooks = Hooks {
    create: rbac::create_role,
    update: rbac::update_role,
    status: Hooks::NONE.status,
    is_complete: true,
};
/// RoleBindings and ClusterRoleBindings.
pub const BINDING: Hooks = Hooks {
    create: rbac::create_binding,
    update: rbac::update_binding,
    status: Hooks::NONE.status,
    is_complete: true,
};

/// What is wrong with the `metadata` of a new object whose name is a DNS subdomain.
fn new_meta(resource: &Resource, object: &Object) -> Result<Errors> {
    new_meta_named(resource, object, meta_rules::dns1123_subdomain)
}

/// What is wrong with the `metadata` of a new object.
fn new_meta_named(resource: &Resource, object: &Object, name: fn(&str) -> Vec<String>) -> Result<Errors> {
    let meta = typed_meta(resource, object)?;
    let path = Path::new("metadata");
    Ok(if resource.namespaced {
        meta_rules::validate_object_meta(&meta, &path, name)
    } else {
        meta_rules::validate_cluster_object_meta(&meta, &path, name)
    })
}

/// What is wrong with the `metadata` of a changed object. Most changes leave it alone.
fn same_meta(resource: &Resource, object: &Object, old: &Object) -> Result<Errors> {
    write::meta_update_errors(resource, object, old, true)
}

/// Refuses an object with errors.
fn finish(resource: &Resource, object: &Object, errors: &Errors) -> Result<Warnings> {
    if errors.is_empty() {
        Ok(Warnings::new())
    } else {
        Err(Status::invalid(resource.group, resource.kind, object.name(), errors))
    }
}
