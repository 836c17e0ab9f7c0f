//! A node that is killed again and again while its pods run: every end is counted once and explained, and nothing is left.
//!
//! `cargo xtask kill-node` kills it 50 times while 200 pods run.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, PostParams};
use kube::{Api, Client};
use rustix::fs::Mode;
use rustix::process::{Pid, Signal};
use serde_json::{Value, json};

use crate::server::{Served, wait_for};
use crate::support::{PATIENCE, Running, complete, plain, processes_with_variable, wait_until};
use crate::{node, nothing_left_behind};

/// How often to kill, 200 pods then; without it less, as there is time for in the test run.
const KILLS: &str = "WINDLASS_NODE_KILLS";
/// Which kills: printed by every run, to repeat one.
const SEED: &str = "WINDLASS_NODE_KILLS_SEED";
/// In the environment of everything that a test starts.
const MARK: &str = "KILLS_TEST";

/// Numbers that look random, from one number (splitmix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((z ^ (z >> 31)) % bound.max(1) as u64).expect("less than a usize")
    }
}

/// When to kill.
#[derive(Debug)]
enum Moment {
    /// When the process is there, whatever it does then.
    AtOnce,
    /// When it says that it runs.
    Ready,
    /// When so many more runs have begun.
    Begun(usize),
    /// When so many more have begun, some of them may end, and have told of it.
    Ended(usize),
}

struct Scene {
    /// Where all that is written here goes; its name is in the environment of everything.
    directory: PathBuf,
    token: String,
    pods: usize,
    /// A run comes to its end when it has read a line from this pipe.
    gate: File,
}

impl Scene {
    fn new(directory: &Path, pods: usize) -> Self {
        let gate = directory.join("gate");
        rustix::fs::mkfifoat(rustix::fs::CWD, &gate, Mode::RUSR | Mode::WUSR).expect("a pipe");
        // For reading too, so that there is always somebody at each end.
        let gate = OpenOptions::new().read(true).write(true).open(gate).expect("opened");
        Self { token: node::token(directory), directory: directory.to_owned(), pods, gate }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// Lets so many runs come to their end.
    fn release(&self, runs: usize) {
        (&self.gate).write_all("\n".repeat(runs).as_bytes()).expect("a pipe holds that many");
    }

    fn lines(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.file(name)).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn mark(&self) -> &str {
        self.directory.to_str().expect("UTF-8")
    }

    fn node(&self) -> Running {
        Running::spawn(node::command(&self.directory, &self.token, "two").env(MARK, self.mark()))
    }

    fn processes(&self) -> usize {
        processes_with_variable(MARK, self.mark()).len()
    }

    /// The control groups of the node's containers.
    fn groups(&self) -> Vec<PathBuf> {
        let Ok(directory) = std::fs::metadata(self.file("two")) else { return Vec::new() };
        let name = format!("{:x}-{:x}", directory.dev(), directory.ino());
        let mut groups = Vec::new();
        find(Path::new("/sys/fs/cgroup"), &name, 6, &mut groups);
        groups
    }

    /// A Job with an index for each of half of the pods. A run takes the lock of its index, which its processes have until
    /// the last one of them is gone, tells of its begin, waits until it may end, and tells of that. Each has a process that
    /// left for a session of its own.
    fn job(&self, name: &str, policy: &str, limits: Value) -> Job {
        let half = self.pods / 2;
        let script = format!(
            "exec 9>> {place}/{name}-$JOB_COMPLETION_INDEX; flock -n 9 || echo $POD >> {place}/twice; \
             setsid sleep 1000 & echo $POD >> {place}/begun; \
             read -r line < {place}/gate && echo $POD >> {place}/ended",
            place = self.mark()
        );
        let env = json!([
            {"name": MARK, "value": self.mark()},
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ]);
        let container = json!({
            "name": "c", "image": "host", "command": ["sh", "-c", script], "env": env, "resources": limits,
        });
        let per_index = (policy == "Never").then_some(1_000_000);
        let job = json!({
            "metadata": {"name": name},
            "spec": {
                "completions": half, "parallelism": half, "completionMode": "Indexed",
                "backoffLimit": i32::MAX, "backoffLimitPerIndex": per_index,
                "template": {"spec": {
                    "restartPolicy": policy, "automountServiceAccountToken": false, "containers": [container],
                }},
            },
        });
        serde_json::from_value(job).expect("a Job")
    }

    /// Runs the node until then, lets some runs end meanwhile, kills it, and returns how many processes there were.
    fn kill(&self, moment: &Moment, released: usize) -> usize {
        let [begun, ended] = ["begun", "ended"].map(|file| self.lines(file).len());
        let mut node = self.node();
        let grown = |file: &str, before: usize, more: usize| {
            let has_come = || (self.lines(file).len() >= before + more).then_some(());
            wait_until(&format!("{moment:?}, {more} more in {file}"), has_come);
        };
        if !matches!(moment, Moment::AtOnce) {
            node.wait_for_lines(&["runs node two"]);
        }
        // From here on no run of the node before lives any more, and could take what is released.
        match moment {
            Moment::AtOnce | Moment::Ready => {}
            Moment::Begun(more) => {
                self.release(released);
                grown("begun", begun, *more);
            }
            Moment::Ended(more) => {
                grown("begun", begun, *more);
                self.release(released);
                grown("ended", ended, released);
            }
        }
        let processes = self.processes();
        node.signal(Signal::KILL);
        node.child.wait().expect("it was ours");
        processes
    }
}

fn find(place: &Path, name: &str, depth: usize, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name() == name {
            found.push(entry.path());
        } else if depth > 0 {
            find(&entry.path(), name, depth - 1, found);
        }
    }
}

