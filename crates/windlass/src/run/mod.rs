//! `windlass run`: the Jobs of a manifest, from the file to the exit code.
//!
//! ```text
//!   manifest ─► preflight ─► engine.create ─► engine.start ─┐
//!                                                           │ decisions, Jobs, evictions (Heard)
//!   exit code ◄─ -o json ◄─ engine.stop ◄─ Session::follow ◄┘
//! ```
//!
//! All objects are created before anybody acts on them: a manifest with a mistake runs nothing.

mod blocked;
mod disrupt;
mod engine;
mod failures;
mod preflight;
mod progress;
mod report;
mod screen;

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use windlass_api::{Gates, names};
use windlass_controllers::job::{JobKey, Observer};
use windlass_job::backoff::Backoff;
use windlass_job::trace::{Note, PodOutcome};
use windlass_job::{Decision, JobFacts, Settings};

use crate::manifest::{self, Kind, Object, Rejected};
use engine::{Engine, Setup};
use failures::Failures;
use progress::Progress;
use screen::{Screen, Tone};

/// A Job has failed.
const EXIT_FAILED: u8 = 1;
/// The manifest or the command line is wrong.
const EXIT_BAD_INPUT: u8 = 2;
/// Somebody interrupted; what a shell reports of a program that dies of SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

/// How often a countdown is drawn, where there are bars.
const DRAW_EVERY: Duration = Duration::from_millis(500);
/// How often to look for pods that can't start.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Kubernetes' own grace period of a pod that names none.
const GRACE_DEFAULT: u64 = 30;

const HINT_INVALID: &str = "the rules are those of Kubernetes v1.36; correct the fields above and run again";
const HINT_FILE: &str = "name a manifest, or - to read it from standard input";

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The manifest; `-` is standard input.
    pub file: PathBuf,
    /// Print the final Jobs.
    pub prints_json: bool,
    /// Delay before a failed pod is replaced.
    pub backoff_base: Duration,
    /// The longest such delay.
    pub backoff_max: Duration,
    /// Which features are on.
    pub gates: Gates,
    /// How many pods to evict.
    pub disrupt: u32,
    /// Run the command of any image on this machine.
    pub runs_any_image_on_host: bool,
    /// Where to keep logs.
    pub keep: Option<PathBuf>,
}

/// A Job, as a user names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobName {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
}

/// What comes from the parts while they run.
#[derive(Debug)]
pub enum Heard {
    /// The Job controller has decided, and this was part of why.
    Decided { job: JobName, note: Note },
    /// A pod is evicted.
    Evicting { job: JobName, pod: String, nth: u32, of: u32 },
}

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Rejected(#[from] Rejected),
    #[error(
        "error: --backoff-max {max:?} is shorter than --backoff-base {base:?}\nhint: give a longer --backoff-max"
    )]
    Backoff { base: Duration, max: Duration },
    #[error("error: create directory {path} for logs: {source}\nhint: give a directory that can be written to", path = .path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("error: {0}\nhint: run with WINDLASS_LOG=debug to see more")]
    Start(String),
}

/// Runs the Jobs of a manifest.
pub fn main(options: Options) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!(
                "error: start threads: {error}\nhint: this machine is short of something; look at `ulimit -a`"
            );
            return ExitCode::from(EXIT_FAILED);
        }
    };
    let code = runtime.block_on(run(&options));
    // After a second SIGINT there may be tasks that do not end soon.
    runtime.shutdown_background();
    code
}

