//! What a process sees and may do, set up between fork and exec: its mounts, host name, user and limits.
//!
//! ```text
//!   /            the machine's own
//!   ├── data     a mount point that the machine has: the volume is mounted there
//!   ├── dev      lacks a mount point for the termination message: a file system of its own is laid over it
//!   └── etc      a directory that lacks a mount point: a file system of its own, in which every entry of the
//!       ├── …    machine's directory is mounted (`Tree::open_up`), so that the mount point can be made beside them
//!       └── config
//! ```
//!
//! With a [`Cover`] all of this is in a view of the machine's files instead, in which every mount point can be made.
//!
//! Nothing of it is seen by anybody else, and it goes with the last process in it. Runs in a child of the keeper,
//! which has one thread: it may allocate.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, UnshareFlags};
use serde::{Deserialize, Serialize};

use super::apart::{Ids, Map};
pub use super::cover::Cover;

/// What is different for a process from what the agent itself sees and may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sandbox {
    /// Mounted in this order.
    pub mounts: Vec<Mount>,
    /// A directory of the pod that mounts can be prepared on.
    pub stage: PathBuf,
    /// Its host name.
    pub hostname: Option<String>,
    /// Nothing but the mounts can be written to.
    pub has_read_only_root: bool,
    /// As whom it runs.
    pub user: Option<User>,
    /// `no_new_privs`.
    pub keeps_privileges_down: bool,
    /// What it may not do even as root, by the bits of the kernel.
    pub dropped_capabilities: u64,
    /// The `cgroup.procs` files that it has to be in.
    pub cgroups: Vec<PathBuf>,
    /// The control group whose processes all end with it, where that has to be seen to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_by: Option<PathBuf>,
    /// It runs without mounts and host name where the kernel does not allow them.
    pub is_optional: bool,
    /// It is the first process of a pid namespace, and sees no others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_own_pids: bool,
    /// The user and group that root, as whom all else is done, has in a user namespace of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known_as: Option<(u32, u32)>,
    /// What it writes to the machine's files is seen by nobody else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cover: Option<Cover>,
    /// It is a runtime that makes a container of an image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<Root>,
}

/// Where devices are.
const DEVICES: &str = "/dev";

/// How much a container can add to the small files that it is given: `/etc/hosts` and the like.
const SMALL_BYTES: usize = 1 << 20;

/// How the error begins of an image that the kernel does not mount.
pub(crate) const IMAGE_REFUSED: &str = "mount the image at";

/// The files of a container, as a runtime finds them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Root {
    /// The directories of its layers, the lowest first, most of them in one directory. None: the target has all of it already.
    pub layers: Vec<PathBuf>,
    /// What it writes.
    pub upper: PathBuf,
    /// Of overlayfs.
    pub work: PathBuf,
    /// Where it appears.
    pub target: PathBuf,
    /// A directory of small files that are its own: they are copied to where no more than a megabyte can be added.
    pub small: PathBuf,
    /// Devices in it can be used.
    pub has_devices: bool,
    /// What the runtime must not see: the second version of control groups, where both are mounted, confuses it.
    pub hidden: Vec<PathBuf>,
    /// Where control groups are mounted, if the runtime must not see any: it would make some of its own.
    pub groups: Option<Vec<PathBuf>>,
    /// What the runtime must not write to: it would make control groups of its own.
    pub read_only: Vec<PathBuf>,
    /// Which processes it sees.
    pub pids: Pids,
    /// Who mounts it is root of a user namespace only.
    pub is_rootless: bool,
    /// The container has one more user namespace, which the runtime lets nobody join: who joins does it without the runtime.
    pub has_own_user: bool,
}

/// Which processes a container of an image sees. One that does not see its own only has no pid namespace that all of it would
/// end with: a control group has to hold it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Pids {
    /// Its own.
    #[default]
    Own,
    /// Those of all containers that call them by the same name: of its pod.
    Pod(String),
    /// Those of the machine.
    Machine,
}

/// One mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mount {
    /// What is mounted.
    pub source: PathBuf,
    /// The part of it; never leads out of it.
    pub sub_path: Option<PathBuf>,
    /// Where: an absolute path.
    pub target: PathBuf,
    /// It can't be written to.
    pub is_read_only: bool,
}

impl Mount {
    fn text(&self) -> String {
        format!("mount {} at {}", self.source.display(), self.target.display())
    }
}

/// As whom a process runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// More groups.
    pub groups: Vec<u32>,
}

/// What could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {error}")]
pub(super) struct Error {
    what: String,
    error: io::Error,
}

