//! What is shown while Jobs run: a bar for each on a terminal, and a line for each change worth one.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use indicatif::ProgressBar;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use windlass_api::indexes::IndexSet;
use windlass_job::policy::failure::Action;
use windlass_job::trace::{Note, PodOutcome, Trigger, Wait};
use windlass_job::verdict::Ending;
use windlass_job::{JobFacts, PodFacts};

use super::report::{self, Counts, End};
use super::screen::{Screen, Tone};
use crate::durations;

/// Shorter delays are over before a line about them is read.
const DELAY_WORTH_A_LINE: SignedDuration = SignedDuration::from_secs(1);

/// Before that nobody knows how long a Job takes.
const ETA_AFTER: Duration = Duration::from_secs(1);

/// Whether a note can change what is shown; the others need not be passed on.
pub fn is_of_interest(note: &Note) -> bool {
    match note {
        Note::PodFinished { outcome, .. } => *outcome != PodOutcome::Succeeded,
        Note::Waiting { why, .. } => matches!(why, Wait::Backoff { .. } | Wait::IndexBackoff { .. }),
        Note::Ending { .. } | Note::Removing { .. } | Note::UnknownMode | Note::WaitingForPods { .. } => true,
        Note::NotOurs { .. }
        | Note::Finished
        | Note::Claiming { .. }
        | Note::Counters { .. }
        | Note::Deleting { .. }
        | Note::Creating { .. }
        | Note::Concluded { .. } => false,
    }
}

/// How much a Job asks for.
pub fn size(facts: &JobFacts) -> String {
    let what = match facts.completions {
        None => "until one pod succeeds".to_owned(),
        Some(1) => "1 completion".to_owned(),
        Some(total) => format!("{total} completions"),
    };
    format!("{what}, {} at a time", facts.parallelism)
}

/// One Job, from its creation to its end.
pub struct Progress {
    label: String,
    screen: Screen,
    facts: JobFacts,
    bar: Option<ProgressBar>,
    since: Instant,
    total: Option<u64>,
    counts: Counts,
    retry_at: Option<Timestamp>,
    /// Failed pods and blockages that were told: a decision may be made more than once.
    told: HashSet<String>,
    tenths: u64,
    /// It was told that the last pods are waited for; their number is not told as it falls.
    is_waiting_for_pods: bool,
    last_failure: Option<String>,
    /// The last failure of each index.
    index_failures: BTreeMap<u32, String>,
    cause: Option<String>,
    end: Option<End>,
}

impl Progress {
    /// Begins to show a Job.
    pub fn new(label: String, facts: JobFacts, screen: &Screen) -> Self {
        let total = facts.completions.map(u64::from);
        let size = size(&facts);
        let bar = screen.bar(&label, total);
        let progress = Self {
            label,
            screen: screen.clone(),
            facts,
            bar,
            since: Instant::now(),
            total,
            counts: Counts::default(),
            retry_at: None,
            told: HashSet::new(),
            tenths: 0,
            is_waiting_for_pods: false,
            last_failure: None,
            index_failures: BTreeMap::new(),
            cause: None,
            end: None,
        };
        progress.say(Tone::Plain, &format!("started: {size}"));
        progress
    }

    /// How the Job ended, if it has.
    pub fn end(&self) -> Option<&End> {
        self.end.as_ref()
    }

    /// A line about the Job.
    pub fn say(&self, tone: Tone, text: &str) {
        self.screen.line(tone, &format!("{}: {text}", self.label));
    }

    /// A line about the Job that is said once.
    pub fn say_once(&mut self, tone: Tone, text: &str) {
        if self.told.insert(text.to_owned()) {
            self.say(tone, text);
        }
    }

