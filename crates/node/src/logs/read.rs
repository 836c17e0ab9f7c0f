//! Reads a part of a log: the last lines, what is newer than a time, so many bytes, with or without times.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use windlass_streams::LogOptions;

use super::directory::Directory;
use super::segments::{Segment, open_all};
use super::times::Times;

/// A log is read in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

/// A place in a log, from which it is read on.
#[derive(Debug)]
pub struct Reader {
    directory: Arc<Directory>,
    log: PathBuf,
    /// The file that is read.
    segment: Segment,
    /// Those after it.
    later: VecDeque<Segment>,
    position: u64,
    /// How much there was to read at the start.
    bytes: u64,
    times: Option<Times>,
    /// The next byte begins a line.
    is_line_start: bool,
    /// What is left of a line is too old.
    skips_line: bool,
    /// What is printed meanwhile is read too.
    follows: bool,
    /// What may still be sent.
    left: Option<u64>,
}

impl Reader {
    /// Opens a log at the first byte that the options ask for.
    pub fn open(log: &Path, options: &LogOptions) -> io::Result<Self> {
        let directory = Arc::new(Directory::open(log)?);
        let mut segments = open_all(&directory, log)?;
        // upstream: first the last lines are taken, then those of them that are new enough
        let tail = match options.tail_lines {
            Some(lines) => tail(&segments, lines)?,
            None => START,
        };
        let since = match options.since {
            Some(since) => first_since(&directory, log, &segments, nanoseconds(since))?,
            None => START,
        };
        let start = tail.max(since);
        let skips_line = start == since && !begins_line(&segments, start)?;
        let bytes =
            segments[start.segment..].iter().map(|segment| segment.length).sum::<u64>() - start.offset;
        let mut later: VecDeque<Segment> = segments.drain(start.segment..).collect();
        let segment = later.pop_front().ok_or(io::ErrorKind::NotFound)?;
        Ok(Self {
            log: log.to_owned(),
            times: options.timestamps.then(|| segment.times(&directory, log)),
            directory,
            segment,
            later,
            position: start.offset,
            bytes,
            is_line_start: true,
            skips_line,
            follows: options.follow,
            left: options.limit_bytes,
        })
    }

    /// Opens a log at its end.
    pub fn at_end(log: &Path) -> io::Result<Self> {
        Self::open(log, &LogOptions { follow: true, tail_lines: Some(0), ..LogOptions::default() })
    }

    /// How many bytes there were to read when the log was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing more will come, whatever is printed.
    pub fn is_done(&self) -> bool {
        self.left == Some(0) || (self.later.is_empty() && self.position >= self.end())
    }

    /// Where to stop in this file: what is printed meanwhile is for those who follow.
    fn end(&self) -> u64 {
        if self.follows && self.later.is_empty() { u64::MAX } else { self.segment.length }
    }

    /// The next piece; nothing when all that is there was read.
    pub fn read(&mut self) -> io::Result<Option<Bytes>> {
        let mut piece = vec![0; PIECE_BYTES];
        while !self.is_done() {
            let room = self.end().saturating_sub(self.position);
            let room = usize::try_from(room).map_or(PIECE_BYTES, |room| room.min(PIECE_BYTES));
            let count = self.segment.file.read_at(&mut piece[..room], self.position)?;
            if count == 0 {
                match self.go_on()? {
                    true => continue,
                    false => break,
                }
            }
            let start = self.position;
            self.position += count as u64;
            let skipped = self.skip(&piece[..count]);
            if skipped == count {
                continue;
            }
            piece.truncate(count);
            let mut piece = Bytes::from(piece).slice(skipped..);
            if self.times.is_some() {
                piece = self.with_times(&piece, start + skipped as u64)?;
            }
            if let Some(left) = &mut self.left {
                piece.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= piece.len() as u64;
            }
            return Ok(Some(piece));
        }
        Ok(None)
    }

