//! Copies of OCI runtimes in memory that nobody can change.
//!
//! A container could overwrite the runtime that makes it, through `/proc/<pid>/exe`. So crun and runc copy themselves to such
//! a file whenever they start and run once more from there, unless they find that they are there already: then they start in
//! half the time.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use rustix::fs::{MemfdFlags, SealFlags};

/// The seals by which runtimes know such a file.
const SEALS: SealFlags =
    SealFlags::SEAL.union(SealFlags::SHRINK).union(SealFlags::GROW).union(SealFlags::WRITE);

/// One copy of each program.
#[derive(Default)]
pub(super) struct Sealed(HashMap<String, Copy>);

struct Copy {
    of: Identity,
    /// Nothing where this machine does not run such files.
    file: Option<OwnedFd>,
}

/// What is different when a program was replaced.
#[derive(PartialEq, Eq)]
struct Identity(u64, u64, u64, (i64, i64));

impl Identity {
    fn of(found: &Metadata) -> Self {
        Self(found.dev(), found.ino(), found.size(), (found.mtime(), found.mtime_nsec()))
    }
}

impl Sealed {
    /// Where a process of the keeper finds a copy of a program, if it can have one.
    pub(super) fn of(&mut self, program: &str) -> Option<PathBuf> {
        let mut source = File::open(program).ok()?;
        let identity = Identity::of(&source.metadata().ok()?);
        if self.0.get(program).is_none_or(|copy| copy.of != identity) {
            let copy = Copy { of: identity, file: copy(&mut source).ok() };
            self.0.insert(program.to_owned(), copy);
        }
        let file = self.0.get(program)?.file.as_ref()?;
        Some(format!("/proc/self/fd/{}", file.as_raw_fd()).into())
    }
}

fn copy(source: &mut File) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels before 6.3 do not know that a file is to be run, and let all be.
    let made = rustix::fs::memfd_create("runtime", flags | MemfdFlags::EXEC)
        .or_else(|_| rustix::fs::memfd_create("runtime", flags))?;
    let mut file = File::from(made);
    io::copy(source, &mut file)?;
    rustix::fs::fcntl_add_seals(&file, SEALS)?;
    if file.metadata()?.mode() & 0o111 == 0 {
        return Err(io::ErrorKind::PermissionDenied.into());
    }
    Ok(file.into())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_copy_runs_as_the_program_does_and_can_not_be_changed() {
        let mut sealed = Sealed::default();
        let path = sealed.of("/bin/true").expect("this machine runs such files");
        assert!(Command::new(&path).status().expect("it runs").success());
        assert!(File::options().write(true).open(&path).is_ok_and(|file| file.set_len(1).is_err()));
        assert_eq!(sealed.of("/bin/true"), Some(path), "one for all");
        assert_eq!(sealed.of("/no/such/program"), None);
    }

    #[test]
    fn a_program_that_was_replaced_is_copied_again() {
        let place = tempfile::tempdir().expect("a directory");
        let program = place.path().join("program");
        let path = program.to_str().expect("text");
        let mut sealed = Sealed::default();
        for name in ["true", "false"] {
            std::fs::copy(format!("/bin/{name}"), place.path().join("new")).expect("copied");
            std::fs::rename(place.path().join("new"), &program).expect("replaced");
            let copy = sealed.of(path).expect("a copy");
            assert_eq!(Command::new(copy).status().expect("it runs").success(), name == "true");
        }
    }
}
