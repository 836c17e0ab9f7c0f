//! The Jobs of the Kubernetes documentation on a server, as they are there: with images of the names that they ask for, and
//! a real Redis for the queue. On a network of their own, for the queue has a port that others may use.

use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rustix::process::Signal;
use rustix::thread::LinkNameSpaceType;
use serde_json::{Value, json};

use crate::manifests_images;
use crate::real_kubectl::{self, Kubectl};
use crate::support::{Running, plain, windlass};
use crate::upstream::images::Registry;

const ITEMS: [&str; 3] = ["apple", "banana", "cherry"];
const QUEUE: [&str; 9] = ["apple", "banana", "cherry", "date", "fig", "grape", "lemon", "melon", "orange"];

#[test]
fn the_jobs_of_the_documentation_run_as_they_are() {
    // A thread that can be moved without any other.
    std::thread::spawn(|| {
        move_to_a_network_of_its_own();
        let registry =
            tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime").block_on(
                async {
                    let registry = Registry::start(None);
                    manifests_images::push(&registry).await;
                    registry
                },
            );
        let directory = tempfile::tempdir().expect("a directory");
        let server = serve(directory.path(), &registry);
        let [kubectl, _] = real_kubectl::each(directory.path());

        apply(&kubectl, &["redis-pod", "redis-service", "pi", "indexed-job", "indexed-job-vol"]);
        apply(&kubectl, &["backoff-limit-per-index", "pod-failure-policy"]);
        expand(&kubectl, directory.path());
        work_queue(&kubectl);
        pi(&kubectl);
        indexed(&kubectl);
        expansion(&kubectl);
        pod_failure_policy(&kubectl);
        backoff_limit_per_index(&kubectl);

        server.signal(Signal::TERM);
        let stopped = server.finish();
        assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    })
    .join()
    .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
}

/// The thread, and the processes that it starts from now on, have a loopback that nobody else uses.
fn move_to_a_network_of_its_own() {
    let mut holder = Command::new("unshare")
        .args(["--net", "sh", "-c", "busybox ip link set lo up && echo up && exec cat"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("unshare is there");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("piped")).read_line(&mut line).expect("read");
    assert_eq!(line, "up\n");
    let network = std::fs::File::open(format!("/proc/{}/ns/net", holder.id())).expect("opened");
    rustix::thread::move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network))
        .expect("moved");
    drop(holder.stdin.take());
    holder.wait().expect("waited");
}

fn serve(directory: &Path, registry: &Registry) -> Running {
    let mirror = format!("*=http://{}", registry.address);
    let place = directory.to_str().expect("UTF-8");
    let args = ["server", "--data-dir", place, "--listen", "127.0.0.1:0", "--image-mirror", &mirror];
    let mut running = Running::spawn(&mut windlass(&args));
    running.wait_for_lines(&["is ready at https://127.0.0.1:", "kubectl get jobs"]);
    running
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/manifests").join(format!("{name}.yaml"))
}

fn apply(kubectl: &Kubectl, names: &[&str]) {
    for name in names {
        kubectl.must(&["apply", "-f", file(name).to_str().expect("UTF-8")]);
    }
}

/// One Job for each item, as the page does with `sed`.
fn expand(kubectl: &Kubectl, directory: &Path) {
    let template = std::fs::read_to_string(file("expansion")).expect("read");
    let jobs = directory.join("jobs");
    std::fs::create_dir(&jobs).expect("made");
    for item in ITEMS {
        std::fs::write(jobs.join(format!("job-{item}.yaml")), template.replace("$ITEM", item))
            .expect("written");
    }
    kubectl.must(&["apply", "-f", jobs.to_str().expect("UTF-8")]);
}

/// Waits for the end of a Job, and returns its whole status.
fn ended(kubectl: &Kubectl, condition: &str, job: &str) -> Value {
    let (condition, target) = (format!("--for=condition={condition}"), format!("job/{job}"));
    kubectl.must(&["wait", &condition, &target, "--timeout=55s"]);
    let got: Value = serde_json::from_str(&kubectl.must(&["get", &target, "-o", "json"])).expect("JSON");
    plain(got["status"].clone(), job)
}

