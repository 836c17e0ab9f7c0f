//! The host runtime with real processes: ends are exact, and nothing is left behind.

mod common;

use std::path::PathBuf;

use common::{PATIENCE, processes_with, unique_sleep, wait_for, wait_for_text};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::sync::mpsc;
use windlass_node::runtimes::host::{Event, Host, Id};
use windlass_node::runtimes::{Exit, Input, Process, StartError};

#[test]
fn keeper_process() {
    common::keeper_entry("keeper_process");
}

struct Fixture {
    host: Host,
    directory: TempDir,
}

struct Run {
    id: Id,
    log: PathBuf,
    events: mpsc::UnboundedReceiver<Event>,
}

impl Fixture {
    async fn new() -> Self {
        let host = Host::start(&common::entry("keeper_process", &[])).await.expect("the keeper starts");
        Self { host, directory: tempfile::tempdir().expect("a directory") }
    }

    fn process(&self, name: &str, argv: &[&str]) -> Process {
        Process {
            argv: argv.iter().map(|word| (*word).to_owned()).collect(),
            env: vec![
                ("PATH".into(), "/usr/bin:/bin".into()),
                ("WINDLASS_CONTAINER".into(), format!("test/{name}/0")),
            ],
            cwd: "/".into(),
            log: self.directory.path().join(format!("{name}.log")),
            makes_log_late: false,
            sandbox: None,
            starts: None,
            input: Input::Nothing,
            log_limits: None,
        }
    }

    fn run(&self, process: Process) -> Run {
        let (sender, events) = mpsc::unbounded_channel();
        let log = process.log.clone();
        let id = self.host.run(process, None, move |event| drop(sender.send(event)));
        Run { id, log, events }
    }

    fn sh(&self, name: &str, script: &str) -> Run {
        self.run(self.process(name, &["sh", "-c", script]))
    }
}

impl Run {
    async fn next(&mut self) -> Event {
        let event = tokio::time::timeout(PATIENCE, self.events.recv()).await.expect("an event in time");
        event.expect("the runtime reports every process")
    }

    async fn pid(&mut self) -> i32 {
        match self.next().await {
            Event::Started(pid) => pid,
            other => panic!("not started: {other:?}"),
        }
    }

    /// How it ended, after it has started.
    async fn exit(mut self) -> Exit {
        self.pid().await;
        self.ended().await
    }

    async fn ended(&mut self) -> Exit {
        match self.next().await {
            Event::Exited(exit) => exit,
            other => panic!("not ended: {other:?}"),
        }
    }
}

#[tokio::test]
async fn exit_codes_and_signals_are_those_of_the_kernel() {
    let fixture = Fixture::new().await;
    for (name, script, want, code) in [
        ("zero", "exit 0", Exit::Code(0), 0),
        ("one", "exit 1", Exit::Code(1), 1),
        ("answer", "exit 42", Exit::Code(42), 42),
        ("most", "exit 255", Exit::Code(255), 255),
        ("code-137", "exit 137", Exit::Code(137), 137),
        ("kill", "kill -9 $$", Exit::Signal(9), 137),
        ("term", "kill -15 $$", Exit::Signal(15), 143),
        ("segv", "ulimit -c 0; kill -11 $$", Exit::Signal(11), 139),
    ] {
        let exit = fixture.sh(name, script).exit().await;
        assert_eq!((exit, exit.code()), (want, code), "{name}");
    }
}

/// One that makes its log late is of a run, whose keeper tells of starts together with what comes next.
#[tokio::test]
async fn the_start_of_a_process_is_told_before_its_end_also_if_nothing_else_is_to_be_told() {
    let fixture = Fixture::new().await;
    let late = |name: &str, script: &str| {
        let process = fixture.process(name, &["sh", "-c", script]);
        fixture.run(Process { makes_log_late: true, ..process })
    };
    assert_eq!(late("short", "exit 3").exit().await, Exit::Code(3));
    let mut run = late("long", "exec sleep 1000");
    let pid = run.pid().await;
    fixture.host.signal(run.id, Signal::TERM);
    assert_eq!(run.ended().await, Exit::Signal(15));
    assert!(pid > 0);
    let mut many: Vec<Run> = (0..50).map(|n| late(&format!("many-{n}"), "exit 0")).collect();
    for run in &mut many {
        run.pid().await;
        assert_eq!(run.ended().await, Exit::Code(0));
    }
}