    /// A pod has failed. Where indexes have limits of their own, the last failed pod of an index is kept, and recorded only
    /// when it is replaced: too late to tell of it. The verdict is the same then as now.
    pub fn see_failed(&mut self, pod: &Pod) {
        if self.facts.per_index.is_none() {
            return;
        }
        let seen = PodFacts::from_pod(pod, &self.facts);
        let outcome = match seen.rule.as_deref().cloned() {
            Some(rule) if rule.action == Action::Ignore => PodOutcome::Ignored(rule),
            rule => PodOutcome::Counted(rule),
        };
        let failure = report::failure_of(pod).filter(|_| outcome == PodOutcome::Counted(None));
        let note = Note::PodFinished { pod: seen.name.to_string(), index: seen.index, outcome };
        self.hear(&note, failure.as_deref());
    }

    /// Part of a decision. `failure` is what is known about the pod that it is about.
    pub fn hear(&mut self, note: &Note, failure: Option<&str>) {
        match note {
            Note::PodFinished { pod, index, outcome } => {
                if self.told.insert(pod.clone()) {
                    self.say(Tone::Plain, &with_failure(note, failure));
                    self.remember(pod, *index, outcome, failure);
                }
            }
            Note::Waiting { until, why } => self.wait(*until, *why),
            Note::Ending { ending: Ending::Failure, trigger, .. } => {
                self.cause = Some(match (trigger, &self.last_failure) {
                    (Trigger::BackoffLimit { .. }, Some(last)) => format!("{trigger}; the last: {last}"),
                    _ => trigger.to_string(),
                });
                self.say_once(Tone::Bad, &note.to_string());
            }
            Note::Ending { ending: Ending::Success, trigger: Trigger::SuccessRule { .. }, .. } => {
                self.say_once(Tone::Good, &note.to_string());
            }
            Note::Removing { .. } => self.say(Tone::Plain, &note.to_string()),
            Note::UnknownMode => self.say_once(Tone::Plain, &note.to_string()),
            Note::WaitingForPods { .. } => {
                if !std::mem::replace(&mut self.is_waiting_for_pods, true) {
                    self.say(Tone::Plain, &note.to_string());
                }
            }
            Note::Ending { .. }
            | Note::NotOurs { .. }
            | Note::Finished
            | Note::Claiming { .. }
            | Note::Counters { .. }
            | Note::Deleting { .. }
            | Note::Creating { .. }
            | Note::Concluded { .. } => {}
        }
    }

    fn remember(&mut self, pod: &str, index: Option<u32>, outcome: &PodOutcome, failure: Option<&str>) {
        let why = match outcome {
            PodOutcome::Succeeded | PodOutcome::EndedWithJob => return,
            PodOutcome::Ignored(_) => {
                self.counts.ignored += 1;
                return;
            }
            PodOutcome::Counted(Some(rule)) => format!("pod {pod}, {rule}"),
            PodOutcome::Counted(None) => {
                failure.map_or(format!("pod {pod}"), |why| format!("pod {pod}, {why}"))
            }
        };
        if let Some(index) = index {
            self.index_failures.insert(index, why.clone());
        }
        self.last_failure = Some(why);
    }

    fn wait(&mut self, until: Timestamp, why: Wait) {
        let delay = until.duration_since(Timestamp::now());
        if self.retry_at != Some(until) && delay >= DELAY_WORTH_A_LINE {
            self.say(Tone::Plain, &format!("retry in {}: {why}", seconds(delay)));
        }
        self.retry_at = Some(until);
        self.draw();
    }

    /// The Job as it is now.
    pub fn see(&mut self, job: &Job) {
        if self.end.is_some() {
            return;
        }
        self.counts.update(job);
        self.end = End::of(job);
        match self.end.clone() {
            Some(end) => self.finish(&end),
            None => self.advance(),
        }
    }

