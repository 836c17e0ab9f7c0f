//! The files of one log: the one that is written, and those that were put aside because they had grown too large.
//!
//! ```text
//!   0.log.3  0.times.3      the oldest that is kept
//!   0.log.4  0.times.4
//!   0.log    0.times.5      written now; 0.log.5 when it is put aside
//! ```
//!
//! Numbers only grow. The file that is written is always there: it is linked to its new name, and then replaced.

use std::ffi::OsString;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use jiff::Timestamp;

use super::directory::Directory;
use super::times::Times;

/// How often to look again when a file was put aside between two looks.
const TRIES_MAX: usize = 100;
/// How many files that were put aside are read of a log, the newest ones. A node keeps at most 100: more are of a workload that
/// would have the agent open all of them at once.
const FILES_MAX: usize = 128;

/// The name of a file of a log that was put aside.
pub fn aside(log: &Path, number: u64) -> PathBuf {
    with_suffix(log, &format!(".{number}"))
}

pub(crate) fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// One file of a log, opened.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) file: File,
    /// How much was in it when it was opened.
    pub(super) length: u64,
    number: u64,
    meta: Metadata,
}

impl Segment {
    fn new(file: File, number: u64) -> io::Result<Self> {
        let meta = file.metadata()?;
        Ok(Self { file, length: meta.len(), number, meta })
    }

    /// When it was printed; without marks it counts as printed when it was last written.
    pub(super) fn times(&self, directory: &Arc<Directory>, log: &Path) -> Times {
        let modified = self.meta.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
        Times::new(directory, log, self.number, modified.map_or(0, super::read::nanoseconds))
    }

    /// By which numbers the system knows it: see [`Directory::identity`].
    pub(super) fn identity(&self) -> (u64, u64) {
        (self.meta.dev(), self.meta.ino())
    }
}

/// All files of a log, from the oldest to the one that is written: at least that one.
pub(super) fn open_all(directory: &Directory, log: &Path) -> io::Result<Vec<Segment>> {
    for _ in 0..TRIES_MAX {
        let numbers = numbers(directory, log)?;
        let current = directory.read(log)?;
        if self::numbers(directory, log)?.last() != numbers.last() {
            continue;
        }
        let next = numbers.last().map_or(0, |last| last + 1);
        let mut all = Vec::with_capacity(numbers.len() + 1);
        for number in numbers {
            match directory.read(&aside(log, number)) {
                Ok(file) => all.push(Segment::new(file, number)?),
                // It was the oldest.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let current = Segment::new(current, next)?;
        // It has its new name already, and was not replaced yet.
        if all.last().is_none_or(|last: &Segment| last.identity() != current.identity()) {
            all.push(current);
        }
        return Ok(all);
    }
    Err(io::Error::other("files of the log are put aside faster than they can be opened"))
}

/// The numbers of the files that were put aside, in their order.
fn numbers(directory: &Directory, log: &Path) -> io::Result<Vec<u64>> {
    let Some(name) = log.file_name().and_then(|name| name.to_str()) else { return Ok(Vec::new()) };
    let prefix = format!("{name}.");
    let names = directory.names()?.into_iter();
    let mut numbers: Vec<u64> = names.filter_map(|name| name.strip_prefix(&prefix)?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers.drain(..numbers.len().saturating_sub(FILES_MAX));
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_very_many_files_the_newest_are_opened() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("p/c/0.log");
        let opened = Directory::make(&log).expect("made");
        let files = (0..2 * FILES_MAX as u64).map(|number| aside(&log, number)).chain([log.clone()]);
        files.for_each(|file| drop(opened.create(&file).expect("made")));
        let all = open_all(&opened, &log).expect("opened");
        let numbers: Vec<u64> = all.iter().map(|segment| segment.number).collect();
        assert_eq!(numbers, (FILES_MAX as u64..=2 * FILES_MAX as u64).collect::<Vec<u64>>());
    }
}