pub(super) type Result<T> = std::result::Result<T, Error>;

pub(super) trait Named<T> {
    fn named(self, what: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<io::Error>> Named<T> for std::result::Result<T, E> {
    fn named(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| Error { what: what(), error: error.into() })
    }
}

impl Sandbox {
    fn needs_namespace(&self) -> bool {
        !self.mounts.is_empty()
            || self.hostname.is_some()
            || self.has_read_only_root
            || self.has_own_pids
            || self.cover.is_some()
    }

    /// Sets everything up for this process, which is about to become another program.
    pub(super) fn enter(&self, cwd: &Path) -> Result<()> {
        self.enter_cgroups()?;
        if let Some(root) = &self.image {
            return self.enter_image(root);
        }
        if self.needs_namespace() {
            match new_namespace(self.hostname.is_some()) {
                Ok(()) => self.set_up_namespace()?,
                Err(_) if self.is_optional => {}
                Err(error) => return Err(error),
            }
        }
        self.become_user(cwd)?;
        self.known_as.map_or(Ok(()), |ids| new_user_namespace(ids, (0, 0)))
    }

    /// The same for a process that joins one that runs, `pid`.
    pub(super) fn join(&self, namespaces: &[OwnedFd], cwd: &Path) -> Result<()> {
        self.enter_cgroups()?;
        for namespace in namespaces {
            rustix::thread::move_into_link_name_space(namespace.as_fd(), None)
                .named(|| "enter the namespace of the container".into())?;
        }
        self.become_user(cwd)
    }

    /// The namespaces of a process that was set up so.
    pub(super) fn namespaces(&self, pid: i32) -> io::Result<Vec<OwnedFd>> {
        if let Some(root) = &self.image {
            let (process, names): (i32, &[&str]) = match root.has_own_user {
                true => (first_child(pid)?, &["mnt", "uts", "ipc", "user"]),
                false => (pid, &["mnt"]),
            };
            // Into one that this process is in already nobody has to go, or may.
            let is_other = |name: &&&str| {
                let of = |process: &str| fs::read_link(format!("/proc/{process}/ns/{name}")).ok();
                of("self") != of(&process.to_string())
            };
            let open = |name: &&str| Ok(fs::File::open(format!("/proc/{process}/ns/{name}"))?.into());
            return names.iter().filter(is_other).map(open).collect();
        }
        if !self.needs_namespace() {
            return Ok(Vec::new());
        }
        let is_own_user = !rustix::process::geteuid().is_root();
        let names: &[&str] = match (is_own_user, self.known_as) {
            (true, _) => &["user", "mnt", "uts"],
            (false, None) => &["mnt", "uts"],
            // The one around the others is left last.
            (false, Some(_)) => &["mnt", "uts", "user"],
        };
        names.iter().map(|name| Ok(fs::File::open(format!("/proc/{pid}/ns/{name}"))?.into())).collect()
    }

    /// Whether it is the first process of a pid namespace.
    pub(super) fn is_first_process(&self) -> bool {
        self.image.as_ref().map_or(self.has_own_pids, |root| root.pids == Pids::Own)
    }

    /// What the containers of its pod call the processes that they share.
    pub(super) fn shared_pids(&self) -> Option<&str> {
        match self.image.as_ref().map(|root| &root.pids) {
            Some(Pids::Pod(name)) => Some(name),
            Some(Pids::Own | Pids::Machine) | None => None,
        }
    }

    /// Whether it is in another pid namespace than the keeper.
    fn has_other_pids(&self) -> bool {
        self.is_first_process() || self.shared_pids().is_some()
    }

    /// The pid namespace that a process has to be in that joins one that runs.
    pub(super) fn pid_namespace(&self, pid: i32) -> io::Result<Option<OwnedFd>> {
        if !self.has_other_pids() {
            return Ok(None);
        }
        let has_own_user = self.image.as_ref().is_some_and(|root| root.has_own_user);
        let process = if has_own_user { first_child(pid)? } else { pid };
        fs::File::open(format!("/proc/{process}/ns/pid")).map(|file| Some(file.into()))
    }

