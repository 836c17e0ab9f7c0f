//! Jobs on schedule. Schedules are once a year, and the last time was long ago: nothing depends on when they are played.

use anyhow::Result;
use serde_json::{Value, json};
use windlass_conformance::scenario::list;

use crate::budgets::foreign_job;
use crate::place::{CRON_JOBS, JOBS, Place, ago, and};
use crate::ttl::finished;

/// A CronJob that nobody looks at yet; `more` is merged into its spec.
async fn cron_job(p: &Place, name: &str, more: Value) -> Result<Value> {
    let spec = json!({"schedule": "0 0 1 1 *", "timeZone": "Etc/UTC", "suspend": true,
        "jobTemplate": {"metadata": {"labels": {"made": "on-schedule"}}, "spec": foreign_job("")["spec"]}});
    p.make(CRON_JOBS, json!({"metadata": {"name": name}, "spec": and(spec, more)})).await
}

/// It was due long ago, and now it is looked at.
async fn resume(p: &Place, name: &str, mut status: Value) -> Result<()> {
    if status.get("lastScheduleTime").is_none() {
        status["lastScheduleTime"] = json!("2020-01-01T00:00:00Z");
    }
    p.patch_status(CRON_JOBS, name, status).await?;
    p.patch(CRON_JOBS, name, json!({"spec": {"suspend": false}})).await
}

/// A Job of a CronJob.
async fn job_of(p: &Place, owner: &Value, name: &str) -> Result<Value> {
    let owner = json!({"metadata": {"ownerReferences": [{
        "apiVersion": "batch/v1", "kind": "CronJob", "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"], "controller": true, "blockOwnerDeletion": true,
    }]}});
    p.make(JOBS, and(foreign_job(name), owner)).await
}

fn active(job: &Value) -> Value {
    let meta = &job["metadata"];
    json!([{"apiVersion": "batch/v1", "kind": "Job", "name": meta["name"], "namespace": meta["namespace"],
        "uid": meta["uid"]}])
}

async fn until_made(p: &mut Place) -> Result<()> {
    let has_new = |one: &Value| {
        list(one, "/status/active").len() == 1 && one["status"]["lastScheduleTime"] != "2020-01-01T00:00:00Z"
    };
    let cron_job = p.until(CRON_JOBS, "cron", "to have made a Job", has_new).await?;
    p.write_down("cron job", cron_job);
    p.note_all("jobs", JOBS).await
}

/// A Job is made for the last time that was missed.
pub async fn due(p: &mut Place) -> Result<()> {
    cron_job(p, "cron", json!({})).await?;
    resume(p, "cron", json!({})).await?;
    until_made(p).await?;
    p.events(&["CronJob cron SuccessfulCreate"]).await
}

/// Midnight is elsewhere at another time.
pub async fn in_another_time_zone(p: &mut Place) -> Result<()> {
    cron_job(p, "cron", json!({"timeZone": "Asia/Kolkata"})).await?;
    resume(p, "cron", json!({})).await?;
    until_made(p).await
}

/// Nothing is made.
pub async fn suspended(p: &mut Place) -> Result<()> {
    cron_job(p, "asleep", json!({})).await?;
    p.patch_status(CRON_JOBS, "asleep", json!({"lastScheduleTime": "2020-01-01T00:00:00Z"})).await?;
    cron_job(p, "cron", json!({})).await?;
    resume(p, "cron", json!({})).await?;
    until_made(p).await?;
    p.note("asleep", CRON_JOBS, "asleep").await
}

/// One at a time.
pub async fn forbidden_while_one_runs(p: &mut Place) -> Result<()> {
    let cron = cron_job(p, "cron", json!({"concurrencyPolicy": "Forbid"})).await?;
    let job = job_of(p, &cron, "running").await?;
    resume(p, "cron", json!({"active": active(&job)})).await?;
    p.events(&["CronJob cron JobAlreadyActive"]).await?;
    p.note("cron job", CRON_JOBS, "cron").await?;
    p.note_all("jobs", JOBS).await
}

