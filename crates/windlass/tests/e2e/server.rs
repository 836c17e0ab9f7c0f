//! `windlass server` and real clients of it, over TLS.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use k8s_openapi::api::batch::v1::{Job, JobCondition};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::{Value, json};
use windlass_apiserver::serve::pki::{Pair, Pki};

use crate::support::{PATIENCE, Running, run, windlass, windlass_in_shell};

/// A server that runs, in a directory of its own.
pub struct Served {
    running: Running,
    pub directory: PathBuf,
}

impl Served {
    pub fn start(directory: &Path, args: &[&str]) -> Self {
        Self::with(directory, &mut windlass(&Self::args(directory, args)))
    }

    /// Containers of most tests leave something on this machine, to be looked at.
    pub fn args<'a>(directory: &'a Path, args: &[&'a str]) -> Vec<&'a str> {
        let place = directory.to_str().expect("UTF-8");
        let base = ["server", "--data-dir", place, "--listen", "127.0.0.1:0", "--backoff-base", "10ms"];
        let isolation: &[&str] = if args.contains(&"--isolation") { &[] } else { &["--isolation", "none"] };
        base.into_iter().chain(args.iter().copied()).chain(isolation.iter().copied()).collect()
    }

    /// As a usual shell starts it: with at most 1024 open files, unless it asks for more.
    pub fn start_in_shell(directory: &Path) -> Self {
        let mut command = windlass_in_shell("ulimit -Sn 1024", &Self::args(directory, &[]));
        Self::with(directory, &mut command)
    }

    pub fn with(directory: &Path, command: &mut Command) -> Self {
        let mut running = Running::spawn(command);
        running.wait_for_lines(&["is ready at https://127.0.0.1:", "kubectl get jobs"]);
        Self { running, directory: directory.to_owned() }
    }

    pub fn kubeconfig(&self) -> Kubeconfig {
        Kubeconfig::read_from(self.directory.join("kubeconfig")).expect("a kubeconfig")
    }

    pub async fn client(&self) -> Client {
        client(self.kubeconfig()).await
    }

    fn file(&self, name: &str) -> String {
        std::fs::read_to_string(self.directory.join(name)).expect("a file")
    }

    pub fn pid(&self) -> u32 {
        self.running.child.id()
    }

    pub fn stop(self) -> Option<i32> {
        self.running.signal(Signal::TERM);
        self.running.finish().code
    }
}

pub async fn client(kubeconfig: Kubeconfig) -> Client {
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    Client::try_from(config.expect("a config")).expect("a client")
}

fn with_certificate(mut kubeconfig: Kubeconfig, pair: Option<&Pair>) -> Kubeconfig {
    let encode = |text: &str| base64::Engine::encode(&base64::engine::general_purpose::STANDARD, text);
    let user = kubeconfig.auth_infos[0].auth_info.as_mut().expect("a user");
    user.client_certificate_data = pair.map(|pair| encode(&pair.certificate));
    user.client_key_data = pair.map(|pair| encode(&pair.key).into());
    kubeconfig
}

pub fn with_token(kubeconfig: Kubeconfig, token: &str) -> Kubeconfig {
    let mut kubeconfig = with_certificate(kubeconfig, None);
    kubeconfig.auth_infos[0].auth_info.as_mut().expect("a user").token = Some(token.to_owned().into());
    kubeconfig
}

fn pki(directory: &Path) -> Pki {
    Pki::open(directory, &[], time::OffsetDateTime::now_utc()).expect("certificates")
}

/// The code and the text of an answer.
async fn get(client: &Client, path: &str) -> (u16, String) {
    let request = http::Request::get(path).body(kube::client::Body::empty()).expect("a request");
    let response = client.send(request).await.expect("an answer");
    let code = response.status().as_u16();
    let bytes = response.into_body().collect_bytes().await.expect("a body");
    (code, String::from_utf8(bytes.to_vec()).expect("UTF-8"))
}

async fn code_of(client: &Client, path: &str) -> u16 {
    get(client, path).await.0
}

fn job(name: &str, script: &str) -> Job {
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "host", "command": ["/bin/sh", "-c", script]}],
        }}},
    });
    serde_json::from_value(job).expect("a Job")
}

