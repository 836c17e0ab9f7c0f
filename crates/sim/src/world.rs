//! The truth: one Job, its pods, one growing revision, and the log of every change.
//!
//! Only the semantics that a Job controller can notice are here: names are taken or free, writes carry preconditions,
//! finalizers keep objects, a running pod goes when its node says so.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use serde_json::Value;
use windlass_api::names;

/// The one namespace.
pub const NAMESPACE: &str = "sim";
/// When the world begins: 2026-01-01T00:00:00Z.
const GENESIS: i64 = 1_767_225_600;
/// Grace of a pod that has a node.
const GRACE_S: i64 = 30;

/// Who changed something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Actor {
    /// Users, nodes, the garbage collector.
    World,
    /// The Job controller: what it did, the UID it had decided on, and how old its view of the Job was.
    Controller {
        /// What it did.
        deed: Deed,
        /// The UID it had decided on.
        meant: String,
        /// The newest Job revision it knew.
        job_seen: u64,
    },
}

/// What a controller did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deed {
    /// Created a pod.
    Create,
    /// Deleted a pod.
    Delete,
    /// Took the finalizer of a pod that it does not want, to delete it.
    Discard,
    /// Took the finalizer of a pod that is counted or need not be.
    Release,
    /// Took the finalizer of a pod whose Job is gone or finished.
    FreeOrphan,
    /// Became a pod's controller.
    Adopt,
    /// Ceased to be a pod's controller.
    Disown,
    /// Wrote the status of the Job.
    Status,
}

/// An object after a change; `None` is gone.
#[derive(Clone, Debug)]
pub enum Object {
    /// The Job.
    Job(Option<Box<Job>>),
    /// A pod, by UID.
    Pod(String, Option<Box<Pod>>),
}

/// One change.
#[derive(Clone, Debug)]
pub struct Change {
    /// Its revision.
    pub revision: u64,
    /// When it happened.
    pub at: Timestamp,
    /// Who made it.
    pub actor: Actor,
    /// What there is now.
    pub object: Object,
}

/// Why the API refused a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// There is no such object, or it has another UID.
    NotFound,
    /// The name is taken.
    AlreadyExists,
    /// The object has changed.
    Conflict,
    /// The object would not be valid.
    Invalid(String),
}

/// The truth.
#[derive(Clone, Debug)]
pub struct World {
    /// The time.
    pub now: Timestamp,
    revision: u64,
    uids: u64,
    job: Option<Job>,
    pods: BTreeMap<String, Pod>,
    log: Vec<Change>,
}

impl World {
    /// A world in which `job` was just created.
    pub fn new(mut job: Job) -> Self {
        let now = Timestamp::from_second(GENESIS).expect("a time within range");
        let mut world = Self { now, revision: 0, uids: 0, job: None, pods: BTreeMap::new(), log: Vec::new() };
        job.metadata.creation_timestamp = Some(Time(now));
        world.put_job(Actor::World, Some(job));
        world
    }

    /// The Job, unless it is gone.
    pub fn job(&self) -> Option<&Job> {
        self.job.as_ref()
    }

    /// The pods by name.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    /// The pod of this name.
    pub fn pod(&self, name: &str) -> Option<&Pod> {
        self.pods.get(name)
    }

    /// Everything that ever happened.
    pub fn log(&self) -> &[Change] {
        &self.log
    }

    /// A UID that nobody has.
    pub fn new_uid(&mut self) -> String {
        self.uids += 1;
        // Spread over the space, so that the order of UIDs is not the order of creation.
        let mixed = self.uids.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{:08x}-0000-4000-8000-{:012x}", mixed >> 32, self.uids)
    }

    /// Lets time pass.
    pub fn advance(&mut self, span: SignedDuration) {
        self.now = self.now.checked_add(span).expect("a time within range");
    }

    /// Changes the spec or the metadata of the Job, as a user.
    pub fn edit_job(&mut self, edit: impl FnOnce(&mut Job)) {
        if let Some(mut job) = self.job.clone() {
            edit(&mut job);
            job.metadata.generation = job.metadata.generation.map(|generation| generation + 1);
            self.put_job(Actor::World, Some(job));
        }
    }

    /// The Job ceases to be.
    pub fn remove_job(&mut self) {
        if self.job.is_some() {
            self.put_job(Actor::World, None);
        }
    }

    /// Merges a patch into the Job's status, if the Job still has the resource version that the patch names.
    pub fn patch_status(&mut self, actor: Actor, patch: &Value) -> Result<String, Refusal> {
        let old = self.job.as_ref().ok_or(Refusal::NotFound)?;
        let precondition = patch.pointer("/metadata/resourceVersion").and_then(Value::as_str);
        if precondition.is_some() && precondition != old.metadata.resource_version.as_deref() {
            return Err(Refusal::Conflict);
        }
        let mut body = serde_json::to_value(old).expect("a Job is JSON");
        let status = patch.get("status").cloned().unwrap_or_default();
        merge(&mut body["status"], &status);
        let new: Job = serde_json::from_value(body).map_err(|e| Refusal::Invalid(e.to_string()))?;
        let errors = windlass_api::validation::job_status::validate_status_update(&new, old);
        if !errors.is_empty() {
            return Err(Refusal::Invalid(format!("{errors:?}")));
        }
        self.put_job(actor, Some(new));
        Ok(self.revision.to_string())
    }

