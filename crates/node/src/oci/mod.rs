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

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;

use crate::input;
use crate::runtimes::Left;

/// How long a runtime may take before it has read what it is to run in a container.
const READ_WITHIN: Duration = Duration::from_secs(60);

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
    /// The command line that runs `argv` in the container, as its own process runs: crun and youki would take root instead of
    /// the container's user, and `/` instead of its working directory. With crun it has the streams of the runtime, a terminal
    /// too: one that crun makes itself shows what it has to say about it between the lines. runc passes on what goes through
    /// pipes, and has to make a terminal in the container where its own is one. youki leaves the process behind: it would take
    /// the number of a signal for an exit code.
    pub fn command(&self, argv: &[String], has_terminal: bool) -> io::Result<(Vec<String>, Option<Left>)> {
        let guest = GUESTS.fetch_add(1, Ordering::Relaxed);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let process = self.write_process(guest, argv, has_terminal)?;
        let (flags, left) = match self.kind {
            Kind::Crun | Kind::Runc => (Vec::new(), None),
            Kind::Youki => {
                let number = self.bundle.join(format!("guest-{guest}"));
                let flags = vec!["--detach".to_owned(), "--pid-file".to_owned(), text(&number)];
                (flags, Some(Left { number, begin: Vec::new(), sockets: Some(self.sockets.clone()) }))
            }
        };
        let own = ["--process".to_owned(), text(&process), self.id.clone()];
        Ok((self.prefix.iter().cloned().chain(flags).chain(own).collect(), left))
    }

    /// Writes to a file what is to run: the container's own process but for its command line, and with a name for the
    /// terminal. Not said on a command line, which everybody on the machine can read, and which takes away the container's
    /// environment (crun before 1.28).
    fn write_process(&self, guest: u64, argv: &[String], has_terminal: bool) -> io::Result<PathBuf> {
        let config = self.bundle.join("config.json");
        let named =
            |error: io::Error| io::Error::new(error.kind(), format!("read {}: {error}", config.display()));
        let read = fs::read(&config).and_then(|bytes| Ok(serde_json::from_slice::<Value>(&bytes)?));
        let mut process = read.map_err(named)?["process"].take();
        process["args"] = argv.into();
        process["terminal"] = (has_terminal && self.kind == Kind::Runc).into();
        if let Some(env) = process["env"].as_array_mut().filter(|_| has_terminal) {
            input::name_terminal_in(env);
        }
        let directory = self.bundle.join("guests");
        let named = |error: io::Error| {
            io::Error::new(error.kind(), format!("write to {}: {error}", directory.display()))
        };
        let write = || {
            match fs::create_dir(&directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            remove_older(&directory, READ_WITHIN)?;
            let file = directory.join(format!("{guest}.json"));
            fs::write(&file, serde_json::to_vec(&process)?)?;
            Ok(file)
        };
        write().map_err(named)
    }
}

/// Removes files that were written longer ago.
fn remove_older(directory: &Path, than: Duration) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        // Gone already, by another process that joins, or of a clock that was set back: left for the next one.
        let age =
            entry.metadata().and_then(|found| found.modified()).ok().and_then(|time| time.elapsed().ok());
        if age.is_some_and(|age| age > than) {
            let _ = fs::remove_file(entry.path());
        }
    }
    Ok(())
}

