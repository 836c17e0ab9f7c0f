// What holds for containers of images, whichever runtime makes them: `RUNTIME`, which who includes this says.

use super::*;

#[tokio::test]
async fn a_container_of_an_image_ends_with_its_exit_code() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    for (name, text, want) in [
        ("good", "echo out; echo err >&2", "c Completed 0 restarts=0"),
        ("bad", "exit 42", "c Error 42 restarts=0"),
        ("child", "sh -c 'kill -9 $$$$'; exit $?", "c Error 137 restarts=0"),
    ] {
        fixture.create(name, never(json!([script(text)]))).await;
        let pod = fixture.ended(name).await;
        assert_eq!(ends(&pod), [want], "{name}: {}", log(&fixture, &pod));
    }
    let good = fixture.ended("good").await;
    let (said, mut lines) = (log(&fixture, &good), vec!["out", "err"]);
    let mut got: Vec<&str> = said.lines().collect();
    if RUNTIME == Kind::Runc {
        // It has a pipe for each, and passes on what comes first.
        got.sort_unstable();
        lines.sort_unstable();
    }
    assert_eq!(got, lines);
    let container = &status(&good).container_statuses.as_ref().expect("statuses")[0];
    assert!(container.image_id.starts_with("docker.io/test/busybox@sha256:"), "{container:?}");
}