    /// Prepares the files of a container for the runtime that makes it. This process is in the pid namespace of that.
    fn enter_image(&self, root: &Root) -> Result<()> {
        new_namespace(false)?;
        if self.has_other_pids() {
            mount_proc()?;
        }
        for path in &root.hidden {
            // Not there, or not a mount any more: as good. What can't be taken away is covered.
            if rustix::mount::unmount(path, UnmountFlags::DETACH).is_err() && root.is_rootless {
                let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
                rustix::mount::mount("windlass", path, "tmpfs", flags, c"size=0")
                    .named(|| format!("hide {}", path.display()))?;
            }
        }
        root.read_only.iter().try_for_each(|path| set_access(path, true))?;
        root.groups.as_deref().map_or(Ok(()), hide_groups)?;
        root.mount()?;
        copy_small(&root.small)?;
        // What volumes have a part of is found now, so that no link can lead elsewhere later.
        for mount in &self.mounts {
            let what = || mount.text();
            let source = open_source(mount).named(what)?;
            let is_directory = fs::metadata(link(source.as_fd())).named(what)?.is_dir();
            let made = if is_directory {
                fs::create_dir(&mount.target)
            } else {
                fs::File::create(&mount.target).map(drop)
            };
            made.named(what)?;
            rustix::mount::mount_bind_recursive(link(source.as_fd()), &mount.target).named(what)?;
        }
        rustix::process::chdir("/").named(|| "enter /".into())
    }

    fn enter_cgroups(&self) -> Result<()> {
        for file in &self.cgroups {
            fs::write(file, "0").named(|| format!("enter cgroup {}", file.display()))?;
        }
        Ok(())
    }

    fn set_up_namespace(&self) -> Result<()> {
        if let Some(name) = &self.hostname {
            rustix::system::sethostname(name.as_bytes()).named(|| format!("set host name {name}"))?;
        }
        let sources: Vec<Source> = self.mounts.iter().map(Source::open).collect::<Result<_>>()?;
        let covered = self.cover.as_ref().map(Cover::enter).transpose()?.unwrap_or_default();
        if self.has_own_pids {
            mount_proc()?;
        }
        if self.has_read_only_root {
            make_read_only()?;
        }
        let own = if self.has_read_only_root { Vec::new() } else { covered };
        let mut tree = Tree { sandbox: self, own, opened: Vec::new() };
        for (mount, source) in self.mounts.iter().zip(sources) {
            tree.mount(mount, &source)?;
        }
        let opened = tree.opened.iter().filter(|_| self.has_read_only_root);
        opened.into_iter().try_for_each(|directory| set_access(directory, true))
    }

