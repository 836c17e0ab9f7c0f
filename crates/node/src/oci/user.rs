//! As whom a container of an image runs: what the pod says, else what the image says, looked up in the image's own files.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::runtimes::sandbox::User;

/// The files of an image that say who its users are; empty where it has none.
#[derive(Clone, Copy, Debug, Default)]
pub struct Files<'a> {
    /// `/etc/passwd`.
    pub passwd: &'a str,
    /// `/etc/group`.
    pub group: &'a str,
}

/// A line of `/etc/passwd`.
struct Entry<'a> {
    name: &'a str,
    uid: u32,
    gid: u32,
}

impl<'a> Files<'a> {
    fn users(&self) -> impl Iterator<Item = Entry<'a>> + use<'a> {
        self.passwd.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let uid = fields.nth(1)?.parse().ok()?;
            let gid = fields.next()?.parse().ok()?;
            Some(Entry { name, uid, gid })
        })
    }

    /// Name, id and members of each group.
    fn groups(&self) -> impl Iterator<Item = (&'a str, u32, &'a str)> + use<'a> {
        self.group.lines().filter_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            let gid = fields.nth(1)?.parse().ok()?;
            Some((name, gid, fields.next().unwrap_or_default()))
        })
    }
}

/// The user of a container. `image_user` is what the image says: `name`, `uid`, either with `:group`. `title` is the
/// pod in messages.
pub fn resolve(
    spec: &PodSpec,
    container: &Container,
    title: &str,
    image_user: &str,
    files: Files<'_>,
) -> Result<User, String> {
    let (pod, own) = (spec.security_context.as_ref(), container.security_context.as_ref());
    let id = |value: Option<i64>| value.and_then(|value| u32::try_from(value).ok());
    let wanted_uid = id(own.and_then(|c| c.run_as_user).or(pod.and_then(|p| p.run_as_user)));
    let wanted_gid = id(own.and_then(|c| c.run_as_group).or(pod.and_then(|p| p.run_as_group)));
    let is_root_forbidden =
        own.and_then(|c| c.run_as_non_root).or(pod.and_then(|p| p.run_as_non_root)) == Some(true);
    let (image_user, image_group) = match image_user.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (image_user, None),
    };
    if is_root_forbidden {
        forbid_root(wanted_uid, image_user, title, &container.name)?;
    }
    // The image's group belongs to its user: who runs as another has another.
    let (entry, group) = match wanted_uid {
        Some(uid) => (by_id(files, uid), None),
        None => (by_text(files, image_user)?, image_group),
    };
    let group = group.map(|text| group_of(files, text)).transpose()?;
    let gid = wanted_gid.or(group).unwrap_or(entry.gid);
    // Groups that the image gives to a user that it knows (upstream: supplementalGroupsPolicy Merge).
    let is_strict =
        pod.and_then(|p| p.supplemental_groups_policy.as_deref()).is_some_and(|policy| policy == "Strict");
    let member_of = files.groups().filter(|(_, _, members)| {
        !is_strict && !entry.name.is_empty() && members.split(',').any(|member| member.trim() == entry.name)
    });
    let mut groups: Vec<u32> = member_of.map(|(_, gid, _)| gid).collect();
    groups
        .extend(pod.iter().flat_map(|p| p.supplemental_groups.iter().flatten()).filter_map(|g| id(Some(*g))));
    groups.extend(id(pod.and_then(|p| p.fs_group)));
    groups.sort_unstable();
    groups.dedup();
    Ok(User { uid: entry.uid, gid, groups })
}

/// `runAsNonRoot` (upstream: verifyRunAsNonRoot).
fn forbid_root(wanted: Option<u32>, image_user: &str, title: &str, name: &str) -> Result<(), String> {
    let place = format!("(pod: \"{title}\", container: {name})");
    match (wanted, image_user.parse::<u32>()) {
        (Some(0), _) => Err(format!("container's runAsUser breaks non-root policy {place}")),
        (Some(_), _) => Ok(()),
        (None, Ok(0)) => Err(format!("container has runAsNonRoot and image will run as root {place}")),
        (None, Ok(_)) => Ok(()),
        (None, Err(_)) if image_user.is_empty() => {
            Err(format!("container has runAsNonRoot and image will run as root {place}"))
        }
        (None, Err(_)) => Err(format!(
            "container has runAsNonRoot and image has non-numeric user ({image_user}), cannot verify user is non-root {place}"
        )),
    }
}

