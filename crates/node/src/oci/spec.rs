//! The `config.json` of a container: the OCI runtime specification's words for what Kubernetes asks for.

use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::{Container, PodSpec};
use serde_json::{Value, json};

use super::devices::Device;
use super::seccomp;
use crate::runtimes::sandbox::{Mount, User};
use crate::security;

/// What a container may do when nothing is said (upstream: the defaults of containerd), but for `MKNOD`: which devices a
/// container may use is kept by a control group that this runtime does not make.
const DEFAULT_CAPABILITIES: [&str; 13] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "FSETID",
    "FOWNER",
    "NET_RAW",
    "SETGID",
    "SETUID",
    "SETFCAP",
    "SETPCAP",
    "NET_BIND_SERVICE",
    "SYS_CHROOT",
    "KILL",
    "AUDIT_WRITE",
];

/// What of `/proc` and `/sys` nobody sees, and nobody writes to.
const MASKED: [&str; 11] = [
    "/proc/acpi",
    "/proc/asound",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
const READ_ONLY: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// All that is known of a container that is about to run.
#[derive(Debug)]
pub struct View<'a> {
    /// Its pod.
    pub pod: &'a PodSpec,
    /// The container.
    pub container: &'a Container,
    /// Program and arguments.
    pub argv: &'a [String],
    /// Its environment.
    pub env: &'a [(String, String)],
    /// Where it starts.
    pub cwd: &'a str,
    /// As whom.
    pub user: &'a User,
    /// The root of its files.
    pub root: &'a Path,
    /// Its volumes and the files that every container has, in the order of their paths, each with what is mounted.
    pub mounts: &'a [(Mount, PathBuf)],
    /// Its host name.
    pub hostname: &'a str,
    /// How readily the kernel kills it when the machine is short of memory.
    pub oom_score_adj: i64,
    /// The capabilities that there are to give, by the bits of the kernel.
    pub capabilities: u64,
    /// The devices that it may use, besides those that every container has.
    pub devices: &'a [Device],
}

/// Why a container can't be run so.
pub type Error = String;

/// The configuration.
pub fn config(view: &View<'_>) -> Result<Value, Error> {
    // What this runtime can't do is never left out in silence.
    security::refuse(view.pod, view.container, "the OCI runtime")?;
    let own = view.container.security_context.as_ref();
    let is_privileged = own.and_then(|c| c.privileged) == Some(true);
    let capabilities = capabilities(view.container, view.capabilities)?;
    let env: Vec<String> = view.env.iter().map(|(name, value)| format!("{name}={value}")).collect();
    let namespaces = [
        // That of the pod is there already, with the runtime in it.
        ("pid", view.pod.host_pid != Some(true) && view.pod.share_process_namespace != Some(true)),
        ("mount", true),
        ("uts", true),
        ("ipc", view.pod.host_ipc != Some(true)),
    ];
    let namespaces: Vec<Value> =
        namespaces.iter().filter(|(_, is_own)| *is_own).map(|(kind, _)| json!({"type": kind})).collect();
    let paths = |paths: &[&str]| if is_privileged { json!([]) } else { json!(paths) };
    let mut linux = json!({
        "devices": view.devices.iter().map(device).collect::<Vec<_>>(),
        "namespaces": namespaces,
        "maskedPaths": paths(&MASKED),
        "readonlyPaths": paths(&READ_ONLY),
    });
    if has_seccomp(view.pod, view.container) {
        linux["seccomp"] = seccomp::default_profile();
    }
    Ok(json!({
        "ociVersion": "1.0.0",
        "process": {
            "terminal": false,
            "user": {"uid": view.user.uid, "gid": view.user.gid, "additionalGids": view.user.groups},
            "args": view.argv,
            "env": env,
            "cwd": view.cwd,
            "capabilities": {
                "bounding": capabilities, "effective": capabilities, "permitted": capabilities,
            },
            "noNewPrivileges": own.and_then(|c| c.allow_privilege_escalation) == Some(false),
            "oomScoreAdj": view.oom_score_adj,
        },
        "root": {
            "path": view.root,
            "readonly": own.and_then(|c| c.read_only_root_filesystem) == Some(true),
        },
        "hostname": view.hostname,
        "mounts": mounts(view.mounts, is_privileged),
        "linux": linux,
    }))
}

/// Whether system calls of a container are filtered.
pub fn has_seccomp(pod: &PodSpec, container: &Container) -> bool {
    let own = container.security_context.as_ref();
    let of_pod = pod.security_context.as_ref().and_then(|p| p.seccomp_profile.as_ref());
    let profile = own.and_then(|c| c.seccomp_profile.as_ref()).or(of_pod);
    own.and_then(|c| c.privileged) != Some(true)
        && profile.is_some_and(|profile| profile.type_ == "RuntimeDefault")
}

