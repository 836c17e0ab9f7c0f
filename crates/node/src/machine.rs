//! What this machine has left, and what containers use of it.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::pressure::{Amount, Place, Signal, Signals};

/// Reads this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    /// A directory on the disk that counts.
    pub directory: PathBuf,
    /// Where images are, if there are any; it may be on the same disk.
    pub images: Option<PathBuf>,
}

impl Signals for Machine {
    fn amount(&self, signal: Signal) -> Option<Amount> {
        match signal {
            Signal::Memory => memory(&fs::read_to_string("/proc/meminfo").ok()?),
            Signal::Disk => disk(&self.directory),
            Signal::Inodes => inodes(&self.directory),
            Signal::Images => disk(self.images.as_ref()?),
            Signal::ImageInodes => inodes(self.images.as_ref()?),
            Signal::Pids => {
                let read = |file| fs::read_to_string(file).ok()?.trim().parse::<i64>().ok();
                let capacity = read("/proc/sys/kernel/pid_max")?.min(read("/proc/sys/kernel/threads-max")?);
                let load = fs::read_to_string("/proc/loadavg").ok()?;
                let tasks: i64 = load.split(' ').nth(3)?.split('/').nth(1)?.parse().ok()?;
                Some(Amount { capacity, available: capacity - tasks })
            }
        }
    }

    fn used(&self, places: &[Place<'_>], signal: Signal) -> Vec<i64> {
        let on_disk = |place: &Place<'_>| {
            let used = place.paths.iter().map(|path| disk_usage(path));
            used.fold((0_i64, 0_i64), |sum, (bytes, files)| (sum.0.saturating_add(bytes), sum.1 + files))
        };
        match signal {
            Signal::Memory | Signal::Pids => {
                let processes = Processes::now();
                places.iter().map(|place| place.pid.map_or(0, |pid| processes.used(pid, signal))).collect()
            }
            Signal::Disk | Signal::Images => places.iter().map(|place| on_disk(place).0).collect(),
            Signal::Inodes | Signal::ImageInodes => places.iter().map(|place| on_disk(place).1).collect(),
        }
    }
}

/// The processes of this machine, looked at once.
#[derive(Debug, Default)]
struct Processes {
    all: BTreeMap<i32, Process>,
    page: i64,
}

/// Of a line of `/proc/<pid>/stat`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Process {
    parent: i32,
    session: i32,
    threads: i64,
    /// Pages that are in memory.
    resident: i64,
}

impl Processes {
    fn now() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
        let all = entries.filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            // One that has ended meanwhile uses nothing.
            Some((pid, Process::read(&fs::read_to_string(entry.path().join("stat")).ok()?)?))
        });
        Self { all: all.collect(), page: i64::try_from(rustix::param::page_size()).unwrap_or(i64::MAX) }
    }

    /// Whether a process comes from that one: by its parents, or by its session, should these have ended.
    fn is_of(&self, process: Process, first: i32) -> bool {
        let mut next = Some(process);
        // Parents are others with each step: there are no circles, unless numbers were given anew meanwhile.
        for _ in 0..self.all.len() {
            match next {
                Some(process) if process.session == first || process.parent == first => return true,
                Some(process) => next = self.all.get(&process.parent).copied(),
                None => return false,
            }
        }
        false
    }

    /// What a process and all that come from it use: threads, or memory.
    fn used(&self, first: i32, signal: Signal) -> i64 {
        let family = self.all.iter().filter(|(pid, process)| **pid == first || self.is_of(**process, first));
        let each = family.map(|(_, process)| match signal == Signal::Pids {
            true => process.threads,
            false => process.resident.saturating_mul(self.page),
        });
        each.fold(0, i64::saturating_add)
    }
}

impl Process {
    fn read(stat: &str) -> Option<Self> {
        // The name of the program, in brackets, may have anything in it.
        let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        Some(Self {
            parent: fields.get(1)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            threads: fields.get(17)?.parse().ok()?,
            resident: fields.get(21)?.parse().ok()?,
        })
    }
}

