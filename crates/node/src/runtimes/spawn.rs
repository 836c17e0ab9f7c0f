//! Starts a process without a copy of the keeper: until it runs its program it borrows the keeper's memory, and the keeper
//! stands still for so long.
//!
//! A fork copies what the keeper has written to, page by page, and the new program throws it all away. For a short command
//! that is a third of what the keeper does. What happens in between must not allocate, lock or panic, so everything is made
//! before: only system calls are left.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{CString, NulError, c_char, c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Resource, Rlimit, Signal};

/// What the process has for its calls until it runs its program; they are few and shallow.
const STACK_BYTES: usize = 64 << 10;
/// Where programs are looked for if nobody says, as the C library does.
const PATH_DEFAULT: &str = "/bin:/usr/bin";
/// What runs a script that does not name its interpreter, as the C library does.
const SHELL: &str = "/bin/sh";
/// How long it is known where a program was found. One that somebody puts in a directory before that is found later by so much.
const FOUND_FOR: Duration = Duration::from_secs(1);
/// The exit code of a process that could not run its program; nobody sees it.
const EXIT_NOT_RUN: c_int = 127;

/// What is started: a process in a session of its own that dies with the keeper.
pub(super) struct Start<'a> {
    /// Its program and arguments.
    pub(super) argv: &'a [String],
    /// Its whole environment; of equal names the last counts.
    pub(super) env: &'a [(String, String)],
    /// Where it starts.
    pub(super) cwd: &'a Path,
    /// What it reads and prints to.
    pub(super) streams: [BorrowedFd<'a>; 3],
    /// What it reads is a terminal, and becomes its own.
    pub(super) has_terminal: bool,
    /// How many files it may have open.
    pub(super) files: Option<Rlimit>,
}

/// The same as system calls want it. Nothing in it moves while a process is being started.
struct Ready {
    /// Where the program may be, in the order in which it is looked for.
    programs: Vec<CString>,
    /// Which of them it was a moment ago.
    known: Option<usize>,
    /// Which of them is tried.
    tried: usize,
    /// Ends with null.
    argv: Vec<*const c_char>,
    /// The shell, room for the program, its arguments, null.
    script: Vec<*const c_char>,
    /// Ends with null.
    env: Vec<*const c_char>,
    cwd: CString,
    streams: [c_int; 3],
    has_terminal: bool,
    files: Option<Rlimit>,
    keeper: Pid,
    /// Why the program does not run.
    error: c_int,
    /// What pointers point into.
    _texts: Vec<CString>,
}

impl Ready {
    fn new(start: &Start<'_>, sought: Sought<'_>, known: Option<usize>) -> Result<Self, NulError> {
        let (mut argv, mut texts) = (Vec::new(), Vec::new());
        for argument in start.argv {
            texts.push(CString::new(argument.as_str())?);
        }
        argv.extend(texts.iter().map(|text| text.as_ptr()));
        let shell = CString::new(SHELL)?;
        let mut script = vec![shell.as_ptr(), ptr::null()];
        script.extend(argv.iter().skip(1));
        let variables: BTreeMap<&str, &str> =
            start.env.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut env = Vec::with_capacity(variables.len() + 1);
        for (name, value) in &variables {
            let variable = CString::new(format!("{name}={value}"))?;
            env.push(variable.as_ptr());
            texts.push(variable);
        }
        [&mut argv, &mut script, &mut env].into_iter().for_each(|list| list.push(ptr::null()));
        texts.push(shell);
        Ok(Self {
            programs: sought.programs()?,
            known,
            tried: 0,
            argv,
            script,
            env,
            cwd: CString::new(start.cwd.as_os_str().as_bytes())?,
            streams: start.streams.map(|stream| stream.as_raw_fd()),
            has_terminal: start.has_terminal,
            files: start.files,
            keeper: rustix::process::getpid(),
            error: 0,
            _texts: texts,
        })
    }
}

/// A program, and the directories in which it is looked for.
#[derive(Clone, Copy)]
struct Sought<'a> {
    program: &'a str,
    path: &'a str,
}

impl<'a> Sought<'a> {
    fn of(start: &Start<'a>) -> Self {
        let path = start.env.iter().rev().find(|(name, _)| name == "PATH");
        Self {
            program: start.argv.first().map_or("", String::as_str),
            path: path.map_or(PATH_DEFAULT, |(_, value)| value),
        }
    }

