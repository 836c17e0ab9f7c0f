//! As whom a container runs and what it may do: the security contexts of pod and container, for processes of this
//! machine.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::runtimes::sandbox::User;

/// Who this agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Own {
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl Own {
    /// This process.
    pub(crate) fn of_this_process() -> Self {
        Self { uid: rustix::process::geteuid().as_raw(), gid: rustix::process::getegid().as_raw() }
    }

    /// As whom it is known to a container that is made by root of a user namespace; `None`: it is root itself.
    pub(crate) fn inside(self) -> Option<(u32, u32)> {
        (self.uid != 0).then_some((self.uid, self.gid))
    }
}

/// What the contexts come to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Security {
    /// As whom; `None`: as the agent.
    pub user: Option<User>,
    /// `allowPrivilegeEscalation: false`.
    pub keeps_privileges_down: bool,
    /// Capabilities that it may not have, by the bits of the kernel.
    pub dropped_capabilities: u64,
    /// `readOnlyRootFilesystem`.
    pub has_read_only_root: bool,
}

/// The group of a user that the machine does not know and for which none is given: `nogroup`. Container runtimes use
/// 0, which is root's group on a real machine.
const GROUP_OF_UNKNOWN: u32 = 65_534;

/// What the contexts of a container and its pod come to, or why it can't be run so. `group_of` finds the group of a user
/// that this machine knows.
pub fn of(
    spec: &PodSpec,
    container: &Container,
    title: &str,
    own: Own,
    group_of: impl Fn(u32) -> Option<u32>,
) -> Result<Security, String> {
    let (pod, context) = (spec.security_context.as_ref(), container.security_context.as_ref());
    let id = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    let uid = id(context.and_then(|c| c.run_as_user).or(pod.and_then(|p| p.run_as_user)));
    let gid = id(context.and_then(|c| c.run_as_group).or(pod.and_then(|p| p.run_as_group)));
    let mut groups: Vec<u32> = pod
        .iter()
        .flat_map(|p| p.supplemental_groups.iter().flatten())
        .filter_map(|g| id(Some(*g)))
        .collect();
    groups.extend(id(pod.and_then(|p| p.fs_group)));
    let is_root_forbidden =
        context.and_then(|c| c.run_as_non_root).or(pod.and_then(|p| p.run_as_non_root)) == Some(true);
    if is_root_forbidden && uid.unwrap_or(own.uid) == 0 {
        let name = &container.name;
        return Err(match uid {
            Some(_) => {
                format!("container's runAsUser breaks non-root policy (pod: \"{title}\", container: {name})")
            }
            None => {
                format!(
                    "container has runAsNonRoot and image will run as root (pod: \"{title}\", container: {name})"
                )
            }
        });
    }
    refuse(spec, container, "the host runtime")?;
    let is_asked = uid.is_some() || gid.is_some() || !groups.is_empty();
    let user = is_asked.then(|| {
        let uid = uid.unwrap_or(own.uid);
        let gid = gid.or_else(|| if uid == own.uid { Some(own.gid) } else { group_of(uid) });
        User { uid, gid: gid.unwrap_or(GROUP_OF_UNKNOWN), groups }
    });
    let user = match user {
        Some(user) if own.uid != 0 => {
            if user.uid != own.uid || user.gid != own.gid || !user.groups.is_empty() {
                return Err(format!(
                    "cannot run as user {} of group {} with {} more groups: this node is not root, its user is {}",
                    user.uid,
                    user.gid,
                    user.groups.len(),
                    own.uid
                ));
            }
            None
        }
        user => user,
    };
    Ok(Security {
        user,
        keeps_privileges_down: context.and_then(|c| c.allow_privilege_escalation) == Some(false),
        dropped_capabilities: dropped(container)?,
        has_read_only_root: context.and_then(|c| c.read_only_root_filesystem) == Some(true),
    })
}

/// What this runtime can't do is never left out in silence.
pub(crate) fn refuse(spec: &PodSpec, container: &Container, runtime: &str) -> Result<(), String> {
    let (pod, context) = (spec.security_context.as_ref(), container.security_context.as_ref());
    let seccomp =
        context.and_then(|c| c.seccomp_profile.as_ref()).or(pod.and_then(|p| p.seccomp_profile.as_ref()));
    let app_armor =
        context.and_then(|c| c.app_armor_profile.as_ref()).or(pod.and_then(|p| p.app_armor_profile.as_ref()));
    let selinux =
        context.and_then(|c| c.se_linux_options.as_ref()).or(pod.and_then(|p| p.se_linux_options.as_ref()));
    let refused = [
        (seccomp.is_some_and(|profile| profile.type_ == "Localhost"), "seccompProfile of type Localhost"),
        (app_armor.is_some_and(|profile| profile.type_ == "Localhost"), "appArmorProfile of type Localhost"),
        (selinux.is_some(), "seLinuxOptions"),
        (pod.is_some_and(|p| p.sysctls.iter().flatten().next().is_some()), "sysctls"),
    ];
    match refused.into_iter().find(|(is_asked, _)| *is_asked) {
        Some((_, field)) => Err(format!("securityContext: {field} is not supported by {runtime}")),
        None => Ok(()),
    }
}

/// The capabilities by their numbers in the kernel.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// What is dropped and not added again. What is not dropped is what the agent itself may do.
fn dropped(container: &Container) -> Result<u64, String> {
    let capabilities = container.security_context.as_ref().and_then(|context| context.capabilities.as_ref());
    let of = |list: Option<&Vec<String>>| bits(list.into_iter().flatten().map(String::as_str));
    let added = of(capabilities.and_then(|c| c.add.as_ref()))?;
    Ok(of(capabilities.and_then(|c| c.drop.as_ref()))? & !added)
}

