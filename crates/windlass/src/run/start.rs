//! Everything up to the first pod: reads and checks the manifest, creates its objects, and starts the parts.

use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use serde::Deserialize;
use tempfile::TempDir;
use tokio::sync::mpsc;
use windlass_api::Gates;
use windlass_job::backoff::Backoff;
use windlass_job::{JobFacts, Settings};
use windlass_node::{Capacity, memory};

use super::engine::Engine;
use super::failures::Failures;
use super::logs::Printer;
use super::progress::Progress;
use super::screen::{Screen, Tone};
use super::session::{Listener, Session, Signals};
use super::{JobName, Options, disrupt, name_of, preflight, print, progress};
use crate::manifest::{self, Kind, Object, Rejected};
use crate::parts::{Node, Setup};
use crate::with_sources;
use crate::{durations, images};

/// The name of a node that is the only one.
const NODE: &str = "this-machine";
/// More pods than a machine has processes: `parallelism` is to be the limit, not the node.
const PODS_MAX: u32 = 1_000_000;
/// A status that only counts pods is written for people, who see ten in a second: here a write takes less than a
/// millisecond, and one for every pod would be a fifth of what a pod costs.
const STATUS_SPACING_FACTOR: i32 = 200;
const STATUS_SPACING_MAX: SignedDuration = SignedDuration::from_millis(100);
/// Kubernetes' own grace period of a pod that names none.
const GRACE_DEFAULT: u64 = 30;

const HINT_INVALID: &str = "the rules are those of Kubernetes v1.36; correct the fields above and run again";
const HINT_FILE: &str = "name a manifest, or - to read it from standard input";

/// Why nothing was run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The manifest can't be run.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// The delays contradict each other.
    #[error(
        "error: --backoff-max {max:?} is shorter than --backoff-base {base:?}\nhint: give a longer --backoff-max"
    )]
    Backoff { base: Duration, max: Duration },
    /// There is no place for logs.
    #[error("error: create directory {path} for logs: {source}\nhint: give a directory that can be written to", path = .path.display())]
    Directory { path: PathBuf, source: io::Error },
    /// A part did not start.
    #[error("error: {0}\nhint: run with WINDLASS_LOG=debug to see more")]
    Start(String),
}

/// Where images stay from one run to the next; where there is no home, with the other files of this run.
fn image_directory(data_dir: &Path) -> PathBuf {
    crate::server::default_data_dir()
        .map_or_else(|| data_dir.join("images"), |share| share.join("run-images"))
}

