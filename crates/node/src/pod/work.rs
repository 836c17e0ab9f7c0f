//! What a pod's task does: starts, hears, stops.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use rustix::process::Signal;
use tokio::task::JoinHandle;

use super::image::Progress;
use super::{Context, Notice, Order, Update, events};
use crate::attend::{self, Attendant, Notices, Target};
use crate::cgroup::Group;
use crate::check::{Check, Outcome as Checked};
use crate::container::{
    AfterExit, End, Kind, OOM_KILLED, Plan, PreStop, Record, RestartPolicy, State, Waiting,
};
use crate::events::Report;
use crate::images::Image;
use crate::input::Input;
use crate::lifecycle::{self, Cause, Ending, Reset, Step};
use crate::phase::Phase;
use crate::prepare::{self, Prepared};
use crate::probe::{self, Spec};
use crate::runtimes::host::{self, Event};
use crate::runtimes::{Exit, StartError};
use crate::writes::Answer;
use crate::{logs, mounts, oci, streams};

/// How long a change waits for the next one before it is written. A pod that is done sooner costs one write
/// instead of two; a human does not see the difference.
pub(super) const SETTLE: Duration = Duration::from_millis(5);
/// When to ask again for a start that met a dead keeper.
const KEEPER_RETRY: Duration = Duration::from_secs(1);
/// When volumes that could not be had are tried again.
const MOUNT_RETRY: Duration = Duration::from_secs(2);
/// The exit code of a container that could not be started (container runtimes' convention).
const START_ERROR_CODE: i32 = 128;

pub(super) struct Work {
    pub(super) context: Arc<Context>,
    pub(super) pod: Pod,
    title: String,
    pub(super) plans: Vec<Plan>,
    pub(super) records: Vec<Record>,
    /// The process of the run that is going on.
    processes: Vec<Option<host::Id>>,
    /// Its control group.
    groups: Vec<Option<Group>>,
    /// The images of the containers that have one.
    pub(super) images: Vec<Progress>,
    /// The image of the run that is going on, which stays as long.
    running_images: Vec<Option<Arc<Image>>>,
    /// What is removed when it has ended.
    leaves: Vec<Vec<PathBuf>>,
    /// Bundles that are being removed.
    pub(super) removals: Vec<JoinHandle<()>>,
    /// The volumes of the pod are there.
    has_volumes: bool,
    /// Who keeps the files of volumes up to date; ends with the pod.
    refresher: Option<Attendant>,
    /// Who looks after the run that is going on.
    attendants: Vec<Vec<Attendant>>,
    pub(super) notices: Notices,
    pub(super) ending: Option<Ending>,
    /// This node ends the pod.
    pub(super) order: Option<Order>,
    /// All containers are being stopped, to be started again.
    pub(super) is_restarting: bool,
    /// Gone from the API: there is nothing to write to.
    pub(super) is_gone: bool,
    pub(super) start_time: Timestamp,
    /// The status that the API has, as far as we wrote it, and the conditions of all.
    pub(super) known: PodStatus,
    /// What was answered to our last write.
    pub(super) answer: Option<Answer>,
    /// Others changed the status while ours was being written.
    pub(super) is_behind: bool,
    /// Something happened since the last status was made.
    pub(super) is_changed: bool,
    /// The status that is being written.
    pub(super) writing: Option<PodStatus>,
    /// How long to wait before the next write: longer after a failed one.
    pub(super) write_delay: Duration,
}