#[tokio::test]
async fn what_the_image_says_is_what_runs_unless_the_pod_says_otherwise() {
    let run = json!({
        "Entrypoint": ["sh", "-c", "echo $0 $A $(pwd) $(id -u):$(id -g):$(id -G)"], "Cmd": ["cmd"],
        "Env": ["A=image", "PATH=/bin"], "WorkingDir": "/tmp", "User": "web",
    });
    let (fixture, _kept) = node_with(RUNTIME, &busybox(run)).await;
    // Who is not root can't give groups.
    let groups = if is_user() { "34" } else { "34 40" };
    for (name, changes, want) in [
        ("image", json!({}), format!("cmd image /tmp 33:34:{groups}\n")),
        ("args", json!({"args": ["arg"]}), format!("arg image /tmp 33:34:{groups}\n")),
        (
            "all",
            json!({
                "command": ["sh", "-c", "echo $0 $A $(pwd) $(id -u):$(id -g)", "own"], "env": [{"name": "A", "value": "pod"}],
                "workingDir": "/etc", "securityContext": {"runAsUser": 7, "runAsGroup": 8},
            }),
            "own pod /etc 7:8\n".to_owned(),
        ),
    ] {
        let mut container = json!({"name": "c", "image": "test/busybox:1"});
        container.as_object_mut().expect("an object").extend(changes.as_object().expect("an object").clone());
        fixture.create(name, never(json!([container]))).await;
        let pod = fixture.ended(name).await;
        assert_eq!(
            (log(&fixture, &pod), ends(&pod)),
            (want, vec!["c Completed 0 restarts=0".into()]),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_container_sees_its_own_files_and_volumes_and_nothing_of_the_machine() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let machine = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(machine.path().join("part")).expect("made");
    std::fs::write(machine.path().join("part/file"), "part").expect("written");
    std::os::unix::fs::symlink("/etc", machine.path().join("link")).expect("linked");
    let text = "set -e; cat /etc/hostname; grep -c pod1 /etc/hosts || true; test -e /etc/resolv.conf; echo new > /old; cat /old; \
                echo a > /data/a; cat /part/file; test ! -e /etc/shadow; test ! -e /usr; ls /proc | head -1; \
                echo said > /dev/termination-log; if touch /ro/x 2>/dev/null; then exit 9; fi; test -w /dev/null; hostname; exit 3";
    let mut container = script(text);
    container["volumeMounts"] = json!([
        {"name": "empty", "mountPath": "/data"},
        {"name": "host", "mountPath": "/part", "subPath": "part"},
        {"name": "host", "mountPath": "/ro", "readOnly": true},
    ]);
    let mut spec = never(json!([container]));
    spec["volumes"] =
        json!([{"name": "empty", "emptyDir": {}}, {"name": "host", "hostPath": {"path": machine.path()}}]);
    fixture.create("pod1", spec.clone()).await;
    let pod = fixture.ended("pod1").await;
    let said = log(&fixture, &pod);
    assert_eq!(ends(&pod), ["c Error 3 restarts=0"], "{said}");
    assert!(
        said.starts_with("pod1\n") && said.contains("new\npart1\n") && said.ends_with("pod1\n"),
        "{said}"
    );
    let end = status(&pod).container_statuses.as_ref().expect("statuses")[0].state.clone().expect("a state");
    assert_eq!(end.terminated.expect("ended").message.as_deref(), Some("said\n"));

    // A part of a volume that leads out of it is never mounted.
    spec["containers"][0]["volumeMounts"][1]["subPath"] = json!("link");
    fixture.create("pod2", spec).await;
    let pod = fixture.ended("pod2").await;
    assert_eq!(ends(&pod), ["c StartError 128 restarts=0"]);
    let end = status(&pod).container_statuses.as_ref().expect("statuses")[0].state.clone().expect("a state");
    let message = end.terminated.expect("ended").message.unwrap_or_default();
    let begin = format!("set up the container: mount {} at ", machine.path().display());
    // EXDEV: it would have led out.
    assert!(message.starts_with(&begin) && message.ends_with("(os error 18)"), "{message}");
}

#[tokio::test]
async fn the_security_context_is_kept() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let shown = "cat /proc/self/status | while read a b; do case $a in CapEff:|NoNewPrivs:|Seccomp:) echo $a $b;; esac; done; \
                 if touch /x; then echo writable; fi; if mount -t tmpfs x /tmp; then echo mounted; fi; true";
    for (name, context, want) in [
        ("default", json!({}), "CapEff: 00000000a00425fb\nNoNewPrivs: 0\nSeccomp: 0\nwritable\n"),
        (
            "strict",
            json!({
                "capabilities": {"drop": ["ALL"]}, "allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true,
                "seccompProfile": {"type": "RuntimeDefault"},
            }),
            "CapEff: 0000000000000000\nNoNewPrivs: 1\nSeccomp: 2\n",
        ),
        (
            "filtered",
            json!({"capabilities": {"drop": ["ALL"], "add": ["SYS_ADMIN"]}, "seccompProfile": {"type": "RuntimeDefault"}}),
            "CapEff: 0000000000200000\nNoNewPrivs: 0\nSeccomp: 2\nwritable\n",
        ),
    ] {
        let mut container = script(&format!("{{ {shown}; }} 2>/dev/null"));
        container["securityContext"] = context;
        fixture.create(name, never(json!([container]))).await;
        let pod = fixture.ended(name).await;
        assert_eq!(log(&fixture, &pod), want, "{name} {:?}", ends(&pod));
    }
}

#[tokio::test]
async fn a_privileged_container_has_all_capabilities_that_there_are() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let mut container = script("grep CapEff /proc/self/status");
    container["securityContext"] = json!({"privileged": true});
    fixture.create("p", never(json!([container]))).await;
    let pod = fixture.ended("p").await;
    let own = match is_user() {
        // Root of a user namespace has all that the kernel knows.
        true => {
            let last = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").expect("readable");
            let last: u32 = last.trim().parse().expect("a number");
            format!("CapEff:\t{:016x}", (2_u64 << last) - 1)
        }
        false => {
            let own = std::fs::read_to_string("/proc/self/status").expect("readable");
            own.lines().find(|line| line.starts_with("CapBnd")).expect("a line").replace("CapBnd", "CapEff")
        }
    };
    let got = (log(&fixture, &pod), ends(&pod));
    assert_eq!(got, (format!("{own}\n"), vec!["c Completed 0 restarts=0".to_owned()]));
}

#[tokio::test]
async fn a_container_that_needs_more_memory_than_it_may_have_is_killed_for_it() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let mut container = script("dd if=/dev/zero of=/dev/null bs=64M count=1; exit $?");
    container["resources"] = json!({"limits": {"memory": "24Mi"}});
    fixture.create("p", never(json!([container]))).await;
    let pod = fixture.ended("p").await;
    assert_eq!(ends(&pod), ["c OOMKilled 137 restarts=0"], "{}", log(&fixture, &pod));
}

