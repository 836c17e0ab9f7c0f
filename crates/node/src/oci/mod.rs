//! Containers of images: run by an OCI runtime of this machine (crun, runc or youki), which the keeper starts and watches
//! like any other process.
//!
//! ```text
//!   keeper ─► crun run (process 1 of a pid namespace, with mounts of its own)
//!                ├── rootfs: overlayfs of the layers, and an upper directory of this run
//!                └── the container (pid, mount, uts and ipc namespaces by config.json)
//! ```
//!
//! The outer pid namespace is there so that nothing can be left behind: when the runtime's process is killed, or dies with
//! the keeper, the kernel kills all that it started. The mount namespace goes with it, and with that the mounts. The
//! network is the machine's. Where the agent is not root all of it is in a user namespace (`rootless`), and where the kernel
//! refuses overlayfs, each container has a copy of its image (`copy`). youki does not stay with its container: a process of
//! ours takes its place (`runtimes::stand_in`).

pub mod bundle;
pub mod copy;
pub mod devices;
pub(crate) mod prepare;
pub mod rootless;
pub mod seccomp;
pub mod spec;
pub mod user;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::process::Signal;

use crate::runtimes::Left;

/// Which program; their command lines differ a little.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// <https://github.com/containers/crun>
    Crun,
    /// <https://github.com/opencontainers/runc>
    Runc,
    /// <https://github.com/youki-dev/youki>
    Youki,
}

/// A runtime of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Runtime {
    /// Which.
    pub kind: Kind,
    /// The program.
    pub program: PathBuf,
}

impl Runtime {
    /// The first that is found in the directories of a `PATH`: crun, for it is the quickest one, then runc, then youki.
    pub fn find(path: &std::ffi::OsStr) -> Option<Self> {
        [Kind::Crun, Kind::Runc, Kind::Youki].into_iter().find_map(|kind| Self::find_kind(path, kind))
    }

    /// The first of a kind.
    pub fn find_kind(path: &std::ffi::OsStr, kind: Kind) -> Option<Self> {
        let name = match kind {
            Kind::Crun => "crun",
            Kind::Runc => "runc",
            Kind::Youki => "youki",
        };
        let mut places = std::env::split_paths(path).map(|directory| directory.join(name));
        let program = places.find(|program| is_program(program))?;
        Some(Self { kind, program })
    }

    fn command(&self, state: &Path) -> Vec<String> {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut argv = vec![text(&self.program), "--root".into(), text(state)];
        // The keeper has put it in its group already.
        match self.kind {
            Kind::Crun => argv.push("--cgroup-manager=disabled".into()),
            // It goes on without groups of its own where it may not make any, which `Root::read_only` sees to.
            Kind::Runc => argv.extend(["--rootless".into(), "true".into()]),
            // It sees none: `Root::groups`.
            Kind::Youki => {}
        }
        argv
    }

    /// The command line that runs a bundle to its end, or leaves it behind. `errors` gets what the runtime itself has to say,
    /// `started` its process id when the container runs.
    pub fn run(&self, paths: &bundle::Paths) -> (Vec<String>, Option<Left>) {
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let mut argv = self.command(&paths.state);
        argv.extend(["--log".into(), text(&paths.errors), "--log-format".into(), "json".into()]);
        let mut begin = argv.clone();
        begin.extend(["start".into(), paths.id.clone()]);
        let number = paths.bundle.join("number");
        let (verb, told_by) = match self.kind {
            Kind::Crun => ("run", Some(&paths.started)),
            // By a hook.
            Kind::Runc => ("run", None),
            Kind::Youki => ("create", Some(&number)),
        };
        argv.extend([verb.into(), "--bundle".into(), text(&paths.bundle)]);
        argv.extend(told_by.into_iter().flat_map(|file| ["--pid-file".into(), text(file)]));
        argv.push(paths.id.clone());
        let left = (self.kind == Kind::Youki).then_some(Left { number, begin, sockets: None });
        (argv, left)
    }

    /// How processes join a container.
    pub fn exec(&self, paths: &bundle::Paths) -> Exec {
        let mut prefix = self.command(&paths.state);
        prefix.push("exec".into());
        Exec {
            kind: self.kind,
            prefix,
            id: paths.id.clone(),
            bundle: paths.bundle.clone(),
            sockets: paths.state.join(&paths.id),
            refused: None,
            direct: None,
        }
    }
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// The capabilities that a container can be given: what root's programs get on this machine, which in a container or on an
/// older kernel is not everything that has a name. Root of a user namespace has all that the kernel knows.
fn capabilities(is_rootless: bool) -> u64 {
    use rustix::thread::{CapabilitySet, capability_is_in_bounding_set};
    let is_there = |number: &u32| {
        let capability = CapabilitySet::from_bits_retain(1 << number);
        capability_is_in_bounding_set(capability).is_ok_and(|is_held| is_held || is_rootless)
    };
    (0..u64::BITS).filter(is_there).map(|number| 1 << number).sum()
}

/// The signal that asks a container to end, in an image's words: `SIGQUIT`, `QUIT` or `3`; SIGTERM for what is none.
pub fn stop_signal(text: &str) -> Signal {
    const NAMES: [(&str, Signal); 12] = [
        ("HUP", Signal::HUP),
        ("INT", Signal::INT),
        ("QUIT", Signal::QUIT),
        ("ABRT", Signal::ABORT),
        ("KILL", Signal::KILL),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("ALRM", Signal::ALARM),
        ("TERM", Signal::TERM),
        ("CONT", Signal::CONT),
        ("PWR", Signal::POWER),
        ("WINCH", Signal::WINCH),
    ];
    let upper = text.trim().to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMES.iter().find(|(known, _)| *known == name).map(|(_, signal)| *signal);
    let numbered = || upper.parse().ok().and_then(Signal::from_named_raw);
    named.or_else(numbered).unwrap_or(Signal::TERM)
}

/// How a process joins a container of this runtime.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exec {
    /// Which runtime.
    pub kind: Kind,
    /// What stands before its command line.
    pub prefix: Vec<String>,
    /// The container.
    pub id: String,
    /// A directory for what is noted down meanwhile.
    pub bundle: PathBuf,
    /// Where youki leaves sockets.
    pub sockets: PathBuf,
    /// Why none can.
    pub refused: Option<&'static str>,
    /// It does so by itself, for the runtime can't: with this environment and working directory.
    pub direct: Option<(Vec<(String, String)>, PathBuf)>,
}