    /// Where it may be: at its path, or under its name in one of the directories.
    fn programs(self) -> Result<Vec<CString>, NulError> {
        let Self { program, path } = self;
        if program.is_empty() || program.contains('/') {
            return Ok(vec![CString::new(program)?]);
        }
        let directories = path.split(':').map(|directory| if directory.is_empty() { "." } else { directory });
        directories.map(|directory| CString::new(format!("{directory}/{program}"))).collect()
    }
}

/// Where the program was that was looked for last: those of a Job are in the same place, after as many where they are not.
#[derive(Debug, Default)]
struct Found {
    program: String,
    path: String,
    place: usize,
    since: Option<Instant>,
}

impl Found {
    /// The place, if it is known well enough.
    fn place(&self, sought: Sought<'_>, now: Instant) -> Option<usize> {
        let is_new = self.since.is_some_and(|since| now.duration_since(since) < FOUND_FOR);
        (is_new && self.program == sought.program && self.path == sought.path).then_some(self.place)
    }

    /// It was found there just now, by looking at all places before.
    fn note(&mut self, sought: Sought<'_>, place: usize, now: Instant) {
        let mut looked_at = sought.path.split(':').take(place + 1);
        // Others are elsewhere for each process.
        let is_same_for_all = looked_at.all(|directory| directory.starts_with('/'));
        self.since = is_same_for_all.then_some(now);
        self.place = place;
        sought.program.clone_into(&mut self.program);
        sought.path.clone_into(&mut self.path);
    }
}

thread_local! {
    static FOUND: RefCell<Found> = RefCell::default();
    /// What a process stands on until it runs its program: one for all, because the keeper stands still for so long.
    static STACK: RefCell<Vec<u128>> = RefCell::new(vec![0; STACK_BYTES / size_of::<u128>()]);
}

/// Starts a process, and returns its pid once it runs its program.
pub(super) fn start(start: &Start<'_>) -> io::Result<i32> {
    let (sought, now) = (Sought::of(start), Instant::now());
    let known = FOUND.with_borrow(|found| found.place(sought, now));
    let mut ready = Ready::new(start, sought, known)?;
    let pid = STACK.with_borrow_mut(|stack| start_on(stack, &mut ready))?;
    // Written by the other process, unseen by the compiler.
    // SAFETY: it is a number of ours.
    let place = unsafe { (&raw const ready.tried).read_volatile() };
    if known != Some(place) {
        FOUND.with_borrow_mut(|found| found.note(sought, place, now));
    }
    Ok(pid)
}

fn start_on(stack: &mut [u128], ready: &mut Ready) -> io::Result<i32> {
    let top = stack.as_mut_ptr_range().end.cast::<c_void>();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
    // No handler of the keeper may run in the process: it would take its memory for its own.
    let mask = SignalMask::block_all()?;
    // SAFETY: the new process runs `child` on a stack of its own and the memory of this thread, the keeper's only one, which
    // stands still until the other has ended or has memory of its own. `child` makes system calls on what stands in
    // `ready`, which lives until then, and writes to nothing else.
    let pid = unsafe { libc::clone(child, top, flags, ptr::from_mut(ready).cast()) };
    let cloned = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(pid) };
    drop(mask);
    let pid = cloned?;
    // SAFETY: as `tried`.
    match unsafe { (&raw const ready.error).read_volatile() } {
        0 => Ok(pid),
        error => {
            let _ = rustix::process::waitpid(Pid::from_raw(pid), rustix::process::WaitOptions::empty());
            Err(io::Error::from_raw_os_error(error))
        }
    }
}

/// All that the new process does before its program: does not return.
extern "C" fn child(ready: *mut c_void) -> c_int {
    // SAFETY: `start` gave it, and waits.
    let ready = unsafe { &mut *ready.cast::<Ready>() };
    let error = prepare(ready).err().map_or_else(|| run(ready), rustix::io::Errno::raw_os_error);
    // SAFETY: as above; `start` reads it when this process has ended.
    unsafe { (&raw mut ready.error).write_volatile(error) };
    // SAFETY: ends this process and runs nothing that the keeper has left to be run at its own end.
    unsafe { libc::_exit(EXIT_NOT_RUN) }
}

fn prepare(ready: &Ready) -> rustix::io::Result<()> {
    rustix::process::setsid()?;
    if let Some(files) = ready.files {
        rustix::process::setrlimit(Resource::Nofile, files)?;
    }
    for (number, stream) in (0..).zip(ready.streams) {
        // SAFETY: both are numbers of descriptors, of which this process has its own table.
        if unsafe { libc::dup2(stream, number) } < 0 {
            return Err(last_error());
        }
    }
    if ready.has_terminal {
        rustix::process::ioctl_tiocsctty(rustix::stdio::stdin())?;
    }
    rustix::process::chdir(ready.cwd.as_c_str())?;
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    // The keeper may have died before the line above could see to it.
    if rustix::process::getppid() != Some(ready.keeper) {
        return Err(rustix::io::Errno::PIPE);
    }
    // SAFETY: this process has handlers of its own. The program gets those that every program expects, and not what the
    // keeper ignores.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
    }
    SignalMask::clear();
    Ok(())
}

