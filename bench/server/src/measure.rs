//! What is measured, the same way for every server.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use http::StatusCode;
use http_body_util::BodyExt;
use serde_json::json;
use tokio::task::LocalSet;

use crate::client::{Client, Endpoint};

pub const CLIENTS: usize = 64;
pub const PODS: usize = 10_000;
pub const WATCHERS: usize = 10;
/// Pods that are made while the watchers look on: as fast as possible, then at an even pace.
const FAN_OUT_PODS: usize = 2_000;
const PACED_PODS: usize = 600;
pub const PACE: Duration = Duration::from_millis(5);
const LISTS: usize = 7;
/// What a server does after its start is done by then.
const SETTLING: Duration = Duration::from_secs(5);
const PATH: &str = "/api/v1/namespaces/bench/pods";

/// How long starts took.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    /// With an empty directory.
    pub first: Vec<Duration>,
    /// With one that was used before.
    pub again: Vec<Duration>,
}

impl Starts {
    /// One that was started once.
    pub fn once(start: Duration) -> Self {
        Self { first: vec![start], again: Vec::new() }
    }
}

/// What came of it.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Creates a second of all clients together.
    pub creates: f64,
    /// A list of all pods.
    pub list: Duration,
    pub list_bytes: u64,
    /// Events a second that reached all watchers together.
    pub events: f64,
    /// From the sending of a create to its event at a watcher, at an even pace.
    pub lag_p50: Duration,
    pub lag_p99: Duration,
    pub idle_bytes: u64,
    pub starts: Starts,
}

/// Measures everything but what comes before the first request.
pub async fn all(name: &str, endpoint: &Endpoint, idle_bytes: u64, starts: Starts) -> Result<Measured> {
    prepare(endpoint).await?;
    eprintln!("{name}: {PODS} creates");
    let creates = LocalSet::new().run_until(creates(endpoint, "pod", PODS)).await?;
    eprintln!("{name}: {creates:.0} creates/s; lists");
    let (list, list_bytes) = list(endpoint).await?;
    eprintln!("{name}: a list in {list:.1?}; watches");
    let events = LocalSet::new().run_until(fan_out(endpoint)).await?;
    eprintln!("{name}: {events:.0} events/s; idle {idle_bytes} bytes; starts {starts:.0?}");
    let (lag_p50, lag_p99) = LocalSet::new().run_until(lag(endpoint)).await?;
    Ok(Measured { creates, list, list_bytes, events, lag_p50, lag_p99, idle_bytes, starts })
}

/// Creates a second, and nothing else.
pub async fn creates_alone(name: &str, endpoint: &Endpoint) -> Result<f64> {
    prepare(endpoint).await?;
    eprintln!("{name}: {PODS} creates");
    LocalSet::new().run_until(creates(endpoint, "pod", PODS)).await
}

/// A namespace, and the service account that kube-apiserver wants to see in it.
async fn prepare(endpoint: &Endpoint) -> Result<()> {
    let mut client = endpoint.connect().await?;
    let body = |value: serde_json::Value| Bytes::from(value.to_string());
    let namespace = body(json!({"metadata": {"name": "bench"}}));
    let made = client.post("/api/v1/namespaces", namespace).await?;
    ensure!(made == StatusCode::CREATED, "create a namespace: {made}");
    let account = body(json!({"metadata": {"name": "default"}}));
    let made = client.post("/api/v1/namespaces/bench/serviceaccounts", account).await?;
    ensure!([StatusCode::CREATED, StatusCode::CONFLICT].contains(&made), "create a service account: {made}");
    Ok(())
}

