//! Jobs that run: shows what happens, ends pods when somebody interrupts, and finds the exit code.

use std::io;
use std::time::Duration;

use futures::StreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::Instant;
use windlass_controllers::job::{JobKey, Observer};
use windlass_job::Decision;
use windlass_job::trace::{Note, PodOutcome};

use super::engine::Engine;
use super::failures::Failures;
use super::logs::Printer;
use super::progress::{self, Progress};
use super::report::End;
use super::screen::{Screen, Tone};
use super::{EXIT_INTERRUPTED, EXIT_TIMED_OUT, Heard, JobName, Options, blocked, name_of, owner, print};
use crate::EXIT_FAILED;

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
    pub temporary: Vec<tempfile::TempDir>,
    /// Who interrupts.
    pub signals: Signals,
    /// Shows what pods print.
    pub logs: Printer,
    /// When to give up.
    pub deadline: Option<Instant>,
}

/// Why nothing more is to be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    /// All Jobs have finished.
    TheEnd,
    /// Somebody interrupted.
    Interrupt,
    /// The time is up.
    Timeout,
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
        let seen = self.follow().await;
        match seen {
            Seen::TheEnd => self.engine.stop(Duration::ZERO).await,
            Seen::Interrupt => self.end_pods("interrupted").await,
            Seen::Timeout => self.end_pods("timed out").await,
        }
        self.screen.clear();
        self.temporary.clear();
        if let Some(keep) = &self.options.keep {
            self.screen.line(Tone::Plain, &format!("logs are in {}", keep.join("logs").display()));
        }
        self.sum_up();
        let names: Vec<JobName> = self.jobs.iter().map(|(name, _)| name.clone()).collect();
        print::jobs(&self.engine, &names, self.options.output).await;
        let has_failed =
            |(_, progress): &(JobName, Progress)| progress.end().is_some_and(|end| !end.is_complete);
        match seen {
            Seen::Interrupt => EXIT_INTERRUPTED,
            Seen::Timeout => EXIT_TIMED_OUT,
            Seen::TheEnd if self.jobs.iter().any(has_failed) => EXIT_FAILED,
            Seen::TheEnd => 0,
        }
    }

    /// One line about all Jobs, where there are several.
    fn sum_up(&self) {
        if self.jobs.len() < 2 {
            return;
        }
        let count = |is: fn(Option<&End>) -> bool| self.jobs.iter().filter(|(_, it)| is(it.end())).count();
        let complete = count(|end| end.is_some_and(|end| end.is_complete));
        let failed = count(|end| end.is_some_and(|end| !end.is_complete));
        let mut text = format!("{} Jobs: {complete} Complete, {failed} Failed", self.jobs.len());
        let unfinished = self.jobs.len() - complete - failed;
        if unfinished > 0 {
            text.push_str(&format!(", {unfinished} not finished"));
        }
        self.screen.line(if complete == self.jobs.len() { Tone::Good } else { Tone::Bad }, &text);
    }

    /// Shows what happens.
    async fn follow(&mut self) -> Seen {
        let jobs = Api::<Job>::all(self.engine.client().clone());
        let mut changes = std::pin::pin!(watcher(jobs, watcher::Config::default()).default_backoff());
        let mut draw = tokio::time::interval(DRAW_EVERY);
        let mut look = tokio::time::interval(LOOK_EVERY);
        look.reset();
        while self.jobs.iter().any(|(_, progress)| progress.end().is_none()) {
            tokio::select! {
                // What was decided is told before what came of it.
                biased;
                () = self.signals.next() => return Seen::Interrupt,
                () = sleep_until(self.deadline) => return Seen::Timeout,
                pod = self.failures.next() => self.see_failed(&pod),
                pod = self.logs.next_success() => self.show_logs(&pod),
                Some(heard) = self.heard.recv() => self.hear(heard).await,
                Some(change) = changes.next() => self.see(change),
                _ = look.tick() => self.look().await,
                _ = draw.tick(), if self.screen.has_bars() => {
                    self.jobs.iter().for_each(|(_, progress)| progress.draw());
                }
            }
        }
        // Pods that ended with the last of the Jobs.
        for pod in self.logs.rest().await {
            self.show_logs(&pod);
        }
        Seen::TheEnd
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
        self.show_logs(pod);
    }

    fn show_logs(&mut self, pod: &Pod) {
        for line in self.logs.lines(pod) {
            self.screen.line(Tone::Plain, &line);
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
    async fn end_pods(&mut self, why: &str) {
        let again = if why == "interrupted" { "interrupt again" } else { "interrupt" };
        self.screen.line(Tone::Warning, &format!("{why}: pods are being ended; {again} to end them at once"));
        tokio::select! {
            () = self.engine.stop(self.grace_max) => {}
            () = self.signals.next() => {}
        }
        for (_, progress) in self.jobs.iter().filter(|(_, progress)| progress.end().is_none()) {
            progress.say(Tone::Warning, &format!("{why} before it finished"));
        }
    }
}

async fn sleep_until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
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
