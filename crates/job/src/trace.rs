//! Why a decision is as it is: data first, and one place that renders it as text.

use std::fmt;

use jiff::Timestamp;

use crate::decision::{CreationReason, Kind, RemovalReason};
use crate::policy::failure::{Evidence, RuleMatch};
use crate::verdict::Ending;

/// What a decision took into account, in the order in which it did.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Trace(pub Vec<Note>);

/// One thing that a decision took into account.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// Another controller manages the Job.
    NotOurs {
        /// Its name; empty when only opted-in Jobs are ours and this one has none.
        managed_by: String,
    },
    /// The Job is finished.
    Finished,
    /// The completion mode is unknown.
    UnknownMode,
    /// Ownership of pods is settled first.
    Claiming {
        /// Orphans taken in.
        adopted: usize,
        /// Strays let go.
        released: usize,
    },
    /// A pod has finished, and this is what it means.
    PodFinished {
        /// Its name.
        pod: String,
        /// Its index.
        index: Option<u32>,
        /// What it means.
        outcome: PodOutcome,
    },
    /// The counters change.
    Counters {
        /// Before and after.
        succeeded: (u32, u32),
        /// Before and after.
        failed: (u32, u32),
        /// How many failures the Job may have.
        backoff_limit: u32,
    },
    /// The Job is about to end.
    Ending {
        /// How.
        ending: Ending,
        /// Reason of the condition.
        reason: String,
        /// Message of the condition.
        message: String,
        /// What made it end.
        trigger: Trigger,
    },
    /// All active pods are deleted because the Job ends.
    Deleting {
        /// How many.
        count: usize,
    },
    /// Pods are ended without being counted.
    Removing {
        /// How many.
        count: usize,
        /// Why.
        why: RemovalReason,
    },
    /// Pods are made.
    Creating {
        /// How many now.
        count: usize,
        /// How many are missing.
        wanted: usize,
        /// Why.
        reason: CreationReason,
    },
    /// Time has to pass.
    Waiting {
        /// Until then.
        until: Timestamp,
        /// Why.
        why: Wait,
    },
    /// The Job ends when its last pods have stopped.
    WaitingForPods {
        /// How many have not.
        terminating: u32,
    },
    /// The Job ends now.
    Concluded {
        /// How.
        ending: Ending,
        /// Succeeded and failed.
        counters: (u32, u32),
    },
}

/// What a finished pod means.
#[derive(Clone, Debug, PartialEq)]
pub enum PodOutcome {
    /// It counts as a success.
    Succeeded,
    /// It counts as a failure, by this rule or by none.
    Counted(Option<RuleMatch>),
    /// It does not count.
    Ignored(RuleMatch),
    /// It had not stopped when the Job failed, and counts as a failure.
    EndedWithJob,
}

/// What made a Job end.
#[derive(Clone, Debug, PartialEq)]
pub enum Trigger {
    /// A rule of the failure policy.
    Rule {
        /// The pod that it matched.
        pod: String,
        /// The rule.
        matched: RuleMatch,
    },
    /// Too many failures, or restarts in place.
    BackoffLimit {
        /// Failures that count.
        failed: u32,
        /// Restarts in place.
        restarts: u64,
        /// How many may be.
        limit: u32,
    },
    /// It ran too long.
    Deadline {
        /// The deadline.
        at: Timestamp,
    },
    /// Indexes have failed.
    FailedIndexes {
        /// How many.
        failed: u64,
        /// How many may have.
        max: Option<u32>,
    },
    /// A rule of the success policy.
    SuccessRule {
        /// Which rule.
        rule: usize,
    },
    /// All completions were reached.
    Completions {
        /// How many there are.
        succeeded: u32,
    },
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The back-off of the Job.
    Backoff {
        /// Failures in a row.
        failures: u32,
        /// When the last one finished.
        last: Timestamp,
    },
    /// The back-off of an index, the soonest of those that wait.
    IndexBackoff {
        /// Which index.
        index: u32,
        /// Its failures.
        failures: u32,
    },
    /// The Job's deadline.
    Deadline,
    /// A kind of write failed a moment ago.
    Api(Kind),
    /// Only gauges changed, and they were written a moment ago.
    Gauges,
}

