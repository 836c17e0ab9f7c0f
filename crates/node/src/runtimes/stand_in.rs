//! In the place of a runtime that does not stay with its container (youki): makes it, lets it begin, and is from then on to the
//! keeper what `crun run` is. It passes signals on, collects orphans, and ends as the container does.
//!
//! ```text
//!   keeper ─► stand-in ─► youki create ─► the container, adopted by the stand-in when youki has ended
//!                     └─► youki start
//! ```
//!
//! `youki run` (0.7.0) waits for ever for a container that ends before it begins to wait, and takes the number of a signal for an
//! exit code.
//!
//! It is a fork of the keeper that never becomes another program: it costs a container a few pages.

use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use rustix::process::{Pid, Signal, WaitOptions};

use super::keeper::exit_of;
use super::protocol::Left;

/// The exit code of one that could not do it: the shell's for a command that can't be run.
const FAILED: i32 = 126;

/// How old a socket is by which youki has let a process begin, when it is removed: youki leaves them.
const SOCKET_AGE: Duration = Duration::from_secs(600);
/// How the names of those begin.
const SOCKET: &str = "tenant-notify-";

/// What to start, and what is left of it.
pub(super) struct StandIn {
    /// The program and arguments that make the process, and then end.
    pub(super) argv: Vec<String>,
    /// Where that program is, if not where the first argument says: a descriptor of the keeper.
    pub(super) program: Option<PathBuf>,
    pub(super) env: Vec<(String, String)>,
    pub(super) left: Left,
    /// A pipe to which the number of the process is written when it runs.
    pub(super) told_by: Option<PathBuf>,
}

impl StandIn {
    /// Is one, in a process that was forked for it and has one thread, to the end of that.
    pub(super) fn run(&self) -> ! {
        let code = self.follow().unwrap_or_else(|error| {
            eprintln!("windlass: {}: {error}", self.argv.first().map_or("", String::as_str));
            FAILED
        });
        // SAFETY: nothing of the keeper, of which this is a copy, is to be done at the end.
        unsafe { libc::_exit(code) }
    }

    fn follow(&self) -> io::Result<i32> {
        // From now on they are kept until somebody asks for them: none is lost before there is anybody to pass it on to.
        let signals = Signals::block()?;
        self.close_others()?;
        rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
        let made = self.command(&self.argv, &signals).status()?;
        if !made.success() {
            return Ok(made.code().unwrap_or(FAILED));
        }
        let number = std::fs::read_to_string(&self.left.number)?;
        std::fs::remove_file(&self.left.number)?;
        let process = number.trim().parse().ok().and_then(Pid::from_raw);
        let process =
            process.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no number of a process"))?;
        if !self.left.begin.is_empty() {
            let mut begin = self.command(&self.left.begin, &signals);
            // What it has to say is in its log; these are the container's.
            let begun = begin.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status()?;
            if !begun.success() {
                let _ = rustix::process::kill_process(process, Signal::KILL);
                return Ok(FAILED);
            }
        }
        if let Some(pipe) = &self.told_by {
            std::fs::write(pipe, number)?;
        }
        self.left.sockets.as_deref().into_iter().for_each(remove_sockets);
        signals.pass_on_until_the_end(process)
    }

    fn command(&self, argv: &[String], signals: &Signals) -> Command {
        let name = argv.first().map_or("", String::as_str);
        let mut command = Command::new(self.program.as_deref().unwrap_or(Path::new(name)));
        command.arg0(name).args(argv.iter().skip(1)).env_clear();
        command.envs(self.env.iter().map(|(name, value)| (name, value)));
        let before = signals.before;
        // SAFETY: the closure makes one system call.
        unsafe { command.pre_exec(move || set_mask(&before).map(drop)) };
        command
    }

