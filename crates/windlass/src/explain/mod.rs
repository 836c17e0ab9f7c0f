//! `windlass explain`: what the policy of a Job does, before anything runs.

mod outcomes;
mod render;

use std::path::PathBuf;
use std::process::ExitCode;

use jiff::SignedDuration;
use k8s_openapi::api::batch::v1::Job;
use serde::Deserialize;
use windlass_api::Gates;
use windlass_job::analysis::Subject;
use windlass_job::analysis::timeline::{End, Script, run};
use windlass_job::backoff::Backoff;
use windlass_job::{Settings, analysis};

use crate::manifest::{self, Kind, Object, Rejected};
use crate::{EXIT_BAD_INPUT, durations};

/// A story is cut off after so many pods.
const PODS_SHOWN_MAX: usize = 100;
/// A Job of more pods at a time is explained with so many.
const PARALLELISM_MAX: u32 = 1_000;

const HINT_JOB: &str = "name one with --job";

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The manifest; `-` is standard input.
    pub file: PathBuf,
    /// Only this Job.
    pub job: Option<String>,
    /// A pod to ask about.
    pub question: Question,
    /// A sequence of outcomes.
    pub timeline: Option<String>,
    /// How long each pod of it runs.
    pub pod_takes: std::time::Duration,
    /// Delays between retries.
    pub backoff: Backoff,
    /// Which features are on.
    pub gates: Gates,
}

pub use outcomes::Question;

/// Explains the Jobs of a manifest.
pub fn main(options: &Options) -> ExitCode {
    match explain(options) {
        Ok(text) => {
            use std::io::Write;
            // A closed pipe is the reader's decision.
            let _ = std::io::stdout().lock().write_all(text.as_bytes());
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(EXIT_BAD_INPUT)
        }
    }
}

fn explain(options: &Options) -> Result<String, String> {
    let (file, text) = crate::lint::read(&options.file)?;
    let objects = manifest::read(&file, &text).map_err(|rejected: Rejected| rejected.to_string())?;
    let is_asked = |object: &&Object| {
        object.kind == Kind::Job
            && options.job.as_ref().is_none_or(|name| object.json["metadata"]["name"] == name.as_str())
    };
    let jobs: Vec<&Object> = objects.iter().filter(is_asked).collect();
    if jobs.is_empty() {
        let known: Vec<String> =
            objects.iter().filter(|it| it.kind == Kind::Job).map(Object::label).collect();
        let name = options.job.as_deref().unwrap_or_default();
        return Err(format!(
            "error: {file}: there is no Job {name:?}\nhint: {HINT_JOB}: {}",
            known.join(", ")
        ));
    }
    let mut shown = Vec::new();
    for object in jobs {
        shown.push(
            of_job(object, options).map_err(|error| format!("error: {file}: {}: {error}", object.label()))?,
        );
    }
    Ok(shown.join("\n"))
}

fn of_job(object: &Object, options: &Options) -> Result<String, String> {
    let job =
        Job::deserialize(&object.json).map_err(|error| format!("read: {error}\nhint: see windlass lint"))?;
    let draft = object.json["spec"].get("backoffPolicy").filter(|policy| !policy.is_null());
    // Whoever asks about a draft policy wants to know what it says.
    let gates = Gates { retriable_and_non_retriable_failures: true, ..options.gates };
    let subject = Subject::new(&job, draft, &gates);
    let label = object.label();
    if let Some(timeline) = &options.timeline {
        let ends = outcomes::parse(timeline, &subject)?;
        let pod_takes = durations::signed(options.pod_takes);
        let script = Script {
            ends,
            pod_takes: vec![pod_takes],
            pods_max: PODS_SHOWN_MAX,
            until: SignedDuration::MAX,
            settings: Settings { backoff: options.backoff, ..Settings::default() },
        };
        return Ok(render::timeline(&label, &subject, &run(&subject, &gates, &script), pod_takes));
    }
    match options.question.signs(&subject)? {
        Some(signs) => Ok(one(&label, subject, signs, options, &gates)),
        None => Ok(render::table(&label, &subject, &options.backoff)),
    }
}

/// What happens when the first pod fails this way while all others run.
fn one(
    label: &str,
    mut subject: Subject,
    signs: Vec<analysis::table::Sign>,
    options: &Options,
    gates: &Gates,
) -> String {
    if let Some(spec) = &mut subject.job.spec {
        spec.parallelism = spec.parallelism.map(|it| it.clamp(1, PARALLELISM_MAX.cast_signed()));
    }
    subject.facts.parallelism = subject.facts.parallelism.clamp(1, PARALLELISM_MAX);
    let at_once = subject.facts.completions.unwrap_or(u32::MAX).min(subject.facts.parallelism);
    let mut script = Script {
        ends: vec![End::Failure(signs.clone())],
        pod_takes: vec![render::FIRST_POD_TAKES, render::OTHER_PODS_TAKE],
        pods_max: at_once as usize + 1,
        until: render::UNTIL,
        settings: Settings { backoff: options.backoff, ..Settings::default() },
    };
    // What is asked for ends with the next pod; a deadline may come before it.
    let mut timeline = run(&subject, gates, &script);
    if let Some(next) = render::next_pod(&timeline) {
        script.until = next.started;
        timeline = run(&subject, gates, &script);
    }
    render::one(label, &subject, &signs, &timeline)
}
