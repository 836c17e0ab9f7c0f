//! One pod's task: performs the steps of `lifecycle`, and keeps the API's status in line with what happens.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, OptionFuture};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodStatus};
use rustix::process::Signal;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::agent::Config;
use crate::container::{End, Plan, Record, State, Waiting};
use crate::lifecycle::{self, Cause, Ending, Step};
use crate::phase::{self, Phase};
use crate::runtimes::host::{self, Event, Host};
use crate::runtimes::{Exit, StartError};
use crate::streams::Table;
use crate::writes::{self, Outcome};
use crate::{logs, prepare, status, streams};

/// How long a change waits for the next one before it is written. A pod that is done sooner costs one write
/// instead of two; a human does not see the difference.
const SETTLE: Duration = Duration::from_millis(5);
/// When to ask again for a start that met a dead keeper.
const KEEPER_RETRY: Duration = Duration::from_secs(1);
/// The exit code of a container that could not be started (container runtimes' convention).
const START_ERROR_CODE: i32 = 128;

/// What all pods of an agent share.
pub(crate) struct Context {
    pub(crate) config: Config,
    pub(crate) host: Host,
    pub(crate) logs: PathBuf,
    pub(crate) running: Table,
}

impl Context {
    pub(crate) fn new(config: Config, host: Host, logs: PathBuf) -> Self {
        Self { config, host, logs, running: Table::default() }
    }
}