impl fmt::Display for Trace {
    /// One line a note.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().enumerate().try_for_each(|(at, note)| {
            if at > 0 {
                f.write_str("\n")?;
            }
            note.fmt(f)
        })
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotOurs { managed_by } if managed_by.is_empty() => {
                f.write_str("the Job does not ask for us")
            }
            Self::NotOurs { managed_by } => write!(f, "the Job is managed by {managed_by}"),
            Self::Finished => f.write_str("the Job is finished"),
            Self::UnknownMode => f.write_str("the completion mode is unknown"),
            Self::Claiming { adopted, released } => write!(f, "adopt {adopted}, let go of {released} pods"),
            Self::PodFinished { pod, index: Some(index), outcome } => {
                write!(f, "pod {pod} (index {index}) {outcome}")
            }
            Self::PodFinished { pod, index: None, outcome } => write!(f, "pod {pod} {outcome}"),
            Self::Counters { succeeded, failed, backoff_limit } => write!(
                f,
                "succeeded {} → {}, failed {} → {} (limit {backoff_limit})",
                succeeded.0, succeeded.1, failed.0, failed.1
            ),
            Self::Ending { ending, reason, trigger, .. } => {
                write!(f, "the Job {} ({reason}): {trigger}", verb(*ending))
            }
            Self::Deleting { count } => write!(f, "end {count} active pods, the Job is over"),
            Self::Removing { count, why } => write!(f, "end {count} pods without counting them: {why}"),
            Self::Creating { count, wanted, reason } => {
                write!(f, "create {count} of {wanted} pods ({reason})")
            }
            Self::Waiting { until, why } => write!(f, "wait until {until}: {why}"),
            Self::WaitingForPods { terminating } => write!(f, "wait for {terminating} pods to stop"),
            Self::Concluded { ending, counters: (succeeded, failed) } => {
                write!(f, "the Job {}: {succeeded} succeeded, {failed} failed", verb(*ending))
            }
        }
    }
}

fn verb(ending: Ending) -> &'static str {
    match ending {
        Ending::Success => "succeeds",
        Ending::Failure => "fails",
    }
}

impl fmt::Display for PodOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Succeeded => f.write_str("succeeded"),
            Self::Counted(None) => f.write_str("failed, no rule matches: counted"),
            Self::Counted(Some(rule)) => write!(f, "failed, {rule}: counted"),
            Self::Ignored(rule) => write!(f, "failed, {rule}: not counted"),
            Self::EndedWithJob => f.write_str("had not stopped when the Job failed: counted as failed"),
        }
    }
}

impl fmt::Display for RuleMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rule, action_name, evidence, .. } = self;
        write!(f, "rule {rule} ({action_name}) matches {evidence}")
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExitCode { container, code } => write!(f, "exit code {code} of container {container}"),
            Self::Condition(kind) => write!(f, "condition {kind}"),
            Self::Reason(reason) => write!(f, "status reason {reason}"),
        }
    }
}

impl fmt::Display for Trigger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rule { pod, matched } => write!(f, "pod {pod}, {matched}"),
            Self::BackoffLimit { failed, restarts, limit } => {
                let (failures, restarts) =
                    (Plural(u64::from(*failed), "failure"), Plural(*restarts, "restart"));
                write!(f, "{failures} and {restarts}, backoffLimit {limit}")
            }
            Self::Deadline { at } => write!(f, "the deadline was {at}"),
            Self::FailedIndexes { failed, max: Some(max) } => {
                write!(f, "{failed} failed {}, maxFailedIndexes {max}", index_noun(*failed))
            }
            Self::FailedIndexes { failed, max: None } => write!(f, "{failed} failed {}", index_noun(*failed)),
            Self::SuccessRule { rule } => write!(f, "success policy rule {rule} is met"),
            Self::Completions { succeeded } => write!(f, "{succeeded} completions"),
        }
    }
}

/// A number of things.
struct Plural(u64, &'static str);

impl fmt::Display for Plural {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(count, noun) = self;
        write!(f, "{count} {noun}{}", if *count == 1 { "" } else { "s" })
    }
}

fn index_noun(count: u64) -> &'static str {
    if count == 1 { "index" } else { "indexes" }
}

impl fmt::Display for Wait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Backoff { failures, last } => {
                write!(f, "back-off after {}, the last at {last}", Plural(u64::from(*failures), "failure"))
            }
            Self::IndexBackoff { index, failures } => {
                write!(f, "back-off of index {index} after {}", Plural(u64::from(*failures), "failure"))
            }
            Self::Deadline => f.write_str("the deadline"),
            Self::Api(kind) => write!(f, "{kind} failed a moment ago"),
            Self::Gauges => f.write_str("only gauges changed"),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Claim => "adopting or releasing a pod",
            Self::Create => "creating a pod",
            Self::End => "deleting a pod",
            Self::Release => "releasing a finalizer",
            Self::Status => "writing the status",
            Self::Emit => "publishing an event",
        })
    }
}

impl fmt::Display for CreationReason {
    /// The value of the metric's label.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::New => "new",
            Self::RecreateTerminatingOrFailed => "recreate_terminating_or_failed",
            Self::RecreateFailed => "recreate_failed",
        })
    }
}

impl fmt::Display for RemovalReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Suspended => "the Job is suspended",
            Self::Succeeded => "the Job has succeeded without them",
            Self::Surplus => "there are more than wanted",
            Self::Misplaced => "the Job has no use for their index",
        })
    }
}
