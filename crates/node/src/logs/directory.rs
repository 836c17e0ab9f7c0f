//! The directory of a container's logs, opened so that a workload can't lead the agent elsewhere.
//!
//! A workload may have been given the directory of all logs to write to. What it puts there is below that directory: in the
//! place of a pod's directory, of a container's, or of a file. A link in any of these places is refused, and what is made,
//! renamed, removed or read is found from the directory that was opened, whatever has come to its place meanwhile.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::{Errno, retry_on_intr};

/// How a directory is opened: not to be read, but for what is in it.
const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The directory of a log, held open. Of the paths that it is given it takes the last part alone.
#[derive(Debug)]
pub struct Directory(OwnedFd);

impl Directory {
    /// That of the log at a path, `<logs>/<pod>/<container>/<run>.log`: from `<logs>` on no link is followed.
    pub fn open(log: &Path) -> io::Result<Self> {
        let (root, below) = split(log)?;
        let root = open_root(root)?;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match retry_on_intr(|| rustix::fs::openat2(&root, below, DIRECTORY, Mode::empty(), resolve)) {
            // An old kernel, or a sandbox that does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => step(root, below, false),
            opened => Ok(Self(opened?)),
        }
    }

    /// The same, and makes it if it is not there.
    pub fn make(log: &Path) -> io::Result<Self> {
        let (root, below) = split(log)?;
        let opened = match open_root(root) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                std::fs::create_dir_all(root)?;
                open_root(root)
            }
            opened => opened,
        };
        step(opened?, below, true)
    }

    /// Makes a file that did not exist before, to append to it.
    pub fn create(&self, file: &Path) -> io::Result<File> {
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let name = name(file)?;
        let mode = Mode::from_raw_mode(0o640);
        Ok(retry_on_intr(|| rustix::fs::openat(&self.0, name, flags, mode))?.into())
    }

    /// Opens a file to read it.
    pub fn read(&self, file: &Path) -> io::Result<File> {
        open_file(&self.0, Path::new(name(file)?), OFlags::RDONLY)
    }

    /// Removes what is in a file.
    pub fn clear(&self, file: &Path) -> io::Result<()> {
        open_file(&self.0, Path::new(name(file)?), OFlags::WRONLY)?.set_len(0)
    }

    /// Gives a file one more name.
    pub fn link(&self, file: &Path, other: &Path) -> io::Result<()> {
        Ok(rustix::fs::linkat(&self.0, name(file)?, &self.0, name(other)?, AtFlags::empty())?)
    }

    /// Gives a file the name of another, which goes.
    pub fn replace(&self, file: &Path, by: &Path) -> io::Result<()> {
        Ok(rustix::fs::renameat(&self.0, name(by)?, &self.0, name(file)?)?)
    }

    /// Removes a file.
    pub fn remove(&self, file: &Path) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.0, name(file)?, AtFlags::empty())?)
    }

    /// By which numbers the system knows what is at a path: of its device, and of the file.
    pub fn identity(&self, file: &Path) -> io::Result<(u64, u64)> {
        let found = rustix::fs::statat(&self.0, name(file)?, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok((found.st_dev, found.st_ino))
    }

    /// The names of all that is in it, as far as they are text.
    pub fn names(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        // What is held open can't be read.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let readable = retry_on_intr(|| rustix::fs::openat(&self.0, ".", flags, Mode::empty()))?;
        for entry in rustix::fs::Dir::new(readable)? {
            names.extend(entry?.file_name().to_str().ok().map(str::to_owned));
        }
        Ok(names)
    }
}

/// Opens a regular file that is not a link, whatever a workload has put in its place; a pipe is not waited for.
pub(super) fn open_file(from: impl AsFd, path: &Path, access: OFlags) -> io::Result<File> {
    let flags = access | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let opened = retry_on_intr(|| rustix::fs::openat(from.as_fd(), path, flags, Mode::empty()))?;
    let file = File::from(opened);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file")),
    }
}

fn name(file: &Path) -> io::Result<&OsStr> {
    file.file_name().ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// The directory of all logs, which is the agent's own, and the way from there to that of a log: a pod and a container.
fn split(log: &Path) -> io::Result<(&Path, &Path)> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let root = log.ancestors().take(4).last().ok_or_else(invalid)?;
    let below = log.parent().and_then(|directory| directory.strip_prefix(root).ok()).ok_or_else(invalid)?;
    Ok((root, below))
}

fn open_root(root: &Path) -> io::Result<OwnedFd> {
    let root = if root.as_os_str().is_empty() { Path::new(".") } else { root };
    Ok(retry_on_intr(|| rustix::fs::open(root, DIRECTORY, Mode::empty()))?)
}

