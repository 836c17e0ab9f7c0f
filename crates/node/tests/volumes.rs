//! Volumes, users and limits of containers on this machine. Run as root, on a kernel with mount namespaces.

mod common;

use std::time::Duration;

use common::fixture::{Fixture, ends, never, phase, sh, status};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::Api;
use kube::api::PostParams;
use serde_json::{Value, json};
use windlass_node::backoff::Limits;

#[test]
fn keeper_process() {
    common::keeper_entry("keeper_process");
}

/// A place that this machine does not have.
const MISSING: &str = "/windlass-test-volumes";

fn with(mut container: Value, mounts: Value, volumes: Value) -> Value {
    container["volumeMounts"] = mounts;
    let mut spec = never(json!([container]));
    spec["volumes"] = volumes;
    spec
}

async fn output(fixture: &Fixture, name: &str, spec: Value) -> String {
    fixture.create(name, spec).await;
    let pod = fixture.ended(name).await;
    let log = std::fs::read_to_string(fixture.log(&pod, "c", 0)).unwrap_or_default();
    assert_eq!(phase(&pod), "Succeeded", "{name}: {:?} {log}", status(&pod).container_statuses);
    log
}

#[tokio::test]
async fn volumes_are_at_their_paths_for_all_containers_of_the_pod_and_for_nobody_else() {
    let fixture = Fixture::new().await;
    let mount = |path: &str| json!([{"name": "v", "mountPath": path}]);
    let write = with(
        sh("i", &format!("echo shared > {MISSING}/deep/er/f")),
        mount(&format!("{MISSING}/deep/er")),
        json!([]),
    );
    let mut spec = with(
        sh(
            "c",
            "cat /etc/windlass-test/f; ls /etc/passwd; ls -d /usr; hostname; touch /etc/windlass-test/new",
        ),
        mount("/etc/windlass-test"),
        json!([{"name": "v", "emptyDir": {}}]),
    );
    spec["initContainers"] = json!([write["containers"][0]]);
    assert_eq!(output(&fixture, "p", spec).await, "shared\n/etc/passwd\n/usr\np\n");
    assert!(!std::path::Path::new(MISSING).exists(), "nothing is left on the machine");
    assert!(!std::path::Path::new("/etc/windlass-test").exists(), "nothing is left on the machine");
}

#[tokio::test]
async fn files_come_from_the_api() {
    let fixture = Fixture::new().await;
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "from map"}, "binaryData": {"b": "AAEC"}});
    let map: ConfigMap = serde_json::from_value(map).expect("a map");
    let secret = json!({"metadata": {"name": "s"}, "data": {"k": "c2VjcmV0"}});
    let secret: Secret = serde_json::from_value(secret).expect("a secret");
    let params = PostParams::default();
    Api::<ConfigMap>::default_namespaced(fixture.client.clone())
        .create(&params, &map)
        .await
        .expect("created");
    Api::<Secret>::default_namespaced(fixture.client.clone())
        .create(&params, &secret)
        .await
        .expect("created");
    let script = "cat $D/m/k $D/s/k $D/d/name; wc -c < $D/m/b; stat -Lc %a $D/s/k; cat $D/one; cat $D/all/name $D/all/x/k; \
                  echo x 2>/dev/null > $D/m/k || echo read-only";
    let mut container = sh("c", script);
    container["env"] = json!([{"name": "D", "value": MISSING}]);
    let at = |name: &str, path: &str| json!({"name": name, "mountPath": format!("{MISSING}/{path}")});
    let mut one = at("m", "one");
    one["subPath"] = json!("k");
    let name = json!({"path": "name", "fieldRef": {"fieldPath": "metadata.name"}});
    let volumes = json!([
        {"name": "m", "configMap": {"name": "m"}},
        {"name": "s", "secret": {"secretName": "s", "defaultMode": 0o400}},
        {"name": "d", "downwardAPI": {"items": [name]}},
        {"name": "all", "projected": {"sources": [
            {"downwardAPI": {"items": [name]}}, {"configMap": {"name": "m", "items": [{"key": "k", "path": "x/k"}]}},
        ]}},
    ]);
    let mounts = json!([at("m", "m"), at("s", "s"), at("d", "d"), at("all", "all"), one]);
    let log = output(&fixture, "p", with(container, mounts, volumes)).await;
    assert_eq!(log, "from mapsecretp3\n400\nfrom mappfrom mapread-only\n");
}

