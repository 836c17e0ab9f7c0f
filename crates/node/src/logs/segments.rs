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
use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;

use super::times::Times;

/// How often to look again when a file was put aside between two looks.
const TRIES_MAX: usize = 100;

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
    pub(super) fn times(&self, log: &Path) -> Times {
        let modified = self.meta.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
        Times::new(log, self.number, modified.map_or(0, super::read::nanoseconds))
    }

    /// Whether it is the file that others know by these facts.
    pub(super) fn is(&self, other: &Metadata) -> bool {
        (self.meta.dev(), self.meta.ino()) == (other.dev(), other.ino())
    }

    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.is(&other.meta)
    }
}

/// All files of a log, from the oldest to the one that is written: at least that one.
pub(super) fn open_all(log: &Path) -> io::Result<Vec<Segment>> {
    for _ in 0..TRIES_MAX {
        let numbers = numbers(log)?;
        let current = super::open(log)?;
        if self::numbers(log)?.last() != numbers.last() {
            continue;
        }
        let next = numbers.last().map_or(0, |last| last + 1);
        let mut all = Vec::with_capacity(numbers.len() + 1);
        for number in numbers {
            match super::open(&aside(log, number)) {
                Ok(file) => all.push(Segment::new(file, number)?),
                // It was the oldest.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        let current = Segment::new(current, next)?;
        // It has its new name already, and was not replaced yet.
        if !all.last().is_some_and(|last: &Segment| last.is_same(&current)) {
            all.push(current);
        }
        return Ok(all);
    }
    Err(io::Error::other("files of the log are put aside faster than they can be opened"))
}

/// The numbers of the files that were put aside, in their order.
fn numbers(log: &Path) -> io::Result<Vec<u64>> {
    let (Some(directory), Some(name)) = (log.parent(), log.file_name().and_then(|name| name.to_str())) else {
        return Ok(Vec::new());
    };
    let prefix = format!("{name}.");
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(&prefix)?.parse::<u64>().ok());
        numbers.extend(number);
    }
    numbers.sort_unstable();
    Ok(numbers)
}