async fn run(options: &Options) -> ExitCode {
    let screen = Screen::new();
    log_to(&screen);
    match Session::begin(options, &screen).await {
        Ok(session) => ExitCode::from(session.run().await),
        Err(error @ (Error::Rejected(_) | Error::Backoff { .. } | Error::Directory { .. })) => {
            screen.line(Tone::Plain, &error.to_string());
            ExitCode::from(EXIT_BAD_INPUT)
        }
        Err(error @ Error::Start(_)) => {
            screen.line(Tone::Plain, &error.to_string());
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// `WINDLASS_LOG` is a filter such as `debug` or `windlass_node=trace`.
fn log_to(screen: &Screen) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WINDLASS_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("warn"));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(screen.clone()).init();
}

/// A manifest that is being run.
struct Session<'a> {
    options: &'a Options,
    screen: Screen,
    engine: Engine,
    jobs: Vec<(JobName, Progress)>,
    heard: mpsc::UnboundedReceiver<Heard>,
    failures: Failures,
    grace_max: Duration,
    /// Removed at the end.
    _temporary: Option<tempfile::TempDir>,
    signals: Signals,
}

struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

impl<'a> Session<'a> {
    /// Everything up to the start of the first pod.
    async fn begin(options: &'a Options, screen: &Screen) -> Result<Self, Error> {
        let (base, max) = (options.backoff_base, options.backoff_max);
        if max < base {
            return Err(Error::Backoff { base, max });
        }
        let (file, text) = read(&options.file)?;
        let objects = manifest::read(&file, &text)?;
        preflight::check(&file, &objects, options.runs_any_image_on_host)?;
        let mut engine = Engine::new(options.gates);
        let jobs = create(&engine, screen, &file, &objects, options.gates).await?;

        let start = |error: &dyn std::fmt::Display| Error::Start(error.to_string());
        let signals = Signals {
            interrupt: signal(SignalKind::interrupt()).map_err(|error| start(&error))?,
            terminate: signal(SignalKind::terminate()).map_err(|error| start(&error))?,
        };
        let (data_dir, temporary) = directory(options.keep.as_deref())?;
        let (hear, heard) = mpsc::unbounded_channel();
        let backoff = Backoff { base: signed(base), max: signed(max) };
        let jobs = jobs
            .into_iter()
            .map(|(name, facts)| {
                let label = manifest::label(Kind::Job.name(), &name.namespace, &name.name);
                (name, Progress::new(label, facts, screen))
            })
            .collect();
        let setup = Setup {
            gates: options.gates,
            settings: Settings { backoff, ..Settings::default() },
            observer: Arc::new(Listener(hear.clone())),
            data_dir,
            runs_any_image_on_host: options.runs_any_image_on_host,
        };
        let failures = Failures::new(engine.client().clone());
        engine.start(setup).await.map_err(|error| Error::Start(with_sources(&error)))?;
        if options.disrupt > 0 {
            let gives_reason = options.gates.retriable_and_non_retriable_failures;
            tokio::spawn(disrupt::disrupt(engine.client().clone(), options.disrupt, gives_reason, hear));
        }
        let grace_max = objects.iter().map(grace).max().unwrap_or_default();
        let screen = screen.clone();
        Ok(Self { options, screen, engine, jobs, heard, failures, grace_max, _temporary: temporary, signals })
    }

