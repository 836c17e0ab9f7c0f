//! Volumes on this machine: makes what they hold, and says what is mounted where in a container.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::{Duration, SystemTime};

use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Container, Pod, ServiceAccount, Volume, VolumeMount};
use kube::api::PostParams;
use rustix::fs::Gid;
use rustix::mount::MountFlags;

use crate::env;
use crate::logs;
use crate::pod::Context;
use crate::prepare;
use crate::runtimes::sandbox::Mount;
use crate::volume::{self, Content, File, Objects, Tokens};

/// Where a container writes why it ended, when it says nothing else.
const MESSAGE_PATH: &str = "/dev/termination-log";
/// What is taken of it (upstream: MaxContainerTerminationMessageLength).
const MESSAGE_BYTES_MAX: u64 = 4096;

/// Whether a pod has anything to set up.
pub(crate) fn has_any(pod: &Pod) -> bool {
    pod.spec.as_ref().is_some_and(|spec| spec.volumes.iter().flatten().next().is_some())
}

fn volumes(pod: &Pod) -> impl Iterator<Item = &Volume> {
    pod.spec.iter().flat_map(|spec| spec.volumes.iter().flatten())
}

fn directory(context: &Context, pod: &Pod, volume: &str) -> PathBuf {
    context.pod_directory(pod).join("volumes").join(volume)
}

/// A directory on which mounts can be prepared.
pub(crate) fn stage(context: &Context, pod: &Pod) -> PathBuf {
    context.pod_directory(pod).join("stage")
}

/// Makes it.
pub(crate) fn make_stage(context: &Context, pod: &Pod) -> Result<(), String> {
    private(&stage(context, pod)).map_err(|error| format!("make the stage of mounts: {error}"))
}

/// Whether a pod has files that can change while it runs.
pub(crate) fn has_files(pod: &Pod) -> bool {
    volumes(pod).any(|volume| volume.empty_dir.is_none() && volume.host_path.is_none())
}

/// Brings the files of a pod that runs up to date, now and then, until nobody wants it any more.
pub(crate) async fn keep_fresh(context: Weak<Context>, pod: Pod, every: Duration) {
    loop {
        tokio::time::sleep(every).await;
        let Some(context) = context.upgrade() else { return };
        if let Err(error) = make_all(&context, &pod, true).await {
            tracing::debug!(error, pod = prepare::title(&pod), "refresh volumes");
        }
    }
}

/// Makes all volumes of a pod. An error is that of the first one that can't be had.
pub(crate) async fn set_up(context: &Context, pod: &Pod) -> Result<(), String> {
    make_all(context, pod, false).await
}

async fn make_all(context: &Context, pod: &Pod, is_refresh: bool) -> Result<(), String> {
    let references: BTreeSet<_> = volumes(pod).flat_map(volume::references).collect();
    let found = prepare::objects(context, pod, &references).await?;
    let objects: Objects = found
        .into_iter()
        .map(|(reference, found)| (reference, found.binary.into_iter().chain(found.data).collect()))
        .collect();
    for volume in volumes(pod) {
        let failed = |error: &dyn std::fmt::Display| {
            format!("MountVolume.SetUp failed for volume {:?} : {error}", volume.name)
        };
        let directory = directory(context, pod, &volume.name);
        let tokens = tokens(context, pod, volume, &directory).await.map_err(|error| failed(&error))?;
        let content = volume::content(pod, volume, &objects, &tokens, &context.facts());
        let content = content.map_err(|error| failed(&error))?;
        let group = pod.spec.as_ref().and_then(|spec| spec.security_context.as_ref()?.fs_group);
        let group = group.and_then(|group| u32::try_from(group).ok()).filter(|_| context.own.uid == 0);
        let is_needed = match &content {
            Content::Files(files) => !is_refresh || !is_same(&directory, files),
            Content::Empty { .. } | Content::Host { .. } => !is_refresh,
        };
        if !is_needed {
            continue;
        }
        let is_root = context.own.uid == 0;
        let is_secret = volume::is_secret(volume);
        make(&directory, &content, group, is_root, is_secret).map_err(|error| failed(&error))?;
    }
    make_stage(context, pod)
}