fn by_id(files: Files<'_>, uid: u32) -> Entry<'_> {
    let known = files.users().find(|entry| entry.uid == uid);
    // One that the image does not know has root's group there, as container runtimes have it.
    known.unwrap_or(Entry { name: "", uid, gid: 0 })
}

fn by_text<'a>(files: Files<'a>, text: &str) -> Result<Entry<'a>, String> {
    match text.parse() {
        _ if text.is_empty() => Ok(by_id(files, 0)),
        Ok(uid) => Ok(by_id(files, uid)),
        Err(_) => files
            .users()
            .find(|entry| entry.name == text)
            .ok_or_else(|| format!("unable to find user {text}: no matching entries in passwd file")),
    }
}

fn group_of(files: Files<'_>, text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(gid) => Ok(gid),
        Err(_) => files
            .groups()
            .find(|(name, _, _)| *name == text)
            .map(|(_, gid, _)| gid)
            .ok_or_else(|| format!("unable to find group {text}: no matching entries in group file")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nweb:x:33:34::/var/www:/bin/false\nbad line\n";
    const GROUP: &str = "root:x:0:\nwww:x:34:\nlogs:x:40:web,other\nrootish:x:41:root\n";

    fn user(pod: Value, container: Value, image: &str) -> Result<(u32, u32, Vec<u32>), String> {
        let spec =
            json!({"securityContext": pod, "containers": [{"name": "c", "securityContext": container}]});
        let spec: PodSpec = serde_json::from_value(spec).expect("a spec");
        let files = Files { passwd: PASSWD, group: GROUP };
        let user = resolve(&spec, &spec.containers[0], "p_ns(u)", image, files)?;
        Ok((user.uid, user.gid, user.groups))
    }

    #[test]
    fn the_pod_wins_over_the_image_and_the_image_over_root() {
        for (pod, container, image, want) in [
            (json!({}), json!({}), "", Ok((0, 0, vec![41]))),
            (json!({}), json!({}), "web", Ok((33, 34, vec![40]))),
            (json!({}), json!({}), "web:logs", Ok((33, 40, vec![40]))),
            (json!({}), json!({}), "33:7", Ok((33, 7, vec![40]))),
            (json!({}), json!({}), "1000", Ok((1000, 0, vec![]))),
            (json!({"runAsUser": 33}), json!({}), "1:2", Ok((33, 34, vec![40]))),
            (json!({"runAsUser": 33}), json!({"runAsUser": 5, "runAsGroup": 6}), "web", Ok((5, 6, vec![]))),
            (json!({"runAsGroup": 9}), json!({}), "web:www", Ok((33, 9, vec![40]))),
            (
                json!({"fsGroup": 50, "supplementalGroups": [40, 60]}),
                json!({}),
                "web",
                Ok((33, 34, vec![40, 50, 60])),
            ),
            (json!({"supplementalGroupsPolicy": "Strict"}), json!({}), "web", Ok((33, 34, vec![]))),
            (json!({}), json!({}), "who", Err("unable to find user who: no matching entries in passwd file")),
            (
                json!({}),
                json!({}),
                "web:who",
                Err("unable to find group who: no matching entries in group file"),
            ),
        ] {
            assert_eq!(
                user(pod.clone(), container.clone(), image),
                want.map_err(str::to_owned),
                "{pod} {container} {image}"
            );
        }
    }

    #[test]
    fn root_is_refused_where_it_is_forbidden() {
        let strict = json!({"runAsNonRoot": true});
        for (container, image, want) in [
            (json!({}), "1000", None),
            (json!({"runAsUser": 5}), "", None),
            (json!({"runAsNonRoot": false}), "", None),
            (json!({"runAsUser": 0}), "1000", Some("container's runAsUser breaks non-root policy")),
            (json!({}), "", Some("container has runAsNonRoot and image will run as root")),
            (json!({}), "0:5", Some("container has runAsNonRoot and image will run as root")),
            (
                json!({}),
                "web",
                Some(
                    "container has runAsNonRoot and image has non-numeric user (web), cannot verify user is non-root",
                ),
            ),
        ] {
            let want = want.map(|text| format!("{text} (pod: \"p_ns(u)\", container: c)"));
            assert_eq!(user(strict.clone(), container.clone(), image).err(), want, "{container} {image}");
        }
    }
}