/// Of the disk of a directory.
pub(crate) fn disk(directory: &Path) -> Option<Amount> {
    let found = rustix::fs::statvfs(directory).ok()?;
    let bytes = |blocks: u64| i64::try_from(blocks.saturating_mul(found.f_frsize)).unwrap_or(i64::MAX);
    Some(Amount { capacity: bytes(found.f_blocks), available: bytes(found.f_bavail) })
}

/// Of the disk of a directory. File systems without a fixed number say 0, and have none.
fn inodes(directory: &Path) -> Option<Amount> {
    let found = rustix::fs::statvfs(directory).ok()?;
    let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
    (found.f_files > 0).then(|| Amount { capacity: number(found.f_files), available: number(found.f_favail) })
}

/// A line `Name:   123 kB`, in bytes.
fn field(text: &str, name: &str) -> Option<i64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    Some(line.trim().strip_suffix(" kB")?.trim().parse::<i64>().ok()? * 1024)
}

fn memory(meminfo: &str) -> Option<Amount> {
    Some(Amount { capacity: field(meminfo, "MemTotal")?, available: field(meminfo, "MemAvailable")? })
}

/// The bytes and the files below a directory, or those of a file. Links are not followed, and mounts not entered.
pub(crate) fn disk_usage(directory: &Path) -> (i64, i64) {
    use std::os::unix::fs::MetadataExt;
    let Ok(top) = fs::symlink_metadata(directory) else { return (0, 0) };
    let size = |found: &fs::Metadata| i64::try_from(found.blocks().saturating_mul(512)).unwrap_or(i64::MAX);
    if !top.is_dir() {
        return (size(&top), 1);
    }
    let (mut bytes, mut files) = (0_i64, 0_i64);
    let mut left = vec![directory.to_owned()];
    while let Some(directory) = left.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            let Ok(found) = entry.metadata() else { continue };
            files += 1;
            bytes = bytes.saturating_add(size(&found));
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
    fn a_process_uses_what_all_use_that_come_from_it() {
        let line = |name: &str, parent: i32, session: i32, threads: i64, pages: i64| {
            let text = format!(
                "7 ({name}) S {parent} 1 {session} 0 -1 0 0 0 0 0 0 0 0 0 0 0 {threads} 0 5 99 {pages} 18446744073709551615"
            );
            Process::read(&text).expect("as the kernel writes it")
        };
        let all = [
            (10, line("first", 1, 10, 1, 100)),
            (11, line("a) b) S 1", 10, 10, 3, 10)),
            (12, line("left by its parent", 1, 10, 1, 1)),
            (13, line("in a session of its own", 11, 13, 1, 1000)),
            (14, line("and its child", 13, 13, 1, 10_000)),
            (20, line("somebody else", 1, 20, 1, 100_000)),
        ];
        let processes = Processes { all: all.into(), page: 2 };
        assert_eq!(processes.used(10, Signal::Memory), 2 * 11_111);
        assert_eq!(processes.used(10, Signal::Pids), 7);
        assert_eq!(processes.used(99, Signal::Memory), 0);
        assert_eq!(Process::read("rubbish"), None);
    }

    #[test]
    fn what_this_process_uses_is_found_in_proc() {
        let place = |pid| Place { pod: "p", pid, paths: Vec::new() };
        let own = i32::try_from(std::process::id()).expect("a number");
        let machine = Machine { directory: "/".into(), images: None };
        for signal in [Signal::Memory, Signal::Pids] {
            let used = machine.used(&[place(Some(own)), place(None)], signal);
            assert!(used[0] > 0 && used[1] == 0, "{signal:?} {used:?}");
        }
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
        let (bytes, files) = disk_usage(&root.path().join("d/f"));
        assert!(files == 1 && (100_000..200_000).contains(&bytes), "{bytes}");
        assert_eq!(disk_usage(&root.path().join("none")), (0, 0));
    }

    #[test]
    fn this_machine_has_something_left_of_everything() {
        let machine = Machine { directory: "/".into(), images: None };
        for signal in [Signal::Memory, Signal::Disk, Signal::Pids] {
            let amount = machine.amount(signal).expect("it can be told");
            assert!(0 < amount.available && amount.available <= amount.capacity, "{signal:?} {amount:?}");
        }
    }
}