    /// Until all Jobs have finished, or somebody interrupts. Returns the exit code.
    async fn run(mut self) -> u8 {
        let is_interrupted = !self.follow().await;
        if is_interrupted {
            self.end_pods().await;
        } else {
            self.engine.stop(Duration::ZERO).await;
        }
        self.screen.clear();
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

/// Creates all objects. Every one that the API server refuses is told of.
async fn create(
    engine: &Engine,
    screen: &Screen,
    file: &str,
    objects: &[Object],
    gates: Gates,
) -> Result<Vec<(JobName, JobFacts)>, Error> {
    let (mut jobs, mut problems) = (Vec::new(), Vec::new());
    for object in objects {
        match engine.create(object).await {
            Ok(created) => {
                for warning in warnings(object, created.warnings, gates) {
                    screen.line(Tone::Warning, &format!("warning: {}: {warning}", object.label()));
                }
                if object.kind == Kind::Job {
                    let job = Job::deserialize(&created.json)
                        .map_err(|error| Error::Start(format!("read back {}: {error}", object.label())))?;
                    let draft = created.json["spec"].get("backoffPolicy");
                    jobs.push((name_of(&job), JobFacts::from_job(&job, draft, &gates)));
                }
            }
            Err(refused) if refused.causes.is_empty() => problems.push(object.problem("", refused.message)),
            Err(refused) => problems.extend(
                refused
                    .causes
                    .iter()
                    .map(|(field, message)| object.problem(field, format!("{field}: {message}"))),
            ),
        }
    }
    if problems.is_empty() {
        return Ok(jobs);
    }
    Err(Rejected { file: file.to_owned(), problems, hint: HINT_INVALID.to_owned() }.into())
}

fn warnings(object: &Object, mut warnings: Vec<String>, gates: Gates) -> Vec<String> {
    let has_draft = object.kind == Kind::Job && !object.json["spec"]["backoffPolicy"].is_null();
    if has_draft && !gates.retriable_and_non_retriable_failures {
        warnings.push(
            "spec.backoffPolicy is ignored: switch it on with --feature-gates RetriableAndNonRetriableFailures=true"
                .to_owned(),
        );
    }
    warnings
}

fn name_of(job: &Job) -> JobName {
    let meta = &job.metadata;
    JobName {
        namespace: meta.namespace.clone().unwrap_or_default(),
        name: meta.name.clone().unwrap_or_default(),
    }
}

/// The Job of a pod.
fn owner(pod: &Pod) -> Option<JobName> {
    let name = pod.metadata.labels.as_ref()?.get(names::JOB_NAME_LABEL)?.clone();
    Some(JobName { namespace: pod.metadata.namespace.clone()?, name })
}

/// The grace period of a Job's pods.
fn grace(object: &Object) -> Duration {
    let seconds = object.json["spec"]["template"]["spec"]["terminationGracePeriodSeconds"].as_u64();
    Duration::from_secs(seconds.unwrap_or(GRACE_DEFAULT))
}

/// The name to put in messages, and the text.
fn read(file: &Path) -> Result<(String, String), Rejected> {
    if file == Path::new("-") {
        let mut text = String::new();
        let name = "<stdin>";
        return match io::stdin().lock().read_to_string(&mut text) {
            Ok(_) => Ok((name.to_owned(), text)),
            Err(error) => Err(Rejected::whole(name, format!("read: {error}"), HINT_FILE)),
        };
    }
    let name = file.display().to_string();
    match std::fs::read_to_string(file) {
        Ok(text) => Ok((name, text)),
        Err(error) => Err(Rejected::whole(&name, format!("read: {error}"), HINT_FILE)),
    }
}

/// Where the node keeps its files: what the user wants to keep, or a directory that goes away.
fn directory(keep: Option<&Path>) -> Result<(PathBuf, Option<tempfile::TempDir>), Error> {
    let Some(keep) = keep else {
        let made = tempfile::Builder::new().prefix("windlass-").tempdir();
        let made = made.map_err(|source| Error::Directory { path: std::env::temp_dir(), source })?;
        return Ok((made.path().to_owned(), Some(made)));
    };
    std::fs::create_dir_all(keep).map_err(|source| Error::Directory { path: keep.to_owned(), source })?;
    let absolute =
        std::path::absolute(keep).map_err(|source| Error::Directory { path: keep.to_owned(), source })?;
    Ok((absolute, None))
}

fn signed(duration: Duration) -> SignedDuration {
    SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX)
}

fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
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
struct Listener(mpsc::UnboundedSender<Heard>);

impl Observer for Listener {
    fn decided(&self, job: &JobKey, decision: &Decision) {
        for note in decision.because.0.iter().filter(|note| progress::is_of_interest(note)) {
            let job = JobName { namespace: job.namespace.clone(), name: job.name.clone() };
            // Closed: the command is about to end.
            let _ = self.0.send(Heard::Decided { job, note: note.clone() });
        }
    }
}