impl Work {
    pub(super) fn new(context: Arc<Context>, pod: Pod, is_inherited: bool, notices: Notices) -> Self {
        let plans = pod.spec.as_ref().map(Plan::of).unwrap_or_default();
        let known = pod.status.clone().unwrap_or_default();
        let now = Timestamp::now();
        let statuses =
            known.init_container_statuses.iter().flatten().chain(known.container_statuses.iter().flatten());
        let record_of = |plan: &Plan| {
            let status = statuses.clone().find(|status| status.name == plan.name);
            let record = status.map(|status| Record::inherited(status, now)).unwrap_or_default();
            // A log tells of a run that nobody had the time to report.
            let log = |run| logs::path(&context.logs, prepare::pod_name(&pod), &plan.name, run);
            record.with_unreported(|run| is_inherited && logs::is_there(&log(run)), now)
        };
        let mut work = Self {
            title: prepare::title(&pod),
            records: plans.iter().map(record_of).collect(),
            processes: vec![None; plans.len()],
            groups: vec![None; plans.len()],
            images: plans.iter().map(|_| Progress::default()).collect(),
            running_images: vec![None; plans.len()],
            leaves: vec![Vec::new(); plans.len()],
            removals: Vec::new(),
            has_volumes: false,
            refresher: None,
            attendants: plans.iter().map(|_| Vec::new()).collect(),
            start_time: known.start_time.as_ref().map_or(now, |time| time.0),
            plans,
            context,
            pod,
            notices,
            ending: None,
            order: None,
            is_restarting: false,
            is_gone: false,
            known,
            answer: None,
            is_behind: false,
            is_changed: true,
            writing: None,
            write_delay: SETTLE,
        };
        work.heed_deletion();
        work
    }

    /// Does what is to be done now, and says when to ask again.
    pub(super) async fn advance(&mut self) -> Step {
        loop {
            let now = Timestamp::now();
            let mut step = lifecycle::next(&self.view(), now);
            if let Some(cause) = step.end {
                if cause == Cause::DeadlineExceeded {
                    self.publish(None, false, "DeadlineExceeded", super::report::DEADLINE_MESSAGE.into());
                }
                self.end(cause, self.grace());
                continue;
            }
            if let Some(reset) = step.reset {
                match reset {
                    Reset::Begin => lifecycle::begin_reset(&mut self.records, now),
                    Reset::Finish => self.finish_reset(now),
                }
                self.is_restarting = reset == Reset::Begin;
                self.is_changed = true;
                continue;
            }
            for (place, waiting) in step.hold.drain(..) {
                self.say_back_off(place, &waiting);
                lifecycle::held(&mut self.records[place], waiting);
                self.is_changed = true;
            }
            for &place in &step.pre_stop {
                self.say_killing(place, None);
                self.records[place].pre_stop = PreStop::Running;
                self.pre_stop(place);
            }
            for &place in &step.term {
                self.say_killing(place, None);
                self.records[place].term_sent_at = Some(now);
                let image = self.running_images[place].as_ref();
                let asked =
                    image.map_or(Signal::TERM, |image| oci::stop_signal(&image.config.config.stop_signal));
                self.signal(place, asked);
            }
            for &place in &step.kill {
                self.records[place].is_kill_sent = true;
                self.signal(place, Signal::KILL);
            }
            for &place in &step.start {
                self.start(place).await;
            }
            if step.start.is_empty() {
                return step;
            }
            self.is_changed = true;
        }
    }

    fn finish_reset(&mut self, now: Timestamp) {
        let limits = &self.context.config.crash_backoff;
        let held_back = lifecycle::finish_reset(&self.plans, &mut self.records, limits, &self.title, now);
        for place in held_back {
            if let State::Waiting(waiting) = &self.records[place].state {
                self.say_back_off(place, waiting);
            }
        }
    }