async fn status_at_the_end(client: &Client, name: &str) -> Value {
    let jobs = Api::<Job>::default_namespaced(client.clone());
    let start = Instant::now();
    loop {
        let status = json!(jobs.get(name).await.expect("the Job").status.unwrap_or_default());
        if status.get("completionTime").is_some() {
            return plain(status, name);
        }
        assert!(start.elapsed() < PATIENCE, "{name} is not complete: {status}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn pods_of(client: &Client, job: &str) -> Vec<Value> {
    let pods = Api::<Pod>::default_namespaced(client.clone());
    let found = pods.list(&ListParams::default().labels(&format!("job-name={job}"))).await.expect("pods");
    found.items.into_iter().map(|pod| json!(pod)).collect()
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().expect("a name")
}

fn count(lines: &[String]) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    lines.iter().for_each(|line| *counts.entry(line.as_str()).or_default() += 1);
    counts
}

/// Whether a container is said to have been lost with its node.
fn is_lost(state: &Value) -> bool {
    state["terminated"]["exitCode"] == 137 && state["terminated"]["reason"] == "ContainerStatusUnknown"
}

#[tokio::test]
async fn a_node_killed_at_random_while_pods_run_counts_every_end_once_and_leaves_nothing() {
    let rounds: Option<usize> =
        std::env::var(KILLS).ok().map(|kills| kills.parse().expect("a number of kills"));
    let (kills, pods) = rounds.map_or((8, 60), |kills| (kills, 200));
    let half = pods / 2;
    let seed = std::env::var(SEED).ok().map(|seed| seed.parse().expect("a number"));
    let seed = seed.unwrap_or_else(|| {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        u64::from(now.subsec_nanos()) ^ now.as_secs()
    });
    eprintln!("{SEED}={seed}");
    let mut random = Random(seed);
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0", "--backoff-max", "50ms"]);
    let client = served.client().await;
    let scene = Scene::new(directory.path(), pods);
    let jobs = Api::<Job>::default_namespaced(client.clone());
    let limits = json!({"limits": {"memory": "64Mi"}, "requests": {"memory": "1Mi"}});
    for job in [scene.job("never", "Never", json!({})), scene.job("again", "OnFailure", limits)] {
        jobs.create(&PostParams::default(), &job).await.expect("created");
    }

    let (mut groups_seen, mut left) = (0, pods);
    for round in 1..=kills {
        // All that were not allowed to end have to begin again.
        let begun = 1 + random.below(left);
        let moment = match random.below(8) {
            0 => Moment::AtOnce,
            1 => Moment::Ready,
            2..=4 => Moment::Ended(begun),
            _ => Moment::Begun(begun),
        };
        let released = random.below(half / kills + 1);
        left -= released;
        let processes = scene.kill(&moment, released);
        groups_seen += scene.groups().len();
        let ended = scene.lines("ended").len();
        eprintln!("kill {round} {moment:?}: {processes} processes, {ended} runs had come to their end");
    }
    let mut node = scene.node();
    node.wait_for_lines(&["runs node two"]);

    scene.release(2 * pods);
    let (begun, ended);
    {
        let [never, again] =
            [status_at_the_end(&client, "never").await, status_at_the_end(&client, "again").await];
        (begun, ended) = (scene.lines("begun"), scene.lines("ended"));
        let (begun, ended) = (count(&begun), count(&ended));
        let indexes = format!("0-{}", half - 1);

        // Each pod of this one has one run, and each that failed was lost with the node.
        let all = pods_of(&client, "never").await;
        let (good, bad): (Vec<&Value>, Vec<&Value>) =
            all.iter().partition(|pod| pod["status"]["phase"] == "Succeeded");
        assert_eq!(
            never,
            complete(json!({
                "succeeded": half, "failed": bad.len(), "completedIndexes": indexes, "failedIndexes": "",
            }))
        );
        let label =
            |pod: &Value| pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"].clone();
        let done: BTreeSet<String> = good.iter().map(|pod| label(pod).to_string()).collect();
        assert_eq!((good.len(), done.len()), (half, half), "each index was done once");
        for pod in &good {
            let runs = (begun.get(name(pod)), ended.get(name(pod)));
            assert_eq!(runs, (Some(&1), Some(&1)), "{} was run once, to its end", name(pod));
        }
        for pod in &bad {
            assert!(is_lost(&pod["status"]["containerStatuses"][0]["state"]), "{pod}");
            assert!(begun.get(name(pod)).is_none_or(|runs| *runs == 1), "{} was begun twice", name(pod));
        }

        // Each of this one has its container started again until it reached its end.
        let all = pods_of(&client, "again").await;
        assert_eq!(again, complete(json!({"succeeded": half, "completedIndexes": indexes})));
        assert_eq!(all.len(), half);
        let mut restarts = 0;
        for pod in &all {
            let container = &pod["status"]["containerStatuses"][0];
            let restarted = container["restartCount"].as_u64().expect("a count");
            restarts += restarted;
            let runs = begun.get(name(pod)).copied().unwrap_or_default() as u64;
            assert!((1..=restarted + 1).contains(&runs), "{} has {runs} runs: {container}", name(pod));
            assert!(restarted == 0 || is_lost(&container["lastState"]), "{container}");
            assert_eq!(container["state"]["terminated"]["exitCode"], 0, "{container}");
        }
        eprintln!("{} pods and {restarts} restarts were lost with the node", bad.len());
        assert!(bad.len() as u64 + restarts > 0, "no kill met anything that ran");
    }
    assert_eq!(scene.lines("twice"), [""; 0], "two runs of an index at the same time");

    node.signal(Signal::TERM);
    let ran = node.finish();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    wait_until("the end of every process", || (scene.processes() == 0).then_some(()));
    assert_eq!(scene.groups(), Vec::<PathBuf>::new(), "{}", ran.stderr);
    assert!(groups_seen > 0 || !rustix::process::geteuid().is_root(), "no container had a group");
    assert_eq!(served.stop(), Some(0));
}

/// Kills a node in the middle of a run, and returns its keeper, which does not know of it: it stands still.
async fn kill_without_the_keeper(scene: &Scene, client: &Client) -> Keeper {
    let mut node = scene.node();
    node.wait_for_lines(&["runs node two"]);
    let jobs = Api::<Job>::default_namespaced(client.clone());
    jobs.create(&PostParams::default(), &scene.job("never", "Never", json!({}))).await.expect("created");
    wait_for("the run", async || (!scene.lines("begun").is_empty()).then_some(())).await;
    let children = nothing_left_behind::children(node.child.id());
    let keeper = Keeper(Pid::from_raw(children[0]).expect("a pid"));
    keeper.signal(Signal::STOP);
    node.signal(Signal::KILL);
    node.child.wait().expect("it was ours");
    keeper
}

struct Keeper(Pid);

impl Keeper {
    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(self.0, signal).expect("signalled");
    }
}

