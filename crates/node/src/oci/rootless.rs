//! What is different in a container of a node that is not root: all of it is in a user namespace in which the node's user
//! is the only one, and the one user of the container.

use k8s_openapi::api::core::v1::{Container, ExecAction, PodSpec};
use serde_json::{Value, json};

use super::{Kind, spec};
use crate::runtimes::sandbox::User;

/// Why no process joins a container: crun (1.8.1) wants to be root there first, and without it there is nobody to filter system
/// calls.
pub const NO_EXEC: &str = "this node is not root, and with a seccompProfile processes join containers of the user 0 of group 0 only";

/// The user of a container, or why it can't have this one. The groups that only the image gives are left out.
pub fn user(pod: &PodSpec, container: &Container, user: User, kind: Kind) -> Result<User, String> {
    if pod.host_pid == Some(true) {
        return Err("hostPID needs root, and this node is not root".into());
    }
    let context = pod.security_context.as_ref();
    let asked = context.iter().flat_map(|c| c.supplemental_groups.iter().flatten().chain(&c.fs_group));
    if let Some(group) = asked.copied().find(|group| *group != i64::from(user.gid)) {
        return Err(format!(
            "cannot have group {group}: this node is not root, and its containers have one group only, here {}",
            user.gid
        ));
    }
    let limited = match kind {
        Kind::Crun => None,
        Kind::Runc => Some("runc"),
        Kind::Youki => Some("youki"),
    };
    if let Some(runtime) = limited.filter(|_| !can_be_joined(&user)) {
        return Err(format!(
            "cannot run as user {} of group {}: this node is not root, and with {runtime} its containers have the user 0 of group \
             0 only; set runAsUser and runAsGroup to 0, or install crun",
            user.uid, user.gid
        ));
    }
    if !can_be_joined(&user) && has_commands(container) && spec::has_seccomp(pod, container) {
        return Err(format!(
            "cannot run commands of probes and hooks as user {} of group {}: {NO_EXEC}",
            user.uid, user.gid
        ));
    }
    Ok(User { groups: Vec::new(), ..user })
}

/// Whether the runtime lets processes join a container of this user.
pub fn can_be_joined(user: &User) -> bool {
    (user.uid, user.gid) == (0, 0)
}

/// Whether a container has probes or hooks that are commands.
fn has_commands(container: &Container) -> bool {
    let probes = [&container.liveness_probe, &container.readiness_probe, &container.startup_probe];
    let probes = probes.into_iter().flatten().map(|probe| &probe.exec);
    let hooks = container.lifecycle.iter().flat_map(|hooks| [&hooks.post_start, &hooks.pre_stop]);
    let mut all = probes.chain(hooks.flatten().map(|hook| &hook.exec));
    all.any(Option::<ExecAction>::is_some)
}

/// Changes the configuration of a container so that who is root of a user namespace only can make it. `oom_score_adj`: the
/// node's own, below which nobody may go.
pub fn adjust(config: &mut Value, user: &User, has_own_ipc: bool, oom_score_adj: i64) {
    let wanted = config["process"]["oomScoreAdj"].as_i64().unwrap_or_default();
    config["process"]["oomScoreAdj"] = wanted.max(oom_score_adj).into();
    let mounts = config["mounts"].as_array_mut().map(std::mem::take).unwrap_or_default();
    let mounts = mounts.into_iter().flat_map(|mount| adjusted(mount, has_own_ipc));
    config["mounts"] = mounts.collect();
    if can_be_joined(user) {
        return;
    }
    // Inside one more user namespace, in which root of the one around it has another number.
    if let Some(namespaces) = config["linux"]["namespaces"].as_array_mut() {
        namespaces.push(json!({"type": "user"}));
    }
    let map = |id: u32| json!([{"containerID": id, "hostID": 0, "size": 1}]);
    config["linux"]["uidMappings"] = map(user.uid);
    config["linux"]["gidMappings"] = map(user.gid);
}

