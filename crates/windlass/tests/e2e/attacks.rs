//! Workloads that mean harm: to the logs of the node and what they lead to, to its disk, and to its processes.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::node;
use crate::real_kubectl::{Kubectl, each};
use crate::server::{Served, wait_for};
use crate::support::{Running, processes_with_variable, wait_for_file, wait_until, windlass};

/// What no log may show.
const SECRET: &str = "open sesame";
/// How long kubectl may take on a busy machine. It would wait for ever for a pipe to which nobody writes.
const WITHIN: Duration = Duration::from_secs(20);

fn logs(directory: &Path) -> PathBuf {
    directory.join("nodes/node-1/logs")
}

/// The directory of the logs of a pod, when it is there.
fn logs_of(directory: &Path, pod: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(logs(directory)).into_iter().flatten().flatten();
    let start = format!("default_{pod}_");
    entries.map(|entry| entry.path()).find(|path| {
        path.file_name().and_then(|name| name.to_str()).is_some_and(|name| name.starts_with(&start))
    })
}

/// A pod of one container of a shell.
fn pod(name: &str, script: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": "host", "command": ["sh", "-c", script]}],
        },
    })
}

/// A pod that puts other things in the place of its log, one after the other, when it is told to, and then fails.
fn attacker(directory: &Path, seen: &Path) -> Value {
    let script = format!(
        "set -e; cd {seen}/default_attacker_*; echo mine
        on() {{ until test -e {d}/do-$1; do sleep 0.05; done; }}; did() {{ touch {d}/did-$1; }}
        did start
        on link; mv main/0.log main/kept; ln -s {d}/secret main/0.log; did link
        on aside; rm main/0.log; mv main/kept main/0.log; ln -s {d}/secret main/0.log.0; did aside
        on times; rm main/0.log.0 main/0.times; mkfifo main/0.times; did times
        on pipe; rm main/0.log; mkfifo main/0.log; did pipe
        on device; rm main/0.log; mknod main/0.log c 1 5 || ln -s /dev/zero main/0.log; did device
        on directory; mv main old; ln -s {d}/others main; did directory
        on end; exit 1",
        seen = seen.display(),
        d = directory.display(),
    );
    let mut pod = pod("attacker", &script);
    let spec = &mut pod["spec"];
    spec["restartPolicy"] = json!("OnFailure");
    spec["containers"][0]["volumeMounts"] = json!([{"name": "logs", "mountPath": seen}]);
    spec["volumes"] = json!([{"name": "logs", "hostPath": {"path": logs(directory)}}]);
    pod
}

/// What `kubectl logs attacker` prints with each of some options. It comes soon, and is not the secret.
fn harmless(kubectl: &Kubectl, what: &str) -> Vec<String> {
    let options: [&[&str]; 4] = [&[], &["--tail=5"], &["--since=1h"], &["--timestamps"]];
    let printed = options.map(|options| {
        let start = Instant::now();
        let ran = kubectl.run(&[&["logs", "attacker"], options].concat());
        assert!(start.elapsed() < WITHIN, "{what} {options:?} took {:?}", start.elapsed());
        assert!(!format!("{ran:?}").contains(SECRET), "{what} {options:?}: {ran:?}");
        ran.stdout
    });
    assert_eq!(kubectl.must(&["logs", "calm"]), "calm\n", "{what}: another pod has its log");
    printed.into()
}

