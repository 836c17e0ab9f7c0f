//! Logs, exec and attach of real containers.

mod common;

use std::time::Duration;

use common::{PATIENCE, processes_with, unique_sleep, wait_for};
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use windlass_node::backoff::Limits;
use windlass_node::logs::{self, PodName};
use windlass_node::streams::Nodes;
use windlass_node::{Agent, Config};
use windlass_streams::{Chunks, Container, Error, Exec, LogOptions, PodStreams, Run, Session, Size, Streams};

#[test]
fn keeper_process() {
    common::keeper_entry("keeper_process");
}

struct Fixture {
    pods: Api<Pod>,
    nodes: Nodes,
    _agent: Agent,
    directory: TempDir,
}

async fn bytes(chunks: Chunks) -> Vec<u8> {
    let all = chunks.try_fold(Vec::new(), |mut all, piece| async move {
        all.extend_from_slice(&piece);
        Ok(all)
    });
    tokio::time::timeout(PATIENCE, all).await.expect("the end in time").expect("read")
}

async fn text(chunks: Chunks) -> String {
    String::from_utf8(bytes(chunks).await).expect("UTF-8")
}

impl Fixture {
    async fn new() -> Self {
        let accounts = windlass_apiserver::Accounts::Checked;
        let config = windlass_apiserver::Config { accounts, ..windlass_apiserver::Config::default() };
        let server = windlass_apiserver::Server::new(config);
        let client = kube::Client::new(server.router(), "default");
        let directory = tempfile::tempdir().expect("a directory");
        let mut config = Config::new(client.clone(), "here", directory.path());
        config.keeper = common::entry("keeper_process", &[]);
        config.work_dir = directory.path().to_owned();
        config.crash_backoff = Limits { base: Duration::from_millis(20), max: Duration::from_secs(1) };
        let agent = Agent::start(config).await.expect("the agent starts");
        let nodes = Nodes::of(std::slice::from_ref(&agent));
        Self { pods: Api::default_namespaced(client), nodes, _agent: agent, directory }
    }

    /// A pod that runs a script, and its container once it has written `ready` somewhere else than to its log.
    async fn pod(&self, name: &str, script: &str) -> Container {
        self.pod_with(name, script, &json!({})).await
    }

    /// The same, with more fields of the container.
    async fn pod_with(&self, name: &str, script: &str, more: &Value) -> Container {
        let ready = self.directory.path().join(format!("{name}-ready"));
        let script = format!("touch {}; {script}", ready.display());
        let mut container = json!({
            "name": "main", "image": "host", "command": ["sh", "-c", script],
            "env": [{"name": "GREETING", "value": "hello"}],
        });
        more.as_object().expect("fields").iter().for_each(|(name, value)| container[name] = value.clone());
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {
                "nodeName": "here", "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
                "containers": [container],
            },
        });
        let pod = serde_json::from_value(pod).expect("a pod");
        let pod = self.pods.create(&PostParams::default(), &pod).await.expect("created");
        wait_for("the container", || ready.exists().then_some(())).await;
        Container {
            node: "here".into(),
            namespace: "default".into(),
            pod: name.into(),
            uid: pod.metadata.uid.expect("a UID"),
            name: "main".into(),
        }
    }

    async fn log(&self, container: &Container, options: LogOptions) -> Chunks {
        let id = format!("host://{}/main/0", container.uid);
        self.nodes.logs(Run { container: container.clone(), id }, options).await.expect("a log").chunks
    }

    async fn exec(
        &self,
        container: &Container,
        command: &[&str],
        streams: Streams,
    ) -> Result<Session, Error> {
        let command = command.iter().map(|word| (*word).to_owned()).collect();
        self.nodes.exec(container.clone(), Exec { command, streams }).await
    }

    async fn sh(&self, container: &Container, script: &str) -> Session {
        self.exec(container, &["sh", "-c", script], ALL).await.expect("started")
    }
}

const ALL: Streams = Streams { stdin: true, stdout: true, stderr: true, tty: false };
const TERMINAL: Streams = Streams { stdin: true, stdout: true, stderr: false, tty: true };

async fn code(session: Session) -> Result<i32, Error> {
    tokio::time::timeout(PATIENCE, session.ended).await.expect("an end in time")
}

