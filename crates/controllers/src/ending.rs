//! How a controller ends a pod that did nothing wrong: its status says why, then it is deleted.
//!
//! These are two writes. Whoever dies between them leaves a condition that is not true any more; the disruption
//! controller takes it back.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::Request;
use kube::{Api, Client, Resource};
use serde::de::IgnoredAny;
use serde_json::{Value, json};
use windlass_api::{Gates, names};

use crate::cluster::{Key, condition};

/// What is said of a pod that is ended.
#[derive(Clone, Copy, Debug)]
pub struct Marks {
    /// It gets the condition `DisruptionTarget`. Gate `PodDisruptionConditions`.
    pub adds_conditions: bool,
    /// Its deletion carries the reason, as the first draft of the failure policy asks. Gate
    /// `RetriableAndNonRetriableFailures`.
    pub gives_reasons: bool,
    /// One that was lost is written down as failed before it is deleted. Gates `PodDisruptionConditions` and
    /// `JobPodReplacementPolicy`: either is enough.
    pub fails_lost_pods: bool,
}

impl Marks {
    /// As the gates say.
    pub fn of(gates: &Gates) -> Self {
        Self {
            adds_conditions: gates.pod_disruption_conditions,
            gives_reasons: gates.retriable_and_non_retriable_failures,
            fails_lost_pods: gates.deleted_pods_end(),
        }
    }
}

impl Default for Marks {
    fn default() -> Self {
        Self::of(&Gates::default())
    }
}

/// The condition `DisruptionTarget`, true.
pub(crate) fn disruption(reason: &str, message: &str, generation: i64) -> PodCondition {
    PodCondition {
        type_: names::DISRUPTION_TARGET.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        observed_generation: Some(generation),
        last_probe_time: None,
        last_transition_time: None,
    }
}

/// The condition to write, with its time; none if nothing would change by it. upstream: UpdatePodCondition. A second
/// disruptor says why in its own words, and the time of the first one stays.
pub(crate) fn updated(
    old: Option<&PodCondition>,
    mut new: PodCondition,
    now: Timestamp,
) -> Option<PodCondition> {
    let Some(old) = old else {
        new.last_transition_time = Some(Time(now));
        return Some(new);
    };
    let is_same = old.status == new.status;
    new.last_transition_time = if is_same { old.last_transition_time.clone() } else { Some(Time(now)) };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let is_equal = is_same
        && text(&old.reason) == text(&new.reason)
        && text(&old.message) == text(&new.message)
        && old.last_probe_time == new.last_probe_time;
    (!is_equal).then_some(new)
}

/// Writes into a pod's status. The UID is in the patch so that another pod of the name is left alone.
pub(crate) async fn patch_status(client: &Client, key: &Key, uid: &str, status: Value) -> kube::Result<()> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let patch = Patch::Strategic(json!({"metadata": {"uid": uid}, "status": status}));
    pods.patch_status(&key.name, &PatchParams::default(), &patch).await.map(drop)
}

/// Deletes the pod with that UID, with its own grace period if none is named. One that is gone is fine.
pub(crate) async fn delete(
    client: &Client,
    key: &Key,
    uid: &str,
    grace_seconds: Option<u32>,
    reason: Option<&str>,
) -> kube::Result<()> {
    let preconditions = json!({"uid": uid});
    let mut options = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions});
    if let Some(seconds) = grace_seconds {
        options["gracePeriodSeconds"] = json!(seconds);
    }
    if let Some(reason) = reason {
        options["reason"] = json!(reason);
    }
    let requests = Request::new(Pod::url_path(&(), Some(&key.namespace)));
    let request = requests.delete(&key.name, &DeleteParams::default()).map_err(kube::Error::BuildRequest)?;
    let request = request.map(|_| options.to_string().into_bytes());
    match client.request::<IgnoredAny>(request).await {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error),
    }
}

/// Marks a pod as disrupted, as it is now, and deletes it with its own grace period. False if there is none.
pub(crate) async fn disrupt(
    client: &Client,
    key: &Key,
    (reason, message): (&str, &str),
    marks: Marks,
    now: Timestamp,
) -> kube::Result<bool> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), &key.namespace);
    let Some(pod) = pods.get_opt(&key.name).await? else { return Ok(false) };
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    if marks.adds_conditions {
        let new = disruption(reason, message, pod.metadata.generation.unwrap_or_default());
        if let Some(new) = updated(condition(pod.status.as_ref(), names::DISRUPTION_TARGET), new, now) {
            patch_status(client, key, uid, json!({"conditions": [new]})).await?;
        }
    }
    delete(client, key, uid, None, marks.gives_reasons.then_some(reason)).await?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn written(status: &str, reason: &str, time: i64) -> PodCondition {
        PodCondition {
            status: status.to_owned(),
            last_transition_time: Some(Time(at(time))),
            ..disruption(reason, "m", 1)
        }
    }

    #[test]
    fn a_condition_is_written_when_it_says_something_new_and_keeps_its_time_while_its_status_is_the_same() {
        let cases = [
            (None, Some(9)),
            (Some(written("True", "r", 3)), None),
            (Some(written("True", "other", 3)), Some(3)),
            (Some(written("False", "r", 3)), Some(9)),
        ];
        for (old, expected) in cases {
            let new = updated(old.as_ref(), disruption("r", "m", 2), at(9));
            assert_eq!(
                new,
                expected
                    .map(|time| PodCondition { observed_generation: Some(2), ..written("True", "r", time) }),
                "{old:?}"
            );
        }
    }
}
