//! What a container prints: from a pipe or its terminal into its log, with the times at which it came.
//!
//! Both outputs are one pipe, so that the log has them in the order in which they were written.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::unix::pipe::Receiver;
use tokio::task::AbortHandle;

use super::protocol::{LogLimits, Process};
use crate::logs::directory::Directory;
use crate::logs::segments::{aside, with_suffix};
use crate::logs::times;

/// What is read from a pipe at once: as much as a pipe holds by default.
const PIECE_BYTES: usize = 64 << 10;
/// How many pieces are read from the pipe of a container that has ended. A pipe holds at most 1 MiB; who still writes to
/// it is not of the container any more.
const LAST_PIECES_MAX: usize = (1 << 20) / PIECE_BYTES + 1;

thread_local! {
    /// What was read last: one for all containers of the keeper's one thread.
    static PIECE: RefCell<Vec<u8>> = RefCell::new(vec![0; PIECE_BYTES]);
}

/// Where the output goes.
struct Sink {
    path: PathBuf,
    /// Nothing before there is something to write, if it is made late.
    log: Option<File>,
    /// Where the next file is made; nothing, if that was done. So there are never more than two files open for a log.
    directory: Option<Directory>,
    length: u64,
    times: times::Writer,
    limits: Option<LogLimits>,
    /// How often the log was put aside.
    number: u64,
    /// The next byte begins a line.
    is_line_start: bool,
    is_failing: bool,
}

/// The output of a container.
pub(super) struct Output {
    pipe: Arc<Receiver>,
    sink: Arc<Mutex<Sink>>,
    /// Nothing as long as it is not copied.
    task: Option<AbortHandle>,
}

/// What a read from the pipe came to.
#[derive(PartialEq, Eq)]
enum Taken {
    Some,
    NothingNow,
    End,
}

/// A log that did not exist before, and its directory.
pub(super) struct NewLog {
    file: File,
    directory: Directory,
}

/// Makes a log: a link that a workload has put in its place, or in that of its directory, is not followed.
pub(super) fn new_log(path: &Path) -> io::Result<NewLog> {
    let directory = Directory::open(path)?;
    Ok(NewLog { file: directory.create(path)?, directory })
}

impl Output {
    /// Waits in its pipe.
    pub(super) fn new(pipe: Receiver, log: Option<NewLog>, process: &Process) -> Self {
        let sink = Arc::new(Mutex::new(Sink::new(log, &process.log, process.log_limits)));
        Self { pipe: Arc::new(pipe), sink, task: None }
    }

    /// Copies from now on: what is in the pipe of a runtime before its container runs may be its own complaint.
    pub(super) fn start(&mut self) {
        let copy = copy(Arc::clone(&self.pipe), Arc::clone(&self.sink));
        self.task = Some(tokio::spawn(copy).abort_handle());
    }

    /// Takes what is still in the pipe of a container that has ended.
    pub(super) fn finish(&self) {
        let mut sink = self.sink.lock();
        for _ in 0..LAST_PIECES_MAX {
            // Past the receiver, which only reads when it was told that there is something.
            let taken = sink.take(|piece| Ok(rustix::io::read(&*self.pipe, piece)?));
            if taken != Taken::Some {
                break;
            }
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.task.iter().for_each(AbortHandle::abort);
    }
}

async fn copy(pipe: Arc<Receiver>, sink: Arc<Mutex<Sink>>) {
    while pipe.readable().await.is_ok() {
        let taken = sink.lock().take(|piece| pipe.try_read(piece));
        match taken {
            // One piece at a time: others have their turn.
            Taken::Some => tokio::task::yield_now().await,
            Taken::NothingNow => {}
            Taken::End => return,
        }
    }
}

impl Sink {
    fn new(log: Option<NewLog>, path: &Path, limits: Option<LogLimits>) -> Self {
        let (log, directory) = log.map(|NewLog { file, directory }| (file, directory)).unzip();
        Self {
            path: path.to_owned(),
            log,
            directory,
            length: 0,
            times: times::Writer::new(path),
            limits,
            number: 0,
            is_line_start: true,
            is_failing: false,
        }
    }

