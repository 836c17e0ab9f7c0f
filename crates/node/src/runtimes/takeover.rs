//! Before a keeper begins: the one before it has to be gone, and what was left behind is ended.
//!
//! An agent that is killed is gone before its keeper, which still carries out what it was asked for and then kills all of it.
//! An agent that looked earlier for what its predecessor began would not see all, and begin the same run once more. So
//! a keeper holds the directory of its agent locked as long as it lives, and says that it is ready when it has the lock.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::process::{Pid, PidfdFlags, Resource, Rlimit, Signal};

use super::keeper::MARKER;

/// How long the end of a keeper, and of what outlived one, may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// After which time people are told what is waited for.
const SILENCE: Duration = Duration::from_secs(1);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Waits until no other keeper has this directory of an agent, and ends what is left of its containers. Returns the lock,
/// or `None` when the agent of this keeper is gone.
pub(super) fn take(directory: &Path, agent: &UnixStream) -> io::Result<Option<File>> {
    let named = |error: Errno| {
        io::Error::new(
            io::Error::from(error).kind(),
            format!("lock {}: {}", directory.display(), io::Error::from(error)),
        )
    };
    let lock = File::open(directory)
        .map_err(|error| io::Error::new(error.kind(), format!("open {}: {error}", directory.display())))?;
    let start = Instant::now();
    let mut is_said = false;
    loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK | Errno::INTR) => {}
            Err(error) => return Err(named(error)),
        }
        if is_gone(agent) {
            return Ok(None);
        }
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("another node uses {}", directory.display())));
        }
        if start.elapsed() > SILENCE && !is_said {
            eprintln!("windlass: waiting for the end of the node that uses {}", directory.display());
            is_said = true;
        }
        std::thread::sleep(PAUSE);
    }
    end_strays(directory)?;
    Ok(Some(lock))
}

/// Whether an agent, which says nothing before its keeper is ready, has closed its end.
fn is_gone(agent: &UnixStream) -> bool {
    let told = rustix::net::recv(agent, &mut [0_u8; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT);
    !matches!(told, Err(Errno::AGAIN | Errno::INTR))
}

/// Ends processes of containers that outlived agent and keeper, as they do when both were killed.
fn end_strays(directory: &Path) -> io::Result<()> {
    let pods = pods(&directory.join("logs"));
    if pods.is_empty() {
        return Ok(());
    }
    let start = Instant::now();
    loop {
        let strays = strays(&pods);
        if strays.is_empty() {
            return Ok(());
        }
        if start.elapsed() > PATIENCE {
            let text = format!("{} processes of an earlier node can't be killed", strays.len());
            return Err(io::Error::other(text));
        }
        for stray in strays {
            // ESRCH: it has just ended.
            let _ = rustix::process::pidfd_send_signal(stray, Signal::KILL);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The UIDs of the pods that have logs: the last part of the names of their directories.
fn pods(logs: &Path) -> BTreeSet<String> {
    let names = std::fs::read_dir(logs).into_iter().flatten().flatten();
    let names = names.filter_map(|entry| entry.file_name().into_string().ok());
    names.filter_map(|name| name.rsplit_once('_').map(|(_, uid)| uid.to_owned())).collect()
}

/// The processes with the mark of a container of one of these pods. Those that have ended have no environment to show.
fn strays(pods: &BTreeSet<String>) -> Vec<OwnedFd> {
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    pids.filter_map(|pid| {
        // Held before it is looked at, so that the number can't become that of another.
        let process = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        let environment = std::fs::read(format!("/proc/{pid}/environ")).ok()?;
        pod_of(&environment).is_some_and(|uid| pods.contains(uid)).then_some(process)
    })
    .collect()
}

/// The UID of the pod of which a process with this environment is.
fn pod_of(environment: &[u8]) -> Option<&str> {
    let entries = environment.split(|byte| *byte == 0);
    let mark =
        entries.filter_map(|entry| entry.strip_prefix(MARKER.as_bytes())?.strip_prefix(b"=")).next_back()?;
    std::str::from_utf8(mark).ok()?.split('/').next()
}

/// Lets this process open as many files as it may: it has two or three for each container, and a usual limit is 1024.
/// Returns the limit that there was, for processes that were made for it.
pub(super) fn raise_file_limit() -> Option<Rlimit> {
    let before = rustix::process::getrlimit(Resource::Nofile);
    let raised = Rlimit { current: before.maximum, maximum: before.maximum };
    match rustix::process::setrlimit(Resource::Nofile, raised) {
        Ok(()) => Some(before),
        Err(error) => {
            eprintln!("windlass: process keeper: raise the limit of open files: {error}");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_a_container_names_its_pod() {
        for (environment, want) in [
            (&b"A=1\0WINDLASS_CONTAINER=u-1/main/0\0B=2\0"[..], Some("u-1")),
            (b"WINDLASS_CONTAINER_=u-1/main/0\0", None),
            (b"X=WINDLASS_CONTAINER=u-1/main/0\0", None),
            // A container that sets it itself does not change whose it is: ours comes last.
            (b"WINDLASS_CONTAINER=x/y/0\0WINDLASS_CONTAINER=u-2/main/0\0", Some("u-2")),
            (b"", None),
        ] {
            assert_eq!(pod_of(environment), want);
        }
    }

    #[test]
    fn a_directory_that_another_keeper_has_is_not_waited_for_when_the_agent_is_gone() {
        let directory = tempfile::tempdir().expect("a directory");
        let (ours, theirs) = UnixStream::pair().expect("sockets");
        let held = take(directory.path(), &theirs).expect("locked").expect("the agent is there");
        drop(ours);
        assert!(take(directory.path(), &theirs).expect("no error").is_none());
        drop(held);
        assert!(take(directory.path(), &theirs).expect("locked").is_some());
    }
}