fn device(device: &Device) -> Value {
    json!({
        "path": device.path,
        "type": if device.is_block { "b" } else { "c" },
        "major": device.numbers.0, "minor": device.numbers.1,
        "fileMode": device.mode, "uid": device.owner.0, "gid": device.owner.1,
    })
}

/// `/dev` is the container's own whatever it may do: where files are mounted into that of the machine, they stay there.
fn mounts(own: &[(Mount, PathBuf)], is_privileged: bool) -> Vec<Value> {
    let mount = |target: &str, kind: &str, options: &[&str]| json!({"destination": target, "type": kind, "source": kind, "options": options});
    let pts = ["nosuid", "noexec", "newinstance", "ptmxmode=0666", "mode=0620", "gid=5"];
    let mut all = vec![
        mount("/proc", "proc", &["nosuid", "noexec", "nodev"]),
        mount("/dev", "tmpfs", &["nosuid", "strictatime", "mode=755", "size=65536k"]),
        mount("/dev/pts", "devpts", &pts),
        mount("/dev/shm", "tmpfs", &["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"]),
        mount("/dev/mqueue", "mqueue", &["nosuid", "noexec", "nodev"]),
        mount("/sys", "sysfs", &["nosuid", "noexec", "nodev", if is_privileged { "rw" } else { "ro" }]),
    ];
    all.extend(own.iter().map(|(mount, source)| {
        let access = if mount.is_read_only { "ro" } else { "rw" };
        // A device in a volume is a file like any other to who has not got all rights anyway.
        let mut options = vec!["rbind", "rprivate", access];
        options.extend((!is_privileged).then_some("nodev"));
        json!({"destination": mount.target, "type": "bind", "source": source, "options": options})
    }));
    all
}

/// The capabilities: the defaults, less what is dropped, and what is added. All of them are all that there are to give
/// (upstream: those of containerd itself); one that is named and can't be given fails the container.
fn capabilities(container: &Container, given: u64) -> Result<Vec<String>, Error> {
    let own = container.security_context.as_ref();
    let named = |names: &[&str]| security::bits(names.iter().copied());
    let held = |bits: u64| if bits == u64::MAX { given } else { bits };
    let asked = own.and_then(|c| c.capabilities.as_ref());
    let texts = |list: Option<&Vec<String>>| security::bits(list.into_iter().flatten().map(String::as_str));
    let (added, dropped) =
        (texts(asked.and_then(|c| c.add.as_ref()))?, texts(asked.and_then(|c| c.drop.as_ref()))?);
    let base =
        if own.and_then(|c| c.privileged) == Some(true) { given } else { named(&DEFAULT_CAPABILITIES)? };
    Ok(security::names((base & !dropped) | held(added)))
}

