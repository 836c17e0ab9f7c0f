//! What this machine has left, and what containers use of it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::pressure::{Amount, Place, Signal, Signals};

/// Reads this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// A directory on the disk that counts.
    pub directory: PathBuf,
}

impl Signals for Machine {
    fn amount(&self, signal: Signal) -> Option<Amount> {
        match signal {
            Signal::Memory => memory(&fs::read_to_string("/proc/meminfo").ok()?),
            Signal::Disk => {
                let found = rustix::fs::statvfs(&self.directory).ok()?;
                let bytes =
                    |blocks: u64| i64::try_from(blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX);
                Some(Amount { capacity: bytes(found.f_blocks), available: bytes(found.f_bavail) })
            }
            Signal::Inodes => {
                let found = rustix::fs::statvfs(&self.directory).ok()?;
                let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
                // File systems without a fixed number say 0.
                (found.f_files > 0)
                    .then(|| Amount { capacity: number(found.f_files), available: number(found.f_favail) })
            }
            Signal::Pids => {
                let read = |file| fs::read_to_string(file).ok()?.trim().parse::<i64>().ok();
                let capacity = read("/proc/sys/kernel/pid_max")?.min(read("/proc/sys/kernel/threads-max")?);
                let load = fs::read_to_string("/proc/loadavg").ok()?;
                let tasks: i64 = load.split(' ').nth(3)?.split('/').nth(1)?.parse().ok()?;
                Some(Amount { capacity, available: capacity - tasks })
            }
        }
    }

    fn used(&self, container: &Place<'_>, signal: Signal) -> i64 {
        match signal {
            Signal::Memory => container.pid.map_or(0, |pid| session(pid).map(resident).sum()),
            Signal::Pids => {
                container.pid.map_or(0, |pid| i64::try_from(session(pid).count()).unwrap_or(i64::MAX))
            }
            Signal::Disk => disk_usage(container.logs).0,
            Signal::Inodes => disk_usage(container.logs).1,
        }
    }
}

/// A line `Name:   123 kB`, in bytes.
fn field(text: &str, name: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok()? * 1024)
}

fn memory(meminfo: &str) -> Option<Amount> {
    Some(Amount { capacity: field(meminfo, "MemTotal")?, available: field(meminfo, "MemAvailable")? })
}

/// What a process has in memory; nothing if it has ended.
fn resident(pid: i32) -> i64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    field(&status, "VmRSS").unwrap_or(0)
}

/// The processes of a session.
fn session(leader: i32) -> impl Iterator<Item = i32> {
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    all.filter_map(move |entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        is_member(&stat, leader).then_some(pid)
    })
}

/// From `/proc/<pid>/stat`: whether it is of this session.
fn is_member(stat: &str, leader: i32) -> bool {
    let fields = stat.rsplit_once(')').map(|(_, fields)| fields.split_ascii_whitespace());
    let session = fields.and_then(|mut fields| fields.nth(3)).and_then(|session| session.parse().ok());
    session == Some(leader)
}

/// The bytes and the files below a directory. Links are not followed, and mounts not entered.
pub(crate) fn disk_usage(directory: &Path) -> (i64, i64) {
    use std::os::unix::fs::MetadataExt;
    let Ok(top) = fs::symlink_metadata(directory) else { return (0, 0) };
    let (mut bytes, mut files) = (0_i64, 0_i64);
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            files += 1;
            bytes =
                bytes.saturating_add(i64::try_from(found.blocks().saturating_mul(512)).unwrap_or(i64::MAX));
            if found.is_dir() && found.dev() == top.dev() {
                left.push(entry.path());
            }
        }
    }
    (bytes, files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_what_the_kernel_calls_available() {
        let text = "MemTotal:       16000000 kB\nMemFree:  1 kB\nMemAvailable:    8000000 kB\n";
        assert_eq!(memory(text), Some(Amount { capacity: 16_384_000_000, available: 8_192_000_000 }));
        assert_eq!(memory("MemTotal: 1 kB"), None);
    }

    #[test]
    fn members_of_a_session_are_told_by_the_fourth_field() {
        let stat = "7 (a) b) S 1 7 42 0 -1 0 0 0";
        assert!(is_member(stat, 42));
        assert!(!is_member(stat, 7));
        assert!(!is_member("rubbish", 7));
    }

    #[test]
    fn everything_below_a_directory_counts_but_not_behind_links() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir(root.path().join("d")).expect("made");
        fs::write(root.path().join("d/f"), vec![1; 100_000]).expect("written");
        std::os::unix::fs::symlink("/usr", root.path().join("l")).expect("linked");
        let (bytes, files) = disk_usage(root.path());
        assert_eq!(files, 3);
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        assert_eq!(disk_usage(&root.path().join("none")), (0, 0));
    }

    #[test]
    fn this_machine_has_something_left_of_everything() {
        let machine = Machine { directory: "/".into() };
        for signal in [Signal::Memory, Signal::Disk, Signal::Pids] {
            let amount = machine.amount(signal).expect("it can be told");
            assert!(0 < amount.available && amount.available <= amount.capacity, "{signal:?} {amount:?}");
        }
    }
}
