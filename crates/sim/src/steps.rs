//! What can happen: to pods on their nodes, to the Job by its users, to the controller by bad luck.

use jiff::SignedDuration;
use k8s_openapi::api::core::v1::{
    ContainerState, ContainerStateTerminated, ContainerStatus, Pod, PodCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::json;
use windlass_api::names;

use crate::controller::{Controller, Fate, Weather};
use crate::plan::{JOB_NAME, JOB_UID};
use crate::world::{self, Actor, NAMESPACE, World};

/// One thing that happens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The watches deliver up to so many events of Jobs and of pods.
    Deliver(u8, u8),
    /// The last events come again.
    Redeliver(u8),
    /// The watches break off, and everything is listed again.
    Relist,
    /// The controller decides once and acts.
    Pass(Weather),
    /// The controller decides once, and its writes go on their way.
    Send,
    /// One of the writes on their way arrives.
    Arrive(u8, Fate),
    /// The controller hears what became of a write that has arrived.
    Hear(u8),
    /// The controller dies, and another takes over.
    Die,
    /// Something happens to a pod on its node.
    Node(u8, NodeEvent),
    /// A user does something.
    User(UserEvent),
    /// Time passes, in milliseconds.
    Wait(u32),
    /// Time passes until the controller wants to be woken.
    WaitForWake,
    /// The garbage collectors run.
    CollectGarbage,
}

/// What happens to a pod on its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeEvent {
    /// It is given a node, or starts, or is ready: whatever comes next.
    Progress,
    /// All its containers end well.
    Succeed,
    /// A container ends with this code.
    Fail(i32),
    /// It is disrupted: asked to go, with the condition that says so.
    Disrupt,
    /// A container is restarted in place.
    Restart,
    /// Being asked to go, it does, with this code.
    End(i32),
    /// Its node claims that it had failed after all.
    Flip,
}

/// What a user does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UserEvent {
    /// Sets the parallelism.
    Parallelism(i32),
    /// Sets parallelism and completions of an Indexed Job whose are equal.
    Resize(i32),
    /// Suspends or resumes.
    Suspend(bool),
    /// Sets the replacement policy, where there is no failure policy.
    ReplaceFailed(bool),
    /// Sets the deadline.
    Deadline(i64),
    /// Deletes the Job: its pods first, or itself first.
    DeleteJob(bool),
    /// Deletes a pod.
    DeletePod(u8),
    /// Deletes a pod by force.
    ForceDeletePod(u8),
    /// Changes the labels of a pod.
    Relabel(u8),
    /// Makes a pod that the Job could adopt: with this index, and in this state.
    MakeOrphan(u8, OrphanState),
    /// Takes the name of a pod that is just gone, or of one to come, for a pod of their own.
    Squat(u8),
    /// Adds a condition of their own to the Job.
    AddCondition(bool),
}

/// How a made orphan is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrphanState {
    /// Running on a node.
    Running,
    /// Ended well.
    Succeeded,
    /// Ended badly.
    Failed,
}

impl Step {
    /// Lets it happen, unless it is the controller's turn to act.
    pub fn apply(&self, world: &mut World, controller: &mut Controller) {
        match self {
            Self::Deliver(jobs, pods) => controller.deliver(world, usize::from(*jobs), usize::from(*pods)),
            Self::Redeliver(count) => controller.redeliver(world, usize::from(*count)),
            Self::Relist => controller.relist(world),
            Self::Die => controller.reboot(world),
            Self::Node(pick, event) => {
                if let Some(name) = picked(world, *pick, |pod| event.is_possible(pod)) {
                    node_event(world, &name, *event);
                }
            }
            Self::User(event) => user_event(world, *event),
            Self::Wait(millis) => world.advance(SignedDuration::from_millis(i64::from(*millis))),
            Self::WaitForWake => wait_for_wake(world, controller),
            Self::CollectGarbage => collect_garbage(world),
            Self::Hear(pick) => controller.hear(world, *pick),
            Self::Pass(_) | Self::Send | Self::Arrive(..) => {}
        }
    }
}