pub async fn wait_for<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let start = std::time::Instant::now();
    loop {
        if let Some(seen) = look().await {
            return seen;
        }
        assert!(start.elapsed() < PATIENCE, "gave up waiting for {what}");
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn the_api_alone_runs_nothing_and_a_whole_server_goes_on_from_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let alone = Served::start(directory.path(), &["--api-only"]);
    let client = alone.client().await;
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    jobs.create(&PostParams::default(), &job("later", "true")).await.expect("created");
    // A whole server has its node before it says that it is ready.
    let nodes = Api::<Node>::all(client).list(&ListParams::default()).await.expect("a list").items;
    assert_eq!(nodes, []);
    assert_eq!(jobs.get("later").await.expect("the Job").status.and_then(|status| status.start_time), None);
    assert_eq!(alone.stop(), Some(0));

    let whole = Served::start(directory.path(), &[]);
    let jobs: Api<Job> = Api::namespaced(whole.client().await, "default");
    wait_for("the end of the Job", async || {
        (jobs.get("later").await.expect("the Job").status?.succeeded == Some(1)).then_some(())
    })
    .await;
    assert_eq!(whole.stop(), Some(0));
}

#[tokio::test]
async fn what_a_pod_of_a_server_writes_goes_with_it_unless_it_says_otherwise() {
    let (directory, results) =
        (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("another"));
    let place = directory.path().to_str().expect("UTF-8");
    let mut command = windlass(&["server", "--data-dir", place, "--listen", "127.0.0.1:0"]);
    let served = Served::with(directory.path(), &mut command);
    let jobs: Api<Job> = Api::namespaced(served.client().await, "default");
    let file = |name: &str| results.path().join(name);
    for name in ["apart", "together"] {
        // It sees what it wrote, and its own number tells whether it sees other processes.
        let script = "read own rest < /proc/self/stat; echo $own > FILE; read pid < FILE; [ $pid = 1 ]";
        let script = script.replace("FILE", file(name).to_str().expect("UTF-8"));
        let mut job = job(name, &script);
        let spec = job.spec.as_mut().expect("a spec");
        spec.backoff_limit = Some(0);
        if name == "together" {
            let annotations = [("windlass.dev/isolation".to_owned(), "none".to_owned())];
            spec.template.metadata.get_or_insert_default().annotations = Some(annotations.into());
        }
        jobs.create(&PostParams::default(), &job).await.expect("created");
    }
    let end_of = async |name: &str| {
        let status = wait_for("the end of the Job", async || {
            let status = jobs.get(name).await.expect("the Job").status?;
            let is_over =
                |condition: &JobCondition| ["Complete", "Failed"].contains(&condition.type_.as_str());
            status.conditions.iter().flatten().any(is_over).then_some(status)
        });
        (status.await.succeeded, file(name).exists())
    };
    assert_eq!(end_of("apart").await, (Some(1), false));
    assert_eq!(end_of("together").await, (None, true));
    assert_eq!(served.stop(), Some(0));
}

#[tokio::test]
async fn a_job_made_over_tls_runs_and_completes() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let client = served.client().await;
    let file = directory.path().join("written");
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    let script = format!("echo real > {}", file.display());
    jobs.create(&PostParams::default(), &job("hello", &script)).await.expect("created");
    let status = wait_for("the end of the Job", async || {
        let status = jobs.get("hello").await.expect("the Job").status?;
        status.completion_time.is_some().then_some(status)
    })
    .await;
    assert_eq!((status.succeeded, status.failed, status.active), (Some(1), None, None));
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), "real\n");
    let pods: Api<Pod> = Api::namespaced(client, "default");
    let pods = pods.list(&ListParams::default()).await.expect("pods").items;
    let nodes: Vec<_> =
        pods.iter().map(|pod| pod.spec.as_ref().and_then(|spec| spec.node_name.clone())).collect();
    assert_eq!(nodes, [Some("node-1".to_owned())]);
    assert_eq!(served.stop(), Some(0));
}

