//! TTL after finished: a finished Job is deleted when its time is up.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::Job;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::runtime::watcher::Event;
use kube::{Api, Client, ResourceExt};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::Clock;
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::watch;

const WORKERS: usize = 5;

/// When the Job is to be deleted, if ever. Interim conditions do not count.
pub fn expires_at(job: &Job) -> Option<Timestamp> {
    if job.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let ttl = job.spec.as_ref()?.ttl_seconds_after_finished?;
    let conditions = job.status.as_ref()?.conditions.as_ref()?;
    let is_end = |type_: &str| matches!(type_, "Complete" | "Failed");
    let end = conditions.iter().find(|one| is_end(&one.type_) && one.status == "True")?;
    let finished = end.last_transition_time.as_ref()?.0;
    finished.checked_add(SignedDuration::from_secs(ttl.into())).ok()
}

/// Namespace and name.
type Key = (String, String);

/// Deletes finished Jobs whose time is up, until cancelled.
pub async fn run(client: Client, clock: Clock, metrics: Metrics, cancel: CancellationToken) {
    let queue = Arc::new(Queue::<Key>::new("ttl_jobs_to_delete", &metrics));
    let mut tasks = JoinSet::new();
    for _ in 0..WORKERS {
        let (client, clock, queue) = (client.clone(), Arc::clone(&clock), Arc::clone(&queue));
        let (metrics, cancel) = (metrics.clone(), cancel.clone());
        tasks.spawn(async move {
            loop {
                let key = tokio::select! { () = cancel.cancelled() => return, key = queue.next() => key };
                match look(&client, &clock, &metrics, &key).await {
                    Ok(None) => queue.forget_failures(&key),
                    Ok(Some(wait)) => queue.add_at(key.clone(), Instant::now() + wait),
                    Err(error) => {
                        tracing::debug!(job = key.1, %error, "a finished job was not deleted, trying again");
                        queue.retry(key.clone());
                    }
                }
                queue.done(&key);
            }
        });
    }
    let jobs: Api<Job> = Api::all(client);
    watch::follow(jobs, cancel, |event| {
        if let Event::InitApply(job) | Event::Apply(job) = event
            && expires_at(&job).is_some()
        {
            queue.add((job.namespace().unwrap_or_default(), job.name_any()));
        }
    })
    .await;
    while tasks.join_next().await.is_some() {}
}

/// Deletes the Job if its time is up; otherwise says how long it has.
async fn look(
    client: &Client,
    clock: &Clock,
    metrics: &Metrics,
    (namespace, name): &Key,
) -> kube::Result<Option<std::time::Duration>> {
    let jobs: Api<Job> = Api::namespaced(client.clone(), namespace);
    // What was watched may be old: the time can have been changed since.
    let Some(job) = jobs.get_opt(name).await? else { return Ok(None) };
    let Some(expires) = expires_at(&job) else { return Ok(None) };
    let left = expires.duration_since(clock());
    if left > SignedDuration::ZERO {
        return Ok(Some(left.unsigned_abs()));
    }
    let params = DeleteParams {
        propagation_policy: Some(PropagationPolicy::Foreground),
        preconditions: Some(Preconditions { uid: job.uid(), resource_version: None }),
        ..DeleteParams::default()
    };
    match jobs.delete(name, &params).await {
        Ok(_) => {
            metrics.job_expired(clock().duration_since(expires));
            Ok(None)
        }
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn expires(ttl: Value, type_: &str, status: &str, deleted: Value) -> Option<String> {
        let job = json!({
            "metadata": {"name": "j", "deletionTimestamp": deleted},
            "spec": {"ttlSecondsAfterFinished": ttl, "template": {}},
            "status": {"conditions": [
                {"type": type_, "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ]},
        });
        expires_at(&serde_json::from_value(job).expect("a Job")).map(|time| time.to_string())
    }

    #[test]
    fn only_a_job_that_finished_and_has_a_ttl_expires() {
        let after = |seconds: &str| Some(format!("2026-01-01T00:00:{seconds}Z"));
        let cases = [
            (json!(30), "Complete", "True", json!(null), after("30")),
            (json!(0), "Failed", "True", json!(null), after("00")),
            (json!(null), "Complete", "True", json!(null), None),
            (json!(30), "Complete", "False", json!(null), None),
            (json!(30), "FailureTarget", "True", json!(null), None),
            (json!(30), "SuccessCriteriaMet", "True", json!(null), None),
            (json!(30), "Complete", "True", json!("2026-01-01T00:00:00Z"), None),
        ];
        for (ttl, type_, status, deleted, expected) in cases {
            assert_eq!(
                expires(ttl.clone(), type_, status, deleted.clone()),
                expected,
                "{ttl} {type_} {status} {deleted}"
            );
        }
    }
}
