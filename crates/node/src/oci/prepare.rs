//! From a container of a pod and its image to a process of a runtime that can be started.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, Service};

use super::bundle::{self, Paths};
use super::devices;
use super::rootless;
use super::spec::{self, View};
use super::user::{self, Files};
use super::{Exec, Kind};
use crate::agent::Oci;
use crate::cgroup::Group;
use crate::images::Image;
use crate::images::manifest::Run;
use crate::pod::Context;
use crate::prepare::{self, Error, Prepared};
use crate::runtimes::keeper::MARKER;
use crate::runtimes::sandbox::{Mount, Pids, Root, Sandbox};
use crate::runtimes::{Process, Starts};
use crate::{env, input, mounts, security, services, status};

/// Where programs are when neither image nor pod says so.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// What is read of the files with an image's users.
const USERS_BYTES_MAX: u64 = 1 << 20;

/// The process of one run of a container.
pub(crate) async fn process(
    context: &Context,
    oci: &Oci,
    pod: &Pod,
    container: &Container,
    run: i32,
    image: &Image,
) -> Result<Prepared, Error> {
    let Some(spec) = &pod.spec else { return Err(Error::config("the pod has no spec".into())) };
    let hostname = hostname(pod, spec);
    let sources = prepare::fetch(context, pod, &env::references(container)).await?;
    let services = context.services.all().await.map_err(Error::config)?;
    let mut base = base_environment(&image.config.config, &hostname);
    base.extend(services::variables(&services, pod, context.facts().ip));
    let environment = env::environment(pod, container, &sources, &context.facts(), &base);
    let mut environment = environment.map_err(|error| Error::config(error.to_string()))?;
    input::name_terminal(container, &mut environment);
    let argv = command_line(container, &image.config.config, &environment);
    if argv.is_empty() {
        return Err(Error::create(format!("no command specified for container {:?}", container.name)));
    }
    let has_copy = context.copies_images.load(Ordering::Relaxed);
    let (on_disk, while_it_runs) = (context.pod_directory(pod), context.run_directory(pod));
    let paths = Paths::new(&on_disk, &while_it_runs, &container.name, run, has_copy);
    let etc = etc(pod, &hostname, &services);
    let all = all_mounts(context, pod, container, run, &environment, &paths.etc)?;
    let (all, parts) = split_parts(all, &paths.mounts);
    let text = |path| image.read(path, USERS_BYTES_MAX).unwrap_or_default();
    let (passwd, group) = (text("etc/passwd"), text("etc/group"));
    let files = Files { passwd: &passwd, group: &group };
    let user = user::resolve(spec, container, &prepare::title(pod), &image.config.config.user, files);
    let mut user = user.map_err(Error::config)?;
    let is_rootless = context.is_rootless();
    if is_rootless {
        user = rootless::user(spec, container, user, oci.runtime.kind).map_err(Error::config)?;
    }
    let is_privileged = container.security_context.as_ref().and_then(|c| c.privileged) == Some(true);
    let devices = if is_privileged { devices::below(Path::new("/dev")) } else { Ok(Vec::new()) };
    let devices =
        devices.map_err(|error| Error::create(format!("list the devices of this machine: {error}")))?;
    let view = View {
        pod: spec,
        container,
        argv: &argv,
        env: &environment,
        cwd: working_dir(container, &image.config.config),
        user: &user,
        root: &paths.rootfs,
        mounts: &all,
        hostname: &hostname,
        oom_score_adj: oom_score_adj(context, spec, container),
        capabilities: super::capabilities(is_rootless),
        devices: &devices,
    };
    let mut config = spec::config(&view).map_err(Error::config)?;
    if is_rootless {
        rootless::adjust(&mut config, &user, spec.host_ipc != Some(true), own_oom_score_adj());
    }
    if oci.runtime.kind == Kind::Runc {
        // It makes a terminal in the container; crun gives it the one that it has itself.
        config["process"]["terminal"] = (container.tty == Some(true)).into();
        // It replaces a file where crun writes to a pipe. What it tells a hook, the number of the process among it, has to
        // be read: it would pass on the signal that it gets otherwise.
        let number = r#"s/.*"pid": *\([0-9]*\).*/\1/p"#;
        // Said at once, for nobody listens any longer then.
        let script = format!("number=$(sed -n '{number}'); echo \"$number\" > '{}'", paths.started.display());
        config["hooks"] =
            serde_json::json!({"poststart": [{"path": "/bin/sh", "args": ["sh", "-c", script]}]});
    }
    if oci.runtime.kind == Kind::Youki {
        // Where it would be wherever it is: it sees no control groups.
        config["linux"]["cgroupsPath"] = "/".into();
    }
    let making = paths.make(&config, &etc);
    making.map_err(|error| Error::create(format!("make bundle {}: {error}", paths.bundle.display())))?;
    let layers = match has_copy {
        true => {
            copy(image.layers.clone(), paths.rootfs.clone()).await?;
            Vec::new()
        }
        false => {
            let lowest = bundle::mount_points(&context.config.data_dir);
            let lowest = lowest.map_err(|error| Error::create(format!("make mount points: {error}")))?;
            std::iter::once(lowest).chain(image.layers.iter().cloned()).collect()
        }
    };
    let has_own_user = is_rootless && !rootless::can_be_joined(&user);
    let pids = pids(pod, spec);
    let group = context.group(pod, container, run, pids != Pids::Own).map_err(Error::create)?;
    let held_by = group.as_ref().and_then(|group| group.holds.clone());
    let needs_group = match &pids {
        Pids::Own => None,
        Pids::Pod(_) => Some("shareProcessNamespace"),
        Pids::Machine => Some("hostPID"),
    };
    if let Some(field) = needs_group.filter(|_| held_by.is_none()) {
        return Err(Error::config(format!("{field} needs control groups, which this node may not make")));
    }
    let root = Root {
        layers,
        upper: paths.upper.clone(),
        work: paths.work.clone(),
        target: paths.rootfs.clone(),
        small: paths.etc.clone(),
        has_devices: is_privileged,
        hidden: context.hidden.clone(),
        groups: (oci.runtime.kind == Kind::Youki).then(|| context.cgroup_mounts.clone()),
        read_only: match oci.runtime.kind {
            Kind::Crun | Kind::Youki => Vec::new(),
            Kind::Runc => context.cgroup_mounts.clone(),
        },
        pids,
        is_rootless,
        has_own_user,
    };
    // What holds for processes that join without the runtime; the others have it from there.
    let held: Vec<String> =
        serde_json::from_value(config["process"]["capabilities"]["bounding"].clone()).unwrap_or_default();
    let sandbox = Sandbox {
        keeps_privileges_down: has_own_user && config["process"]["noNewPrivileges"] == true,
        dropped_capabilities: match has_own_user {
            true => !security::bits(held.iter().map(String::as_str)).map_err(Error::config)?,
            false => 0,
        },
        mounts: parts,
        cgroups: group.iter().flat_map(Group::members).collect(),
        held_by,
        image: Some(root),
        ..Sandbox::default()
    };
    let marker = prepare::marker(pod, container, run);
    let (argv, left) = oci.runtime.run(&paths);
    let process = Process {
        argv,
        env: vec![("PATH".into(), PATH.into()), (MARKER.into(), marker)],
        cwd: "/".into(),
        log: prepare::log(context, pod, container, run)?,
        makes_log_late: context.config.is_of_one_run,
        sandbox: Some(Box::new(sandbox)),
        starts: Some(Starts { told_by: paths.started.clone(), errors: paths.errors.clone(), left }),
        input: input::kind(container),
        log_limits: context.config.log_limits,
    };
    let refused = (has_own_user && spec::has_seccomp(spec, container)).then_some(rootless::NO_EXEC);
    let cwd = PathBuf::from(working_dir(container, &image.config.config));
    let direct = has_own_user.then_some((environment, cwd));
    let exec = Exec { refused, direct, ..oci.runtime.exec(&paths) };
    Ok(Prepared { process, group, leaves: vec![paths.bundle, paths.disk], exec: Some(exec) })
}

