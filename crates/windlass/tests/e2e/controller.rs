//! `windlass controller`, real processes of it, on an API server that the test listens to.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use axum::body::Body;
use futures::StreamExt;
use http::{Method, Request, Response, header};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, ResourceExt};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower::Service;
use windlass_apiserver::Server;

use crate::support::{PATIENCE, Running, windlass};

/// A request as it came.
#[derive(Clone, Debug)]
struct Asked {
    token: String,
    method: Method,
    path: String,
}

impl Asked {
    /// Others than those about the Lease.
    fn is_write(&self) -> bool {
        self.method != Method::GET && !self.path.contains("/leases")
    }
}

/// An API server over plain HTTP, which remembers who asked for what.
#[derive(Clone)]
struct Cluster {
    server: Server,
    client: Client,
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    /// While false, pods that `a` creates after the first few are neither created nor answered.
    answers_a: Arc<watch::Sender<bool>>,
    directory: Arc<tempfile::TempDir>,
}

/// Pods of `a` that are created while it is not answered.
const CREATED_BY_A: usize = 20;

impl Cluster {
    async fn start() -> Self {
        let server = Server::new(windlass_apiserver::Config::default());
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let cluster = Self {
            client: Client::new(server.router(), "default"),
            server,
            address: listener.local_addr().expect("an address"),
            asked: Arc::default(),
            answers_a: Arc::new(watch::Sender::new(true)),
            directory: Arc::new(tempfile::tempdir().expect("a directory")),
        };
        tokio::spawn(cluster.clone().serve(listener));
        cluster
    }

    async fn serve(self, listener: TcpListener) {
        while let Ok((stream, _)) = listener.accept().await {
            let cluster = self.clone();
            let answer = service_fn(move |request| cluster.clone().answer(request));
            tokio::spawn(http1::Builder::new().serve_connection(TokioIo::new(stream), answer));
        }
    }

    async fn answer(self, request: Request<hyper::body::Incoming>) -> Result<Response<Body>, Infallible> {
        let header = request.headers().get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = header.and_then(|value| value.strip_prefix("Bearer ")).unwrap_or_default().to_owned();
        let asked = Asked { token, method: request.method().clone(), path: request.uri().path().to_owned() };
        let is_creation = asked.token == "a" && asked.method == Method::POST && asked.path.ends_with("/pods");
        let before = {
            let mut all = self.asked.lock().expect("the log");
            all.push(asked);
            all.iter().filter(|asked| asked.token == "a" && asked.path.ends_with("/pods")).count()
        };
        if is_creation && before > CREATED_BY_A {
            let mut answers = self.answers_a.subscribe();
            if !*answers.borrow_and_update() {
                answers.wait_for(|answers| *answers).await.expect("the cluster is there");
                let mut gone = Response::new(Body::empty());
                *gone.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
                return Ok(gone);
            }
        }
        self.server.router().call(request).await
    }

    fn kubeconfig(&self, token: &str) -> PathBuf {
        let path = self.directory.path().join(format!("{token}.kubeconfig"));
        let text = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "c",
            "clusters": [{"name": "c", "cluster": {"server": format!("http://{}", self.address)}}],
            "users": [{"name": "u", "user": {"token": token}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        });
        std::fs::write(&path, text.to_string()).expect("written");
        path
    }

    fn controller(&self, token: &str, args: &[&str]) -> Running {
        let kubeconfig = self.kubeconfig(token);
        let base = ["controller", "--kubeconfig", kubeconfig.to_str().expect("UTF-8")];
        let health = ["--listen-health", "127.0.0.1:0"];
        let args: Vec<&str> = base.into_iter().chain(health).chain(args.iter().copied()).collect();
        Running::spawn(&mut windlass(&args))
    }

