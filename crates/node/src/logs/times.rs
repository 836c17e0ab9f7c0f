//! When a log was printed: marks in a file beside it, `<run>.times`, and one for each time that the log was put aside.
//!
//! A mark is 16 bytes, little endian: an offset in the log, and the time (nanoseconds of the Unix clock) at which what
//! begins there came. It holds up to the offset of the next mark. A mark is written before the bytes it is about, so
//! whoever has read bytes finds their mark; of several marks for one offset the last one counts. Times never go back.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::directory::Directory;
use super::segments::with_suffix;

const MARK_BYTES: usize = 16;
/// Marks are read in pieces of this size.
const PIECE_BYTES: usize = 16 << 10;

/// The marks of the file of a log with this number.
pub fn path(log: &Path, number: u64) -> PathBuf {
    let first = log.with_extension("times");
    if number == 0 { first } else { with_suffix(&first, &format!(".{number}")) }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Mark {
    offset: u64,
    time: i64,
}

/// Writes marks. Their file is made with the first one: most containers of a large Job print nothing.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: Option<File>,
    length: u64,
    last: i64,
}

impl Writer {
    /// Of the first file of the log at a path.
    pub fn new(log: &Path) -> Self {
        Self { path: path(log, 0), file: None, length: 0, last: i64::MIN }
    }

    /// Of a later file.
    #[must_use]
    pub fn go_on(&self, log: &Path, number: u64) -> Self {
        Self { path: path(log, number), file: None, length: 0, last: self.last }
    }

    /// The bytes that its marks take.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Notes that what comes to `offset` of the log came at `time`. `make` makes the file for the first mark.
    pub fn mark(
        &mut self,
        offset: u64,
        time: i64,
        make: impl FnOnce(&Path) -> io::Result<File>,
    ) -> io::Result<()> {
        self.last = self.last.max(time);
        let file = match &mut self.file {
            Some(file) => file,
            None => self.file.insert(make(&self.path)?),
        };
        let mut bytes = [0; MARK_BYTES];
        bytes[..8].copy_from_slice(&offset.to_le_bytes());
        bytes[8..].copy_from_slice(&self.last.to_le_bytes());
        if let Err(error) = file.write_all(&bytes) {
            // Half a mark would shift all that follow.
            let _ = file.set_len(self.length);
            return Err(error);
        }
        self.length += MARK_BYTES as u64;
        Ok(())
    }
}

/// Reads marks from the first to the last, and on while they are written.
#[derive(Debug)]
pub struct Times {
    directory: Arc<Directory>,
    path: PathBuf,
    file: Option<File>,
    /// Bytes that were read, and where in them the next mark begins.
    piece: Vec<u8>,
    at: usize,
    /// The mark that holds.
    current: Option<Mark>,
    /// The mark after it, if it is there already.
    next: Option<Mark>,
    /// For logs without marks.
    fallback: i64,
}

impl Times {
    /// Of the file of a log with this number; `fallback` is the time of what has no mark.
    pub fn new(directory: &Arc<Directory>, log: &Path, number: u64, fallback: i64) -> Self {
        let path = path(log, number);
        // Opened now, for it may go with its log.
        let file = directory.read(&path).ok();
        let directory = Arc::clone(directory);
        Self { directory, path, file, piece: Vec::new(), at: 0, current: None, next: None, fallback }
    }

    /// When the byte at `offset` came. Offsets must not go back.
    pub fn at(&mut self, offset: u64) -> io::Result<i64> {
        while let Some(mark) = self.peek()?
            && mark.offset <= offset
        {
            (self.current, self.next) = (Some(mark), None);
        }
        Ok(self.current.map_or(self.fallback, |mark| mark.time))
    }

    /// Where that begins which came at `time` or later. Nothing when it has not come yet.
    pub fn since(&mut self, time: i64) -> io::Result<Option<u64>> {
        while let Some(mark) = self.peek()? {
            if mark.time >= time {
                return Ok(Some(mark.offset));
            }
            (self.current, self.next) = (Some(mark), None);
        }
        Ok((self.current.is_none() && self.fallback >= time).then_some(0))
    }

    fn peek(&mut self) -> io::Result<Option<Mark>> {
        if self.next.is_none() {
            self.next = self.read()?;
        }
        Ok(self.next)
    }

    fn read(&mut self) -> io::Result<Option<Mark>> {
        if self.piece.len() - self.at < MARK_BYTES {
            self.fill()?;
        }
        let Some((mark, _)) = self.piece[self.at..].split_first_chunk::<MARK_BYTES>() else {
            return Ok(None);
        };
        self.at += MARK_BYTES;
        let (offset, time) = mark.split_at(8);
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte));
        Ok(Some(Mark { offset: number(offset), time: number(time).cast_signed() }))
    }

    fn fill(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            self.file = match self.directory.read(&self.path) {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        }
        let Some(file) = &mut self.file else { return Ok(()) };
        self.piece.drain(..self.at);
        self.at = 0;
        file.take(PIECE_BYTES as u64).read_to_end(&mut self.piece)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_by_offset_and_by_time_also_while_they_are_written() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("p/c/0.log");
        let directory = Arc::new(Directory::make(&log).expect("made"));
        let mut times = Times::new(&directory, &log, 0, 7);
        assert_eq!(times.at(0).expect("read"), 7, "no marks yet");
        let mut writer = Writer::new(&log);
        // The second takes the place of the first, the clock goes back at the fourth.
        for (offset, time) in [(0, 10), (0, 20), (5, 30), (9, 25)] {
            writer.mark(offset, time, |path| directory.create(path)).expect("written");
        }
        let seen: Vec<i64> = [0, 4, 5, 8, 9, 100].map(|offset| times.at(offset).expect("read")).into();
        assert_eq!(seen, [20, 20, 30, 30, 30, 30]);
        writer.mark(101, 40, |path| directory.create(path)).expect("written");
        assert_eq!((times.at(100).expect("read"), times.at(101).expect("read")), (30, 40));
        for (time, want) in [(0, Some(0)), (20, Some(0)), (21, Some(5)), (31, Some(101)), (41, None)] {
            assert_eq!(Times::new(&directory, &log, 0, 7).since(time).expect("read"), want, "{time}");
        }
    }

    #[test]
    fn half_a_mark_is_read_when_it_is_whole() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("p/c/0.log");
        let directory = Arc::new(Directory::make(&log).expect("made"));
        let mut whole = Vec::new();
        for (offset, time) in [(0_u64, 1_i64), (3, 2)] {
            whole.extend(offset.to_le_bytes());
            whole.extend(time.to_le_bytes());
        }
        std::fs::write(path(&log, 0), &whole[..20]).expect("written");
        let mut times = Times::new(&directory, &log, 0, 0);
        assert_eq!(times.at(3).expect("read"), 1);
        std::fs::write(path(&log, 0), &whole).expect("written");
        assert_eq!(times.at(3).expect("read"), 2);
    }
}
