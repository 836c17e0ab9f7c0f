//! One pod's task: performs the steps of `lifecycle`, and keeps the API's status in line with what happens.

mod image;
mod report;
mod work;

use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures::future::{BoxFuture, OptionFuture};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass_watch::Caller;

use crate::admission::Ledger;
use crate::agent::{Config, Oci};
use crate::cgroup::{self, Group};
use crate::check::Outcome as Checked;
use crate::env::Facts;
use crate::events::{self, Report};
use crate::images::Image;
use crate::isolation::Isolation;
use crate::runtimes::StartError;
use crate::runtimes::host::{Event, Host};
use crate::runtimes::sandbox::IMAGE_REFUSED;
use crate::services::Services;
use crate::streams::Table;
use crate::writes::{self, Outcome};
use crate::{probe, security, status};
use work::Work;

/// What all pods of an agent share.
pub(crate) struct Context {
    pub(crate) config: Config,
    /// Sends what is written again and again.
    pub(crate) caller: Caller,
    pub(crate) host: Host,
    pub(crate) logs: PathBuf,
    pub(crate) running: Table,
    pub(crate) services: Services,
    /// What the pods of the node hold.
    pub(crate) ledger: Mutex<Ledger>,
    /// Who this process is.
    pub(crate) own: security::Own,
    /// How far containers of the host runtime can be kept apart from the machine.
    pub(crate) isolation: Isolation,
    /// Where limits go; `None` where there are no control groups.
    cgroups: Option<cgroup::Layout>,
    /// What OCI runtimes must not see.
    pub(crate) hidden: Vec<PathBuf>,
    /// Where control groups are mounted that they do see.
    pub(crate) cgroup_mounts: Vec<PathBuf>,
    /// The kernel refuses overlayfs: each container has a copy of its image.
    pub(crate) copies_images: AtomicBool,
    /// Why this node, which is not root, can't run images.
    pub(crate) no_images: Option<String>,
    /// It was said that limits can't be kept.
    is_unlimited_known: AtomicBool,
}

impl Context {
    pub(crate) fn new(
        config: Config,
        host: Host,
        logs: PathBuf,
        isolation: Isolation,
        no_images: Option<String>,
    ) -> Self {
        let cgroups = cgroup::Layout::of_this_process().and_then(|all| all.of_agent(&config.data_dir).ok());
        cgroups.iter().for_each(cgroup::Layout::sweep);
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let hidden = cgroup::Layout::second_beside_first(&mounts);
        let cgroup_mounts = cgroup::Layout::mounts(&mounts).filter(|point| !hidden.contains(point)).collect();
        Self {
            caller: config.client.clone().into(),
            copies_images: AtomicBool::new(config.copies_images),
            services: Services::watch(config.client.clone()),
            config,
            host,
            logs,
            running: Table::default(),
            ledger: Mutex::default(),
            own: security::Own::of_this_process(),
            isolation,
            cgroups,
            hidden,
            cgroup_mounts,
            no_images,
            is_unlimited_known: AtomicBool::new(false),
        }
    }

    /// What pods can ask of the node.
    pub(crate) fn facts(&self) -> Facts<'_> {
        Facts { ip: "127.0.0.1", cpu: self.config.capacity.cpu, memory: self.config.capacity.memory }
    }

    /// Whether this node makes containers in user namespaces.
    pub(crate) fn is_rootless(&self) -> bool {
        self.own.uid != 0
    }

    /// The directory for what a pod has on this machine, besides its logs.
    pub(crate) fn pod_directory(&self, pod: &Pod) -> PathBuf {
        self.config.data_dir.join("pods").join(pod.metadata.uid.as_deref().unwrap_or_default())
    }

    /// The directory for what its containers need only while they run.
    pub(crate) fn run_directory(&self, pod: &Pod) -> PathBuf {
        self.config.run_dir.join(pod.metadata.uid.as_deref().unwrap_or_default())
    }

    /// The control group of one run of a container, if it has limits or has to be held by it, and this agent may make
    /// groups.
    pub(crate) fn group(
        &self,
        pod: &Pod,
        container: &Container,
        run: i32,
        holds: bool,
    ) -> Result<Option<Group>, String> {
        let limits = cgroup::Limits::of(container, self.config.pids_max);
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let name = format!("{uid}.{}.{run}", container.name);
        let group = self.cgroups.as_ref().and_then(|layout| Group::plan(layout, &name, &limits, holds));
        let Some(group) = group else { return Ok(None) };
        match group.make() {
            Ok(()) => Ok(Some(group)),
            Err(error)
                if matches!(error.kind(), ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem) =>
            {
                if !self.is_unlimited_known.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "limits of containers are not enforced: no right to make control groups");
                }
                Ok(None)
            }
            Err(error) => Err(format!("make control group {name}: {error}")),
        }
    }

    /// What runs a container; `None` for processes of this machine.
    pub(crate) fn oci_of(&self, container: &Container) -> Option<&Oci> {
        let is_host = container.image.as_deref() == Some("host") || self.config.runtime_override_host;
        self.config.oci.as_ref().filter(|_| !is_host && self.no_images.is_none())
    }

    /// Whether a start failed because the kernel refuses overlayfs. From then on images are copied; it is said once.
    pub(crate) fn is_overlay_refused(&self, error: &StartError) -> bool {
        let StartError::Sandbox { error } = error else { return false };
        if !error.starts_with(IMAGE_REFUSED) {
            return false;
        }
        // Others may have been prepared for it at the same time.
        if !self.copies_images.swap(true, Ordering::Relaxed) {
            tracing::warn!(error, "overlayfs is refused: each container has a copy of its image");
        }
        true
    }

    /// Tells people, if anybody listens.
    pub(crate) fn publish(&self, report: Report) {
        if let Some(publish) = &self.config.events {
            publish(report);
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // All pods have ended; a group that could not be removed with its run can be now.
        self.cgroups.iter().for_each(cgroup::Layout::sweep);
        self.cgroups.iter().for_each(cgroup::Layout::remove);
    }
}

