//! `kubectl logs`, `exec` and `attach` with the real kubectl.

use std::fs::File;
use std::path::Path;

use rustix::process::Signal;

use crate::node;
use crate::real_kubectl::{Kubectl, each};
use crate::server::Served;
use crate::support::{Ran, Running, wait_for_file, wait_until};
use crate::terminal::Terminal;

/// `talker` prints three lines, then a tick every now and then until there is the file `go`. `pair` has two containers.
fn pods(directory: &Path) -> String {
    let (go, ready) = (directory.join("go"), directory.join("ready"));
    format!(
        r#"
apiVersion: v1
kind: Pod
metadata: {{name: talker}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: host
    env: [{{name: GREETING, value: hello}}]
    command: [sh, -c, "echo one; echo two >&2; echo three; touch {ready}; until test -e {go}; do sleep 0.1; done; echo last"]
---
apiVersion: v1
kind: Pod
metadata: {{name: pair, labels: {{app: pair}}}}
spec:
  restartPolicy: Never
  terminationGracePeriodSeconds: 1
  containers:
  - {{name: a, image: host, command: [echo, from a]}}
  - {{name: b, image: host, command: [sh, -c, "echo from b; sleep 1000"]}}
---
apiVersion: v1
kind: Pod
metadata: {{name: ticker}}
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: host
    command: [sh, -c, "until test -e {go}; do echo tick; sleep 0.1; done; echo last; exit 3"]
"#,
        ready = ready.display(),
        go = go.display(),
    )
}

fn said(ran: &Ran) -> (Option<i32>, &str, &str) {
    (ran.code, ran.stdout.as_str(), ran.stderr.as_str())
}

#[test]
fn logs_are_those_of_the_container_in_every_cut() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let both = each(directory.path());
    both[0].apply(&pods(directory.path()));
    wait_for_file(&directory.path().join("ready"));
    for kubectl in &both {
        kubectl.must(&["wait", "--for=condition=Ready", "pod/talker", "pod/ticker", "--timeout=60s"]);
        kubectl.must(&[
            "wait",
            "--for=jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=0",
            "pod/pair",
        ]);
        for (args, stdout, stderr) in [
            (vec!["talker"], "one\ntwo\nthree\n", ""),
            (vec!["pod/talker", "-c", "main"], "one\ntwo\nthree\n", ""),
            (vec!["talker", "--tail=1"], "three\n", ""),
            (vec!["talker", "--tail=2"], "two\nthree\n", ""),
            (vec!["talker", "--tail=0"], "", ""),
            (vec!["talker", "--limit-bytes=5"], "one\nt", ""),
            (vec!["talker", "--since=1h"], "one\ntwo\nthree\n", ""),
            (vec!["talker", "--since-time=2100-01-01T00:00:00Z"], "", ""),
            (vec!["pair", "-c", "b"], "from b\n", ""),
            (vec!["pair"], "from a\n", "Defaulted container \"a\" out of: a, b\n"),
        ] {
            let ran = kubectl.run(&[vec!["logs"], args.clone()].concat());
            assert_eq!(said(&ran), (Some(0), stdout, stderr), "{} {args:?}", kubectl.name());
        }
        // kubectl asks for several containers in no order.
        for (args, want) in [
            (vec!["logs", "pair", "--all-containers"], ["from a", "from b"]),
            (
                vec!["logs", "-l", "app=pair", "--all-containers", "--prefix"],
                ["[pod/pair/a] from a", "[pod/pair/b] from b"],
            ),
        ] {
            let printed = kubectl.must(&args);
            let mut lines: Vec<&str> = printed.lines().collect();
            lines.sort_unstable();
            assert_eq!(lines, want, "{} {args:?}", kubectl.name());
        }
        let stamped = kubectl.must(&["logs", "talker", "--timestamps"]);
        for (line, want) in stamped.lines().zip(["one", "two", "three"]) {
            let (time, text) = line.split_once(' ').expect("a time");
            assert_eq!((text, time.len()), (want, "2026-11-16T00:17:24.914663345Z".len()), "{stamped}");
            time.parse::<jiff::Timestamp>().expect("a time");
        }
        let ran = kubectl.run(&["logs", "talker", "--previous"]);
        let want = "Error from server (BadRequest): previous terminated container \"main\" in pod \"talker\" not found\n";
        assert_eq!(said(&ran), (Some(1), "", want));
        let ran = kubectl.run(&["logs", "talker", "-c", "other"]);
        assert_eq!(
            (ran.code, ran.stderr.contains("container other is not valid for pod talker")),
            (Some(1), true)
        );
    }
    let followers: Vec<_> =
        both.iter().map(|kubectl| Running::spawn(&mut kubectl.command(&["logs", "-f", "talker"]))).collect();
    std::fs::write(directory.path().join("go"), "").expect("written");
    for follower in followers {
        assert_eq!(
            said(&follower.finish()),
            (Some(0), "one\ntwo\nthree\nlast\n", ""),
            "it ends with the container"
        );
    }
    drop(served);
}