/// Lets time pass until the controller wants to be woken, if it does.
fn wait_for_wake(world: &mut World, controller: &mut Controller) {
    if let windlass_job::Wake::At(time) = controller.wake(world)
        && time > world.now
    {
        world.now = time;
    }
}

/// The pod that a number picks, of those that qualify.
fn picked(world: &World, pick: u8, qualifies: impl Fn(&Pod) -> bool) -> Option<String> {
    let names: Vec<&str> = world.pods().filter(|pod| qualifies(pod)).map(world::name).collect();
    let at = usize::from(pick).checked_rem(names.len())?;
    Some(names[at].to_owned())
}

fn is_ours(pod: &Pod) -> bool {
    world::controller(pod).is_some_and(|owner| owner.uid == JOB_UID)
}

impl NodeEvent {
    fn is_possible(self, pod: &Pod) -> bool {
        match self {
            Self::Progress => !world::is_terminal(pod) && !world::is_deleted(pod) && !is_ready(pod),
            Self::Succeed | Self::Fail(_) => world::is_assigned(pod) && !world::is_terminal(pod),
            Self::Disrupt => !world::is_terminal(pod) && !world::is_deleted(pod),
            Self::Restart => {
                let restarts = pod.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
                world::phase(pod) == "Running" && restarts == Some("OnFailure")
            }
            Self::End(_) => world::is_deleted(pod) && !world::is_terminal(pod),
            Self::Flip => world::phase(pod) == "Succeeded",
        }
    }
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Lets something happen to a pod on its node.
pub fn node_event(world: &mut World, name: &str, event: NodeEvent) {
    let now = Time(world::whole_second(world.now));
    let _ = world.edit_pod(Actor::World, name, None, |pod| match event {
        NodeEvent::Progress => progress(pod, now),
        NodeEvent::Succeed => stop(pod, 0, now),
        NodeEvent::Fail(code) => stop(pod, code, now),
        NodeEvent::Disrupt => {
            condition(pod, names::DISRUPTION_TARGET, "True", now.clone());
            pod.metadata.deletion_grace_period_seconds = Some(if world::is_assigned(pod) { 30 } else { 0 });
            pod.metadata.deletion_timestamp = Some(now);
        }
        NodeEvent::Restart => {
            let statuses = world::status_mut(pod).container_statuses.get_or_insert_default();
            statuses.iter_mut().for_each(|status| status.restart_count += 1);
        }
        NodeEvent::End(code) => stop(pod, code, now),
        NodeEvent::Flip => stop(pod, 1, now),
    });
}

fn progress(pod: &mut Pod, now: Time) {
    if !world::is_assigned(pod) {
        pod.spec.get_or_insert_default().node_name = Some("node".to_owned());
    } else if world::phase(pod) == "Running" {
        condition(pod, "Ready", "True", now);
    } else {
        let status = world::status_mut(pod);
        status.phase = Some("Running".to_owned());
        status.container_statuses =
            Some(vec![ContainerStatus { name: "main".to_owned(), ..ContainerStatus::default() }]);
    }
}

/// All containers have stopped, the only one with this code.
fn stop(pod: &mut Pod, code: i32, now: Time) {
    if is_ready(pod) {
        condition(pod, "Ready", "False", now.clone());
    }
    let status = world::status_mut(pod);
    status.phase = Some(if code == 0 { "Succeeded" } else { "Failed" }.to_owned());
    let state = ContainerStateTerminated { exit_code: code, finished_at: Some(now), ..Default::default() };
    status.container_statuses = Some(vec![ContainerStatus {
        name: "main".to_owned(),
        state: Some(ContainerState { terminated: Some(state), ..ContainerState::default() }),
        ..ContainerStatus::default()
    }]);
}

fn condition(pod: &mut Pod, kind: &str, state: &str, now: Time) {
    let conditions = world::status_mut(pod).conditions.get_or_insert_default();
    conditions.retain(|condition| condition.type_ != kind);
    conditions.push(PodCondition {
        type_: kind.to_owned(),
        status: state.to_owned(),
        last_transition_time: Some(now),
        ..PodCondition::default()
    });
}

/// Lets a user do something.
pub fn user_event(world: &mut World, event: UserEvent) {
    match event {
        UserEvent::DeletePod(pick) => {
            if let Some(name) = picked(world, pick, |_| true) {
                let _ = world.delete_pod(Actor::World, &name, None);
            }
        }
        UserEvent::ForceDeletePod(pick) => {
            if let Some(name) = picked(world, pick, |_| true) {
                let _ = world.force_delete_pod(&name);
            }
        }
        UserEvent::Relabel(pick) => {
            if let Some(name) = picked(world, pick, is_ours) {
                let _ = world.edit_pod(Actor::World, &name, None, |pod| {
                    let labels = pod.metadata.labels.get_or_insert_default();
                    labels.remove(names::CONTROLLER_UID_LABEL);
                });
            }
        }
        UserEvent::MakeOrphan(index, state) => make_orphan(world, index, state),
        UserEvent::Squat(pick) => squat(world, pick),
        UserEvent::DeleteJob(is_foreground) => delete_job(world, is_foreground),
        UserEvent::AddCondition(is_true) => {
            let state = if is_true { "True" } else { "False" };
            let conditions = world.job().and_then(|job| job.status.as_ref()?.conditions.clone());
            let mut conditions = json!(conditions.unwrap_or_default());
            let all = conditions.as_array_mut().expect("it is a list");
            all.retain(|condition| condition["type"] != "Noticed");
            all.push(json!({ "type": "Noticed", "status": state }));
            let _ = world.patch_status(Actor::World, &json!({ "status": { "conditions": conditions } }));
        }
        UserEvent::Parallelism(_)
        | UserEvent::Resize(_)
        | UserEvent::Suspend(_)
        | UserEvent::ReplaceFailed(_)
        | UserEvent::Deadline(_) => edit_spec(world, event),
    }
}

fn edit_spec(world: &mut World, event: UserEvent) {
    let Some(spec) = world.job().and_then(|job| job.spec.as_ref()) else { return };
    let mut spec = spec.clone();
    match event {
        // The API lets `succeeded` shrink only while parallelism equals completions: who scales down and then changes
        // parallelism alone, before the controller has caught up, makes every later status invalid.
        UserEvent::Parallelism(parallelism) if !is_shrinking(world) => spec.parallelism = Some(parallelism),
        UserEvent::Suspend(is_suspended) => spec.suspend = Some(is_suspended),
        UserEvent::Resize(size) => {
            let is_elastic = spec.completion_mode.as_deref() == Some("Indexed")
                && spec.completions == spec.parallelism
                && spec.success_policy.is_none();
            if is_elastic {
                spec.parallelism = Some(size);
                spec.completions = Some(size);
            }
        }
        UserEvent::ReplaceFailed(is_failed) if spec.pod_failure_policy.is_none() => {
            let policy = if is_failed { "Failed" } else { "TerminatingOrFailed" };
            spec.pod_replacement_policy = Some(policy.to_owned());
        }
        UserEvent::Deadline(seconds) => spec.active_deadline_seconds = Some(seconds),
        UserEvent::Parallelism(_)
        | UserEvent::ReplaceFailed(_)
        | UserEvent::DeleteJob(_)
        | UserEvent::DeletePod(_)
        | UserEvent::ForceDeletePod(_)
        | UserEvent::Relabel(_)
        | UserEvent::MakeOrphan(..)
        | UserEvent::Squat(_)
        | UserEvent::AddCondition(_) => {}
    }
    if world.job().and_then(|job| job.spec.as_ref()) != Some(&spec) {
        world.edit_job(|job| job.spec = Some(spec));
    }
}

/// Indexes beyond the last one are still counted.
fn is_shrinking(world: &World) -> bool {
    let Some((spec, status)) = world.job().and_then(|job| Some((job.spec.as_ref()?, job.status.as_ref()?)))
    else {
        return false;
    };
    let limit = spec.completions.unwrap_or(0);
    let text = status.completed_indexes.as_deref().unwrap_or_default();
    windlass_api::indexes::IndexSet::parse_lenient(text, limit).to_string() != text
}

fn delete_job(world: &mut World, is_foreground: bool) {
    if !is_foreground {
        return world.remove_job();
    }
    let now = Time(world::whole_second(world.now));
    if world.job().is_some_and(|job| job.metadata.deletion_timestamp.is_none()) {
        world.edit_job(|job| {
            job.metadata.deletion_timestamp = Some(now);
            job.metadata.finalizers = Some(vec!["foregroundDeletion".to_owned()]);
        });
    }
}

fn make_orphan(world: &mut World, index: u8, state: OrphanState) {
    let Some(job) = world.job() else { return };
    let spec = job.spec.clone().unwrap_or_default();
    let template = spec.template.metadata.unwrap_or_default();
    let annotations =
        (index < 8).then(|| [(names::COMPLETION_INDEX.to_owned(), index.to_string())].into_iter().collect());
    let name = format!("orphan-{}", world.log().len());
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some(name.clone()),
            namespace: Some(NAMESPACE.to_owned()),
            labels: template.labels,
            annotations,
            ..ObjectMeta::default()
        },
        spec: spec.template.spec,
        status: None,
    };
    let _ = world.create_pod(Actor::World, pod);
    node_event(world, &name, NodeEvent::Progress);
    match state {
        OrphanState::Running => node_event(world, &name, NodeEvent::Progress),
        OrphanState::Succeeded => node_event(world, &name, NodeEvent::Succeed),
        OrphanState::Failed => node_event(world, &name, NodeEvent::Fail(1)),
    }
}