#[tokio::test]
async fn a_container_that_writes_more_than_it_may_is_evicted() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let mut container = script("dd if=/dev/zero of=/large bs=1M count=4; sleep 1000");
    container["resources"] = json!({"limits": {"ephemeral-storage": "1Mi"}});
    fixture.create("p", never(json!([container]))).await;
    let pod = fixture.ended("p").await;
    let status = status(&pod);
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    let want = "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ";
    assert_eq!(status.message.as_deref(), Some(want));
}

#[tokio::test]
async fn a_deleted_pod_gets_its_grace_and_nothing_of_it_is_left() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({"StopSignal": "SIGQUIT"}))).await;
    let sleep = unique_sleep();
    for (name, text, want) in [
        ("listens", format!("trap 'exit 5' QUIT; sleep {sleep} & echo ready; wait"), "c Error 5 restarts=0"),
        ("does-not", format!("trap '' QUIT; sleep {sleep} & echo ready; wait"), "c Error 137 restarts=0"),
    ] {
        let mut spec = never(json!([script(&text)]));
        spec["terminationGracePeriodSeconds"] = json!(1);
        fixture.create(name, spec).await;
        let pod = fixture.running(name).await;
        wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
        let (_, last) = fixture.watch(name, true, |pod| pod.is_none_or(|pod| phase(pod) == "Failed")).await;
        assert_eq!(ends(&last.expect("still there")), [want], "{name}");
        assert_eq!(processes_with(&sleep), [0; 0], "{name}");
        let uid = pod.metadata.uid.as_deref().expect("a uid");
        let at = |place: &str| fixture.directory.path().join(place).join(uid);
        let left = [at("pods").join("oci/c.0"), at("run").join("c.0")];
        wait_for("its files to go", || (!left.iter().any(|path| path.exists())).then_some(())).await;
    }
}

#[tokio::test]
async fn what_a_container_needs_only_while_it_runs_can_be_in_memory_and_what_it_writes_is_not() {
    let layout = tempfile::tempdir().expect("a directory");
    write_layout(layout.path(), "test/busybox:1", &busybox(json!({})));
    let settings = Settings { image_dirs: vec![layout.path().to_owned()], ..Settings::default() };
    let memory = tempfile::tempdir_in(memory::directory().expect("memory")).expect("a directory");
    let (fixture, _, _kept) =
        node_that(RUNTIME, settings, |config| config.run_dir = memory.path().join("here")).await;
    // A megabyte may be added to these files, not more.
    let full = "echo mine > /etc/hosts || exit 8; head -c 3000000 /dev/zero > /etc/hosts && exit 9; \
                head -c 3000000 /dev/zero > /written; echo ready; while :; do sleep 0.01; done";
    let mut spec = never(json!([script(full)]));
    spec["terminationGracePeriodSeconds"] = json!(0);
    fixture.create("p", spec).await;
    let pod = fixture.running("p").await;
    wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
    let uid = pod.metadata.uid.as_deref().expect("a uid");
    let of_pod = memory.path().join("here").join(uid);
    assert!(of_pod.join("c.0/config.json").is_file());
    // Mounts are seen by the container only.
    let taken = Command::new("du").arg("-sk").arg(&of_pod).output().expect("du is there").stdout;
    let taken: u64 = String::from_utf8_lossy(&taken).split('\t').next().expect("a number").parse().expect("one");
    assert!(taken < 100, "{taken} KiB");
    let written = fixture.directory.path().join("pods").join(uid).join("oci/c.0/upper/written");
    assert_eq!(std::fs::metadata(written).expect("written").len(), 3_000_000);
    fixture.pods.delete("p", &DeleteParams::default().grace_period(0)).await.expect("deleted");
    wait_for("its files to go", || (!of_pod.exists()).then_some(())).await;
    fixture.agent.shutdown(Duration::ZERO).await;
    assert_eq!(std::fs::read_dir(memory.path()).expect("a directory").count(), 0, "nothing is left");
}

#[tokio::test]
async fn containers_die_with_their_agent() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let sleep = unique_sleep();
    // Its own session, and an environment that says nothing: only the kernel can still know whose it is.
    fixture
        .create("p", never(json!([script(&format!("exec env -i sh -c 'sleep {sleep} & echo ready; wait'"))])))
        .await;
    let pod = fixture.running("p").await;
    wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
    assert!(!processes_with(&sleep).is_empty());
    drop(fixture);
    wait_for("the processes to go", || processes_with(&sleep).is_empty().then_some(())).await;
}