#[test]
fn a_pod_that_can_write_to_the_logs_leads_nobody_to_other_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &[]);
    let [kubectl, ..] = each(directory.path());
    let file = |name: &str| directory.path().join(name);
    let (seen, others) = (file("seen"), file("others"));
    for directory in [&seen, &others] {
        std::fs::create_dir(directory).expect("made");
    }
    for secret in [file("secret"), others.join("0.log")] {
        std::fs::write(secret, format!("{SECRET}\n")).expect("written");
    }
    kubectl.apply(&pod("calm", "echo calm; exec sleep 1000").to_string());
    kubectl.apply(&attacker(directory.path(), &seen).to_string());
    kubectl.must(&["wait", "--for=condition=Ready", "pod/calm", "pod/attacker", "--timeout=60s"]);
    wait_for_file(&file("did-start"));
    wait_until("the logs", || {
        let is_printed = |pod: &str| !kubectl.must(&["logs", pod]).is_empty();
        (is_printed("attacker") && is_printed("calm")).then_some(())
    });
    let attack = |what: &str| {
        std::fs::write(file(&format!("do-{what}")), "").expect("written");
        wait_for_file(&file(&format!("did-{what}")));
        harmless(&kubectl, what)
    };
    for what in ["link", "aside"] {
        assert_eq!(attack(what), [""; 4], "{what}");
    }
    let printed = attack("times");
    assert_eq!(printed[..2], ["mine\n"; 2], "without times it is read");
    assert!(printed[2..].iter().all(|text| !text.contains("mine")), "{printed:?}");
    for what in ["pipe", "device", "directory"] {
        assert_eq!(attack(what), [""; 4], "{what}");
    }
    // The next run has no place for its log, and makes none elsewhere.
    std::fs::write(file("do-end"), "").expect("written");
    let refused = "--for=jsonpath={.status.containerStatuses[0].state.waiting.reason}=CreateContainerError";
    kubectl.must(&["wait", refused, "pod/attacker", "--timeout=60s"]);
    harmless(&kubectl, "after its end");
    kubectl.must(&["delete", "pod", "attacker", "--timeout=60s"]);
    wait_until("the end of the logs", || logs_of(directory.path(), "attacker").is_none().then_some(()));
    let left = std::fs::read_dir(&others).expect("listed").flatten();
    assert_eq!(left.map(|entry| entry.file_name()).collect::<Vec<_>>(), ["0.log"], "nothing was made");
    for secret in [file("secret"), others.join("0.log")] {
        assert_eq!(std::fs::read_to_string(secret).expect("read"), format!("{SECRET}\n"), "nothing went");
    }
    assert_eq!(kubectl.must(&["logs", "calm"]), "calm\n");
    drop(served);
}

/// At which size a log is put aside, and how many files of it are kept.
const LOG_BYTES: u64 = 64 << 10;
const LOG_FILES: u64 = 2;
/// What the keeper reads from a pipe at once.
const PIECE_BYTES: u64 = 64 << 10;
/// What the files of one log may take. A line without an end is cut when a file, or that of its times, has twice its size; for a
/// moment there is one file more.
const ON_DISK_MAX: u64 = (LOG_FILES + 1) * (2 * LOG_BYTES + PIECE_BYTES + 2 * LOG_BYTES);

/// How many bytes the files in a directory have, and how often the log in it was put aside.
fn on_disk(directory: &Path) -> (u64, u64) {
    let (mut sizes, mut times) = (BTreeMap::new(), 0);
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix("0.log.")?.parse::<u64>().ok());
        times = times.max(number.map_or(0, |number| number + 1));
        // One file may have two names, and one that has just gone has no size.
        if let Ok(found) = entry.metadata() {
            sizes.insert(found.ino(), found.len());
        }
    }
    (sizes.values().sum(), times)
}

#[test]
fn a_flood_without_lines_takes_little_of_the_disk_and_nothing_of_other_logs() {
    let directory = tempfile::tempdir().expect("a directory");
    let (bytes, files) = (LOG_BYTES.to_string(), LOG_FILES.to_string());
    let limits = ["--container-log-max-size", &bytes, "--container-log-max-files", &files];
    let served = Served::start(directory.path(), &limits);
    let [kubectl, ..] = each(directory.path());
    // One prints as much as it can, and one as often as it can.
    let mut flood = pod("flood", "exec tr '\\0' x < /dev/zero");
    let often = json!({
        "name": "often", "image": "host", "command": ["dd", "if=/dev/zero", "bs=1", "status=none"],
    });
    flood["spec"]["containers"].as_array_mut().expect("a list").push(often);
    kubectl.apply(&flood.to_string());
    let logs = wait_until("logs", || logs_of(directory.path(), "flood"));
    let flows_on = |main: u64, often: u64| {
        wait_until("more of the flood", || {
            let [(in_main, of_main), (in_often, of_often)] =
                ["main", "often"].map(|container| on_disk(&logs.join(container)));
            assert!(in_main.max(in_often) <= ON_DISK_MAX, "{in_main} and {in_often} bytes");
            (of_main >= main && of_often >= often).then_some((of_main, of_often))
        })
    };
    let (main, often) = flows_on(1, 1);
    let script = "i=0; while [ $i -lt 3000 ]; do i=$((i + 1)); echo line $i; done";
    kubectl.apply(&pod("calm", script).to_string());
    let ended = ["wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/calm", "--timeout=120s"];
    let calm = Running::spawn(&mut kubectl.command(&ended));
    flows_on(main + 50, often + 3);
    assert_eq!(calm.finish().code, Some(0));
    let want: String = (1..=3000).map(|number| format!("line {number}\n")).collect();
    assert!(kubectl.must(&["logs", "calm"]) == want, "the other log is whole");
    kubectl.must(&["delete", "pod", "flood", "--timeout=60s"]);
    wait_until("the end of the logs", || (!logs.exists()).then_some(()));
    drop(served);
}