    /// At the end of a file: whether there is more to read, there or in the next one.
    fn go_on(&mut self) -> io::Result<bool> {
        if self.later.is_empty() && self.follows {
            match self.directory.identity(&self.log) {
                Ok(found) if found == self.segment.identity() => return Ok(false),
                Ok(_) => {}
                // It goes with its pod.
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                Err(error) => return Err(error),
            }
            // It was put aside, perhaps after more had been written to it. Nothing more will be.
            if self.segment.file.read_at(&mut [0], self.position)? > 0 {
                return Ok(true);
            }
            let mut all = open_all(&self.directory, &self.log)?;
            if let Some(own) = all.iter().position(|segment| segment.identity() == self.segment.identity()) {
                all.drain(..=own);
            }
            self.later = all.into();
        }
        let Some(next) = self.later.pop_front() else { return Ok(false) };
        self.times = self.times.is_some().then(|| next.times(&self.directory, &self.log));
        (self.segment, self.position) = (next, 0);
        Ok(true)
    }

    /// How much of a piece belongs to a line that is too old.
    fn skip(&mut self, piece: &[u8]) -> usize {
        if !self.skips_line {
            return 0;
        }
        match piece.iter().position(|byte| *byte == b'\n') {
            Some(end) => {
                self.skips_line = false;
                end + 1
            }
            None => piece.len(),
        }
    }

    fn with_times(&mut self, piece: &[u8], mut offset: u64) -> io::Result<Bytes> {
        let Some(times) = &mut self.times else { return Ok(Bytes::copy_from_slice(piece)) };
        let mut out = Vec::with_capacity(piece.len() * 2);
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            if self.is_line_start {
                out.extend_from_slice(text(times.at(offset)?).as_bytes());
                out.push(b' ');
            }
            out.extend_from_slice(line);
            self.is_line_start = line.ends_with(b"\n");
            offset += line.len() as u64;
        }
        Ok(out.into())
    }
}

/// upstream: nine digits of a second, always.
fn text(nanoseconds: i64) -> String {
    let time = Timestamp::from_nanosecond(i128::from(nanoseconds)).unwrap_or(Timestamp::UNIX_EPOCH);
    time.strftime("%Y-%m-%dT%H:%M:%S.%9fZ").to_string()
}

pub(super) fn nanoseconds(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(if time < Timestamp::UNIX_EPOCH {
        i64::MIN
    } else {
        i64::MAX
    })
}

/// A place in the files of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    segment: usize,
    offset: u64,
}

const START: Place = Place { segment: 0, offset: 0 };

fn end(segments: &[Segment]) -> Place {
    let segment = segments.len().saturating_sub(1);
    Place { segment, offset: segments.get(segment).map_or(0, |last| last.length) }
}

/// Where that begins which came at a time or later.
fn first_since(directory: &Arc<Directory>, log: &Path, segments: &[Segment], time: i64) -> io::Result<Place> {
    for (segment, found) in segments.iter().enumerate().filter(|(_, found)| found.length > 0) {
        if let Some(offset) = found.times(directory, log).since(time)? {
            return Ok(Place { segment, offset: offset.min(found.length) });
        }
    }
    Ok(end(segments))
}

fn begins_line(segments: &[Segment], place: Place) -> io::Result<bool> {
    let before = match place {
        START => return Ok(true),
        Place { segment, offset: 0 } => (&segments[segment - 1], segments[segment - 1].length),
        Place { segment, offset } => (&segments[segment], offset),
    };
    match before {
        (_, 0) => Ok(true),
        (segment, offset) => Ok(byte_at(&segment.file, offset - 1)? == b'\n'),
    }
}

/// Where the last so many lines begin. A last line that has no end yet is one.
fn tail(segments: &[Segment], lines: u64) -> io::Result<Place> {
    if lines == 0 {
        return Ok(end(segments));
    }
    let mut piece = vec![0; PIECE_BYTES];
    let (mut found, mut is_last) = (0, true);
    for (number, segment) in segments.iter().enumerate().rev().filter(|(_, segment)| segment.length > 0) {
        // The end of the last line of all begins no other.
        let mut end = segment.length - u64::from(is_last);
        is_last = false;
        while end > 0 {
            let start = end.saturating_sub(PIECE_BYTES as u64);
            let part = &mut piece[..usize::try_from(end - start).unwrap_or(PIECE_BYTES)];
            segment.file.read_exact_at(part, start)?;
            for at in (0..part.len()).rev().filter(|at| part[*at] == b'\n') {
                found += 1;
                if found == lines {
                    return Ok(Place { segment: number, offset: start + at as u64 + 1 });
                }
            }
            end = start;
        }
    }
    Ok(START)
}