#[tokio::test]
async fn a_process_whose_log_would_be_behind_a_link_is_not_started_and_makes_none() {
    let fixture = Fixture::new().await;
    let file = |name: &str| fixture.directory.path().join(name);
    for place in ["logs/p", "others"] {
        std::fs::create_dir_all(file(place)).expect("made");
    }
    std::os::unix::fs::symlink(file("others"), file("logs/p/c")).expect("linked");
    let log = file("logs/p/c/0.log");
    let script = format!("echo x; : > {}", file("ran").display());
    let process = Process { log: log.clone(), ..fixture.process("linked", &["sh", "-c", &script]) };
    match fixture.run(process.clone()).next().await {
        Event::Failed(StartError::Log { path, .. }) => assert_eq!(path, log),
        other => panic!("not refused: {other:?}"),
    }
    assert!(!file("ran").exists());
    // One that makes its log late runs, and what it prints is lost.
    let late = fixture.run(Process { makes_log_late: true, ..process });
    assert_eq!(late.exit().await, Exit::Code(0));
    assert_eq!(std::fs::read_dir(file("others")).expect("listed").count(), 0);
}

#[tokio::test]
async fn a_process_leads_its_own_session_and_group_and_reads_nothing() {
    let fixture = Fixture::new().await;
    let mut run = fixture.sh("session", "cat; cut -d' ' -f5,6 /proc/$$/stat");
    let pid = run.pid().await;
    assert_eq!(run.ended().await, Exit::Code(0));
    assert_eq!(std::fs::read_to_string(&run.log).expect("a log"), format!("{pid} {pid}\n"));
}

#[tokio::test]
async fn who_ignores_sigterm_is_killed_by_sigkill() {
    let fixture = Fixture::new().await;
    let mut run = fixture.sh("stubborn", "trap 'echo asked' TERM; echo ready; while :; do sleep 0.01; done");
    run.pid().await;
    wait_for_text(&run.log, "ready").await;
    fixture.host.signal(run.id, Signal::TERM);
    wait_for_text(&run.log, "asked").await;
    fixture.host.signal(run.id, Signal::KILL);
    assert_eq!(run.ended().await, Exit::Signal(9));
}

#[tokio::test]
async fn who_handles_sigterm_ends_with_its_own_code() {
    let fixture = Fixture::new().await;
    let mut run = fixture.sh("polite", "trap 'exit 7' TERM; echo ready; while :; do sleep 0.01; done");
    run.pid().await;
    wait_for_text(&run.log, "ready").await;
    fixture.host.signal(run.id, Signal::TERM);
    assert_eq!(run.ended().await, Exit::Code(7));
}

#[tokio::test]
async fn sigterm_reaches_the_whole_group() {
    let fixture = Fixture::new().await;
    let sleep = unique_sleep();
    let mut run = fixture.sh("group", &format!("sleep {sleep} & echo ready; wait"));
    run.pid().await;
    wait_for_text(&run.log, "ready").await;
    fixture.host.signal(run.id, Signal::TERM);
    assert_eq!(run.ended().await, Exit::Signal(15));
    assert_eq!(processes_with(&sleep), [0; 0]);
}

/// Starts children, orphans, and orphans in sessions of their own.
fn family(sleep: &str) -> String {
    format!(
        "sleep {sleep} & (sleep {sleep} &) ; setsid sleep {sleep} & (setsid sh -c 'sleep {sleep} & sleep {sleep}' &) ;"
    )
}

/// Waits until all of a family, five sleeps and the main process, are there.
async fn wait_for_family(sleep: &str) {
    wait_for("the whole family", || (processes_with(sleep).len() >= 6).then_some(())).await;
}