    fn become_user(&self, cwd: &Path) -> Result<()> {
        let in_cwd = || format!("working directory {}", cwd.display());
        let mut entered = rustix::process::chdir(cwd);
        for number in 0..u64::BITS {
            let capability = CapabilitySet::from_bits_retain(1 << number);
            if self.dropped_capabilities & (1 << number) != 0 {
                // One that this kernel does not know is not there to be dropped.
                let _ = rustix::thread::remove_capability_from_bounding_set(capability);
            }
        }
        if let Some(user) = &self.user {
            let groups: Vec<Gid> = user.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
            let what = || format!("become user {} of group {}", user.uid, user.gid);
            rustix::thread::set_thread_groups(&groups).named(what)?;
            rustix::thread::set_thread_res_gid(gid, gid, gid).named(what)?;
            rustix::thread::set_thread_res_uid(uid, uid, uid).named(what)?;
            if entered.is_err() {
                // It may be a directory that only this user may enter.
                entered = rustix::process::chdir(cwd);
            }
        }
        entered.named(in_cwd)?;
        if self.user.is_none() && self.dropped_capabilities != 0 {
            drop_held(self.dropped_capabilities)?;
        }
        if self.keeps_privileges_down {
            rustix::thread::set_no_new_privs(true).named(|| "set no_new_privs".into())?;
        }
        Ok(())
    }
}

impl Root {
    /// Mounts the layers and what is written above them.
    fn mount(&self) -> Result<()> {
        let what = || format!("{IMAGE_REFUSED} {}", self.target.display());
        let mut flags = MountFlags::empty();
        flags.set(MountFlags::NODEV, !self.has_devices);
        if self.layers.is_empty() {
            // It is there already, whole.
            let what = || format!("mount the copy of the image at {}", self.target.display());
            rustix::mount::mount_bind(&self.target, &self.target).named(what)?;
            return rustix::mount::mount_remount(&self.target, flags | MountFlags::BIND, "").named(what);
        }
        // Their names only: the kernel takes one page of options.
        let above = self.layers.last().and_then(|layer| layer.parent()).unwrap_or(Path::new("/"));
        rustix::process::chdir(above).named(what)?;
        let names: Vec<&Path> =
            self.layers.iter().rev().map(|layer| layer.strip_prefix(above).unwrap_or(layer)).collect();
        let own = if self.is_rootless { ",userxattr" } else { "" };
        mount_overlay(&names, &self.upper, &self.work, &self.target, flags, own).named(what)
    }
}

/// Where programs look for control groups.
const GROUPS: &str = "/sys/fs/cgroup";

/// Leaves an empty file system where control groups are, of which `points` are all mount points. Who is root of a user
/// namespace only can't take them away: for each there is a directory then, and a file for the numbers of processes.
fn hide_groups(points: &[PathBuf]) -> Result<()> {
    let unmount = |point: &&PathBuf| rustix::mount::unmount(*point, UnmountFlags::DETACH).is_err();
    let left: Vec<&PathBuf> = points.iter().rev().filter(unmount).collect();
    let what = || format!("hide {GROUPS}");
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("windlass", GROUPS, "tmpfs", flags, c"size=64k").named(what)?;
    for point in left.into_iter().filter(|point| point.starts_with(GROUPS)) {
        fs::create_dir_all(point).named(what)?;
        fs::File::create(point.join("cgroup.procs")).named(what)?;
    }
    Ok(())
}

/// Lays a file system in memory over a directory, with copies of the files that are in it.
fn copy_small(directory: &Path) -> Result<()> {
    let what = || format!("copy the files of {}", directory.display());
    let read = |entry: io::Result<fs::DirEntry>| {
        let path = entry?.path();
        fs::read(&path).map(|bytes| (path, bytes))
    };
    let files: Vec<(PathBuf, Vec<u8>)> =
        fs::read_dir(directory).and_then(|entries| entries.map(read).collect()).named(what)?;
    let taken: usize = files.iter().map(|(_, bytes)| bytes.len()).sum();
    let options = std::ffi::CString::new(format!("size={},mode=755", SMALL_BYTES + taken)).named(what)?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    rustix::mount::mount("windlass", directory, "tmpfs", flags, options.as_c_str()).named(what)?;
    let write = |(path, bytes): &(PathBuf, Vec<u8>)| {
        fs::write(path, bytes)?;
        fs::set_permissions(path, fs::Permissions::from_mode(0o644))
    };
    files.iter().try_for_each(write).named(what)
}

/// Mounts directories over each other, the uppermost first, with one above them that is written to and goes with the
/// container. `more`: options, each with a comma before it.
pub(super) fn mount_overlay(
    lower: &[&Path],
    upper: &Path,
    work: &Path,
    target: &Path,
    flags: MountFlags,
    more: &str,
) -> io::Result<()> {
    let lower: Vec<String> = lower.iter().map(|path| escape(path)).collect();
    let options =
        format!("lowerdir={},upperdir={},workdir={}{more}", lower.join(":"), escape(upper), escape(work));
    // Nobody needs on disk what goes with the container, and to bring it there takes long. Older kernels don't know how.
    let quick = format!("{options},volatile");
    let mount = |options: String| -> io::Result<()> {
        let options = std::ffi::CString::new(options).map_err(io::Error::other)?;
        Ok(rustix::mount::mount("overlay", target, "overlay", flags, options.as_c_str())?)
    };
    match mount(quick) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => mount(options),
        result => result,
    }
}

/// A path in the options of overlayfs, where commas and colons mean something.
fn escape(path: &Path) -> String {
    let mut text = String::new();
    for c in path.to_string_lossy().chars() {
        if matches!(c, '\\' | ':' | ',') {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

fn drop_held(dropped: u64) -> Result<()> {
    let mut sets = rustix::thread::capabilities(None).named(|| "read capabilities".into())?;
    let kept = CapabilitySet::from_bits_retain(!dropped);
    sets.effective &= kept;
    sets.permitted &= kept;
    sets.inheritable &= kept;
    rustix::thread::set_capabilities(None, sets).named(|| "drop capabilities".into())
}

/// Mounts, and the host name if asked, of this process's own. Who is not root becomes the root of a user namespace in
/// which its own user is the only one.
pub(super) fn new_namespace(has_hostname: bool) -> Result<()> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if !uid.is_root() {
        let own = (uid.as_raw(), gid.as_raw());
        new_user_namespace(own, own)?;
    }
    let mut flags = UnshareFlags::NEWNS;
    flags.set(UnshareFlags::NEWUTS, has_hostname);
    // SAFETY: file descriptors are not unshared.
    let unshared = unsafe { rustix::thread::unshare_unsafe(flags) };
    unshared.named(|| "make a mount namespace".into())?;
    let private = MountPropagationFlags::PRIVATE | MountPropagationFlags::REC;
    rustix::mount::mount_change("/", private).named(|| "keep mounts to itself".into())
}

/// A user namespace of this process's own, which has one user and one group.
fn new_user_namespace(inside: Ids, outside: Ids) -> Result<()> {
    // SAFETY: file descriptors are not unshared.
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER) };
    unshared.named(|| "make a user namespace".into())?;
    Map::new(inside, outside).write().named(|| format!("become user {} of a user namespace", inside.0))
}

