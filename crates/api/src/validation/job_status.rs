//! The rules for a new status of a Job.
//!
//! Most rules only look at what changed, so that a status which a change of the spec made inconsistent can still be
//! written. The order of errors is upstream's.

use std::collections::BTreeSet;

use k8s_openapi::api::batch::v1::{Job, JobSpec, JobStatus, UncountedTerminatedPods};

use crate::equality::same;
use crate::field::{Error, Errors, Path};
use crate::indexes::IndexSet;
use crate::names::condition::{COMPLETE, FAILED, FAILURE_TARGET, SUCCESS_CRITERIA_MET, SUSPENDED};
use crate::validation::job::{not_negative, nullable};
use crate::validation::meta::{IMMUTABLE, json, validate_object_meta_update};
use crate::view::{self, has_condition};

/// Checks the new status of a Job against the old one, and the metadata, which may change along with it.
pub fn validate_status_update(new: &Job, old: &Job) -> Errors {
    let change = Change {
        spec: view::spec(new),
        new: view::status(new),
        old: view::status(old),
        path: Path::new("status"),
    };
    let mut errors = validate_object_meta_update(&new.metadata, &old.metadata, &Path::new("metadata"));
    errors.extend(change.counters());
    errors.extend(change.uncounted());
    errors.extend(change.complete());
    errors.extend(change.announced());
    errors.extend(change.finished());
    errors.extend(change.indexes());
    errors.extend(change.pods_now());
    errors.extend(change.success_criteria());
    errors.extend(change.terminal_is_final());
    errors.extend(change.monotone());
    errors.extend(change.times_stay());
    errors.extend(change.success_criteria_stay());
    errors
}

/// A status update; each function is a group of rules.
struct Change<'a> {
    spec: &'a JobSpec,
    new: &'a JobStatus,
    old: &'a JobStatus,
    path: Path,
}