/// Whether a volume holds exactly these files.
fn is_same(directory: &Path, files: &BTreeMap<String, File>) -> bool {
    let data = directory.join("..data");
    let is_there =
        |(path, file): (&String, &File)| fs::read(data.join(path)).is_ok_and(|bytes| bytes == file.bytes);
    count_files(&data).is_ok_and(|count| count == files.len()) && files.iter().all(is_there)
}

/// How many files there are below a directory.
fn count_files(directory: &Path) -> io::Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(count)
}

/// A token that is not yet old; upstream renews it when four fifths of its time are over. It is as old as its file, which
/// [`write`] sees to.
fn young_token(path: &Path, seconds: i64) -> Option<Vec<u8>> {
    let limit = Duration::from_secs(u64::try_from(seconds).ok()?) / 5 * 4;
    let age = fs::metadata(path).ok()?.modified().ok()?.elapsed().ok()?;
    (age < limit).then(|| fs::read(path).ok()).flatten()
}

async fn tokens(
    context: &Context,
    pod: &Pod,
    volume: &Volume,
    directory: &Path,
) -> Result<Tokens, volume::Error> {
    let mut tokens = Tokens::new();
    let meta = &pod.metadata;
    let account = pod.spec.as_ref().and_then(|spec| spec.service_account_name.clone());
    for wish in volume::tokens(volume) {
        if let Some(token) = young_token(&directory.join(&wish.path), wish.seconds) {
            tokens.insert((wish.volume, wish.path), token);
            continue;
        }
        let accounts = kube::Api::<ServiceAccount>::namespaced(
            context.config.client.clone(),
            meta.namespace.as_deref().unwrap_or_default(),
        );
        let request = TokenRequest {
            spec: Some(TokenRequestSpec {
                audiences: wish.audience.map(|audience| vec![audience]),
                expiration_seconds: Some(wish.seconds),
                bound_object_ref: Some(BoundObjectReference {
                    api_version: Some("v1".into()),
                    kind: Some("Pod".into()),
                    name: meta.name.clone(),
                    uid: meta.uid.clone(),
                }),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let account = account.as_deref().unwrap_or("default");
        let given = accounts.create_token_request(account, &PostParams::default(), &request).await;
        let given = given.map_err(|error| volume::Error::Token(error.to_string()))?;
        let token = given.status.and_then(|status| status.token).unwrap_or_default();
        tokens.insert((wish.volume, wish.path), token.into_bytes());
    }
    Ok(tokens)
}

/// A directory that only the agent may enter, with those above it.
fn private(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Makes what a volume holds. Secrets of an agent that is root are in memory, and never on the disk.
fn make(
    directory: &Path,
    content: &Content,
    group: Option<u32>,
    is_root: bool,
    is_secret: bool,
) -> io::Result<()> {
    match content {
        Content::Host { path, kind } => check_host(Path::new(path), kind),
        Content::Empty { is_memory, limit } => {
            private(directory)?;
            if *is_memory && is_root {
                let size = limit.map(|limit| format!(",size={limit}")).unwrap_or_default();
                mount_memory(directory, &format!("mode=0777{size}"))?;
            }
            let mode = if group.is_some() { 0o2777 } else { 0o777 };
            own(directory, mode, group)
        }
        Content::Files(files) => {
            if is_secret && is_root {
                private(directory)?;
                match mount_memory(directory, "mode=0755") {
                    // Root of a container may not mount anything: no reason to have no secrets there.
                    Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {}
                    result => result?,
                }
            }
            write(directory, files, group)
        }
    }
}

/// Mounts a file system in memory on a directory, unless one is there already: of this agent, or of one before it.
fn mount_memory(directory: &Path, options: &str) -> io::Result<()> {
    if is_mount_point(directory) {
        return Ok(());
    }
    let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
    Ok(rustix::mount::mount("tmpfs", directory, "tmpfs", MountFlags::empty(), options.as_c_str())?)
}

fn own(path: &Path, mode: u32, group: Option<u32>) -> io::Result<()> {
    if let Some(group) = group {
        rustix::fs::chown(path, None, Some(Gid::from_raw(group)))?;
    }
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

fn is_mount_point(directory: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    directory.parent().is_some_and(|parent| device(parent) != device(directory))
}

/// What a hostPath has to be, and makes it if it may. One of which nothing is said is made as a directory if it is missing,
/// as container engines do.
fn check_host(path: &Path, kind: &str) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    let named =
        |error: io::Error| io::Error::new(error.kind(), format!("hostPath {}: {error}", path.display()));
    let make_directory = || fs::DirBuilder::new().recursive(true).mode(0o755).create(path);
    match kind {
        "DirectoryOrCreate" => make_directory().map_err(named)?,
        "" if !path.exists() => make_directory().map_err(named)?,
        "FileOrCreate" if !path.exists() => {
            drop(fs::OpenOptions::new().create_new(true).write(true).open(path).map_err(named)?)
        }
        _ => {}
    }
    let found = fs::metadata(path).map_err(named)?.file_type();
    let (is_it, what) = match kind {
        "Directory" | "DirectoryOrCreate" => (found.is_dir(), "directory"),
        "File" | "FileOrCreate" => (found.is_file(), "file"),
        "Socket" => (found.is_socket(), "socket"),
        "CharDevice" => (found.is_char_device(), "character device"),
        "BlockDevice" => (found.is_block_device(), "block device"),
        _ => (true, ""),
    };
    match is_it {
        true => Ok(()),
        false => {
            Err(io::Error::other(format!("hostPath type check failed: {} is not a {what}", path.display())))
        }
    }
}

/// Writes files so that a reader sees all of the old ones or all of the new ones: they are behind a link, `..data`, that is
/// replaced at once (upstream: AtomicWriter). A file that is as it was keeps its time. What an earlier try left, and what is no
/// longer wanted, goes.
fn write(directory: &Path, files: &BTreeMap<String, File>, group: Option<u32>) -> io::Result<()> {
    private(directory)?;
    own(directory, if group.is_some() { 0o2755 } else { 0o755 }, group)?;
    let name = format!("..{}", jiff::Timestamp::now().as_nanosecond());
    let (fresh, data) = (directory.join(&name), directory.join("..data"));
    fs::create_dir(&fresh)?;
    own(&fresh, 0o755, group)?;
    for (path, file) in files {
        let target = fresh.join(path);
        let mut parent = fresh.clone();
        for part in Path::new(path).parent().into_iter().flat_map(Path::components) {
            parent.push(part);
            if !parent.exists() {
                fs::create_dir(&parent)?;
                own(&parent, 0o755, group)?;
            }
        }
        let mut made = fs::File::create(&target)?;
        made.write_all(&file.bytes)?;
        if let Some(time) = unchanged_since(&data.join(path), &file.bytes) {
            made.set_modified(time)?;
        }
        let mode = if group.is_some() { file.mode | 0o440 } else { file.mode };
        own(&target, mode, group)?;
    }
    let link = directory.join("..data_tmp");
    match fs::remove_file(&link) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    std::os::unix::fs::symlink(&name, &link)?;
    fs::rename(&link, &data)?;
    let tops: BTreeSet<&str> = files.keys().filter_map(|path| path.split('/').next()).collect();
    for top in &tops {
        let visible = directory.join(top);
        if fs::symlink_metadata(&visible).is_err() {
            std::os::unix::fs::symlink(Path::new("..data").join(top), visible)?;
        }
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let is_kept = entry
            .file_name()
            .to_str()
            .is_some_and(|found| found == "..data" || found == name || tops.contains(found));
        match entry.file_type()?.is_dir() {
            _ if is_kept => {}
            true => fs::remove_dir_all(entry.path())?,
            false => fs::remove_file(entry.path())?,
        }
    }
    Ok(())
}

/// Since when a file holds just this.
fn unchanged_since(path: &Path, bytes: &[u8]) -> Option<SystemTime> {
    let is_same = fs::read(path).ok()? == bytes;
    fs::metadata(path).ok()?.modified().ok().filter(|_| is_same)
}

/// The mounts of a container, in the order of their paths, so that one can be in another.
pub(crate) fn of(
    context: &Context,
    pod: &Pod,
    container: &Container,
    env: &[(String, String)],
) -> Result<Vec<Mount>, String> {
    if let Some(device) = container.volume_devices.iter().flatten().next() {
        return Err(format!("volumeDevices: {:?} is not supported by this node", device.name));
    }
    let mut mounts = Vec::new();
    for mount in container.volume_mounts.iter().flatten() {
        let volume = volumes(pod).find(|volume| volume.name == mount.name);
        let volume = volume.ok_or_else(|| format!("volume {:?} is not in the pod", mount.name))?;
        let source = match &volume.host_path {
            Some(host) => PathBuf::from(&host.path),
            None => directory(context, pod, &volume.name),
        };
        // Files of the API are never written to (upstream: ReadOnlyAPIDataVolumes).
        let is_own = volume.empty_dir.is_some() || volume.host_path.is_some();
        mounts.push(Mount {
            source,
            sub_path: sub_path(mount, env)?,
            target: Path::new("/").join(&mount.mount_path),
            is_read_only: mount.read_only == Some(true) || !is_own,
        });
    }
    mounts.sort_by(|a, b| a.target.cmp(&b.target));
    Ok(mounts)
}

fn sub_path(mount: &VolumeMount, env: &[(String, String)]) -> Result<Option<PathBuf>, String> {
    let text = match (&mount.sub_path_expr, &mount.sub_path) {
        (Some(expression), _) if !expression.is_empty() => {
            let variables: BTreeMap<String, String> = env.iter().cloned().collect();
            env::expand(expression, &variables)
        }
        (_, Some(path)) => path.clone(),
        _ => return Ok(None),
    };
    let path = PathBuf::from(&text);
    let is_inside =
        path.is_relative() && !path.components().any(|part| part == std::path::Component::ParentDir);
    match (text.is_empty(), is_inside) {
        (true, _) => Ok(None),
        (false, true) => Ok(Some(path)),
        (false, false) => Err(format!("subPath {text:?} of volume {:?} leads out of it", mount.name)),
    }
}

fn message_path(container: &Container) -> &str {
    container.termination_message_path.as_deref().filter(|path| !path.is_empty()).unwrap_or(MESSAGE_PATH)
}

/// Whether a container seems to know where it can say why it ends: it names the file, or another one was chosen for it.
pub(crate) fn names_message(container: &Container) -> bool {
    let path = message_path(container);
    let words = container.command.iter().flatten().chain(container.args.iter().flatten());
    let values = container.env.iter().flatten().filter_map(|variable| variable.value.as_ref());
    path != MESSAGE_PATH || words.chain(values).any(|text| text.contains(path))
}

/// Where a pod with that directory has what its containers say when they end.
pub(crate) fn messages(pod_directory: &Path) -> PathBuf {
    pod_directory.join("messages")
}

fn message_file(context: &Context, pod: &Pod, container: &str, run: i32) -> PathBuf {
    messages(&context.pod_directory(pod)).join(format!("{container}.{run}"))
}

/// Makes the file in which a run of a container can say why it ends.
pub(crate) fn message(
    context: &Context,
    pod: &Pod,
    container: &Container,
    run: i32,
) -> Result<Option<Mount>, String> {
    let file = message_file(context, pod, &container.name, run);
    let made = (|| {
        private(file.parent().unwrap_or(&file))?;
        // In a directory of the agent alone; there already if a start was tried and did not succeed.
        fs::OpenOptions::new().create(true).write(true).truncate(true).open(&file)?;
        own(&file, 0o666, None)
    })();
    made.map_err(|error| format!("make termination log {}: {error}", file.display()))?;
    let target = Path::new("/").join(message_path(container));
    let is_covered =
        container.volume_mounts.iter().flatten().any(|mount| Path::new(&mount.mount_path) == target);
    Ok((!is_covered).then_some(Mount { source: file, sub_path: None, target, is_read_only: false }))
}

/// What a run of a container said about its end; empty if nothing.
pub(crate) fn read_message(context: &Context, pod: &Pod, container: &str, run: i32) -> String {
    let path = message_file(context, pod, container, run);
    let read = || -> io::Result<Vec<u8>> {
        let mut file = logs::open(&path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MESSAGE_BYTES_MAX)))?;
        let mut bytes = Vec::new();
        file.take(MESSAGE_BYTES_MAX).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    match read() {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        Err(error) => format!("Error on reading termination log {}: {error}", path.display()),
    }
}

/// Removes what a pod has on this machine, besides its logs. Memory that is mounted is let go first.
pub(crate) fn remove(directory: &Path) {
    let volumes = fs::read_dir(directory.join("volumes")).into_iter().flatten().flatten();
    for volume in volumes.map(|entry| entry.path()).filter(|path| is_mount_point(path)) {
        if let Err(error) = rustix::mount::unmount(&volume, rustix::mount::UnmountFlags::DETACH) {
            tracing::warn!(%error, path = %volume.display(), "unmount a volume");
        }
    }
    match crate::images::store::remove_tree(directory) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(%error, path = %directory.display(), "remove the files of a pod"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(text: &str, mode: u32) -> File {
        File { bytes: text.as_bytes().to_vec(), mode }
    }

    #[test]
    fn files_are_replaced_all_at_once() {
        let root = tempfile::tempdir().expect("a directory");
        let volume = root.path().join("v");
        let read = |path: &str| fs::read_to_string(volume.join(path)).ok();
        let first = BTreeMap::from([("a".into(), file("1", 0o600)), ("d/e".into(), file("2", 0o644))]);
        write(&volume, &first, None).expect("written");
        assert_eq!((read("a"), read("d/e")), (Some("1".into()), Some("2".into())));
        let mode = fs::metadata(volume.join("a")).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = BTreeMap::from([("a".into(), file("3", 0o600))]);
        assert!(is_same(&volume, &first) && !is_same(&volume, &second));
        write(&volume, &second, None).expect("written again");
        assert!(is_same(&volume, &second) && !is_same(&volume, &first));
        assert_eq!((read("a"), read("d/e")), (Some("3".into()), None));
        let entries = fs::read_dir(&volume).expect("there").count();
        assert_eq!(entries, 3, "the data, the link to it, and a link for each name: {volume:?}");
        assert!(fs::symlink_metadata(volume.join("d")).is_err(), "no link leads nowhere");
    }

    #[test]
    fn a_file_that_is_taken_from_a_directory_that_stays_is_noticed() {
        let root = tempfile::tempdir().expect("a directory");
        let volume = root.path().join("v");
        let both = BTreeMap::from([("d/e".into(), file("1", 0o644)), ("d/f".into(), file("2", 0o644))]);
        write(&volume, &both, None).expect("written");
        let one = BTreeMap::from([("d/e".into(), file("1", 0o644))]);
        assert!(is_same(&volume, &both) && !is_same(&volume, &one));
        write(&volume, &one, None).expect("written again");
        assert!(is_same(&volume, &one) && !is_same(&volume, &both));
    }

    #[test]
    fn files_are_written_after_a_try_that_was_cut_off() {
        let root = tempfile::tempdir().expect("a directory");
        let volume = root.path().join("v");
        let files = |text| BTreeMap::from([("a".into(), file(text, 0o644))]);
        write(&volume, &files("1"), None).expect("written");
        fs::create_dir(volume.join("..5")).expect("made");
        std::os::unix::fs::symlink("..5", volume.join("..data_tmp")).expect("linked");
        write(&volume, &files("2"), None).expect("written again");
        assert_eq!(fs::read_to_string(volume.join("a")).expect("there"), "2");
        assert_eq!(fs::read_dir(&volume).expect("there").count(), 3, "nothing is left of it");
    }

    #[test]
    fn a_token_that_is_used_again_does_not_become_younger() {
        let root = tempfile::tempdir().expect("a directory");
        let volume = root.path().join("v");
        let files = |token, other| {
            BTreeMap::from([("t/token".into(), file(token, 0o600)), ("o".into(), file(other, 0o644))])
        };
        write(&volume, &files("t", "1"), None).expect("written");
        let path = volume.join("t/token");
        // Whole seconds: not every file system has more.
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a time").as_secs();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(now - 2000);
        fs::File::open(&path).expect("there").set_modified(old).expect("changed");
        assert_eq!(young_token(&path, 3600), Some(b"t".to_vec()));
        write(&volume, &files("t", "2"), None).expect("written again");
        assert_eq!(fs::read_to_string(volume.join("o")).expect("there"), "2");
        assert_eq!(fs::metadata(&path).expect("there").modified().expect("a time"), old);
        write(&volume, &files("new", "2"), None).expect("written once more");
        let age = fs::metadata(&path).expect("there").modified().expect("a time").elapsed().expect("past");
        assert!(age < Duration::from_secs(1000), "{age:?}");
    }

    #[test]
    fn secrets_are_in_memory_which_is_mounted_once_and_let_go() {
        let root = tempfile::tempdir().expect("a directory");
        let pod = root.path().join("pod");
        let volume = pod.join("volumes/s");
        let is_root = rustix::process::geteuid().is_root();
        let mounts = || {
            let table = fs::read_to_string("/proc/self/mountinfo").expect("read");
            let point = volume.to_str().expect("text");
            table.lines().filter(|line| line.split(' ').nth(4) == Some(point)).count()
        };
        for text in ["1", "2"] {
            let content = Content::Files(BTreeMap::from([("a".into(), file(text, 0o400))]));
            make(&volume, &content, None, is_root, true).expect("made");
            assert_eq!(fs::read_to_string(volume.join("a")).expect("there"), text);
            assert_eq!(mounts(), usize::from(is_root));
        }
        remove(&pod);
        assert_eq!((mounts(), pod.exists()), (0, false));
    }

    #[test]
    fn a_token_is_kept_until_four_fifths_of_its_time_are_over() {
        let root = tempfile::tempdir().expect("a directory");
        let path = root.path().join("token");
        assert_eq!(young_token(&path, 3600), None);
        fs::write(&path, "t").expect("written");
        assert_eq!(young_token(&path, 3600), Some(b"t".to_vec()));
        let old = std::time::SystemTime::now() - Duration::from_secs(2881);
        fs::File::open(&path).expect("there").set_modified(old).expect("changed");
        assert_eq!(young_token(&path, 3600), None);
    }

    #[test]
    fn a_host_path_has_to_be_what_is_said() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |name: &str| root.path().join(name);
        fs::write(at("file"), "").expect("written");
        for (name, kind, is_fine) in [
            ("file", "", true),
            ("file", "File", true),
            ("file", "Directory", false),
            ("none", "Directory", false),
            ("none/deep", "", true),
            ("none/deep", "Directory", true),
            ("file/in", "", false),
            ("made", "DirectoryOrCreate", true),
            ("made", "Directory", true),
            ("made-file", "FileOrCreate", true),
            ("made-file", "File", true),
            ("file", "Socket", false),
        ] {
            assert_eq!(check_host(&at(name), kind).is_ok(), is_fine, "{name} {kind}");
        }
        assert!(check_host(Path::new("/dev/null"), "CharDevice").is_ok());
    }

    #[test]
    fn a_sub_path_is_expanded_and_stays_inside() {
        let env = [("NAME".to_owned(), "p1".to_owned()), ("UP".to_owned(), "..".to_owned())];
        for (mount, want) in [
            (json!({}), Ok(None)),
            (json!({"subPath": "a/b"}), Ok(Some("a/b".into()))),
            (json!({"subPathExpr": "logs/$(NAME)"}), Ok(Some("logs/p1".into()))),
            (
                json!({"subPathExpr": "$(UP)/x"}),
                Err("subPath \"../x\" of volume \"v\" leads out of it".to_owned()),
            ),
            (json!({"subPath": "/etc"}), Err("subPath \"/etc\" of volume \"v\" leads out of it".to_owned())),
        ] {
            let mut mount = mount;
            (mount["name"], mount["mountPath"]) = (json!("v"), json!("/v"));
            let mount: VolumeMount = serde_json::from_value(mount).expect("a mount");
            assert_eq!(sub_path(&mount, &env), want);
        }
    }

    #[test]
    fn a_container_knows_of_its_message_when_it_names_the_file() {
        for (container, want) in [
            (json!({"command": ["true"]}), false),
            (json!({"command": ["sh", "-c", "echo x > /dev/termination-log"]}), true),
            (json!({"command": ["x"], "args": ["--out=/dev/termination-log"]}), true),
            (json!({"env": [{"name": "OUT", "value": "/dev/termination-log"}]}), true),
            (json!({"terminationMessagePath": "/tmp/why"}), true),
            (json!({"terminationMessagePath": "/dev/termination-log"}), false),
        ] {
            let mut container = container;
            container["name"] = json!("c");
            assert_eq!(names_message(&serde_json::from_value(container).expect("a container")), want);
        }
    }
}