/// How readily the kernel kills a container when the machine is short of memory (upstream: GetContainerOOMScoreAdjust).
pub fn oom_score_adj(qos: &str, memory_request: i64, capacity: i64) -> i64 {
    match qos {
        "Guaranteed" => -997,
        "BestEffort" => 1000,
        _ => {
            let share = i128::from(memory_request) * 1000 / i128::from(capacity.max(1));
            let adjusted = 1000 - i64::try_from(share).unwrap_or(1000);
            adjusted.clamp(3, 999)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All that there are in Linux 6, without `SYS_RESOURCE`.
    const GIVEN: u64 = 0x1ff_feff_ffff;

    fn view_of(pod: Value, container: Value) -> Result<Value, Error> {
        let mut container = container;
        container["name"] = json!("c");
        let container: Container = serde_json::from_value(container).expect("a container");
        let mut pod = pod;
        pod["containers"] = json!([]);
        let pod: PodSpec = serde_json::from_value(pod).expect("a spec");
        let volume =
            Mount { source: "/v".into(), sub_path: None, target: "/data".into(), is_read_only: true };
        config(&View {
            pod: &pod,
            container: &container,
            argv: &["a".into(), "b".into()],
            env: &[("X".into(), "1".into())],
            cwd: "/w",
            user: &User { uid: 1, gid: 2, groups: vec![3] },
            root: Path::new("/r"),
            mounts: &[(volume, "/v".into())],
            hostname: "h",
            oom_score_adj: 1000,
            capabilities: GIVEN,
            devices: &[],
        })
    }

    #[test]
    fn a_plain_container_has_the_defaults() {
        let config = view_of(json!({}), json!({})).expect("fine");
        let process = &config["process"];
        assert_eq!(process["args"], json!(["a", "b"]));
        assert_eq!(process["env"], json!(["X=1"]));
        assert_eq!(process["user"], json!({"uid": 1, "gid": 2, "additionalGids": [3]}));
        assert_eq!((&process["cwd"], &process["noNewPrivileges"]), (&json!("/w"), &json!(false)));
        let mut capabilities: Vec<String> =
            DEFAULT_CAPABILITIES.iter().map(|name| format!("CAP_{name}")).collect();
        let mut got: Vec<String> =
            serde_json::from_value(process["capabilities"]["bounding"].clone()).expect("a list");
        capabilities.sort();
        got.sort();
        assert_eq!(got, capabilities);
        assert_eq!(config["root"], json!({"path": "/r", "readonly": false}));
        let kinds = ["pid", "mount", "uts", "ipc"].map(|kind| json!({"type": kind}));
        assert_eq!(config["linux"]["namespaces"], json!(kinds));
        assert_eq!(config["linux"]["seccomp"], Value::Null);
        let last = config["mounts"].as_array().and_then(|all| all.last()).cloned();
        let want = json!({
            "destination": "/data", "type": "bind", "source": "/v", "options": ["rbind", "rprivate", "ro", "nodev"],
        });
        assert_eq!(last, Some(want));
    }

    #[test]
    fn the_security_context_changes_what_it_says() {
        for (pod, context, pointer, want) in [
            (json!({}), json!({"readOnlyRootFilesystem": true}), "/root/readonly", json!(true)),
            (json!({}), json!({"allowPrivilegeEscalation": false}), "/process/noNewPrivileges", json!(true)),
            (
                json!({}),
                json!({"capabilities": {"drop": ["ALL"], "add": ["NET_ADMIN"]}}),
                "/process/capabilities/effective",
                json!(["CAP_NET_ADMIN"]),
            ),
            (json!({}), json!({"privileged": true}), "/linux/maskedPaths", json!([])),
            (json!({}), json!({"seccompProfile": {"type": "Unconfined"}}), "/linux/seccomp", Value::Null),
            (
                json!({"securityContext": {"seccompProfile": {"type": "RuntimeDefault"}}}),
                json!({}),
                "/linux/seccomp/defaultAction",
                json!("SCMP_ACT_ALLOW"),
            ),
        ] {
            let config = view_of(pod, json!({"securityContext": context})).expect("fine");
            assert_eq!(config.pointer(pointer).cloned().unwrap_or_default(), want, "{context}");
        }
    }

    #[test]
    fn all_capabilities_are_those_that_there_are() {
        for (context, want) in [
            (json!({"privileged": true}), GIVEN),
            (json!({"privileged": true, "capabilities": {"drop": ["CHOWN"]}}), GIVEN - 1),
            (json!({"capabilities": {"add": ["ALL"]}}), GIVEN),
            (json!({"capabilities": {"drop": ["ALL"], "add": ["SYS_RESOURCE"]}}), 1 << 24),
        ] {
            let config = view_of(json!({}), json!({"securityContext": context})).expect("fine");
            assert_eq!(
                config["process"]["capabilities"]["bounding"],
                json!(security::names(want)),
                "{context}"
            );
        }
    }

    #[test]
    fn a_pod_may_share_what_the_machine_has() {
        for (pod, want) in [
            (json!({}), vec!["pid", "mount", "uts", "ipc"]),
            (json!({"hostPID": true}), vec!["mount", "uts", "ipc"]),
            (json!({"shareProcessNamespace": true}), vec!["mount", "uts", "ipc"]),
            (json!({"hostPID": true, "hostIPC": true}), vec!["mount", "uts"]),
        ] {
            let config = view_of(pod.clone(), json!({})).expect("fine");
            let want: Vec<Value> = want.into_iter().map(|kind| json!({"type": kind})).collect();
            assert_eq!(config["linux"]["namespaces"], json!(want), "{pod}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        for (context, want) in [
            (
                json!({"seLinuxOptions": {"level": "s0"}}),
                "securityContext: seLinuxOptions is not supported by the OCI runtime",
            ),
            (json!({"capabilities": {"add": ["FLY"]}}), "unknown capability \"FLY\""),
        ] {
            let got = view_of(json!({}), json!({"securityContext": context}));
            assert_eq!(got.err().as_deref(), Some(want));
        }
    }

    #[test]
    fn pods_without_claims_are_killed_first() {
        for (qos, request, want) in [
            ("Guaranteed", 0, -997),
            ("BestEffort", 0, 1000),
            ("Burstable", 0, 999),
            ("Burstable", 500, 500),
            ("Burstable", 1000, 3),
        ] {
            assert_eq!(oom_score_adj(qos, request, 1000), want, "{qos} {request}");
        }
    }
}