/// Everything up to the start of the first pod; `None` when nothing is to be run.
pub async fn start<'a>(options: &'a Options, screen: &Screen) -> Result<Option<Session<'a>>, Error> {
    let (base, max) = (options.backoff_base, options.backoff_max);
    if max < base {
        return Err(Error::Backoff { base, max });
    }
    let (file, text) = read(&options.file)?;
    let mut objects = manifest::read(&file, &text)?;
    if let Some(parallelism) = options.parallelism {
        for job in objects.iter_mut().filter(|object| object.kind == Kind::Job) {
            job.json["spec"]["parallelism"] = parallelism.into();
        }
    }
    let pulling = match (options.runs_any_image_on_host, images::found()) {
        (true, _) => preflight::Images::OnHost,
        (false, Some(_)) => preflight::Images::Pulled,
        (false, None) => preflight::Images::None,
    };
    preflight::check(&file, &objects, pulling)?;
    let mut engine = Engine::new(options.gates);
    let jobs = create(&engine, screen, &file, &objects, options.gates).await?;
    if options.is_dry {
        for (name, facts) in &jobs {
            let label = manifest::label(Kind::Job.name(), &name.namespace, &name.name);
            screen.line(Tone::Plain, &format!("{label}: fine: {}; not run", progress::size(facts)));
        }
        let names: Vec<JobName> = jobs.into_iter().map(|(name, _)| name).collect();
        print::jobs(&engine, &names, options.output).await;
        return Ok(None);
    }

    let signals = Signals::catch().map_err(|error| Error::Start(with_sources(&error)))?;
    let (data_dir, temporary) = directory(options.keep.as_deref())?;
    let logs =
        Printer::new(options.logs, engine.client().clone(), node_directories(options.nodes, &data_dir));
    let (hear, heard) = mpsc::unbounded_channel();
    let backoff = Backoff { base: durations::signed(base), max: durations::signed(max) };
    let jobs = jobs
        .into_iter()
        .map(|(name, facts)| {
            let label = manifest::label(Kind::Job.name(), &name.namespace, &name.name);
            (name, Progress::new(label, facts, screen))
        })
        .collect();
    let oci = match pulling == preflight::Images::Pulled && preflight::has_images(&objects) {
        true => images::runtime(&options.images, &image_directory(&data_dir)).map_err(Error::Start)?,
        false => None,
    };
    let in_memory = oci.as_ref().and_then(|_| temporary_name().tempdir_in(memory::directory()?).ok());
    let setup = Setup {
        gates: options.gates,
        settings: Settings {
            backoff,
            status_spacing_factor: STATUS_SPACING_FACTOR,
            status_spacing_max: STATUS_SPACING_MAX,
            first_count_max: STATUS_SPACING_MAX,
            ..Settings::default()
        },
        observer: Some(Arc::new(Listener(hear.clone()))),
        nodes: nodes(options.nodes, &data_dir, in_memory.as_ref().map(TempDir::path)),
        runs_any_image_on_host: options.runs_any_image_on_host,
        isolation: options.isolation,
        oci,
        eviction: None,
        // Whoever runs one Job wants all that it prints.
        log_limits: None,
        keeps_logs: options.keep.is_some(),
        // Who keeps logs finds one for every pod, also where nothing was printed.
        is_of_one_run: options.keep.is_none(),
        root_ca: None,
        // The Job is shown when it ended, also one whose own time is up.
        keeps_house: false,
    };
    let failures = Failures::new(engine.client().clone());
    engine.start(setup).await.map_err(|error| Error::Start(with_sources(&error)))?;
    if options.disrupt > 0 {
        let gives_reason = options.gates.retriable_and_non_retriable_failures;
        tokio::spawn(disrupt::disrupt(engine.client().clone(), options.disrupt, gives_reason, hear));
    }
    let grace_max = objects.iter().map(grace).max().unwrap_or_default();
    let screen = screen.clone();
    let deadline = options.timeout.map(|timeout| tokio::time::Instant::now() + timeout);
    let session = Session {
        options,
        screen,
        engine,
        jobs,
        heard,
        failures,
        grace_max,
        temporary: [temporary, in_memory].into_iter().flatten().collect(),
        signals,
        logs,
        deadline,
    };
    Ok(Some(session))
}

/// Shares of this machine; one that is alone keeps its files right in the directory.
fn nodes(count: u32, data_dir: &Path, in_memory: Option<&Path>) -> Vec<Node> {
    let directories = node_directories(count, data_dir).into_iter().zip(1_u32..);
    directories
        .map(|(directory, number)| Node {
            name: if count == 1 { NODE.to_owned() } else { format!("node-{number}") },
            directory,
            run_directory: in_memory.map(|place| place.join(number.to_string())),
            capacity: Capacity { pods: PODS_MAX, ..Capacity::of_this_machine(data_dir) },
        })
        .collect()
}

fn node_directories(count: u32, data_dir: &Path) -> Vec<PathBuf> {
    if count == 1 {
        return vec![data_dir.to_owned()];
    }
    (1..=count).map(|number| data_dir.join(format!("node-{number}"))).collect()
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

fn temporary_name() -> tempfile::Builder<'static, 'static> {
    let mut name = tempfile::Builder::new();
    name.prefix("windlass-");
    name
}

/// Where the node keeps its files: what the user wants to keep, or a directory that goes away.
fn directory(keep: Option<&Path>) -> Result<(PathBuf, Option<TempDir>), Error> {
    let Some(keep) = keep else {
        let made = temporary_name().tempdir();
        let made = made.map_err(|source| Error::Directory { path: std::env::temp_dir(), source })?;
        return Ok((made.path().to_owned(), Some(made)));
    };
    std::fs::create_dir_all(keep).map_err(|source| Error::Directory { path: keep.to_owned(), source })?;
    let absolute =
        std::path::absolute(keep).map_err(|source| Error::Directory { path: keep.to_owned(), source })?;
    Ok((absolute, None))
}
