//! kube-rs over TLS, with the kubeconfig that the server wrote.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{AsyncBufReadExt, StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{AttachParams, DeleteParams, LogParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::runtime::controller::{Action, Controller};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{WatchStreamExt, reflector, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::server::{Served, wait_for};
use crate::support::PATIENCE;

fn pod(name: &str, script: &str) -> Pod {
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [
            {"name": "main", "image": "host", "command": ["sh", "-c", script]},
        ]},
    });
    serde_json::from_value(pod).expect("a pod")
}

async fn running(pods: &Api<Pod>, name: &str) {
    wait_for("the pod", async || {
        let phase = pods.get(name).await.expect("the pod").status?.phase?;
        (phase == "Running").then_some(())
    })
    .await;
}

async fn in_time<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("gave up waiting for {what}"))
}

#[tokio::test]
async fn watchers_and_reflectors_follow_a_job_and_its_pod() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let client = served.client().await;
    let pods: Api<Pod> = Api::namespaced(client.clone(), "default");
    let jobs: Api<Job> = Api::namespaced(client, "default");
    let (reader, writer) = reflector::store();
    let reflect = reflector(writer, watcher(jobs.clone(), watcher::Config::default().streaming_lists()));
    let reflecting = tokio::spawn(reflect.default_backoff().for_each(|_| std::future::ready(())));
    let mut events = watcher(pods, watcher::Config::default()).boxed();
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "hello"},
        "spec": {"template": {"spec": {"restartPolicy": "Never", "containers": [
            {"name": "main", "image": "host", "command": ["true"]},
        ]}}},
    });
    let job = serde_json::from_value(job).expect("a Job");
    let mut phases = Vec::new();
    in_time("the end of the pod", async {
        while let Some(event) = events.try_next().await.expect("an event") {
            match event {
                watcher::Event::InitDone => {
                    jobs.create(&PostParams::default(), &job).await.expect("created");
                }
                watcher::Event::Apply(pod) => {
                    let phase = pod.status.and_then(|status| status.phase).unwrap_or_default();
                    if phases.last() != Some(&phase) {
                        phases.push(phase);
                    }
                    if phases.last().is_some_and(|phase| phase == "Succeeded") {
                        break;
                    }
                }
                watcher::Event::Init | watcher::Event::InitApply(_) | watcher::Event::Delete(_) => {}
            }
        }
    })
    .await;
    assert_eq!(
        (phases.first().map(String::as_str), phases.last().map(String::as_str)),
        (Some("Pending"), Some("Succeeded"))
    );
    let key = ObjectRef::new("hello").within("default");
    wait_for("the end of the Job in the store of the reflector", async || {
        let status = reader.get(&key)?.status.clone()?;
        (status.succeeded == Some(1) && status.completion_time.is_some()).then_some(())
    })
    .await;
    jobs.delete("hello", &DeleteParams::background()).await.expect("deleted");
    wait_for("its end in the store of the reflector", async || reader.get(&key).is_none().then_some(()))
        .await;
    reflecting.abort();
}

struct Context {
    client: Client,
}

/// Keeps an annotation with the number of entries in every ConfigMap, by server-side apply.
async fn count(map: Arc<ConfigMap>, context: Arc<Context>) -> Result<Action, kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced(context.client.clone(), "default");
    let entries = map.data.as_ref().map_or(0, BTreeMap::len);
    let applied = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"annotations": {"example.com/entries": entries.to_string()}},
    });
    maps.patch(&map.name_any(), &PatchParams::apply("counter").force(), &Patch::Apply(&applied)).await?;
    Ok(Action::await_change())
}

