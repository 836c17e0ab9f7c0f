//! What becomes of a tracking finalizer whose Job can't look after it.

use k8s_openapi::api::core::v1::Pod;
use windlass_api::names;

/// What is known of the Job that a pod names as its controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// The pod names no controller.
    None,
    /// The controller is not a Job.
    NotAJob,
    /// There is no Job with that name and UID.
    Missing,
    /// The Job is there and another controller manages it.
    ManagedElsewhere,
    /// The Job is there, ours, and not finished.
    Active,
    /// The Job is there, ours, and finished.
    Finished,
}

/// The pod's finalizer should be removed: nobody will ever count it.
pub fn should_release(pod: &Pod, owner: Owner) -> bool {
    let is_held = pod.metadata.finalizers.iter().flatten().any(|f| f == names::TRACKING_FINALIZER);
    is_held
        && match owner {
            Owner::None | Owner::Missing | Owner::Finished => true,
            Owner::NotAJob | Owner::ManagedElsewhere | Owner::Active => false,
        }
}