#[tokio::test]
async fn a_change_of_a_config_map_is_seen_by_a_container_that_runs() {
    let fixture = Fixture::with(|config| config.refresh_every = Duration::from_millis(20)).await;
    let maps = Api::<ConfigMap>::default_namespaced(fixture.client.clone());
    let map =
        serde_json::from_value(json!({"metadata": {"name": "m"}, "data": {"k": "old"}})).expect("a map");
    maps.create(&PostParams::default(), &map).await.expect("created");
    let at = format!("{MISSING}-fresh");
    let script = format!("cat {at}/k; until [ \"$(cat {at}/k)\" = new ]; do sleep 0.01; done; cat {at}/k");
    let mounts = json!([{"name": "m", "mountPath": at}]);
    fixture
        .create("p", with(sh("c", &script), mounts, json!([{"name": "m", "configMap": {"name": "m"}}])))
        .await;
    let pod = fixture.running("p").await;
    common::wait_for_text(&fixture.log(&pod, "c", 0), "old").await;
    let patch = kube::api::Patch::Merge(json!({"data": {"k": "new"}}));
    maps.patch("m", &kube::api::PatchParams::default(), &patch).await.expect("patched");
    assert_eq!(phase(&fixture.ended("p").await), "Succeeded");
}

#[tokio::test]
async fn a_volume_that_is_not_there_keeps_the_pod_from_starting_until_it_is() {
    let fixture = Fixture::new().await;
    let mounts = json!([{"name": "m", "mountPath": format!("{MISSING}-late")}]);
    let spec = with(sh("c", "exit 0"), mounts, json!([{"name": "m", "configMap": {"name": "late"}}]));
    fixture.create("p", spec).await;
    let pod = fixture.until("p", |pod| status(pod).container_statuses.is_some()).await;
    assert_eq!((phase(&pod), ends(&pod)), ("Pending", vec!["c ContainerCreating restarts=0".into()]));
    let want = "FailedMount MountVolume.SetUp failed for volume \"m\" : configmap \"late\" not found";
    assert_eq!(fixture.events.lock().first().map(String::as_str), Some(want));
    let map = serde_json::from_value(json!({"metadata": {"name": "late"}})).expect("a map");
    let maps = Api::<ConfigMap>::default_namespaced(fixture.client.clone());
    maps.create(&PostParams::default(), &map).await.expect("created");
    assert_eq!(phase(&fixture.ended("p").await), "Succeeded");
}

#[tokio::test]
async fn a_host_path_is_the_machines_own_and_memory_is_bounded() {
    let fixture = Fixture::new().await;
    let host = fixture.directory.path().join("host");
    let volumes = json!([
        {"name": "h", "hostPath": {"path": host, "type": "DirectoryOrCreate"}},
        {"name": "m", "emptyDir": {"medium": "Memory", "sizeLimit": "64Ki"}},
    ]);
    let mounts = json!([
        {"name": "h", "mountPath": format!("{MISSING}-h")},
        {"name": "h", "mountPath": format!("{MISSING}-h/ro"), "readOnly": true, "subPathExpr": "of-$(HOSTNAME)"},
        {"name": "m", "mountPath": format!("{MISSING}-m")},
    ]);
    let script = format!(
        "echo out > {MISSING}-h/f; stat -fc %T {MISSING}-m; head -c 100000 /dev/zero 2>/dev/null > {MISSING}-m/f || echo full; \
         touch {MISSING}-h/ro/x 2>/dev/null || echo read-only"
    );
    let log = output(&fixture, "p", with(sh("c", &script), mounts, volumes)).await;
    assert_eq!(log, "tmpfs\nfull\nread-only\n");
    assert_eq!(std::fs::read_to_string(host.join("f")).expect("written"), "out\n");
    assert!(host.join("of-p").is_dir());
}

