//! Jobs, played kubelets, and a watch that sees when what is counted.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use k8s_openapi::api::batch::v1::{Job, JobStatus};
use k8s_openapi::api::core::v1::{Pod, ServiceAccount};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use windlass_conformance::Cluster;
use windlass_controllers::connect;

use crate::body::{Body, Kind};
use crate::figures::{Figures, Lag};

/// No load takes longer.
const PATIENCE: Duration = Duration::from_secs(1200);
/// Pods that kubelets report about at the same time.
const KUBELETS: usize = 32;
/// The Job whose pods end one after the other: how many, how long after the first is seen, and how long after each other.
const STEADY: &str = "steady";
const STEADY_PODS: usize = 500;
const STEADY_FIRST: Duration = Duration::from_secs(3);
const STEADY_NEXT: Duration = Duration::from_millis(20);
/// How often a small Job is run; the time is the median.
const ROUNDS: usize = 10;

/// What is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scenario {
    /// An Indexed Job whose pods succeed.
    Succeed { pods: usize },
    /// An Indexed Job whose pods fail, with a limit for each index.
    FailPerIndex { pods: usize },
    /// Jobs of one pod, one after the other.
    One,
    /// Jobs of 100 pods, one after the other.
    Hundred,
    /// Jobs of ten pods, all at once.
    Many { jobs: usize },
    /// A Job of 500 pods that end one after the other, 50 a second: the API server has time.
    Steady,
    /// Jobs of one pod, one after the other, while a large Job runs: only these are measured.
    Beside { pods: usize },
}

impl Scenario {
    pub const NAMES: [&'static str; 7] =
        ["succeed", "fail-per-index", "one", "hundred", "steady", "many", "beside"];

    pub fn named(name: &str, pods: usize, jobs: usize) -> Option<Self> {
        Some(match name {
            "succeed" => Self::Succeed { pods },
            "fail-per-index" => Self::FailPerIndex { pods },
            "one" => Self::One,
            "hundred" => Self::Hundred,
            "steady" => Self::Steady,
            "many" => Self::Many { jobs },
            "beside" => Self::Beside { pods },
            _ => return None,
        })
    }
}

/// What happened to a Job.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// When each of its pods was reported as ended.
    ended: Vec<Instant>,
    /// When its status counted how many.
    counted: Vec<(Instant, usize)>,
    finished: Option<Instant>,
}

impl Seen {
    /// For each pod in the order of their ends: until so many were counted.
    fn lags(&self) -> Vec<Duration> {
        let mut ended = self.ended.clone();
        ended.sort_unstable();
        let mut counted = self.counted.iter().peekable();
        let mut lags = Vec::new();
        for (at, end) in ended.into_iter().enumerate() {
            while counted.next_if(|(_, count)| *count <= at).is_some() {}
            lags.extend(counted.peek().map(|(when, _)| when.saturating_duration_since(end)));
        }
        lags
    }
}

type Ledger = Arc<Mutex<BTreeMap<String, Seen>>>;

/// Runs a scenario on an API server of its own.
pub async fn measure(kind: Kind, windlass: &Path, scenario: Scenario) -> Result<Figures> {
    let cluster = Cluster::start().await?;
    let client = connect::client(&cluster.config().await?, None)?;
    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "default"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let body = Body::start(kind, &cluster, windlass)?;
    let load = Load { client, kind, ledger: Ledger::default() };
    load.play_kubelets(connect::client(&cluster.config().await?, None)?);
    load.watch_jobs(connect::client(&cluster.config().await?, None)?);
    load.run("warm", 1, json!({})).await.context("the first Job")?;
    let (cpu, writes) = (body.cpu()?, load.all_writes().await?);
    let (time, names, pods) = load.play(scenario).await?;
    let cpu = body.cpu()?.saturating_sub(cpu);
    let ledger = load.ledger.lock().expect("no panic").clone();
    let lags = names.iter().filter_map(|name| ledger.get(name)).flat_map(Seen::lags).collect();
    let all = load.all_writes().await?;
    let a_pod = |all: f64, before: f64| (all - before) / pods as f64;
    Ok(Figures {
        time,
        writes_a_pod: a_pod(all.objects, writes.objects),
        events_a_pod: a_pod(all.events, writes.events),
        cpu,
        memory: body.memory()?,
        lag: Lag::of(lags),
    })
}

