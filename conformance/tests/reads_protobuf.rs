//! In which form the real API server gives pods to our controller: JSON would do too, and cost a third more.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures::{StreamExt, TryStreamExt};
use http::Request;
use http::header::CONTENT_TYPE;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::runtime::watcher::{self, watcher};
use kube::runtime::{WatchStreamExt, wait};
use kube::{Api, Client, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tower::BoxError;
use windlass_conformance::{Cluster, cluster};
use windlass_controllers::job::{Config, JobController};
use windlass_job::Settings;
use windlass_job::observation::Manages;

/// How pods were asked for, and the form of the answer.
type Answers = Arc<Mutex<BTreeSet<(String, String)>>>;

/// A client that remembers.
fn remembering(client: Client, answers: &Answers) -> Client {
    let answers = Arc::clone(answers);
    let pass = move |request: Request<Body>| {
        let (client, answers) = (client.clone(), Arc::clone(&answers));
        async move {
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            let answer = client.send(request).await?;
            if path.contains("/pods") {
                let form = answer.headers().get(CONTENT_TYPE).and_then(|form| form.to_str().ok());
                let form = form.and_then(|form| form.split(';').next()).unwrap_or_default();
                answers.lock().insert((method, form.to_owned()));
            }
            Ok::<_, BoxError>(answer)
        }
    };
    Client::new(tower::service_fn(pass), "default")
}

#[tokio::test(flavor = "multi_thread")]
async fn our_controller_is_given_pods_as_protobuf() -> anyhow::Result<()> {
    let apiserver = vec!["--disable-admission-plugins=ServiceAccount".to_owned()];
    let options = cluster::Options { apiserver, ..cluster::Options::default() };
    let cluster = Cluster::start_with(&options).await?;
    let client = cluster.client().await?;
    let answers = Answers::default();
    let config = Config {
        settings: Settings { manages: Manages::Unclaimed, ..Settings::default() },
        ..Config::default()
    };
    let cancel = CancellationToken::new();
    let controller = JobController::new(remembering(client.clone(), &answers), config);
    let running = tokio::spawn(controller.run(cancel.clone()));

    let template = json!({"restartPolicy": "Never", "containers": [{"name": "main", "image": "host"}]});
    let job = json!({"metadata": {"name": "one"}, "spec": {"template": {"spec": template}}});
    let jobs: Api<Job> = Api::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
    let pods: Api<Pod> = Api::default_namespaced(client);
    let mut made = watcher(pods.clone(), watcher::Config::default()).applied_objects().boxed();
    let pod = made.try_next().await?.expect("a pod");
    let ended = Patch::Merge(json!({"status": {"phase": "Succeeded"}}));
    pods.patch_status(&pod.name_any(), &PatchParams::default(), &ended).await?;
    wait::await_condition(jobs, "one", wait::conditions::is_job_completed()).await?;
    cancel.cancel();
    running.await?;

    // Listed and watched, made, and let go.
    let form = || "application/vnd.kubernetes.protobuf".to_owned();
    let expected = ["GET", "POST", "PATCH"].map(|method| (method.to_owned(), form()));
    assert_eq!(*answers.lock(), BTreeSet::from(expected));
    Ok(())
}
