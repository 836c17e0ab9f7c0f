//! What becomes certain with a write: which finished pods the status now says so of, and which are let go uncounted.
//!
//! A verdict is announced when it holds, not when it is decided: a write that fails is decided again.

use std::collections::HashMap;

use k8s_openapi::api::core::v1::ObjectReference;
use windlass_job::Action;
use windlass_job::history::History;
use windlass_job::policy::failure::RuleMatch;
use windlass_job::trace::{Note, PodOutcome};

use super::registry::Known;
use super::report;
use crate::events::Report;
use crate::metrics::Metrics;

/// Verdicts of different kinds that are told about one Job. A policy has at most 20 rules.
const KINDS_MAX: usize = 40;

/// What the writes of a decision settle.
#[derive(Debug, Default)]
pub(super) struct Settled {
    /// Pods that count when the status is written.
    counted: Vec<Note>,
    /// Pods that a rule ignores, settled when they are let go.
    ignored: HashMap<String, Note>,
}

impl Settled {
    /// What a decision with these notes settles.
    pub(super) fn by(notes: Vec<Note>) -> Self {
        let mut settled = Self::default();
        for note in notes {
            let Note::PodFinished { pod, outcome, .. } = &note else { continue };
            match outcome {
                PodOutcome::Succeeded | PodOutcome::EndedWithJob | PodOutcome::Counted(_) => {
                    settled.counted.push(note);
                }
                PodOutcome::Ignored(_) => _ = settled.ignored.insert(pod.clone(), note),
            }
        }
        settled
    }

    /// The action was done: counts what is certain now. Gives the events for verdicts of a kind that the Job has not had
    /// before.
    pub(super) fn done(
        &mut self,
        action: &Action,
        known: &mut Known,
        history: Option<&History>,
        about: &ObjectReference,
        metrics: &Metrics,
    ) -> Vec<Report> {
        let certain = match action {
            Action::WriteStatus(_) => std::mem::take(&mut self.counted),
            Action::Release(pod) => match self.ignored.remove(&pod.name) {
                Some(note) => vec![note],
                None => {
                    known.ended.remove(pod.name.as_str());
                    return Vec::new();
                }
            },
            Action::Adopt(_) | Action::Disown(_) | Action::Create(_) => return Vec::new(),
            Action::Delete(_) | Action::Remove(..) | Action::Emit(_) => return Vec::new(),
        };
        if let (Action::WriteStatus(_), Some(history)) = (action, history) {
            known.memory.wrote(history, &certain);
        }
        let mut reports = Vec::new();
        for note in certain {
            let Note::PodFinished { pod, index, outcome } = note else { continue };
            let rule = match &outcome {
                PodOutcome::Succeeded | PodOutcome::EndedWithJob => None,
                PodOutcome::Counted(rule) => rule.as_ref(),
                PodOutcome::Ignored(rule) => {
                    known.memory.let_go(&pod, index, &outcome);
                    Some(rule)
                }
            };
            if let Some(since) = known.ended.remove(pod.as_str()) {
                metrics.counted_after(since.elapsed());
            }
            if let Some(rule) = rule {
                metrics.policy_decided(rule.action);
                reports.extend(is_new(known, rule).then(|| report::verdict(about, rule)));
            }
        }
        reports
    }
}

fn is_new(known: &mut Known, rule: &RuleMatch) -> bool {
    known.verdicts.len() < KINDS_MAX && known.verdicts.insert(rule.to_string())
}