/// How many processes have joined containers: each has files of its own.
static GUESTS: AtomicU64 = AtomicU64::new(0);

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use serde_json::json;

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

    /// A runtime `x` and its container `i`, with its bundle in a directory.
    fn exec(kind: Kind, directory: &Path, env: &Value) -> Exec {
        let paths = bundle::Paths::new(&directory.join("disk"), directory, "i", 0, false);
        let process = json!({
            "terminal": false, "user": {"uid": 5, "gid": 6, "additionalGids": [7]}, "args": ["own"], "env": env,
            "cwd": "/w", "noNewPrivileges": true,
        });
        paths.make(&json!({"process": process}), &Default::default()).expect("made");
        Runtime { kind, program: "x".into() }.exec(&paths)
    }

    /// What a process that joins is, by the file that a command line ends with.
    fn described(argv: &[String]) -> Value {
        let [.., flag, file, id] = argv else { panic!("too short: {argv:?}") };
        assert_eq!((flag.as_str(), id.as_str()), ("--process", "i.0"));
        serde_json::from_slice(&fs::read(file).expect("written")).expect("a process")
    }

    #[test]
    fn a_process_joins_by_the_runtimes_own_command() {
        let words = ["ls".to_owned(), "-l".to_owned()];
        for (kind, more) in [(Kind::Crun, "--cgroup-manager=disabled"), (Kind::Runc, "--rootless true")] {
            let directory = tempfile::tempdir().expect("a directory");
            let exec = exec(kind, directory.path(), &json!([]));
            let (argv, left) = exec.command(&words, false).expect("written");
            let state = directory.path().join("i.0/state");
            let want = format!("x --root {} {more} exec --process ", state.display());
            assert!(argv.join(" ").starts_with(&want) && left.is_none(), "{argv:?}");
        }
    }

    #[test]
    fn a_process_that_joins_is_like_the_containers_own() {
        for (kind, has_terminal, env, want_terminal, want_env) in [
            (Kind::Crun, false, json!(["A=1"]), false, json!(["A=1"])),
            (Kind::Crun, true, json!(["A=1"]), false, json!(["A=1", "TERM=xterm"])),
            (Kind::Youki, true, json!(["A=1"]), false, json!(["A=1", "TERM=xterm"])),
            (Kind::Runc, false, json!(["A=1"]), false, json!(["A=1"])),
            (Kind::Runc, true, json!(["TERM=own"]), true, json!(["TERM=own"])),
        ] {
            let directory = tempfile::tempdir().expect("a directory");
            let exec = exec(kind, directory.path(), &env);
            let (argv, _) = exec.command(&["ls".into(), "-l".into()], has_terminal).expect("written");
            let want = json!({
                "terminal": want_terminal, "user": {"uid": 5, "gid": 6, "additionalGids": [7]},
                "args": ["ls", "-l"], "env": want_env, "cwd": "/w", "noNewPrivileges": true,
            });
            assert_eq!(described(&argv), want, "{kind:?}");
        }
    }

    #[test]
    fn what_processes_were_that_joined_is_not_kept() {
        let directory = tempfile::tempdir().expect("a directory");
        let exec = exec(Kind::Crun, directory.path(), &json!([]));
        let join = || exec.command(&["ls".into()], false).expect("written").0;
        let (first, second) = (join(), join());
        let file = |argv: &[String]| PathBuf::from(&argv[argv.len() - 2]);
        let old = std::time::SystemTime::now() - READ_WITHIN * 2;
        fs::File::open(file(&first)).expect("there").set_modified(old).expect("changed");
        let third = join();
        let is_there = [first, second, third].map(|argv| file(&argv).exists());
        assert_eq!(is_there, [false, true, true]);
    }

    #[test]
    fn nobody_joins_a_container_whose_bundle_is_gone() {
        let directory = tempfile::tempdir().expect("a directory");
        let exec = exec(Kind::Crun, directory.path(), &json!([]));
        bundle::remove(&exec.bundle).expect("removed");
        let error = exec.command(&["ls".into()], false).expect_err("it is gone").to_string();
        assert!(error.starts_with(&format!("read {}/config.json: ", exec.bundle.display())), "{error}");
        assert!(!exec.bundle.exists(), "nothing is made again");
    }

    #[test]
    fn youki_leaves_each_process_with_a_file_of_its_own_for_its_number() {
        let directory = tempfile::tempdir().expect("a directory");
        let exec = exec(Kind::Youki, directory.path(), &json!([]));
        let join = || exec.command(&["ls".into()], true).expect("written");
        let ((argv, left), (_, other)) = (join(), join());
        let (left, other) = (left.expect("it is left"), other.expect("it is left"));
        assert_ne!(left.number, other.number);
        let state = directory.path().join("i.0/state");
        let (number, state_text) = (left.number.display(), state.display());
        let want = format!("x --root {state_text} exec --detach --pid-file {number} --process ");
        assert!(argv.join(" ").starts_with(&want), "{argv:?}");
        assert_eq!(left.sockets, Some(state.join("i.0")));
    }
}