impl Exec {
    /// The command line that runs `argv` in the container. With crun it has the streams of the runtime, a terminal too: one
    /// that crun makes itself shows what it has to say about it between the lines. runc passes on what goes through pipes, and
    /// has to make a terminal in the container where its own is one. youki leaves the process behind: it would take the number
    /// of a signal for an exit code.
    pub fn command(&self, argv: Vec<String>, has_terminal: bool) -> (Vec<String>, Option<Left>) {
        let (flags, left) = match self.kind {
            Kind::Runc if has_terminal => (vec!["--tty".to_owned()], None),
            Kind::Crun | Kind::Runc => (Vec::new(), None),
            Kind::Youki => {
                let number = self.bundle.join(format!("guest-{}", GUESTS.fetch_add(1, Ordering::Relaxed)));
                let flags = ["--detach".into(), "--pid-file".into(), number.to_string_lossy().into_owned()];
                let left = Left { number, begin: Vec::new(), sockets: Some(self.sockets.clone()) };
                (flags.to_vec(), Some(left))
            }
        };
        let own = [self.id.clone()];
        (self.prefix.iter().cloned().chain(flags).chain(own).chain(argv).collect(), left)
    }
}

/// How many processes have joined containers by youki: each writes its number to a file of its own.
static GUESTS: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_quickest_runtime_that_is_there_is_taken() {
        let directory = tempfile::tempdir().expect("a directory");
        let (one, two) = (directory.path().join("one"), directory.path().join("two"));
        let path = std::env::join_paths([&one, &two]).expect("a path");
        let make = |directory: &Path, name: &str, mode: u32| {
            std::fs::create_dir_all(directory).expect("made");
            std::fs::write(directory.join(name), "").expect("written");
            let mode = std::fs::Permissions::from_mode(mode);
            std::fs::set_permissions(directory.join(name), mode).expect("changed");
        };
        let found = || Runtime::find(&path).map(|runtime| (runtime.kind, runtime.program));
        assert_eq!(found(), None);
        make(&one, "crun", 0o644);
        assert_eq!(found(), None, "not a program");
        make(&one, "youki", 0o755);
        assert_eq!(found(), Some((Kind::Youki, one.join("youki"))));
        make(&one, "runc", 0o755);
        assert_eq!(found(), Some((Kind::Runc, one.join("runc"))));
        make(&two, "crun", 0o755);
        assert_eq!(found(), Some((Kind::Crun, two.join("crun"))));
    }

    #[test]
    fn an_image_may_name_the_signal_that_ends_it() {
        for (text, want) in [
            ("", Signal::TERM),
            ("SIGQUIT", Signal::QUIT),
            ("usr1", Signal::USR1),
            ("2", Signal::INT),
            ("999", Signal::TERM),
            ("SIGNOTHING", Signal::TERM),
        ] {
            assert_eq!(stop_signal(text), want, "{text}");
        }
    }

    /// A runtime `x` and its container `i` of the pod directory `/p` and the directory in memory `/m`.
    fn exec(kind: Kind) -> Exec {
        let paths = bundle::Paths::new(Path::new("/p"), Path::new("/m"), "i", 0, false);
        Runtime { kind, program: "x".into() }.exec(&paths)
    }

    #[test]
    fn a_process_joins_by_the_runtimes_own_command() {
        for (kind, has_terminal, want) in [
            (Kind::Crun, false, "x --root /m/i.0/state --cgroup-manager=disabled exec i.0 ls -l"),
            (Kind::Crun, true, "x --root /m/i.0/state --cgroup-manager=disabled exec i.0 ls -l"),
            (Kind::Runc, false, "x --root /m/i.0/state --rootless true exec i.0 ls -l"),
            (Kind::Runc, true, "x --root /m/i.0/state --rootless true exec --tty i.0 ls -l"),
        ] {
            let (argv, left) = exec(kind).command(vec!["ls".into(), "-l".into()], has_terminal);
            assert_eq!((argv.join(" ").as_str(), left), (want, None));
        }
    }

    #[test]
    fn youki_leaves_each_process_with_a_file_of_its_own_for_its_number() {
        let join = || exec(Kind::Youki).command(vec!["ls".into()], true);
        let ((argv, left), (_, other)) = (join(), join());
        let (left, other) = (left.expect("it is left"), other.expect("it is left"));
        assert_ne!(left.number, other.number);
        let number = left.number.display();
        assert_eq!(argv.join(" "), format!("x --root /m/i.0/state exec --detach --pid-file {number} i.0 ls"));
        assert_eq!(left.sockets.as_deref(), Some(Path::new("/m/i.0/state/i.0")));
    }
}