/// The files of the processes of the pid namespace that this process is in.
pub(super) fn mount_proc() -> Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    let mounted = rustix::mount::mount("proc", "/proc", "proc", flags, None::<&std::ffi::CStr>);
    mounted.named(|| "mount /proc".into())
}

/// Takes the right to write from every mount of the machine, but for those of devices and the kernel.
fn make_read_only() -> Result<()> {
    let table = fs::read_to_string("/proc/self/mountinfo").named(|| "read /proc/self/mountinfo".into())?;
    for point in mount_points(&table) {
        // One that is covered by another can't be reached, neither by us nor by the container.
        if !is_kernels(&point) && point.exists() {
            set_access(&point, true)?;
        }
    }
    Ok(())
}

/// Where something is mounted, by `/proc/self/mountinfo`.
pub(super) fn mount_points(table: &str) -> impl Iterator<Item = PathBuf> {
    table.lines().filter_map(|line| line.split(' ').nth(4)).map(|text| unescape(text).into())
}

/// Whether what is mounted there is of devices or the kernel.
pub(super) fn is_kernels(point: &Path) -> bool {
    ["/proc", "/sys", "/dev"].iter().any(|top| point.starts_with(top))
}

/// As the kernel writes paths: a space is `\040`.
fn unescape(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..3).filter(|_| *first == b'\\');
        let code = code.and_then(|code| u8::from_str_radix(std::str::from_utf8(code).ok()?, 8).ok());
        out.push(code.unwrap_or(*first));
        rest = if code.is_some() { &after[3..] } else { after };
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Says whether what is mounted at a path can be written to.
pub(super) fn set_access(path: &Path, is_read_only: bool) -> Result<()> {
    let what = || format!("change how {} can be used", path.display());
    // What the mount forbids already has to be said again, or it would be allowed by this.
    let found = rustix::fs::statvfs(path).named(what)?;
    let mut flags = MountFlags::BIND;
    flags.set(MountFlags::RDONLY, is_read_only);
    for (held, flag) in [
        (rustix::fs::StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (rustix::fs::StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (rustix::fs::StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
    ] {
        flags.set(flag, found.f_flag.contains(held));
    }
    rustix::mount::mount_remount(path, flags, "").named(what)
}

/// What is to be mounted, with all that is mounted in it: by itself, so that it can be whatever becomes of the root.
struct Source {
    tree: OwnedFd,
    is_directory: bool,
}

impl Source {
    fn open(mount: &Mount) -> Result<Self> {
        let source = open_source(mount).named(|| mount.text())?;
        let is_directory = fs::metadata(link(source.as_fd())).named(|| mount.text())?.is_dir();
        let flags =
            OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
        let tree = rustix::mount::open_tree(rustix::fs::CWD, link(source.as_fd()), flags);
        Ok(Self { tree: tree.named(|| mount.text())?, is_directory })
    }
}

/// The file tree of the process as it is being made.
struct Tree<'a> {
    sandbox: &'a Sandbox,
    /// Where directories can be made without anybody else seeing them, or with their owner agreeing: volumes, and
    /// directories that were opened up.
    own: Vec<PathBuf>,
    /// The directories that were opened up.
    opened: Vec<PathBuf>,
}

impl Tree<'_> {
    fn mount(&mut self, mount: &Mount, source: &Source) -> Result<()> {
        let target = self.mount_point(&mount.target, source.is_directory)?;
        let moved = rustix::mount::move_mount(
            &source.tree,
            "",
            rustix::fs::CWD,
            &target,
            MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
        );
        moved.named(|| mount.text())?;
        // A mount of something that can't be written to here can't be either, unless it is said.
        if mount.is_read_only || self.sandbox.has_read_only_root {
            set_access(&target, mount.is_read_only)?;
        }
        if !mount.is_read_only {
            self.own.push(target);
        }
        Ok(())
    }

    /// The place of a mount, made if it is not there.
    fn mount_point(&mut self, target: &Path, is_directory: bool) -> Result<PathBuf> {
        let what = || format!("make mount point {}", target.display());
        let (existing, missing) = split(target).named(what)?;
        if missing.is_empty() {
            let found = fs::metadata(&existing).named(what)?;
            let is_fit = found.is_dir() == is_directory;
            return match is_fit {
                true => Ok(existing),
                false => Err(io::Error::from(io::ErrorKind::NotADirectory)).named(what),
            };
        }
        let is_own = self.own.iter().any(|own| existing.starts_with(own) && same_mount(own, &existing));
        if !is_own {
            self.open_up(&existing)?;
        }
        let mut path = existing;
        for (place, name) in missing.iter().enumerate() {
            path.push(name);
            let is_last = place + 1 == missing.len();
            if is_last && !is_directory {
                fs::File::create(&path).named(what)?;
            } else {
                fs::create_dir(&path).named(what)?;
            }
        }
        Ok(path)
    }

    /// Puts a file system of the process's own in the place of a directory, with every entry of the directory in it.
    fn open_up(&mut self, directory: &Path) -> Result<()> {
        // Where termination messages are, and a hundred devices.
        if directory != Path::new(DEVICES) || self.lay_over_devices().is_err() {
            self.copy_entries(directory)?;
        }
        self.own.push(directory.to_owned());
        self.opened.push(directory.to_owned());
        Ok(())
    }

    /// The same for the devices: one mount instead of one for each of them. To them it makes no difference, while files,
    /// pipes and sockets would not be those of the machine any more. In a user namespace devices can't be used so.
    fn lay_over_devices(&self) -> io::Result<()> {
        let (stage, devices) = (self.sandbox.stage.as_path(), Path::new(DEVICES));
        let mut kept = mounts_in(&fs::read_to_string("/proc/self/mountinfo")?, devices);
        for entry in fs::read_dir(devices)? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_file() || kind.is_fifo() || kind.is_socket() {
                kept.insert(entry.path());
            }
        }
        rustix::mount::mount("windlass", stage, "tmpfs", MountFlags::empty(), c"mode=700")?;
        let laid = lay_over(stage, devices, &kept);
        // What is in use of it stays.
        rustix::mount::unmount(stage, UnmountFlags::DETACH)?;
        laid
    }

    /// The same entry by entry: each is the machine's own.
    fn copy_entries(&self, directory: &Path) -> Result<()> {
        let what = || format!("open up {}", directory.display());
        let stage = self.sandbox.stage.as_path();
        let mode = format!("mode={:o}\0", fs::metadata(directory).named(what)?.mode() & 0o7777);
        let mode =
            std::ffi::CStr::from_bytes_with_nul(mode.as_bytes()).expect("made with one NUL at the end");
        rustix::mount::mount("windlass", stage, "tmpfs", MountFlags::empty(), mode).named(what)?;
        for entry in fs::read_dir(directory).named(what)? {
            let entry = entry.named(what)?;
            let (from, to) = (entry.path(), stage.join(entry.file_name()));
            let what = || format!("mount {} in {}", from.display(), directory.display());
            let kind = entry.file_type().named(what)?;
            if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(&from).named(what)?, &to).named(what)?;
                continue;
            }
            let made = if kind.is_dir() { fs::create_dir(&to) } else { fs::File::create(&to).map(drop) };
            made.named(what)?;
            match rustix::mount::mount_bind_recursive(&from, &to) {
                Ok(()) => {}
                // It was removed since, or is of a kind that can't be mounted.
                Err(rustix::io::Errno::NOENT | rustix::io::Errno::INVAL) => {}
                Err(error) => return Err(error).named(what),
            }
        }
        if directory == Path::new("/") {
            rustix::process::chdir(stage).named(what)?;
            rustix::process::pivot_root(".", ".").named(what)?;
            rustix::mount::unmount(".", UnmountFlags::DETACH).named(what)?;
            rustix::process::chdir("/").named(what)?;
        } else {
            rustix::mount::mount_move(stage, directory).named(what)?;
        }
        Ok(())
    }
}

