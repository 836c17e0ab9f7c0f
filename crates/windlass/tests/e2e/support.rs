//! Runs the command, and makes what it prints comparable.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

/// How long anything may take before a test gives up on it. No test waits for it.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// What a run came to.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

/// The command, free of what the tests' own environment says about logs and colours.
pub fn windlass<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Command {
    plain_command(env!("CARGO_BIN_EXE_windlass"), args)
}

/// The command in the place of a shell that did something before it.
pub fn windlass_in_shell(before: &str, args: &[&str]) -> Command {
    let script = format!("{before}; exec \"$@\"");
    let args = [&["-c", &script, "sh", env!("CARGO_BIN_EXE_windlass")], args].concat();
    plain_command("sh", &args)
}

/// The command of a user without rights, who may write to `place`. The program is put there, for where it is others may not be
/// able to go.
pub fn as_user(place: &Path, args: &[&str]) -> Command {
    let program = place.join("windlass");
    let own = env!("CARGO_BIN_EXE_windlass");
    if !program.exists() {
        std::fs::hard_link(own, &program)
            .or_else(|_| std::fs::copy(own, &program).map(drop))
            .expect("copied");
    }
    let user = ["--reuid", "4242", "--regid", "4243", "--clear-groups", program.to_str().expect("UTF-8")];
    let mut command = plain_command("setpriv", &[&user, args].concat());
    command.env("HOME", place).env("TMPDIR", place).current_dir(place);
    command
}

fn plain_command<S: AsRef<std::ffi::OsStr>>(program: &str, args: &[S]) -> Command {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    for name in ["WINDLASS_LOG", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "TERM"] {
        command.env_remove(name);
    }
    command
}

/// Runs the command to its end.
pub fn run<S: AsRef<std::ffi::OsStr>>(args: &[S]) -> Ran {
    finish(&mut windlass(args), "")
}

/// Runs `windlass run ARGS -` with the manifest on standard input.
pub fn run_manifest(args: &[&str], manifest: &str) -> Ran {
    let args: Vec<&str> = ["run"].into_iter().chain(args.iter().copied()).chain(["-"]).collect();
    let mut command = windlass(&args);
    command.stdin(Stdio::piped());
    finish(&mut command, manifest)
}

/// The same on a machine that has no programs, and so no OCI runtime either.
pub fn run_manifest_without_programs(manifest: &str) -> Ran {
    let mut command = windlass(&["run", "-"]);
    command.stdin(Stdio::piped()).env("PATH", "/nowhere");
    finish(&mut command, manifest)
}

/// Runs a command to its end, with such an input.
pub fn finish(command: &mut Command, input: &str) -> Ran {
    let mut running = Running::spawn(command);
    if let Some(mut stdin) = running.child.stdin.take() {
        stdin.write_all(input.as_bytes()).expect("written");
    }
    running.finish()
}

/// A command that runs, as long as the test looks at it.
pub struct Running {
    pub child: Child,
    lines: mpsc::Receiver<String>,
    stdout: Option<std::thread::JoinHandle<String>>,
    stderr: String,
}

impl Drop for Running {
    /// A test that is over, or has failed, leaves no command behind. One that has ended is not there to be killed.
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    pub fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("started");
        let mut out = child.stdout.take().expect("piped");
        let stdout = std::thread::spawn(move || {
            let mut text = String::new();
            out.read_to_string(&mut text).expect("UTF-8");
            text
        });
        let err = BufReader::new(child.stderr.take().expect("piped"));
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || err.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Self { child, lines, stdout: Some(stdout), stderr: String::new() }
    }

    /// With its output in a file, and not looked at here.
    pub fn spawn_silent(command: &mut Command, output: std::fs::File) -> Self {
        let child = command.stdout(output).stderr(Stdio::null()).spawn().expect("started");
        let (_, lines) = mpsc::channel();
        let stdout = std::thread::spawn(String::new);
        Self { child, lines, stdout: Some(stdout), stderr: String::new() }
    }

    /// Starts `windlass run` on a manifest in a file.
    pub fn start(args: &[&str], file: &Path) -> Self {
        let file = file.to_str().expect("UTF-8");
        let args: Vec<&str> = ["run"].into_iter().chain(args.iter().copied()).chain([file]).collect();
        Self::spawn(&mut windlass(&args))
    }

    /// Waits until each of these texts is in a line of standard error, in any order.
    pub fn wait_for_lines(&mut self, texts: &[&str]) {
        let deadline = Instant::now() + PATIENCE;
        let is_told = |told: &str, text: &str| told.lines().any(|line| line.contains(text));
        while let Some(missing) = texts.iter().find(|text| !is_told(&self.stderr, text)) {
            let line = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let line = line.unwrap_or_else(|_| panic!("no line with {missing:?} in:\n{}", self.stderr));
            self.stderr.push_str(&format!("{line}\n"));
        }
    }

    /// Waits until a text is in so many lines of standard error, and gives the last of them.
    pub fn wait_for_nth(&mut self, text: &str, count: usize) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let mut found = self.stderr.lines().filter(|line| line.contains(text));
            if let Some(line) = found.nth(count - 1) {
                return line.to_owned();
            }
            let line = self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now()));
            let line =
                line.unwrap_or_else(|_| panic!("not {count} lines with {text:?} in:\n{}", self.stderr));
            self.stderr.push_str(&format!("{line}\n"));
        }
    }

    pub fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(self.child.id().cast_signed()).expect("a pid");
        rustix::process::kill_process(pid, signal).expect("signalled");
    }

    pub fn finish(mut self) -> Ran {
        let status = self.wait();
        let mut stderr = std::mem::take(&mut self.stderr);
        stderr.extend(self.lines.iter().map(|line| format!("{line}\n")));
        let stdout = self.stdout.take().expect("read once").join().expect("read");
        if status.code().is_none() {
            // A test that does not expect it shows why.
            eprintln!("the command ended by {status}, after it said:\n{stderr}");
        }
        Ran { code: status.code(), stdout, stderr }
    }

    fn wait(&mut self) -> ExitStatus {
        wait_until("the end of the command", || self.child.try_wait().expect("waited"))
    }
}

