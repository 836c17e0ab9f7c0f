//! On a terminal: bars, colours where they are wanted, and whole lines above.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use serde_json::json;

use crate::server::Served;
use crate::support::{Ran, job, run_manifest, wait_until, windlass};

/// Runs a Job with standard error on a terminal, and returns the exit code and everything that was drawn.
fn on_terminal(manifest: &str, environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().expect("a directory");
    draws(run_of(directory.path(), manifest, environment), false)
}

/// The command that runs a Job, whose manifest is put into the directory.
fn run_of(directory: &Path, manifest: &str, environment: &[(&str, &str)]) -> Command {
    let file = directory.join("job.json");
    std::fs::write(&file, manifest).expect("written");
    let mut command = windlass(&["run", "--backoff-base", "10ms"]);
    command.arg(&file).envs(environment.iter().copied()).stdout(Stdio::null());
    command
}

/// A terminal of 40 rows.
pub struct Terminal {
    controller: OwnedFd,
    side: File,
}

impl Terminal {
    pub fn open(columns: u16) -> Self {
        let controller =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("a terminal");
        grantpt(&controller).expect("granted");
        unlockpt(&controller).expect("unlocked");
        let size = Winsize { ws_row: 40, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&controller, size).expect("sized");
        let name = ptsname(&controller, Vec::new()).expect("a name").into_string().expect("UTF-8");
        let noctty = rustix::fs::OFlags::NOCTTY.bits().cast_signed();
        let side = OpenOptions::new().read(true).write(true).custom_flags(noctty).open(name).expect("opened");
        Self { controller, side }
    }

    /// One of the standard streams of a command on it.
    pub fn stream(&self) -> Stdio {
        Stdio::from(self.side.try_clone().expect("cloned"))
    }

    /// Runs a command that has streams on it, and returns the exit code and everything that was drawn.
    pub fn run(self, command: Command) -> (Option<i32>, String) {
        self.run_until(command, "", |_| {})
    }

    /// The same, and does something about it when this text has been drawn.
    fn run_until(
        self,
        mut command: Command,
        text: &'static str,
        act: impl FnOnce(Pid) + Send + 'static,
    ) -> (Option<i32>, String) {
        let mut child = command.spawn().expect("started");
        let pid = Pid::from_child(&child);
        let mut act = Some(act);
        drop((command, self.side));
        let reader = std::thread::spawn(move || {
            let (mut drawn, mut buffer) = (Vec::new(), [0; 4096]);
            let mut controller = File::from(self.controller);
            // A terminal that nobody has open any more ends with an error.
            while let Ok(count @ 1..) = controller.read(&mut buffer) {
                drawn.extend_from_slice(&buffer[..count]);
                if let Some(act) = act.take_if(|_| String::from_utf8_lossy(&drawn).contains(text)) {
                    act(pid);
                }
            }
            String::from_utf8_lossy(&drawn).into_owned()
        });
        let status = wait_until("the end of the command", || child.try_wait().expect("waited"));
        (status.code(), reader.join().expect("read"))
    }
}

/// Runs a command on a terminal, with its standard output too if that is wanted.
pub fn draws(mut command: Command, has_stdout: bool) -> (Option<i32>, String) {
    let terminal = Terminal::open(200);
    command.env("TERM", "xterm").stderr(terminal.stream());
    if has_stdout {
        command.stdout(terminal.stream());
    }
    terminal.run(command)
}

/// What a command that stays shows on a terminal until it has shown `end` and is interrupted.
fn stays(mut command: Command, end: &'static str) -> (Option<i32>, Vec<String>) {
    let terminal = Terminal::open(200);
    command.env("TERM", "xterm").stdout(terminal.stream()).stderr(terminal.stream());
    let interrupt = |pid| kill_process(pid, Signal::INT).expect("interrupted");
    let (code, drawn) = terminal.run_until(command, end, interrupt);
    (code, screen(&drawn))
}

/// What is left to see of all that was drawn, line by line.
pub fn screen(drawn: &str) -> Vec<String> {
    let (mut lines, mut row, mut column) = (vec![Vec::new()], 0, 0);
    let mut rest = drawn.chars();
    while let Some(c) = rest.next() {
        match c {
            '\r' => column = 0,
            '\n' => row += 1,
            '\x1b' => {
                let mut number = String::new();
                let command = loop {
                    match rest.next().expect("a whole sequence") {
                        '[' => {}
                        c if c.is_ascii_alphabetic() => break c,
                        c => number.push(c),
                    }
                };
                let count = number.parse().unwrap_or(1);
                match command {
                    'A' => row -= count,
                    'K' => lines[row].truncate(if number == "2" { 0 } else { column }),
                    'J' => lines.truncate(row + 1),
                    'm' | 'h' | 'l' => {}
                    other => panic!("a terminal is told {other:?}, which this one does not know"),
                }
            }
            c => {
                let line: &mut Vec<char> = &mut lines[row];
                line.resize(line.len().max(column + 1), ' ');
                line[column] = c;
                column += 1;
            }
        }
        lines.resize(lines.len().max(row + 1), Vec::new());
    }
    let shown = lines.into_iter().map(|line| String::from_iter(line).trim_end().to_owned());
    shown.filter(|line| !line.is_empty()).collect()
}