#[tokio::test]
async fn a_deleted_job_takes_its_pods_and_their_processes_along_whatever_the_propagation_but_orphan() {
    use kube::api::{DeleteParams, PropagationPolicy};
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let client = served.client().await;
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    let pods: Api<Pod> = Api::namespaced(client, "default");
    for (name, policy) in [("back", PropagationPolicy::Background), ("fore", PropagationPolicy::Foreground)] {
        let file = directory.path().join(name);
        let script = format!(
            "trap 'echo ended > {0}; exit 1' TERM; echo runs > {0}; while :; do sleep 0.01; done",
            file.display()
        );
        jobs.create(&PostParams::default(), &job(name, &script)).await.expect("created");
        let text = || std::fs::read_to_string(&file).unwrap_or_default();
        wait_for("the process", async || (text() == "runs\n").then_some(())).await;
        let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
        jobs.delete(name, &params).await.expect("deleted");
        wait_for("the end of the pod", async || {
            pods.list(&ListParams::default()).await.expect("pods").items.is_empty().then_some(())
        })
        .await;
        assert_eq!(text(), "ended\n", "it was asked to end");
        wait_for("the end of the Job", async || {
            jobs.get_opt(name).await.expect("jobs").is_none().then_some(())
        })
        .await;
    }
    jobs.create(&PostParams::default(), &job("left", "true")).await.expect("created");
    wait_for("the end of the Job", async || jobs.get("left").await.expect("the Job").status?.completion_time)
        .await;
    let orphan =
        DeleteParams { propagation_policy: Some(PropagationPolicy::Orphan), ..DeleteParams::default() };
    jobs.delete("left", &orphan).await.expect("deleted");
    wait_for("the end of the Job", async || {
        jobs.get_opt("left").await.expect("jobs").is_none().then_some(())
    })
    .await;
    let left = pods.list(&ListParams::default()).await.expect("pods").items;
    assert_eq!(left.len(), 1);
    assert_eq!(kube::ResourceExt::owner_references(&left[0]), []);
    assert_eq!(served.stop(), Some(0));
}

#[tokio::test]
async fn with_no_nodes_pods_wait_for_somebody_else() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let client = served.client().await;
    let jobs: Api<Job> = Api::namespaced(client.clone(), "default");
    jobs.create(&PostParams::default(), &job("waits", "true")).await.expect("created");
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    wait_for("a pod", async || pods.list(&ListParams::default()).await.expect("pods").items.pop()).await;
    let (code, nodes) = get(&client, "/api/v1/nodes").await;
    let nodes: Value = serde_json::from_str(&nodes).expect("JSON");
    assert_eq!((code, &nodes["items"]), (200, &json!([])));
    assert_eq!(served.stop(), Some(0));
}

#[tokio::test]
async fn nothing_but_health_answers_a_client_without_credentials() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let stranger = client(with_certificate(served.kubeconfig(), None)).await;
    for path in ["/api", "/apis", "/version", "/api/v1/pods", "/apis/batch/v1/jobs?watch=1", "/metrics"] {
        assert_eq!(code_of(&stranger, path).await, 401, "{path}");
    }
    for path in ["/livez", "/readyz", "/healthz"] {
        assert_eq!(get(&stranger, path).await, (200, "ok".to_owned()), "{path}");
    }
}

