//! What a container prints: from a pipe or its terminal into its log, with the times at which it came.
//!
//! Both outputs are one pipe, so that the log has them in the order in which they were written.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::unix::pipe::Receiver;
use tokio::task::AbortHandle;

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
    log: File,
    length: u64,
    times: times::Writer,
    is_failing: bool,
}

/// The output of a container that runs.
pub(super) struct Output {
    pipe: Arc<Receiver>,
    sink: Arc<Mutex<Sink>>,
    task: AbortHandle,
}

/// What a read from the pipe came to.
#[derive(PartialEq, Eq)]
enum Taken {
    Some,
    NothingNow,
    End,
}

/// A log file that did not exist before: a link put in its place by a workload is not followed.
pub(super) fn new_log(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create_new(true).mode(0o640).open(path)
}

impl Output {
    /// Copies from now on.
    pub(super) fn start(pipe: Receiver, log: File, path: &Path) -> Self {
        let pipe = Arc::new(pipe);
        let times = times::Writer::new(path);
        let sink = Sink { log, length: 0, times, is_failing: false };
        let sink = Arc::new(Mutex::new(sink));
        let task = tokio::spawn(copy(Arc::clone(&pipe), Arc::clone(&sink))).abort_handle();
        Self { pipe, sink, task }
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
        self.task.abort();
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
        let now = jiff::Timestamp::now().as_nanosecond();
        let marked = self.times.mark(self.length, i64::try_from(now).unwrap_or(i64::MAX));
        let written = marked.and_then(|()| self.log.write_all(piece));
        // After a failure half of it may be there.
        self.length = match &written {
            Ok(()) => self.length + piece.len() as u64,
            Err(_) => self.log.metadata().map_or(self.length, |meta| meta.len()),
        };
        match &written {
            Err(error) if !self.is_failing => eprintln!("windlass: process keeper: write a log: {error}"),
            _ => {}
        }
        self.is_failing = written.is_err();
    }
}