/// Runs the first program that is there; returns why there is none.
fn run(ready: &mut Ready) -> c_int {
    let (mut last, mut is_denied) = (libc::ENOENT, false);
    for place in ready.known.into_iter().chain(0..ready.programs.len()) {
        let program = &ready.programs[place];
        // SAFETY: `start` reads it when this process runs its program.
        unsafe { (&raw mut ready.tried).write_volatile(place) };
        // SAFETY: lists of texts that end with null.
        unsafe { libc::execve(program.as_ptr(), ready.argv.as_ptr(), ready.env.as_ptr()) };
        match last_error().raw_os_error() {
            libc::ENOEXEC => {
                ready.script[1] = program.as_ptr();
                // SAFETY: the same.
                unsafe { libc::execve(ready.script[0], ready.script.as_ptr(), ready.env.as_ptr()) };
                return last_error().raw_os_error();
            }
            // One that may not be run is said to be there, if there is no other.
            libc::EACCES => is_denied = true,
            error @ (libc::ENOENT | libc::ENOTDIR | libc::ESTALE | libc::ENODEV | libc::ETIMEDOUT) => {
                last = error
            }
            error => return error,
        }
    }
    if is_denied { libc::EACCES } else { last }
}

/// Why the last call of the C library failed; allocates nothing.
fn last_error() -> rustix::io::Errno {
    // SAFETY: the number of this thread.
    rustix::io::Errno::from_raw_os_error(unsafe { *libc::__errno_location() })
}

/// The signals that this thread does not hear, as they were before.
struct SignalMask(libc::sigset_t);

impl SignalMask {
    /// Hears none until this is dropped.
    fn block_all() -> io::Result<Self> {
        // SAFETY: sets of signals are plain numbers, and these calls fill them.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            match libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) {
                0 => Ok(Self(before)),
                error => Err(io::Error::from_raw_os_error(error)),
            }
        }
    }

    /// Hears all from now on.
    fn clear() {
        // SAFETY: as above.
        unsafe {
            let mut none = std::mem::zeroed();
            libc::sigemptyset(&raw mut none);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const none, ptr::null_mut());
        }
    }
}