#[tokio::test]
async fn hooks_and_probes_run_in_the_container() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let mut container = script(
        "while ! test -s /hook; do sleep 0.01; done; cat /hook; while ! test -e /probed; do sleep 0.01; done; exit 4",
    );
    container["lifecycle"] =
        json!({"postStart": {"exec": {"command": ["sh", "-c", "echo $HOSTNAME > /hook"]}}});
    container["readinessProbe"] =
        json!({"exec": {"command": ["touch", "/probed"]}, "periodSeconds": 1, "timeoutSeconds": 60});
    fixture.create("hooked", never(json!([container]))).await;
    let pod = fixture.ended("hooked").await;
    assert_eq!((log(&fixture, &pod).as_str(), ends(&pod)), ("hooked\n", vec!["c Error 4 restarts=0".into()]));
}

/// What a script prints that joins the container of a pod, and how it ends.
async fn joined(fixture: &Fixture, pod: &Pod, script: &str, tty: bool) -> (String, Result<i32, windlass_streams::Error>) {
    let nodes = Nodes::of(std::slice::from_ref(&fixture.agent));
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    let streams = Streams { stdout: true, tty, ..Streams::default() };
    let session = nodes.exec(seen(pod), Exec { command, streams }).await.expect("it starts");
    let said = session.stdout.try_fold(Vec::new(), async |all, piece| Ok([all, piece.to_vec()].concat()));
    let (said, ended) = tokio::join!(said, session.ended);
    let said = String::from_utf8(said.expect("read")).expect("text");
    let said = match RUNTIME {
        Kind::Crun | Kind::Youki => said,
        // It lets the process begin and then changes its terminal: lines that were printed before have one return more.
        Kind::Runc => said.replace("\r\r\n", "\r\n"),
    };
    (said, ended)
}

#[tokio::test]
async fn a_process_joins_a_container_with_and_without_a_terminal() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({"Env": ["A=image"]}))).await;
    let pod =
        fixture.create("p", never(json!([script("trap 'exit 0' TERM; while :; do sleep 0.01; done")]))).await;
    fixture.running("p").await;
    for (tty, script, want, code) in [
        (false, "echo $A $HOSTNAME ${TERM-unnamed}; exit 3", "image p unnamed\n", 3),
        (true, "test -t 1 && echo terminal $A $TERM; exit 4", "terminal image xterm\r\n", 4),
    ] {
        let (said, ended) = joined(&fixture, &pod, script, tty).await;
        assert_eq!((said.as_str(), ended), (want, Ok(code)), "{script}");
    }
}

#[tokio::test]
async fn a_process_joins_a_container_as_its_user_and_with_its_environment() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let mut container = script("trap 'exit 0' TERM; while :; do sleep 0.01; done");
    container["securityContext"] =
        json!({"runAsUser": 12, "runAsGroup": 13, "allowPrivilegeEscalation": false});
    (container["workingDir"], container["env"]) = (json!("/tmp"), json!([{"name": "TERM", "value": "own"}]));
    let mut spec = never(json!([container]));
    spec["securityContext"] = json!({"supplementalGroups": [14]});
    let pod = fixture.create("p", spec).await;
    fixture.running("p").await;
    let text = "echo $(id -u) $(id -G) $(pwd) $TERM $(grep -E 'NoNewPrivs|CapEff' /proc/self/status)";
    for (tty, end) in [(false, "\n"), (true, "\r\n")] {
        let want = format!("12 13 14 /tmp own CapEff: 0000000000000000 NoNewPrivs: 1{end}");
        assert_eq!(joined(&fixture, &pod, text, tty).await, (want, Ok(0)));
    }
}

