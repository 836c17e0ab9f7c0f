//! The second keeper of an agent that is not root, for containers with namespaces that only root may make: it is root of a
//! user namespace in which the agent's user is the only one.
//!
//! ```text
//!   agent ─► outer (in the user namespace; holds the lock, and waits)
//!              └── inner: the keeper itself, process 1 of a pid namespace, with mounts of its own
//!                     └── containers, each in a pid namespace of its own
//! ```
//!
//! The pid namespace is there so that the keeper can start a process in another one and be where it was afterwards: that
//! takes root of the user namespace to which it belongs. And when the inner one ends, however that happens, so does all that
//! it runs, which nobody has to look for. The outer one ends when the inner one is gone, and all of it: then the lock is free.
//!
//! Containers that need none of this stay with the first keeper: in a user namespace files of others seem to be nobody's, and
//! no program becomes another user.

use std::ffi::CStr;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::MountPropagationFlags;
use rustix::process::{Pid, WaitOptions};
use rustix::thread::UnshareFlags;

use super::keeper::{self, Manner};
use super::protocol::StartError;
use super::sandbox;

/// What the two are called in the environment.
pub(super) const OUTER: &str = "outer";
const INNER: &str = "inner";

/// Who somebody is.
pub(super) type Ids = (u32, u32);

/// What a user namespace says about the one user and the one group that it has.
pub(super) struct Map {
    uid: String,
    gid: String,
}

impl Map {
    pub(super) fn new(inside: Ids, outside: Ids) -> Self {
        let line = |inside, outside| format!("{inside} {outside} 1");
        Self { uid: line(inside.0, outside.0), gid: line(inside.1, outside.1) }
    }

    /// Makes it that of this process, whose user namespace is new. Allocates nothing.
    pub(super) fn write(&self) -> rustix::io::Result<()> {
        let files: [(&CStr, &str); 3] = [
            // Who may not take groups away may not name any.
            (c"/proc/self/setgroups", "deny"),
            (c"/proc/self/uid_map", &self.uid),
            (c"/proc/self/gid_map", &self.gid),
        ];
        for (file, text) in files {
            let file = rustix::fs::open(file, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
            rustix::io::write(file, text.as_bytes())?;
        }
        Ok(())
    }
}

/// Has a program start as root of a user namespace, with mounts of its own. `before` is the last that happens before it does.
fn as_root(command: &mut Command, before: impl Fn() -> io::Result<()> + Send + Sync + 'static) {
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let map = Map::new((0, 0), own);
    // SAFETY: the closure makes system calls only, and file descriptors are not unshared.
    unsafe {
        command.pre_exec(move || {
            rustix::thread::unshare_unsafe(UnshareFlags::NEWUSER | UnshareFlags::NEWNS)?;
            map.write()?;
            before()
        });
    }
}

/// Has a keeper start as the outer one.
pub(super) fn prepare(command: &mut Command) {
    command.env(keeper::ROLE, OUTER);
    as_root(command, || Ok(()));
}

/// Whether the kernel lets this user make user namespaces, and be root there.
pub fn is_possible() -> bool {
    let mut command = Command::new("/proc/self/exe");
    as_root(&mut command, || {
        rustix::mount::mount_change(c"/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
        // Given up just before the program would start.
        Err(Errno::CANCELED.into())
    });
    command.spawn().is_err_and(|error| error.raw_os_error() == Some(Errno::CANCELED.raw_os_error()))
}

/// Runs the inner one to its end.
pub(super) fn keep_inner() -> Result<(), StartError> {
    let failed = |error: Errno| StartError::Sandbox { error: format!("make a pid namespace: {error}") };
    let command = keeper::again(INNER);
    // SAFETY: file descriptors are not unshared.
    unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWPID) }.map_err(failed)?;
    let enter: keeper::Enter =
        Box::new(|| sandbox::new_namespace(false).and_then(|()| sandbox::mount_proc()));
    let manner = Manner { has_terminal: false, has_other_pids: true, files: None, stand_in: None };
    let pid = keeper::run(command, &[], Some(enter), manner)?;
    while let Err(Errno::INTR) = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty()) {}
    Ok(())
}
