//! A place in memory for what containers need only while they run: the bundle of each, and what its runtime notes down.
//!
//! Dozens of small files are made and removed with every container; a disk remembers each for a while. What containers write
//! themselves is never here.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// `TMPFS_MAGIC` of linux/magic.h.
const TMPFS: u64 = 0x0102_1994;
/// What has to be free: a bundle takes some ten kilobytes.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// A directory in memory that belongs to this user alone, for those of agents; `None` where there is no such place.
pub fn directory() -> Option<PathBuf> {
    // Root may log out, and what is in root's own directory goes then; the agent stays.
    let of_user = std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty());
    let first = if rustix::process::geteuid().is_root() { Some("/run".into()) } else { of_user };
    first.map(PathBuf::from).into_iter().chain(["/dev/shm".into()]).find_map(|place| below(&place).ok())
}

/// The directory in memory of the agent whose files are in `data_dir`: the same each time, so that an agent that comes after
/// it finds what is there.
pub fn directory_of(data_dir: &Path) -> Option<PathBuf> {
    fs::create_dir_all(data_dir).ok()?;
    let found = fs::metadata(data_dir).ok()?;
    Some(directory()?.join(format!("{:x}-{:x}", found.dev(), found.ino())))
}

fn below(place: &Path) -> io::Result<PathBuf> {
    let mount = rustix::fs::statfs(place)?;
    let free = u64::try_from(mount.f_bsize).unwrap_or_default().saturating_mul(mount.f_bavail);
    if u64::try_from(mount.f_type) != Ok(TMPFS) || free < FREE_BYTES_MIN {
        return Err(io::ErrorKind::StorageFull.into());
    }
    own(place.join(format!("windlass-{}", rustix::process::geteuid().as_raw())))
}

/// A directory that nobody else can look into or has made. Others may write to the place where it is.
fn own(path: PathBuf) -> io::Result<PathBuf> {
    match fs::DirBuilder::new().mode(0o700).create(&path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(&path)?;
    let is_own = found.is_dir() && found.uid() == rustix::process::geteuid().as_raw();
    match is_own && found.mode() & 0o077 == 0 {
        true => Ok(path),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    #[test]
    fn a_directory_that_others_could_have_made_is_not_used() {
        let place = tempfile::tempdir().expect("a directory");
        let at = |name: &str| place.path().join(name);
        assert_eq!(own(at("new")).expect("made"), at("new"));
        assert_eq!(fs::metadata(at("new")).expect("there").mode() & 0o777, 0o700);
        assert_eq!(own(at("new")).expect("found again"), at("new"));
        symlink(at("new"), at("link")).expect("linked");
        fs::write(at("file"), "").expect("written");
        fs::create_dir(at("open")).expect("made");
        fs::set_permissions(at("open"), fs::Permissions::from_mode(0o750)).expect("changed");
        for name in ["link", "file", "open"] {
            let error = own(at(name)).expect_err(name);
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{name}");
        }
    }

    #[test]
    fn only_what_is_in_memory_will_do() {
        assert!(below(Path::new("/proc")).is_err());
        assert!(below(Path::new("/does/not/exist")).is_err());
    }
}