#[tokio::test]
async fn a_container_of_an_image_reads_what_those_send_who_attach() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let nodes = Nodes::of(std::slice::from_ref(&fixture.agent));
    for (tty, text, want) in [
        (false, "cat; echo end", "hello\nend\n"),
        (true, "test -t 0 && test -t 1 && read line && echo got $line $TERM", "hello\r\ngot hello xterm\r\n"),
    ] {
        let name = format!("tty-{tty}");
        let mut container = script(text);
        (container["stdin"], container["stdinOnce"], container["tty"]) = (json!(true), json!(true), json!(tty));
        let pod = fixture.create(&name, never(json!([container]))).await;
        fixture.running(&name).await;
        let container = seen(&pod);
        let streams = Streams { stdin: true, stdout: true, tty, ..Streams::default() };
        let mut session = nodes.attach(container, streams).await.expect("attached");
        let mut stdin = session.stdin.take().expect("an input");
        stdin.write_all(b"hello\n").await.expect("taken");
        drop(stdin);
        let said = session.stdout.try_fold(Vec::new(), async |all, piece| Ok([all, piece.to_vec()].concat()));
        let (said, ended) = tokio::join!(said, session.ended);
        assert_eq!((String::from_utf8_lossy(&said.expect("read")).as_ref(), ended), (want, Ok(0)), "{text}");
    }
}

#[tokio::test]
async fn a_command_that_is_not_in_the_image_is_a_start_error() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    fixture
        .create("p", never(json!([{"name": "c", "image": "test/busybox:1", "command": ["no-such-program"]}])))
        .await;
    let pod = fixture.ended("p").await;
    assert_eq!(ends(&pod), ["c StartError 128 restarts=0"]);
    let end = status(&pod).container_statuses.as_ref().expect("statuses")[0].state.clone().expect("a state");
    let message = end.terminated.expect("ended").message.unwrap_or_default();
    let want = match RUNTIME {
        Kind::Crun => "executable file `no-such-program` not found",
        Kind::Runc => "exec: \"no-such-program\": executable file not found",
        Kind::Youki => "executable 'no-such-program' not found in $PATH",
    };
    assert!(message.contains(want), "{message}");
    assert_eq!(log(&fixture, &pod), "", "it never ran: nothing is its own output");
}

#[tokio::test]
async fn a_container_is_started_again_in_a_fresh_root() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let mut spec = never(json!([script(
        "test ! -e /seen && touch /seen && echo x >> /data/runs; test $(wc -l < /data/runs) = 3"
    )]));
    spec["restartPolicy"] = json!("OnFailure");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "v", "mountPath": "/data"}]);
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    fixture.create("p", spec).await;
    let pod = fixture.ended("p").await;
    assert_eq!(ends(&pod), ["c Completed 0 restarts=2"]);
}

#[tokio::test]
async fn upper_layers_hide_what_lower_ones_have_mounted_or_copied() {
    let mut image = busybox(json!({}));
    image.layers.push(Archive::new().file("dir/one", "1").file("dir/two", "2").file("gone", "x").finish());
    let upper = Archive::new().file(".wh.gone", "").file("old", "upper");
    image.layers.push(upper.file("dir/.wh..wh..opq", "").file("dir/three", "3").finish());
    let layout = tempfile::tempdir().expect("a directory");
    write_layout(layout.path(), "test/busybox:1", &image);
    for is_copied in [false, true] {
        let settings = Settings { image_dirs: vec![layout.path().to_owned()], ..Settings::default() };
        let (fixture, _images, _kept) = node_that(RUNTIME, settings, |config| config.copies_images = is_copied).await;
        let text = "cat /old; echo; ls /dir; test ! -e /gone; grep -c '^overlay / ' /proc/mounts; true";
        fixture.create("p", never(json!([script(text)]))).await;
        let pod = fixture.ended("p").await;
        let want = format!("upper\nthree\n{}\n", i32::from(!is_copied));
        assert_eq!((log(&fixture, &pod), phase(&pod)), (want, "Succeeded"));
    }
}

#[tokio::test]
async fn a_privileged_container_has_the_devices_of_the_machine_and_leaves_nothing_in_its_dev() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let message = Path::new("/dev/termination-log");
    assert!(!message.exists(), "something else has left it there");
    let devices = windlass_node::oci::devices::below(Path::new("/dev")).expect("read");
    let seen = |kind: bool| devices.iter().find(|device| device.is_block == kind);
    let tests: Vec<String> = [(true, "-b"), (false, "-c")]
        .into_iter()
        .filter_map(|(kind, test)| Some(format!("[ {test} {} ]", seen(kind)?.path.display())))
        .collect();
    assert!(!tests.is_empty(), "{devices:?}");
    let mut privileged =
        script(&format!("{} && : > /dev/left && echo fine > /dev/termination-log", tests.join(" && ")));
    privileged["securityContext"] = json!({"privileged": true});
    fixture.create("p", never(json!([privileged]))).await;
    let pod = fixture.ended("p").await;
    let want = (vec!["c Completed 0 restarts=0".to_owned()], "Succeeded");
    assert_eq!((ends(&pod), phase(&pod)), want, "{:?}", pod.status);
    assert!(!message.exists() && !Path::new("/dev/left").exists(), "nothing is left on the machine");
}