impl Drop for SignalMask {
    fn drop(&mut self) {
        // SAFETY: the set that was there before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, ptr::null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    use rustix::process::WaitOptions;

    use super::*;

    /// What a command prints, and its exit code.
    fn printed(argv: &[&str], env: &[(&str, &str)], cwd: &Path) -> io::Result<(String, Option<i32>)> {
        let (mut reader, writer) = io::pipe()?;
        let nothing = File::open("/dev/null")?;
        let streams = [nothing.as_fd(), writer.as_fd(), writer.as_fd()];
        let owned = |(name, value): &(&str, &str)| (name.to_string(), value.to_string());
        let (argv, env) = (argv.iter().map(|it| it.to_string()).collect::<Vec<_>>(), env.iter().map(owned));
        let env: Vec<_> = env.collect();
        let pid =
            super::start(&Start { argv: &argv, env: &env, cwd, streams, has_terminal: false, files: None })?;
        drop(writer);
        let mut text = String::new();
        reader.read_to_string(&mut text)?;
        let ended = rustix::process::waitpid(Pid::from_raw(pid), WaitOptions::empty())?;
        Ok((text, ended.and_then(|(_, status)| status.exit_status())))
    }

    const PATH: (&str, &str) = ("PATH", "/nowhere::/usr/bin:/bin");

    #[test]
    fn a_command_has_its_arguments_environment_and_directory_and_nothing_of_the_keeper() {
        let script =
            r#"echo "$0 $1 $A $(pwd)"; env | grep -c KEEPER_ONLY; grep SigBlk /proc/self/status; exit 3"#;
        let env = [PATH, ("A", "1"), ("A", "2")];
        let (text, code) =
            printed(&["sh", "-c", script, "zero", "one"], &env, Path::new("/usr")).expect("sh");
        assert_eq!(text, "zero one 2 /usr\n0\nSigBlk:\t0000000000000000\n");
        assert_eq!(code, Some(3));
    }

    #[test]
    fn the_program_heeds_closed_pipes_and_leads_a_session() {
        let ignored = |text: &str| {
            let mask = text.lines().find_map(|line| line.strip_prefix("SigIgn:")).expect("a mask").trim();
            u64::from_str_radix(mask, 16).expect("a number") & (1 << (libc::SIGPIPE - 1))
        };
        let own = std::fs::read_to_string("/proc/self/status").expect("ours");
        assert_ne!(ignored(&own), 0, "this process ignores it, as the keeper does");
        // Of pid, parent, group, session: the first is that of the shell.
        let script =
            r#"grep SigIgn /proc/$$/status; set -- $(cat /proc/$$/stat); [ "$1" = "$6" ] && echo leads"#;
        let (text, _) = printed(&["sh", "-c", script], &[PATH], Path::new("/")).expect("sh");
        assert_eq!((ignored(&text), text.lines().last()), (0, Some("leads")));
    }

    #[test]
    fn why_a_program_does_not_run_is_told_as_the_kernel_tells_it() {
        let place = tempfile::tempdir().expect("a directory");
        std::fs::write(place.path().join("plain"), "echo not mine").expect("written");
        let path = place.path().to_str().expect("text");
        let error = |argv: &[&str], env: &[(&str, &str)], cwd: &str| {
            printed(argv, env, Path::new(cwd)).expect_err("it can't run").raw_os_error()
        };
        assert_eq!(error(&["no-such-program"], &[PATH], "/"), Some(libc::ENOENT));
        assert_eq!(error(&["/usr/bin/env/no"], &[PATH], "/"), Some(libc::ENOTDIR));
        assert_eq!(error(&["plain"], &[("PATH", path)], "/"), Some(libc::EACCES));
        assert_eq!(error(&["true"], &[PATH], "/no-such-directory"), Some(libc::ENOENT));
        assert_eq!(error(&["a\0b"], &[PATH], "/"), None);
        assert_eq!(error(&[""], &[PATH], "/"), Some(libc::ENOENT));
    }

    #[test]
    fn a_script_without_an_interpreter_is_run_by_the_shell() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("script");
        std::fs::write(&path, "echo \"$0 $1\"\n").expect("written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("made executable");
        let path = path.to_str().expect("text");
        let (text, code) = printed(&[path, "one"], &[PATH], Path::new("/")).expect("it runs");
        assert_eq!((text, code), (format!("{path} one\n"), Some(0)));
    }

    #[test]
    fn a_program_is_looked_for_in_all_directories_in_their_order() {
        let places = |program, path| Sought { program, path }.programs().expect("no null").into_iter();
        let texts = |program, path| places(program, path).map(|it| it.into_string().expect("text"));
        assert!(texts("a", "/x:/y/").eq(["/x/a", "/y//a"]));
        assert!(texts("a", "::/x").eq(["./a", "./a", "/x/a"]));
        assert!(texts("./a", "/x").eq(["./a"]));
    }

    #[test]
    fn where_a_program_was_found_is_known_for_a_second() {
        let (sought, now) = (Sought { program: "a", path: "/x:/y:z" }, Instant::now());
        let mut found = Found::default();
        assert_eq!(found.place(sought, now), None, "nothing was looked for yet");
        found.note(sought, 1, now);
        assert_eq!(found.place(sought, now + FOUND_FOR / 2), Some(1));
        assert_eq!(found.place(sought, now + FOUND_FOR), None);
        assert_eq!(found.place(Sought { program: "b", ..sought }, now), None);
        assert_eq!(found.place(Sought { path: "/x:/y", ..sought }, now), None);
        found.note(sought, 2, now);
        assert_eq!(found.place(sought, now), None, "z is another place for each process");
    }

    #[test]
    fn a_program_that_is_not_any_more_where_it_was_found_is_looked_for() {
        let (one, two) = (tempfile::tempdir().expect("a directory"), tempfile::tempdir().expect("another"));
        let path = format!("{}:{}", one.path().display(), two.path().display());
        let put = |directory: &Path, text: &str| {
            std::fs::write(directory.join("p"), format!("#!/bin/sh\necho {text}\n")).expect("written");
            std::fs::set_permissions(directory.join("p"), std::fs::Permissions::from_mode(0o755))
                .expect("made executable");
        };
        let run = || printed(&["p"], &[("PATH", &path)], Path::new("/")).expect("it runs").0;
        put(two.path(), "two");
        assert_eq!(run(), "two\n");
        put(one.path(), "one");
        std::fs::remove_file(two.path().join("p")).expect("removed");
        assert_eq!(run(), "one\n");
    }
}
