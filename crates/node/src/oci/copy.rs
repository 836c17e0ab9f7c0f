//! The files of an image in one directory, for machines whose kernel refuses overlayfs: each container has a copy.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Gid, Mode, Timespec, Timestamps, Uid};

use crate::images::store::remove_tree;
use crate::images::unpack::OPAQUE_XATTRS;

/// Copies layers, the lowest first, over each other. What an upper one hides is removed.
pub fn flatten(layers: &[PathBuf], into: &Path) -> io::Result<()> {
    layers.iter().try_for_each(|layer| copy_directory(layer, into))
}

fn copy_directory(from: &Path, into: &Path) -> io::Result<()> {
    if is_opaque(from) {
        for entry in fs::read_dir(into)? {
            remove(&entry?.path())?;
        }
    }
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (source, target) = (entry.path(), into.join(entry.file_name()));
        let found = fs::symlink_metadata(&source)?;
        let kind = found.file_type();
        if kind.is_char_device() && found.rdev() == 0 {
            remove(&target)?;
            continue;
        }
        if !(kind.is_dir() && fs::symlink_metadata(&target).is_ok_and(|there| there.is_dir())) {
            remove(&target)?;
            make(&source, &target, &found)?;
        }
        if kind.is_dir() {
            copy_directory(&source, &target)?;
        }
        copy_attributes(&target, &found)?;
    }
    Ok(())
}

fn make(source: &Path, target: &Path, found: &fs::Metadata) -> io::Result<()> {
    let kind = found.file_type();
    if kind.is_dir() {
        fs::create_dir(target)
    } else if kind.is_symlink() {
        std::os::unix::fs::symlink(fs::read_link(source)?, target)
    } else if kind.is_file() {
        fs::copy(source, target).map(drop)
    } else {
        let mode = Mode::from_raw_mode(found.mode());
        Ok(rustix::fs::mknodat(CWD, target, FileType::from_raw_mode(found.mode()), mode, found.rdev())?)
    }
}

fn copy_attributes(target: &Path, found: &fs::Metadata) -> io::Result<()> {
    if rustix::process::geteuid().is_root() {
        let (uid, gid) = (Uid::from_raw(found.uid()), Gid::from_raw(found.gid()));
        rustix::fs::chownat(CWD, target, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
    }
    if !found.is_symlink() {
        fs::set_permissions(target, found.permissions())?;
    }
    let time = |tv_sec, tv_nsec| Timespec { tv_sec, tv_nsec };
    let times = Timestamps {
        last_access: time(found.atime(), found.atime_nsec()),
        last_modification: time(found.mtime(), found.mtime_nsec()),
    };
    Ok(rustix::fs::utimensat(CWD, target, &times, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn is_opaque(directory: &Path) -> bool {
    OPAQUE_XATTRS.iter().any(|name| {
        let mut value = [0_u8; 4];
        rustix::fs::lgetxattr(directory, *name, &mut value).is_ok_and(|length| &value[..length] == b"y")
    })
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.is_dir() => remove_tree(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn upper_layers_hide_what_lower_ones_have() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |path: &str| directory.path().join(path);
        let write = |path: &str, text: &str| {
            fs::create_dir_all(at(path).parent().expect("a parent")).expect("made");
            fs::write(at(path), text).expect("written");
        };
        write("low/dir/one", "1");
        write("low/gone", "x");
        write("low/kept", "low");
        write("low/swap/file", "x");
        write("up/dir/two", "2");
        write("up/kept", "up");
        std::os::unix::fs::symlink("kept", at("up/swap")).expect("linked");
        let whiteout = (FileType::CharacterDevice, Mode::empty());
        rustix::fs::mknodat(CWD, at("up/gone"), whiteout.0, whiteout.1, 0).expect("made");
        write("top/dir/three", "3");
        let flags = rustix::fs::XattrFlags::empty();
        rustix::fs::setxattr(at("top/dir"), "user.overlay.opaque", b"y", flags).expect("marked");
        fs::create_dir(at("all")).expect("made");
        flatten(&[at("low"), at("up")], &at("all")).expect("copied");
        let names = |path: &str| {
            let mut names: Vec<_> = fs::read_dir(at(path))
                .expect("there")
                .map(|entry| entry.expect("read").file_name())
                .collect();
            names.sort();
            names
        };
        assert_eq!(names("all"), ["dir", "kept", "swap"]);
        assert_eq!(names("all/dir"), ["one", "two"]);
        assert_eq!(fs::read_to_string(at("all/swap")).expect("a link"), "up");
        flatten(&[at("top")], &at("all")).expect("copied");
        assert_eq!(names("all/dir"), ["three"]);
        assert!(at("low/dir/one").exists(), "layers stay as they are");
    }
}