/// The lines that all pods of a Job printed, in the order of their text.
fn lines(kubectl: &Kubectl, selector: &str) -> Vec<String> {
    let text = kubectl.must(&["logs", "-l", selector, "--tail=-1", "--max-log-requests=20"]);
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

fn condition(kind: &str, reason: &str, message: &str) -> Value {
    json!({
        "type": kind, "status": "True", "reason": reason, "message": message,
        "lastProbeTime": "TIME", "lastTransitionTime": "TIME",
    })
}

/// The status of a Job that has completed.
fn complete(succeeded: u32, indexes: Option<&str>) -> Value {
    let condition = |kind| condition(kind, "CompletionsReached", "Reached expected number of succeeded pods");
    let mut status = json!({
        "startTime": "TIME", "completionTime": "TIME",
        "succeeded": succeeded, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
        "conditions": [condition("SuccessCriteriaMet"), condition("Complete")],
    });
    if let Some(indexes) = indexes {
        status["completedIndexes"] = json!(indexes);
    }
    status
}

/// The status of a Job that has failed.
fn failed(failed: u32, reason: &str, message: &str) -> Value {
    json!({
        "startTime": "TIME", "failed": failed, "ready": 0, "terminating": 0, "uncountedTerminatedPods": {},
        "conditions": [condition("FailureTarget", reason, message), condition("Failed", reason, message)],
    })
}

fn work_queue(kubectl: &Kubectl) {
    kubectl.must(&["wait", "--for=condition=Ready", "pod/redis-master", "--timeout=55s"]);
    // By its address: this pod may have started before there was a Service. Those of the Job know it by name.
    let exec = ["exec", "redis-master", "--", "redis-cli"];
    let redis = |args: &[&str]| kubectl.must(&[&exec, args].concat());
    // The pod is ready before its program listens.
    crate::support::wait_until("Redis", || {
        let asked = kubectl.run(&[&exec[..], &["PING"]].concat());
        (asked.stdout == "PONG\n").then_some(())
    });
    assert_eq!(redis(&[&["RPUSH", "job2"][..], &QUEUE].concat()), "9\n");
    apply(kubectl, &["work-queue"]);
    assert_eq!(ended(kubectl, "Complete", "job-wq-2"), complete(2, None));

    let worked = QUEUE.map(|item| format!("Working on {item}"));
    let each = |line: &str| [line.to_owned(), line.to_owned()];
    let mut want = [&each("Queue empty, exiting")[..], &worked, &each("queue at 127.0.0.1:6379")].concat();
    want.sort();
    assert_eq!(lines(kubectl, "batch.kubernetes.io/job-name=job-wq-2"), want);
    assert_eq!(redis(&["EXISTS", "job2", "job2:processing"]), "0\n");
}

fn pi(kubectl: &Kubectl) {
    assert_eq!(ended(kubectl, "Complete", "pi"), complete(1, None));
    let digits = kubectl.must(&["logs", "jobs/pi"]);
    // The first and the last of a thousand, by the tables.
    assert!(digits.starts_with("3.14159265358979323846"), "{digits}");
    assert!(digits.ends_with("195909216420199\n"), "{digits}");
    assert_eq!(digits.len(), "3.".len() + 999 + "\n".len());
}

fn indexed(kubectl: &Kubectl) {
    assert_eq!(ended(kubectl, "Complete", "indexed-job"), complete(5, Some("0-4")));
    assert_eq!(
        lines(kubectl, "batch.kubernetes.io/job-name=indexed-job"),
        ["oof", "rab", "xuq", "zab", "zyx"]
    );
    let of_three =
        ["batch.kubernetes.io/job-name=indexed-job", "batch.kubernetes.io/job-completion-index=3"].join(",");
    assert_eq!(lines(kubectl, &of_three), ["xuq"]);
    assert_eq!(ended(kubectl, "Complete", "indexed-job-vol"), complete(5, Some("0-4")));
    // A file of the downward API has no line end: nor has what is printed of it.
    let selector = "batch.kubernetes.io/job-name=indexed-job-vol,batch.kubernetes.io/job-completion-index=";
    for index in ["0", "4"] {
        assert_eq!(lines(kubectl, &format!("{selector}{index}")), [index]);
    }
}

fn expansion(kubectl: &Kubectl) {
    for item in ITEMS {
        assert_eq!(ended(kubectl, "Complete", &format!("process-item-{item}")), complete(1, None), "{item}");
    }
    let want = ITEMS.map(|item| format!("Processing item {item}"));
    assert_eq!(lines(kubectl, "jobgroup=jobexample"), want);
}

fn pod_failure_policy(kubectl: &Kubectl) {
    let name = "job-pod-failure-policy-example";
    let message = format!(
        "Container main for pod default/{name}-????? failed with exit code 42 matching FailJob rule at index 0"
    );
    assert_eq!(ended(kubectl, "Failed", name), failed(3, "PodFailurePolicy", &message));
    let said = lines(kubectl, &format!("batch.kubernetes.io/job-name={name}"));
    assert!(!said.is_empty() && said.iter().all(|line| line == "Hello world!"), "{said:?}");
}

fn backoff_limit_per_index(kubectl: &Kubectl) {
    let name = "job-backoff-limit-per-index-example";
    let mut want = failed(10, "FailedIndexes", "Job has failed indexes");
    want["succeeded"] = json!(5);
    want["completedIndexes"] = json!("1,3,5,7,9");
    want["failedIndexes"] = json!("0,2,4,6,8");
    assert_eq!(ended(kubectl, "Failed", name), want);
    let runs = |index: u32| std::iter::repeat_n(format!("Hello from index {index}"), 2 - index as usize % 2);
    let want: Vec<String> = (0..10).flat_map(runs).collect();
    assert_eq!(lines(kubectl, &format!("batch.kubernetes.io/job-name={name}")), want);
}