#[tokio::test]
async fn when_the_main_process_ends_its_whole_family_is_gone_before_the_end_is_reported() {
    let fixture = Fixture::new().await;
    let sleep = unique_sleep();
    let other = unique_sleep();
    let mut neighbour = fixture.sh("neighbour", &format!("(sleep {other} &); echo ready; sleep {other}; :"));
    neighbour.pid().await;
    wait_for_text(&neighbour.log, "ready").await;
    let go = fixture.directory.path().join("go");
    let until_go = format!("until [ -e {} ]; do sleep 0.01; done; exit 3", go.display());
    let run = fixture.sh("family", &(family(&sleep) + &until_go));
    wait_for_family(&sleep).await;
    std::fs::write(go, "").expect("a file");
    assert_eq!(run.exit().await, Exit::Code(3));
    assert_eq!(processes_with(&sleep), [0; 0]);
    // The orphan of a container that still runs is left alone.
    assert_eq!(processes_with(&other).len(), 3, "its shell and both of its children");
}

#[tokio::test]
async fn daemons_that_are_just_being_started_when_the_main_process_ends_do_not_escape() {
    let fixture = Fixture::new().await;
    for round in 0..20 {
        let sleep = unique_sleep();
        let script = format!("for i in 1 2 3 4 5 6 7 8; do setsid setsid sleep {sleep} & done; exit 0");
        let run = fixture.sh(&format!("daemons-{round}"), &script);
        assert_eq!(run.exit().await, Exit::Code(0));
        assert_eq!(processes_with(&sleep), [0; 0]);
    }
}

#[tokio::test]
async fn the_environment_is_exactly_the_one_asked_for() {
    let fixture = Fixture::new().await;
    let mut process = fixture.process("env", &["env"]);
    process.env.push(("JOB_COMPLETION_INDEX".into(), "7".into()));
    let run = fixture.run(process);
    let log = run.log.clone();
    assert_eq!(run.exit().await, Exit::Code(0));
    let text = std::fs::read_to_string(log).expect("a log");
    assert_eq!(text, "JOB_COMPLETION_INDEX=7\nPATH=/usr/bin:/bin\nWINDLASS_CONTAINER=test/env/0\n");
}

#[tokio::test]
async fn the_working_directory_is_the_one_asked_for() {
    let fixture = Fixture::new().await;
    let process = Process { cwd: "/usr".into(), ..fixture.process("pwd", &["pwd"]) };
    let log = process.log.clone();
    assert_eq!(fixture.run(process).exit().await, Exit::Code(0));
    assert_eq!(std::fs::read_to_string(log).expect("a log"), "/usr\n");
}

#[tokio::test]
async fn both_outputs_are_in_the_log_in_order_and_whole() {
    let fixture = Fixture::new().await;
    let run = fixture.sh("mixed", "echo one; echo two >&2; echo three");
    let log = run.log.clone();
    assert_eq!(run.exit().await, Exit::Code(0));
    assert_eq!(std::fs::read_to_string(log).expect("a log"), "one\ntwo\nthree\n");

    let run = fixture.sh("big", "head -c 20000000 /dev/zero");
    let log = run.log.clone();
    assert_eq!(run.exit().await, Exit::Code(0));
    assert_eq!(std::fs::metadata(log).expect("a log").len(), 20_000_000);
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let fixture = Fixture::new().await;
    let missing = fixture.process("missing", &["no-such-program", "x"]);
    let not_executable = fixture.process("not-executable", &["/etc/passwd"]);
    let no_cwd = Process { cwd: "/no/such".into(), ..fixture.process("no-cwd", &["true"]) };
    let cwd_file = Process { cwd: "/etc/passwd".into(), ..fixture.process("cwd-file", &["true"]) };
    let taken = fixture.process("taken", &["true"]);
    std::os::unix::fs::symlink("/etc/passwd", &taken.log).expect("a link");
    let (taken_log, none) = (taken.log.clone(), "No such file or directory (os error 2)".to_owned());
    let exec = |program: &str, error: &str| StartError::Exec { program: program.into(), error: error.into() };
    for (process, want) in [
        (missing, exec("no-such-program", &none)),
        (not_executable, exec("/etc/passwd", "Permission denied (os error 13)")),
        (no_cwd, StartError::Cwd { path: "/no/such".into(), error: none.clone() }),
        (cwd_file, StartError::Cwd { path: "/etc/passwd".into(), error: "not a directory".into() }),
        (taken, StartError::Log { path: taken_log, error: "File exists (os error 17)".into() }),
    ] {
        assert_eq!(fixture.run(process).next().await, Event::Failed(want));
    }
}

