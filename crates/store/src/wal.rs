//! Tells a write that was not finished from one that was damaged later, in SQLite's write-ahead log.
//!
//! SQLite reads its log up to the first frame whose checksum is wrong, and takes the rest for a write that the crash
//! cut off. That is right for the last transaction only: the one before it was synced before the last began. So if what
//! follows a wrong frame is of more than one transaction, the frame is damaged, and dropping it would lose acknowledged
//! writes without a word. A transaction ends where a frame says so, and where page numbers fall: SQLite writes the pages
//! of a transaction in order, as long as it does not have to write before the end (see `cache_spill` in `configure`).
//!
//! The layout is that of <https://www.sqlite.org/fileformat2.html#walformat>. Each open store begins with an empty log
//! (see `SqliteLog::open`), so that frames with the salt of the log are all of this one run.

use std::fs::File;
use std::io::{self, BufReader, Read};
use std::path::{Path, PathBuf};

use crate::open::OpenError;

const HEADER: usize = 32;
const FRAME_HEADER: usize = 24;
/// With this magic number the checksums are computed over big-endian words, with the one before it little-endian.
const MAGIC_BIG: u32 = 0x377f_0683;
/// The size of the pages of our databases.
pub(crate) const PAGE: u32 = 4096;
/// What a disk writes as a whole, at least.
const BLOCK: u64 = 512;
const PAGE_MIN: usize = 512;
const PAGE_MAX: usize = 65_536;

/// Where the write-ahead log of the database `file` is.
pub(crate) fn path(file: &Path) -> PathBuf {
    let mut name = file.as_os_str().to_owned();
    name.push("-wal");
    PathBuf::from(name)
}

/// How long a log of so many frames is.
pub(crate) fn bytes(frames: u64) -> u64 {
    HEADER as u64 + frames * (FRAME_HEADER as u64 + u64::from(PAGE))
}

/// Refuses the write-ahead log of the database `file` if it was damaged after it was synced.
pub(crate) fn check(file: &Path) -> Result<(), OpenError> {
    let path = path(file);
    let verdict = match File::open(&path) {
        Ok(wal) => scan(&mut BufReader::with_capacity(1 << 18, wal)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => Err(error),
    };
    match verdict {
        Ok(None) => Ok(()),
        Ok(Some(reason)) => Err(OpenError::Corrupt { file: path, reason }),
        Err(source) => Err(OpenError::Io { operation: "read", path, source }),
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// The running checksum of a log.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Sum {
    is_big: bool,
    value: (u32, u32),
}

impl Sum {
    fn add(&mut self, bytes: &[u8]) {
        let (mut a, mut b) = self.value;
        for pair in bytes.chunks_exact(8) {
            let (first, second) = (word(pair, 0), word(pair, 4));
            let (first, second) =
                if self.is_big { (first, second) } else { (first.swap_bytes(), second.swap_bytes()) };
            a = a.wrapping_add(first).wrapping_add(b);
            b = b.wrapping_add(second).wrapping_add(a);
        }
        self.value = (a, b);
    }
}

/// What is wrong with the log, if anything is.
fn scan(wal: &mut impl Read) -> io::Result<Option<String>> {
    let mut header = [0; HEADER];
    if !read_whole(wal, &mut header)? {
        return Ok(None);
    }
    let mut sum = Sum { is_big: word(&header, 0) == MAGIC_BIG, value: (0, 0) };
    sum.add(&header[..24]);
    let page = word(&header, 8) as usize;
    let is_header_whole = sum.value == (word(&header, 24), word(&header, 28))
        && word(&header, 0) | 1 == MAGIC_BIG
        && (PAGE_MIN..=PAGE_MAX).contains(&page);
    if !is_header_whole {
        // It is synced before the first frame is written. Before that there is nothing, or room that was reserved.
        let (length, is_zero) = rest(wal)?;
        let is_fresh = is_zero && header == [0; HEADER];
        return Ok((length >= FRAME_HEADER && !is_fresh).then(|| "its header is damaged".to_owned()));
    }
    let salt = (word(&header, 16), word(&header, 20));
    let mut frame = vec![0; FRAME_HEADER + page];
    let mut number = 0u64;
    let mut tail: Option<Tail> = None;
    while read_whole(wal, &mut frame)? {
        number += 1;
        let stored = (word(&frame, 16), word(&frame, 20));
        let of_frame = (word(&frame, 8), word(&frame, 12));
        // One half is enough: the other may be what is damaged, and in frames of another run both differ. There is no
        // page 0: that is room that was reserved.
        let is_of_run = (of_frame.0 == salt.0 || of_frame.1 == salt.1) && word(&frame, 0) != 0;
        let mut is_whole = false;
        if tail.is_none() || is_of_run {
            sum.add(&frame[..8]);
            sum.add(&frame[FRAME_HEADER..]);
            is_whole = of_frame == salt && sum.value == stored;
        }
        if !is_whole && tail.is_none() {
            tail = Some(Tail::new(number));
        }
        if let Some(tail) = &mut tail
            && is_of_run
            && (is_whole || !is_header_split(number, frame.len()))
        {
            tail.take(word(&frame, 0), word(&frame, 4) != 0);
        }
        // Whether the next frame is whole can be told from what this one says, also if this one is not.
        sum.value = stored;
    }
    Ok(tail.filter(Tail::is_of_many).map(|tail| {
        let wrong = tail.wrong;
        format!("frame {wrong} is damaged, and later writes follow it")
    }))
}

/// Whether the header of a frame is in two blocks of the disk. After a crash one of them can be of an older frame, so
/// that what it says means nothing if the frame is not whole.
fn is_header_split(number: u64, frame: usize) -> bool {
    let at = HEADER as u64 + (number - 1) * frame as u64;
    at / BLOCK != (at + FRAME_HEADER as u64 - 1) / BLOCK
}

/// What follows the first wrong frame, and that frame.
struct Tail {
    wrong: u64,
    commits: u64,
    last_page: u32,
    has_fallen: bool,
}

impl Tail {
    fn new(wrong: u64) -> Self {
        Self { wrong, commits: 0, last_page: 0, has_fallen: false }
    }

    fn take(&mut self, page: u32, is_commit: bool) {
        self.commits += u64::from(is_commit);
        self.has_fallen |= page <= self.last_page;
        self.last_page = page;
    }

    fn is_of_many(&self) -> bool {
        self.commits >= 2 || self.has_fallen
    }
}

/// How much follows, and whether all of it is zeros.
fn rest(wal: &mut impl Read) -> io::Result<(usize, bool)> {
    let mut buffer = [0; 4096];
    let (mut length, mut is_zero) = (0, true);
    loop {
        let read = wal.read(&mut buffer)?;
        if read == 0 {
            return Ok((length, is_zero));
        }
        length += read;
        is_zero &= buffer[..read].iter().all(|byte| *byte == 0);
    }
}

/// Whether there was enough to fill `buffer`.
fn read_whole(wal: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match wal.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
