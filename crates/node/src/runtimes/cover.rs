//! A view of all files of the machine that can be written to without the machine seeing anything of it.
//!
//! ```text
//!   rootfs         overlayfs: what the machine has below, upper/0 above; becomes the root of the container
//!   ├── home       a mount of the machine: overlayfs too, with upper/1
//!   ├── media      one that overlayfs can't be laid over, or that can't be written to: can't be written to here either
//!   └── proc, sys, dev     the machine's own
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::StatVfsMountFlags;
use rustix::mount::{MountFlags, UnmountFlags};
use serde::{Deserialize, Serialize};

use super::sandbox::{Named, Result, is_kernels, mount_overlay, mount_points, set_access};

/// Where such a view is made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cover {
    /// For what is written, and for the view itself.
    pub directory: PathBuf,
    /// That of the agent: what is mounted in it, for other pods too, is not part of the view.
    pub agent: PathBuf,
}

impl Cover {
    fn root(&self) -> PathBuf {
        self.directory.join("rootfs")
    }

    /// Makes its directories.
    pub(crate) fn make(&self) -> io::Result<()> {
        // Whose files are there, whoever made them: nobody else gets at them.
        for directory in [self.directory.clone(), self.root(), self.at("upper", None), self.at("work", None)]
        {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
        }
        Ok(())
    }

    fn at(&self, kind: &str, number: Option<usize>) -> PathBuf {
        let directory = self.directory.join(kind);
        number.map_or(directory.clone(), |number| directory.join(number.to_string()))
    }

    /// Puts the view in the place of the root of this process, which has mounts of its own. Returns the mount points in
    /// which anything can be made.
    pub(super) fn enter(&self) -> Result<Vec<PathBuf>> {
        let table =
            fs::read_to_string("/proc/self/mountinfo").named(|| "read /proc/self/mountinfo".into())?;
        let root = self.root();
        let mut covered = Vec::new();
        for (number, point) in self.points(&table).into_iter().enumerate() {
            let target = root.join(point.strip_prefix("/").unwrap_or(&point));
            match self.lay_over(&point, &target, number) {
                Ok(()) => covered.push(point),
                Err(error) if point == Path::new("/") => return Err(error),
                // Not there any more, or not to be had: what is below is seen, which is covered too.
                Err(_) if rustix::mount::mount_bind(&point, &target).is_err() => {}
                Err(_) => set_access(&target, true)?,
            }
        }
        for top in ["proc", "sys", "dev"] {
            let (from, to) = (Path::new("/").join(top), root.join(top));
            if from.is_dir() {
                let what = || format!("mount {} in the view", from.display());
                rustix::mount::mount_bind_recursive(&from, &to).named(what)?;
            }
        }
        let what = || format!("make {} the root", root.display());
        rustix::process::chdir(&root).named(what)?;
        rustix::process::pivot_root(".", ".").named(what)?;
        rustix::mount::unmount(".", UnmountFlags::DETACH).named(what)?;
        rustix::process::chdir("/").named(what)?;
        Ok(covered)
    }

    /// The mounts of a machine that are part of the view, those first that others are in.
    fn points(&self, table: &str) -> BTreeSet<PathBuf> {
        mount_points(table).filter(|point| !is_kernels(point) && !point.starts_with(&self.agent)).collect()
    }

    fn lay_over(&self, point: &Path, target: &Path, number: usize) -> Result<()> {
        let what = || format!("lay a view over {}", point.display());
        let (found, mount) = (fs::metadata(point).named(what)?, rustix::fs::statvfs(point).named(what)?);
        if !found.is_dir() || mount.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(io::Error::from(io::ErrorKind::NotADirectory)).named(what);
        }
        let (upper, work) = (self.at("upper", Some(number)), self.at("work", Some(number)));
        fs::create_dir(&upper).and_then(|()| fs::create_dir(&work)).named(what)?;
        // What the top of the view looks like is said by the upper directory.
        std::os::unix::fs::chown(&upper, Some(found.uid()), Some(found.gid())).named(what)?;
        fs::set_permissions(&upper, fs::Permissions::from_mode(found.mode() & 0o7777)).named(what)?;
        let mut flags = MountFlags::empty();
        for (held, flag) in [
            (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
            (StatVfsMountFlags::NODEV, MountFlags::NODEV),
            (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        ] {
            flags.set(flag, mount.f_flag.contains(held));
        }
        mount_overlay(&[point], &upper, &work, target, flags, "").named(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_covered_but_for_those_of_the_kernel_and_of_pods() {
        let table = "\
30 1 0:1 / /home/b rw - ext4 /dev/x rw
31 1 0:1 / / rw - ext4 /dev/x rw
32 1 0:1 / /proc rw - proc proc rw
33 1 0:1 / /sys/fs/cgroup rw - cgroup2 x rw
34 1 0:1 / /dev/shm rw - tmpfs x rw
35 1 0:1 / /data/pods/u/volumes/memory rw - tmpfs x rw
36 1 0:1 / /home rw - ext4 /dev/y rw
37 1 0:1 / / rw - ext4 /dev/x rw
38 1 0:1 / /with\\040space rw - ext4 /dev/z rw
39 1 0:1 / /procession rw - ext4 /dev/z rw";
        let cover = Cover { directory: "/data/pods/u/oci/c.0".into(), agent: "/data".into() };
        let got: Vec<PathBuf> = cover.points(table).into_iter().collect();
        assert_eq!(got, ["/", "/home", "/home/b", "/procession", "/with space"].map(PathBuf::from));
    }
}