/// A pod as a Job makes them. Its scheduler is nobody's, so that it stays as it is.
fn pod(name: &str) -> Bytes {
    let index = name.rsplit('-').next().unwrap_or_default();
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name,
            "annotations": {"batch.kubernetes.io/job-completion-index": index},
            "labels": {
                "batch.kubernetes.io/controller-uid": "5b7f3a52-2d7d-4a3e-9d51-000000000000",
                "batch.kubernetes.io/job-completion-index": index,
                "batch.kubernetes.io/job-name": "bench", "controller-uid": "5b7f3a52-2d7d-4a3e-9d51-000000000000",
                "job-name": "bench", "app": "measure",
            },
            "finalizers": ["batch.kubernetes.io/job-tracking"],
        },
        "spec": {
            "restartPolicy": "Never", "schedulerName": "nobody", "automountServiceAccountToken": false,
            "containers": [{
                "name": "main", "image": "registry.example/worker:1.2.3",
                "command": ["/bin/worker", "--shard", index, "--input", "/data/in", "--output", "/data/out"],
                "env": [
                    {"name": "JOB_COMPLETION_INDEX", "valueFrom": {"fieldRef": {
                        "fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}},
                    {"name": "MODE", "value": "batch"},
                ],
                "resources": {"requests": {"cpu": "500m", "memory": "256Mi"}, "limits": {"memory": "512Mi"}},
                "volumeMounts": [{"name": "scratch", "mountPath": "/data"}],
            }],
            "volumes": [{"name": "scratch", "emptyDir": {}}],
        },
    });
    Bytes::from(pod.to_string())
}

async fn connections(endpoint: &Endpoint, count: usize) -> Result<Vec<Client>> {
    let mut clients = Vec::new();
    for _ in 0..count {
        clients.push(endpoint.connect().await?);
    }
    Ok(clients)
}

async fn create(client: &mut Client, body: Bytes) -> Result<()> {
    let made = client.post(PATH, body).await?;
    ensure!(made == StatusCode::CREATED, "create a pod: {made}");
    Ok(())
}

/// Every client makes a pod, and then the next, until there are enough. Creates a second.
async fn creates(endpoint: &Endpoint, prefix: &'static str, count: usize) -> Result<f64> {
    // The bodies are made before the clock runs.
    let bodies: Rc<RefCell<Vec<Bytes>>> =
        Rc::new(RefCell::new((0..count).map(|i| pod(&format!("{prefix}-{i}"))).collect()));
    let clients = connections(endpoint, CLIENTS).await?;
    let began = Instant::now();
    let tasks: Vec<_> = clients
        .into_iter()
        .map(|mut client| {
            let bodies = Rc::clone(&bodies);
            tokio::task::spawn_local(async move {
                loop {
                    let Some(body) = bodies.borrow_mut().pop() else { return Ok(()) };
                    create(&mut client, body).await?;
                }
            })
        })
        .collect();
    for task in tasks {
        let done: Result<()> = task.await.context("wait for a client")?;
        done?;
    }
    Ok(count as f64 / began.elapsed().as_secs_f64())
}

/// The median, and the length of the answer.
async fn list(endpoint: &Endpoint) -> Result<(Duration, u64)> {
    let mut client = endpoint.connect().await?;
    let mut times = Vec::new();
    let mut length = 0;
    for _ in 0..LISTS {
        let began = Instant::now();
        length = client.get(PATH).await?;
        times.push(began.elapsed());
    }
    Ok((quantile(&mut times, 0.5), length))
}

/// When each pod was sent, by name.
type Sent = Rc<RefCell<HashMap<String, Instant>>>;

/// Counts events, and takes the time of those that it knows.
struct Watcher {
    events: Rc<Cell<usize>>,
    sent: Sent,
    lags: Rc<RefCell<Vec<Duration>>>,
}

impl Watcher {
    async fn run(self, mut client: Client, path: String) -> Result<()> {
        let mut body = client.stream(&path).await?;
        let mut line: Vec<u8> = Vec::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.context("read a watch")?;
            for piece in frame.data_ref().map_or(&[][..], |data| data).split_inclusive(|byte| *byte == b'\n')
            {
                line.extend_from_slice(piece);
                if line.ends_with(b"\n") {
                    self.take(&line);
                    line.clear();
                }
            }
        }
        Ok(())
    }

    fn take(&self, line: &[u8]) {
        self.events.set(self.events.get() + 1);
        if let Some(sent) = name_of(line).and_then(|name| self.sent.borrow().get(name).copied()) {
            self.lags.borrow_mut().push(sent.elapsed());
        }
    }
}