/// A pod that sees the processes of the machine.
fn with_machine_pids(text: &str) -> Value {
    let mut spec = never(json!([script(text)]));
    spec["hostPID"] = json!(true);
    spec
}

/// A command that starts a process which nobody could tell whose it is: it has no parent, session or environment of its
/// container.
pub(super) fn daemon(sleep: &str) -> String {
    let sleeps = format!("busybox touch /up; exec busybox sleep {sleep}");
    format!("busybox setsid env -i busybox setsid busybox sh -c '{sleeps}' & while ! test -e /up; do :; done")
}

#[tokio::test]
async fn a_pod_may_see_the_processes_of_the_machine() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let own = std::process::id();
    let text = format!("test -d /proc/{own} && ls -l /proc/self/ns/pid; exit 3");
    fixture.create("p", with_machine_pids(&text)).await;
    let pod = fixture.ended("p").await;
    let namespace = std::fs::read_link("/proc/self/ns/pid").expect("there");
    let said = log(&fixture, &pod);
    assert_eq!(ends(&pod), ["c Error 3 restarts=0"], "{said}");
    assert!(said.trim_end().ends_with(&format!("-> {}", namespace.display())), "{said}");
}

#[tokio::test]
async fn nothing_is_left_of_a_pod_that_sees_the_processes_of_the_machine() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    for (name, then, want) in [
        ("ends", "exit 5", "c Error 5 restarts=0"),
        ("deleted", "trap '' TERM; echo ready; while :; do busybox sleep 0.1; done", "c Error 137 restarts=0"),
    ] {
        let sleep = unique_sleep();
        let mut spec = with_machine_pids(&format!("{}; {then}", daemon(&sleep)));
        spec["terminationGracePeriodSeconds"] = json!(1);
        fixture.create(name, spec).await;
        let is_deleted = name == "deleted";
        if is_deleted {
            let pod = fixture.running(name).await;
            wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
            assert!(!processes_with(&sleep).is_empty());
        }
        let is_over = |pod: Option<&Pod>| pod.is_none_or(|pod| phase(pod) == "Failed");
        let pod = fixture.watch(name, is_deleted, is_over).await.1.expect("still there");
        assert_eq!(ends(&pod), [want], "{name}");
        assert_eq!(processes_with(&sleep), [0; 0], "{name}");
    }
}

#[tokio::test]
async fn a_pod_that_sees_the_processes_of_the_machine_dies_with_its_agent_or_keeper() {
    for is_keeper_killed in [true, false] {
        let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
        let sleep = unique_sleep();
        let text = format!("{}; echo ready; while :; do busybox sleep 0.1; done", daemon(&sleep));
        fixture.create("p", with_machine_pids(&text)).await;
        let pod = fixture.running("p").await;
        wait_for_text(&fixture.log(&pod, "c", 0), "ready").await;
        assert!(!processes_with(&sleep).is_empty());
        if is_keeper_killed {
            let place = format!("WINDLASS_KEEPER_PLACE={}", fixture.directory.path().display());
            let mut keepers = processes_in(&place);
            // With youki there are forks of it.
            let forks: Vec<i32> = keepers.iter().flat_map(|keeper| children(*keeper)).collect();
            keepers.retain(|keeper| !forks.contains(keeper));
            assert_eq!(keepers.len(), 1, "{keepers:?}");
            let keeper = rustix::process::Pid::from_raw(keepers[0]).expect("a process");
            rustix::process::kill_process(keeper, rustix::process::Signal::KILL).expect("it runs");
            let pod = fixture.ended("p").await;
            assert_eq!(ends(&pod), ["c ContainerStatusUnknown 137 restarts=0"]);
            assert_eq!(processes_with(&sleep), [0; 0]);
        } else {
            drop(fixture);
            wait_for("the processes to go", || processes_with(&sleep).is_empty().then_some(())).await;
        }
    }
}