impl Change<'_> {
    fn has(&self, type_: &str) -> bool {
        has_condition(self.new, type_)
    }

    fn had(&self, type_: &str) -> bool {
        has_condition(self.old, type_)
    }

    fn flips(&self, type_: &str) -> bool {
        self.has(type_) != self.had(type_)
    }

    fn is_finished(&self) -> bool {
        self.has(COMPLETE) || self.has(FAILED)
    }

    fn finishes(&self) -> bool {
        self.is_finished() != (self.had(COMPLETE) || self.had(FAILED))
    }

    fn at(&self, field: &str) -> Path {
        self.path.child(field)
    }

    /// The error of a rule about conditions, when it is broken.
    fn conditions(&self, is_broken: bool, text: &str) -> Option<Error> {
        is_broken.then(|| Error::invalid_omitted(&self.at("conditions"), text))
    }

    fn counters(&self) -> Errors {
        let status = self.new;
        let mut errors = not_negative(status.active, &self.at("active"));
        errors.extend(not_negative(status.succeeded, &self.at("succeeded")));
        errors.extend(not_negative(status.failed, &self.at("failed")));
        errors.extend(not_negative(status.ready, &self.at("ready")));
        errors.extend(not_negative(status.terminating, &self.at("terminating")));
        errors
    }

    // A pod is counted once.
    fn uncounted(&self) -> Errors {
        let Some(uncounted) = &self.new.uncounted_terminated_pods else { return Errors::new() };
        let path = self.at("uncountedTerminatedPods");
        let mut seen = BTreeSet::new();
        let mut errors = Errors::new();
        for (field, uids) in [("succeeded", &uncounted.succeeded), ("failed", &uncounted.failed)] {
            for (i, uid) in uids.iter().flatten().enumerate() {
                let at = path.child(field).index(i);
                if uid.is_empty() {
                    errors.push(Error::invalid(&at, uid.as_str(), "must not be empty"));
                } else if !seen.insert(uid.as_str()) {
                    errors.push(Error::duplicate(&at, uid.as_str()));
                }
            }
        }
        errors
    }

    fn complete(&self) -> Errors {
        let (new, old) = (self.new, self.old);
        let is_complete = self.has(COMPLETE);
        let completion_time_changes = new.completion_time != old.completion_time;
        let mut errors = Errors::new();
        errors.extend(self.conditions(
            (self.flips(COMPLETE) || self.flips(FAILED)) && is_complete && self.has(FAILED),
            "cannot set Complete=True and Failed=true conditions",
        ));
        errors.extend(self.conditions(
            (self.flips(COMPLETE) || self.flips(FAILURE_TARGET)) && is_complete && self.has(FAILURE_TARGET),
            "cannot set Complete=True and FailureTarget=true conditions",
        ));
        let at = self.at("completionTime");
        if self.flips(COMPLETE) || completion_time_changes {
            match &new.completion_time {
                Some(time) if !is_complete => {
                    let text = "cannot set completionTime when there is no Complete=True condition";
                    errors.push(Error::invalid(&at, json(time), text));
                }
                None if is_complete => {
                    errors.push(Error::required(&at, "completionTime is required for Complete jobs"));
                }
                Some(_) | None => {}
            }
        }
        if let (Some(start), Some(end)) = (&new.start_time, &new.completion_time)
            && (new.start_time != old.start_time || completion_time_changes)
            && end.0 < start.0
        {
            errors.push(Error::invalid(&at, json(end), "must be equal to or after `startTime`"));
        }
        errors
    }

    // The end of a Job is announced before it is final.
    fn announced(&self) -> Errors {
        // As upstream, a change of failedIndexes triggers the first rule too.
        let failed_changes = self.flips(FAILED) || self.new.failed_indexes != self.old.failed_indexes;
        let complete_changes = self.flips(COMPLETE) || self.flips(SUCCESS_CRITERIA_MET);
        let unannounced_failure = self.conditions(
            failed_changes && self.has(FAILED) && !self.has(FAILURE_TARGET),
            "cannot set Failed=True condition without the FailureTarget=true condition",
        );
        let unannounced_success = self.conditions(
            complete_changes && self.has(COMPLETE) && !self.has(SUCCESS_CRITERIA_MET),
            "cannot set Complete=True condition without the SuccessCriteriaMet=true condition",
        );
        unannounced_failure.into_iter().chain(unannounced_success).collect()
    }

    fn finished(&self) -> Errors {
        let (new, old) = (self.new, self.old);
        let mut errors = Errors::new();
        if !self.is_finished() {
            return errors;
        }
        let finishes = self.finishes();
        let active = new.active.unwrap_or_default();
        if (finishes || active != old.active.unwrap_or_default()) && active > 0 {
            errors.push(Error::invalid(&self.at("active"), active, "active>0 is invalid for finished job"));
        }
        // A suspended Job of no completions is complete without ever starting.
        let needs_no_start = view::is_suspended(self.spec) && self.spec.completions == Some(0);
        if (finishes || new.start_time != old.start_time) && !needs_no_start && new.start_time.is_none() {
            errors.push(Error::required(&self.at("startTime"), "startTime is required for finished job"));
        }
        let uncounted_changes = !same(&new.uncounted_terminated_pods, &old.uncounted_terminated_pods);
        if let Some(uncounted) = &new.uncounted_terminated_pods
            && (finishes || uncounted_changes)
            && !is_empty(uncounted)
        {
            let at = self.at("uncountedTerminatedPods");
            errors.push(Error::invalid(&at, json(uncounted), "must be empty for finished job"));
        }
        errors
    }

    fn indexes(&self) -> Errors {
        let (new, old) = (self.new, self.old);
        let completed = new.completed_indexes.as_deref().unwrap_or_default();
        let completed_changes = completed != old.completed_indexes.as_deref().unwrap_or_default();
        let failed_changes = new.failed_indexes != old.failed_indexes;
        let has_limit_per_index = self.spec.backoff_limit_per_index.is_some();
        let mut errors = Errors::new();
        if completed_changes {
            errors.extend(self.index_text("completedIndexes", completed));
        }
        if let Some(failed) = new.failed_indexes.as_deref().filter(|_| failed_changes && has_limit_per_index)
        {
            errors.extend(self.index_text("failedIndexes", failed));
        }
        if completed_changes && !completed.is_empty() && !view::is_indexed(self.spec) {
            let text = "cannot set non-empty completedIndexes when non-indexed completion mode";
            errors.push(Error::invalid(&self.at("completedIndexes"), completed, text));
        }
        let Some(failed) = new.failed_indexes.as_deref() else { return errors };
        let at = self.at("failedIndexes");
        if failed_changes && !has_limit_per_index {
            let text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null";
            errors.push(Error::invalid(&at, failed, text));
        }
        if let Some(completions) = self.spec.completions.filter(|_| completed_changes || failed_changes)
            && let Some(index) =
                readable(completed, completions).first_overlap(&readable(failed, completions))
        {
            let text = format!("failedIndexes and completedIndexes overlap at index: {index}");
            errors.push(Error::invalid(&at, failed, text));
        }
        errors
    }

    fn index_text(&self, field: &str, text: &str) -> Option<Error> {
        let error = IndexSet::parse_strict(text, self.spec.completions?).err()?;
        Some(Error::invalid(&self.at(field), text, format!("error parsing {field}: {error}")))
    }

    fn pods_now(&self) -> Errors {
        let (new, old) = (self.new, self.old);
        let mut errors = Errors::new();
        if let Some(terminating) = new.terminating
            && (self.finishes() || new.terminating != old.terminating)
            && self.is_finished()
            && terminating > 0
        {
            let text = "terminating>0 is invalid for finished job";
            errors.push(Error::invalid(&self.at("terminating"), terminating, text));
        }
        let active = new.active.unwrap_or_default();
        if let Some(ready) = new.ready
            && (new.ready != old.ready || active != old.active.unwrap_or_default())
            && ready > active
        {
            errors.push(Error::invalid(&self.at("ready"), ready, "cannot set more ready pods than active"));
        }
        errors
    }

    fn success_criteria(&self) -> Errors {
        let is_met = self.has(SUCCESS_CRITERIA_MET);
        let rules = [
            self.conditions(
                is_met && self.has(FAILED),
                "cannot set SuccessCriteriaMet=True and Failed=true conditions",
            ),
            self.conditions(
                is_met && self.has(FAILURE_TARGET),
                "cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
            ),
            self.conditions(
                self.spec.success_policy.is_some() && !is_met && self.has(COMPLETE),
                "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True",
            ),
        ];
        rules.into_iter().flatten().collect()
    }

    fn terminal_is_final(&self) -> Errors {
        let lost = [FAILED, COMPLETE, FAILURE_TARGET].into_iter().filter(|it| self.had(it) && !self.has(it));
        lost.filter_map(|type_| {
            self.conditions(true, &format!("cannot disable the terminal {type_}=True condition"))
        })
        .collect()
    }

    fn monotone(&self) -> Errors {
        let mut errors = Errors::new();
        let failed = self.new.failed.unwrap_or_default();
        if failed < self.old.failed.unwrap_or_default() {
            errors.push(Error::invalid(&self.at("failed"), failed, "cannot decrease the failed counter"));
        }
        // An Indexed Job that runs all of its indexes at once may be scaled down, and then loses successes.
        let is_elastic = view::is_indexed(self.spec) && self.spec.completions == self.spec.parallelism;
        let succeeded = self.new.succeeded.unwrap_or_default();
        if !is_elastic && succeeded < self.old.succeeded.unwrap_or_default() {
            let text = "cannot decrease the succeeded counter";
            errors.push(Error::invalid(&self.at("succeeded"), succeeded, text));
        }
        errors
    }

    fn times_stay(&self) -> Errors {
        let (new, old) = (self.new, self.old);
        let mut errors = Errors::new();
        if let (Some(now), Some(before)) = (&new.completion_time, &old.completion_time)
            && now != before
        {
            errors.push(Error::invalid(&self.at("completionTime"), json(now), IMMUTABLE));
        }
        let resumes = self.had(SUSPENDED)
            && new.conditions.iter().flatten().any(|it| it.type_ == SUSPENDED && it.status == "False");
        let start_time_changes = old.start_time.is_some() && new.start_time != old.start_time;
        if start_time_changes && !resumes && !view::is_suspended(self.spec) {
            let text = "field is immutable for unsuspended job once set";
            errors.push(Error::invalid(&self.at("startTime"), nullable(new.start_time.as_ref()), text));
        }
        errors
    }

    fn success_criteria_stay(&self) -> Errors {
        let rules = [
            self.conditions(
                self.had(SUCCESS_CRITERIA_MET) && !self.has(SUCCESS_CRITERIA_MET),
                "cannot disable the SuccessCriteriaMet=True condition",
            ),
            self.conditions(
                self.had(COMPLETE) && !self.had(SUCCESS_CRITERIA_MET) && self.has(SUCCESS_CRITERIA_MET),
                "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions",
            ),
        ];
        rules.into_iter().flatten().collect()
    }
}

fn is_empty(uncounted: &UncountedTerminatedPods) -> bool {
    [&uncounted.succeeded, &uncounted.failed].into_iter().flatten().all(Vec::is_empty)
}

/// All that can be read of an index text; what can't is an error of its own.
fn readable(text: &str, completions: i32) -> IndexSet {
    IndexSet::parse_strict(text, completions).unwrap_or_else(|_| {
        let mut indexes = IndexSet::new();
        for piece in text.split(',').filter_map(|piece| IndexSet::parse_strict(piece, completions).ok()) {
            indexes.union_with(&piece);
        }
        indexes
    })
}