/// Lays a directory of `stage` over the devices, but for what is kept as it is.
fn lay_over(stage: &Path, devices: &Path, kept: &BTreeSet<PathBuf>) -> io::Result<()> {
    let [upper, work, view] = ["upper", "work", "view"].map(|name| stage.join(name));
    [&upper, &work, &view].into_iter().try_for_each(fs::create_dir)?;
    fs::set_permissions(&upper, fs::metadata(devices)?.permissions())?;
    mount_overlay(&[devices], &upper, &work, &view, MountFlags::NOSUID, "")?;
    fs::File::options().write(true).open(view.join("null"))?;
    for path in kept {
        rustix::mount::mount_bind_recursive(path, view.join(path.strip_prefix(devices).unwrap_or(path)))?;
    }
    Ok(rustix::mount::mount_move(&view, devices)?)
}

/// What is mounted in a directory, but not in what is: from `/proc/self/mountinfo`.
fn mounts_in(table: &str, directory: &Path) -> BTreeSet<PathBuf> {
    let is_inside = |point: &PathBuf| point.starts_with(directory) && point != directory;
    let inside: BTreeSet<PathBuf> = mount_points(table).filter(is_inside).collect();
    let is_first = |point: &&PathBuf| !inside.iter().any(|other| point.starts_with(other) && *point != other);
    inside.iter().filter(is_first).cloned().collect()
}