    fn jobs(&self, namespace: &str) -> Api<Job> {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn create_job(&self, namespace: &str, name: &str, spec: Value) {
        let mut job = json!({
            "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}],
            }}},
        });
        for (field, value) in spec.as_object().expect("a map") {
            job["spec"][field] = value.clone();
        }
        let job = serde_json::from_value(job).expect("a Job");
        self.jobs(namespace).create(&PostParams::default(), &job).await.expect("created");
    }

    /// Every pod succeeds, from now on.
    fn kubelet(&self) {
        let client = self.client.clone();
        tokio::spawn(async move {
            let all: Api<Pod> = Api::all(client.clone());
            let mut changes = watcher::watcher(all, watcher::Config::default()).default_backoff().boxed();
            while let Some(change) = changes.next().await {
                let Ok(Event::Apply(pod) | Event::InitApply(pod)) = change else { continue };
                let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
                if phase == Some("Pending") {
                    let pods: Api<Pod> = Api::namespaced(client.clone(), &pod.namespace().expect("one"));
                    let status = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
                    // It may be gone.
                    _ = pods.patch_status(&pod.name_any(), &PatchParams::default(), &status).await;
                }
            }
        });
    }

    async fn until_complete(&self, namespace: &str, name: &str) -> Job {
        let (jobs, start) = (self.jobs(namespace), std::time::Instant::now());
        loop {
            let job = jobs.get(name).await.expect("the Job");
            if job.status.as_ref().is_some_and(|status| status.completion_time.is_some()) {
                return job;
            }
            assert!(start.elapsed() < PATIENCE, "{job:#?}");
            tokio::time::sleep(std::time::Duration::from_millis(5)).await;
        }
    }

    fn asked(&self) -> Vec<Asked> {
        self.asked.lock().expect("the log").clone()
    }

    fn until_asked(&self, what: impl Fn(&[Asked]) -> bool) {
        crate::support::wait_until("requests", || what(&self.asked()).then_some(()));
    }

    async fn holder(&self) -> Option<String> {
        let leases: Api<Lease> = Api::namespaced(self.client.clone(), "default");
        leases.get("windlass-job-controller").await.expect("a Lease").spec?.holder_identity
    }
}

/// Code and body of a GET.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).expect("connected");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("asked");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("answered");
    let code = answer.split_whitespace().nth(1).and_then(|code| code.parse().ok()).expect("a code");
    (code, answer.split_once("\r\n\r\n").expect("a body").1.to_owned())
}

/// Times that pass soon, and not so soon that a busy machine loses the lease.
const LEASE: [&str; 6] = [
    "--leader-elect-lease-duration",
    "8s",
    "--leader-elect-renew-deadline",
    "6s",
    "--leader-elect-retry-period",
    "1s",
];

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_was_stopped_writes_nothing_after_another_has_taken_over() {
    const PODS: usize = 200;
    let cluster = Cluster::start().await;
    let mut a = cluster.controller("a", &LEASE);
    a.wait_for_lines(&["leads by the lease default/windlass-job-controller"]);
    let mut b = cluster.controller("b", &LEASE);
    b.wait_for_lines(&["waits for the lease default/windlass-job-controller"]);
    cluster.answers_a.send_replace(false);
    let spec = json!({"managedBy": "windlass.dev/job-controller", "completions": PODS, "parallelism": PODS});
    cluster.create_job("default", "j", spec).await;
    // It has asked for more than it is answered, and wants still more.
    cluster
        .until_asked(|asked| asked.iter().filter(|a| a.path.ends_with("/pods")).count() > CREATED_BY_A + 10);
    a.signal(Signal::STOP);
    b.wait_for_lines(&["leads by the lease"]);
    cluster.until_asked(|asked| asked.iter().any(|asked| asked.token == "b" && asked.is_write()));
    let taken_over = cluster.asked().len();
    cluster.answers_a.send_replace(true);
    a.signal(Signal::CONT);
    a.wait_for_lines(&["lost the lease"]);
    a.wait_for_nth("waits for the lease", 2);
    cluster.kubelet();
    let job = cluster.until_complete("default", "j").await;
    assert_eq!(job.status.expect("a status").succeeded, Some(PODS as i32));
    let late: Vec<Asked> =
        cluster.asked().drain(taken_over..).filter(|asked| asked.token == "a" && asked.is_write()).collect();
    assert_eq!(late.len(), 0, "{late:#?}");
    let pods: Api<Pod> = Api::namespaced(cluster.client.clone(), "default");
    let pods = pods.list(&ListParams::default()).await.expect("pods");
    let names: BTreeSet<String> = pods.iter().map(ResourceExt::name_any).collect();
    assert_eq!(names.len(), PODS, "never-too-many");
    // The first is a good candidate again, and need not wait for a lease that was given back.
    b.signal(Signal::TERM);
    assert_eq!(b.finish().code, Some(0));
    a.wait_for_nth("leads by the lease", 2);
    cluster.create_job("default", "k", json!({"managedBy": "windlass.dev/job-controller"})).await;
    cluster.until_complete("default", "k").await;
    a.signal(Signal::TERM);
    assert_eq!(a.finish().code, Some(0));
    assert_eq!(cluster.holder().await, None, "given back");
}