struct Load {
    client: Client,
    kind: Kind,
    ledger: Ledger,
}

impl Load {
    /// The time, the Jobs that count for the lag, and how many pods there were.
    async fn play(&self, scenario: Scenario) -> Result<(Duration, Vec<String>, usize)> {
        match scenario {
            Scenario::Succeed { pods } => {
                let spec = json!({"completionMode": "Indexed"});
                Ok((self.run("large", pods, spec).await?, vec!["large".to_owned()], pods))
            }
            Scenario::FailPerIndex { pods } => {
                let spec = json!({"completionMode": "Indexed", "backoffLimitPerIndex": 0});
                Ok((self.run("failing", pods, spec).await?, vec!["failing".to_owned()], pods))
            }
            Scenario::One => self.rounds(1).await,
            Scenario::Hundred => self.rounds(100).await,
            Scenario::Steady => {
                let time = self.run(STEADY, STEADY_PODS, json!({})).await?;
                Ok((time, vec![STEADY.to_owned()], STEADY_PODS))
            }
            Scenario::Many { jobs } => {
                let names: Vec<String> = (0..jobs).map(|n| format!("many-{n}")).collect();
                let start = Instant::now();
                for chunk in names.chunks(KUBELETS) {
                    futures::future::try_join_all(chunk.iter().map(|name| self.create(name, 10, json!({}))))
                        .await?;
                }
                for name in &names {
                    self.until_finished(name).await?;
                }
                Ok((start.elapsed(), names, jobs * 10))
            }
            Scenario::Beside { pods } => {
                let start = Instant::now();
                self.create("large", pods, json!({"completionMode": "Indexed"})).await?;
                let mut names = Vec::new();
                while self.finished("large").is_none() {
                    let name = format!("small-{}", names.len());
                    self.run(&name, 1, json!({})).await?;
                    names.push(name);
                }
                let all = pods + names.len();
                Ok((start.elapsed(), names, all))
            }
        }
    }