    fn take(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> Taken {
        PIECE.with_borrow_mut(|piece| match read(piece) {
            Ok(0) => Taken::End,
            Ok(count) => {
                self.write(&piece[..count]);
                Taken::Some
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Taken::Some,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Taken::NothingNow,
            Err(_) => Taken::End,
        })
    }

    /// What can't be written, as on a full disk, is lost: the container must not stand still for it.
    fn write(&mut self, piece: &[u8]) {
        let cut = self.limits.and_then(|limits| self.cut(piece, limits));
        let written = match (cut, self.limits) {
            (Some(cut), Some(limits)) => {
                let (before, after) = piece.split_at(cut);
                let done = self.append(before).and_then(|()| self.put_aside(limits));
                // In the file that there is, if there could be no new one.
                self.append(after).and(done)
            }
            (None, _) | (_, None) => self.append(piece),
        };
        match &written {
            Err(error) if !self.is_failing => eprintln!("windlass: process keeper: write a log: {error}"),
            _ => {}
        }
        self.is_failing = written.is_err();
    }

    /// Where in a piece to go on in a new file: at the end of a line, unless that is too far.
    fn cut(&self, piece: &[u8], limits: LogLimits) -> Option<usize> {
        // Of a container that prints byte by byte the marks take more than what it prints.
        let length = self.length.max(self.times.length());
        if length < limits.bytes_max {
            return None;
        }
        if self.is_line_start {
            return Some(0);
        }
        let end = piece.iter().position(|byte| *byte == b'\n').map(|end| end + 1);
        end.or((length >= limits.bytes_max.saturating_mul(2)).then_some(0))
    }

    fn append(&mut self, piece: &[u8]) -> io::Result<()> {
        let Some(last) = piece.last() else { return Ok(()) };
        self.is_line_start = *last == b'\n';
        let now = jiff::Timestamp::now().as_nanosecond();
        let log = match &mut self.log {
            Some(log) => log,
            late => {
                // Perhaps with its directory.
                let directory = self.directory.insert(Directory::make(&self.path)?);
                late.insert(directory.create(&self.path)?)
            }
        };
        let marked = self.times.mark(self.length, i64::try_from(now).unwrap_or(i64::MAX), |times| {
            let directory = self.directory.take().map_or_else(|| Directory::open(&self.path), Ok)?;
            directory.create(times)
        });
        let written = marked.and_then(|()| log.write_all(piece));
        // After a failure half of it may be there.
        self.length = match &written {
            Ok(()) => self.length + piece.len() as u64,
            Err(_) => log.metadata().map_or(self.length, |meta| meta.len()),
        };
        written
    }

    /// Goes on in a new file. The log is there at every moment: by it a run is known to have been begun.
    fn put_aside(&mut self, limits: LogLimits) -> io::Result<()> {
        let directory = Directory::open(&self.path)?;
        let new = with_suffix(&self.path, ".new");
        let _ = directory.remove(&new);
        let log = directory.create(&new)?;
        directory.link(&self.path, &aside(&self.path, self.number))?;
        directory.replace(&self.path, &new)?;
        self.number += 1;
        self.times = self.times.go_on(&self.path, self.number);
        (self.log, self.length) = (Some(log), 0);
        if let Some(oldest) = self.number.checked_sub(limits.files_max) {
            // What is gone already is no harm.
            let _ = directory.remove(&aside(&self.path, oldest));
            let _ = directory.remove(&times::path(&self.path, oldest));
        }
        self.directory = Some(directory);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::logs::read::Reader;
    use windlass_streams::LogOptions;

    fn all(path: &Path) -> String {
        let mut reader = Reader::open(path, &LogOptions::default()).expect("opened");
        let mut all = Vec::new();
        while let Some(piece) = reader.read().expect("read") {
            all.extend_from_slice(&piece);
        }
        String::from_utf8(all).expect("UTF-8")
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).expect("listed").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| entry.file_name().to_str().expect("UTF-8").to_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_log_is_put_aside_at_the_end_of_a_line_and_the_oldest_go() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("0.log");
        let limits = LogLimits { bytes_max: 100, files_max: 3 };
        let mut sink = Sink::new(Some(new_log(&path).expect("made")), &path, Some(limits));
        let line = |number: u32| format!("{number:09}\n");
        let text: String = (0..1000).map(line).collect();
        // Pieces that end anywhere.
        text.as_bytes().chunks(37).for_each(|piece| sink.write(piece));
        let kept = all(&path);
        assert!(text.ends_with(&kept), "the last lines, in their order: {kept}");
        assert!(kept.starts_with("000000") && kept.len() >= 2 * 100, "whole lines of three files: {kept}");
        let sizes: u64 = ["0.log", "0.log.87", "0.log.88"]
            .iter()
            .filter_map(|name| Some(std::fs::metadata(directory.path().join(name)).ok()?.len()))
            .sum();
        assert!(sizes <= 3 * (100 + 10 + 37), "{sizes}");
        assert_eq!(
            names(directory.path()).len(),
            6,
            "three files and their marks: {:?}",
            names(directory.path())
        );
    }

    #[test]
    fn a_log_that_is_made_late_is_there_with_the_first_byte() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("pod/container/0.log");
        let mut sink = Sink::new(None, &path, None);
        sink.write(b"");
        assert_eq!(names(directory.path()), [""; 0]);
        sink.write(b"a\n");
        sink.write(b"b\n");
        assert_eq!(all(&path), "a\nb\n");
    }

    #[test]
    fn a_line_without_an_end_is_cut_and_a_name_that_is_taken_loses_nothing() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("0.log");
        let limits = LogLimits { bytes_max: 100, files_max: 2 };
        let mut sink = Sink::new(Some(new_log(&path).expect("made")), &path, Some(limits));
        (0..1000).for_each(|_| sink.write(&[b'x'; 30]));
        assert!((200..2 * 230).contains(&all(&path).len()), "{}", all(&path).len());
        // A workload can't make the keeper write to another file, nor lose what is printed.
        let other = directory.path().join("other");
        std::fs::write(&other, "untouched").expect("written");
        std::os::unix::fs::symlink(&other, aside(&path, sink.number)).expect("linked");
        let before = sink.number;
        (0..100).for_each(|_| sink.write(b"abc\n"));
        assert_eq!((sink.number, sink.is_failing), (before, true));
        assert!(std::fs::read_to_string(&path).expect("read").ends_with(&"abc\n".repeat(100)));
        std::fs::remove_file(aside(&path, sink.number)).expect("removed");
        sink.write(b"last\n");
        assert_eq!((sink.number, sink.is_failing), (before + 1, false));
        assert_eq!(std::fs::read_to_string(&other).expect("read"), "untouched");
    }

