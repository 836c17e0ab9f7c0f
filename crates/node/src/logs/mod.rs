//! Where the output of containers is: `<logs>/<namespace>_<pod>_<uid>/<container>/<run>.log`, for each run.
//!
//! A file that has grown too large is put aside, and the oldest of these go (see [`segments`]).
//! The file is what the container printed, byte for byte. When it printed it is in a file beside it (see [`times`]).
//! A workload that can write there leads nobody elsewhere (see [`directory`](mod@directory)).

pub mod directory;
pub mod follow;
pub mod read;
pub mod segments;
pub mod times;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use self::directory::Directory;

/// What `terminationMessagePolicy: FallbackToLogsOnError` takes from the end of a log at most.
const MESSAGE_LINES_MAX: usize = 80;
/// And how many bytes of it.
const MESSAGE_BYTES_MAX: usize = 2048;

/// Which pod.
#[derive(Clone, Copy, Debug)]
pub struct PodName<'a> {
    /// Its namespace.
    pub namespace: &'a str,
    /// Its name.
    pub name: &'a str,
    /// Its UID.
    pub uid: &'a str,
}

/// The directory of a pod's logs.
pub fn pod_directory(logs: &Path, pod: PodName<'_>) -> PathBuf {
    logs.join(format!("{}_{}_{}", pod.namespace, pod.name, pod.uid))
}

/// The directory of a container's logs.
pub fn directory(logs: &Path, pod: PodName<'_>, container: &str) -> PathBuf {
    pod_directory(logs, pod).join(container)
}

/// The log of one run of a container; runs count from 0, so this is the restart count at that time.
pub fn path(logs: &Path, pod: PodName<'_>, container: &str, run: i32) -> PathBuf {
    directory(logs, pod, container).join(format!("{run}.log"))
}

/// Removes what is in a log. An empty file stays: by it a run is known to have been begun.
pub fn clear(log: &Path) -> io::Result<()> {
    let Some(run) = log.file_stem().and_then(|run| run.to_str()) else { return Ok(()) };
    let directory = Directory::open(log)?;
    let (aside, times) = (format!("{run}.log."), format!("{run}.times"));
    for name in directory.names()? {
        let is_of_times =
            name.strip_prefix(&times).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'));
        if is_of_times || name.starts_with(&aside) {
            directory.remove(Path::new(&name))?;
        }
    }
    directory.clear(log)
}

/// Whether there is a log, or something else in its place: by it a run is known to have been begun.
pub fn is_there(log: &Path) -> bool {
    Directory::open(log).and_then(|directory| directory.identity(log)).is_ok()
}

/// Removes the log of a run that was not begun after all.
pub fn remove(log: &Path) -> io::Result<()> {
    Directory::open(log)?.remove(log)
}

/// Opens a file of a directory of the agent for reading: a regular one that is not a link, whatever a workload has put in its
/// place.
pub fn open(path: &Path) -> io::Result<File> {
    directory::open_file(rustix::fs::CWD, path, rustix::fs::OFlags::RDONLY)
}

/// The end of a log, as a termination message: at most 80 lines and 2048 bytes.
pub fn tail(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    for segment in segments::open_all(&Directory::open(path)?, path)?.iter().rev() {
        let room = MESSAGE_BYTES_MAX - bytes.len();
        let count = usize::try_from(segment.length).map_or(room, |length| length.min(room));
        let mut part = vec![0; count];
        segment.file.read_exact_at(&mut part, segment.length - count as u64)?;
        part.append(&mut bytes);
        bytes = part;
    }
    Ok(last_lines(&String::from_utf8_lossy(&bytes), MESSAGE_LINES_MAX).to_owned())
}

fn last_lines(text: &str, count: usize) -> &str {
    let body = text.strip_suffix('\n').unwrap_or(text);
    match body.rmatch_indices('\n').nth(count - 1) {
        Some((at, _)) => &text[at + 1..],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_found_by_pod_container_and_run() {
        let pod = PodName { namespace: "ns", name: "p", uid: "u" };
        assert_eq!(path(Path::new("/l"), pod, "c", 2), Path::new("/l/ns_p_u/c/2.log"));
    }

    #[test]
    fn the_tail_is_bounded_in_lines_and_bytes() {
        assert_eq!(last_lines("a\nb\nc\n", 2), "b\nc\n");
        assert_eq!(last_lines("a\nb", 2), "a\nb");
        assert_eq!(last_lines("", 2), "");
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("0.log");
        std::fs::write(&log, "x".repeat(5000)).expect("written");
        assert_eq!(tail(&log).expect("read"), "x".repeat(2048));
        std::fs::write(&log, "l\n".repeat(100)).expect("written");
        assert_eq!(tail(&log).expect("read"), "l\n".repeat(80));
        std::fs::write(segments::aside(&log, 7), "older\n").expect("written");
        std::fs::write(&log, "l\n").expect("written");
        assert_eq!(tail(&log).expect("read"), "older\nl\n", "also from what was put aside");
    }

    #[test]
    fn what_is_in_the_log_of_one_run_is_removed_and_nothing_of_another() {
        let directory = tempfile::tempdir().expect("a directory");
        let files = [
            "1.log",
            "1.log.0",
            "1.log.12",
            "1.times",
            "1.times.13",
            "11.log",
            "11.times",
            "2.log",
            "2.log.1",
        ];
        files.into_iter().for_each(|name| std::fs::write(directory.path().join(name), "x").expect("written"));
        clear(&directory.path().join("1.log")).expect("cleared");
        let left = std::fs::read_dir(directory.path()).expect("listed").flatten();
        let mut left: Vec<_> = left
            .map(|entry| {
                (entry.file_name().into_string().expect("UTF-8"), entry.metadata().expect("there").len())
            })
            .collect();
        left.sort();
        let want = [("1.log", 0), ("11.log", 1), ("11.times", 1), ("2.log", 1), ("2.log.1", 1)];
        assert_eq!(left, want.map(|(name, length)| (name.to_owned(), length)));
    }

    #[test]
    fn a_link_in_place_of_a_log_is_not_followed() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("0.log");
        std::os::unix::fs::symlink("/etc/passwd", &log).expect("linked");
        assert!(open(&log).is_err());
        assert_eq!(open(directory.path()).expect_err("a directory").to_string(), "not a regular file");
    }

    #[test]
    fn behind_a_link_in_place_of_a_directory_nothing_is_found_and_nothing_goes() {
        let directory = tempfile::tempdir().expect("a directory");
        let others = directory.path().join("others");
        std::fs::create_dir(&others).expect("made");
        let files = ["0.log", "0.log.0", "0.times"];
        files.into_iter().for_each(|name| std::fs::write(others.join(name), "secret").expect("written"));
        let log = directory.path().join("logs/p/c/0.log");
        std::fs::create_dir_all(directory.path().join("logs/p")).expect("made");
        std::os::unix::fs::symlink(&others, directory.path().join("logs/p/c")).expect("linked");
        assert!(tail(&log).is_err() && clear(&log).is_err() && remove(&log).is_err() && !is_there(&log));
        for name in files {
            assert_eq!(std::fs::read_to_string(others.join(name)).expect("read"), "secret", "{name}");
        }
    }

    #[test]
    fn a_log_that_is_there_can_be_removed() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("p/c/0.log");
        Directory::make(&log).expect("made").create(&log).expect("made");
        assert!(is_there(&log));
        remove(&log).expect("removed");
        assert!(!is_there(&log));
    }
}
