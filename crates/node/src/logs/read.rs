//! Reads a part of a log: the last lines, what is newer than a time, so many bytes, with or without times.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use bytes::Bytes;
use jiff::Timestamp;
use windlass_streams::LogOptions;

use super::times::Times;

/// A log is read in pieces of this size.
const PIECE_BYTES: usize = 64 << 10;

/// A place in a log, from which it is read on.
#[derive(Debug)]
pub struct Reader {
    file: File,
    position: u64,
    /// How much there was to read at the start.
    bytes: u64,
    times: Option<Times>,
    /// The next byte begins a line.
    is_line_start: bool,
    /// What is left of a line is too old.
    skips_line: bool,
    /// Where to stop: what is printed meanwhile is for those who follow.
    end: u64,
    /// What may still be sent.
    left: Option<u64>,
}

impl Reader {
    /// Opens a log at the first byte that the options ask for.
    pub fn open(path: &Path, options: &LogOptions) -> io::Result<Self> {
        let file = super::open(path)?;
        let meta = file.metadata()?;
        let length = meta.len();
        let modified = meta.modified().ok().and_then(|time| Timestamp::try_from(time).ok());
        let mut times = Times::new(path, modified.map_or(0, nanoseconds));
        // upstream: first the last lines are taken, then those of them that are new enough
        let tail = match options.tail_lines {
            Some(lines) => tail(&file, length, lines)?,
            None => 0,
        };
        let since = match options.since {
            Some(since) => times.since(nanoseconds(since))?.unwrap_or(length),
            None => 0,
        };
        let position = tail.max(since).min(length);
        let skips_line = position > 0 && byte_at(&file, position - 1)? != b'\n';
        Ok(Self {
            file,
            position,
            bytes: length - position,
            times: options.timestamps.then_some(times),
            is_line_start: true,
            skips_line: skips_line && position == since,
            end: if options.follow { u64::MAX } else { length },
            left: options.limit_bytes,
        })
    }

    /// Opens a log at its end.
    pub fn at_end(path: &Path) -> io::Result<Self> {
        Self::open(path, &LogOptions { follow: true, tail_lines: Some(0), ..LogOptions::default() })
    }

    /// How many bytes there were to read when the log was opened.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing more will come, whatever is printed.
    pub fn is_done(&self) -> bool {
        self.left == Some(0) || self.position >= self.end
    }

    /// The next piece; nothing when all that is there was read.
    pub fn read(&mut self) -> io::Result<Option<Bytes>> {
        let mut piece = vec![0; PIECE_BYTES];
        while !self.is_done() {
            let room =
                usize::try_from(self.end - self.position).map_or(PIECE_BYTES, |room| room.min(PIECE_BYTES));
            let count = self.file.read_at(&mut piece[..room], self.position)?;
            if count == 0 {
                break;
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

fn nanoseconds(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(if time < Timestamp::UNIX_EPOCH {
        i64::MIN
    } else {
        i64::MAX
    })
}

/// Where the last so many lines begin. A last line that has no end yet is one.
fn tail(file: &File, length: u64, lines: u64) -> io::Result<u64> {
    if lines == 0 {
        return Ok(length);
    }
    let mut piece = vec![0; PIECE_BYTES];
    let (mut end, mut found) = (length.saturating_sub(1), 0);
    while end > 0 {
        let start = end.saturating_sub(PIECE_BYTES as u64);
        let part = &mut piece[..usize::try_from(end - start).unwrap_or(PIECE_BYTES)];
        file.read_exact_at(part, start)?;
        for at in (0..part.len()).rev().filter(|at| part[*at] == b'\n') {
            found += 1;
            if found == lines {
                return Ok(start + at as u64 + 1);
            }
        }
        end = start;
    }
    Ok(0)
}

fn byte_at(file: &File, position: u64) -> io::Result<u8> {
    let mut byte = [0];
    file.read_exact_at(&mut byte, position)?;
    Ok(byte[0])
}

#[cfg(test)]
mod tests {
    use super::super::times::Writer;
    use super::*;

    /// A log of which each piece came a second after the one before, from second 1 on.
    fn log(pieces: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("0.log");
        let mut times = Writer::new(&path);
        let mut text = String::new();
        for (piece, second) in pieces.iter().zip(1..) {
            times.mark(text.len() as u64, second * 1_000_000_000).expect("written");
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
}