#[tokio::test(flavor = "multi_thread")]
async fn health_and_figures_can_be_asked_for() {
    let cluster = Cluster::start().await;
    cluster.kubelet();
    let mut controller = cluster.controller("c", &["--manage", "all"]);
    let line = controller.wait_for_nth("health and metrics at http://", 1);
    let address = line.rsplit_once("http://").expect("an address").1.to_owned();
    crate::support::wait_until("readiness", || (get(&address, "/readyz").0 == 200).then_some(()));
    assert_eq!(get(&address, "/livez"), (200, "ok".to_owned()));
    assert_eq!(get(&address, "/other").0, 404);
    cluster.create_job("default", "j", json!({"completions": 2, "parallelism": 2})).await;
    cluster.until_complete("default", "j").await;
    let finished = r#"job_controller_jobs_finished_total{completion_mode="NonIndexed",result="succeeded",reason="CompletionsReached"} 1"#;
    crate::support::wait_until("the figures", || {
        let (code, text) = get(&address, "/metrics");
        let lines: BTreeSet<&str> = text.lines().collect();
        let queues = ["job", "job_orphan_pod"].map(|name| format!("workqueue_depth{{name=\"{name}\"}} 0"));
        let has_all =
            [finished, "windlass_leader 1", &queues[0], &queues[1]].iter().all(|line| lines.contains(line));
        (code == 200 && has_all).then_some(())
    });
    controller.signal(Signal::TERM);
    assert_eq!(controller.finish().code, Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_is_ready_and_does_nothing() {
    let cluster = Cluster::start().await;
    let mut leader = cluster.controller("leader", &[]);
    leader.wait_for_lines(&["leads by the lease"]);
    let mut standby = cluster.controller("standby", &[]);
    let line = standby.wait_for_nth("health and metrics at http://", 1);
    let address = line.rsplit_once("http://").expect("an address").1.to_owned();
    crate::support::wait_until("readiness", || (get(&address, "/readyz").0 == 200).then_some(()));
    assert!(get(&address, "/metrics").1.contains("\nwindlass_leader 0\n"));
    standby.signal(Signal::TERM);
    assert_eq!(standby.finish().code, Some(0), "it stops while it waits");
    assert!(!cluster.asked().iter().any(|asked| asked.token == "standby" && asked.method != Method::GET));
}

#[tokio::test(flavor = "multi_thread")]
async fn only_jobs_that_are_ours_are_touched() {
    let ours = json!({"managedBy": "windlass.dev/job-controller"});
    let cases: [(&[&str], [bool; 4]); 3] = [
        (&[], [true, false, false, true]),
        (&["--manage", "all"], [true, true, false, true]),
        (&["--manage", "all", "--namespace", "default"], [true, true, false, false]),
    ];
    for (args, expected) in cases {
        let cluster = Cluster::start().await;
        cluster.kubelet();
        let args: Vec<&str> = args.iter().copied().chain(["--leader-elect=false"]).collect();
        let mut controller = cluster.controller("c", &args);
        controller.wait_for_lines(&["works without a lease"]);
        let namespace = json!({"metadata": {"name": "other"}});
        let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(cluster.client.clone());
        let namespace = serde_json::from_value(namespace).expect("a Namespace");
        namespaces.create(&PostParams::default(), &namespace).await.expect("created");
        cluster.create_job("default", "plain", json!({})).await;
        cluster.create_job("default", "external", json!({"managedBy": "example.com/x"})).await;
        cluster.create_job("other", "elsewhere", ours.clone()).await;
        // The last one: when it is complete, the others had their chance.
        cluster.create_job("default", "ours", ours.clone()).await;
        cluster.until_complete("default", "ours").await;
        let order =
            [("default", "ours"), ("default", "plain"), ("default", "external"), ("other", "elsewhere")];
        for ((namespace, name), is_expected) in order.into_iter().zip(expected) {
            if is_expected {
                cluster.until_complete(namespace, name).await;
            } else {
                let job = cluster.jobs(namespace).get(name).await.expect("the Job");
                let status = job.status.unwrap_or_default();
                assert_eq!((status.start_time, status.active), (None, None), "{name} with {args:?}");
            }
        }
        controller.signal(Signal::TERM);
        assert_eq!(controller.finish().code, Some(0));
    }
}

#[test]
fn a_controller_that_can_not_start_says_what_to_do() {
    let cases: [(&[&str], i32, &str); 4] = [
        (
            &["controller", "--kubeconfig", "/nowhere"],
            2,
            "hint: give --kubeconfig a file that kubectl can use",
        ),
        (&["controller"], 1, "hint: outside a cluster, give --kubeconfig FILE"),
        (&["controller", "--backoff-max", "1s"], 2, "hint: give a longer --backoff-max"),
        (&["controller", "--concurrent-writes", "0"], 2, "not a number from 1 to 100"),
    ];
    for (args, code, hint) in cases {
        let mut command = windlass(args);
        command.env_remove("KUBERNETES_SERVICE_HOST").env_remove("KUBERNETES_SERVICE_PORT");
        let ran = Running::spawn(&mut command).finish();
        assert_eq!(ran.code, Some(code), "{args:?}: {}", ran.stderr);
        assert!(ran.stderr.contains(hint), "{args:?}: {}", ran.stderr);
    }
}
