//! The data directory: private to its owner, and used by one store at a time.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::open::OpenError;

const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;

/// A data directory that nobody else uses as long as this lives.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    _lock: File,
}

impl Directory {
    /// Makes the directory if it is not there, and locks it.
    pub(crate) fn lock(path: &Path) -> Result<Self, OpenError> {
        let failed = |operation| {
            let path = path.to_path_buf();
            move |source| OpenError::Io { operation, path, source }
        };
        DirBuilder::new()
            .recursive(true)
            .mode(PRIVATE_DIR)
            .create(path)
            .map_err(failed("make data directory"))?;
        // A directory that holds other things was somebody's before, and may be meant to be read by others. What we
        // put there is private all the same.
        if fs::read_dir(path).map_err(failed("read data directory"))?.next().is_none() {
            fs::set_permissions(path, Permissions::from_mode(PRIVATE_DIR))
                .map_err(failed("make data directory private"))?;
        }
        let mut lock = private(&path.join("lock")).map_err(failed("open lock of data directory"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut holder = String::new();
                // Only for the message; the lock itself is what the kernel says.
                let _ = lock.read_to_string(&mut holder);
                let holder = if holder.is_empty() { "another process" } else { holder.trim() };
                return Err(OpenError::Locked { dir: path.to_path_buf(), holder: holder.to_owned() });
            }
            Err(TryLockError::Error(source)) => return Err(failed("lock data directory")(source)),
        }
        // A full disk must not keep a store from being read, and the name is only for the message.
        let _ = lock.set_len(0).and_then(|()| writeln!(lock, "process {}", std::process::id()));
        Ok(Self { path: path.to_path_buf(), _lock: lock })
    }

    /// The path of a file of this directory.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// A file of this directory, made private before anything is written to it.
    pub(crate) fn private_file(&self, name: &str) -> Result<File, OpenError> {
        let path = self.file(name);
        private(&path).map_err(|source| OpenError::Io { operation: "open", path, source })
    }

    /// Makes the names in the directory, and its own name, durable.
    pub(crate) fn sync(&self) -> Result<(), OpenError> {
        let parent = self.path.parent().filter(|parent| !parent.as_os_str().is_empty());
        for path in [Some(self.path.as_path()), parent].into_iter().flatten() {
            File::open(path).and_then(|dir| dir.sync_all()).map_err(|source| OpenError::Io {
                operation: "sync directory",
                path: path.to_path_buf(),
                source,
            })?;
        }
        Ok(())
    }
}

fn private(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(PRIVATE_FILE)
        .open(path)?;
    if file.metadata()?.permissions().mode() & 0o777 != PRIVATE_FILE {
        file.set_permissions(Permissions::from_mode(PRIVATE_FILE))?;
    }
    Ok(file)
}
