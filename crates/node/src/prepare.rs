//! From a container of a pod to a process that can be started: image, environment, command line, directories.

use std::collections::BTreeSet;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, Secret};

use crate::env::{self, Facts, Reference, Sources};
use crate::logs::{self, PodName};
use crate::pod::Context;
use crate::runtimes::Process;
use crate::runtimes::keeper::MARKER;

/// When a container whose configuration was missing is tried again (upstream: the next sync of the pod after
/// an error).
const CONFIG_RETRY: Duration = Duration::from_secs(10);
/// How long the API server has to answer for a ConfigMap or Secret.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Mounted into every pod by clusters; a process of this machine does without.
const TOKEN_PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// Why a container cannot be started, in the words of a waiting state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Error {
    pub(crate) reason: &'static str,
    pub(crate) message: String,
    /// `None`: trying again would not help.
    pub(crate) retry_in: Option<Duration>,
}

impl Error {
    fn for_good(reason: &'static str, message: String) -> Self {
        Self { reason, message, retry_in: None }
    }

    fn config(message: String) -> Self {
        Self { reason: "CreateContainerConfigError", message, retry_in: Some(CONFIG_RETRY) }
    }
}

/// Which pod, for the place of its logs.
pub(crate) fn pod_name(pod: &Pod) -> PodName<'_> {
    PodName {
        namespace: pod.metadata.namespace.as_deref().unwrap_or_default(),
        name: pod.metadata.name.as_deref().unwrap_or_default(),
        uid: pod.metadata.uid.as_deref().unwrap_or_default(),
    }
}

/// The process of one run of a container.
pub(crate) async fn process(
    context: &Context,
    pod: &Pod,
    container: &Container,
    run: i32,
) -> Result<Process, Error> {
    check(container, context.config.runtime_override_host)?;
    let sources = fetch(context, pod, &env::references(container)).await?;
    let facts =
        Facts { ip: "127.0.0.1", cpu: context.config.capacity.cpu, memory: context.config.capacity.memory };
    let base = base_environment(pod);
    let environment = env::environment(pod, container, &sources, &facts, &base);
    let mut env = environment.map_err(|error| Error::config(error.to_string()))?;
    let argv = env::command_line(container, &env);
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    env.push((MARKER.into(), format!("{uid}/{}/{run}", container.name)));
    let log = logs::path(&context.logs, pod_name(pod), &container.name, run);
    let directory = log.parent().unwrap_or(&context.logs);
    std::fs::create_dir_all(directory).map_err(|error| Error {
        reason: "CreateContainerError",
        message: format!("create log directory {}: {error}", directory.display()),
        retry_in: Some(CONFIG_RETRY),
    })?;
    let cwd = context.config.work_dir.join(container.working_dir.as_deref().unwrap_or_default());
    Ok(Process { argv, env, cwd, log })
}

/// Refuses what this runtime cannot do, and says what to do instead.
fn check(container: &Container, is_any_image_host: bool) -> Result<(), Error> {
    let image = container.image.as_deref().unwrap_or_default();
    if image != "host" && !is_any_image_host {
        let message = format!(
            "Back-off pulling image {image:?}: this node runs no images; use `image: host` to run the command on this \
             machine, or `--runtime host` to do so for every image"
        );
        return Err(Error::for_good("ImagePullBackOff", message));
    }
    if container.command.as_ref().is_none_or(Vec::is_empty) {
        let message = format!(
            "no command specified: container {:?} needs `command`, for the host has no entrypoint",
            container.name
        );
        return Err(Error::for_good("CreateContainerError", message));
    }
    let mut mounts = container.volume_mounts.iter().flatten();
    if let Some(mount) = mounts.find(|mount| mount.mount_path != TOKEN_PATH) {
        let message = format!(
            "volume {:?} cannot be mounted at {}: the host runtime has no volumes; use a path of this machine",
            mount.name, mount.mount_path
        );
        return Err(Error::for_good("CreateContainerConfigError", message));
    }
    Ok(())
}

