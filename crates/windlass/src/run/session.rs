//! Jobs that run: shows what happens, ends pods when somebody interrupts, and finds the exit code.

use std::io::{self, Write};
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use windlass_controllers::job::{JobKey, Observer};
use windlass_job::Decision;
use windlass_job::trace::{Note, PodOutcome};

use super::engine::Engine;
use super::failures::Failures;
use super::progress::{self, Progress};
use super::screen::{Screen, Tone};
use super::{EXIT_INTERRUPTED, Heard, JobName, Options, blocked, name_of, owner};
use crate::EXIT_FAILED;
use crate::manifest::Kind;

/// How often a countdown is drawn, where there are bars.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// How often to look for pods that can't start.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A manifest that is being run.
pub struct Session<'a> {
    /// What was asked for.
    pub options: &'a Options,
    /// Where it is shown.
    pub screen: Screen,
    /// What runs them.
    pub engine: Engine,
    /// The Jobs, in the order of the file.
    pub jobs: Vec<(JobName, Progress)>,
    /// What comes from the parts.
    pub heard: mpsc::UnboundedReceiver<Heard>,
    /// What pods died of.
    pub failures: Failures,
    /// The longest that a pod may take to end.
    pub grace_max: Duration,
    /// Removed at the end.
    pub temporary: Option<tempfile::TempDir>,
    /// Who interrupts.
    pub signals: Signals,
}

/// SIGINT and SIGTERM.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on these signals do not end the process.
    pub fn catch() -> io::Result<Self> {
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl Session<'_> {
    /// Until all Jobs have finished, or somebody interrupts. Returns the exit code.
    pub async fn run(mut self) -> u8 {
        let is_interrupted = !self.follow().await;
        if is_interrupted {
            self.end_pods().await;
        } else {
            self.engine.stop(Duration::ZERO).await;
        }
        self.screen.clear();
        drop(self.temporary.take());
        if let Some(keep) = &self.options.keep {
            self.screen.line(Tone::Plain, &format!("logs are in {}", keep.join("logs").display()));
        }
        if self.options.prints_json {
            self.print_json().await;
        }
        let has_failed =
            |(_, progress): &(JobName, Progress)| progress.end().is_some_and(|end| !end.is_complete);
        match is_interrupted {
            true => EXIT_INTERRUPTED,
            false if self.jobs.iter().any(has_failed) => EXIT_FAILED,
            false => 0,
        }
    }

    /// Shows what happens. Returns false when interrupted.
    async fn follow(&mut self) -> bool {
        let jobs = Api::<Job>::all(self.engine.client().clone());
        let mut changes = std::pin::pin!(watcher(jobs, watcher::Config::default()).default_backoff());
        let mut draw = tokio::time::interval(DRAW_EVERY);
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.reset();
        while self.jobs.iter().any(|(_, progress)| progress.end().is_none()) {
            tokio::select! {
                // What was decided is told before what came of it.
                biased;
                () = self.signals.next() => return false,
                pod = self.failures.next() => self.see_failed(&pod),
                Some(heard) = self.heard.recv() => self.hear(heard).await,
                Some(change) = changes.next() => self.see(change),
                _ = look.tick() => self.look().await,
                _ = draw.tick(), if self.screen.has_bars() => {
                    self.jobs.iter().for_each(|(_, progress)| progress.draw());
                }
            }
        }
        true
    }

    fn progress(&mut self, job: &JobName) -> Option<&mut Progress> {
        self.jobs.iter_mut().find(|(name, _)| name == job).map(|(_, progress)| progress)
    }

    async fn hear(&mut self, heard: Heard) {
        match heard {
            Heard::Decided { job, note } => {
                let failure = match &note {
                    Note::PodFinished { pod, outcome: PodOutcome::Counted(None), .. } => {
                        self.failures.of(&job.namespace, pod).await
                    }
                    _ => None,
                };
                if let Some(progress) = self.progress(&job) {
                    progress.hear(&note, failure.as_deref());
                }
            }
            Heard::Evicting { job, pod, nth, of } => {
                if let Some(progress) = self.progress(&job) {
                    progress.say(Tone::Warning, &format!("evicting pod {pod} ({nth} of {of})"));
                }
            }
        }
    }

    fn see_failed(&mut self, pod: &Pod) {
        if let Some(job) = owner(pod)
            && let Some(progress) = self.progress(&job)
        {
            progress.see_failed(pod);
        }
    }

    fn see(&mut self, change: Result<watcher::Event<Job>, watcher::Error>) {
        match change {
            Ok(watcher::Event::Apply(job) | watcher::Event::InitApply(job)) => {
                if let Some(progress) = self.progress(&name_of(&job)) {
                    progress.see(&job);
                }
            }
            Ok(watcher::Event::Init | watcher::Event::InitDone | watcher::Event::Delete(_)) => {}
            Err(error) => tracing::warn!(%error, "watch Jobs"),
        }
    }

    async fn look(&mut self) {
        for (job, text) in blocked::look(self.engine.client()).await {
            if let Some(progress) = self.progress(&job) {
                progress.say_once(Tone::Warning, &text);
            }
        }
    }

    /// Gracefully, unless somebody interrupts again.
    async fn end_pods(&mut self) {
        self.screen
            .line(Tone::Warning, "interrupted: pods are being ended; interrupt again to end them at once");
        tokio::select! {
            () = self.engine.stop(self.grace_max) => {}
            () = self.signals.next() => {}
        }
        for (_, progress) in self.jobs.iter().filter(|(_, progress)| progress.end().is_none()) {
            progress.say(Tone::Warning, "interrupted before it finished");
        }
    }

    async fn print_json(&self) {
        let mut jobs = Vec::new();
        for (JobName { namespace, name }, _) in &self.jobs {
            let request =
                http::Request::get(format!("{}/{name}", Kind::Job.collection(namespace))).body(Vec::new());
            match self.engine.client().request::<Value>(request.expect("a valid path")).await {
                Ok(job) => jobs.push(job),
                Err(error) => tracing::error!(%error, "read job/{name}"),
            }
        }
        let document = match jobs.len() {
            1 => jobs.remove(0),
            _ => {
                json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": jobs})
            }
        };
        // A closed pipe is the reader's decision.
        let _ = io::stdout().lock().write_all(pretty(&document).as_bytes());
    }
}

/// As kubectl prints it.
fn pretty(document: &Value) -> String {
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    serde::Serialize::serialize(document, &mut serializer).expect("a JSON value can be written to memory");
    bytes.push(b'\n');
    String::from_utf8(bytes).expect("JSON is UTF-8")
}

/// Passes decisions on to the one who shows them.
pub struct Listener(pub mpsc::UnboundedSender<Heard>);

impl Observer for Listener {
    fn decided(&self, job: &JobKey, decision: &Decision) {
        for note in decision.because.0.iter().filter(|note| progress::is_of_interest(note)) {
            let job = JobName { namespace: job.namespace.clone(), name: job.name.clone() };
            // Closed: the command is about to end.
            let _ = self.0.send(Heard::Decided { job, note: note.clone() });
        }
    }
}