    async fn rounds(&self, pods: usize) -> Result<(Duration, Vec<String>, usize)> {
        let (mut times, mut names) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            let name = format!("round-{round}");
            times.push(self.run(&name, pods, json!({})).await?);
            names.push(name);
        }
        times.sort_unstable();
        Ok((times[ROUNDS / 2], names, ROUNDS * pods))
    }

    /// Runs a Job to its end.
    async fn run(&self, name: &str, pods: usize, spec: Value) -> Result<Duration> {
        let start = Instant::now();
        self.create(name, pods, spec).await?;
        Ok(self.until_finished(name).await?.saturating_duration_since(start))
    }

    async fn create(&self, name: &str, pods: usize, spec: Value) -> Result<()> {
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {
                "completions": pods, "parallelism": pods, "managedBy": self.kind.managed_by(),
                "template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]}},
            },
        });
        for (field, value) in spec.as_object().context("a map")? {
            job["spec"][field] = value.clone();
        }
        let jobs: Api<Job> = Api::namespaced(self.client.clone(), "default");
        jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
        Ok(())
    }

    fn finished(&self, name: &str) -> Option<Instant> {
        self.ledger.lock().expect("no panic").get(name).and_then(|seen| seen.finished)
    }

    async fn until_finished(&self, name: &str) -> Result<Instant> {
        let start = Instant::now();
        loop {
            if let Some(finished) = self.finished(name) {
                return Ok(finished);
            }
            if start.elapsed() > PATIENCE {
                bail!("Job {name} did not end in {PATIENCE:?}");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }

    /// Every pod ends when it is seen: those of `failing` badly, and those of `steady` when it is their turn.
    fn play_kubelets(&self, client: Client) {
        let pods: Api<Pod> = Api::namespaced(client, "default");
        let (ledger, kubelets) = (Arc::clone(&self.ledger), Arc::new(Semaphore::new(KUBELETS)));
        tokio::spawn(async move {
            let (mut done, mut steady) = (HashSet::new(), None);
            let mut changes =
                watcher::watcher(pods.clone(), watcher::Config::default()).default_backoff().boxed();
            while let Some(change) = changes.next().await {
                let Ok(Event::Apply(pod) | Event::InitApply(pod)) = change else { continue };
                if !done.insert(pod.uid()) {
                    continue;
                }
                let (pods, ledger, kubelets) = (pods.clone(), Arc::clone(&ledger), Arc::clone(&kubelets));
                let job = pod.labels().get("batch.kubernetes.io/job-name").cloned().unwrap_or_default();
                let end = (job == STEADY).then(|| {
                    let next = steady.map_or(Instant::now() + STEADY_FIRST, |last| last + STEADY_NEXT);
                    *steady.insert(next)
                });
                tokio::spawn(async move {
                    if let Some(end) = end {
                        tokio::time::sleep_until(end.into()).await;
                    }
                    let _turn = kubelets.acquire().await;
                    let phase = if job == "failing" { "Failed" } else { "Succeeded" };
                    let status = Patch::Merge(json!({"status": {"phase": phase}}));
                    if pods.patch_status(&pod.name_any(), &PatchParams::default(), &status).await.is_ok() {
                        ledger.lock().expect("no panic").entry(job).or_default().ended.push(Instant::now());
                    }
                });
            }
        });
    }

    fn watch_jobs(&self, client: Client) {
        let jobs: Api<Job> = Api::namespaced(client, "default");
        let ledger = Arc::clone(&self.ledger);
        tokio::spawn(async move {
            let mut changes = watcher::watcher(jobs, watcher::Config::default()).default_backoff().boxed();
            while let Some(change) = changes.next().await {
                let Ok(Event::Apply(job) | Event::InitApply(job)) = change else { continue };
                let Some(status) = &job.status else { continue };
                let (now, count) = (Instant::now(), counted(status));
                let mut ledger = ledger.lock().expect("no panic");
                let seen = ledger.entry(job.name_any()).or_default();
                if seen.counted.last().is_none_or(|(_, before)| *before < count) {
                    seen.counted.push((now, count));
                }
                let is_end = |kind: &str| kind == "Complete" || kind == "Failed";
                let ends = status.conditions.iter().flatten().any(|c| is_end(&c.type_) && c.status == "True");
                if ends {
                    seen.finished.get_or_insert(now);
                }
            }
        });
    }

    /// Writes of controllers once no more come: events are published on the side, after the end.
    async fn all_writes(&self) -> Result<Writes> {
        let mut before = None;
        loop {
            let writes = self.writes().await?;
            if before.replace(writes) == Some(writes) {
                return Ok(writes);
            }
            tokio::time::sleep(Duration::from_secs(2)).await;
        }
    }

    /// Writes of controllers so far. The harness writes statuses of pods, and Jobs.
    async fn writes(&self) -> Result<Writes> {
        let request = http::Request::get("/metrics").body(Vec::new())?;
        let text = self.client.request_text(request).await?;
        let label = |line: &str, name: &str| {
            let rest = line.split_once(&format!("{name}=\""))?.1;
            Some(rest.split_once('"')?.0.to_owned())
        };
        let mut sum = Writes::default();
        for line in text.lines().filter(|line| line.starts_with("apiserver_request_total{")) {
            let get = |name: &str| label(line, name).unwrap_or_default();
            if !["POST", "PUT", "PATCH", "APPLY", "DELETE"].contains(&get(",verb").as_str()) {
                continue;
            }
            let count = line.rsplit_once(' ').context("a value")?.1.parse::<f64>()?;
            match (&*get(",resource"), &*get(",subresource")) {
                ("pods", "") | ("jobs", "status") => sum.objects += count,
                ("events", "") => sum.events += count,
                _ => {}
            }
        }
        Ok(sum)
    }
}

/// What controllers have written.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Writes {
    /// Pods, and statuses of Jobs.
    objects: f64,
    events: f64,
}

/// Pods that the status has counted, or holds as ended.
fn counted(status: &JobStatus) -> usize {
    let uncounted = status.uncounted_terminated_pods.clone().unwrap_or_default();
    let held = uncounted.succeeded.iter().flatten().chain(uncounted.failed.iter().flatten()).count();
    let settled = status.succeeded.unwrap_or(0).max(0) + status.failed.unwrap_or(0).max(0);
    usize::try_from(settled).unwrap_or_default() + held
}