#[tokio::test]
async fn containers_of_a_pod_may_share_their_processes() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let (sleep, left) = (unique_sleep(), unique_sleep());
    let all = "for p in /proc/[0-9]*; do busybox tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done";
    let container = |name: &str, text: &str| {
        let mut container = script(text);
        (container["name"], container["volumeMounts"]) = (json!(name), json!([{"name": "v", "mountPath": "/v"}]));
        container
    };
    // The first ends, with something left that nobody could tell whose it is; the second finds the third, and ends it.
    let first = format!("{}; touch /v/first; exit 3", daemon(&left));
    let second = format!(
        "test $$$$ != 1 || exit 8; while ! test -e /v/first || {all} | grep -q '^busybox sleep {left}'; do sleep 0.01; done; \
         while ! test -e /v/third; do sleep 0.01; done; kill $(cat /v/third); exit 4"
    );
    let third = format!("touch /mine; echo $$$$ > /v/t; busybox mv /v/t /v/third; exec sleep {sleep}");
    let mut spec = never(json!([container("a", &first), container("b", &second), container("d", &third)]));
    spec["shareProcessNamespace"] = json!(true);
    spec["volumes"] = json!([{"name": "v", "emptyDir": {}}]);
    fixture.create("p", spec).await;
    let pod = fixture.ended("p").await;
    assert_eq!(ends(&pod), ["a Error 3 restarts=0", "b Error 4 restarts=0", "d Error 143 restarts=0"]);
    assert_eq!((processes_with(&sleep), processes_with(&left)), (vec![], vec![]));
    // Nothing is left of what held them together.
    let place = format!("WINDLASS_KEEPER_PLACE={}", fixture.directory.path().display());
    let keeper = processes_in(&place)[0];
    wait_for("the end of the holder", || children(keeper).is_empty().then_some(())).await;
}

#[tokio::test]
async fn containers_that_share_their_processes_are_killed_and_joined_one_by_one() {
    let (fixture, _kept) = node_with(RUNTIME, &busybox(json!({}))).await;
    let sleep = unique_sleep();
    let mut spec = never(json!([
        script(&format!("touch /c; {}; trap '' TERM; echo ready; while :; do sleep 0.01; done", daemon(&sleep)))
    ]));
    spec["initContainers"] = json!([{
        "name": "side", "image": "test/busybox:1", "restartPolicy": "Always",
        "command": ["sh", "-c", "touch /side; trap 'exit 6' TERM; while :; do sleep 0.01; done"],
    }]);
    (spec["shareProcessNamespace"], spec["terminationGracePeriodSeconds"]) = (json!(true), json!(1));
    let pod = fixture.create("p", spec).await;
    let running = fixture.running("p").await;
    wait_for_text(&fixture.log(&running, "c", 0), "ready").await;
    let nodes = Nodes::of(std::slice::from_ref(&fixture.agent));
    for name in ["c", "side"] {
        let container = windlass_streams::Container { name: name.into(), ..seen(&pod) };
        let command = ["sh", "-c", &format!("test -e /{name} && ps | grep -c 'touch /side'")].map(str::to_owned).to_vec();
        let streams = Streams { stdout: true, ..Streams::default() };
        let session = nodes.exec(container, Exec { command, streams }).await.expect("it starts");
        let said = session.stdout.try_fold(Vec::new(), async |all, piece| Ok([all, piece.to_vec()].concat()));
        let (said, ended) = tokio::join!(said, session.ended);
        let said = String::from_utf8(said.expect("read")).expect("text");
        assert_eq!(ended, Ok(0), "{name} {said}");
        assert!(said.trim().parse::<u32>().is_ok_and(|count| count >= 1), "{name} {said}");
    }
    let is_over = |pod: Option<&Pod>| pod.is_none_or(|pod| phase(pod) == "Failed");
    let pod = fixture.watch("p", true, is_over).await.1.expect("still there");
    assert_eq!(ends(&pod)[1], "c Error 137 restarts=0", "{:?}", ends(&pod));
    assert_eq!(processes_with(&sleep), [0; 0]);
}