#[tokio::test]
async fn a_controller_applies_what_it_owns_and_leaves_the_rest() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let client = served.client().await;
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), "default");
    let controller = Controller::new(maps.clone(), watcher::Config::default().labels("counted=yes"))
        .run(count, |_, _, _| Action::requeue(Duration::from_secs(1)), Arc::new(Context { client }))
        .for_each(|_| std::future::ready(()));
    let controller = tokio::spawn(controller);
    let map = |data: &[(&str, &str)]| ConfigMap {
        metadata: ObjectMeta {
            name: Some("m".to_owned()),
            labels: Some([("counted".to_owned(), "yes".to_owned())].into()),
            ..ObjectMeta::default()
        },
        data: Some(data.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()),
        ..ConfigMap::default()
    };
    let apply = |manager: &str, data: &[(&str, &str)]| {
        let (maps, params, map) = (maps.clone(), PatchParams::apply(manager), map(data));
        async move { maps.patch("m", &params, &Patch::Apply(&map)).await }
    };
    let count = async |want: &str| {
        wait_for("the annotation", async || {
            let found = maps.get("m").await.expect("the map");
            (found.annotations().get("example.com/entries")? == want).then_some(found)
        })
        .await
    };
    apply("owner", &[("a", "1"), ("b", "2")]).await.expect("applied");
    count("2").await;
    apply("owner", &[("a", "1")]).await.expect("applied");
    let found = count("1").await;
    assert_eq!(found.data.expect("data"), BTreeMap::from([("a".to_owned(), "1".to_owned())]));
    let error = apply("rival", &[("a", "9")]).await.expect_err("owned by another");
    let kube::Error::Api(status) = error else { panic!("{error:?}") };
    let want = "Apply failed with 1 conflict: conflict with \"owner\": .data.a";
    assert_eq!((status.code, status.reason.as_str(), status.message.as_str()), (409, "Conflict", want));
    controller.abort();
}

#[tokio::test]
async fn logs_are_read_at_once_and_followed() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let pods: Api<Pod> = Api::namespaced(served.client().await, "default");
    let go = directory.path().join("go");
    let script =
        format!("echo one; echo two; until test -e {}; do sleep 0.05; done; echo three", go.display());
    pods.create(&PostParams::default(), &pod("p", &script)).await.expect("created");
    running(&pods, "p").await;
    let follow = LogParams { follow: true, ..LogParams::default() };
    let mut lines = in_time("a stream", pods.log_stream("p", &follow)).await.expect("a log").lines();
    let mut next = async || in_time("a line", lines.try_next()).await.expect("read");
    assert_eq!((next().await, next().await), (Some("one".into()), Some("two".into())));
    let tail = LogParams { tail_lines: Some(1), ..LogParams::default() };
    assert_eq!(pods.logs("p", &tail).await.expect("a log"), "two\n");
    std::fs::write(go, "").expect("written");
    assert_eq!((next().await, next().await), (Some("three".into()), None));
}

#[tokio::test]
async fn commands_run_and_containers_are_joined() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let pods: Api<Pod> = Api::namespaced(served.client().await, "default");
    let go = directory.path().join("go");
    let script = format!("until test -e {}; do echo tick; sleep 0.05; done; echo last", go.display());
    pods.create(&PostParams::default(), &pod("p", &script)).await.expect("created");
    running(&pods, "p").await;

    let params = AttachParams::default().stdin(true).stdout(true).stderr(true);
    let command = ["sh", "-c", "cat; echo oops >&2; exit 6"];
    let mut process = in_time("a session", pods.exec("p", command, &params)).await.expect("started");
    let status = process.take_status().expect("a status");
    let mut stdin = process.stdin().expect("asked for");
    stdin.write_all(b"from the client").await.expect("written");
    stdin.shutdown().await.expect("closed");
    drop(stdin);
    let (mut out, mut err) = (String::new(), String::new());
    let (mut stdout, mut stderr) =
        (process.stdout().expect("asked for"), process.stderr().expect("asked for"));
    in_time("the output", async {
        let (out, err) = tokio::join!(stdout.read_to_string(&mut out), stderr.read_to_string(&mut err));
        (out.expect("read"), err.expect("read"))
    })
    .await;
    assert_eq!((out.as_str(), err.as_str()), ("from the client", "oops\n"));
    let status = in_time("a status", status).await.expect("a status");
    assert_eq!(
        (status.status.as_deref(), status.reason.as_deref()),
        (Some("Failure"), Some("NonZeroExitCode"))
    );
    let causes = status.details.and_then(|details| details.causes).expect("causes");
    assert_eq!(causes[0].message.as_deref(), Some("6"));

    let params = AttachParams::default().stdin(false).stdout(true).stderr(true);
    let mut process = in_time("a session", pods.attach("p", &params)).await.expect("attached");
    let mut stdout = process.stdout().expect("asked for");
    let mut first = [0; 5];
    in_time("a tick", stdout.read_exact(&mut first)).await.expect("read");
    assert_eq!(&first, b"tick\n");
    std::fs::write(go, "").expect("written");
    let mut rest = String::new();
    in_time("the end", stdout.read_to_string(&mut rest)).await.expect("read");
    assert_eq!(rest.replace("tick\n", ""), "last\n");
}