fn same_mount(a: &Path, b: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|found| found.dev()).ok();
    device(a) == device(b)
}

/// The part of a path that is there, without links, and the names that are not.
fn split(target: &Path) -> io::Result<(PathBuf, Vec<std::ffi::OsString>)> {
    let mut missing = Vec::new();
    let mut existing = target.to_owned();
    loop {
        match fs::canonicalize(&existing) {
            Ok(found) => {
                missing.reverse();
                return Ok((found, missing));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let name = existing.file_name().ok_or(error)?;
                missing.push(name.to_owned());
                existing.pop();
            }
            Err(error) => return Err(error),
        }
    }
}

/// The first process that a process has started.
fn first_child(pid: i32) -> io::Result<i32> {
    let all = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    let first = all.split_ascii_whitespace().next().and_then(|child| child.parse().ok());
    first.ok_or_else(|| io::ErrorKind::NotFound.into())
}

/// A path to an open file, whatever happens to its names.
fn link(fd: BorrowedFd<'_>) -> PathBuf {
    format!("/proc/self/fd/{}", fd.as_raw_fd()).into()
}

fn open_source(mount: &Mount) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let root = rustix::fs::open(&mount.source, flags, Mode::empty())?;
    match &mount.sub_path {
        None => Ok(root),
        Some(sub_path) => open_beneath(&root, sub_path),
    }
}

/// Opens a path below a directory, and makes it, as directories, if it is not there: whoever may use the directory may use
/// those (upstream: SafeMakeDir). A link that leads out of the directory is an error, also one that is put there at this very
/// moment (CVE-2017-1002101, CVE-2021-25741).
fn open_beneath(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(root, path, flags, Mode::empty(), beneath) {
        Err(rustix::io::Errno::NOENT) => {}
        result => return Ok(result?),
    }
    let mode = rustix::fs::fstat(root)?.st_mode;
    let mut directory = root.try_clone()?;
    for part in path.components() {
        let name = match part {
            Component::Normal(name) => name,
            Component::CurDir => continue,
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => {
                return Err(io::ErrorKind::InvalidInput.into());
            }
        };
        let flags = flags | OFlags::DIRECTORY;
        directory = match rustix::fs::openat2(&directory, name, flags, Mode::empty(), beneath) {
            Err(rustix::io::Errno::NOENT) => {
                let made = make_like(&directory, name, mode);
                if !matches!(made, Ok(()) | Err(rustix::io::Errno::EXIST)) {
                    made?;
                }
                rustix::fs::openat2(&directory, name, flags, Mode::empty(), beneath)?
            }
            result => result?,
        };
    }
    Ok(directory)
}