/// The first name in an event is that of the object: nothing before it in `metadata` has one.
fn name_of(line: &[u8]) -> Option<&str> {
    const BEFORE: &[u8] = b"\"name\":\"";
    let at = line.windows(BEFORE.len()).position(|window| window == BEFORE)? + BEFORE.len();
    let length = line[at..].iter().position(|byte| *byte == b'"')?;
    std::str::from_utf8(&line[at..at + length]).ok()
}

/// Watchers of what comes from now on.
async fn watch(endpoint: &Endpoint, sent: &Sent) -> Result<(Rc<Cell<usize>>, Rc<RefCell<Vec<Duration>>>)> {
    let (events, lags) = (Rc::new(Cell::new(0)), Rc::new(RefCell::new(Vec::new())));
    let revision = revision(endpoint).await?;
    let path = format!("{PATH}?watch=true&resourceVersion={revision}");
    for client in connections(endpoint, WATCHERS).await? {
        let watcher = Watcher { events: Rc::clone(&events), sent: Rc::clone(sent), lags: Rc::clone(&lags) };
        tokio::task::spawn_local(watcher.run(client, path.clone()));
    }
    Ok((events, lags))
}

async fn revision(endpoint: &Endpoint) -> Result<String> {
    let mut body = endpoint.connect().await?.stream(&format!("{PATH}?limit=1")).await?;
    let mut text = Vec::new();
    while let Some(frame) = body.frame().await {
        text.extend_from_slice(frame.context("read a list")?.data_ref().map_or(&[][..], |data| data));
    }
    let list: serde_json::Value = serde_json::from_slice(&text).context("read a list")?;
    Ok(list["metadata"]["resourceVersion"].as_str().context("a list has a version")?.to_owned())
}

async fn wait_for(events: &Cell<usize>, count: usize) {
    while events.get() < count {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Events a second that all watchers together got, while all clients create.
async fn fan_out(endpoint: &Endpoint) -> Result<f64> {
    let (events, _) = watch(endpoint, &Sent::default()).await?;
    let began = Instant::now();
    creates(endpoint, "fan", FAN_OUT_PODS).await?;
    wait_for(&events, FAN_OUT_PODS * WATCHERS).await;
    Ok((FAN_OUT_PODS * WATCHERS) as f64 / began.elapsed().as_secs_f64())
}

/// What it takes from the sending of a create to its event at a watcher, when there is little else to do.
async fn lag(endpoint: &Endpoint) -> Result<(Duration, Duration)> {
    let sent = Sent::default();
    let (events, lags) = watch(endpoint, &sent).await?;
    let clients = Rc::new(RefCell::new(connections(endpoint, CLIENTS).await?));
    let mut tick = tokio::time::interval(PACE);
    for i in 0..PACED_PODS {
        tick.tick().await;
        let name = format!("lag-{i}");
        let body = pod(&name);
        // A server that does not keep up gets them as fast as it can take them.
        let mut client = loop {
            if let Some(client) = clients.borrow_mut().pop() {
                break client;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        sent.borrow_mut().insert(name, Instant::now());
        let clients = Rc::clone(&clients);
        tokio::task::spawn_local(async move {
            create(&mut client, body).await?;
            clients.borrow_mut().push(client);
            anyhow::Ok(())
        });
    }
    wait_for(&events, PACED_PODS * WATCHERS).await;
    let mut lags = lags.take();
    Ok((quantile(&mut lags, 0.5), quantile(&mut lags, 0.99)))
}

/// What processes hold in memory once they have come to rest.
pub async fn idle_bytes(processes: &[u32]) -> Result<u64> {
    tokio::time::sleep(SETTLING).await;
    let mut sum = 0;
    for process in processes {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).context("read its status")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("its memory")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().context("read its memory")?;
        sum += kilobytes * 1024;
    }
    Ok(sum)
}

pub fn quantile(times: &mut [Duration], part: f64) -> Duration {
    times.sort_unstable();
    let at = ((times.len() as f64 * part) as usize).min(times.len().saturating_sub(1));
    times.get(at).copied().unwrap_or_default()
}