#[tokio::test]
async fn a_followed_log_ends_with_the_container_and_has_everything() {
    let fixture = Fixture::new().await;
    let go = fixture.directory.path().join("go");
    let script =
        format!("while ! test -e {}; do sleep 0.01; done; seq 20000; printf end; exit 3", go.display());
    let container = fixture.pod("p", &script).await;
    let log = fixture.log(&container, LogOptions { follow: true, ..LogOptions::default() }).await;
    let now = text(fixture.log(&container, LogOptions::default()).await).await;
    assert_eq!(now, "", "who does not follow does not wait");
    std::fs::write(go, "").expect("written");
    let want: String = (1..=20000).map(|number| format!("{number}\n")).chain(["end".to_owned()]).collect();
    assert!(text(log).await == want, "all of it, once");
    let tail = LogOptions { tail_lines: Some(2), follow: true, ..LogOptions::default() };
    assert_eq!(
        text(fixture.log(&container, tail).await).await,
        "20000\nend",
        "the log of a container that has ended"
    );
}

#[tokio::test]
async fn both_outputs_are_logged_in_their_order_with_the_times_of_their_lines() {
    let fixture = Fixture::new().await;
    let before = Timestamp::now();
    let script =
        "for i in 1 2 3; do echo out $i; echo err $i >&2; done; printf 'half '; sleep 0.2; echo line";
    let container = fixture.pod("p", script).await;
    let options = LogOptions { follow: true, timestamps: true, ..LogOptions::default() };
    let log = text(fixture.log(&container, options).await).await;
    let lines: Vec<(&str, &str)> = log.lines().map(|line| line.split_once(' ').expect("a time")).collect();
    let texts: Vec<&str> = lines.iter().map(|(_, text)| *text).collect();
    assert_eq!(texts, ["out 1", "err 1", "out 2", "err 2", "out 3", "err 3", "half line"]);
    let times: Vec<Timestamp> = lines.iter().map(|(time, _)| time.parse().expect("a time")).collect();
    assert!(times.is_sorted() && before <= times[0] && times[6] <= Timestamp::now(), "{log}");
    let since = LogOptions { since: Some(times[6]), ..LogOptions::default() };
    assert!(text(fixture.log(&container, since).await).await.ends_with("half line\n"));
    let later = LogOptions { since: Some(Timestamp::now()), ..LogOptions::default() };
    assert_eq!(text(fixture.log(&container, later).await).await, "");
}

#[tokio::test]
async fn a_command_runs_in_the_container_and_gives_its_code() {
    let fixture = Fixture::new().await;
    let container = fixture.pod("p", "sleep 1000").await;
    let mut session = fixture.sh(&container, "echo $GREETING; pwd; cat; echo oops >&2; exit 7").await;
    let mut stdin = session.stdin.take().expect("asked for");
    stdin.write_all(b"from the client\n").await.expect("written");
    drop(stdin);
    let stdout = std::mem::replace(&mut session.stdout, futures::stream::empty().boxed());
    let stderr = std::mem::replace(&mut session.stderr, futures::stream::empty().boxed());
    let here = fixture.directory.path().canonicalize().expect("a path");
    assert_eq!(text(stdout).await, format!("hello\n{}\nfrom the client\n", here.display()));
    assert_eq!(text(stderr).await, "oops\n");
    assert_eq!(code(session).await, Ok(7));
    let killed = fixture.sh(&container, "kill -9 $$").await;
    assert_eq!(code(killed).await, Ok(137));
}

#[tokio::test]
async fn output_of_any_size_arrives_and_waits_for_its_reader() {
    let fixture = Fixture::new().await;
    let container = fixture.pod("p", "sleep 1000").await;
    let mut session = fixture.sh(&container, "head -c 3000000 /dev/zero").await;
    let stdout = std::mem::replace(&mut session.stdout, futures::stream::empty().boxed());
    assert_eq!(bytes(stdout).await.len(), 3_000_000);
    assert_eq!(code(session).await, Ok(0));
}

#[tokio::test]
async fn a_terminal_is_the_one_of_its_session_and_has_a_size() {
    let fixture = Fixture::new().await;
    let container = fixture.pod("p", "sleep 1000").await;
    let script = "read go; stty size; tty </dev/tty >/dev/null && echo $TERM; echo oops >&2; exit 4";
    let mut session = fixture.exec(&container, &["sh", "-c", script], TERMINAL).await.expect("started");
    (session.resize)(Size { width: 123, height: 45 });
    session.stdin.as_mut().expect("asked for").write_all(b"go\n").await.expect("written");
    let stdout = std::mem::replace(&mut session.stdout, futures::stream::empty().boxed());
    assert_eq!(text(stdout).await, "go\r\n45 123\r\nxterm\r\noops\r\n");
    assert_eq!(code(session).await, Ok(4));
}