async fn copy(layers: Vec<PathBuf>, into: PathBuf) -> Result<(), Error> {
    let copied = tokio::task::spawn_blocking(move || super::copy::flatten(&layers, &into)).await;
    let copied = copied.map_err(std::io::Error::other).and_then(|copied| copied);
    copied.map_err(|error| Error::create(format!("copy the image: {error}")))
}

fn pids(pod: &Pod, spec: &PodSpec) -> Pids {
    match (spec.host_pid, spec.share_process_namespace) {
        (Some(true), _) => Pids::Machine,
        (_, Some(true)) => Pids::Pod(pod.metadata.uid.clone().unwrap_or_default()),
        _ => Pids::Own,
    }
}

fn hostname(pod: &Pod, spec: &PodSpec) -> String {
    let name = spec.hostname.as_ref().or(pod.metadata.name.as_ref());
    name.map(|name| name.chars().take(63).collect()).unwrap_or_default()
}

/// What every container of an image has, before its own variables.
fn base_environment(run: &Run, hostname: &str) -> Vec<(String, String)> {
    let mut base = Vec::new();
    let image = run.env.iter().filter_map(|text| text.split_once('='));
    let image: Vec<(String, String)> =
        image.map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    if !image.iter().any(|(name, _)| name == "PATH") {
        base.push(("PATH".to_owned(), PATH.to_owned()));
    }
    base.push(("HOSTNAME".to_owned(), hostname.to_owned()));
    base.extend(image);
    base
}