#[test]
fn commands_run_in_containers_and_give_their_exit_codes() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let both = each(directory.path());
    both[0].apply(&pods(directory.path()));
    for kubectl in &both {
        kubectl.must(&["wait", "--for=condition=Ready", "pod/talker", "--timeout=60s"]);
        kubectl.must(&[
            "wait",
            "--for=jsonpath={.status.containerStatuses[0].state.terminated.exitCode}=0",
            "pod/pair",
        ]);
        let script = "echo $GREETING; echo oops >&2; exit 3";
        let ran = kubectl.run(&["exec", "talker", "--", "sh", "-c", script]);
        assert_eq!(
            said(&ran),
            (Some(3), "hello\n", "oops\ncommand terminated with exit code 3\n"),
            "{}",
            kubectl.name()
        );
        let input: String = (0..20_000).map(|number| format!("{number}\n")).collect();
        let ran = kubectl.run_with(&["exec", "-i", "talker", "--", "cat"], &input);
        assert!((ran.code, ran.stdout == input) == (Some(0), true), "{}: {}", kubectl.name(), ran.stderr);
        for (args, want) in [
            (
                vec!["talker", "--", "no-such-program"],
                "error: Internal error occurred: error executing command in container: exec \"no-such-program\": No such \
                 file or directory (os error 2)\n",
            ),
            (
                vec!["pair", "-c", "a", "--", "true"],
                "error: Internal error occurred: unable to upgrade connection: container not found (\"a\")\n",
            ),
        ] {
            let ran = kubectl.run(&[vec!["exec"], args.clone()].concat());
            assert_eq!(said(&ran), (Some(1), "", want), "{} {args:?}", kubectl.name());
        }
        let mut spdy = kubectl.command(&["exec", "talker", "--", "true"]);
        let ran = Running::spawn(spdy.env("KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "false")).finish();
        let want = "exec and attach are served over WebSocket (v5.channel.k8s.io), not over SPDY/3.1; use kubectl 1.31 or newer\n";
        assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""), "{}", kubectl.name());
        assert!(ran.stderr.ends_with(want), "{}: {}", kubectl.name(), ran.stderr);
        // The size comes as a message of its own, when the program runs already.
        let script = "while [ \"$(stty size)\" = '0 0' ]; do sleep 0.01; done; stty size; tty -s; exit $?";
        let (code, drawn) = on_terminal(kubectl, &["exec", "-it", "talker", "--", "sh", "-c", script]);
        assert_eq!((code, drawn.as_str()), (Some(0), "40 123\r\n"), "{}", kubectl.name());
    }
    drop(served);
}

/// Runs kubectl on a terminal of 40 rows and 123 columns.
fn on_terminal(kubectl: &Kubectl, args: &[&str]) -> (Option<i32>, String) {
    let terminal = Terminal::open(123);
    let mut command = kubectl.command(args);
    command.stdin(terminal.stream()).stdout(terminal.stream()).stderr(terminal.stream());
    terminal.run(command)
}