#[tokio::test]
async fn credentials_and_servers_of_another_ca_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let elsewhere = tempfile::tempdir().expect("a directory");
    let other = pki(elsewhere.path());
    let own = pki(&directory.path().join("pki"));
    assert_eq!(code_of(&served.client().await, "/api/v1/pods").await, 200);

    let foreign = client(with_certificate(served.kubeconfig(), Some(&other.admin))).await;
    assert_eq!(code_of(&foreign, "/api/v1/pods").await, 401, "a client certificate of another CA");
    let server = client(with_certificate(served.kubeconfig(), Some(&own.serving))).await;
    assert_eq!(code_of(&server, "/api/v1/pods").await, 401, "the certificate of the server itself");

    let mut kubeconfig = served.kubeconfig();
    let cluster = kubeconfig.clusters[0].cluster.as_mut().expect("a cluster");
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, other.ca_certificate());
    cluster.certificate_authority_data = Some(encoded);
    let request = http::Request::get("/livez").body(kube::client::Body::empty()).expect("a request");
    let error = client(kubeconfig).await.send(request).await.expect_err("a server of another CA");
    assert!(format!("{error:?}").contains("UnknownIssuer"), "{error:?}");
}

#[tokio::test]
async fn a_viewer_with_a_token_lists_and_does_not_create() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let place = directory.path().to_str().expect("UTF-8");
    let made = run(&["token", "--data-dir", place, "--user", "vera"]);
    assert_eq!(made.code, Some(0), "{}", made.stderr);
    let token = made.stdout.trim_end();
    assert!(!served.file("tokens.json").contains(token), "only the hash is kept");
    let vera = client(with_token(served.kubeconfig(), token)).await;
    assert_eq!(code_of(&vera, "/api/v1/pods").await, 403);

    let bindings: Api<ClusterRoleBinding> = Api::all(served.client().await);
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "vera"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"},
        "subjects": [{"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": "vera"}],
    });
    let binding = serde_json::from_value(binding).expect("a binding");
    bindings.create(&PostParams::default(), &binding).await.expect("created");
    let jobs: Api<Job> = Api::namespaced(vera, "default");
    assert_eq!(jobs.list(&ListParams::default()).await.expect("a list").items, []);
    let error = jobs.create(&PostParams::default(), &job("no", "true")).await.expect_err("forbidden");
    let kube::Error::Api(status) = error else { panic!("{error:?}") };
    let message = r#"jobs.batch is forbidden: User "vera" cannot create resource "jobs" in API group "batch" in the namespace "default""#;
    assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (403, "Forbidden", message));

    let wrong = client(with_token(served.kubeconfig(), "wrong")).await;
    assert_eq!(code_of(&wrong, "/api/v1/pods").await, 401);
}

#[tokio::test]
async fn secrets_are_for_their_owner_and_outlive_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    run(&["token", "--data-dir", directory.path().to_str().expect("UTF-8"), "--user", "u"]);
    let mode = |name: &str| {
        let meta = std::fs::metadata(directory.path().join(name)).expect("there");
        meta.permissions().mode() & 0o777
    };
    let files = ["pki/ca.key", "pki/serving.key", "pki/admin.key", "kubeconfig", "tokens.json"];
    assert_eq!(files.map(mode), [0o600; 5]);
    assert_eq!(["", "pki"].map(mode), [0o700; 2]);
    let before = files.map(|name| served.file(name));
    let old = served.kubeconfig();
    assert_eq!(served.stop(), Some(0));

    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let after = files.map(|name| served.file(name));
    assert_eq!((&before[..3], &before[4]), (&after[..3], &after[4]));
    // Whoever was let in before still is, but for the port, which was any.
    let mut kubeconfig = served.kubeconfig();
    kubeconfig.auth_infos = old.auth_infos;
    assert_eq!(code_of(&client(kubeconfig).await, "/api/v1/pods").await, 200);
}