#[tokio::test]
async fn a_container_with_a_volume_has_the_machines_devices_and_leaves_nothing_among_them() {
    let fixture = Fixture::new().await;
    let ours = format!("/dev/windlass-test-{}", std::process::id());
    let (socket, file) = (format!("{ours}.sock"), format!("{ours}.file"));
    let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket among the devices");
    std::fs::write(&file, "before").expect("a file among the devices");
    let script = format!(
        "set -e; head -c 3 /dev/zero | wc -c; echo x > /dev/null; test -c /dev/tty; stat -c %d /dev/shm /dev/pts
         perl -MIO::Socket::UNIX -e 'print IO::Socket::UNIX->new(Peer => \"{socket}\") ? \"heard\" : \"lost\", \"\\n\"'
         echo -n after > {file}; echo left > {ours}.left; cat {ours}.left; echo said > /dev/termination-log"
    );
    let mounts = json!([{"name": "v", "mountPath": format!("{MISSING}-d")}]);
    let spec = with(sh("c", &script), mounts, json!([{"name": "v", "emptyDir": {}}]));
    let log = output(&fixture, "p", spec).await;
    let device = |path| std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(path).expect("there"));
    let written = std::fs::read_to_string(&file).expect("it is there");
    drop(listener);
    for path in [&socket, &file] {
        std::fs::remove_file(path).expect("ours");
    }
    assert_eq!(log, format!("3\n{}\n{}\nheard\nleft\n", device("/dev/shm"), device("/dev/pts")));
    assert_eq!(written, "after", "files are those of the machine");
    assert!(!std::path::Path::new(&format!("{ours}.left")).exists(), "nothing is left on the machine");
    let pod = fixture.ended("p").await;
    let containers = status(&pod).container_statuses.as_deref().unwrap_or_default();
    let end = containers[0].state.as_ref().and_then(|state| state.terminated.as_ref());
    assert_eq!(end.and_then(|end| end.message.as_deref()), Some("said\n"));
}

#[tokio::test]
async fn a_link_in_a_volume_does_not_lead_a_sub_path_out_of_it() {
    let fixture = Fixture::new().await;
    let secret = fixture.directory.path().join("secret");
    std::fs::create_dir(&secret).expect("made");
    std::fs::write(secret.join("key"), "hidden").expect("written");
    let mut link = sh("i", &format!("ln -s {} {MISSING}-l/way", secret.display()));
    link["volumeMounts"] = json!([{"name": "v", "mountPath": format!("{MISSING}-l")}]);
    let mounts = json!([{"name": "v", "mountPath": format!("{MISSING}-l"), "subPath": "way"}]);
    let mut spec =
        with(sh("c", &format!("cat {MISSING}-l/key")), mounts, json!([{"name": "v", "emptyDir": {}}]));
    spec["initContainers"] = json!([link]);
    for container in ["initContainers", "containers"] {
        spec[container][0]["image"] = json!("host");
    }
    fixture.create("p", spec).await;
    let pod = fixture.ended("p").await;
    assert_eq!((phase(&pod), ends(&pod)[1].as_str()), ("Failed", "c StartError 128 restarts=0"));
    let state =
        status(&pod).container_statuses.as_ref().expect("statuses")[0].state.clone().expect("a state");
    let message = state.terminated.expect("ended").message.unwrap_or_default();
    let uid = pod.metadata.uid.as_deref().expect("a uid");
    let volume = fixture.directory.path().join("pods").join(uid).join("volumes/v");
    // EXDEV: it would have led out.
    let begin = format!("set up the container: mount {} at {MISSING}-l: ", volume.display());
    assert!(message.starts_with(&begin) && message.ends_with("(os error 18)"), "{message}");
}

#[tokio::test]
async fn a_directory_that_becomes_a_link_while_containers_start_never_leads_them_out_of_their_volume() {
    let quick = Limits { base: Duration::from_millis(1), max: Duration::from_millis(1) };
    let fixture = Fixture::with(|config| config.crash_backoff = quick).await;
    let machine = fixture.directory.path().join("machine");
    std::fs::create_dir(&machine).expect("made");
    std::fs::write(machine.join("key"), "hidden").expect("written");
    let (seen, starts) = (fixture.directory.path().join("seen"), fixture.directory.path().join("starts"));
    // Now a directory, now a link, now nothing. What the node makes in between is in the way, and goes.
    let swap = r#"chdir shift; mkdir "dir"; symlink shift, "link"; while (1) { for ("link", "dir") {
        rename $_, "way" or rmdir "way"; rename "way", $_; } }"#;
    let swapper = json!({
        "name": "swapper", "command": ["perl", "-e", swap, format!("{MISSING}-w"), machine],
        "volumeMounts": [{"name": "v", "mountPath": format!("{MISSING}-w")}],
    });
    let text = format!(
        "echo x >> {}; test -e {MISSING}-w/key && touch {}; exit 1",
        starts.display(),
        seen.display()
    );
    let mounts = json!([{"name": "v", "mountPath": format!("{MISSING}-w"), "subPath": "way"}]);
    let mut spec = with(sh("c", &text), mounts, json!([{"name": "v", "emptyDir": {}}]));
    spec["containers"].as_array_mut().expect("a list").push(swapper);
    spec["restartPolicy"] = json!("OnFailure");
    fixture.create("p", spec).await;
    let begin = std::time::Instant::now();
    let restarts = |pod: &Pod| {
        let all = status(pod).container_statuses.iter().flatten();
        all.filter(|container| container.name == "c").map(|container| container.restart_count).sum::<i32>()
    };
    // Sixty starts, or three seconds if there were enough by then.
    let is_enough = |pod: &Pod| {
        let count = restarts(pod);
        count >= 60 || (count >= 20 && begin.elapsed() > Duration::from_secs(3))
    };
    fixture.until("p", is_enough).await;
    assert!(!seen.exists(), "a container has seen what is on the machine");
    assert_eq!(std::fs::read_dir(&machine).expect("there").count(), 1, "nothing is made there");
    assert!(starts.exists(), "it is not always a link");
}