/// The line with its address, which is another one every time, set aside.
fn without_port(line: &str) -> String {
    match line.split_once("://127.0.0.1:") {
        Some((before, port)) => {
            format!("{before}://127.0.0.1:PORT{}", port.trim_start_matches(|c: char| c.is_ascii_digit()))
        }
        None => line.to_owned(),
    }
}

#[test]
fn commands_that_stay_say_on_a_terminal_what_they_do_and_how_to_go_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let place = |name: &str| directory.path().join(name).display().to_string();
    let version = env!("CARGO_PKG_VERSION");
    let stopping = "stopping: pods are ended; once more to end at once".to_owned();
    let (data, kubeconfig) = (place("server"), place("server/kubeconfig"));
    let server = windlass(&["server", "--data-dir", &data, "--listen", "127.0.0.1:0"]);
    let (code, shown) = stays(server, "kubectl get jobs");
    let greeting = [
        format!("windlass {version} is ready at https://127.0.0.1:PORT"),
        format!("  export KUBECONFIG={kubeconfig}"),
        "  kubectl get jobs".to_owned(),
        stopping.clone(),
    ];
    let shown: Vec<_> = shown.iter().map(|line| without_port(line)).collect();
    assert_eq!((code, &*shown), (Some(0), &greeting[..]));

    let _server = Served::start(Path::new(&data), &["--nodes", "0"]);
    let node =
        windlass(&["node", "--name", "two", "--kubeconfig", &kubeconfig, "--data-dir", &place("node")]);
    let (code, shown) = stays(node, "runs node two");
    assert_eq!((code, shown), (Some(0), vec![format!("windlass {version} runs node two"), stopping]));

    let base = ["controller", "--kubeconfig", &kubeconfig, "--listen-health", "127.0.0.1:0"];
    let begins = [
        format!("windlass {version} controls Jobs of https://127.0.0.1:PORT/"),
        "health and metrics at http://127.0.0.1:PORT".to_owned(),
    ];
    let alone = windlass(&[&base[..], &["--leader-elect=false"]].concat());
    let (code, shown) = stays(alone, "works without a lease");
    let shown: Vec<_> = shown.iter().map(|line| without_port(line)).collect();
    assert_eq!((code, &shown[..2], &*shown[2]), (Some(0), &begins[..], "works without a lease"));
    let (code, shown) = stays(windlass(&base), "leads by the lease");
    let shown: Vec<_> = shown.iter().map(|line| without_port(line)).collect();
    assert_eq!((code, &shown[..2], shown.len()), (Some(0), &begins[..], 4));
    assert_eq!(shown[2], "waits for the lease default/windlass-job-controller");
    assert!(shown[3].starts_with("leads by the lease default/windlass-job-controller as "), "{shown:?}");
}

#[test]
fn what_is_left_on_a_terminal_is_what_a_pipe_is_told() {
    let manifest = job("x", json!({"backoffLimit": 1}), "exit 3");
    let (code, drawn) = on_terminal(&manifest, &[]);
    let left = Ran { code, stdout: String::new(), stderr: screen(&drawn).join("\n") };
    let piped = run_manifest(&["--backoff-base", "10ms"], &manifest);
    assert_eq!((left.code, left.lines("x")), (Some(1), piped.lines("x")), "{drawn:?}");
    assert_eq!(left.lines("x").len(), 7, "{drawn:?}");
}

#[test]
fn a_bar_shows_what_succeeded_and_lines_stand_above_it() {
    let spec =
        json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3, "backoffLimitPerIndex": 0});
    let directory = tempfile::tempdir().expect("a directory");
    let seen = directory.path().join("seen");
    let wait = format!("until [ -e {} ]; do sleep 0.01; done", seen.display());
    let script = format!("[ $JOB_COMPLETION_INDEX != 1 ] || exit 4; {wait}");
    let mut command = run_of(directory.path(), &job("x", spec, &script), &[]);
    let terminal = Terminal::open(200);
    command.env("TERM", "xterm").stderr(terminal.stream());
    let let_end = move |_| std::fs::write(seen, "").expect("written");
    let (code, drawn) = terminal.run_until(command, "2 active, 1 failed", let_end);
    assert_eq!(code, Some(1), "{drawn}");
    assert!(drawn.contains("job/x [") && drawn.contains("] 0/3 "), "a bar: {drawn}");
    assert!(drawn.contains("2 active, 1 failed"), "its counters: {drawn}");
    assert!(
        drawn.contains("(index 1) failed, no rule matches: counted (container main: exit code 4)\r\n"),
        "{drawn}"
    );
    assert!(
        drawn.contains("\x1b[31mjob/x: Failed (FailedIndexes): Job has failed indexes\x1b[0m\r\n"),
        "{drawn}"
    );
    assert!(!drawn.contains("2 of 3 succeeded"), "the bar says so: {drawn}");
}

#[test]
fn no_color_means_none() {
    let (code, drawn) = on_terminal(&job("x", json!({}), "true"), &[("NO_COLOR", "1")]);
    assert_eq!(code, Some(0), "{drawn}");
    assert!(drawn.contains("job/x: Complete (CompletionsReached)"), "{drawn}");
    let colours = drawn.match_indices("\x1b[").filter(|(at, _)| {
        let rest = &drawn[at + 2..];
        rest.find(|c: char| c.is_ascii_alphabetic()).is_some_and(|end| rest[end..].starts_with('m'))
    });
    assert_eq!(colours.count(), 0, "{drawn:?}");
}
