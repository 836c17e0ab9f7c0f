//! Files that only their owner may read.

use std::fs::{self, DirBuilder, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// What everybody else must not have.
const OTHERS: u32 = 0o077;

/// Makes a directory that only its owner may enter. One that is there already is made so.
pub fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)?;
    if fs::metadata(path)?.permissions().mode() & OTHERS != 0 {
        fs::set_permissions(path, Permissions::from_mode(0o700))?;
    }
    Ok(())
}

/// Writes a file with mode 0600, as a whole or not at all: whoever reads it sees the old text or the new.
pub fn write_private(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut beside = path.as_os_str().to_owned();
    beside.push(format!(".{}", std::process::id()));
    let beside = Path::new(&beside);
    let written = write_new(beside, bytes).and_then(|()| fs::rename(beside, path));
    if written.is_err() {
        let _ = fs::remove_file(beside);
    }
    written
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // What a process of the same number left behind when it died.
    let _ = fs::remove_file(path);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

/// Reads a file that only its owner may read, and refuses one that others may; nothing when it is not there.
pub fn read_private(path: &Path) -> io::Result<Option<String>> {
    let text = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mode = fs::metadata(path)?.permissions().mode() & 0o777;
    if mode & OTHERS != 0 {
        let why = format!(
            "mode {mode:04o} lets others at a secret; chmod it to 0600, or remove it to have a new one"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(Some(text))
}
