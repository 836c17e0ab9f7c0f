//! From the archive of a layer to a directory, which nothing in the archive can lead out of.
//!
//! Every path is resolved by the kernel below the directory (`openat2` with `RESOLVE_IN_ROOT`): a link in the
//! archive leads to where it would in a container. What an upper layer takes away from lower ones is kept as overlayfs
//! has it: a character device 0/0 for a file, the attribute `overlay.opaque` for all of a directory.

use std::ffi::{OsStr, OsString};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags};
use tar::EntryType;

/// The marks of a file, and of a directory, that hide what is below them.
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Other marks of an old file system, of no meaning here.
const WHITEOUT_META: &[u8] = b".wh..wh.";
/// An extended attribute in an archive.
const XATTR: &str = "SCHILY.xattr.";
/// What says that a directory hides those below it: for root, and for others.
pub(crate) const OPAQUE_XATTRS: [&str; 2] = ["trusted.overlay.opaque", "user.overlay.opaque"];

/// How many links to what is not there may lead to each other.
const LINKS_MAX: u32 = 8;

/// What an archive may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all its files.
    pub bytes: u64,
    /// Entries.
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { bytes: 64 << 30, entries: 4_000_000 }
    }
}

/// Why a layer can't be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The archive can't be read.
    #[error("read the archive: {0}")]
    Read(#[source] io::Error),
    /// A name leads out of the directory, or is none.
    #[error("the archive has the entry {0:?}, which is not below its root")]
    Outside(PathBuf),
    /// An entry could not be made.
    #[error("unpack {path:?}: {error}")]
    Make {
        /// The entry.
        path: PathBuf,
        /// What the kernel said.
        #[source]
        error: io::Error,
    },
    /// It holds more than it may.
    #[error("the archive holds more than {0}")]
    TooLarge(&'static str),
}

/// Unpacks an archive into a directory, which has to be empty. Returns how many bytes its files have.
pub fn unpack(archive: impl Read, into: &Path, limits: Limits) -> Result<u64, Error> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open(into, flags, Mode::empty())
        .map_err(|error| Error::Make { path: into.to_owned(), error: error.into() })?;
    let is_root = rustix::process::geteuid().is_root();
    let mut tree = Tree { root, is_root, last: None, times: Vec::new() };
    let mut archive = tar::Archive::new(archive);
    let (mut bytes, mut entries) = (0_u64, 0_u64);
    for entry in archive.entries().map_err(Error::Read)? {
        let mut entry = entry.map_err(Error::Read)?;
        entries += 1;
        bytes = bytes.saturating_add(entry.size());
        if entries > limits.entries {
            return Err(Error::TooLarge("the limit of entries"));
        }
        if bytes > limits.bytes {
            return Err(Error::TooLarge("the limit of bytes"));
        }
        let path = PathBuf::from(OsString::from_vec(entry.path_bytes().into_owned()));
        let parts = parts(&path)?;
        tree.add(&mut entry, &parts).map_err(|error| Error::Make { path, error })?;
    }
    tree.set_times();
    Ok(bytes)
}

/// The names of a path below the root. A path that goes up is refused, also one that would come down again.
fn parts(path: &Path) -> Result<Vec<OsString>, Error> {
    let mut parts = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name.to_owned()),
            Component::CurDir | Component::RootDir => {}
            Component::ParentDir | Component::Prefix(_) => return Err(Error::Outside(path.to_owned())),
        }
    }
    Ok(parts)
}

struct Tree {
    root: OwnedFd,
    is_root: bool,
    /// The directory of the entry before, which is most often that of the next.
    last: Option<(PathBuf, OwnedFd)>,
    /// The times of directories, which change while they are filled.
    times: Vec<(PathBuf, Timestamps)>,
}