    /// A link to another directory takes the place of that of the container, whose files are moved.
    fn link_away(directory: &Path) -> PathBuf {
        let others = directory.join("others");
        std::fs::create_dir(&others).expect("made");
        let container = directory.join("logs/p/c");
        match std::fs::rename(&container, directory.join("moved")) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(directory.join("logs/p")).expect("made");
            }
            Err(error) => panic!("{error}"),
        }
        std::os::unix::fs::symlink(&others, container).expect("linked");
        others
    }

    #[test]
    fn nothing_is_made_behind_a_link_in_place_of_the_directory() {
        let directory = tempfile::tempdir().expect("a directory");
        let others = link_away(directory.path());
        let path = directory.path().join("logs/p/c/0.log");
        assert!(new_log(&path).is_err());
        let mut late = Sink::new(None, &path, None);
        late.write(b"a\n");
        assert!(late.is_failing);
        assert_eq!(names(&others), [""; 0]);
    }

    #[test]
    fn a_log_that_has_grown_is_not_put_aside_behind_a_link() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("logs/p/c/0.log");
        std::fs::create_dir_all(directory.path().join("logs/p/c")).expect("made");
        let limits = LogLimits { bytes_max: 10, files_max: 2 };
        let mut sink = Sink::new(Some(new_log(&path).expect("made")), &path, Some(limits));
        sink.write(b"0123456789\n");
        let others = link_away(directory.path());
        std::fs::write(others.join("0.log"), "not ours").expect("written");
        std::fs::write(others.join("0.log.new"), "not ours").expect("written");
        (0..10).for_each(|_| sink.write(b"more\n"));
        assert!(sink.is_failing && sink.number == 0);
        assert_eq!(names(&others), ["0.log", "0.log.new"]);
        assert_eq!(std::fs::read_to_string(others.join("0.log")).expect("read"), "not ours");
        let kept = std::fs::read_to_string(directory.path().join("moved/0.log")).expect("read");
        assert_eq!(kept, format!("0123456789\n{}", "more\n".repeat(10)), "nothing is lost");
    }

    #[test]
    fn a_pipe_in_place_of_the_file_of_times_does_not_stop_the_keeper() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("logs/p/c/0.log");
        std::fs::create_dir_all(directory.path().join("logs/p/c")).expect("made");
        let mut sink = Sink::new(Some(new_log(&path).expect("made")), &path, None);
        let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::from_raw_mode(0o600));
        let times = times::path(&path, 0);
        rustix::fs::mknodat(rustix::fs::CWD, &times, fifo, mode, 0).expect("made");
        sink.write(b"a\n");
        assert!(sink.is_failing);
        std::fs::remove_file(times).expect("removed");
        sink.write(b"b\n");
        assert!(!sink.is_failing);
        assert_eq!(all(&path), "b\n");
    }
}