    /// Creates a pod.
    pub fn create_pod(&mut self, actor: Actor, mut pod: Pod) -> Result<&Pod, Refusal> {
        let name = pod.metadata.name.clone().unwrap_or_default();
        if self.pods.contains_key(&name) {
            return Err(Refusal::AlreadyExists);
        }
        pod.metadata.uid = Some(self.new_uid());
        pod.metadata.creation_timestamp = Some(Time(whole_second(self.now)));
        let status = pod.status.get_or_insert_default();
        status.phase.get_or_insert_with(|| "Pending".to_owned());
        self.put_pod(actor, pod);
        Ok(&self.pods[&name])
    }

    /// Changes a pod. What comes back is the pod as it is then; `None` if that change let it go.
    pub fn edit_pod(
        &mut self,
        actor: Actor,
        name: &str,
        uid: Option<&str>,
        edit: impl FnOnce(&mut Pod),
    ) -> Result<Option<&Pod>, Refusal> {
        let mut pod = self.pods.get(name).ok_or(Refusal::NotFound)?.clone();
        if uid.is_some_and(|uid| pod.metadata.uid.as_deref() != Some(uid)) {
            return Err(Refusal::NotFound);
        }
        edit(&mut pod);
        if &pod != self.pods.get(name).expect("it was just there") {
            self.put_pod(actor, pod);
        }
        Ok(self.pods.get(name))
    }

    /// Asks a pod to go. One that runs on a node has its grace; any other goes as soon as its finalizers are gone.
    pub fn delete_pod(
        &mut self,
        actor: Actor,
        name: &str,
        uid: Option<&str>,
    ) -> Result<Option<&Pod>, Refusal> {
        let now = self.now;
        self.edit_pod(actor, name, uid, |pod| {
            let grace = if is_assigned(pod) && !is_terminal(pod) { GRACE_S } else { 0 };
            if pod.metadata.deletion_timestamp.is_none() {
                let end = now.checked_add(SignedDuration::from_secs(grace)).expect("a time within range");
                pod.metadata.deletion_timestamp = Some(Time(whole_second(end)));
                pod.metadata.deletion_grace_period_seconds = Some(grace);
            }
        })
    }

    /// Removes a pod at once, as a forced deletion does; finalizers still keep it.
    pub fn force_delete_pod(&mut self, name: &str) -> Result<(), Refusal> {
        let now = self.now;
        self.edit_pod(Actor::World, name, None, |pod| {
            pod.metadata.deletion_timestamp = Some(Time(whole_second(now)));
            pod.metadata.deletion_grace_period_seconds = Some(0);
        })?;
        Ok(())
    }

    fn put_job(&mut self, actor: Actor, job: Option<Job>) {
        self.revision += 1;
        self.job = job;
        if let Some(job) = &mut self.job {
            job.metadata.resource_version = Some(self.revision.to_string());
        }
        let object = Object::Job(self.job.clone().map(Box::new));
        self.log.push(Change { revision: self.revision, at: self.now, actor, object });
    }

    fn put_pod(&mut self, actor: Actor, mut pod: Pod) {
        self.revision += 1;
        pod.metadata.resource_version = Some(self.revision.to_string());
        let uid = uid(&pod).to_owned();
        let name = pod.metadata.name.clone().unwrap_or_default();
        let object = if is_over(&pod) {
            self.pods.remove(&name);
            Object::Pod(uid, None)
        } else {
            self.pods.insert(name, pod.clone());
            Object::Pod(uid, Some(Box::new(pod)))
        };
        self.log.push(Change { revision: self.revision, at: self.now, actor, object });
    }
}

/// A JSON merge patch.
fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let target = target.as_object_mut().expect("made one above");
    for (key, value) in patch {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

/// Times have whole seconds on the wire.
pub fn whole_second(time: Timestamp) -> Timestamp {
    Timestamp::from_second(time.as_second()).expect("a time within range")
}

/// Nothing holds a pod that was asked to go: no finalizer, and no process.
fn is_over(pod: &Pod) -> bool {
    let is_held = pod.metadata.finalizers.as_ref().is_some_and(|all| !all.is_empty());
    let has_grace = pod.metadata.deletion_grace_period_seconds.unwrap_or(0) > 0;
    let runs = is_assigned(pod) && !is_terminal(pod) && has_grace;
    pod.metadata.deletion_timestamp.is_some() && !is_held && !runs
}

/// `metadata.uid`.
pub fn uid(pod: &Pod) -> &str {
    pod.metadata.uid.as_deref().unwrap_or_default()
}

/// `metadata.name`.
pub fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

/// `status.phase`.
pub fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending")
}

/// Has a node.
pub fn is_assigned(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())
}

/// Nothing runs and nothing will.
pub fn is_terminal(pod: &Pod) -> bool {
    matches!(phase(pod), "Succeeded" | "Failed")
}

/// Has a deletion timestamp.
pub fn is_deleted(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

/// Carries the tracking finalizer.
pub fn is_held(pod: &Pod) -> bool {
    pod.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == names::TRACKING_FINALIZER)
}

/// The controller of a pod.
pub fn controller(pod: &Pod) -> Option<&OwnerReference> {
    pod.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true))
}

/// The completion index in the annotation.
pub fn index(pod: &Pod) -> Option<u32> {
    pod.metadata.annotations.as_ref()?.get(names::COMPLETION_INDEX)?.parse().ok()
}

/// The status of a pod, to be changed.
pub fn status_mut(pod: &mut Pod) -> &mut PodStatus {
    pod.status.get_or_insert_default()
}

/// Takes the tracking finalizer off a pod.
pub fn take_finalizer(pod: &mut Pod) {
    if let Some(finalizers) = &mut pod.metadata.finalizers {
        finalizers.retain(|finalizer| finalizer != names::TRACKING_FINALIZER);
    }
}
