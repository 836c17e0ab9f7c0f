//! From a container of a pod to a process that can be started: image, environment, command line, directories.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Container, Pod, PodSpec, Secret};

use crate::cgroup::Group;
use crate::env::{self, Reference, Sources};
use crate::isolation::{self, Isolation};
use crate::logs::directory::Directory;
use crate::logs::{self, PodName};
use crate::oci::{Exec, bundle};
use crate::pod::Context;
use crate::runtimes::Process;
use crate::runtimes::keeper::MARKER;
use crate::runtimes::sandbox::{Cover, Sandbox};
use crate::{input, mounts, security, services};

/// When a container whose configuration was missing is tried again (upstream: the next sync of the pod after
/// an error).
const CONFIG_RETRY: Duration = Duration::from_secs(10);
/// How long the API server has to answer for a ConfigMap or Secret.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);
/// Of how many runs of a container there are logs: of the one that goes on, and of the one before it (upstream: one dead
/// container of each is kept).
const RUNS_KEPT: i32 = 2;
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

    pub(crate) fn config(message: String) -> Self {
        Self { reason: "CreateContainerConfigError", message, retry_in: Some(CONFIG_RETRY) }
    }

    pub(crate) fn create(message: String) -> Self {
        Self { reason: "CreateContainerError", message, retry_in: Some(CONFIG_RETRY) }
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

/// A container that is ready to be started.
pub(crate) struct Prepared {
    pub(crate) process: Process,
    pub(crate) group: Option<Group>,
    /// What goes with it: what was made to run it from an image, and what it writes, or writes to a view of the machine's
    /// files.
    pub(crate) leaves: Vec<PathBuf>,
    /// How others join it, if not as processes of this machine.
    pub(crate) exec: Option<Exec>,
}

/// The process of one run of a container.
pub(crate) async fn process(
    context: &Context,
    pod: &Pod,
    container: &Container,
    run: i32,
) -> Result<Prepared, Error> {
    check(container, context.config.runtime_override_host, context.no_images.as_deref())?;
    let sources = fetch(context, pod, &env::references(container)).await?;
    let services = context.services.all().await.map_err(Error::config)?;
    let mut base = base_environment(pod);
    base.extend(services::variables(&services, pod, context.facts().ip));
    let environment = env::environment(pod, container, &sources, &context.facts(), &base);
    let mut env = environment.map_err(|error| Error::config(error.to_string()))?;
    input::name_terminal(container, &mut env);
    let argv = env::command_line(container, &env);
    let (sandbox, group) = sandbox(context, pod, container, run, &env)?;
    let cover = sandbox.as_ref().and_then(|sandbox| sandbox.cover.as_ref());
    let leaves = cover.map(|cover| cover.directory.clone()).into_iter().collect();
    env.push((MARKER.into(), marker(pod, container, run)));
    let log = log(context, pod, container, run)?;
    let cwd = context.config.work_dir.join(container.working_dir.as_deref().unwrap_or_default());
    let sandbox = sandbox.map(Box::new);
    let (input, log_limits) = (input::kind(container), context.config.log_limits);
    let makes_log_late = context.config.is_of_one_run;
    let process = Process { argv, env, cwd, log, makes_log_late, sandbox, starts: None, input, log_limits };
    Ok(Prepared { process, group, leaves, exec: None })
}

/// The mark of a run of a container.
pub(crate) fn marker(pod: &Pod, container: &Container, run: i32) -> String {
    format!("{}/{}/{run}", pod.metadata.uid.as_deref().unwrap_or_default(), container.name)
}

/// Where its output goes, in a directory that is there, or is made with the log.
pub(crate) fn log(context: &Context, pod: &Pod, container: &Container, run: i32) -> Result<PathBuf, Error> {
    let log = logs::path(&context.logs, pod_name(pod), &container.name, run);
    if !context.config.is_of_one_run {
        Directory::make(&log).map_err(|error| {
            let directory = log.parent().unwrap_or(&context.logs);
            Error::create(format!("create log directory {}: {error}", directory.display()))
        })?;
    }
    if context.config.log_limits.is_some() && run >= RUNS_KEPT {
        let old = logs::path(&context.logs, pod_name(pod), &container.name, run - RUNS_KEPT);
        if let Err(error) = logs::clear(&old) {
            tracing::warn!(%error, path = %old.display(), "clear an old log");
        }
    }
    Ok(log)
}

/// What the container sees and may do; `None` for what the agent does.
fn sandbox(
    context: &Context,
    pod: &Pod,
    container: &Container,
    run: i32,
    env: &[(String, String)],
) -> Result<(Option<Sandbox>, Option<Group>), Error> {
    let Some(spec) = &pod.spec else { return Ok((None, None)) };
    let passwd = || std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let title = title(pod);
    let security =
        security::of(spec, container, &title, context.own, |uid| security::group_in(&passwd(), uid))
            .map_err(Error::config)?;
    let mut mounts = mounts::of(context, pod, container, env).map_err(Error::config)?;
    let isolation = isolation(context, pod, spec)?;
    let is_optional = mounts.is_empty() && !security.has_read_only_root && !isolation.is_any();
    if !is_optional || mounts::names_message(container) {
        mounts::make_stage(context, pod).map_err(Error::create)?;
        mounts.extend(mounts::message(context, pod, container, run).map_err(Error::create)?);
    }
    let hostname = spec.hostname.as_ref().or(pod.metadata.name.as_ref());
    let is_apart = !mounts.is_empty() || isolation.is_any();
    let hostname = hostname.filter(|_| is_apart && spec.host_network != Some(true));
    let cover = isolation.files.then(|| cover(context, pod, container, run)).transpose()?;
    let group = context.group(pod, container, run, false).map_err(Error::create)?;
    let sandbox = Sandbox {
        stage: mounts::stage(context, pod),
        hostname: hostname.map(|name| name.chars().take(63).collect()),
        mounts,
        has_read_only_root: security.has_read_only_root,
        user: security.user,
        keeps_privileges_down: security.keeps_privileges_down,
        dropped_capabilities: security.dropped_capabilities,
        cgroups: group.iter().flat_map(Group::members).collect(),
        is_optional,
        has_own_pids: isolation.pids,
        known_as: isolation.pids.then(|| context.own.inside()).flatten(),
        cover,
        ..Sandbox::default()
    };
    let plain = Sandbox { stage: sandbox.stage.clone(), is_optional, ..Sandbox::default() };
    Ok(((sandbox != plain).then_some(sandbox), group))
}

/// How far the container is kept apart from the machine.
fn isolation(context: &Context, pod: &Pod, spec: &PodSpec) -> Result<Isolation, Error> {
    let annotation = pod.metadata.annotations.as_ref().and_then(|all| all.get(isolation::ANNOTATION));
    let found =
        isolation::of_pod(context.config.isolation, annotation.map(String::as_str), context.isolation);
    let found = found.map_err(Error::config)?;
    Ok(Isolation { pids: found.pids && spec.host_pid != Some(true), ..found })
}

/// The directories of its view of the machine's files, where what it writes is counted as that of containers of images is.
fn cover(context: &Context, pod: &Pod, container: &Container, run: i32) -> Result<Cover, Error> {
    let directory = bundle::on_disk(&context.pod_directory(pod), &container.name, run);
    let cover = Cover { directory, agent: context.config.data_dir.clone() };
    let made = bundle::remove(&cover.directory).and_then(|()| cover.make());
    made.map_err(|error| Error::create(format!("make {}: {error}", cover.directory.display())))?;
    Ok(cover)
}

/// A pod in texts: `name_namespace(uid)`.
pub(crate) fn title(pod: &Pod) -> String {
    let PodName { namespace, name, uid } = pod_name(pod);
    format!("{name}_{namespace}({uid})")
}

/// Refuses what this runtime cannot do, and says what to do instead.
fn check(container: &Container, is_any_image_host: bool, no_images: Option<&str>) -> Result<(), Error> {
    let image = container.image.as_deref().unwrap_or_default();
    if image != "host" && !is_any_image_host {
        let why = match no_images {
            None => "this node has no OCI runtime; install crun or runc".to_owned(),
            Some(error) => {
                format!("this node is not root, and has no user namespace ({error}); run it as root")
            }
        };
        let message = format!(
            "Back-off pulling image {image:?}: {why}, use `image: host` to run the command on this machine, or `--runtime host` \
             to do so for every image"
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
pub(crate) async fn fetch(
    context: &Context,
    pod: &Pod,
    references: &BTreeSet<Reference>,
) -> Result<Sources, Error> {
    let found = objects(context, pod, references).await.map_err(Error::config)?;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let sources = found.into_iter().map(|(reference, found)| {
        (reference, found.data.into_iter().map(|(key, value)| (key, text(value))).collect())
    });
    Ok(sources.collect())
}

/// The data of an object.
pub(crate) struct Found {
    pub(crate) data: BTreeMap<String, Vec<u8>>,
    /// What of a ConfigMap is not text: files can have it, variables not.
    pub(crate) binary: BTreeMap<String, Vec<u8>>,
}

/// Asks the API server for objects. What is not there is left out.
pub(crate) async fn objects(
    context: &Context,
    pod: &Pod,
    references: &BTreeSet<Reference>,
) -> Result<BTreeMap<Reference, Found>, String> {
    if references.is_empty() {
        return Ok(BTreeMap::new());
    }
    let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
    let client = &context.config.client;
    let all = try_join_all(references.iter().map(|reference| fetch_one(client, namespace, reference)));
    match tokio::time::timeout(FETCH_TIMEOUT, all).await {
        Ok(Ok(found)) => Ok(found.into_iter().flatten().collect()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("timed out waiting for the API server".into()),
    }
}

async fn fetch_one(
    client: &kube::Client,
    namespace: &str,
    reference: &Reference,
) -> Result<Option<(Reference, Found)>, kube::Error> {
    let bytes = |data: Option<BTreeMap<String, k8s_openapi::ByteString>>| -> BTreeMap<String, Vec<u8>> {
        data.into_iter().flatten().map(|(key, value)| (key, value.0)).collect()
    };
    let found = match reference {
        Reference::ConfigMap(name) => {
            let maps = kube::Api::<ConfigMap>::namespaced(client.clone(), namespace);
            maps.get_opt(name).await?.map(|map| Found {
                data: map.data.into_iter().flatten().map(|(key, text)| (key, text.into_bytes())).collect(),
                binary: bytes(map.binary_data),
            })
        }
        Reference::Secret(name) => {
            let secrets = kube::Api::<Secret>::namespaced(client.clone(), namespace);
            let secret = secrets.get_opt(name).await?;
            secret.map(|secret| Found { data: bytes(secret.data), binary: BTreeMap::new() })
        }
    };
    Ok(found.map(|found| (reference.clone(), found)))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_host_cannot_do_is_refused_with_a_way_out() {
        for (container, is_any, no_images, want) in [
            (json!({"image": "host", "command": ["true"]}), false, None, None),
            (json!({"image": "busybox", "command": ["true"]}), true, None, None),
            (
                json!({"image": "busybox", "command": ["true"]}),
                false,
                Some("no: refused"),
                Some((
                    "ImagePullBackOff",
                    "Back-off pulling image \"busybox\": this node is not root, and has no user namespace (no: refused); run it \
                     as root, use `image: host` to run the command on this machine, or `--runtime host` to do so for every image",
                )),
            ),
            (
                json!({"image": "busybox", "command": ["true"]}),
                false,
                None,
                Some((
                    "ImagePullBackOff",
                    "Back-off pulling image \"busybox\": this node has no OCI runtime; install crun or runc, use `image: host` \
                     to run the command on this machine, or `--runtime host` to do so for every image",
                )),
            ),
            (
                json!({"image": "host", "args": ["x"]}),
                false,
                None,
                Some((
                    "CreateContainerError",
                    "no command specified: container \"c\" needs `command`, for the host has no entrypoint",
                )),
            ),
        ] {
            let mut container = container;
            container["name"] = json!("c");
            let container: Container = serde_json::from_value(container).expect("a container");
            let want = want.map(|(reason, message)| Error::for_good(reason, message.into()));
            assert_eq!(check(&container, is_any, no_images).err(), want);
        }
    }
}
