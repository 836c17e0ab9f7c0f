//! Ends all processes of a control group, however they were started and whatever they have made of themselves.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, PidfdFlags, Signal};

/// How long the end of all processes of a group may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// The pause between two looks.
const PAUSE: Duration = Duration::from_millis(1);

/// Sends SIGKILL to all processes of a group and of those that they have made in it. Returns whether there were none.
pub(crate) fn kill(directory: &Path) -> io::Result<bool> {
    let found = members(directory)?;
    if found.is_empty() && !is_populated(directory) {
        return Ok(true);
    }
    if std::fs::write(directory.join("cgroup.kill"), "1").is_ok() {
        return Ok(false);
    }
    signal(directory, found)?;
    Ok(false)
}

/// What the kernel says of a group and all below it, which version 1 does not: there they are counted one after the other,
/// and one that moves meanwhile is seen the next time.
fn is_populated(directory: &Path) -> bool {
    let events = std::fs::read_to_string(directory.join("cgroup.events")).unwrap_or_default();
    events.lines().any(|line| line == "populated 1")
}

/// Sends SIGKILL to all processes of a group but one. Returns whether there were no others.
pub(crate) fn kill_others(directory: &Path, spared: i32) -> io::Result<bool> {
    let mut found = members(directory)?;
    found.remove(&spared);
    let is_alone = found.is_empty();
    signal(directory, found)?;
    Ok(is_alone)
}

/// The process of a group that has this number for itself, in whichever pid namespace it is.
pub(crate) fn find(directory: &Path, number: i32) -> Option<i32> {
    let is_it = |pid: &i32| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        own_number(&status) == Some(number)
    };
    members(directory).ok()?.into_iter().find(is_it)
}

/// From `/proc/<pid>/status`: its numbers in all pid namespaces that see it, its own the last.
fn own_number(status: &str) -> Option<i32> {
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"))?;
    numbers.split_ascii_whitespace().next_back()?.parse().ok()
}

/// Kills one by one.
fn signal(directory: &Path, found: BTreeSet<i32>) -> io::Result<()> {
    if found.is_empty() {
        return Ok(());
    }
    // None of them may start another meanwhile, where processes are counted.
    let _ = std::fs::write(directory.join("pids.max"), "0");
    let held = found.into_iter().filter_map(|pid| {
        let process = rustix::process::pidfd_open(Pid::from_raw(pid)?, PidfdFlags::empty()).ok()?;
        Some((pid, process))
    });
    let held: Vec<_> = held.collect();
    // Looked at again while they are held: the number of one that had ended may be that of another.
    let still = members(directory)?;
    for (_, process) in held.into_iter().filter(|(pid, _)| still.contains(pid)) {
        // ESRCH: it has just ended.
        let _ = rustix::process::pidfd_send_signal(process, Signal::KILL);
    }
    Ok(())
}

/// Does so until none is left. Blocks.
pub(crate) fn end(directory: &Path) -> io::Result<()> {
    let start = Instant::now();
    while !kill(directory)? {
        if start.elapsed() > PATIENCE {
            return Err(io::Error::other(format!("processes of {} can't be killed", directory.display())));
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}

/// The processes of a group and of those in it.
fn members(directory: &Path) -> io::Result<BTreeSet<i32>> {
    let mut all = BTreeSet::new();
    for group in super::tree(directory) {
        all.append(&mut own_members(&group)?);
    }
    Ok(all)
}

/// The processes of a group, of which there are none if there is no such group.
fn own_members(directory: &Path) -> io::Result<BTreeSet<i32>> {
    match std::fs::read_to_string(directory.join("cgroup.procs")) {
        // 0: of another pid namespace, which can't be reached from here.
        Ok(text) => Ok(text.lines().filter_map(|line| line.parse().ok()).filter(|pid| *pid > 0).collect()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeSet::new()),
        // The group is being removed.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::NODEV.raw_os_error()) => {
            Ok(BTreeSet::new())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::path::PathBuf;
    use std::process::Command;

    use super::super::{Group, Layout, Limits};
    use super::*;

    /// The second version of control groups, mounted for a test beside whatever the machine has.
    struct Second(tempfile::TempDir);

    impl Second {
        fn mount() -> Self {
            let directory = tempfile::tempdir().expect("a directory");
            let mounted =
                Command::new("mount").args(["-t", "cgroup2", "none"]).arg(directory.path()).status();
            assert!(mounted.expect("mount is there").success());
            Self(directory)
        }
    }

    impl Drop for Second {
        fn drop(&mut self) {
            let _ = Command::new("umount").arg("--lazy").arg(self.0.path()).status();
        }
    }

    #[test]
    fn a_process_is_known_by_its_own_number() {
        for (status, want) in
            [("Name:\tx\nNSpid:\t70\t5\t1\nx", Some(1)), ("NSpid:\t70\n", Some(70)), ("NStgid:\t70\n", None)]
        {
            assert_eq!(own_number(status), want, "{status:?}");
        }
    }

    #[test]
    fn all_of_a_real_group_of_either_version_ends_although_its_processes_multiply() {
        let agent = tempfile::tempdir().expect("a directory");
        let second = Second::mount();
        let layouts = [
            Layout::of_this_process().expect("the machine has control groups"),
            Layout::V2(second.0.path().join("windlass-test")),
        ];
        for layout in layouts {
            let tree = layout.clone();
            let layout = layout.of_agent(agent.path()).expect("read");
            let is_second = matches!(layout, Layout::V2(_));
            let group = Group::plan(&layout, "held", &Limits::default(), true).expect("it is needed");
            group.make().expect("made");
            let directory: PathBuf = group.holds.clone().expect("it holds");
            assert!(!is_populated(&directory));
            let text = "echo $$ > \"$0\" && for i in 1 2 3; do (while :; do (sleep 3999 & sleep 0.01) & sleep 0.01; done) & done; \
                        exec sleep 3999";
            let mut main = Command::new("setsid")
                .args(["sh", "-c", text])
                .arg(directory.join("cgroup.procs"))
                .spawn()
                .expect("a shell");
            while members(&directory).expect("readable").len() < 20 {
                std::thread::sleep(PAUSE);
            }
            assert_eq!(is_populated(&directory), is_second);
            let main_pid = main.id().cast_signed();
            assert_eq!((find(&directory, main_pid), find(&directory, 1)), (Some(main_pid), None));
            while !kill_others(&directory, main.id().cast_signed()).expect("killed") {
                std::thread::sleep(PAUSE);
            }
            assert_eq!(main.try_wait().expect("it is ours"), None, "this one is spared");
            assert!(!kill(&directory).expect("killed"), "there was one");
            end(&directory).expect("ended");
            assert_eq!(members(&directory).expect("readable"), BTreeSet::new());
            assert!(!is_populated(&directory));
            assert_eq!(main.wait().expect("it is ours").signal(), Some(9));
            assert!(kill(&directory).expect("looked"), "there are none");

            // What an agent left is ended by the next one, also in a group that a container has made for itself.
            let mut left = Command::new("sleep").arg("3999").spawn().expect("sleep is there");
            let below = directory.join("own/deeper");
            std::fs::create_dir_all(&below).expect("made");
            std::fs::write(below.join("cgroup.procs"), left.id().to_string()).expect("moved");
            layout.sweep();
            assert!(!directory.exists());
            assert_eq!(left.wait().expect("it is ours").signal(), Some(9));
            assert!(kill(&directory).expect("a group that is gone has no processes"));
            layout.remove();
            if is_second {
                // What all agents share would stay, and nobody else uses this one.
                tree.remove();
            }
        }
    }
}