/// `command` takes the place of the entrypoint and of the image's arguments, `args` that of the arguments.
fn command_line(container: &Container, run: &Run, environment: &[(String, String)]) -> Vec<String> {
    let own = env::command_line(container, environment);
    let has_command = container.command.as_ref().is_some_and(|command| !command.is_empty());
    let has_args = container.args.as_ref().is_some_and(|args| !args.is_empty());
    match (has_command, has_args) {
        (true, _) => own,
        (false, true) => run.entrypoint.iter().cloned().chain(own).collect(),
        (false, false) => run.entrypoint.iter().chain(&run.cmd).cloned().collect(),
    }
}

fn working_dir<'a>(container: &'a Container, run: &'a Run) -> &'a str {
    let own = container.working_dir.as_deref().filter(|directory| !directory.is_empty());
    let image = Some(run.working_dir.as_str()).filter(|directory| !directory.is_empty());
    own.or(image).unwrap_or("/")
}

/// How readily the kernel kills this process.
fn own_oom_score_adj() -> i64 {
    let text = std::fs::read_to_string("/proc/self/oom_score_adj").unwrap_or_default();
    text.trim().parse().unwrap_or_default()
}

fn oom_score_adj(context: &Context, spec: &PodSpec, container: &Container) -> i64 {
    let requests = container.resources.as_ref().and_then(|resources| resources.requests.as_ref());
    let request = requests.and_then(|requests| requests.get("memory"));
    let request = request.and_then(|quantity| quantity.0.parse::<windlass_api::quantity::Quantity>().ok());
    let capacity = context.config.capacity.memory.value();
    spec::oom_score_adj(status::qos_class(spec), request.map_or(0, |request| request.value()), capacity)
}

/// The volumes of a container and the files that each has, in the order of their paths.
fn all_mounts(
    context: &Context,
    pod: &Pod,
    container: &Container,
    run: i32,
    environment: &[(String, String)],
    etc: &Path,
) -> Result<Vec<Mount>, Error> {
    let mut all = mounts::of(context, pod, container, environment).map_err(Error::config)?;
    for name in bundle::ETC_FILES {
        let target = Path::new("/etc").join(name);
        if !all.iter().any(|mount| mount.target == target) {
            all.push(Mount { source: etc.join(name), sub_path: None, target, is_read_only: false });
        }
    }
    all.extend(mounts::message(context, pod, container, run).map_err(Error::create)?);
    all.sort_by(|a, b| a.target.cmp(&b.target));
    Ok(all)
}

