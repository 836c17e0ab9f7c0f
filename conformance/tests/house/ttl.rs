//! Finished Jobs whose time is up.

use anyhow::Result;
use serde_json::{Value, json};

use crate::budgets::foreign_job;
use crate::place::{JOBS, PODS, Place, ago, and, owned_by};

/// How a Job ended, as its status tells it.
pub fn finished(first: &str, last: &str, seconds: i64) -> Value {
    let condition = |kind: &str| {
        json!({"type": kind, "status": "True", "reason": "So", "message": "so",
            "lastTransitionTime": ago(seconds), "lastProbeTime": ago(seconds)})
    };
    let mut status =
        json!({"startTime": ago(seconds + 60), "conditions": [condition(first), condition(last)]});
    if last == "Complete" {
        status["completionTime"] = json!(ago(seconds));
        status["succeeded"] = json!(1);
    }
    status
}

fn with_ttl(name: &str, seconds: Option<i64>) -> Value {
    let mut job = foreign_job(name);
    if let Some(seconds) = seconds {
        job["spec"]["ttlSecondsAfterFinished"] = json!(seconds);
    }
    job
}

/// It goes with its pods.
pub async fn of_a_complete_job(p: &mut Place) -> Result<()> {
    let job = p.make(JOBS, with_ttl("job", Some(100))).await?;
    p.pod("one", owned_by(&job, "Job", true)).await?;
    p.make(JOBS, with_ttl("later", Some(100_000))).await?;
    p.make(JOBS, with_ttl("never", None)).await?;
    for name in ["later", "never", "job"] {
        p.patch_status(JOBS, name, finished("SuccessCriteriaMet", "Complete", 200)).await?;
    }
    p.until_gone(JOBS, "job").await?;
    p.until_gone(PODS, "one").await?;
    p.note_all("left", JOBS).await
}

/// It goes too.
pub async fn of_a_failed_job(p: &mut Place) -> Result<()> {
    p.make(JOBS, with_ttl("job", Some(1))).await?;
    p.patch_status(JOBS, "job", finished("FailureTarget", "Failed", 0)).await?;
    p.until_gone(JOBS, "job").await
}

/// Somebody changes their mind.
pub async fn given_later(p: &mut Place) -> Result<()> {
    p.make(JOBS, with_ttl("job", None)).await?;
    p.patch_status(JOBS, "job", finished("SuccessCriteriaMet", "Complete", 5)).await?;
    p.patch(JOBS, "job", json!({"spec": {"ttlSecondsAfterFinished": 0}})).await?;
    p.until_gone(JOBS, "job").await
}

/// A Job that will fail has not failed.
pub async fn not_before_the_end(p: &mut Place) -> Result<()> {
    p.make(JOBS, with_ttl("job", Some(0))).await?;
    p.make(JOBS, with_ttl("other", Some(0))).await?;
    let mut status = finished("FailureTarget", "Failed", 60);
    status["conditions"].as_array_mut().expect("a list").truncate(1);
    p.patch_status(JOBS, "job", status).await?;
    p.patch_status(JOBS, "other", and(finished("FailureTarget", "Failed", 60), json!({}))).await?;
    p.until_gone(JOBS, "other").await?;
    p.note("job", JOBS, "job").await
}