    fn view(&self) -> lifecycle::Pod<'_> {
        let seconds = self.pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        lifecycle::Pod {
            plans: &self.plans,
            records: &self.records,
            ending: self.ending.as_ref(),
            is_restarting: self.is_restarting,
            deadline: seconds
                .map(|seconds| crate::backoff::add(self.start_time, Duration::from_secs(seconds))),
            limits: &self.context.config.crash_backoff,
            title: &self.title,
        }
    }

    /// The pod's own grace period; 30 s is the API's default.
    pub(super) fn grace(&self) -> Duration {
        let deletion = self.pod.metadata.deletion_grace_period_seconds;
        let own = self.pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
        let seconds = deletion.or(own).unwrap_or(30);
        Duration::from_secs(u64::try_from(seconds).unwrap_or(0).max(1))
    }

    fn end(&mut self, cause: Cause, grace: Duration) {
        let now = Timestamp::now();
        match &mut self.ending {
            Some(ending) => ending.hasten(now, grace),
            None => self.ending = Some(Ending::new(cause, now, grace)),
        }
        // Whether a pod that ends is alive or has started is of no interest; whether it is ready is.
        for attendants in &mut self.attendants {
            let is_kept = |attendant: &Attendant| {
                !matches!(attendant.kind, Some(probe::Kind::Startup | probe::Kind::Liveness))
            };
            attendants.retain(is_kept);
        }
    }

    fn signal(&self, place: usize, signal: Signal) {
        if let Some(process) = self.processes[place] {
            self.context.host.signal(process, signal);
        }
    }

    pub(super) fn container(&self, place: usize) -> Option<&Container> {
        let spec = self.pod.spec.as_ref()?;
        spec.init_containers.iter().flatten().chain(&spec.containers).nth(place)
    }

    async fn start(&mut self, place: usize) {
        if !self.has_volumes && mounts::has_any(&self.pod) {
            if let Err(error) = mounts::set_up(&self.context, &self.pod).await {
                self.publish(None, true, "FailedMount", error);
                let retry_at = Some(crate::backoff::add(Timestamp::now(), MOUNT_RETRY));
                let usual = self.usual_waiting();
                let waiting = Waiting { reason: Some(usual), message: String::new(), retry_at };
                return lifecycle::held(&mut self.records[place], waiting);
            }
            self.has_volumes = true;
            if mounts::has_files(&self.pod) {
                let every = self.context.config.refresh_every;
                let fresh = mounts::keep_fresh(Arc::downgrade(&self.context), self.pod.clone(), every);
                self.refresher = Some(Attendant::of(fresh));
            }
        }
        let oci = self.container(place).and_then(|container| self.context.oci_of(container)).cloned();
        let image = match &oci {
            Some(_) => match self.image(place) {
                Some(image) => Some(image),
                None => return,
            },
            None => None,
        };
        let Some(container) = self.container(place) else { return };
        let run = self.records[place].next_run();
        let prepared = match (&oci, &image) {
            (Some(oci), Some(image)) => {
                oci::prepare::process(&self.context, oci, &self.pod, container, run, image).await
            }
            _ => prepare::process(&self.context, &self.pod, container, run).await,
        };
        let prepared = prepared.and_then(|prepared| {
            let input = Input::new(container);
            let failed = |error| prepare::Error::create(format!("make the input of the container: {error}"));
            Ok((prepared, input.map_err(failed)?.unzip()))
        });
        match prepared {
            Ok((Prepared { process, group, leaves, exec }, (input, given))) => {
                self.groups[place] = group;
                self.records[place].image_id = image.as_ref().map(|image| image.repo_digest.clone());
                (self.running_images[place], self.leaves[place]) = (image, leaves);
                let limits = &self.context.config.crash_backoff;
                lifecycle::started(&mut self.records[place], Timestamp::now(), limits);
                self.say(place, "Created", "Container created");
                let notices = self.notices.clone();
                // The task outlives its processes, so that somebody listens; a send after that has no reader
                // to miss it.
                let sink = move |event| drop(notices.send((place, run, Notice::Process(event))));
                let name = &self.plans[place].name;
                self.context.running.insert(self.uid(), name, run, &process, (exec, input));
                self.processes[place] = Some(self.context.host.run(process, given.as_ref(), sink));
            }
            Err(error) => {
                self.publish(Some(place), true, "Failed", format!("Error: {}", error.message));
                let retry_at = error.retry_in.map(|delay| crate::backoff::add(Timestamp::now(), delay));
                let waiting = Waiting { reason: Some(error.reason), message: error.message, retry_at };
                lifecycle::held(&mut self.records[place], waiting);
            }
        }
    }

    /// What a container waits for whose pod is not ready for it.
    pub(super) fn usual_waiting(&self) -> &'static str {
        let has_init = self.plans.iter().any(|plan| plan.kind != Kind::Main);
        if has_init { "PodInitializing" } else { "ContainerCreating" }
    }

    /// Hears of a run; what comes late, of one that is over, is of no interest.
    pub(super) fn on_notice(&mut self, place: usize, run: i32, notice: Notice) {
        if let Notice::Image(found) = notice {
            if self.ending.is_none() && !self.records[place].may_run() {
                self.on_image(place, found);
            }
            return;
        }
        if run != self.records[place].restart_count || !self.records[place].may_run() {
            return;
        }
        self.is_changed = true;
        match notice {
            Notice::Process(event) => self.on_event(place, event),
            Notice::Image(_) => {}
            Notice::PostStarted(Checked::Success) => self.runs(place),
            Notice::PostStarted(Checked::Failure(error) | Checked::Error(error)) => {
                tracing::info!(
                    pod = self.title,
                    container = self.plans[place].name,
                    error,
                    "postStart hook failed"
                );
                self.publish(Some(place), true, "FailedPostStartHook", "PostStartHook failed".into());
                self.stop(place, "FailedPostStartHook".into(), None);
            }
            Notice::PreStopped(outcome) => {
                if let Checked::Failure(error) | Checked::Error(error) = outcome {
                    tracing::info!(
                        pod = self.title,
                        container = self.plans[place].name,
                        error,
                        "preStop hook failed"
                    );
                    self.publish(Some(place), true, "FailedPreStopHook", "PreStopHook failed".into());
                }
                lifecycle::pre_stop_done(&mut self.records[place]);
            }
            Notice::Unhealthy(kind, Checked::Error(error)) => {
                let message =
                    format!("{} probe errored and resulted in unknown state: {error}", kind.title());
                self.publish(Some(place), true, "Unhealthy", message);
            }
            Notice::Unhealthy(kind, Checked::Failure(text)) => {
                self.publish(
                    Some(place),
                    true,
                    "Unhealthy",
                    format!("{} probe failed: {text}", kind.title()),
                );
            }
            Notice::Unhealthy(_, Checked::Success) => {}
            Notice::Probed(kind, is_success) => self.on_probed(place, kind, is_success),
        }
    }

    fn on_event(&mut self, place: usize, event: Event) {
        let now = Timestamp::now();
        match event {
            Event::Started(pid) => {
                let (context, name) = (&self.context, &self.plans[place].name);
                if !context.host.has_apart() || !context.running.is_apart(self.uid(), name) {
                    context.running.set_pid(self.uid(), name, pid);
                }
                self.records[place].began_at = Some(now);
                self.records[place].container_id = self.container_id(place);
                self.say(place, "Started", "Container started");
                match self.plans[place].checks.post_start && self.records[place].term_sent_at.is_none() {
                    true => self.post_start(place),
                    false => self.runs(place),
                }
                return;
            }
            // Not the container's fault: it is tried again when a new keeper is there.
            Event::Failed(StartError::KeeperGone) => {
                let waiting = Waiting {
                    reason: Some("CreateContainerError"),
                    message: StartError::KeeperGone.to_string(),
                    retry_at: Some(crate::backoff::add(now, KEEPER_RETRY)),
                };
                lifecycle::not_started(&mut self.records[place], waiting);
                // The next try is of the same run, and makes its files anew.
                self.leaves[place].clear();
            }
            Event::Failed(error) if self.context.is_overlay_refused(&error) => {
                self.leaves[place].clear();
                let name = &self.plans[place].name;
                let run = self.records[place].restart_count;
                let log = logs::path(&self.context.logs, prepare::pod_name(&self.pod), name, run);
                let _ = logs::remove(&log);
                let (reason, message) = (Some("CreateContainerError"), error.to_string());
                let waiting = Waiting { reason, message, retry_at: Some(now) };
                lifecycle::not_started(&mut self.records[place], waiting);
            }
            Event::Failed(error) => self.on_start_failed(place, &error, now),
            Event::Exited(exit) => self.on_exit(place, exit, now),
            Event::Lost => {
                let message = "the process keeper was killed, and the container with it";
                self.set_end(place, End::unknown(now, message));
            }
        }
        self.processes[place] = None;
        self.attendants[place].clear();
        if let Some(group) = self.groups[place].take() {
            group.remove();
        }
        self.running_images[place] = None;
        let leaves = std::mem::take(&mut self.leaves[place]);
        if !leaves.is_empty() {
            self.removals.retain(|removal| !removal.is_finished());
            self.removals.push(tokio::task::spawn_blocking(move || {
                for path in leaves {
                    if let Err(error) = oci::bundle::remove(&path) {
                        tracing::warn!(%error, path = %path.display(), "remove what a container has left");
                    }
                }
            }));
        }
        self.context.running.remove(self.uid(), &self.plans[place].name);
    }

    fn set_end(&mut self, place: usize, end: End) {
        let record = &mut self.records[place];
        record.state = State::Terminated(end);
        (record.is_started, record.is_ready) = (false, false);
    }

    pub(super) fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    fn container_id(&self, place: usize) -> String {
        streams::container_id(self.uid(), &self.plans[place].name, self.records[place].restart_count)
    }

    fn target(&self, place: usize) -> Target {
        let run = self.records[place].restart_count;
        Target { uid: self.uid().into(), container: self.plans[place].name.clone(), place, run }
    }

    fn hook(&self, place: usize, is_post_start: bool) -> Option<Result<Check, String>> {
        let container = self.container(place)?;
        let hooks = container.lifecycle.as_ref()?;
        let hook = if is_post_start { hooks.post_start.as_ref() } else { hooks.pre_stop.as_ref() };
        Some(Check::of_hook(hook?, container))
    }

    fn post_start(&mut self, place: usize) {
        let Some(check) = self.hook(place, true) else { return };
        let hook = attend::post_start(&self.context, self.target(place), check, self.notices.clone());
        self.attendants[place].push(hook);
    }

    fn pre_stop(&mut self, place: usize) {
        let Some(check) = self.hook(place, false) else { return };
        let hook = attend::pre_stop(&self.context, self.target(place), check, self.notices.clone());
        self.attendants[place].push(hook);
    }

    /// A container runs: from now on it is probed.
    fn runs(&mut self, place: usize) {
        lifecycle::runs(&self.plans[place], &mut self.records[place], Timestamp::now());
        match self.records[place].is_started {
            true => self.probe_started(place),
            false => self.probe(place, probe::Kind::Startup),
        }
    }

    fn probe_started(&mut self, place: usize) {
        self.probe(place, probe::Kind::Liveness);
        self.probe(place, probe::Kind::Readiness);
    }

    fn probe(&mut self, place: usize, kind: probe::Kind) {
        if self.ending.is_some() {
            return;
        }
        if let Some(spec) = self.container(place).and_then(|container| Spec::of(container, kind)) {
            let probe = attend::probe(&self.context, self.target(place), kind, spec, self.notices.clone());
            self.attendants[place].push(probe);
        }
    }

    fn on_probed(&mut self, place: usize, kind: probe::Kind, is_success: bool) {
        match (kind, is_success) {
            (probe::Kind::Readiness, _) => self.records[place].is_ready = is_success,
            (probe::Kind::Startup, true) => {
                lifecycle::has_started(&self.plans[place], &mut self.records[place]);
                self.probe_started(place);
            }
            (probe::Kind::Liveness, true) => {}
            (probe::Kind::Startup | probe::Kind::Liveness, false) => {
                let plan = &self.plans[place];
                let mut message = format!("Container {} failed {} probe", plan.name, kind.word());
                if plan.policy != RestartPolicy::Never {
                    message.push_str(", will be restarted");
                }
                let grace = self.container(place).and_then(|container| Spec::of(container, kind)?.grace);
                self.stop(place, message, grace);
            }
        }
    }

    /// Stops one container, whatever the pod does.
    fn stop(&mut self, place: usize, message: String, grace: Option<Duration>) {
        let kill_at = crate::backoff::add(Timestamp::now(), grace.unwrap_or_else(|| self.grace()));
        if self.records[place].stop_by.is_none() {
            self.say_killing(place, Some(message));
            self.records[place].stop_by = Some(kill_at);
        }
    }

    fn on_start_failed(&mut self, place: usize, error: &StartError, now: Timestamp) {
        self.publish(Some(place), true, "Failed", format!("Error: {error}"));
        let end = End {
            exit_code: START_ERROR_CODE,
            reason: "StartError".into(),
            message: error.to_string(),
            started_at: None,
            finished_at: now,
            container_id: String::new(),
        };
        self.set_end(place, end);
    }

    fn on_exit(&mut self, place: usize, exit: Exit, now: Timestamp) {
        let message = self.termination_message(place, exit);
        let record = &self.records[place];
        let ran_out_of_memory = self.groups[place].as_ref().is_some_and(Group::ran_out_of_memory);
        let reason = match exit {
            _ if ran_out_of_memory => OOM_KILLED,
            Exit::Code(0) => "Completed",
            Exit::Code(_) | Exit::Signal(_) => "Error",
        };
        let end = End {
            exit_code: exit.code(),
            reason: reason.into(),
            message,
            started_at: record.began_at,
            finished_at: now,
            container_id: record.container_id.clone(),
        };
        self.set_end(place, end);
    }

    fn termination_message(&self, place: usize, exit: Exit) -> String {
        let Some(container) = self.container(place) else { return String::new() };
        let run = self.records[place].restart_count;
        let said = mounts::read_message(&self.context, &self.pod, &container.name, run);
        let policy = container.termination_message_policy.as_deref();
        if !said.is_empty() || policy != Some("FallbackToLogsOnError") || exit.code() == 0 {
            return said;
        }
        let path = logs::path(&self.context.logs, prepare::pod_name(&self.pod), &self.plans[place].name, run);
        let is_silent =
            |error: &io::Error| self.context.config.is_of_one_run && error.kind() == io::ErrorKind::NotFound;
        match logs::tail(&path) {
            Ok(text) => text,
            Err(error) if is_silent(&error) => String::new(),
            Err(error) => format!("read log {}: {error}", path.display()),
        }
    }

    pub(super) fn on_update(&mut self, update: Update) {
        match update {
            Update::Changed(pod) => {
                self.is_changed |= pod.metadata.generation != self.pod.metadata.generation;
                self.pod = *pod;
                self.heed_images();
                self.heed_status();
                self.heed_deletion();
            }
            Update::Gone => {
                self.is_gone = true;
                self.end(Cause::Deleted, self.grace());
            }
            Update::End(order) => {
                self.is_changed = true;
                self.end(Cause::Node, self.grace().min(order.grace));
                self.order.get_or_insert(order);
            }
        }
    }

    /// A pod that was deleted, or to which somebody else gave a terminal phase, ends.
    fn heed_deletion(&mut self) {
        if self.pod.metadata.deletion_timestamp.is_some() || self.api_end().is_some() {
            self.end(Cause::Deleted, self.grace());
        }
    }

    /// The terminal phase that the API has. It always wins: we write ours only as the last thing.
    pub(super) fn api_end(&self) -> Option<Phase> {
        let status = self.pod.status.as_ref()?;
        Phase::parse(status.phase.as_deref()).filter(|phase| phase.is_terminal())
    }

    pub(super) fn publish(
        &self,
        place: Option<usize>,
        is_warning: bool,
        reason: &'static str,
        message: String,
    ) {
        if self.context.config.events.is_some() {
            let about = events::about(&self.pod, place.and_then(|place| self.container(place)));
            self.context.publish(Report { about, is_warning, reason: reason.to_owned(), message });
        }
    }

    /// Tells people what a container does in the usual course of things, which costs nothing if nobody listens.
    fn say(&self, place: usize, reason: &'static str, message: &'static str) {
        if self.context.config.events.is_some() {
            self.publish(Some(place), false, reason, message.to_owned());
        }
    }

    /// Tells people that a container is about to be stopped, once.
    fn say_killing(&self, place: usize, message: Option<String>) {
        if self.context.config.events.is_some() && !self.records[place].is_stopping() {
            let message = message.unwrap_or_else(|| format!("Stopping container {}", self.plans[place].name));
            self.publish(Some(place), false, "Killing", message);
        }
    }

    fn say_back_off(&self, place: usize, waiting: &Waiting) {
        if waiting.reason == Some("CrashLoopBackOff") {
            let name = &self.plans[place].name;
            let message = format!("Back-off restarting failed container {name} in pod {}", self.title);
            self.publish(Some(place), true, "BackOff", message);
        }
    }

    /// Whether a rule can start all containers again, and whether that is going on.
    pub(super) fn restart_all(&self) -> Option<bool> {
        let mut rules = self.plans.iter().flat_map(|plan| &plan.rules);
        rules.any(|rule| rule.then == AfterExit::RestartAll).then_some(self.is_restarting)
    }
}