/// What the agent tells a pod's task.
pub(crate) enum Update {
    /// The pod has changed in the API.
    Changed(Box<Pod>),
    /// The pod is no longer in the API.
    Gone,
    /// The node shuts down, and has this much time.
    Shutdown(Duration),
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
pub(crate) fn awaits_last_delete(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some() && pod.metadata.deletion_grace_period_seconds != Some(0)
}

/// Lets a pod that has ended go.
pub(crate) async fn delete_last(context: Arc<Context>, pod: Pod) -> Done {
    writes::delete(&context.config.client, &pod).await;
    Done { uid: pod.metadata.uid.unwrap_or_default(), is_deleted: true, unheard: None }
}

/// Runs a pod to its end.
pub(crate) async fn run(
    context: Arc<Context>,
    pod: Pod,
    mut updates: mpsc::UnboundedReceiver<Update>,
) -> Done {
    let (sender, mut events) = mpsc::unbounded_channel();
    let mut work = Work::new(context, pod, sender);
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
                    write = Some(writes::status(work.context.config.client.clone(), &work.pod, patch)).into();
                    (work.writing, is_writing) = (Some(wanted), true);
                }
            }
        }
        let wake_in = step.wake_at.map(until);
        tokio::select! {
            biased;
            Some((place, event)) = events.recv() => work.on_event(place, event),
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

struct Work {
    context: Arc<Context>,
    pod: Pod,
    title: String,
    plans: Vec<Plan>,
    records: Vec<Record>,
    /// The process of the run that is going on.
    processes: Vec<Option<host::Id>>,
    events: mpsc::UnboundedSender<(usize, Event)>,
    ending: Option<Ending>,
    /// Gone from the API: there is nothing to write to.
    is_gone: bool,
    start_time: Timestamp,
    /// The status that the API has, as far as we wrote it.
    known: PodStatus,
    /// Something happened since the last status was made.
    is_changed: bool,
    /// The status that is being written.
    writing: Option<PodStatus>,
    /// How long to wait before the next write: longer after a failed one.
    write_delay: Duration,
}

impl Work {
    fn new(context: Arc<Context>, pod: Pod, events: mpsc::UnboundedSender<(usize, Event)>) -> Self {
        let plans = pod.spec.as_ref().map(Plan::of).unwrap_or_default();
        let known = pod.status.clone().unwrap_or_default();
        let now = Timestamp::now();
        let statuses =
            known.init_container_statuses.iter().flatten().chain(known.container_statuses.iter().flatten());
        let record_of = |plan: &Plan| {
            let status = statuses.clone().find(|status| status.name == plan.name);
            status.map(|status| Record::inherited(status, now)).unwrap_or_default()
        };
        let meta = &pod.metadata;
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let mut work = Self {
            title: format!("{}_{}({})", text(&meta.name), text(&meta.namespace), text(&meta.uid)),
            records: plans.iter().map(record_of).collect(),
            processes: vec![None; plans.len()],
            start_time: known.start_time.as_ref().map_or(now, |time| time.0),
            plans,
            context,
            pod,
            events,
            ending: None,
            is_gone: false,
            known,
            is_changed: true,
            writing: None,
            write_delay: SETTLE,
        };
        work.heed_deletion();
        work
    }

    /// Does what is to be done now, and says when to ask again.
    async fn advance(&mut self) -> Step {
        loop {
            let now = Timestamp::now();
            let mut step = lifecycle::next(&self.view(), now);
            if let Some(cause) = step.end {
                self.end(cause, self.grace());
                continue;
            }
            for (place, waiting) in step.hold.drain(..) {
                lifecycle::held(&mut self.records[place], waiting);
                self.is_changed = true;
            }
            for &place in &step.term {
                self.records[place].term_sent_at = Some(now);
                self.signal(place, Signal::TERM);
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

    fn view(&self) -> lifecycle::Pod<'_> {
        let seconds = self.pod.spec.as_ref().and_then(|spec| spec.active_deadline_seconds);
        let seconds = seconds.and_then(|seconds| u64::try_from(seconds).ok());
        lifecycle::Pod {
            plans: &self.plans,
            records: &self.records,
            ending: self.ending.as_ref(),
            deadline: seconds
                .map(|seconds| crate::backoff::add(self.start_time, Duration::from_secs(seconds))),
            limits: &self.context.config.crash_backoff,
            title: &self.title,
        }
    }

    /// The pod's own grace period; 30 s is the API's default.
    fn grace(&self) -> Duration {
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
    }

    fn signal(&self, place: usize, signal: Signal) {
        if let Some(process) = self.processes[place] {
            self.context.host.signal(process, signal);
        }
    }

    fn container(&self, place: usize) -> Option<&Container> {
        let spec = self.pod.spec.as_ref()?;
        spec.init_containers.iter().flatten().chain(&spec.containers).nth(place)
    }

    async fn start(&mut self, place: usize) {
        let Some(container) = self.container(place) else { return };
        let record = &self.records[place];
        let run = record.restart_count + i32::from(record.newest_end().is_some());
        match prepare::process(&self.context, &self.pod, container, run).await {
            Ok(process) => {
                let limits = &self.context.config.crash_backoff;
                lifecycle::started(&mut self.records[place], Timestamp::now(), limits);
                let events = self.events.clone();
                // The task outlives its processes, so that somebody listens; a send after that has no reader
                // to miss it.
                let sink = move |event| drop(events.send((place, event)));
                self.context.running.insert(self.uid(), &self.plans[place].name, run, &process);
                self.processes[place] = Some(self.context.host.run(process, sink));
            }
            Err(error) => {
                let retry_at = error.retry_in.map(|delay| crate::backoff::add(Timestamp::now(), delay));
                let waiting = Waiting { reason: Some(error.reason), message: error.message, retry_at };
                lifecycle::held(&mut self.records[place], waiting);
            }
        }
    }

    fn on_event(&mut self, place: usize, event: Event) {
        self.is_changed = true;
        let now = Timestamp::now();
        let container_id = self.container_id(place);
        match event {
            Event::Started(_) => {
                self.records[place].state = State::Running { started_at: now };
                self.records[place].container_id = container_id;
                return;
            }
            // Not the container's fault: it is tried again when a new keeper is there.
            Event::Failed(StartError::KeeperGone) => {
                let waiting = Waiting {
                    reason: Some("CreateContainerError"),
                    message: StartError::KeeperGone.to_string(),
                    retry_at: Some(crate::backoff::add(now, KEEPER_RETRY)),
                };
                lifecycle::held(&mut self.records[place], waiting);
            }
            Event::Failed(error) => self.on_start_failed(place, &error, now),
            Event::Exited(exit) => self.on_exit(place, exit, now),
            Event::Lost => {
                let message = "the process keeper was killed, and the container with it";
                self.records[place].state = State::Terminated(End::unknown(now, message));
            }
        }
        self.processes[place] = None;
        self.context.running.remove(self.uid(), &self.plans[place].name);
    }

    fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap_or_default()
    }

    fn container_id(&self, place: usize) -> String {
        streams::container_id(self.uid(), &self.plans[place].name, self.records[place].restart_count)
    }

    fn on_start_failed(&mut self, place: usize, error: &StartError, now: Timestamp) {
        self.records[place].state = State::Terminated(End {
            exit_code: START_ERROR_CODE,
            reason: "StartError".into(),
            message: error.to_string(),
            started_at: None,
            finished_at: now,
            container_id: String::new(),
        });
    }

    fn on_exit(&mut self, place: usize, exit: Exit, now: Timestamp) {
        let message = self.termination_message(place, exit);
        let record = &mut self.records[place];
        let started_at = match record.state {
            State::Running { started_at } => Some(started_at),
            _ => None,
        };
        record.state = State::Terminated(End {
            exit_code: exit.code(),
            reason: if exit == Exit::Code(0) { "Completed" } else { "Error" }.into(),
            message,
            started_at,
            finished_at: now,
            container_id: record.container_id.clone(),
        });
    }

    fn termination_message(&self, place: usize, exit: Exit) -> String {
        let policy =
            self.container(place).and_then(|container| container.termination_message_policy.as_deref());
        if policy != Some("FallbackToLogsOnError") || exit.code() == 0 {
            return String::new();
        }
        let run = self.records[place].restart_count;
        let path = logs::path(&self.context.logs, prepare::pod_name(&self.pod), &self.plans[place].name, run);
        logs::tail(&path).unwrap_or_else(|error| format!("read log {}: {error}", path.display()))
    }

    fn on_update(&mut self, update: Update) {
        self.is_changed = true;
        match update {
            Update::Changed(pod) => {
                self.pod = *pod;
                self.heed_deletion();
            }
            Update::Gone => {
                self.is_gone = true;
                self.end(Cause::Deleted, self.grace());
            }
            Update::Shutdown(limit) => self.end(Cause::Shutdown, self.grace().min(limit)),
        }
    }

    /// A pod that was deleted, or to which somebody else gave a terminal phase, ends.
    fn heed_deletion(&mut self) {
        if self.pod.metadata.deletion_timestamp.is_some() || self.api_end().is_some() {
            self.end(Cause::Deleted, self.grace());
        }
    }

    /// The terminal phase that the API has. It always wins: we write ours only as the last thing.
    fn api_end(&self) -> Option<Phase> {
        let status = self.pod.status.as_ref()?;
        Phase::parse(status.phase.as_deref()).filter(|phase| phase.is_terminal())
    }

    /// The status to write and the patch that does it, if the API has another one.
    fn pending_patch(&self) -> Option<(PodStatus, serde_json::Value)> {
        let computed = phase::of(&self.plans, &self.records, false);
        let known = Phase::parse(self.known.phase.as_deref()).unwrap_or(Phase::Pending);
        // A terminal phase is kept back while anything may run.
        let phase = self.api_end().unwrap_or(if computed.is_terminal() { known } else { computed });
        self.patch_to(phase, None, None)
    }

    fn patch_to(
        &self,
        phase: Phase,
        reason: Option<(&str, &str)>,
        disruption: Option<&str>,
    ) -> Option<(PodStatus, serde_json::Value)> {
        // Without a reason of our own we leave the one that is there, such as the one a delete was given.
        let (known_reason, known_message) = (self.known.reason.as_deref(), self.known.message.as_deref());
        let kept = known_reason.map(|reason| (reason, known_message.unwrap_or_default()));
        let wanted = status::build(&status::View {
            pod: &self.pod,
            plans: &self.plans,
            records: &self.records,
            phase,
            reason: reason.or(kept),
            disruption,
            start_time: self.start_time,
            known: &self.known,
            now: Timestamp::now(),
        });
        let patch = status::patch(self.uid(), &self.known, &wanted)?;
        Some((wanted, patch))
    }

    fn on_written(&mut self, outcome: Outcome) {
        let wanted = self.writing.take();
        match outcome {
            Outcome::Done => {
                if let Some(wanted) = wanted {
                    self.known = status::after_patch(&self.known, wanted);
                }
                self.write_delay = SETTLE;
            }
            Outcome::Gone => self.is_gone = true,
            Outcome::Retry => {
                self.is_changed = true;
                self.write_delay = writes::longer(self.write_delay);
            }
        }
    }

    /// Reports the end, and lets a deleted pod go.
    async fn finish(mut self, mut updates: mpsc::UnboundedReceiver<Update>) -> Done {
        lifecycle::conclude(&self.plans, &mut self.records, Timestamp::now());
        let (phase, reason, disruption) = self.verdict();
        while !self.is_gone
            && let Some((wanted, patch)) = self.patch_to(phase, reason, disruption)
        {
            self.writing = Some(wanted);
            let outcome = writes::status(self.context.config.client.clone(), &self.pod, patch).await;
            let is_retry = outcome == Outcome::Retry;
            self.on_written(outcome);
            if is_retry {
                tokio::time::sleep(self.write_delay).await;
            }
        }
        updates.close();
        let mut unheard = None;
        while let Some(update) = updates.recv().await {
            match update {
                Update::Changed(pod) => unheard = Some(pod),
                Update::Gone => self.is_gone = true,
                Update::Shutdown(_) => {}
            }
        }
        let newest = unheard.as_deref().unwrap_or(&self.pod);
        let is_deleted = !self.is_gone && awaits_last_delete(newest);
        if is_deleted {
            writes::delete(&self.context.config.client, newest).await;
        }
        Done { uid: self.pod.metadata.uid.clone().unwrap_or_default(), is_deleted, unheard }
    }

    /// The last phase of the pod, and what else is to be said about its end.
    fn verdict(&self) -> (Phase, Option<(&'static str, &'static str)>, Option<&'static str>) {
        let phase = self.api_end().unwrap_or_else(|| phase::of(&self.plans, &self.records, true));
        match self.ending.map(|ending| ending.cause) {
            Some(Cause::DeadlineExceeded) => {
                let message = "Pod was active on the node longer than the specified deadline";
                (Phase::Failed, Some(("DeadlineExceeded", message)), None)
            }
            Some(Cause::Shutdown) => {
                let message = "Pod was terminated in response to imminent node shutdown.";
                let reason = (phase == Phase::Failed).then_some(("Terminated", message));
                (phase, reason, self.context.config.disruption_conditions.then_some(message))
            }
            None | Some(Cause::Done | Cause::Deleted) => (phase, None, None),
        }
    }
}
