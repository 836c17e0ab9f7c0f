//! Room for the write-ahead log, made before it is needed.
//!
//! A sync of a file that has grown waits for the journal of the file system, which costs about ten times what it costs
//! to sync bytes that were overwritten. SQLite lets its log grow write by write, so the log is filled with zeros ahead of
//! it, in few large steps. To SQLite zeros are the end of the log: no frame has the checksum, or the salt, of nothing.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The first step: a few hundred small writes. Every further step doubles what is there.
const STEP_MIN_BYTES: u64 = 1 << 20;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Keeps room at the end of a write-ahead log.
#[derive(Debug)]
pub(crate) struct Reserve {
    log: PathBuf,
    /// Up to where the file has its bytes on the disk.
    end: u64,
    /// Without room on the disk what is left is for what has to be written.
    is_off: bool,
}

impl Reserve {
    /// For the write-ahead log of a database, which is empty now.
    pub(crate) fn new(log: PathBuf) -> Self {
        Self { log, end: 0, is_off: false }
    }

    /// Makes room if half of what there was is used. Up to `max`, beyond which the log is not meant to grow.
    pub(crate) fn keep_ahead(&mut self, used: u64, max: u64) {
        if self.is_off || used <= self.end / 2 || self.end >= max {
            return;
        }
        let to = (self.end * 2).max(used + STEP_MIN_BYTES).min(max);
        match fill(&self.log, to) {
            Ok(()) => self.end = to,
            // The store works without it; and if the disk is failing, the next sync says so.
            Err(_) => self.is_off = true,
        }
    }
}

/// Makes the file that long, with zeros. When that fails the file is as long as before.
fn fill(path: &Path, to: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    let from = file.metadata()?.len();
    let filled = write_zeros(&file, from, to).and_then(|()| file.sync_data());
    if filled.is_err() {
        file.set_len(from)?;
    }
    filled
}

fn write_zeros(file: &File, mut at: u64, to: u64) -> io::Result<()> {
    while at < to {
        let length = usize::try_from(to - at).unwrap_or(usize::MAX).min(ZEROS.len());
        file.write_all_at(&ZEROS[..length], at)?;
        at += length as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn room_is_made_ahead_of_what_is_used_and_never_where_something_is() {
        let dir = tempfile::tempdir().expect("made");
        let log = dir.path().join("log");
        fs::write(&log, [7; 100]).expect("written");
        let mut reserve = Reserve::new(log.clone());
        reserve.keep_ahead(100, 8 << 20);
        let bytes = fs::read(&log).expect("read");
        assert_eq!(bytes.len() as u64, 100 + STEP_MIN_BYTES);
        assert!(bytes[..100].iter().all(|byte| *byte == 7) && bytes[100..].iter().all(|byte| *byte == 0));
        reserve.keep_ahead(101, 8 << 20);
        assert_eq!(fs::metadata(&log).expect("there").len(), 100 + STEP_MIN_BYTES, "there is room");
        reserve.keep_ahead(7 << 20, 8 << 20);
        assert_eq!(fs::metadata(&log).expect("there").len(), 8 << 20);
        reserve.keep_ahead(9 << 20, 8 << 20);
        assert_eq!(fs::metadata(&log).expect("there").len(), 8 << 20, "not beyond the bound");
    }

    #[test]
    fn a_log_that_cannot_be_extended_is_left_alone() {
        let dir = tempfile::tempdir().expect("made");
        let mut reserve = Reserve::new(dir.path().join("none"));
        reserve.keep_ahead(1, 8 << 20);
        assert!(reserve.is_off);
        reserve.keep_ahead(5 << 20, 8 << 20);
        assert!(!dir.path().join("none").exists());
    }
}