#[tokio::test]
async fn a_part_of_a_volume_that_is_not_there_is_made_so_that_the_user_can_write_to_it() {
    let fixture = Fixture::new().await;
    let script = format!("umask 022; echo > {MISSING}-s/f && stat -c '%a %u:%g' {MISSING}-s {MISSING}-s/f");
    let mut container = sh("c", &script);
    container["securityContext"] = json!({"runAsUser": 1000, "runAsGroup": 1000});
    let mounts = json!([{"name": "v", "mountPath": format!("{MISSING}-s"), "subPath": "a/b"}]);
    let mut spec = with(container, mounts, json!([{"name": "v", "emptyDir": {}}]));
    assert_eq!(output(&fixture, "plain", spec.clone()).await, "777 0:0\n644 1000:1000\n");
    spec["securityContext"] = json!({"fsGroup": 45678});
    assert_eq!(output(&fixture, "group", spec).await, "2777 0:45678\n644 1000:45678\n");
}

#[tokio::test]
async fn secrets_are_in_memory_and_fresh_while_their_pod_is_there() {
    let fixture = Fixture::with(|config| config.refresh_every = Duration::from_millis(20)).await;
    let secrets = Api::<Secret>::default_namespaced(fixture.client.clone());
    let secret = json!({"metadata": {"name": "s"}, "stringData": {"k": "old"}});
    let secret = serde_json::from_value(secret).expect("a secret");
    secrets.create(&PostParams::default(), &secret).await.expect("created");
    let at = format!("{MISSING}-k");
    let script = format!(
        "stat -fc %T {at}/s {at}/all; until [ \"$(cat {at}/s/k {at}/all/k)\" = newnew ]; do sleep 0.01; done; echo seen; \
         while :; do sleep 0.01; done"
    );
    let mounts = json!([
        {"name": "s", "mountPath": format!("{at}/s")}, {"name": "all", "mountPath": format!("{at}/all")},
    ]);
    let volumes = json!([
        {"name": "s", "secret": {"secretName": "s"}},
        {"name": "all", "projected": {"sources": [{"secret": {"name": "s"}}]}},
        {"name": "d", "downwardAPI": {"items": [{"path": "name", "fieldRef": {"fieldPath": "metadata.name"}}]}},
    ]);
    let mut spec = with(sh("c", &script), mounts, volumes);
    spec["terminationGracePeriodSeconds"] = json!(0);
    fixture.create("p", spec).await;
    let pod = fixture.running("p").await;
    let log = fixture.log(&pod, "c", 0);
    common::wait_for_text(&log, "tmpfs\ntmpfs\n").await;
    let of_pod = fixture.directory.path().join("pods").join(pod.metadata.uid.as_deref().expect("a uid"));
    let mounted = || {
        let table = std::fs::read_to_string("/proc/self/mountinfo").expect("read");
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(std::path::Path::new);
        let own = points.filter_map(|point| point.strip_prefix(of_pod.join("volumes")).ok());
        own.map(|name| name.display().to_string()).collect::<std::collections::BTreeSet<_>>()
    };
    assert_eq!(mounted(), ["all", "s"].map(str::to_owned).into());
    let patch = kube::api::Patch::Merge(json!({"stringData": {"k": "new"}}));
    secrets.patch("s", &kube::api::PatchParams::default(), &patch).await.expect("patched");
    common::wait_for_text(&log, "seen").await;
    fixture.watch("p", true, |pod| pod.is_none()).await;
    common::wait_for("the files to go", || (mounted().is_empty() && !of_pod.exists()).then_some(())).await;
}