    /// Closes what is the keeper's, among it the pipe by which that waits for a program to begin here.
    fn close_others(&self) -> io::Result<()> {
        let number = |path: &Path| path.file_name()?.to_str()?.parse::<i32>().ok();
        let kept = self.program.as_deref().and_then(number);
        let open = std::fs::read_dir("/proc/self/fd")?.flatten();
        let open: Vec<i32> = open.filter_map(|entry| number(&entry.path())).collect();
        for other in open.into_iter().filter(|other| *other > 2 && Some(*other) != kept) {
            // SAFETY: whatever it was, this copy of the keeper does not go back to who uses it.
            unsafe { libc::close(other) };
        }
        Ok(())
    }
}

/// Removes those by which processes have begun long ago.
fn remove_sockets(directory: &Path) {
    let is_old = |entry: &std::fs::DirEntry| {
        let age = |found: SystemTime| SystemTime::now().duration_since(found).unwrap_or_default();
        let modified = entry.metadata().and_then(|found| found.modified());
        entry.file_name().as_encoded_bytes().starts_with(SOCKET.as_bytes())
            && modified.is_ok_and(|modified| age(modified) > SOCKET_AGE)
    };
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    for socket in entries.filter(is_old) {
        // Another one may do the same.
        let _ = std::fs::remove_file(socket.path());
    }
}

/// All signals, which come when they are asked for.
struct Signals {
    all: libc::sigset_t,
    /// Which did before: those of this process only, not of what it starts.
    before: libc::sigset_t,
}

/// Says which signals come when they are asked for only, and returns which did before.
fn set_mask(signals: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut before = MaybeUninit::uninit();
    // SAFETY: the first set is read; the second is written, unless it fails.
    let failed = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const *signals, before.as_mut_ptr()) };
    match failed {
        // SAFETY: just written.
        0 => Ok(unsafe { before.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Signals {
    fn block() -> io::Result<Self> {
        let mut all = MaybeUninit::uninit();
        // SAFETY: the call writes the whole set.
        let all = unsafe {
            libc::sigfillset(all.as_mut_ptr());
            all.assume_init()
        };
        Ok(Self { all, before: set_mask(&all)? })
    }

    fn next(&self) -> io::Result<Signal> {
        loop {
            // SAFETY: the set is read, and nothing is written where the second is null.
            let number = unsafe { libc::sigwaitinfo(&raw const self.all, std::ptr::null_mut()) };
            match Signal::from_named_raw(number) {
                Some(signal) => return Ok(signal),
                None if number < 0 => {
                    let error = io::Error::last_os_error();
                    if error.kind() != ErrorKind::Interrupted {
                        return Err(error);
                    }
                }
                // One without a name: nobody sends those.
                None => {}
            }
        }
    }

    /// The exit code of a child, which gets all signals meanwhile.
    fn pass_on_until_the_end(&self, child: Pid) -> io::Result<i32> {
        loop {
            while let Some((ended, status)) = rustix::process::wait(WaitOptions::NOHANG)? {
                if let Some(exit) = exit_of(status).filter(|_| ended == child) {
                    return Ok(exit.code());
                }
            }
            match self.next()? {
                Signal::CHILD => {}
                // ESRCH can't be: it is collected above only.
                signal => rustix::process::kill_process(child, signal)?,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn sockets_that_processes_have_begun_by_are_removed_when_they_are_old() {
        let directory = tempfile::tempdir().expect("a directory");
        let long_ago = SystemTime::now() - SOCKET_AGE * 2;
        for (name, is_old) in [("tenant-notify-1", true), ("tenant-notify-2", false), ("notify.sock", true)] {
            let file = File::create(directory.path().join(name)).expect("made");
            if is_old {
                file.set_modified(long_ago).expect("changed");
            }
        }
        remove_sockets(directory.path());
        let left =
            std::fs::read_dir(directory.path()).expect("there").flatten().map(|entry| entry.file_name());
        let mut left: Vec<_> = left.collect();
        left.sort();
        assert_eq!(left, ["notify.sock", "tenant-notify-2"]);
    }
}
