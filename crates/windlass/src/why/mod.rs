//! `windlass why`: every attempt of a Job on a server or in a cluster, and what it meant.
//!
//! What is shown comes from the Job alone, with the history that the controller keeps in it, and from those of its pods that
//! are still there. So it can be asked after the pods are gone.

mod story;

use std::path::PathBuf;
use std::process::ExitCode;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;
use windlass_api::names;

use crate::{EXIT_FAILED, reach, with_threads};

/// Pods asked for at a time, and at most looked at: the history has the rest.
const PODS_MAX: u32 = 5_000;

/// What the command line asks for.
#[derive(Clone, Debug)]
pub struct Options {
    /// The name of the Job.
    pub job: String,
    /// Its namespace.
    pub namespace: Option<String>,
    /// How to reach the server.
    pub kubeconfig: Option<PathBuf>,
}

/// Tells why.
pub fn main(options: &Options) -> ExitCode {
    crate::log_to_stderr("off");
    with_threads(async {
        match tell(options).await {
            Ok(text) => {
                use std::io::Write;
                // A closed pipe is the reader's decision.
                let _ = std::io::stdout().lock().write_all(text.as_bytes());
                ExitCode::SUCCESS
            }
            Err(error) => {
                eprintln!("error: {error}");
                ExitCode::from(EXIT_FAILED)
            }
        }
    })
}

async fn tell(options: &Options) -> Result<String, String> {
    let (client, default_namespace) = reach::server(options.kubeconfig.as_deref()).await?;
    let namespace = options.namespace.clone().unwrap_or(default_namespace);
    let asked = |error: &dyn std::fmt::Display| reach::failed(error);
    let name = &options.job;
    let path = format!("/apis/batch/v1/namespaces/{namespace}/jobs/{name}");
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| asked(&error))?;
    let job: Value = match client.request(request).await {
        Ok(job) => job,
        Err(kube::Error::Api(status)) if status.is_not_found() => {
            return Err(format!(
                "there is no Job {name:?} in namespace {namespace:?}\nhint: look for it with kubectl get jobs --all-namespaces"
            ));
        }
        Err(error) => return Err(asked(&error)),
    };
    let uid = job["metadata"]["uid"].as_str().unwrap_or_default();
    let selector = format!("{}={uid}", names::CONTROLLER_UID_LABEL);
    let pods = Api::<Pod>::namespaced(client, &namespace);
    let listed = pods.list(&ListParams::default().labels(&selector).limit(PODS_MAX)).await;
    let pods = listed.map_err(|error| asked(&error))?.items;
    story::tell(&job, &pods)
}