#[test]
fn a_key_that_others_can_read_is_not_used() {
    let directory = tempfile::tempdir().expect("a directory");
    drop(pki(&directory.path().join("pki")));
    let key = directory.path().join("pki/ca.key");
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o644)).expect("changed");
    let ran =
        run(&["server", "--data-dir", directory.path().to_str().expect("UTF-8"), "--listen", "127.0.0.1:0"]);
    let expected = format!(
        "error: {}: mode 0644 lets others at a secret; chmod it to 0600, or remove it to have a new one\n\
         hint: run with WINDLASS_LOG=debug to see more\n",
        key.canonicalize().expect("a path").display()
    );
    assert_eq!((ran.code, ran.stderr), (Some(1), expected));
}

#[test]
fn an_address_that_others_can_reach_needs_a_word() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = directory.path().to_str().expect("UTF-8");
    let ran = run(&["server", "--data-dir", place, "--listen", "0.0.0.0:0"]);
    let expected = "error: --listen 0.0.0.0:0 can be reached from other machines\n\
                    hint: listen on 127.0.0.1, or say --allow-remote: who has a credential of this server runs any \
                    command on this machine\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(2), expected));
}

#[test]
fn the_kubeconfig_of_another_cluster_is_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("config");
    let text = "apiVersion: v1\nkind: Config\nclusters:\n- name: prod\n  cluster: {server: https://prod}\n";
    std::fs::write(&file, text).expect("written");
    let (place, path) = (directory.path().to_str().expect("UTF-8"), file.to_str().expect("UTF-8"));
    let ran = run(&["server", "--data-dir", place, "--listen", "127.0.0.1:0", "--kubeconfig", path]);
    let expected =
        format!("error: write kubeconfig {path}: it holds the cluster \"prod\", which is not of windlass\n");
    assert_eq!(ran.code, Some(2), "{}", ran.stderr);
    assert!(ran.stderr.starts_with(&expected), "{}", ran.stderr);
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), text);
}

#[tokio::test]
async fn pods_are_ended_gracefully_when_the_server_stops() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let (started, ended) = (directory.path().join("started"), directory.path().join("ended"));
    let script = format!(
        "trap 'echo bye > {}; exit 0' TERM; echo > {}; while :; do sleep 0.05; done",
        ended.display(),
        started.display()
    );
    let jobs: Api<Job> = Api::namespaced(served.client().await, "default");
    jobs.create(&PostParams::default(), &job("long", &script)).await.expect("created");
    wait_for("the pod", async || started.exists().then_some(())).await;
    assert_eq!(served.stop(), Some(0));
    assert_eq!(std::fs::read_to_string(&ended).expect("the file"), "bye\n");
}

#[tokio::test]
async fn what_was_made_outlives_the_server_however_it_ends() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut made = Vec::new();
    for (name, signal) in [("first", Signal::TERM), ("second", Signal::KILL), ("third", Signal::TERM)] {
        let served = Served::start(directory.path(), &["--nodes", "0"]);
        let jobs: Api<Job> = Api::namespaced(served.client().await, "default");
        let found = jobs.list(&ListParams::default()).await.expect("a list").items;
        let found: Vec<_> = found.into_iter().map(|job| (job.metadata.name, job.metadata.uid)).collect();
        assert_eq!(found, made);
        let job = jobs.create(&PostParams::default(), &job(name, "true")).await.expect("created");
        made.push((job.metadata.name, job.metadata.uid));
        served.running.signal(signal);
        served.running.finish();
    }
}

#[test]
fn two_servers_do_not_share_a_directory() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let place = directory.path().to_str().expect("UTF-8");
    let ran = run(&["server", "--data-dir", place, "--listen", "127.0.0.1:0"]);
    let store = directory.path().canonicalize().expect("a path").join("store");
    let expected = format!(
        "error: data directory {} is in use by process {}\nhint: run with WINDLASS_LOG=debug to see more\n",
        store.display(),
        served.running.child.id()
    );
    assert_eq!((ran.code, ran.stderr), (Some(1), expected));
    assert_eq!(served.stop(), Some(0));
}