fn byte_at(file: &File, position: u64) -> io::Result<u8> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, position)?;
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    use super::super::segments::aside;
    use super::super::times::Writer;
    use super::*;

    /// A log of which each piece came a second after the one before, from second 1 on.
    fn log(pieces: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("0.log");
        let mut times = Writer::new(&path);
        let mut text = String::new();
        for (piece, second) in pieces.iter().zip(1..) {
            let at = second * 1_000_000_000;
            times.mark(text.len() as u64, at, |path| File::create_new(path)).expect("written");
            text.push_str(piece);
        }
        std::fs::write(&path, text).expect("written");
        (directory, path)
    }

    fn read(path: &Path, options: &LogOptions) -> String {
        let mut reader = Reader::open(path, options).expect("opened");
        let mut all = Vec::new();
        while let Some(piece) = reader.read().expect("read") {
            all.extend_from_slice(&piece);
        }
        String::from_utf8(all).expect("UTF-8")
    }

    fn since(second: i64) -> LogOptions {
        LogOptions { since: Timestamp::from_second(second).ok(), ..LogOptions::default() }
    }

    #[test]
    fn the_last_lines_are_found_also_when_the_last_has_no_end() {
        for (text, lines, want) in [
            ("a\nb\nc\n", 2, "b\nc\n"),
            ("a\nb\nc", 2, "b\nc"),
            ("a\nb\nc\n", 3, "a\nb\nc\n"),
            ("a\nb\nc\n", 9, "a\nb\nc\n"),
            ("a\nb\nc\n", 0, ""),
            ("\n\n\n", 2, "\n\n"),
            ("", 5, ""),
        ] {
            let (_directory, path) = log(&[text]);
            let options = LogOptions { tail_lines: Some(lines), ..LogOptions::default() };
            assert_eq!(read(&path, &options), want, "{lines} of {text:?}");
        }
        let long = "x".repeat(PIECE_BYTES) + "\n" + &"y\n".repeat(PIECE_BYTES);
        let (_directory, path) = log(&[&long]);
        let options = LogOptions { tail_lines: Some(PIECE_BYTES as u64 + 1), ..LogOptions::default() };
        assert_eq!(read(&path, &options).len(), long.len());
    }

    #[test]
    fn a_line_is_as_old_as_its_first_byte() {
        let (_directory, path) = log(&["one\ntwo ", "still two\nthree\n", "four\n"]);
        for (second, want) in [
            (0, "one\ntwo still two\nthree\nfour\n"),
            (1, "one\ntwo still two\nthree\nfour\n"),
            (2, "three\nfour\n"),
            (3, "four\n"),
            (4, ""),
        ] {
            assert_eq!(read(&path, &since(second)), want, "since {second}");
        }
        let both = LogOptions { tail_lines: Some(1), ..since(2) };
        assert_eq!(read(&path, &both), "four\n", "the fewer of the last and the new ones");
        let many = LogOptions { tail_lines: Some(3), ..since(3) };
        assert_eq!(read(&path, &many), "four\n", "the fewer of the last and the new ones");
    }

    #[test]
    fn times_stand_before_lines_and_count_as_bytes() {
        let (_directory, path) = log(&["one\ntwo ", "still two\nthree"]);
        let timestamps = LogOptions { timestamps: true, ..LogOptions::default() };
        let want = "1970-01-01T00:00:01.000000000Z one\n1970-01-01T00:00:01.000000000Z two still two\n\
                    1970-01-01T00:00:02.000000000Z three";
        assert_eq!(read(&path, &timestamps), want);
        for limit in [1, 30, 33, 36, 1000] {
            let options = LogOptions { limit_bytes: Some(limit), ..timestamps.clone() };
            let length = want.len().min(usize::try_from(limit).expect("small"));
            assert_eq!(read(&path, &options), want[..length], "{limit}");
        }
        let plain = LogOptions { limit_bytes: Some(5), ..LogOptions::default() };
        assert_eq!(read(&path, &plain), "one\nt");
    }

    #[test]
    fn a_log_is_read_on_as_it_grows() {
        let (_directory, path) = log(&["one\n"]);
        let options = LogOptions { follow: true, tail_lines: Some(0), ..LogOptions::default() };
        let mut reader = Reader::open(&path, &options).expect("opened");
        let mut once = Reader::open(&path, &LogOptions::default()).expect("opened");
        assert_eq!((reader.bytes(), reader.read().expect("read")), (0, None));
        let mut end = Reader::at_end(&path).expect("opened");
        std::fs::write(&path, "one\ntwo\n").expect("written");
        assert_eq!(reader.read().expect("read").as_deref(), Some(b"two\n".as_slice()));
        assert_eq!(end.read().expect("read").as_deref(), Some(b"two\n".as_slice()));
        assert_eq!(reader.read().expect("read"), None);
        assert_eq!(once.read().expect("read").as_deref(), Some(b"one\n".as_slice()), "as it was");
        assert_eq!(once.read().expect("read"), None);
    }

    /// A log in several files, of which the last is written now; each piece came a second after the one before.
    fn put_aside(files: &[&[&str]]) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("0.log");
        let (mut times, mut second) = (Writer::new(&path), 0);
        for (pieces, number) in files.iter().zip(0..) {
            times = if number == 0 { times } else { times.go_on(&path, number) };
            let mut text = String::new();
            for piece in *pieces {
                second += 1;
                let at = second * 1_000_000_000;
                times.mark(text.len() as u64, at, |path| File::create_new(path)).expect("written");
                text.push_str(piece);
            }
            let is_last = number + 1 == files.len() as u64;
            let file = if is_last { path.clone() } else { aside(&path, number) };
            std::fs::write(file, text).expect("written");
        }
        (directory, path)
    }

    #[test]
    fn files_that_were_put_aside_are_read_as_one_log() {
        let (_directory, path) = put_aside(&[&["a\n", "b\n"], &["c\n"], &[], &["d\n", "e"]]);
        assert_eq!(read(&path, &LogOptions::default()), "a\nb\nc\nd\ne");
        for (lines, want) in
            [(0, ""), (1, "e"), (2, "d\ne"), (3, "c\nd\ne"), (4, "b\nc\nd\ne"), (9, "a\nb\nc\nd\ne")]
        {
            let options = LogOptions { tail_lines: Some(lines), ..LogOptions::default() };
            assert_eq!(read(&path, &options), want, "{lines} lines");
        }
        for (second, want) in [(2, "b\nc\nd\ne"), (3, "c\nd\ne"), (4, "d\ne"), (5, "e"), (6, "")] {
            assert_eq!(read(&path, &since(second)), want, "since {second}");
        }
        let stamped = LogOptions { timestamps: true, ..since(3) };
        let want = "1970-01-01T00:00:03.000000000Z c\n1970-01-01T00:00:04.000000000Z d\n\
                    1970-01-01T00:00:05.000000000Z e";
        assert_eq!(read(&path, &stamped), want);
        let few = LogOptions { limit_bytes: Some(5), ..LogOptions::default() };
        assert_eq!(read(&path, &few), "a\nb\nc");
        assert_eq!(
            Reader::open(&path, &LogOptions { tail_lines: Some(3), ..few }).expect("opened").bytes(),
            5
        );
    }

    #[test]
    fn a_line_that_goes_on_in_the_next_file_is_one_line() {
        let (_directory, path) = put_aside(&[&["a\nlong "], &["line\n", "c\n"]]);
        let tail = |lines| LogOptions { tail_lines: Some(lines), ..LogOptions::default() };
        assert_eq!(read(&path, &tail(2)), "long line\nc\n");
        assert_eq!(read(&path, &since(2)), "c\n", "it is as old as its first byte");
        let stamped = LogOptions { timestamps: true, ..tail(2) };
        let want = "1970-01-01T00:00:01.000000000Z long line\n1970-01-01T00:00:03.000000000Z c\n";
        assert_eq!(read(&path, &stamped), want);
    }

    #[test]
    fn who_follows_goes_on_in_the_next_files_and_misses_nothing() {
        let (_directory, path) = log(&["one\n"]);
        let mut reader = Reader::at_end(&path).expect("opened");
        let mut all = || {
            let mut all = Vec::new();
            while let Some(piece) = reader.read().expect("read") {
                all.extend_from_slice(&piece);
            }
            String::from_utf8(all).expect("UTF-8")
        };
        assert_eq!(all(), "");
        let append = |text: &str| {
            let mut file = std::fs::OpenOptions::new().append(true).open(&path).expect("opened");
            std::io::Write::write_all(&mut file, text.as_bytes()).expect("written");
        };
        let put_aside = |number| {
            std::fs::hard_link(&path, aside(&path, number)).expect("linked");
            std::fs::write(path.with_extension("new"), "").expect("written");
            std::fs::rename(path.with_extension("new"), &path).expect("replaced");
        };
        append("two\n");
        put_aside(0);
        append("three\n");
        put_aside(1);
        append("four\n");
        assert_eq!(all(), "two\nthree\nfour\n");
        std::fs::hard_link(&path, aside(&path, 2)).expect("linked");
        assert_eq!(all(), "", "it is still the one that is written");
        std::fs::remove_file(aside(&path, 2)).expect("removed");
        append("five\n");
        put_aside(2);
        append("six\n");
        std::fs::remove_file(aside(&path, 0)).expect("removed");
        std::fs::remove_file(aside(&path, 1)).expect("removed");
        assert_eq!(all(), "five\nsix\n");
    }

    #[test]
    fn a_link_in_place_of_a_directory_shows_nothing_of_what_is_behind_it() {
        let (directory, path) = log(&["secret\n"]);
        let logs = directory.path().join("logs");
        std::fs::create_dir_all(logs.join("p")).expect("made");
        let link = logs.join("p/c");
        std::os::unix::fs::symlink(path.parent().expect("a directory"), link).expect("linked");
        let behind = logs.join("p/c/0.log");
        for options in [since(0), LogOptions { timestamps: true, ..LogOptions::default() }] {
            assert!(Reader::open(&behind, &options).is_err());
        }
        assert!(Reader::at_end(&behind).is_err());
    }

    #[test]
    fn a_pipe_in_place_of_any_file_of_a_log_is_refused_at_once() {
        let stamped = || LogOptions { timestamps: true, ..LogOptions::default() };
        for name in ["0.log", "0.log.0", "0.times", "0.times.1"] {
            let (directory, path) = put_aside(&[&["a\n"], &["b\n"]]);
            let file = directory.path().join(name);
            std::fs::remove_file(&file).expect("removed");
            let fifo = rustix::fs::FileType::Fifo;
            let mode = rustix::fs::Mode::from_raw_mode(0o600);
            rustix::fs::mknodat(rustix::fs::CWD, &file, fifo, mode, 0).expect("made");
            let read = Reader::open(&path, &stamped()).and_then(|mut reader| {
                while reader.read()?.is_some() {}
                Ok(())
            });
            assert_eq!(read.expect_err("a pipe").to_string(), "not a regular file", "{name}");
        }
    }

    #[test]
    fn who_follows_stays_in_the_directory_that_was_opened() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("p/c/0.log");
        std::fs::create_dir_all(directory.path().join("p/c")).expect("made");
        std::fs::write(&path, "mine\n").expect("written");
        let options = LogOptions { follow: true, ..LogOptions::default() };
        let mut reader = Reader::open(&path, &options).expect("opened");
        assert_eq!(reader.read().expect("read").as_deref(), Some(b"mine\n".as_slice()));
        let others = directory.path().join("others");
        std::fs::create_dir(&others).expect("made");
        std::fs::write(others.join("0.log"), "secret\n").expect("written");
        std::fs::rename(directory.path().join("p/c"), directory.path().join("p/old")).expect("moved");
        std::os::unix::fs::symlink(&others, directory.path().join("p/c")).expect("linked");
        assert_eq!(reader.read().expect("read"), None);
    }
}