/// How many processes a container may have.
const PROCESSES_MAX: u64 = 64;
/// A variable by which processes of the bomb are known.
const BOMB: &str = "WINDLASS_TEST_BOMB";

async fn create(client: &Client, pod: Value) {
    let pod = serde_json::from_value(pod).expect("a pod");
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod).await.expect("created");
}

/// The control group that holds one of these processes and lets it have so many of them.
fn limited(pids: &[i32]) -> Option<PathBuf> {
    let mut next = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = next.pop() {
        let read = |file: &str| std::fs::read_to_string(directory.join(file)).unwrap_or_default();
        let is_member = |line: &str| line.parse::<i32>().is_ok_and(|pid| pids.contains(&pid));
        if read("pids.max").trim() == PROCESSES_MAX.to_string() && read("cgroup.procs").lines().any(is_member)
        {
            return Some(directory);
        }
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        next.extend(directories.map(|entry| entry.path()));
    }
    None
}

#[tokio::test]
async fn a_fork_bomb_goes_with_its_pod_and_other_pods_run_meanwhile() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let client = served.client().await;
    let mut args = node::args(directory.path(), &node::token(directory.path()), "two");
    args.extend(["--pod-pids-limit".to_owned(), PROCESSES_MAX.to_string()]);
    let mut node = Running::spawn(&mut windlass(&args));
    node.wait_for_lines(&["runs node two"]);
    // Each of its processes starts others for ever, and begins anew when it can't.
    let (bomb, go) = (directory.path().join("bomb"), directory.path().join("go"));
    std::fs::write(&bomb, "trap 'exec sh \"$0\"' EXIT\nwhile :; do sh \"$0\" & done\n").expect("written");
    // Other tests run on this machine, too.
    let script = format!(
        "until test -e {}; do sleep 0.05; done; exec nice -n 19 sh {} > /dev/null 2>&1",
        go.display(),
        bomb.display()
    );
    let mark = directory.path().to_str().expect("UTF-8");
    let mut explodes = pod("bomb", &script);
    explodes["spec"]["containers"][0]["env"] = json!([{"name": BOMB, "value": mark}]);
    create(&client, explodes).await;
    node::until(&client, "bomb", "Running").await;
    // Not without a limit: it would take all of the machine.
    let group = limited(&processes_with_variable(BOMB, mark)).expect("a control group with a limit");
    let processes = || std::fs::read_to_string(group.join("pids.current")).ok()?.trim().parse::<u64>().ok();
    std::fs::write(&go, "").expect("written");
    wait_for("the bomb", async || processes().filter(|count| *count >= PROCESSES_MAX)).await;
    create(&client, pod("calm", "seq 1000 | wc -l | grep -x 1000")).await;
    node::until(&client, "calm", "Succeeded").await;
    let count = processes().expect("the group is there");
    assert!((PROCESSES_MAX / 2..=PROCESSES_MAX).contains(&count), "{count}: it goes on, and gets no further");
    let pods = Api::<Pod>::default_namespaced(client.clone());
    pods.delete("bomb", &DeleteParams::default()).await.expect("deleted");
    wait_for("the end of the pod", async || {
        pods.get_opt("bomb").await.expect("an answer").is_none().then_some(())
    })
    .await;
    wait_for("the end of its group", async || (!group.exists()).then_some(())).await;
    assert_eq!(processes_with_variable(BOMB, mark), [0; 0], "nothing is left of it");
    node.signal(Signal::TERM);
    assert_eq!(node.finish().code, Some(0));
    assert_eq!(served.stop(), Some(0));
}
