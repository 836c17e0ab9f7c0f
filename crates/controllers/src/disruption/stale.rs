//! Which marks of a disruption are not true any more. Pure.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};
use windlass_api::names::{self, disruption::TERMINATION_BY_KUBELET};

use crate::cluster::PodFact;

/// How long until the pod's mark is stale; none if it never will be. Who marks a pod deletes it next: a pod that is still
/// there after `patience` is not disrupted. Nodes take their time, and what has ended stays as it is.
pub(crate) fn stale_in(pod: &PodFact, patience: Duration, now: Timestamp) -> Option<Duration> {
    let mark = pod.disrupted.as_ref()?;
    if pod.is_deleting || pod.is_terminal || mark.reason == TERMINATION_BY_KUBELET {
        return None;
    }
    let age = mark.since.map_or(SignedDuration::MAX, |since| now.duration_since(since));
    let patience = SignedDuration::try_from(patience).unwrap_or(SignedDuration::MAX);
    Some(patience.saturating_sub(age).max(SignedDuration::ZERO).unsigned_abs())
}

/// The status that takes the mark back.
pub(crate) fn taken_back(generation: i64, now: Timestamp) -> Value {
    json!({"conditions": [{
        "type": names::DISRUPTION_TARGET, "status": "False", "reason": null, "message": null,
        "lastTransitionTime": Time(now), "observedGeneration": generation,
    }]})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Disrupted;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn a_mark_is_stale_when_its_pod_should_have_been_deleted_long_ago() {
        let mark = |reason: &str| Disrupted { reason: reason.to_owned(), since: Some(at(100)) };
        let marked = PodFact { disrupted: Some(mark("DeletionByTaintManager")), ..PodFact::named("p") };
        let cases = [
            (marked.clone(), 110, Some(110)),
            (marked.clone(), 219, Some(1)),
            (marked.clone(), 220, Some(0)),
            (marked.clone(), 900, Some(0)),
            (PodFact { disrupted: None, ..marked.clone() }, 900, None),
            (PodFact { is_deleting: true, ..marked.clone() }, 900, None),
            (PodFact { is_terminal: true, ..marked.clone() }, 900, None),
            (PodFact { disrupted: Some(mark("TerminationByKubelet")), ..marked }, 900, None),
        ];
        for (pod, now, expected) in cases {
            let left = stale_in(&pod, Duration::from_secs(120), at(now));
            assert_eq!(left, expected.map(Duration::from_secs), "{pod:?} at {now}");
        }
    }
}