/// Makes a directory with a mode, whatever the umask. It has its mode at once: it is never changed by a name, behind which
/// something else could be by then. The group, and that it is passed on, come from the directory around it.
fn make_like(directory: &OwnedFd, name: &std::ffi::OsStr, mode: u32) -> rustix::io::Result<()> {
    // Of this process alone, which has one thread.
    let before = rustix::process::umask(Mode::empty());
    let made = rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(mode & 0o1777));
    rustix::process::umask(before);
    made
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    /// Runs what makes directories in a thread with a umask of its own.
    fn apart(what: impl FnOnce() + Send) {
        let run = || {
            // SAFETY: file descriptors are not unshared.
            unsafe { rustix::thread::unshare_unsafe(UnshareFlags::FS) }.expect("unshared");
            rustix::process::umask(Mode::from_raw_mode(0o027));
            what();
        };
        std::thread::scope(|scope| scope.spawn(run).join()).expect("it holds");
    }

    #[test]
    fn paths_of_the_mount_table_are_read_back() {
        for (text, want) in [("/a", "/a"), (r"/a\040b\134c", r"/a b\c"), (r"/x\9", r"/x\9"), (r"/x\", r"/x\")]
        {
            assert_eq!(unescape(text), want);
        }
    }

    #[test]
    fn what_is_mounted_among_the_devices_is_found_once() {
        let table = "\
31 1 0:1 / / rw - ext4 /dev/x rw
32 31 0:2 / /dev rw - devtmpfs dev rw
33 32 0:3 / /dev/shm rw - tmpfs x rw
34 33 0:4 / /dev/shm/in rw - tmpfs x rw
35 32 0:5 / /dev/pts rw - devpts x rw
36 32 0:5 / /dev/pts rw - devpts x rw
37 32 0:6 / /dev/with\\040space rw - tmpfs x rw
38 31 0:7 / /device rw - tmpfs x rw";
        let found = mounts_in(table, Path::new("/dev"));
        assert_eq!(found, ["/dev/pts", "/dev/shm", "/dev/with space"].map(PathBuf::from).into());
    }

    #[test]
    fn a_sub_path_does_not_lead_out_of_its_volume() {
        let directory = tempfile::tempdir().expect("a directory");
        let volume = directory.path().join("volume");
        fs::create_dir_all(volume.join("in/deep")).expect("made");
        fs::create_dir(directory.path().join("out")).expect("made");
        for (name, target) in [
            ("up", "../out"),
            ("root", "/etc"),
            ("inside", "in"),
            ("loop", "loop"),
            ("proc", "/proc/self/root"),
        ] {
            std::os::unix::fs::symlink(target, volume.join(name)).expect("linked");
        }
        let root = rustix::fs::open(&volume, OFlags::PATH, Mode::empty()).expect("opened");
        let open = |path: &str| open_beneath(&root, Path::new(path)).is_ok();
        let paths = [
            ("in/deep", true),
            ("inside/deep", true),
            ("new/dirs", true),
            ("up", false),
            ("up/new", false),
            ("root/passwd", false),
            ("proc/etc", false),
            ("loop", false),
            ("in/../../out", false),
            ("new/../../x", false),
        ];
        apart(|| paths.iter().for_each(|(path, is_fine)| assert_eq!(open(path), *is_fine, "{path}")));
        assert!(volume.join("new/dirs").is_dir());
        assert_eq!(fs::read_dir(directory.path().join("out")).expect("there").count(), 0);
    }

    #[test]
    fn a_sub_path_that_is_made_can_be_used_by_whoever_may_use_the_volume() {
        let volume = tempfile::tempdir().expect("a directory");
        for mode in [0o777, 0o2777, 0o750, 0o1777] {
            fs::set_permissions(volume.path(), fs::Permissions::from_mode(mode)).expect("changed");
            let root = rustix::fs::open(volume.path(), OFlags::PATH, Mode::empty()).expect("opened");
            let path = format!("{mode:o}/deep");
            apart(|| drop(open_beneath(&root, Path::new(&path)).expect("made")));
            for made in [format!("{mode:o}"), path.clone()] {
                let found = fs::metadata(volume.path().join(&made)).expect("made").permissions().mode();
                assert_eq!(found & 0o7777, mode, "{made}: {found:o}");
            }
        }
    }

    #[test]
    fn a_directory_that_becomes_a_link_at_any_moment_does_not_lead_out_of_its_volume() {
        let directory = tempfile::tempdir().expect("a directory");
        let (volume, outside) = (directory.path().join("volume"), directory.path().join("out"));
        fs::create_dir_all(volume.join("dir")).expect("made");
        fs::create_dir(&outside).expect("made");
        std::os::unix::fs::symlink(&outside, volume.join("link")).expect("linked");
        let root = rustix::fs::open(&volume, OFlags::PATH, Mode::empty()).expect("opened");
        let number = |found: fs::Metadata| (found.dev(), found.ino());
        let forbidden = number(fs::metadata(&outside).expect("there"));
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let at = |name: &str| volume.join(name);
                while !is_over.load(Ordering::Relaxed) {
                    // What is made in between is in the way: it goes.
                    for other in ["link", "dir"] {
                        if fs::rename(at(other), at("way")).is_err() {
                            let _ = fs::remove_dir_all(at("way"));
                        }
                        let _ = fs::rename(at("way"), at(other));
                    }
                }
            });
            let mut opened = 0;
            let open = || {
                for _ in 0..10_000 {
                    for path in ["way", "way/deep"] {
                        let Ok(found) = open_beneath(&root, Path::new(path)) else { continue };
                        let found = number(fs::metadata(link(found.as_fd())).expect("open"));
                        assert_ne!(found, forbidden, "{path}");
                        opened += 1;
                    }
                }
            };
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| apart(open)));
            is_over.store(true, Ordering::Relaxed);
            result.expect("it holds");
            assert!(opened > 0, "it is not always a link");
        });
        assert_eq!(fs::read_dir(&outside).expect("there").count(), 0, "nothing is made there");
    }
}