/// A pod of somebody else under a name that was the Job's, or will be.
fn squat(world: &mut World, pick: u8) {
    let used: Vec<String> = world
        .log()
        .iter()
        .filter_map(|change| match &change.object {
            world::Object::Pod(_, Some(pod)) if is_ours(pod) => Some(world::name(pod).to_owned()),
            _ => None,
        })
        .collect();
    let name = usize::from(pick).checked_rem(used.len() + 1).and_then(|at| used.get(at).cloned());
    let next = windlass_job::pod_names::PodNames::new(JOB_NAME, &windlass_job::Uid::new(JOB_UID));
    let name = name.unwrap_or_else(|| next.name(None, u32::from(pick) % 4));
    let metadata =
        ObjectMeta { name: Some(name), namespace: Some(NAMESPACE.to_owned()), ..ObjectMeta::default() };
    let _ = world.create_pod(Actor::World, Pod { metadata, ..Pod::default() });
}

/// The garbage collector: pods of a deleted Job go, then the Job; and pods that will never see a node again end.
pub fn collect_garbage(world: &mut World) {
    let job_goes = world.job().is_none_or(|job| job.metadata.deletion_timestamp.is_some());
    let ours: Vec<String> =
        world.pods().filter(|pod| is_ours(pod)).map(|pod| world::name(pod).to_owned()).collect();
    if job_goes {
        for name in &ours {
            let _ = world.delete_pod(Actor::World, name, None);
        }
        if !world.pods().any(is_ours) {
            world.remove_job();
        }
    }
    for name in ours {
        let is_stuck = world.pod(&name).is_some_and(|pod| {
            let will_run = world::is_assigned(pod) && pod.metadata.deletion_grace_period_seconds != Some(0);
            world::is_deleted(pod) && !world::is_terminal(pod) && !will_run
        });
        if is_stuck {
            node_event(world, &name, NodeEvent::End(137));
        }
    }
}
