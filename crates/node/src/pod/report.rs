//! What a pod's task reports: the status while it runs, and how it ended.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PodStatus;
use tokio::sync::mpsc;

use super::work::{SETTLE, Work};
use super::{Done, Update, awaits_last_delete};
use crate::lifecycle::{self, Cause};
use crate::phase::{self, Phase};
use crate::status;
use crate::writes::{self, Outcome};

/// Why a pod failed that was active for too long.
pub(super) const DEADLINE_MESSAGE: &str = "Pod was active on the node longer than the specified deadline";

/// How long at least to wait with a write after somebody else's: who insists on something else does not keep us busy.
const OTHERS_SETTLE: Duration = Duration::from_millis(100);

/// How a pod ended.
struct Verdict {
    phase: Phase,
    reason: Option<(String, String)>,
    disruption: Option<String>,
}

impl Work {
    /// The status to write and the patch that does it, if the API has another one.
    pub(super) fn pending_patch(&self) -> Option<(PodStatus, serde_json::Value)> {
        let computed = phase::of(&self.plans, &self.records, false);
        let known = Phase::parse(self.known.phase.as_deref()).unwrap_or(Phase::Pending);
        // A terminal phase is kept back while anything may run.
        let phase = self.api_end().unwrap_or(if computed.is_terminal() { known } else { computed });
        self.patch_to(&Verdict { phase, reason: None, disruption: None })
    }

    fn patch_to(&self, verdict: &Verdict) -> Option<(PodStatus, serde_json::Value)> {
        // Without a reason of our own we leave the one that is there, such as the one a delete was given.
        let (known_reason, known_message) = (self.known.reason.as_deref(), self.known.message.as_deref());
        let kept = known_reason.map(|reason| (reason, known_message.unwrap_or_default()));
        let own = verdict.reason.as_ref().map(|(reason, message)| (reason.as_str(), message.as_str()));
        let wanted = status::build(&status::View {
            pod: &self.pod,
            plans: &self.plans,
            records: &self.records,
            phase: verdict.phase,
            reason: own.or(kept),
            disruption: verdict.disruption.as_deref(),
            restart_all: self.restart_all(),
            start_time: self.start_time,
            known: &self.known,
            now: Timestamp::now(),
        });
        let patch = status::patch(self.uid(), &self.known, &wanted)?;
        Some((wanted, patch))
    }

    pub(super) fn on_written(&mut self, outcome: Outcome) {
        let wanted = self.writing.take();
        match outcome {
            Outcome::Done(answer) => {
                if let Some(wanted) = wanted {
                    self.known = status::after_patch(&self.known, wanted);
                }
                self.answer = Some(answer);
                self.write_delay = SETTLE;
            }
            Outcome::Gone => self.is_gone = true,
            Outcome::Retry => {
                self.is_changed = true;
                self.write_delay = writes::longer(self.write_delay);
            }
        }
        if std::mem::take(&mut self.is_behind) {
            self.heed_status();
        }
    }

    /// Takes what others wrote into the status, such as that the pod of a silent node is not ready, so that it is put
    /// right if it has to. What was there before our last write is past.
    pub(super) fn heed_status(&mut self) {
        let Some(shown) = &self.pod.status else { return };
        // The echo of our own write, most of the time.
        if status::is_known(&self.known, shown) {
            return;
        }
        self.is_changed = true;
        if self.writing.is_some() {
            // Whether it came before or after that can be told when it is answered.
            self.is_behind = true;
        } else if self.answer.as_ref().is_none_or(|answer| !answer.is_newer_than(&self.pod.metadata)) {
            self.known.conditions.clone_from(&shown.conditions);
            self.write_delay = self.write_delay.max(OTHERS_SETTLE);
        }
    }

    /// Reports the end, and lets a deleted pod go.
    pub(super) async fn finish(mut self, mut updates: mpsc::UnboundedReceiver<Update>) -> Done {
        // A container that never ran is written down as lost below: that is not how the pod was.
        let as_it_was = phase::of(&self.plans, &self.records, false);
        lifecycle::conclude(&self.plans, &mut self.records, Timestamp::now());
        // Before anybody hears of the end and sends the next pod.
        self.context.ledger.lock().remove(self.uid());
        let verdict = self.verdict(as_it_was);
        while !self.is_gone
            && let Some((wanted, patch)) = self.patch_to(&verdict)
        {
            self.writing = Some(wanted);
            let outcome = writes::status(&self.context.caller, &self.pod, patch).await;
            let is_retry = outcome == Outcome::Retry;
            self.on_written(outcome);
            if !is_retry {
                break;
            }
            tokio::time::sleep(self.write_delay).await;
        }
        updates.close();
        let mut unheard = None;
        while let Some(update) = updates.recv().await {
            match update {
                Update::Changed(pod) => unheard = Some(pod),
                Update::Gone => self.is_gone = true,
                Update::End(_) => {}
            }
        }
        let newest = unheard.as_deref().unwrap_or(&self.pod);
        let is_deleted = !self.is_gone && awaits_last_delete(&newest.metadata);
        if is_deleted {
            writes::delete(&self.context.config.client, newest).await;
        }
        // Who hears of the end may remove all that the pod has.
        for removal in std::mem::take(&mut self.removals) {
            let _ = removal.await;
        }
        Done { uid: self.pod.metadata.uid.clone().unwrap_or_default(), is_deleted, unheard }
    }

    /// The last phase of the pod, and what else is to be said about its end.
    fn verdict(&self, as_it_was: Phase) -> Verdict {
        let is_final = phase::is_final(self.ending.map(|ending| ending.cause), &self.context.config.gates);
        let phase = self.api_end().unwrap_or_else(|| match is_final {
            true => phase::of(&self.plans, &self.records, true),
            false => as_it_was,
        });
        if self.ending.is_some_and(|ending| ending.cause == Cause::DeadlineExceeded) {
            let reason = Some(("DeadlineExceeded".to_owned(), DEADLINE_MESSAGE.to_owned()));
            return Verdict { phase: Phase::Failed, reason, disruption: None };
        }
        let Some(order) = &self.order else { return Verdict { phase, reason: None, disruption: None } };
        // As upstream: what ended well in spite of it has no reason, but was disrupted.
        let reason = (phase == Phase::Failed).then(|| (order.reason.to_owned(), order.message.clone()));
        let disruption =
            order.disruption.clone().filter(|_| self.context.config.gates.pod_disruption_conditions);
        Verdict { phase, reason, disruption }
    }
}