impl Tree {
    fn add(&mut self, entry: &mut tar::Entry<'_, impl Read>, parts: &[OsString]) -> io::Result<()> {
        let kind = entry.header().entry_type();
        if matches!(kind, EntryType::XGlobalHeader) {
            return Ok(());
        }
        let Some((name, above)) = parts.split_last() else {
            // The root itself: what it looks like is ours to say.
            return Ok(());
        };
        let above: PathBuf = above.iter().collect();
        let directory = self.directory(&above)?;
        let name_bytes = name.as_bytes();
        if name_bytes == OPAQUE {
            return make_opaque(&directory);
        }
        if name_bytes.starts_with(WHITEOUT_META) {
            return Ok(());
        }
        if let Some(hidden) = name_bytes.strip_prefix(WHITEOUT) {
            return hide(&directory, OsStr::from_bytes(hidden));
        }
        self.make(entry, kind, &directory, name, &above)
    }

    fn make(
        &mut self,
        entry: &mut tar::Entry<'_, impl Read>,
        kind: EntryType,
        directory: &OwnedFd,
        name: &OsStr,
        above: &Path,
    ) -> io::Result<()> {
        let mode = Mode::from_raw_mode(entry.header().mode()? & 0o7777);
        let times = times(entry.header().mtime().unwrap_or_default());
        if kind == EntryType::Directory {
            if !is_directory(directory, name)? {
                self.remove(directory, name)?;
                rustix::fs::mkdirat(directory, name, Mode::from_raw_mode(0o700))?;
            }
            self.times.push((above.join(name), times));
            return self.finish(entry, directory, name, Some(mode));
        }
        self.remove(directory, name)?;
        match kind {
            EntryType::Symlink => {
                let target = link_target(entry)?;
                rustix::fs::symlinkat(target.as_os_str(), directory, name)?;
                self.finish(entry, directory, name, None)?;
            }
            EntryType::Link => {
                let target = link_target(entry)?;
                let parts = parts(&target).map_err(|error| io::Error::other(error.to_string()))?;
                let Some((from_name, from_above)) = parts.split_last() else {
                    return Err(io::ErrorKind::InvalidInput.into());
                };
                let from = self.directory(&from_above.iter().collect::<PathBuf>())?;
                // It has the attributes of what it is a name of.
                return Ok(rustix::fs::linkat(from, from_name, directory, name, AtFlags::empty())?);
            }
            EntryType::Fifo => {
                rustix::fs::mknodat(directory, name, FileType::Fifo, mode, 0)?;
                self.finish(entry, directory, name, Some(mode))?;
            }
            EntryType::Char | EntryType::Block => {
                // Nobody but root may; containers have their own.
                if !self.is_root {
                    return Ok(());
                }
                let (major, minor) = (
                    entry.header().device_major()?.unwrap_or(0),
                    entry.header().device_minor()?.unwrap_or(0),
                );
                let kind =
                    if kind == EntryType::Char { FileType::CharacterDevice } else { FileType::BlockDevice };
                // 0/0 is the mark of what is hidden: in an archive it is not meant so.
                if (major, minor) == (0, 0) {
                    return Ok(());
                }
                rustix::fs::mknodat(directory, name, kind, mode, rustix::fs::makedev(major, minor))?;
                self.finish(entry, directory, name, Some(mode))?;
            }
            _ => {
                let flags =
                    OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let file = rustix::fs::openat(directory, name, flags, Mode::from_raw_mode(0o600))?;
                let mut file = std::fs::File::from(file);
                io::copy(entry, &mut file)?;
                self.finish(entry, directory, name, Some(mode))?;
            }
        }
        Ok(rustix::fs::utimensat(directory, name, &times, AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Owner, mode and attributes of what was made.
    fn finish(
        &self,
        entry: &mut tar::Entry<'_, impl Read>,
        directory: &OwnedFd,
        name: &OsStr,
        mode: Option<Mode>,
    ) -> io::Result<()> {
        let id = |id: u64| u32::try_from(id).ok().filter(|id| *id != u32::MAX);
        let (uid, gid) = (id(entry.header().uid()?), id(entry.header().gid()?));
        if self.is_root {
            let (Some(uid), Some(gid)) = (uid, gid) else { return Err(io::ErrorKind::InvalidData.into()) };
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            rustix::fs::chownat(directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        let Some(mode) = mode else { return Ok(()) };
        // After the owner, whose change takes bits away. A directory that its owner can't enter could not be filled.
        let needed = if entry.header().entry_type() == EntryType::Directory { 0o700 } else { 0o600 };
        let mode = if self.is_root { mode } else { mode | Mode::from_raw_mode(needed) };
        rustix::fs::chmodat(directory, name, mode, AtFlags::empty())?;
        self.set_attributes(entry, directory, name)
    }

    fn set_attributes(
        &self,
        entry: &mut tar::Entry<'_, impl Read>,
        directory: &OwnedFd,
        name: &OsStr,
    ) -> io::Result<()> {
        let Some(extensions) = entry.pax_extensions()? else { return Ok(()) };
        for extension in extensions.flatten() {
            let Some(key) = extension.key().ok().and_then(|key| key.strip_prefix(XATTR)) else { continue };
            let is_wanted = (key == "security.capability" && self.is_root)
                || (key.starts_with("user.") && !key.starts_with("user.overlay."));
            if is_wanted {
                let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
                let file = rustix::fs::openat(directory, name, flags, Mode::empty())?;
                match rustix::fs::fsetxattr(file, key, extension.value_bytes(), XattrFlags::empty()) {
                    Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => {}
                    Err(error) => return Err(error.into()),
                }
            }
        }
        Ok(())
    }

    /// A directory of the tree, made if it is not there. Never one outside of it.
    fn directory(&mut self, path: &Path) -> io::Result<OwnedFd> {
        if let Some((known, fd)) = &self.last
            && known == path
        {
            return fd.try_clone();
        }
        let fd = make_directory(&self.root, path, LINKS_MAX)?;
        self.last = Some((path.to_owned(), fd.try_clone()?));
        Ok(fd)
    }

    /// Makes room for an entry that comes a second time.
    fn remove(&mut self, directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
        match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            Err(rustix::io::Errno::ISDIR) => remove_all(directory.as_fd(), name)?,
            result => result?,
        }
        // What was known of directories may be of one that is gone.
        self.last = None;
        Ok(())
    }

    fn set_times(&mut self) {
        for (path, times) in self.times.drain(..).rev() {
            // One that was replaced since has its own.
            if let Ok(directory) = open_directory(&self.root, path.parent().unwrap_or(Path::new("")))
                && let Some(name) = path.file_name()
            {
                let _ = rustix::fs::utimensat(&directory, name, &times, AtFlags::SYMLINK_NOFOLLOW);
            }
        }
    }
}

/// Opens a directory below `root`, whatever links lead there: they are resolved as if it were the root of all files.
fn open_directory(root: &OwnedFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    loop {
        match rustix::fs::openat2(root, path, flags, Mode::empty(), resolve) {
            // Something was renamed meanwhile: not by us, but the kernel can't tell.
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
            result => return Ok(result?),
        }
    }
}

/// Opens a directory below `root`, and makes it if it is not there, also behind a link to what is not there.
fn make_directory(root: &OwnedFd, path: &Path, links_left: u32) -> io::Result<OwnedFd> {
    match open_directory(root, path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        result => return result,
    }
    let name = path.file_name().ok_or(io::ErrorKind::NotFound)?;
    let above_path = path.parent().unwrap_or(Path::new(""));
    let above = make_directory(root, above_path, links_left)?;
    match rustix::fs::mkdirat(&above, name, Mode::from_raw_mode(0o755)) {
        Err(rustix::io::Errno::EXIST) => {
            let left = links_left.checked_sub(1).ok_or(rustix::io::Errno::LOOP)?;
            let target = rustix::fs::readlinkat(&above, name, Vec::new())?;
            let target = above_path.join(OsStr::from_bytes(target.to_bytes()));
            make_directory(root, &normal(&target), left)?;
        }
        result => result?,
    }
    open_directory(root, path)
}

/// Without `..`, which leads no further up than to the root.
fn normal(path: &Path) -> PathBuf {
    let mut parts = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir => drop(parts.pop()),
            Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    parts
}

fn link_target(entry: &tar::Entry<'_, impl Read>) -> io::Result<PathBuf> {
    let target = entry.link_name_bytes().ok_or(io::ErrorKind::InvalidData)?;
    Ok(PathBuf::from(OsString::from_vec(target.into_owned())))
}

fn is_directory(directory: &OwnedFd, name: &OsStr) -> io::Result<bool> {
    match rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(FileType::from_raw_mode(found.st_mode) == FileType::Directory),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn remove_all(directory: impl AsFd, name: &OsStr) -> io::Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let inner = rustix::fs::openat(&directory, name, flags, Mode::empty())?;
    let entries: Vec<_> = rustix::fs::Dir::read_from(&inner)?.collect::<Result<_, _>>()?;
    for entry in entries {
        let entry_name = OsStr::from_bytes(entry.file_name().to_bytes());
        if entry_name == "." || entry_name == ".." {
            continue;
        }
        match rustix::fs::unlinkat(&inner, entry_name, AtFlags::empty()) {
            Err(rustix::io::Errno::ISDIR) => remove_all(&inner, entry_name)?,
            result => result?,
        }
    }
    Ok(rustix::fs::unlinkat(directory, name, AtFlags::REMOVEDIR)?)
}

fn times(seconds: u64) -> Timestamps {
    let time = Timespec { tv_sec: i64::try_from(seconds).unwrap_or(0), tv_nsec: 0 };
    Timestamps { last_access: time, last_modification: time }
}

/// Hides a file of the layers below, unless this layer has one of the same name.
fn hide(directory: &OwnedFd, name: &OsStr) -> io::Result<()> {
    if name.is_empty() || name == "." || name == ".." {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    match rustix::fs::mknodat(directory, name, FileType::CharacterDevice, Mode::empty(), 0) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        result => Ok(result?),
    }
}

/// Hides all that the layers below have in a directory.
fn make_opaque(directory: &OwnedFd) -> io::Result<()> {
    // A path descriptor has no attributes: the directory is opened again.
    let directory = rustix::fs::openat(directory, ".", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    let mut last = Ok(());
    let mut is_done = false;
    for name in OPAQUE_XATTRS {
        match rustix::fs::fsetxattr(&directory, name, b"y", XattrFlags::empty()) {
            Ok(()) => is_done = true,
            Err(error) => last = Err(error.into()),
        }
    }
    if is_done { Ok(()) } else { last }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};

    use super::*;

    /// An archive whose names are written as they are: the writer of the library refuses those of an attack.
    struct Archive(tar::Builder<Vec<u8>>);

    impl Archive {
        fn new() -> Self {
            Self(tar::Builder::new(Vec::new()))
        }

        fn add(mut self, kind: EntryType, path: &str, link: &str, content: &str) -> Self {
            let mut header = tar::Header::new_gnu();
            header.as_gnu_mut().expect("just made").name[..path.len()].copy_from_slice(path.as_bytes());
            header.as_gnu_mut().expect("just made").linkname[..link.len()].copy_from_slice(link.as_bytes());
            header.set_entry_type(kind);
            header.set_mode(if kind == EntryType::Directory { 0o750 } else { 0o4755 });
            header.set_uid(rustix::process::geteuid().as_raw().into());
            header.set_gid(rustix::process::getegid().as_raw().into());
            header.set_mtime(1_000_000);
            header.set_size(content.len() as u64);
            header.set_cksum();
            self.0.append(&header, content.as_bytes()).expect("to memory");
            self
        }

        fn file(self, path: &str, content: &str) -> Self {
            self.add(EntryType::Regular, path, "", content)
        }

        fn unpack(self, into: &Path) -> Result<u64, Error> {
            unpack(self.0.into_inner().expect("finished").as_slice(), into, Limits::default())
        }
    }

    fn in_box(archive: Archive) -> (tempfile::TempDir, Result<u64, Error>) {
        let outside = tempfile::tempdir().expect("a directory");
        fs::create_dir(outside.path().join("root")).expect("made");
        fs::create_dir(outside.path().join("victim")).expect("made");
        fs::write(outside.path().join("victim/file"), "old").expect("written");
        let result = archive.unpack(&outside.path().join("root"));
        (outside, result)
    }

    #[test]
    fn files_directories_links_and_their_attributes_are_made() {
        let archive = Archive::new()
            .add(EntryType::Directory, "./bin/", "", "")
            .file("bin/sh", "#!")
            .add(EntryType::Symlink, "bin/ash", "sh", "")
            .add(EntryType::Link, "bin/hard", "bin/sh", "")
            .add(EntryType::Fifo, "pipe", "", "")
            .file("/deep/er/file", "x")
            .file("deep/er/file", "second");
        let (dir, result) = in_box(archive);
        assert_eq!(result.expect("fine"), 9);
        let root = dir.path().join("root");
        let found = fs::metadata(root.join("bin/sh")).expect("there");
        assert_eq!(
            (found.permissions().mode() & 0o7777, found.mtime(), found.nlink()),
            (0o4755, 1_000_000, 2)
        );
        assert_eq!(fs::metadata(root.join("bin")).expect("there").mtime(), 1_000_000);
        assert_eq!(fs::read_link(root.join("bin/ash")).expect("a link"), Path::new("sh"));
        assert!(fs::metadata(root.join("pipe")).expect("there").file_type().is_fifo());
        assert_eq!(fs::read_to_string(root.join("deep/er/file")).expect("there"), "second");
    }

    #[test]
    fn nothing_in_an_archive_leads_out_of_its_directory() {
        for (name, archive) in [
            ("up", Archive::new().file("../victim/file", "new")),
            ("up and down", Archive::new().file("a/../../victim/file", "new")),
            (
                "through a link",
                Archive::new().add(EntryType::Symlink, "out", "../victim", "").file("out/file", "new"),
            ),
            (
                "through two links",
                Archive::new()
                    .add(EntryType::Symlink, "a", "..", "")
                    .add(EntryType::Symlink, "b", "a/victim", "")
                    .file("b/file", "new"),
            ),
            (
                "over a link",
                Archive::new().add(EntryType::Symlink, "file", "../victim/file", "").file("file", "new"),
            ),
            ("a hard link", Archive::new().add(EntryType::Link, "x", "../victim/file", "").file("x", "new")),
            (
                "a hard link through a link",
                Archive::new()
                    .add(EntryType::Symlink, "out", "../victim", "")
                    .add(EntryType::Link, "x", "out/file", "")
                    .file("x", "new"),
            ),
            ("a whiteout", Archive::new().file("../victim/.wh.file", "")),
            (
                "a whiteout through a link",
                Archive::new().add(EntryType::Symlink, "out", "../victim", "").file("out/.wh.file", ""),
            ),
            (
                "a directory over a link",
                Archive::new()
                    .add(EntryType::Symlink, "out", "../victim", "")
                    .add(EntryType::Directory, "out", "", "")
                    .file("out/file", "new"),
            ),
            ("a whiteout of what is above", Archive::new().file("a/.wh...", "")),
        ] {
            let (dir, _) = in_box(archive);
            let victim = dir.path().join("victim");
            assert_eq!(fs::read_to_string(victim.join("file")).expect("there"), "old", "{name}");
            assert_eq!(fs::read_dir(&victim).expect("there").count(), 1, "{name}");
            assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 2, "{name}");
        }
    }

    #[test]
    fn a_path_that_goes_up_is_an_error_that_says_so() {
        let (_dir, result) = in_box(Archive::new().file("a/../../victim/file", "new"));
        let text = result.expect_err("refused").to_string();
        assert_eq!(text, "the archive has the entry \"a/../../victim/file\", which is not below its root");
    }

    #[test]
    fn an_absolute_link_is_one_of_the_layer() {
        let archive = Archive::new().add(EntryType::Symlink, "lib", "/usr/lib", "").file("usr/lib/a", "1");
        let (dir, result) = in_box(archive.file("lib/b", "2"));
        result.expect("fine");
        assert_eq!(fs::read_to_string(dir.path().join("root/usr/lib/b")).expect("there"), "2");
        assert!(!Path::new("/usr/lib/b").exists());
    }

    #[test]
    fn what_a_link_leads_to_is_made_where_it_leads_in_the_layer() {
        let archive = Archive::new()
            .add(EntryType::Symlink, "a", "/y/z", "")
            .add(EntryType::Symlink, "b", "../../../a/w", "")
            .add(EntryType::Symlink, "loop", "loop", "");
        let (dir, result) = in_box(archive.file("b/c", "1"));
        result.expect("fine");
        assert_eq!(fs::read_to_string(dir.path().join("root/y/z/w/c")).expect("there"), "1");
        assert_eq!(fs::read_dir(dir.path()).expect("there").count(), 2);
        let archive = Archive::new().add(EntryType::Symlink, "loop", "loop", "").file("loop/x", "1");
        let (_dir, result) = in_box(archive);
        assert!(result.is_err());
    }

    #[test]
    fn what_is_taken_away_is_marked_for_overlayfs() {
        let archive = Archive::new()
            .file("etc/.wh.gone", "")
            .file("etc/kept", "here")
            .file("etc/.wh.kept", "")
            .file("etc/.wh..wh.plnk", "")
            .file("var/.wh..wh..opq", "");
        let (dir, result) = in_box(archive);
        result.expect("fine");
        let root = dir.path().join("root");
        let gone = fs::symlink_metadata(root.join("etc/gone")).expect("marked");
        assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
        assert_eq!(fs::read_to_string(root.join("etc/kept")).expect("there"), "here");
        assert_eq!(fs::read_dir(root.join("etc")).expect("there").count(), 2);
        let is_marked = OPAQUE_XATTRS.iter().any(|name| {
            let mut value = [0; 4];
            rustix::fs::getxattr(root.join("var"), *name, &mut value)
                .is_ok_and(|length| &value[..length] == b"y")
        });
        assert!(is_marked);
    }

    #[test]
    fn an_archive_that_holds_too_much_is_given_up() {
        let bytes = Archive::new().file("a", "12345").file("b", "12345").0.into_inner().expect("finished");
        for (limits, want) in [
            (Limits { bytes: 9, entries: 9 }, Some("the archive holds more than the limit of bytes")),
            (Limits { bytes: 10, entries: 1 }, Some("the archive holds more than the limit of entries")),
            (Limits { bytes: 10, entries: 2 }, None),
        ] {
            let dir = tempfile::tempdir().expect("a directory");
            let got = unpack(bytes.as_slice(), dir.path(), limits).err().map(|error| error.to_string());
            assert_eq!(got.as_deref(), want);
        }
    }

    #[test]
    fn a_directory_can_be_replaced_by_a_file_and_back() {
        let archive = Archive::new().file("a/b/c", "1").file("a", "2").file("x", "3").file("y/z", "4");
        let (dir, result) = in_box(archive.add(EntryType::Directory, "x", "", "").file("x/y", "5"));
        result.expect("fine");
        let root = dir.path().join("root");
        assert_eq!(fs::read_to_string(root.join("a")).expect("there"), "2");
        assert_eq!(fs::read_to_string(root.join("x/y")).expect("there"), "5");
        symlink("x", root.join("link")).expect("the directory is usable");
    }
}