/// Looks until there is something to see.
pub fn wait_until<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(seen) = look() {
            return seen;
        }
        assert!(start.elapsed() < PATIENCE, "gave up waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until there is a file.
pub fn wait_for_file(path: &Path) {
    wait_until(&path.display().to_string(), || path.exists().then_some(()));
}

/// The processes with this in their environment.
pub fn processes_with_variable(name: &str, value: &str) -> Vec<i32> {
    let entry = format!("{name}={value}");
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    let pids = pids.filter_map(|found| found.file_name().to_str()?.parse().ok());
    pids.filter(|pid: &i32| {
        let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|found| found == entry.as_bytes())
    })
    .collect()
}

/// The directory of the examples.
pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// A Job manifest with one container that runs a shell script.
pub fn job(name: &str, spec: Value, script: &str) -> String {
    let mut job = json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name},
        "spec": {"template": {"spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "main", "image": "host", "command": ["sh", "-c", script]}],
        }}},
    });
    for (field, value) in spec.as_object().expect("a map") {
        job["spec"][field] = value.clone();
    }
    job.to_string()
}

impl Ran {
    /// What `-o json` printed.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error} in {self:?}"))
    }

    /// The status of the one Job, with times as `TIME` and random parts of names as `?`.
    pub fn status(&self) -> Value {
        let job = self.json();
        let name = job["metadata"]["name"].as_str().expect("a name");
        plain(job["status"].clone(), name)
    }

    /// Standard error of a run of the Job `name`, with random parts of names and durations as `?`.
    pub fn lines(&self, name: &str) -> Vec<String> {
        let mask = |line: &str| match masked(line, name).rsplit_once("; took ") {
            Some((start, _)) => format!("{start}; took ?"),
            None => masked(line, name),
        };
        self.stderr.lines().map(mask).collect()
    }

    /// How many lines of standard error contain a text.
    pub fn count(&self, text: &str) -> usize {
        self.stderr.lines().filter(|line| line.contains(text)).count()
    }
}

/// A status of the Job `name` or of a pod of it, with times as `TIME` and random parts of names as `?`.
pub fn plain(mut status: Value, name: &str) -> Value {
    replace_texts(&mut status, &|field, text| {
        if field.ends_with("Time") || matches!(field, "startedAt" | "finishedAt") {
            assert!(is_time(text), "{field} is {text}");
            return "TIME".to_owned();
        }
        masked(text, name)
    });
    status
}

fn replace_texts(value: &mut Value, replace: &impl Fn(&str, &str) -> String) {
    match value {
        Value::Object(fields) => {
            for (field, value) in fields {
                match value {
                    Value::String(text) => *text = replace(field, text),
                    other => replace_texts(other, replace),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| replace_texts(item, replace)),
        _ => {}
    }
}

fn is_time(text: &str) -> bool {
    text.len() == "2026-11-15T21:15:16Z".len() && text.parse::<jiff::Timestamp>().is_ok()
}

/// Replaces the random ends of pod names of a Job, as in `name-3-x7k2p`, by question marks.
fn masked(text: &str, job: &str) -> String {
    let start = format!("{job}-");
    let mut parts = text.split(&start);
    let mut result = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        result.push_str(&start);
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap_or(part.len());
        let has_index = digits > 0 && part[digits..].starts_with('-');
        let (index, rest) = part.split_at(if has_index { digits + 1 } else { 0 });
        result.push_str(index);
        let random = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        result.push_str(if random == 5 { "?????" } else { &rest[..random] });
        result.push_str(&rest[random..]);
    }
    result
}

/// Two conditions that say the same, as at the end of every Job.
fn conditions(types: [&str; 2], reason: &str, message: &str) -> Value {
    let condition = |type_: &str| {
        json!({
            "type": type_, "status": "True", "reason": reason, "message": message,
            "lastProbeTime": "TIME", "lastTransitionTime": "TIME",
        })
    };
    json!(types.map(condition))
}

fn ended(conditions: Value, rest: Value) -> Value {
    let mut status = json!({
        "startTime": "TIME", "ready": 0, "terminating": 0, "uncountedTerminatedPods": {}, "conditions": conditions,
    });
    for (field, value) in rest.as_object().expect("a map") {
        status[field] = value.clone();
    }
    status
}

/// The whole status of a Job that reached its completions.
pub fn complete(rest: Value) -> Value {
    let message = "Reached expected number of succeeded pods";
    let conditions = conditions(["SuccessCriteriaMet", "Complete"], "CompletionsReached", message);
    let mut status = ended(conditions, rest);
    status["completionTime"] = json!("TIME");
    status
}

/// The whole status of a Job that failed.
pub fn failed(reason: &str, message: &str, rest: Value) -> Value {
    ended(conditions(["FailureTarget", "Failed"], reason, message), rest)
}

/// The text of `BackoffLimitExceeded`.
pub const BACKOFF_LIMIT: &str = "Job has reached the specified backoff limit";

#[test]
fn random_ends_of_pod_names_are_masked_and_nothing_else() {
    assert_eq!(masked("pod x-0-abcd2 and x-k7k7k, x-y", "x"), "pod x-0-????? and x-?????, x-y");
    assert_eq!(masked("pod default/x-12-abcde failed", "x"), "pod default/x-12-????? failed");
}