/// Capabilities by their names, with or without `CAP_`, as the bits of the kernel. `ALL` is all of them.
pub(crate) fn bits<'a>(names: impl Iterator<Item = &'a str>) -> Result<u64, String> {
    let mut bits = 0;
    for name in names {
        let plain = name.to_ascii_uppercase();
        let plain = plain.strip_prefix("CAP_").unwrap_or(&plain);
        bits |= match CAPABILITIES.iter().position(|known| *known == plain) {
            Some(number) => 1 << number,
            None if plain == "ALL" => u64::MAX,
            None => return Err(format!("unknown capability {name:?}")),
        };
    }
    Ok(bits)
}

/// The names of capabilities, with `CAP_`.
pub(crate) fn names(bits: u64) -> Vec<String> {
    let held = CAPABILITIES.iter().enumerate().filter(|(number, _)| bits & (1 << number) != 0);
    held.map(|(_, name)| format!("CAP_{name}")).collect()
}

/// The group of a user in the text of `/etc/passwd`.
pub fn group_in(passwd: &str, uid: u32) -> Option<u32> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':').skip(2);
        let is_it = fields.next()?.parse::<u32>().ok()? == uid;
        let gid = fields.next()?.parse().ok()?;
        is_it.then_some(gid)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const ROOT: Own = Own { uid: 0, gid: 0 };

    fn security(pod: Value, container: Value, own: Own) -> Result<Security, String> {
        let spec = json!({
            "securityContext": pod, "containers": [{"name": "c", "securityContext": container}],
        });
        let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
        of(&spec, &spec.containers[0], "p_ns(u)", own, |uid| group_in("root:x:0:0::\njo:x:1000:100::", uid))
    }

    #[test]
    fn the_user_is_the_containers_or_the_pods() {
        let user = |uid, gid, groups: &[u32]| Some(User { uid, gid, groups: groups.to_vec() });
        let jo = Own { uid: 1000, gid: 100 };
        for (pod, container, own, want) in [
            (json!({}), json!({}), ROOT, Ok(None)),
            (json!({"runAsUser": 1000}), json!({}), ROOT, Ok(user(1000, 100, &[]))),
            (json!({"runAsUser": 1000}), json!({"runAsUser": 77}), ROOT, Ok(user(77, 65534, &[]))),
            (
                json!({"runAsUser": 5, "runAsGroup": 6, "supplementalGroups": [7, 8], "fsGroup": 9}),
                json!({"runAsGroup": 1}),
                ROOT,
                Ok(user(5, 1, &[7, 8, 9])),
            ),
            (json!({"fsGroup": 9}), json!({}), ROOT, Ok(user(0, 0, &[9]))),
            (json!({"runAsUser": 1000}), json!({}), jo, Ok(None)),
            (
                json!({"runAsUser": 77}),
                json!({}),
                jo,
                Err(
                    "cannot run as user 77 of group 65534 with 0 more groups: this node is not root, its user is 1000",
                ),
            ),
            (json!({"runAsNonRoot": true}), json!({}), jo, Ok(None)),
            (
                json!({"runAsNonRoot": true}),
                json!({}),
                ROOT,
                Err("container has runAsNonRoot and image will run as root (pod: \"p_ns(u)\", container: c)"),
            ),
            (
                json!({"runAsNonRoot": true}),
                json!({"runAsUser": 0}),
                ROOT,
                Err("container's runAsUser breaks non-root policy (pod: \"p_ns(u)\", container: c)"),
            ),
        ] {
            let got = security(pod.clone(), container.clone(), own).map(|security| security.user);
            assert_eq!(got, want.map_err(str::to_owned), "{pod} {container}");
        }
    }

    #[test]
    fn capabilities_are_dropped_but_for_those_that_are_added() {
        for (capabilities, want) in [
            (json!({}), Ok(0)),
            (json!({"add": ["NET_ADMIN"]}), Ok(0)),
            (json!({"drop": ["CHOWN", "CAP_KILL"]}), Ok(0b10_0001)),
            (json!({"drop": ["ALL"], "add": ["CHOWN"]}), Ok(u64::MAX - 1)),
            (json!({"drop": ["FLY"]}), Err("unknown capability \"FLY\"".to_owned())),
        ] {
            let got = security(json!({}), json!({"capabilities": capabilities}), ROOT);
            assert_eq!(got.map(|security| security.dropped_capabilities), want, "{capabilities}");
        }
    }

    #[test]
    fn what_cannot_be_done_is_refused() {
        let fine = security(
            json!({"seccompProfile": {"type": "RuntimeDefault"}}),
            json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true}),
            ROOT,
        );
        let want = Security { keeps_privileges_down: true, has_read_only_root: true, ..Security::default() };
        assert_eq!(fine, Ok(want));
        for (pod, field) in [
            (
                json!({"seccompProfile": {"type": "Localhost", "localhostProfile": "x"}}),
                "seccompProfile of type Localhost",
            ),
            (json!({"seLinuxOptions": {"level": "s0"}}), "seLinuxOptions"),
            (json!({"sysctls": [{"name": "a", "value": "b"}]}), "sysctls"),
        ] {
            let want = format!("securityContext: {field} is not supported by the host runtime");
            assert_eq!(security(pod, json!({}), ROOT), Err(want));
        }
    }
}
