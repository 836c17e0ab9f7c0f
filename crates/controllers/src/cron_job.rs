//! CronJobs: a Job for each time of their schedule, as far as their policies allow.

mod decide;
mod times;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::{CronJob, CronJobStatus, Job};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::core::discovery::ApiResource;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource, ResourceExt};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::calls::{is_namespace_ending, words};
use crate::events::{Recorder, Report};
use crate::metrics::Metrics;
use crate::queue::Queue;
use crate::{Clock, watch, wire};
use decide::{Child, Observed, Plan, Said, Start, decide};

const WORKERS: usize = 5;
const COMPONENT: &str = "cronjob-controller";
const STAMP: &str = "batch.kubernetes.io/cronjob-scheduled-timestamp";

/// Namespace and name of a CronJob.
type Key = (String, String);

/// Makes Jobs on schedule, until cancelled.
pub async fn run(client: Client, clock: Clock, metrics: Metrics, cancel: CancellationToken) {
    let (recorder, publishing) = Recorder::new(client.clone(), COMPONENT, Arc::clone(&clock));
    let (children, queue) = (Mutex::default(), Queue::new("cronjob", &metrics));
    let this = Arc::new(Controller { client, clock, metrics, recorder, children, queue });
    let mut tasks = JoinSet::new();
    tasks.spawn({
        let cancel = cancel.clone();
        async move {
            tokio::select! { () = cancel.cancelled() => {}, () = publishing => {} }
        }
    });
    let jobs =
        watch::follow(Api::<Job>::all(this.client.clone()), cancel.clone(), |event| this.take_job(event));
    let cron_jobs = watch::follow(Api::<CronJob>::all(this.client.clone()), cancel.clone(), |event| {
        if let Event::InitApply(cron_job) | Event::Apply(cron_job) = event {
            this.queue.add((cron_job.namespace().unwrap_or_default(), cron_job.name_any()));
        }
    });
    for _ in 0..WORKERS {
        tasks.spawn(Arc::clone(&this).work(cancel.clone()));
    }
    futures::future::join(jobs, cron_jobs).await;
    while tasks.join_next().await.is_some() {}
}

struct Controller {
    client: Client,
    clock: Clock,
    metrics: Metrics,
    recorder: Recorder,
    /// The Jobs of each CronJob, by UID.
    children: Mutex<BTreeMap<Key, BTreeMap<String, Child>>>,
    queue: Queue<Key>,
}

impl Controller {
    fn take_job(&self, event: Event<Job>) {
        match event {
            Event::Init => self.children.lock().clear(),
            Event::InitDone => {}
            Event::InitApply(job) | Event::Apply(job) => {
                let Some(key) = owner(&job) else { return };
                let child = Child::of(&job);
                let mut all = self.children.lock();
                let old = all.entry(key.clone()).or_default().insert(child.uid.clone(), child.clone());
                drop(all);
                if old.as_ref() != Some(&child) {
                    self.queue.add(key);
                }
            }
            Event::Delete(job) => {
                let Some(key) = owner(&job) else { return };
                let mut all = self.children.lock();
                if let Some(children) = all.get_mut(&key) {
                    children.remove(&job.uid().unwrap_or_default());
                    if children.is_empty() {
                        all.remove(&key);
                    }
                }
                drop(all);
                self.queue.add(key);
            }
        }
    }

    async fn work(self: Arc<Self>, cancel: CancellationToken) {
        loop {
            let key = tokio::select! { () = cancel.cancelled() => return, key = self.queue.next() => key };
            match self.look(&key).await {
                Ok(wake) => {
                    self.queue.forget_failures(&key);
                    if let Some(wake) = wake {
                        let wait = wake.duration_since((self.clock)()).max(SignedDuration::ZERO);
                        self.queue.add_at(key.clone(), Instant::now() + wait.unsigned_abs());
                    }
                }
                Err(error) => {
                    tracing::debug!(cron_job = key.1, %error, "a CronJob was not followed, trying again");
                    self.queue.retry(key.clone());
                }
            }
            self.queue.done(&key);
        }
    }