#[test]
fn who_attaches_sees_the_rest_of_what_a_container_prints() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let both = each(directory.path());
    both[0].apply(&pods(directory.path()));
    both[0].must(&["wait", "--for=condition=Ready", "pod/ticker", "--timeout=60s"]);
    let files = ["newest", "older"].map(|name| directory.path().join(name));
    let attached: Vec<_> = both
        .iter()
        .zip(&files)
        .map(|(kubectl, file)| {
            let output = File::create(file).expect("a file");
            Running::spawn_silent(&mut kubectl.command(&["attach", "ticker"]), output)
        })
        .collect();
    for file in &files {
        wait_until("a tick", || {
            std::fs::read_to_string(file).is_ok_and(|text| text.contains("tick")).then_some(())
        });
    }
    std::fs::write(directory.path().join("go"), "").expect("written");
    for (running, file) in attached.into_iter().zip(&files) {
        assert_eq!(running.finish().code, Some(0));
        let seen = std::fs::read_to_string(file).expect("a file");
        assert_eq!(seen.replace("tick\n", ""), "last\n", "ticks, and the last word");
    }
    drop(served);
}

#[test]
fn a_node_in_a_process_of_its_own_gives_logs_and_runs_commands() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let node = node::with_token(directory.path(), &node::token(directory.path()), "two");
    let [kubectl, ..] = each(directory.path());
    kubectl.apply(&pods(directory.path()));
    kubectl.must(&["wait", "--for=condition=Ready", "pod/talker", "pod/ticker", "--timeout=60s"]);
    wait_for_file(&directory.path().join("ready"));
    assert_eq!(kubectl.must(&["logs", "talker", "--tail=2"]), "two\nthree\n");
    let script = "echo $GREETING; echo oops >&2; exit 3";
    let ran = kubectl.run(&["exec", "talker", "--", "sh", "-c", script]);
    assert_eq!(said(&ran), (Some(3), "hello\n", "oops\ncommand terminated with exit code 3\n"));
    let input: String = (0..100_000).map(|number| format!("{number}\n")).collect();
    let ran = kubectl.run_with(&["exec", "-i", "talker", "--", "cat"], &input);
    assert!((ran.code, ran.stdout == input) == (Some(0), true), "{}", ran.stderr);
    let ran = kubectl.run(&["exec", "talker", "--", "no-such-program"]);
    let want = "error: Internal error occurred: error executing command in container: exec \"no-such-program\": No such \
                file or directory (os error 2)\n";
    assert_eq!(said(&ran), (Some(1), "", want));
    let script = "while [ \"$(stty size)\" = '0 0' ]; do sleep 0.01; done; stty size";
    let (code, drawn) = on_terminal(&kubectl, &["exec", "-it", "talker", "--", "sh", "-c", script]);
    assert_eq!((code, drawn.as_str()), (Some(0), "40 123\r\n"));
    // Many at once: each has a connection of its own.
    let sessions: Vec<_> = (0..10)
        .map(|number| {
            Running::spawn(&mut kubectl.command(&["exec", "talker", "--", "echo", &number.to_string()]))
        })
        .collect();
    for (session, number) in sessions.into_iter().zip(0..) {
        assert_eq!(said(&session.finish()), (Some(0), format!("{number}\n").as_str(), ""));
    }
    let seen = directory.path().join("seen");
    let output = File::create(&seen).expect("a file");
    let attached = Running::spawn_silent(&mut kubectl.command(&["attach", "ticker"]), output);
    wait_until("a tick", || {
        std::fs::read_to_string(&seen).is_ok_and(|text| text.contains("tick")).then_some(())
    });
    let follower = Running::spawn(&mut kubectl.command(&["logs", "-f", "talker"]));
    std::fs::write(directory.path().join("go"), "").expect("written");
    assert_eq!(
        said(&follower.finish()),
        (Some(0), "one\ntwo\nthree\nlast\n", ""),
        "it ends with the container"
    );
    assert_eq!(attached.finish().code, Some(0));
    let seen = std::fs::read_to_string(seen).expect("a file");
    assert_eq!(seen.replace("tick\n", ""), "last\n", "ticks, and the last word");
    // Without the node there is nobody to ask; the server says so and goes on.
    node.signal(Signal::KILL);
    node.finish();
    let ran = kubectl.run(&["logs", "talker"]);
    let want = "Error from server (ServiceUnavailable): node \"two\" gives no logs and runs no commands for this server\n";
    assert_eq!(said(&ran), (Some(1), "", want));
    // The next process of the node has the log where it was.
    let node = node::with_token(directory.path(), &node::token(directory.path()), "two");
    assert_eq!(kubectl.must(&["logs", "talker", "--tail=1"]), "last\n");
    drop((node, served));
}

