//! Everything a decision may say.

use jiff::Timestamp;

use crate::job_facts::Status;
use crate::pod_facts::IndexFailures;
use crate::trace::Trace;
use crate::uid::Uid;

/// What should happen to one Job now.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// Actions that do not depend on each other's success. When all were tried and folded into the view, decide again.
    pub stage: Vec<Action>,
    /// When to decide again.
    pub wake: Wake,
    /// Which rules fired, and why.
    pub because: Trace,
}

/// When to decide again, if nothing happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// As soon as the stage is done.
    Again,
    /// At that time.
    At(Timestamp),
    /// When something changes.
    Settled,
}

/// A pod, by the identity it was decided on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// `metadata.uid`: the precondition of every write.
    pub uid: Uid,
    /// `metadata.name`.
    pub name: String,
}

/// One write.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Make the Job the pod's controller and add the finalizer, after a live check that the Job still exists and is
    /// not being deleted.
    Adopt(PodRef),
    /// Remove the Job as the pod's controller, and the finalizer, in one patch.
    Disown(PodRef),
    /// Create a pod from the template.
    Create(NewPod),
    /// Delete a pod; its finalizer stays until it is counted.
    Delete(PodRef),
    /// Remove the finalizer, so that the pod is never counted, then delete it.
    Remove(PodRef, RemovalReason),
    /// Remove the finalizer: the pod is counted, or need not be.
    Release(PodRef),
    /// Write the status, if the Job still has the resource version of the view.
    WriteStatus(Box<StatusWrite>),
    /// Publish an event.
    Emit(Event),
}

/// The kinds of writes that are held back together after one failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Adopting and disowning.
    Claim,
    /// Creating pods.
    Create,
    /// Deleting pods, with or without counting them.
    End,
    /// Releasing finalizers.
    Release,
    /// Writing the status.
    Status,
    /// Events.
    Emit,
}

impl Kind {
    /// How many kinds there are.
    pub(crate) const COUNT: usize = 6;
}

impl Action {
    /// Which kind of write it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Adopt(_) | Self::Disown(_) => Kind::Claim,
            Self::Create(_) => Kind::Create,
            Self::Delete(_) | Self::Remove(..) => Kind::End,
            Self::Release(_) => Kind::Release,
            Self::WriteStatus(_) => Kind::Status,
            Self::Emit(_) => Kind::Emit,
        }
    }
}

/// A pod to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewPod {
    /// Its name: a function of Job, index and attempt.
    pub name: String,
    /// The name without its suffix, for `metadata.generateName`.
    pub prefix: String,
    /// Its completion index.
    pub index: Option<u32>,
    /// Which attempt of its index, or of the Job, it is.
    pub attempt: u32,
    /// The failure-count annotations, with `backoffLimitPerIndex`.
    pub failures: Option<IndexFailures>,
    /// Why it is made.
    pub reason: CreationReason,
}

/// Why a pod is made; the label of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CreationReason {
    /// `new`.
    New,
    /// `recreate_terminating_or_failed`.
    RecreateTerminatingOrFailed,
    /// `recreate_failed`.
    RecreateFailed,
}

/// Why a pod is ended without being counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// The Job is suspended.
    Suspended,
    /// The Job has succeeded without it.
    Succeeded,
    /// There are more pods than wanted.
    Surplus,
    /// An Indexed Job can't use it: no index, an index beyond the last, or a second pod of an index.
    Misplaced,
}

/// A new status.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusWrite {
    /// The whole status, with the conditions of others.
    pub status: Status,
    /// The precondition: the Job's resource version in the view.
    pub resource_version: String,
    /// Events to publish once it is written.
    pub events: Vec<Event>,
    /// The Job is finished by this write.
    pub finishes: bool,
}

/// An event about the Job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// `Warning`, or `Normal`.
    pub is_warning: bool,
    /// `reason`.
    pub reason: String,
    /// `message`.
    pub message: String,
}

impl Event {
    pub(crate) fn normal(reason: &str, message: &str) -> Self {
        Self { is_warning: false, reason: reason.to_owned(), message: message.to_owned() }
    }

    pub(crate) fn warning(reason: &str, message: &str) -> Self {
        Self { is_warning: true, reason: reason.to_owned(), message: message.to_owned() }
    }
}
