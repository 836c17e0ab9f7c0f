//! Admission: what the server itself puts into new objects, and what it refuses because of other objects.
//!
//! [`create`] runs before defaults and validation, as upstream's mutating plugins do; [`validate`] runs after them.

pub(crate) mod node_restriction;
mod nodes;
mod priority;
mod service_account;
mod tolerations;
pub(crate) mod topology;

use windlass_store::Key;

use crate::object::Object;
use crate::request::Target;
use crate::resources::{self, Resource};
use crate::status::{Result, Status};
use crate::{Accounts, Shared};

pub(crate) use priority::SYSTEM_CLASSES;
pub(crate) use service_account::TOKEN_SECONDS;

/// Prepares a new object, or refuses it.
pub(crate) fn create(shared: &Shared, target: &Target, object: &mut Object) -> Result<()> {
    if target.resource.namespaced {
        check_namespace(shared, target, object)?;
    }
    node_restriction::create(target, object)?;
    if shared.config.accounts == Accounts::Ignored {
        return Ok(());
    }
    match target.resource.plural {
        "pods" => {
            service_account::admit(shared, object)?;
            priority::admit(shared, object)?;
            tolerations::admit(object);
            topology::admit(shared, object);
        }
        "nodes" => nodes::admit(object),
        _ => {}
    }
    Ok(())
}

/// What upstream's plugins do to a changed pod: nothing that admission has set is lost.
pub(crate) fn update_pod(object: &mut Object, old: &Object) {
    if priority::keep(object, old) {
        tolerations::admit(object);
    }
}

/// Refuses an object that is valid in itself. `is_new` tells a create from an update.
pub(crate) fn validate(shared: &Shared, resource: &Resource, object: &Object, is_new: bool) -> Result<()> {
    match resource.plural {
        "priorityclasses" => priority::check_default(shared, resource, object, is_new),
        _ => Ok(()),
    }
}

/// upstream: admission plugin NamespaceLifecycle.
fn check_namespace(shared: &Shared, target: &Target, object: &Object) -> Result<()> {
    let namespaces = resources::core("namespaces");
    let key = Key::new(namespaces.plural, "", &target.namespace);
    let record = shared.store.get(&key).ok_or_else(|| Status::not_found(namespaces, &target.namespace))?;
    match record.attributes.field("status.phase") {
        Some("Terminating") => {
            Err(Status::namespace_terminating(target.resource, admitted_name(object), &target.namespace))
        }
        _ => Ok(()),
    }
}

/// How a refusal names an object that may have no name yet.
fn admitted_name(object: &Object) -> &str {
    match (object.name(), object.meta_text("generateName")) {
        ("", "") => "Unknown",
        ("", base) => base,
        (name, _) => name,
    }
}

/// A refusal of an admission plugin.
fn refused(resource: &Resource, object: &Object, why: &str) -> Status {
    Status::forbidden(resource, admitted_name(object), why)
}
