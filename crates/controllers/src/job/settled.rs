//! What became certain in a stage: which finished pods the status now says so of, and which are let go uncounted.
//!
//! A verdict is announced when it holds, not when it is decided: a write that fails is decided again.

use std::collections::HashSet;

use k8s_openapi::api::core::v1::ObjectReference;
use windlass_job::Action;
use windlass_job::policy::failure::RuleMatch;
use windlass_job::trace::{Note, PodOutcome};

use super::registry::Known;
use super::report;
use crate::events::Report;
use crate::metrics::Metrics;

/// Verdicts of different kinds that are told about one Job. A policy has at most 20 rules.
const KINDS_MAX: usize = 40;

/// What went well in a stage.
#[derive(Debug, Default)]
pub(super) struct Settled {
    is_written: bool,
    released: HashSet<String>,
}

impl Settled {
    /// The action was tried.
    pub(super) fn note(&mut self, action: &Action, went_well: bool) {
        match action {
            Action::WriteStatus(_) => self.is_written |= went_well,
            Action::Release(pod) if went_well => _ = self.released.insert(pod.name.clone()),
            Action::Release(_) | Action::Adopt(_) | Action::Disown(_) | Action::Create(_) => {}
            Action::Delete(_) | Action::Remove(..) | Action::Emit(_) => {}
        }
    }

    /// Counts what is certain now. Gives the events for verdicts of a kind that the Job has not had before.
    pub(super) fn tell(
        &self,
        notes: &[Note],
        known: &mut Known,
        about: &ObjectReference,
        metrics: &Metrics,
    ) -> Vec<Report> {
        let mut reports = Vec::new();
        for note in notes {
            let Note::PodFinished { pod, outcome, index } = note else { continue };
            let (is_certain, rule) = match outcome {
                PodOutcome::Succeeded | PodOutcome::EndedWithJob => (self.is_written, None),
                PodOutcome::Counted(rule) => (self.is_written, rule.as_ref()),
                PodOutcome::Ignored(rule) => (self.released.contains(pod), Some(rule)),
            };
            if !is_certain {
                continue;
            }
            if let PodOutcome::Ignored(_) = outcome {
                known.memory.let_go(pod, *index, outcome);
            }
            if let Some(since) = known.ended.remove(pod.as_str()) {
                metrics.counted_after(since.elapsed());
            }
            if let Some(rule) = rule {
                metrics.policy_decided(rule.action);
                reports.extend(is_new(known, rule).then(|| report::verdict(about, rule)));
            }
        }
        for pod in &self.released {
            known.ended.remove(pod.as_str());
        }
        reports
    }
}

fn is_new(known: &mut Known, rule: &RuleMatch) -> bool {
    known.verdicts.len() < KINDS_MAX && known.verdicts.insert(rule.to_string())
}