impl Drop for Keeper {
    /// Whatever a test came to: who goes on sees the end of its agent, and ends everything. One that is gone is not there.
    fn drop(&mut self) {
        let _ = rustix::process::kill_process(self.0, Signal::CONT);
    }
}

#[tokio::test]
async fn a_node_begins_when_everything_of_the_one_before_it_has_ended() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let client = served.client().await;
    let scene = Scene::new(directory.path(), 2);
    let keeper = kill_without_the_keeper(&scene, &client).await;
    let mut second = scene.node();
    second.wait_for_lines(&["waiting for the end of the node"]);
    assert_eq!(scene.lines("begun").len(), 1);
    keeper.signal(Signal::CONT);
    second.wait_for_lines(&["runs node two"]);
    wait_for("the next run", async || (scene.lines("begun").len() == 2).then_some(())).await;
    assert_eq!(scene.lines("twice"), [""; 0], "two runs of an index at the same time");
    second.signal(Signal::KILL);
    second.child.wait().expect("it was ours");
    wait_until("the end of every process", || (scene.processes() == 0).then_some(()));
    assert_eq!(served.stop(), Some(0));
}

#[tokio::test]
async fn what_outlived_a_node_and_its_keeper_is_ended_by_the_next_node() {
    let directory = tempfile::tempdir().expect("a directory");
    let served = Served::start(directory.path(), &["--nodes", "0"]);
    let client = served.client().await;
    let scene = Scene::new(directory.path(), 2);
    let keeper = kill_without_the_keeper(&scene, &client).await;
    keeper.signal(Signal::KILL);
    // The main process goes with the keeper; its children do not.
    let left = || processes_with_variable(MARK, scene.mark());
    wait_until("the end of the keeper", || (!left().contains(&keeper.0.as_raw_pid())).then_some(()));
    let strays = left();
    assert_ne!(strays, [0; 0], "nothing outlived them: this test shows nothing");
    let mut second = scene.node();
    second.wait_for_lines(&["runs node two"]);
    let still = left();
    assert!(!strays.iter().any(|stray| still.contains(stray)), "{strays:?} in {still:?}");
    wait_for("the next run", async || (scene.lines("begun").len() == 2).then_some(())).await;
    assert_eq!(scene.lines("twice"), [""; 0], "two runs of an index at the same time");
    second.signal(Signal::KILL);
    second.child.wait().expect("it was ours");
    wait_until("the end of every process", || (scene.processes() == 0).then_some(()));
    assert_eq!(served.stop(), Some(0));
}