/// What a pod's task hears about one run of a container.
#[derive(Debug)]
pub(crate) enum Notice {
    /// Of its process.
    Process(Event),
    /// Its image is there, or why not.
    Image(Result<Arc<Image>, image::Failure>),
    /// Its `postStart` hook is over.
    PostStarted(Checked),
    /// Its `preStop` hook is over.
    PreStopped(Checked),
    /// A probe did not succeed.
    Unhealthy(probe::Kind, Checked),
    /// What a probe says is believed now.
    Probed(probe::Kind, bool),
}

/// What the agent tells a pod's task.
pub(crate) enum Update {
    /// The pod has changed in the API.
    Changed(Box<Pod>),
    /// The pod is no longer in the API.
    Gone,
    /// This node ends the pod.
    End(Order),
}

/// An order of the node to end a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Order {
    /// The longest that it may take.
    pub(crate) grace: Duration,
    /// `status.reason` if the pod fails by it.
    pub(crate) reason: &'static str,
    /// `status.message` then.
    pub(crate) message: String,
    /// The message of the `DisruptionTarget` condition; `None` if it is no disruption.
    pub(crate) disruption: Option<String>,
}

/// What a pod's task leaves behind.
pub(crate) struct Done {
    pub(crate) uid: String,
    /// The last delete was sent.
    pub(crate) is_deleted: bool,
    /// A change that came when the task was over.
    pub(crate) unheard: Option<Box<Pod>>,
}

/// Whether a pod that has ended was also deleted, and waits for the node to say that it may go.
pub(crate) fn awaits_last_delete(pod: &ObjectMeta) -> bool {
    pod.deletion_timestamp.is_some() && pod.deletion_grace_period_seconds != Some(0)
}

/// Lets a pod that has ended go.
pub(crate) async fn delete_last(context: Arc<Context>, pod: Pod) -> Done {
    writes::delete(&context.config.client, &pod).await;
    Done { uid: pod.metadata.uid.unwrap_or_default(), is_deleted: true, unheard: None }
}

/// Refuses a pod: it fails at once. No disruption, and nothing of it ever ran.
pub(crate) async fn reject(context: Arc<Context>, pod: Pod, reason: String, message: String) -> Done {
    context.publish(Report {
        about: events::about(&pod, None),
        is_warning: true,
        reason: reason.clone(),
        message: message.clone(),
    });
    let qos = pod.spec.as_ref().map(status::qos_class);
    let status = serde_json::json!({
        "phase": "Failed", "reason": reason, "message": format!("Pod was rejected: {message}"),
        "qosClass": qos, "startTime": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        "observedGeneration": pod.metadata.generation,
    });
    let patch = serde_json::json!({"metadata": {"uid": pod.metadata.uid}, "status": status});
    let mut delay = Duration::from_millis(10);
    while writes::status(&context.caller, &pod, patch.clone()).await == Outcome::Retry {
        tokio::time::sleep(delay).await;
        delay = writes::longer(delay);
    }
    Done { uid: pod.metadata.uid.unwrap_or_default(), is_deleted: false, unheard: None }
}

/// Runs a pod to its end. `is_inherited`: an agent before this one may have run it.
pub(crate) async fn run(
    context: Arc<Context>,
    pod: Pod,
    is_inherited: bool,
    mut updates: mpsc::UnboundedReceiver<Update>,
) -> Done {
    let (sender, mut notices) = mpsc::unbounded_channel();
    let mut work = Work::new(context, pod, is_inherited, sender);
    let mut write: OptionFuture<BoxFuture<'static, Outcome>> = None.into();
    let mut is_writing = false;
    let mut write_at: Option<Instant> = None;
    loop {
        let step = work.advance().await;
        if step.is_over {
            break;
        }
        if !is_writing && work.is_changed && !work.is_gone {
            let now = Instant::now();
            if *write_at.get_or_insert(now + work.write_delay) <= now {
                (work.is_changed, write_at) = (false, None);
                if let Some((wanted, patch)) = work.pending_patch() {
                    write = Some(writes::status(&work.context.caller, &work.pod, patch)).into();
                    (work.writing, is_writing) = (Some(wanted), true);
                }
            }
        }
        let wake_in = step.wake_at.map(until);
        tokio::select! {
            biased;
            Some((place, run, notice)) = notices.recv() => work.on_notice(place, run, notice),
            Some(update) = updates.recv() => work.on_update(update),
            Some(outcome) = &mut write, if is_writing => {
                (write, is_writing) = (None.into(), false);
                work.on_written(outcome);
            }
            () = tokio::time::sleep(wake_in.unwrap_or_default()), if wake_in.is_some() => {}
            () = tokio::time::sleep_until(write_at.unwrap_or_else(Instant::now)), if write_at.is_some() => {}
        }
    }
    if is_writing && let Some(outcome) = write.await {
        work.on_written(outcome);
    }
    work.finish(updates).await
}

fn until(time: Timestamp) -> Duration {
    time.duration_since(Timestamp::now()).try_into().unwrap_or_default()
}
