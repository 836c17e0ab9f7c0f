//! The devices of this machine, for containers that may use them all.

use std::fs::{self, DirEntry};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// What every container has of its own.
const OWN_DIRECTORIES: [&str; 4] = ["fd", "mqueue", "pts", "shm"];
const OWN_DEVICES: [&str; 8] = ["console", "full", "null", "ptmx", "random", "tty", "urandom", "zero"];

/// A device node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Where it is, here and in the container.
    pub path: PathBuf,
    /// A block device, or one of characters.
    pub is_block: bool,
    /// Its numbers.
    pub numbers: (u32, u32),
    /// Who may do what with it.
    pub mode: u32,
    /// Whose it is.
    pub owner: (u32, u32),
}

/// All device nodes below a directory, but for those that every container has of its own.
pub fn below(directory: &Path) -> io::Result<Vec<Device>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let (kind, name) = (entry.file_type()?, entry.file_name());
        let is_own = |names: &[&str]| names.iter().any(|own| name == *own);
        if kind.is_dir() && !is_own(&OWN_DIRECTORIES) {
            found.extend(below(&entry.path())?);
        } else if (kind.is_block_device() || kind.is_char_device()) && !is_own(&OWN_DEVICES) {
            found.extend(device(&entry, kind.is_block_device())?);
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// `None` for one that was taken away meanwhile.
fn device(entry: &DirEntry, is_block: bool) -> io::Result<Option<Device>> {
    let about = match entry.metadata() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        about => about?,
    };
    Ok(Some(Device {
        path: entry.path(),
        is_block,
        numbers: (rustix::fs::major(about.rdev()), rustix::fs::minor(about.rdev())),
        mode: about.mode() & 0o777,
        owner: (about.uid(), about.gid()),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_devices_of_this_machine_are_found_but_for_those_of_every_container() {
        let found = below(Path::new("/dev")).expect("read");
        let names: Vec<&str> = found.iter().filter_map(|device| device.path.to_str()).collect();
        assert!(names.is_sorted() && !names.iter().any(|name| name.starts_with("/dev/pts/")), "{names:?}");
        assert!(!names.contains(&"/dev/null") && !names.is_empty(), "{names:?}");
        for device in found {
            let about = fs::metadata(&device.path).expect("there");
            assert_eq!(about.file_type().is_block_device(), device.is_block, "{device:?}");
            assert_eq!(rustix::fs::makedev(device.numbers.0, device.numbers.1), about.rdev(), "{device:?}");
        }
        assert!(below(Path::new("/proc/self/fdinfo")).expect("read").is_empty(), "no devices");
    }
}