/// What takes the place of a mount.
fn adjusted(mut mount: Value, has_own_ipc: bool) -> Vec<Value> {
    let bind = |mount: &mut Value| {
        mount["type"] = "bind".into();
        mount["source"] = mount["destination"].clone();
        if let Some(options) = mount["options"].as_array_mut() {
            // The mounts in it can't be left out: they may hide something.
            options.extend(["rbind", "rprivate"].map(Value::from));
        }
    };
    // Those of the containers themselves are of the type `bind`.
    match (mount["type"].as_str(), mount["destination"].as_str()) {
        (Some("devpts"), _) => {
            if let Some(options) = mount["options"].as_array_mut() {
                // There is no such group.
                options.retain(|option| option != "gid=5");
            }
            vec![mount]
        }
        // They belong to the network and to the queues of the machine, of which this user is not root.
        (Some("sysfs"), _) => {
            bind(&mut mount);
            let options = json!(["nosuid", "noexec", "nodev", "ro", "size=0"]);
            let hidden = json!({
                "destination": "/sys/fs/cgroup", "type": "tmpfs", "source": "tmpfs", "options": options,
            });
            vec![mount, hidden]
        }
        (Some("mqueue"), _) if !has_own_ipc => {
            bind(&mut mount);
            vec![mount]
        }
        _ => vec![mount],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: (u32, u32) = (0, 0);

    fn of(ids: (u32, u32)) -> User {
        User { uid: ids.0, gid: ids.1, groups: vec![40] }
    }

    #[test]
    fn a_container_has_one_user_and_one_group() {
        let probed = json!({"name": "c", "readinessProbe": {"exec": {"command": ["x"]}}});
        let hooked = json!({"name": "c", "lifecycle": {"preStop": {"exec": {"command": ["x"]}}}});
        let by_network = json!({"name": "c", "livenessProbe": {"tcpSocket": {"port": 1}}});
        for (container, ids, is_fine) in [
            (&probed, ROOT, true),
            (&probed, (33, 34), false),
            (&hooked, (0, 34), false),
            (&by_network, (33, 34), true),
        ] {
            let mut container = container.clone();
            container["securityContext"] = json!({"seccompProfile": {"type": "RuntimeDefault"}});
            let (pod, container) =
                (PodSpec::default(), serde_json::from_value(container).expect("a container"));
            let want = format!(
                "cannot run commands of probes and hooks as user {} of group {}: {NO_EXEC}",
                ids.0, ids.1
            );
            let got = user(&pod, &container, of(ids), Kind::Crun).map(drop);
            assert_eq!(got, if is_fine { Ok(()) } else { Err(want) }, "{container:?} {ids:?}");
        }
        for (spec, ids, kind, want) in [
            (json!({}), ROOT, Kind::Runc, Ok(())),
            (json!({}), (33, 34), Kind::Crun, Ok(())),
            (
                json!({"securityContext": {"fsGroup": 34, "supplementalGroups": [34]}}),
                (33, 34),
                Kind::Crun,
                Ok(()),
            ),
            (
                json!({"securityContext": {"fsGroup": 50}}),
                ROOT,
                Kind::Crun,
                Err(
                    "cannot have group 50: this node is not root, and its containers have one group only, here 0",
                ),
            ),
            (
                json!({"securityContext": {"supplementalGroups": [0, 7]}}),
                ROOT,
                Kind::Crun,
                Err(
                    "cannot have group 7: this node is not root, and its containers have one group only, here 0",
                ),
            ),
            (
                json!({}),
                (33, 34),
                Kind::Runc,
                Err(
                    "cannot run as user 33 of group 34: this node is not root, and with runc its containers have the user 0 of \
                     group 0 only; set runAsUser and runAsGroup to 0, or install crun",
                ),
            ),
            (
                json!({"hostPID": true}),
                ROOT,
                Kind::Crun,
                Err("hostPID needs root, and this node is not root"),
            ),
        ] {
            let mut full = spec.clone();
            full["containers"] = json!([]);
            let pod: PodSpec = serde_json::from_value(full).expect("a spec");
            let want = want.map(|()| User { groups: Vec::new(), ..of(ids) }).map_err(str::to_owned);
            assert_eq!(user(&pod, &Container::default(), of(ids), kind), want, "{spec} {ids:?} {kind:?}");
        }
    }

    fn config() -> Value {
        json!({
            "process": {"oomScoreAdj": -997},
            "linux": {"namespaces": [{"type": "pid"}]},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid"]},
                {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["mode=0620", "gid=5"]},
                {"destination": "/dev/mqueue", "type": "mqueue", "source": "mqueue", "options": ["nosuid"]},
                {"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": ["ro"]},
                {"destination": "/data", "type": "bind", "source": "/v", "options": ["rbind"]},
            ],
        })
    }

    #[test]
    fn what_belongs_to_the_machine_is_shown_instead_of_made() {
        let (mut shared, mut own) = (config(), config());
        adjust(&mut own, &of(ROOT), true, -500);
        adjust(&mut shared, &of(ROOT), false, -500);
        let queues = |config: &Value| config["mounts"][2].clone();
        assert_eq!(queues(&own), config()["mounts"][2]);
        let bind = json!({
            "destination": "/dev/mqueue", "type": "bind", "source": "/dev/mqueue", "options": ["nosuid", "rbind", "rprivate"],
        });
        assert_eq!(queues(&shared), bind);
        own["mounts"].as_array_mut().expect("a list").remove(2);
        let want = json!({
            "process": {"oomScoreAdj": -500},
            "linux": {"namespaces": [{"type": "pid"}]},
            "mounts": [
                {"destination": "/proc", "type": "proc", "source": "proc", "options": ["nosuid"]},
                {"destination": "/dev/pts", "type": "devpts", "source": "devpts", "options": ["mode=0620"]},
                {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["ro", "rbind", "rprivate"]},
                {
                    "destination": "/sys/fs/cgroup", "type": "tmpfs", "source": "tmpfs",
                    "options": ["nosuid", "noexec", "nodev", "ro", "size=0"],
                },
                {"destination": "/data", "type": "bind", "source": "/v", "options": ["rbind"]},
            ],
        });
        assert_eq!(own, want);
    }

    #[test]
    fn another_user_than_root_is_the_nodes_by_another_number() {
        let mut config = config();
        adjust(&mut config, &of((33, 34)), true, -1000);
        let want = json!({
            "namespaces": [{"type": "pid"}, {"type": "user"}],
            "uidMappings": [{"containerID": 33, "hostID": 0, "size": 1}],
            "gidMappings": [{"containerID": 34, "hostID": 0, "size": 1}],
        });
        assert_eq!((&config["linux"], &config["process"]["oomScoreAdj"]), (&want, &json!(-997)));
    }
}