/// What every process has: where programs and its user's files are, and its host name as containers see it.
fn base_environment(pod: &Pod) -> Vec<(String, String)> {
    let of_agent = |name: &str| std::env::var(name).ok();
    let path = of_agent("PATH")
        .unwrap_or_else(|| "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
    let hostname = pod.spec.as_ref().and_then(|spec| spec.hostname.as_ref()).or(pod.metadata.name.as_ref());
    let mut base = vec![("PATH".to_owned(), path)];
    base.extend(of_agent("HOME").map(|home| ("HOME".to_owned(), home)));
    base.extend(hostname.map(|name| ("HOSTNAME".to_owned(), name.clone())));
    base
}

/// Asks the API server for what the environment needs. What is not there is left out.
async fn fetch(context: &Context, pod: &Pod, references: &BTreeSet<Reference>) -> Result<Sources, Error> {
    if references.is_empty() {
        return Ok(Sources::new());
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let client = &context.config.client;
    let all = try_join_all(references.iter().map(|reference| fetch_one(client, namespace, reference)));
    match tokio::time::timeout(FETCH_TIMEOUT, all).await {
        Ok(Ok(found)) => Ok(found.into_iter().flatten().collect()),
        Ok(Err(error)) => Err(Error::config(error.to_string())),
        Err(_) => Err(Error::config("timed out waiting for the API server".into())),
    }
}

type Found = Option<(Reference, std::collections::BTreeMap<String, String>)>;

async fn fetch_one(
    client: &kube::Client,
    namespace: &str,
    reference: &Reference,
) -> Result<Found, kube::Error> {
    let data = match reference {
        Reference::ConfigMap(name) => {
            let maps = kube::Api::<ConfigMap>::namespaced(client.clone(), namespace);
            maps.get_opt(name).await?.map(|map| map.data.unwrap_or_default())
        }
        Reference::Secret(name) => {
            let secrets = kube::Api::<Secret>::namespaced(client.clone(), namespace);
            let text = |bytes: k8s_openapi::ByteString| String::from_utf8_lossy(&bytes.0).into_owned();
            let found = secrets.get_opt(name).await?.map(|secret| secret.data.unwrap_or_default());
            found.map(|data| data.into_iter().map(|(key, value)| (key, text(value))).collect())
        }
    };
    Ok(data.map(|data| (reference.clone(), data)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_host_cannot_do_is_refused_with_a_way_out() {
        let mount = |path: &str| json!([{"name": "v", "mountPath": path}]);
        for (container, is_any, want) in [
            (json!({"image": "host", "command": ["true"]}), false, None),
            (json!({"image": "busybox", "command": ["true"]}), true, None),
            (json!({"image": "host", "command": ["true"], "volumeMounts": mount(TOKEN_PATH)}), false, None),
            (
                json!({"image": "busybox", "command": ["true"]}),
                false,
                Some((
                    "ImagePullBackOff",
                    "Back-off pulling image \"busybox\": this node runs no images; use `image: host` to run the command on \
                     this machine, or `--runtime host` to do so for every image",
                )),
            ),
            (
                json!({"image": "host", "args": ["x"]}),
                false,
                Some((
                    "CreateContainerError",
                    "no command specified: container \"c\" needs `command`, for the host has no entrypoint",
                )),
            ),
            (
                json!({"image": "host", "command": ["true"], "volumeMounts": mount("/data")}),
                false,
                Some((
                    "CreateContainerConfigError",
                    "volume \"v\" cannot be mounted at /data: the host runtime has no volumes; use a path of this machine",
                )),
            ),
        ] {
            let mut container = container;
            container["name"] = json!("c");
            let container: Container = serde_json::from_value(container).expect("a container");
            let want = want.map(|(reason, message)| Error::for_good(reason, message.into()));
            assert_eq!(check(&container, is_any).err(), want);
        }
    }
}