#[tokio::test]
async fn a_container_runs_as_the_user_it_asks_for_and_its_volumes_are_the_groups() {
    let fixture = Fixture::new().await;
    let script = format!(
        "id -u; id -g; id -G; touch {MISSING}-u/f && stat -c %g {MISSING}-u/f; grep -E 'NoNewPrivs|CapBnd' /proc/self/status; \
         kill -0 $PPID 2>/dev/null || echo powerless"
    );
    let mut container = sh("c", &script);
    container["securityContext"] = json!({
        "runAsUser": 12345, "allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]},
    });
    let mounts = json!([{"name": "v", "mountPath": format!("{MISSING}-u")}]);
    let mut spec = with(container, mounts, json!([{"name": "v", "emptyDir": {}}]));
    spec["securityContext"] = json!({"runAsGroup": 23456, "supplementalGroups": [34567], "fsGroup": 45678});
    let log = output(&fixture, "p", spec).await;
    let mut lines = log.lines();
    assert_eq!(lines.next(), Some("12345"));
    assert_eq!(lines.next(), Some("23456"));
    assert_eq!(lines.next(), Some("23456 34567 45678"));
    assert_eq!(lines.next(), Some("45678"));
    assert_eq!(lines.next(), Some("CapBnd:\t0000000000000000"));
    assert_eq!(lines.next(), Some("NoNewPrivs:\t1"));
    assert_eq!(lines.next(), Some("powerless"));
}

#[tokio::test]
async fn a_read_only_root_can_be_written_only_in_its_volumes() {
    let fixture = Fixture::new().await;
    let script = format!(
        "touch /tmp/x-$$$$ 2>/dev/null || echo no; echo yes > {MISSING}-r/f; cat {MISSING}-r/f; echo > /dev/null"
    );
    let mut container = sh("c", &script);
    container["securityContext"] = json!({"readOnlyRootFilesystem": true});
    container["workingDir"] = json!("/");
    let mounts = json!([{"name": "v", "mountPath": format!("{MISSING}-r")}]);
    let spec = with(container, mounts, json!([{"name": "v", "emptyDir": {}}]));
    assert_eq!(output(&fixture, "p", spec).await, "no\nyes\n");
}

#[tokio::test]
async fn a_container_that_takes_too_much_memory_is_killed_and_said_to_be() {
    let fixture = Fixture::new().await;
    let mut container = sh("c", "head -c 200000000 /dev/zero | tail | wc -c; exit 3");
    container["resources"] = json!({"limits": {"memory": "32Mi"}});
    fixture.create("p", never(json!([container]))).await;
    let pod = fixture.ended("p").await;
    assert_eq!((phase(&pod), ends(&pod)), ("Failed", vec!["c OOMKilled 3 restarts=0".into()]));
    let mut container = json!({"name": "c", "command": ["tail", "/dev/zero"]});
    container["resources"] = json!({"limits": {"memory": "32Mi", "cpu": "500m"}});
    fixture.create("q", never(json!([container]))).await;
    let pod = fixture.ended("q").await;
    assert_eq!((phase(&pod), ends(&pod)), ("Failed", vec!["c OOMKilled 137 restarts=0".into()]));
}

#[tokio::test]
async fn a_fork_bomb_is_held_by_the_limit_of_processes() {
    let fixture = Fixture::with(|config| config.pids_max = Some(30)).await;
    let script = "for i in $(seq 100); do sleep 1000 & done 2>/dev/null; echo never";
    fixture.create("p", never(json!([sh("c", script)]))).await;
    let pod = fixture.ended("p").await;
    let log = std::fs::read_to_string(fixture.log(&pod, "c", 0)).expect("a log");
    assert_eq!((phase(&pod), log.contains("never")), ("Failed", false), "{log}");
}

#[tokio::test]
async fn exec_in_a_container_sees_its_volumes_as_its_user() {
    let fixture = Fixture::new().await;
    let mut container = sh("c", &format!("id -u > {MISSING}-e/f; while :; do sleep 0.01; done"));
    container["securityContext"] = json!({"runAsUser": 12345});
    let out = fixture.directory.path().join("seen");
    std::fs::write(&out, "").expect("written");
    std::fs::set_permissions(&out, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("open to all");
    let script = format!("cat {MISSING}-e/f > {MISSING}-o; id -u >> {MISSING}-o");
    container["readinessProbe"] =
        json!({"exec": {"command": ["sh", "-c", script]}, "periodSeconds": 1, "timeoutSeconds": 60});
    let mounts = json!([
        {"name": "v", "mountPath": format!("{MISSING}-e")}, {"name": "o", "mountPath": format!("{MISSING}-o")},
    ]);
    let volumes = json!([{"name": "v", "emptyDir": {}}, {"name": "o", "hostPath": {"path": out}}]);
    fixture.create("p", with(container, mounts, volumes)).await;
    fixture.until("p", |pod| common::fixture::condition(pod, "Ready") == "True ").await;
    assert_eq!(std::fs::read_to_string(out).expect("written"), "12345\n12345\n");
}