/// What the files say that tell a container who and where it is, in the order of [`bundle::ETC_FILES`].
fn etc(pod: &Pod, hostname: &str, services: &[Arc<Service>]) -> [String; 3] {
    let machine = |path| std::fs::read_to_string(path).unwrap_or_default();
    let aliases = pod.spec.as_ref().and_then(|spec| spec.host_aliases.clone()).unwrap_or_default();
    let services = services::names(services, pod.metadata.namespace.as_deref().unwrap_or_default());
    let hosts = bundle::hosts(&machine("/etc/hosts"), hostname, &aliases, &services);
    [hosts, format!("{hostname}\n"), machine("/etc/resolv.conf")]
}

/// Where each mount comes from for the runtime. A part of a volume is mounted beside the bundle first, for the runtime
/// would follow links in it: those are returned too.
fn split_parts(all: Vec<Mount>, beside: &Path) -> (Vec<(Mount, PathBuf)>, Vec<Mount>) {
    let (mut whole, mut parts) = (Vec::new(), Vec::new());
    for (number, mount) in all.into_iter().enumerate() {
        let source = match mount.sub_path {
            None => mount.source.clone(),
            Some(_) => {
                let place = beside.join(number.to_string());
                parts.push(Mount { target: place.clone(), ..mount.clone() });
                place
            }
        };
        whole.push((mount, source));
    }
    (whole, parts)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn image() -> Run {
        Run {
            entrypoint: vec!["/entry".into()],
            cmd: vec!["default".into()],
            env: vec!["A=1=2".into(), "bad".into()],
            working_dir: "/work".into(),
            ..Run::default()
        }
    }

    #[test]
    fn command_and_args_take_the_place_of_entrypoint_and_cmd() {
        let env = [("X".to_owned(), "y".to_owned())];
        for (container, want) in [
            (json!({}), vec!["/entry", "default"]),
            (json!({"command": [], "args": []}), vec!["/entry", "default"]),
            (json!({"args": ["$(X)"]}), vec!["/entry", "y"]),
            (json!({"command": ["c"]}), vec!["c"]),
            (json!({"command": ["c"], "args": ["$(X)", "$$(X)"]}), vec!["c", "y", "$(X)"]),
        ] {
            let mut container = container;
            container["name"] = json!("c");
            let container: Container = serde_json::from_value(container).expect("a container");
            assert_eq!(command_line(&container, &image(), &env), want);
        }
    }

    #[test]
    fn the_environment_begins_with_the_images() {
        let pairs = |run: &Run| -> Vec<String> {
            base_environment(run, "h").into_iter().map(|(name, value)| format!("{name}={value}")).collect()
        };
        assert_eq!(pairs(&image()), [format!("PATH={PATH}"), "HOSTNAME=h".into(), "A=1=2".into()]);
        let own = Run { env: vec!["PATH=/x".into()], ..Run::default() };
        assert_eq!(pairs(&own), ["HOSTNAME=h", "PATH=/x"]);
    }

    #[test]
    fn the_working_directory_is_the_containers_or_the_images() {
        for (own, run, want) in
            [(Some("/own"), image(), "/own"), (None, image(), "/work"), (Some(""), Run::default(), "/")]
        {
            let container = Container { working_dir: own.map(str::to_owned), ..Container::default() };
            assert_eq!(working_dir(&container, &run), want);
        }
    }

    #[test]
    fn parts_of_volumes_are_mounted_beside_the_bundle() {
        let mount = |target: &str, sub_path: Option<&str>| Mount {
            source: "/v".into(),
            sub_path: sub_path.map(PathBuf::from),
            target: target.into(),
            is_read_only: true,
        };
        let (whole, parts) = split_parts(vec![mount("/a", None), mount("/b", Some("x"))], Path::new("/m"));
        let want =
            [(mount("/a", None), PathBuf::from("/v")), (mount("/b", Some("x")), PathBuf::from("/m/1"))];
        assert_eq!(whole, want);
        assert_eq!(parts, [mount("/m/1", Some("x"))]);
    }
}