#[test]
fn what_is_typed_reaches_a_container_that_reads() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let node = node::with_token(directory.path(), &node::token(directory.path()), "two");
    let [kubectl, ..] = each(directory.path());
    kubectl.apply(
        "{apiVersion: batch/v1, kind: Job, metadata: {name: reader}, spec: {template: {spec: {
            restartPolicy: Never,
            containers: [{name: c, image: host, command: [sh, -c, 'cat; echo end'], stdin: true, stdinOnce: true}],
        }}}}",
    );
    let ready = "--for=jsonpath={.status.ready}=1";
    kubectl.must(&["wait", ready, "job/reader", "--timeout=60s"]);
    let ran = kubectl.run_with(&["attach", "-q", "-i", "job/reader"], "hello\n");
    assert_eq!(said(&ran), (Some(0), "hello\nend\n", ""));
    kubectl.must(&["wait", "--for=condition=Complete", "job/reader", "--timeout=60s"]);
    // kubectl makes a pod that reads, sends it what there is, and removes it.
    let args = [
        "run",
        "once",
        "-q",
        "-i",
        "--rm",
        "--restart=Never",
        "--image=host",
        "--command",
        "--",
        "sh",
        "-c",
        "while read line; do echo got $line; done; exit 3",
    ];
    let ran = kubectl.run_with(&args, "one\ntwo\n");
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(3), "got one\ngot two\n"), "{}", ran.stderr);
    assert_eq!(kubectl.must(&["get", "pods", "--field-selector=metadata.name=once", "-o", "name"]), "");
    drop((node, served));
}

#[test]
fn a_flood_of_output_is_held_and_the_last_of_it_is_read_in_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let limits = ["--container-log-max-size", "100Ki", "--container-log-max-files", "3"];
    let served = Served::start(directory.path(), &limits);
    let [kubectl, ..] = each(directory.path());
    let go = directory.path().join("go");
    let script = format!("until test -e {}; do sleep 0.05; done; seq -w 1000000; echo end", go.display());
    kubectl.apply(&format!(
        "{{apiVersion: v1, kind: Pod, metadata: {{name: flood}}, spec: {{restartPolicy: Never, containers: [
            {{name: c, image: host, command: [sh, -c, \"{script}\"]}}]}}}}"
    ));
    kubectl.must(&["wait", "--for=condition=Ready", "pod/flood", "--timeout=60s"]);
    let follower = Running::spawn(&mut kubectl.command(&["logs", "-f", "flood"]));
    std::fs::write(go, "").expect("written");
    kubectl.must(&["wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/flood", "--timeout=60s"]);
    let lines = |text: &str| -> Vec<u32> {
        let (numbers, end) = text.trim_end().rsplit_once('\n').expect("lines");
        assert_eq!(end, "end");
        numbers.lines().map(|line| line.parse().expect("a number")).collect()
    };
    let kept = lines(&kubectl.must(&["logs", "flood"]));
    assert_eq!(kept.last(), Some(&1_000_000));
    assert!(kept.windows(2).all(|pair| pair[1] == pair[0] + 1), "nothing is missing in what is kept");
    assert!(kept.len() * 8 > 200 << 10 && kept.len() * 8 < 600 << 10, "{} lines of 8 bytes", kept.len());
    let tail = lines(&kubectl.must(&["logs", "flood", "--tail=20000"]));
    assert_eq!(tail, ((1_000_000 - 19_998)..=1_000_000).collect::<Vec<u32>>(), "over more than one file");
    // Who follows is not waited for, but sees what they see in its order.
    let followed = lines(&follower.finish().stdout);
    assert!(followed.windows(2).all(|pair| pair[0] < pair[1]));
    drop(served);
}
