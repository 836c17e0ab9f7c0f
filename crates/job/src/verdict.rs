//! The ordered list of ways in which a Job ends. The first that holds wins; what was written down before wins for ever.

use jiff::Timestamp;
use windlass_api::names::{condition, reason};

use crate::backoff::later;
use crate::job_facts::{Condition, JobFacts};
use crate::observation::Observation;
use crate::policy::success;
use crate::tally::Tally;
use crate::trace::Trigger;

/// Success or failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The Job will be Complete.
    Success,
    /// The Job will be Failed.
    Failure,
}

/// Why a Job ends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finish {
    pub ending: Ending,
    pub reason: String,
    pub message: String,
    /// Since when the status says so; `None` while only we know.
    pub written_at: Option<Timestamp>,
    /// What made it end; only for a new verdict.
    pub trigger: Option<Trigger>,
}

impl Finish {
    pub fn is_written(&self) -> bool {
        self.written_at.is_some()
    }

    /// The condition that announces the end.
    pub fn interim_type(&self) -> &'static str {
        match self.ending {
            Ending::Success => condition::SUCCESS_CRITERIA_MET,
            Ending::Failure => condition::FAILURE_TARGET,
        }
    }

    /// The condition that is the end.
    pub fn terminal_type(&self) -> &'static str {
        match self.ending {
            Ending::Success => condition::COMPLETE,
            Ending::Failure => condition::FAILED,
        }
    }
}

/// Whether and why the Job ends.
pub(crate) fn of(seen: &Observation<'_>, tally: &Tally<'_>) -> Option<Finish> {
    written(seen.job)
        .or_else(|| failure_policy(seen))
        .or_else(|| backoff_limit(seen, tally))
        .or_else(|| deadline(seen, tally))
        .or_else(|| failed_indexes(seen.job, tally))
        .or_else(|| success_policy(seen.job, tally))
        .or_else(|| completions(seen.job, tally))
}

/// When the deadline passes, if there is one and the Job runs.
pub(crate) fn deadline_at(seen: &Observation<'_>, tally: &Tally<'_>) -> Option<Timestamp> {
    let deadline = seen.job.active_deadline.filter(|_| !seen.job.is_suspended)?;
    Some(later(tally.start_time?, deadline))
}

fn written(job: &JobFacts) -> Option<Finish> {
    let finish = |ending, condition: &Condition| Finish {
        ending,
        reason: condition.reason.clone().unwrap_or_default(),
        message: condition.message.clone().unwrap_or_default(),
        written_at: Some(condition.last_transition.unwrap_or(Timestamp::UNIX_EPOCH)),
        trigger: None,
    };
    let success = job.status.true_condition(condition::SUCCESS_CRITERIA_MET);
    let failure = job.status.true_condition(condition::FAILURE_TARGET);
    success.map(|c| finish(Ending::Success, c)).or_else(|| failure.map(|c| finish(Ending::Failure, c)))
}

fn failure_policy(seen: &Observation<'_>) -> Option<Finish> {
    let pod = seen.pods.condemning()?;
    let rule = pod.rule.as_ref()?;
    let message = rule.message(&seen.job.namespace, &pod.name);
    let trigger = Trigger::Rule { pod: pod.name.to_string(), matched: (**rule).clone() };
    Some(failure(reason::POD_FAILURE_POLICY, &message, trigger))
}

fn backoff_limit(seen: &Observation<'_>, tally: &Tally<'_>) -> Option<Finish> {
    let limit = seen.job.backoff_limit;
    let restarts = tally.totals.restarts;
    let too_many_restarts =
        seen.job.restarts_in_place && if limit == 0 { restarts > 0 } else { restarts >= u64::from(limit) };
    (tally.failed > limit || too_many_restarts).then(|| {
        let trigger = Trigger::BackoffLimit { failed: tally.failed, restarts, limit };
        failure(reason::BACKOFF_LIMIT_EXCEEDED, "Job has reached the specified backoff limit", trigger)
    })
}

fn deadline(seen: &Observation<'_>, tally: &Tally<'_>) -> Option<Finish> {
    let at = deadline_at(seen, tally)?;
    (seen.now >= at).then(|| {
        failure(
            reason::DEADLINE_EXCEEDED,
            "Job was active longer than specified deadline",
            Trigger::Deadline { at },
        )
    })
}

fn failed_indexes(job: &JobFacts, tally: &Tally<'_>) -> Option<Finish> {
    let failed = tally.failed_indexes.as_ref()?.len();
    let max = job.per_index?.max_failed_indexes;
    let trigger = Trigger::FailedIndexes { failed, max };
    if max.is_some_and(|max| failed > u64::from(max)) {
        let message = "Job has exceeded the specified maximal number of failed indexes";
        return Some(failure(reason::MAX_FAILED_INDEXES_EXCEEDED, message, trigger));
    }
    let all_done = failed + tally.completed.len() >= u64::from(job.completions.unwrap_or(0));
    (failed > 0 && all_done).then(|| failure(reason::FAILED_INDEXES, "Job has failed indexes", trigger))
}

fn success_policy(job: &JobFacts, tally: &Tally<'_>) -> Option<Finish> {
    let rule = success::first_met(&job.success_rules, &tally.completed).filter(|_| job.is_indexed())?;
    let message = format!("Matched rules at index {rule}");
    Some(success(reason::SUCCESS_POLICY, &message, Trigger::SuccessRule { rule }))
}

fn completions(job: &JobFacts, tally: &Tally<'_>) -> Option<Finish> {
    tally.is_complete(job).then(|| {
        let trigger = Trigger::Completions { succeeded: tally.succeeded };
        success(reason::COMPLETIONS_REACHED, "Reached expected number of succeeded pods", trigger)
    })
}

fn failure(reason: &str, message: &str, trigger: Trigger) -> Finish {
    finish(Ending::Failure, reason, message, trigger)
}

fn success(reason: &str, message: &str, trigger: Trigger) -> Finish {
    finish(Ending::Success, reason, message, trigger)
}

fn finish(ending: Ending, reason: &str, message: &str, trigger: Trigger) -> Finish {
    Finish {
        ending,
        reason: reason.to_owned(),
        message: message.to_owned(),
        written_at: None,
        trigger: Some(trigger),
    }
}