    /// Does what is due, and says when to look again.
    async fn look(&self, key: &Key) -> kube::Result<Option<Timestamp>> {
        let kind = ApiResource::erase::<CronJob>(&());
        let cron_jobs: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &key.0, &kind);
        let Some(raw) = cron_jobs.get_opt(&key.1).await? else { return Ok(None) };
        // The template is passed on as it is; the rest is read.
        let cron_job: CronJob =
            raw.clone().try_parse().map_err(|error| kube::Error::Service(error.to_string().into()))?;
        let mut children: Vec<Child> = {
            let all = self.children.lock();
            all.get(key).into_iter().flat_map(BTreeMap::values).cloned().collect()
        };
        children.sort_by(|a, b| a.name.cmp(&b.name));
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), &key.0);
        let missing = missing(&jobs, &cron_job, &children).await?;
        let zone = match cron_job.spec.time_zone.as_deref() {
            Some(name) => TimeZone::get(name).ok(),
            None => Some(TimeZone::system()),
        };
        let now = (self.clock)();
        let observed = Observed { cron_job: &cron_job, children: &children, missing: &missing, zone, now };
        let Plan { prune, events, mut status, start, wake } = decide(&observed);
        events.into_iter().for_each(|said| self.say(&cron_job, said));
        for child in &prune {
            self.delete(&jobs, &cron_job, &child.name).await?;
        }
        let started = match start {
            Some(start) => self.start(&jobs, &cron_job, &raw.data, start, &mut status).await,
            None => Ok(()),
        };
        if status != cron_job.status.clone().unwrap_or_default() {
            self.write(&cron_jobs, &cron_job, &status).await?;
        }
        started.map(|()| wake)
    }

    /// Makes the Job, and takes it into the status.
    async fn start(
        &self,
        jobs: &Api<Job>,
        cron_job: &CronJob,
        data: &Value,
        start: Start,
        status: &mut CronJobStatus,
    ) -> kube::Result<()> {
        for old in &start.replaces {
            self.delete(jobs, cron_job, old.name.as_deref().unwrap_or_default()).await?;
            status.active.iter_mut().for_each(|active| active.retain(|one| one.uid != old.uid));
        }
        let made = match create(jobs, cron_job, data, &start).await {
            Ok(job) => {
                self.metrics.job_scheduled((self.clock)().duration_since(start.time));
                let message = format!("Created job {}", start.name);
                self.say(cron_job, Said { is_warning: false, reason: "SuccessfulCreate", message });
                job
            }
            Err(kube::Error::Api(refused)) if refused.is_already_exists() => {
                // Ours from before a crash, or somebody else's, who then sees to the status.
                let job = jobs.get(&start.name).await?;
                let is_ours = wire::controller(&job.metadata)
                    .is_some_and(|owner| Some(&owner.uid) == cron_job.uid().as_ref());
                if !is_ours {
                    return Ok(());
                }
                job
            }
            // Any other would fail too.
            Err(kube::Error::Api(refused)) if is_namespace_ending(&refused) => {
                return Err(kube::Error::Api(refused));
            }
            Err(error) => {
                let message = format!("Error creating job: {}", words(&error));
                self.say(cron_job, Said { is_warning: true, reason: "FailedCreate", message });
                return Err(error);
            }
        };
        let reference = ObjectReference {
            api_version: Some("batch/v1".to_owned()),
            kind: Some("Job".to_owned()),
            namespace: made.namespace(),
            name: Some(made.name_any()),
            uid: made.uid(),
            resource_version: made.resource_version(),
            ..ObjectReference::default()
        };
        let active = status.active.get_or_insert_default();
        if !active.iter().any(|one| one.uid == reference.uid) {
            active.push(reference);
        }
        status.last_schedule_time = Some(Time(start.time));
        Ok(())
    }

    async fn delete(&self, jobs: &Api<Job>, cron_job: &CronJob, name: &str) -> kube::Result<()> {
        match jobs.delete(name, &DeleteParams::background()).await {
            Ok(_) => {
                let message = format!("Deleted job {name}");
                self.say(cron_job, Said { is_warning: false, reason: "SuccessfulDelete", message });
                Ok(())
            }
            Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
            Err(error) => {
                let message = format!("Deleted job: {}", words(&error));
                self.say(cron_job, Said { is_warning: true, reason: "FailedDelete", message });
                Err(error)
            }
        }
    }

    /// Writes the status over the one that was decided on, and no other.
    async fn write(
        &self,
        cron_jobs: &Api<DynamicObject>,
        cron_job: &CronJob,
        status: &CronJobStatus,
    ) -> kube::Result<()> {
        let patch = json!({
            "metadata": {"resourceVersion": cron_job.resource_version()},
            "status": {
                "active": status.active.as_ref().filter(|active| !active.is_empty()),
                "lastScheduleTime": status.last_schedule_time,
                "lastSuccessfulTime": status.last_successful_time,
            },
        });
        let params = PatchParams::default();
        cron_jobs.patch_status(&cron_job.name_any(), &params, &Patch::Merge(patch)).await.map(drop)
    }

    fn say(&self, cron_job: &CronJob, said: Said) {
        let Said { is_warning, reason, message } = said;
        let about = cron_job.object_ref(&());
        self.recorder.publish(Report { about, is_warning, reason: reason.to_owned(), message });
    }
}

/// Active Jobs that no watch has brought and the server does not have.
async fn missing(jobs: &Api<Job>, cron_job: &CronJob, children: &[Child]) -> kube::Result<BTreeSet<String>> {
    let mut missing = BTreeSet::new();
    let active = cron_job.status.as_ref().and_then(|status| status.active.as_deref()).unwrap_or_default();
    for one in active {
        let uid = one.uid.clone().unwrap_or_default();
        let is_known = children.iter().any(|child| child.uid == uid);
        if !is_known && jobs.get_opt(one.name.as_deref().unwrap_or_default()).await?.is_none() {
            missing.insert(uid);
        }
    }
    Ok(missing)
}

async fn create(jobs: &Api<Job>, cron_job: &CronJob, data: &Value, start: &Start) -> kube::Result<Job> {
    let template = &data["spec"]["jobTemplate"];
    let mut annotations = template["metadata"]["annotations"].clone();
    if !annotations.is_object() {
        annotations = json!({});
    }
    annotations[STAMP] = json!(start.stamp);
    let body = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": start.name,
            "labels": template["metadata"]["labels"],
            "annotations": annotations,
            "ownerReferences": [cron_job.controller_owner_ref(&()).map(|owner| json!({
                "apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid,
                "controller": true, "blockOwnerDeletion": true,
            }))],
        },
        "spec": template["spec"],
    });
    let bytes = serde_json::to_vec(&body).map_err(kube::Error::SerdeError)?;
    let request = kube::core::Request::new(jobs.resource_url()).create(&PostParams::default(), bytes);
    jobs.clone().into_client().request(request.map_err(kube::Error::BuildRequest)?).await
}

/// The CronJob that controls a Job, by name.
fn owner(job: &Job) -> Option<Key> {
    let owner = wire::controller(&job.metadata)?;
    let is_ours = owner.kind == "CronJob" && owner.api_version.starts_with("batch/");
    is_ours.then(|| (job.namespace().unwrap_or_default(), owner.name.clone()))
}
