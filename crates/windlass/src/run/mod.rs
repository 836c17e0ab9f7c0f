//! `windlass run`: the Jobs of a manifest, from the file to the exit code.
//!
//! ```text
//!   start:    manifest ─► preflight ─► engine.create ─► engine.start ─┐
//!                                                                     │ decisions, Jobs, evictions (Heard)
//!   session:  exit code ◄── print ◄── engine.stop ◄─ Session::follow ◄┘
//! ```
//!
//! All objects are created before anybody acts on them: a manifest with a mistake runs nothing.

mod blocked;
mod disrupt;
pub mod engine;
mod failures;
mod logs;
mod preflight;
mod print;
mod progress;
mod report;
mod screen;
mod session;
mod start;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use windlass_api::{Gates, names};
use windlass_job::trace::Note;
use windlass_node::isolation::Wanted;

use crate::{EXIT_BAD_INPUT, EXIT_FAILED, images, log_to, with_half_the_threads};
use screen::{Screen, Tone};
use start::Error;

/// Somebody interrupted; what a shell reports of a program that dies of SIGINT.
const EXIT_INTERRUPTED: u8 = 130;

/// It took longer than it may.
const EXIT_TIMED_OUT: u8 = 3;

/// How to print the final Jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// As kubectl does.
    Json,
    /// As manifests are written.
    Yaml,
}

/// Whose output to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Logs {
    /// Nobody's.
    None,
    /// That of pods that have failed.
    Failed,
    /// That of all pods.
    All,
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// The manifest; `-` is standard input.
    pub file: PathBuf,
    /// Print the final Jobs.
    pub output: Option<Output>,
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
    /// How far containers of the host runtime are kept apart from this machine.
    pub isolation: Wanted,
    /// Where images come from.
    pub images: images::Options,
    /// Where to keep logs.
    pub keep: Option<PathBuf>,
    /// Whose output to show.
    pub logs: Logs,
    /// How many pods of each Job may run at a time.
    pub parallelism: Option<u32>,
    /// Give up after this time.
    pub timeout: Option<Duration>,
    /// How many nodes there are.
    pub nodes: u32,
    /// Run nothing.
    pub is_dry: bool,
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

/// Runs the Jobs of a manifest.
pub fn main(options: Options) -> ExitCode {
    with_half_the_threads(run(&options))
}

async fn run(options: &Options) -> ExitCode {
    let screen = Screen::new();
    log_to(screen.clone(), "warn");
    match start::start(options, &screen).await {
        Ok(Some(session)) => ExitCode::from(session.run().await),
        // Nothing was to be run.
        Ok(None) => ExitCode::SUCCESS,
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
