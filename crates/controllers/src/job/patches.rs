//! The patches of pods. Each names the pod's UID, so that it fails on another pod of the same name.

use k8s_openapi::api::batch::v1::Job;
use serde_json::{Value, json};
use windlass_api::names;
use windlass_job::Uid;
use windlass_job::pod_body::owner_reference;

/// Makes `job` the controller of a pod, and adds the finalizer.
pub(super) fn adopt(job: &Job, pod: &Uid) -> Value {
    json!({"metadata": {
        "uid": pod.to_string(),
        "ownerReferences": [owner_reference(job)],
        "finalizers": [names::TRACKING_FINALIZER],
    }})
}

/// Takes a pod's controller away, and the finalizer.
pub(super) fn disown(job: &Uid, pod: &Uid) -> Value {
    json!({"metadata": {
        "uid": pod.to_string(),
        "ownerReferences": [{"$patch": "delete", "uid": job.to_string()}],
        "$deleteFromPrimitiveList/finalizers": [names::TRACKING_FINALIZER],
    }})
}

/// Removes the finalizer.
pub(super) fn release(pod: &Uid) -> Value {
    json!({"metadata": {
        "uid": pod.to_string(),
        "$deleteFromPrimitiveList/finalizers": [names::TRACKING_FINALIZER],
    }})
}

/// Removes the finalizer, unless the pod has changed: somebody may just have adopted it.
pub(super) fn release_orphan(pod: &Uid, resource_version: &str) -> Value {
    let mut patch = release(pod);
    patch["metadata"]["resourceVersion"] = resource_version.into();
    patch
}