#[tokio::test]
async fn what_a_command_leaves_behind_does_not_keep_it_and_ends_with_the_container() {
    let fixture = Fixture::new().await;
    let container = fixture.pod("p", "sleep 1000").await;
    let (plain, hidden, waiting) = (unique_sleep(), unique_sleep(), unique_sleep());
    let script = format!("sleep {plain} & setsid sleep {hidden} & echo left");
    let mut session = fixture.sh(&container, &script).await;
    let stdout = std::mem::replace(&mut session.stdout, futures::stream::empty().boxed());
    assert_eq!(text(stdout).await, "left\n");
    assert_eq!(code(session).await, Ok(0));
    let cleared = ["env", "-i", "/bin/sleep", &waiting];
    let session = fixture.exec(&container, &cleared, ALL).await.expect("started");
    let all = || [&plain, &hidden, &waiting].map(|sleep| processes_with(sleep).len());
    wait_for("the processes", || (all() == [1, 1, 1]).then_some(())).await;
    fixture.pods.delete("p", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(code(session).await, Ok(137), "a command ends with its container");
    wait_for("the end of all", || (all() == [0, 0, 0]).then_some(())).await;
}

#[tokio::test]
async fn what_cannot_be_run_says_why() {
    let fixture = Fixture::new().await;
    let container = fixture.pod("p", "sleep 1000").await;
    let refused = |result: Result<Session, Error>| result.err().map(|error| error.to_string());
    let missing = fixture.exec(&container, &["no-such-program"], ALL).await;
    let want = "exec \"no-such-program\": No such file or directory (os error 2)";
    assert_eq!(refused(missing).as_deref(), Some(want));
    let elsewhere = Container { node: "there".into(), ..container.clone() };
    let want = "node \"there\" gives no logs and runs no commands for this server";
    assert_eq!(refused(fixture.exec(&elsewhere, &["true"], ALL).await).as_deref(), Some(want));
    let other = Container { name: "other".into(), ..container.clone() };
    let want = "container not found (\"other\")";
    assert_eq!(refused(fixture.exec(&other, &["true"], ALL).await).as_deref(), Some(want));
    assert_eq!(refused(fixture.nodes.attach(other, ALL).await).as_deref(), Some(want));
}

#[tokio::test]
async fn who_attaches_sees_what_comes_until_the_container_ends() {
    let fixture = Fixture::new().await;
    let go = fixture.directory.path().join("go");
    let script =
        format!("echo before; while ! test -e {}; do sleep 0.01; done; echo after; exit 5", go.display());
    let container = fixture.pod("p", &script).await;
    let before = fixture.log(&container, LogOptions { follow: true, ..LogOptions::default() }).await;
    let first = before.into_future().await.0.expect("a piece").expect("read");
    assert_eq!(first.as_ref(), b"before\n");
    let mut session = fixture.nodes.attach(container, ALL).await.expect("attached");
    std::fs::write(go, "").expect("written");
    let stdout = std::mem::replace(&mut session.stdout, futures::stream::empty().boxed());
    assert_eq!(text(stdout).await, "after\n");
    assert_eq!(code(session).await, Ok(0), "the code of the container is in its status");
}

#[tokio::test]
async fn the_streams_of_an_agent_end_with_it() {
    let fixture = Fixture::new().await;
    let container = fixture.pod("p", "echo here; sleep 1000").await;
    let log = fixture.log(&container, LogOptions { follow: true, ..LogOptions::default() }).await;
    let (first, log) = log.into_future().await;
    assert_eq!(first.expect("a piece").expect("read").as_ref(), b"here\n");
    let Fixture { _agent, nodes, .. } = fixture;
    drop(_agent);
    assert_eq!(text(log).await, "");
    let gone = wait_for_error(&nodes, &container).await;
    assert_eq!(gone, Error::NoNode("here".into()));
}

async fn wait_for_error(nodes: &Nodes, container: &Container) -> Error {
    loop {
        match nodes.attach(container.clone(), ALL).await {
            Err(error @ Error::NoNode(_)) => return error,
            Ok(_) | Err(_) => tokio::time::sleep(Duration::from_millis(2)).await,
        }
    }
}

/// Sends a text to a container, and waits for what it says to it.
async fn tell(session: &mut Session, text: &str, want: &str) {
    let stdin = session.stdin.as_mut().expect("an input");
    stdin.write_all(text.as_bytes()).await.expect("taken");
    let mut seen = String::new();
    while !seen.contains(want) {
        let piece = tokio::time::timeout(PATIENCE, session.stdout.next()).await.expect("an answer in time");
        let piece = piece.unwrap_or_else(|| panic!("no {want:?} in {seen:?}")).expect("read");
        seen.push_str(std::str::from_utf8(&piece).expect("UTF-8"));
    }
    assert_eq!(seen, want);
}

#[tokio::test]
async fn a_container_reads_what_those_send_who_attach_one_after_the_other() {
    let fixture = Fixture::new().await;
    let container = fixture.pod_with("p", "cat", &json!({"stdin": true})).await;
    for text in ["one\n", "two\n"] {
        let mut session = fixture.nodes.attach(container.clone(), ALL).await.expect("attached");
        tell(&mut session, text, text).await;
    }
    // Who closes their input does not close that of the container.
    let mut session = fixture.nodes.attach(container.clone(), ALL).await.expect("attached");
    drop(session.stdin.take());
    let mut other = fixture.nodes.attach(container.clone(), ALL).await.expect("attached");
    tell(&mut other, "three\n", "three\n").await;
    // Who does not ask for input has none.
    let only_output = Streams { stdin: false, ..ALL };
    assert!(fixture.nodes.attach(container.clone(), only_output).await.expect("attached").stdin.is_none());
    let log = fixture.log(&container, LogOptions::default()).await;
    assert_eq!(text(log).await, "one\ntwo\nthree\n", "what it printed is in its log");
    fixture.pods.delete("p", &DeleteParams::default()).await.expect("deleted");
    assert_eq!(session.ended.await, Ok(0));
}

#[tokio::test]
async fn an_input_for_once_ends_with_the_first_who_attached() {
    let fixture = Fixture::new().await;
    let fields = json!({"stdin": true, "stdinOnce": true});
    for leaves in [false, true] {
        let name = format!("leaves-{leaves}");
        let container = fixture.pod_with(&name, "cat; echo end", &fields).await;
        let mut session = fixture.nodes.attach(container.clone(), ALL).await.expect("attached");
        tell(&mut session, "one\n", "one\n").await;
        match leaves {
            true => drop(session),
            false => drop(session.stdin.take()),
        }
        let log = fixture.log(&container, LogOptions { follow: true, ..LogOptions::default() }).await;
        assert_eq!(text(log).await, "one\nend\n", "{name}: it comes to its end");
    }
}

#[tokio::test]
async fn a_container_without_an_input_reads_its_end_at_once() {
    let fixture = Fixture::new().await;
    let container = fixture.pod("p", "cat; echo end; exec sleep 1000").await;
    let session = fixture.nodes.attach(container.clone(), ALL).await.expect("attached");
    assert!(session.stdin.is_none());
    let mut log = fixture.log(&container, LogOptions { follow: true, ..LogOptions::default() }).await;
    assert_eq!(log.next().await.expect("output").expect("read"), "end\n");
}

#[tokio::test]
async fn a_container_with_a_terminal_has_its_size_and_its_lines() {
    let fixture = Fixture::new().await;
    let script = "stty -echo; until [ \"$(stty size)\" = '25 80' ]; do sleep 0.01; done; tty -s && echo $TERM; \
                  read line; echo got $line";
    let container = fixture.pod_with("p", script, &json!({"stdin": true, "tty": true})).await;
    let terminal = Streams { stderr: false, tty: true, ..ALL };
    let mut session = fixture.nodes.attach(container.clone(), terminal).await.expect("attached");
    (session.resize)(Size { width: 80, height: 25 });
    tell(&mut session, "", "xterm\r\n").await;
    tell(&mut session, "hello\n", "got hello\r\n").await;
    assert_eq!(session.ended.await, Ok(0));
    let log = fixture.log(&container, LogOptions::default()).await;
    assert_eq!(text(log).await, "xterm\r\ngot hello\r\n");
}

#[tokio::test]
async fn logs_of_the_newest_two_runs_are_kept() {
    let fixture = Fixture::new().await;
    let runs = fixture.directory.path().join("runs");
    let script =
        format!("echo run; echo >> {0}; [ $(wc -l < {0}) -ge 4 ] && exec sleep 1000", runs.display());
    let pod = json!({
        "metadata": {"name": "p"},
        "spec": {"nodeName": "here", "terminationGracePeriodSeconds": 1, "containers": [{
            "name": "main", "image": "host", "command": ["sh", "-c", script],
        }]},
    });
    let pod = serde_json::from_value(pod).expect("a pod");
    let pod = fixture.pods.create(&PostParams::default(), &pod).await.expect("created");
    let uid = pod.metadata.uid.expect("a UID");
    let name = PodName { namespace: "default", name: "p", uid: &uid };
    let log = |run| logs::path(&fixture.directory.path().join("logs"), name, "main", run);
    let text = |run| std::fs::read_to_string(log(run)).ok();
    wait_for("the fourth run", || text(3).filter(|text| text == "run\n")).await;
    let run = Some("run\n".to_owned());
    assert_eq!([0, 1, 2, 3].map(text), [Some(String::new()), Some(String::new()), run.clone(), run]);
}
