//! The command of a user without rights, who runs images all the same: in user namespaces.

use std::path::Path;
use std::process::Command;

use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, PostParams};
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::node;
use crate::server::Served;
use crate::support::{Running, as_user, finish, processes_with_variable, wait_until};
use crate::upstream::images::{busybox, write_layout};

/// In the environment of all that a test runs in containers.
const MARK: &str = "ROOTLESS_TEST";

/// A directory of that user, with the image `test/busybox:1` in `images`.
fn place() -> TempDir {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("changed");
    write_layout(
        &place.path().join("images"),
        "test/busybox:1",
        &busybox(json!({"User": "web", "WorkingDir": "/tmp"})),
    );
    place
}

/// A directory in memory for what that user's containers need while they run.
fn memory() -> TempDir {
    let memory = tempfile::tempdir_in("/dev/shm").expect("a directory");
    std::fs::set_permissions(memory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("changed");
    memory
}

/// How much is left in it. It was used, or this fails.
fn left_in(memory: &TempDir) -> usize {
    std::fs::read_dir(memory.path().join("windlass-4242")).expect("it was used").count()
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Whoever made them, this user can remove all files but those that the test wrote.
fn assert_removable(place: &Path, names: &[&str]) {
    for name in names {
        let removed = Command::new("setpriv")
            .args(["--reuid", "4242", "--regid", "4243", "--clear-groups", "rm", "-r"])
            .arg(place.join(name))
            .output()
            .expect("setpriv is there");
        assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    }
}

fn container(script: &str, mark: &str) -> Value {
    json!({
        "name": "c", "image": "test/busybox:1", "command": ["sh", "-c", script], "env": [{"name": MARK, "value": mark}],
    })
}

#[test]
fn a_job_of_images_runs_to_its_end() {
    let place = place();
    let mark = text(place.path());
    let script = "echo $JOB_COMPLETION_INDEX $(id -u):$(id -g) $(pwd) $(cat /proc/1/comm); sleep 1000 & \
                  test $JOB_COMPLETION_INDEX = 0 || { sh -c 'kill -9 $$$$'; exit $?; }";
    let mut container = container(script, mark);
    // Which is not kept, and said.
    container["resources"] = json!({"limits": {"memory": "64Mi"}});
    let job = json!({
        "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"},
        "spec": {
            "completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0, "backoffLimit": 6,
            "podFailurePolicy": {"rules": [{"action": "FailIndex", "onExitCodes": {"operator": "In", "values": [137]}}]},
            "template": {"spec": {"restartPolicy": "Never", "containers": [container]}},
        },
    });
    std::fs::write(place.path().join("job.json"), job.to_string()).expect("written");
    let mut command =
        as_user(place.path(), &["run", "--image-dir", "images", "--logs", "all", "-o", "json", "job.json"]);
    let memory = memory();
    command.env("WINDLASS_LOG", "warn").env("XDG_RUNTIME_DIR", memory.path());
    let ran = finish(&mut command, "");
    assert_eq!(ran.code, Some(1), "{}", ran.stderr);
    let status = &ran.json()["status"];
    let got = (&status["completedIndexes"], &status["failedIndexes"], &status["failed"]);
    assert_eq!(got, (&json!("0"), &json!("1"), &json!(1)), "{}", ran.stderr);
    let mut lines: Vec<&str> =
        ran.stderr.lines().filter_map(|line| Some(line.split_once(" | ")?.1)).collect();
    lines.sort_unstable();
    assert_eq!(lines, ["0 33:34 /tmp sh", "1 33:34 /tmp sh", "Killed"], "{}", ran.stderr);
    assert_eq!(ran.count("limits of containers are not enforced"), 1, "{}", ran.stderr);
    wait_until("the end of all processes", || processes_with_variable(MARK, mark).is_empty().then_some(()));
    assert_eq!(left_in(&memory), 0);
    assert_removable(place.path(), &[".local"]);
}

async fn create(client: &Client, name: &str, policy: &str, script: &str, mark: &str) {
    let mut container = container(script, mark);
    container["volumeMounts"] = json!([
        {"name": "empty", "mountPath": "/data"}, {"name": "words", "mountPath": "/words"},
    ]);
    container["securityContext"] = json!({"readOnlyRootFilesystem": true});
    let pod = json!({
        "metadata": {"name": name},
        "spec": {
            "restartPolicy": policy, "containers": [container], "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "empty", "emptyDir": {}}, {"name": "words", "configMap": {"name": "words"}}],
        },
    });
    let pod = serde_json::from_value(pod).expect("a pod");
    Api::<Pod>::default_namespaced(client.clone())
        .create(&PostParams::default(), &pod)
        .await
        .expect("created");
}

#[tokio::test]
async fn a_killed_node_of_a_user_leaves_nothing_running_and_the_next_one_begins_no_run_twice() {
    let place = place();
    let mark = text(place.path());
    let data = place.path().join("data");
    let mut server = as_user(place.path(), &Served::args(&data, &["--nodes", "0"]));
    let served = Served::with(&data, &mut server);
    let client = served.client().await;
    let token =
        finish(&mut as_user(place.path(), &["token", "--data-dir", text(&data), "--node", "two"]), "");
    assert_eq!(token.code, Some(0), "{}", token.stderr);
    let args = node::args(&data, token.stdout.trim(), "two");
    let args: Vec<&str> = args.iter().map(String::as_str).chain(["--image-dir", "images"]).collect();
    let memory = memory();
    let start = || {
        let mut command = as_user(place.path(), &args);
        let mut running = Running::spawn(command.env("XDG_RUNTIME_DIR", memory.path()));
        running.wait_for_lines(&["runs node two"]);
        running
    };
    let mut two = start();
    let words = json!({"metadata": {"name": "words"}, "data": {"word": "sesame"}});
    let words: ConfigMap = serde_json::from_value(words).expect("a ConfigMap");
    Api::default_namespaced(client.clone()).create(&PostParams::default(), &words).await.expect("created");
    // Root of a container may leave its session and its environment; the mark is for the others.
    let runs = "touch /data/$HOSTNAME; ! touch /etc/x 2>/dev/null && test $(cat /words/word) = sesame || exit 9; \
                busybox setsid env -i busybox sleep 1000 & while :; do sleep 0.01; done";
    create(&client, "never", "Never", runs, mark).await;
    create(&client, "again", "OnFailure", &format!("test -e /data/again && exit 0; {runs}"), mark).await;
    for name in ["never", "again"] {
        node::until(&client, name, "Running").await;
    }
    two.signal(Signal::KILL);
    two.child.wait().expect("it was ours");
    let two = start();
    let never = node::until(&client, "never", "Failed").await;
    let end = &never["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&end["reason"], &end["exitCode"]), (&json!("ContainerStatusUnknown"), &json!(137)));
    let again = node::until(&client, "again", "Succeeded").await;
    assert_eq!(again["status"]["containerStatuses"][0]["restartCount"], 1);

    create(
        &client,
        "deleted",
        "Never",
        "trap 'exit 5' TERM; touch /data/x; while :; do sleep 0.01; done",
        mark,
    )
    .await;
    node::until(&client, "deleted", "Running").await;
    let pods = Api::<Pod>::default_namespaced(client.clone());
    for name in ["never", "again", "deleted"] {
        pods.delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    crate::server::wait_for("all pods to go", async || {
        pods.list(&kube::api::ListParams::default()).await.expect("listed").items.is_empty().then_some(())
    })
    .await;
    wait_until("the end of all processes", || processes_with_variable(MARK, mark).is_empty().then_some(()));
    let left = || std::fs::read_dir(data.join("two/pods")).expect("a directory").count();
    wait_until("the files of all pods to go", || (left() == 0).then_some(()));
    two.signal(Signal::TERM);
    assert_eq!(two.finish().code, Some(0));
    assert_eq!(left_in(&memory), 0);
    assert_eq!(served.stop(), Some(0));
    assert_removable(place.path(), &["data"]);
}