/// The new one takes the place of the old one.
pub async fn replacing_the_one_that_runs(p: &mut Place) -> Result<()> {
    let cron = cron_job(p, "cron", json!({"concurrencyPolicy": "Replace"})).await?;
    let job = job_of(p, &cron, "running").await?;
    resume(p, "cron", json!({"active": active(&job)})).await?;
    p.until_gone(JOBS, "running").await?;
    until_made(p).await?;
    p.events(&["CronJob cron SuccessfulDelete", "CronJob cron SuccessfulCreate"]).await
}

/// What was to start long ago is not started any more.
pub async fn too_late(p: &mut Place) -> Result<()> {
    cron_job(p, "late", json!({"startingDeadlineSeconds": 60})).await?;
    resume(p, "late", json!({})).await?;
    cron_job(p, "cron", json!({})).await?;
    resume(p, "cron", json!({})).await?;
    until_made(p).await?;
    p.note("late", CRON_JOBS, "late").await
}

/// More than a hundred times: that is told, and one is made.
pub async fn missed_too_often(p: &mut Place) -> Result<()> {
    cron_job(p, "cron", json!({"schedule": "0 0 1 * *"})).await?;
    resume(p, "cron", json!({"lastScheduleTime": "2010-01-01T00:00:00Z"})).await?;
    until_made(p).await?;
    p.events(&["CronJob cron TooManyMissedTimes", "CronJob cron SuccessfulCreate"]).await
}

/// A Job of it is complete.
pub async fn finished_one(p: &mut Place) -> Result<()> {
    let cron = cron_job(p, "cron", json!({})).await?;
    let job = job_of(p, &cron, "running").await?;
    p.patch_status(CRON_JOBS, "cron", json!({"active": active(&job), "lastScheduleTime": ago(60)})).await?;
    p.patch_status(JOBS, "running", finished("SuccessCriteriaMet", "Complete", 5)).await?;
    // These are two looks: the second finds a Job that ended well and is not active.
    let has_seen = |one: &Value| {
        list(one, "/status/active").is_empty() && !one["status"]["lastSuccessfulTime"].is_null()
    };
    let cron = p.until(CRON_JOBS, "cron", "to see it", has_seen).await?;
    p.write_down("cron job", cron);
    p.events(&["CronJob cron SawCompletedJob"]).await
}

/// Somebody deleted a Job of it.
pub async fn missing(p: &mut Place) -> Result<()> {
    cron_job(p, "cron", json!({})).await?;
    let nothing = json!({"metadata": {"name": "gone", "namespace": p.name(), "uid": "00000000-0000-4000-8000-000000000000"}});
    p.patch_status(CRON_JOBS, "cron", json!({"active": active(&nothing), "lastScheduleTime": ago(60)}))
        .await?;
    p.patch(CRON_JOBS, "cron", json!({"metadata": {"labels": {"look": "again"}}})).await?;
    let cron = p.until(CRON_JOBS, "cron", "to miss it", |one| list(one, "/status/active").is_empty()).await?;
    p.write_down("cron job", cron);
    p.events(&["CronJob cron MissingJob"]).await
}

/// Only so many are kept, the youngest.
pub async fn history(p: &mut Place) -> Result<()> {
    let limits = json!({"successfulJobsHistoryLimit": 1, "failedJobsHistoryLimit": 0});
    let cron = cron_job(p, "cron", limits).await?;
    for (name, seconds, last) in
        [("c", 300, "Complete"), ("b", 200, "Complete"), ("a", 100, "Complete"), ("d", 50, "Failed")]
    {
        job_of(p, &cron, name).await?;
        let first = if last == "Failed" { "FailureTarget" } else { "SuccessCriteriaMet" };
        p.patch_status(JOBS, name, finished(first, last, seconds)).await?;
    }
    p.until_all(JOBS, "one Job", |jobs| jobs.len() == 1).await?;
    p.note_all("left", JOBS).await
}