#[tokio::test]
async fn hundreds_at_once_each_end_once() {
    let fixture = Fixture::new().await;
    let runs: Vec<Run> =
        (0..300).map(|i| fixture.sh(&format!("many-{i}"), &format!("exit {}", i % 256))).collect();
    for (i, mut run) in runs.into_iter().enumerate() {
        run.pid().await;
        assert_eq!(run.ended().await, Exit::Code(i32::try_from(i % 256).expect("small")));
        assert_eq!(run.events.recv().await, None, "nothing after the end");
    }
}

#[tokio::test]
async fn dropping_the_runtime_kills_everything() {
    let sleep = unique_sleep();
    let fixture = Fixture::new().await;
    let _run = fixture.sh("dropped", &(family(&sleep) + "wait"));
    wait_for_family(&sleep).await;
    drop(fixture);
    wait_for("the end of all", || processes_with(&sleep).is_empty().then_some(())).await;
}

#[tokio::test]
async fn a_killed_keeper_takes_its_processes_along_they_are_reported_lost_and_it_is_replaced() {
    let sleep = unique_sleep();
    let fixture = Fixture::new().await;
    let mut run = fixture.sh("lost", &format!("sleep {sleep} & echo ready; wait"));
    let pid = run.pid().await;
    wait_for_text(&run.log, "ready").await;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let keeper: i32 = stat.split(' ').nth(3).expect("its parent").parse().expect("a pid");
    let keeper = rustix::process::Pid::from_raw(keeper).expect("a pid");
    rustix::process::kill_process(keeper, Signal::KILL).expect("our keeper");
    assert_eq!(run.next().await, Event::Lost);
    wait_for("the end of all", || processes_with(&sleep).is_empty().then_some(())).await;
    // A new keeper takes over; until it is there a start is refused.
    for attempt in 0.. {
        match fixture.sh(&format!("late-{attempt}"), "exit 4").next().await {
            Event::Started(_) => break,
            refused => assert_eq!(refused, Event::Failed(StartError::KeeperGone)),
        }
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        assert!(attempt < 30_000, "no new keeper");
    }
}

/// The agent of the next test: runs a family and waits to be killed.
#[test]
fn agent_process() {
    if !common::is_entry("agent_process") {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let host = Host::start(&common::entry("keeper_process", &[])).await.expect("the keeper starts");
        let log = PathBuf::from(std::env::var("TEST_LOG").expect("TEST_LOG"));
        let script = std::env::var("TEST_SCRIPT").expect("TEST_SCRIPT");
        let env = vec![("PATH".into(), "/usr/bin:/bin".into())];
        let argv = ["sh", "-c", &script].map(str::to_owned).to_vec();
        let (input, cwd) = (Input::Nothing, "/".into());
        let (makes_log_late, sandbox, starts, log_limits) = (false, None, None, None);
        let process = Process { argv, env, cwd, log, makes_log_late, sandbox, starts, input, log_limits };
        host.run(process, None, |_| {});
        std::future::pending::<()>().await;
    });
}

#[tokio::test]
async fn an_agent_killed_with_sigkill_leaves_no_process_behind() {
    let sleep = unique_sleep();
    let directory = tempfile::tempdir().expect("a directory");
    let log = directory.path().join("0.log");
    // SIGTERM is ignored, so that only SIGKILL can have ended them.
    let script = format!("trap '' TERM; {} wait", family(&sleep));
    let log_text = log.to_str().expect("text");
    let command = common::entry("agent_process", &[("TEST_LOG", log_text), ("TEST_SCRIPT", &script)]);
    let mut agent = std::process::Command::new(&command.program)
        .args(&command.args)
        .envs(command.env)
        .stdout(std::process::Stdio::null())
        .spawn()
        .expect("the agent starts");
    wait_for_family(&sleep).await;
    agent.kill().expect("it runs");
    agent.wait().expect("it was ours");
    wait_for("the end of all", || processes_with(&sleep).is_empty().then_some(())).await;
}