/// Goes down by one directory at a time, each of which is no link, and is made first if that is asked for.
fn step(root: OwnedFd, below: &Path, makes: bool) -> io::Result<Directory> {
    let mut directory = root;
    for part in below {
        if makes {
            match rustix::fs::mkdirat(&directory, part, Mode::from_raw_mode(0o777)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let flags = DIRECTORY | OFlags::NOFOLLOW;
        directory = retry_on_intr(|| rustix::fs::openat(&directory, part, flags, Mode::empty()))?;
    }
    Ok(Directory(directory))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// The directory of all logs, with a link to a directory of somebody else in the place of `<pod>/<container>`, or of
    /// `<pod>`; then the log that is behind it.
    fn linked(place: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let (logs, others) = (directory.path().join("logs"), directory.path().join("others/c"));
        std::fs::create_dir_all(&others).expect("made");
        std::fs::write(others.join("0.log"), "secret\n").expect("written");
        let link = logs.join(place);
        std::fs::create_dir_all(link.parent().expect("below the logs")).expect("made");
        let target = if place == "p" { directory.path().join("others") } else { others };
        symlink(target, link).expect("linked");
        (directory, logs.join("p/c/0.log"))
    }

    #[test]
    fn a_link_in_place_of_a_directory_is_not_followed() {
        for place in ["p/c", "p"] {
            let (directory, log) = linked(place);
            assert_eq!(std::fs::read_to_string(&log).expect("read"), "secret\n", "by its path it is there");
            assert!(Directory::open(&log).is_err(), "{place}");
            assert!(Directory::make(&log).is_err(), "{place}");
            let (root, below) = split(&log).expect("a path of a log");
            assert!(step(open_root(root).expect("opened"), below, false).is_err(), "{place}, step by step");
            let left: Vec<_> =
                std::fs::read_dir(directory.path().join("others/c")).expect("listed").collect();
            assert_eq!(left.len(), 1, "nothing was made there");
        }
    }

    #[test]
    fn the_directory_of_all_logs_may_be_behind_a_link() {
        let directory = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(directory.path().join("disk")).expect("made");
        symlink("disk", directory.path().join("logs")).expect("linked");
        let log = directory.path().join("logs/p/c/0.log");
        Directory::make(&log).expect("made").create(&log).expect("made");
        Directory::make(&log).expect("there already").read(&log).expect("read");
        assert!(directory.path().join("disk/p/c/0.log").exists());
        let (root, below) = split(&log).expect("a path of a log");
        let stepped = step(open_root(root).expect("opened"), below, false).expect("opened");
        assert_eq!(
            stepped.identity(&log).expect("there"),
            Directory::open(&log).expect("opened").identity(&log).expect("there"),
            "both ways lead to the same"
        );
    }

    #[test]
    fn what_was_opened_stays_the_directory_whatever_comes_to_its_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("logs/p/c/0.log");
        let opened = Directory::make(&log).expect("made");
        opened.create(&log).expect("made");
        std::fs::rename(directory.path().join("logs/p/c"), directory.path().join("logs/p/old"))
            .expect("moved");
        let others = directory.path().join("others");
        std::fs::create_dir(&others).expect("made");
        symlink(&others, directory.path().join("logs/p/c")).expect("linked");
        let (new, aside) = (log.with_extension("new"), log.with_extension("aside"));
        opened.create(&new).expect("made");
        opened.link(&log, &aside).expect("linked");
        opened.replace(&log, &new).expect("replaced");
        opened.remove(&aside).expect("removed");
        assert_eq!(opened.names().expect("listed").iter().filter(|name| !name.starts_with('.')).count(), 1);
        assert_eq!(std::fs::read_dir(&others).expect("listed").count(), 0);
        assert!(directory.path().join("logs/p/old/0.log").exists());
    }

    #[test]
    fn what_is_no_regular_file_is_refused_at_once() {
        let directory = tempfile::tempdir().expect("a directory");
        let log = directory.path().join("p/c/0.log");
        let opened = Directory::make(&log).expect("made");
        let fifo = log.with_extension("fifo");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &fifo,
            rustix::fs::FileType::Fifo,
            Mode::from_raw_mode(0o600),
            0,
        )
        .expect("made");
        assert_eq!(opened.read(&fifo).expect_err("a pipe").to_string(), "not a regular file");
        assert!(opened.clear(&fifo).is_err() && opened.create(&fifo).is_err(), "nobody reads from it");
        symlink("/dev/null", &log).expect("linked");
        assert!(opened.read(&log).is_err() && opened.clear(&log).is_err() && opened.create(&log).is_err());
        let device = open_file(rustix::fs::CWD, Path::new("/dev/zero"), OFlags::RDONLY);
        assert_eq!(device.expect_err("a device").to_string(), "not a regular file");
    }
}
