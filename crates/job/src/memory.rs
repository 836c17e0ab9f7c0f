//! What is remembered of failed pods: taken while they are held, and written with the status that counts them.
//!
//! The history is part of no decision. Losing some of it, as when the controller dies after it let go of an ignored pod,
//! costs an answer to `windlass why`, and never a count.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;

use crate::decision::{Action, StatusWrite};
use crate::history::{ANNOTATION, Entry, Evidence, History};
use crate::job_facts::Status;
use crate::pod_facts::{Phase, PodFacts};
use crate::trace::{Note, PodOutcome};

/// Ignored pods that wait for the next status write; what comes beyond them is not remembered.
const PENDING_MAX: usize = 1_000;

/// What is remembered of the failed pods of one Job.
#[derive(Debug, Default)]
pub struct Memory {
    written: History,
    /// Pods that were let go without being counted, and are not written yet.
    pending: Vec<Ignored>,
    /// So many of them are in the history that is being written: more may come until it is.
    included: usize,
    /// What pods showed that failed and are held.
    evidence: BTreeMap<Box<str>, Evidence>,
    /// What ignored pods showed that are being let go: they may be gone before we hear that they were.
    going: BTreeMap<Box<str>, Evidence>,
}

#[derive(Debug)]
struct Ignored {
    pod: String,
    index: Option<u32>,
    outcome: PodOutcome,
    evidence: Evidence,
}

impl Memory {
    /// What was written before.
    pub fn read(annotations: Option<&BTreeMap<String, String>>) -> Self {
        let text = annotations.and_then(|annotations| annotations.get(ANNOTATION));
        Self { written: text.map(|text| History::parse(text)).unwrap_or_default(), ..Self::default() }
    }

    /// The watch shows a pod.
    pub fn saw(&mut self, pod: &Pod, facts: &PodFacts) {
        if facts.phase == Phase::Failed && facts.has_finalizer && !self.evidence.contains_key(&facts.name) {
            self.evidence.insert(facts.name.clone(), Evidence::of_pod(pod));
        }
    }

    /// The pod is gone.
    pub fn forget(&mut self, pod: &str) {
        self.evidence.remove(pod);
    }

    /// Pods are about to be let go.
    pub fn begin(&mut self, notes: &[Note]) {
        for note in notes {
            if let Note::PodFinished { pod, outcome: PodOutcome::Ignored(_), .. } = note
                && let Some(evidence) = self.evidence.remove(pod.as_str())
            {
                self.going.insert(pod.as_str().into(), evidence);
            }
        }
    }

    /// An ignored pod was let go.
    pub fn let_go(&mut self, pod: &str, index: Option<u32>, outcome: &PodOutcome) {
        let evidence = self.going.remove(pod).unwrap_or_default();
        if self.pending.len() < PENDING_MAX {
            self.pending.push(Ignored { pod: pod.to_owned(), index, outcome: outcome.clone(), evidence });
        }
    }

    /// The history as it is with what the stage counts; `None` if it writes no status, or there is nothing new.
    pub fn with(
        &mut self,
        actions: &[Action],
        notes: &[Note],
        status: &Status,
        at: Timestamp,
    ) -> Option<History> {
        let write = actions.iter().find_map(|action| match action {
            Action::WriteStatus(write) => Some(write),
            _ => None,
        })?;
        let failed = (failures(status), failures_after(write));
        self.included = self.pending.len();
        let mut history = self.written.clone();
        for Ignored { pod, index, outcome, evidence } in &self.pending {
            let failed = (failed.0, failed.0);
            history.note(&Entry { pod, index: *index, outcome, evidence, failed, at });
        }
        let unknown = Evidence::default();
        for note in notes {
            let Note::PodFinished { pod, index, outcome } = note else { continue };
            let is_counted = match outcome {
                PodOutcome::Counted(_) | PodOutcome::EndedWithJob => true,
                PodOutcome::Succeeded | PodOutcome::Ignored(_) => false,
            };
            if is_counted {
                let evidence = self.evidence.get(pod.as_str()).unwrap_or(&unknown);
                history.note(&Entry { pod, index: *index, outcome, evidence, failed, at });
            }
        }
        (history != self.written).then_some(history)
    }

    /// The history was written, with what these notes say.
    pub fn wrote(&mut self, history: &History, notes: &[Note]) {
        self.written = history.clone();
        self.pending.drain(..std::mem::take(&mut self.included).min(self.pending.len()));
        for note in notes {
            if let Note::PodFinished { pod, .. } = note {
                self.evidence.remove(pod.as_str());
            }
        }
    }
}

/// Failures that are counted or on their way into the counter.
fn failures(status: &Status) -> u32 {
    let uncounted = status.uncounted.as_ref().map_or(0, |pods| pods.failed.len());
    status.failed.saturating_add(u32::try_from(uncounted).unwrap_or(u32::MAX))
}

fn failures_after(write: &StatusWrite) -> u32 {
    failures(&write.status)
}