    fn finish(&self, end: &End) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let tone = if end.is_complete { Tone::Good } else { Tone::Bad };
        let causes = self.cause.iter().map(|cause| format!("because of {cause}"));
        let failed = IndexSet::parse_lenient(&self.counts.failed_indexes, i32::MAX);
        let causes =
            causes.chain(report::of_failed_indexes(&self.index_failures, &failed)).collect::<Vec<_>>();
        for line in report::lines(end, &causes, &self.counts, self.since.elapsed()) {
            self.say(tone, &line);
        }
    }

    /// Lines at each tenth of the way where there is no bar.
    fn advance(&mut self) {
        let Counts { succeeded, failed, active, .. } = self.counts;
        if let (None, Some(total @ 1..)) = (&self.bar, self.total) {
            let tenths = succeeded * 10 / total;
            if tenths > self.tenths && succeeded < total {
                self.tenths = tenths;
                self.say(
                    Tone::Plain,
                    &format!("{succeeded} of {total} succeeded, {active} active, {failed} failed"),
                );
            }
        }
        self.draw();
    }

    /// Brings the bar up to date.
    pub fn draw(&self) {
        let Some(bar) = self.bar.as_ref().filter(|_| self.end.is_none()) else { return };
        bar.set_position(self.counts.succeeded);
        bar.set_message(details(
            &self.counts,
            self.total,
            self.since.elapsed(),
            self.retry_in(Timestamp::now()),
        ));
        bar.tick();
    }

    fn retry_in(&self, now: Timestamp) -> Option<SignedDuration> {
        self.retry_at.filter(|retry_at| *retry_at > now).map(|retry_at| retry_at.duration_since(now))
    }
}

/// What stands behind the bar of a Job.
fn details(
    counts: &Counts,
    total: Option<u64>,
    elapsed: Duration,
    retry_in: Option<SignedDuration>,
) -> String {
    let Counts { succeeded, active, failed, ignored, terminating, .. } = counts;
    let mut parts = vec![format!("{active} active")];
    let counts = [(*terminating, "terminating"), (*failed, "failed"), (*ignored, "ignored")];
    parts
        .extend(counts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")));
    parts.extend(retry_in.map(|span| format!("retry in {}", seconds(span))));
    parts.extend(
        total.and_then(|total| eta(*succeeded, total, elapsed)).map(|eta| format!("about {eta} left")),
    );
    parts.join(", ")
}

/// How long the rest takes if it takes as long as what is done. Nothing is said before it means something.
fn eta(succeeded: u64, total: u64, elapsed: Duration) -> Option<String> {
    if succeeded == 0 || succeeded >= total || elapsed < ETA_AFTER {
        return None;
    }
    let left = elapsed.as_secs_f64() / succeeded as f64 * (total - succeeded) as f64;
    Some(durations::text(SignedDuration::from_secs(left.ceil() as i64)))
}

/// The note as it is, with what is known about a failure that no rule explains.
fn with_failure(note: &Note, failure: Option<&str>) -> String {
    failure.map_or(note.to_string(), |failure| format!("{note} ({failure})"))
}

fn seconds(span: SignedDuration) -> String {
    format!("{:.0}s", span.as_secs_f64().ceil())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_ten_thousand_indexes_fits_a_terminal_and_says_how_long_it_takes() {
        let counts = Counts {
            succeeded: 2_500,
            failed: 120,
            ignored: 35,
            active: 1_000,
            terminating: 3,
            completed_indexes: (0..5_000).map(|at| (2 * at).to_string()).collect::<Vec<_>>().join(","),
            ..Counts::default()
        };
        let retry = Some(SignedDuration::from_millis(39_200));
        let line = details(&counts, Some(10_000), Duration::from_secs(50), retry);
        assert_eq!(
            line,
            "1000 active, 3 terminating, 120 failed, 35 ignored, retry in 40s, about 2m30s left"
        );
    }

    #[test]
    fn nothing_is_said_that_is_not_known() {
        let counts = Counts { succeeded: 1, active: 2, ..Counts::default() };
        let line = |total, elapsed| details(&counts, total, Duration::from_millis(elapsed), None);
        assert_eq!(line(Some(3), 500), "2 active", "too soon");
        assert_eq!(line(None, 5_000), "2 active", "a work queue");
        assert_eq!(line(Some(1), 5_000), "2 active", "nothing left");
        assert_eq!(line(Some(3), 2_000), "2 active, about 4s left");
    }
}
