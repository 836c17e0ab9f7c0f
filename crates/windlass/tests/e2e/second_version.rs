//! Limits where only version 2 of control groups is mounted, as on most machines: in a small virtual machine, for there is no
//! other way to have it everywhere.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;

use serde_json::{Value, json};
use windlass_conformance::assets;

use crate::support::job;
use crate::upstream::images::{busybox, write_layout};

/// Asked for by all pods that look at their limits.
const MEMORY: &str = "32Mi";
/// More than that. Swap has room for it.
const MORE: &str = "dd if=/dev/zero of=/dev/null bs=100M count=1";
/// Prints the group of a container and what is in its files, and leaves a process.
const LOOK: &str = "setsid sleep 4000 & cd /sys/fs/cgroup$(sed s/^0::// /proc/self/cgroup) && pwd && \
                    for file in memory.max memory.swap.max memory.oom.group cpu.max cpu.weight pids.max; do \
                    test -e $file && echo $file $(cat $file); done";
/// Processes that start others as long as they can; the first one, which starts only one, ends when one could not.
const BOMB: &str = "cd /sys/fs/cgroup$(sed s/^0::// /proc/self/cgroup) && read -r most < pids.max; \
                    f() { f & f & }; f 2> /dev/null & \
                    while read -r _ refused < pids.events && test $refused = 0; do :; done; \
                    echo at most $most; exit 7";

/// How many seconds the machine may take. It takes one minute on two cores that are busy with other things, too.
const PATIENCE: &str = "600";

/// What the machine said, all of it.
static CONSOLE: LazyLock<String> = LazyLock::new(console);

fn console() -> String {
    let directory = tempfile::tempdir().expect("a directory");
    let [root, archive, swap] = ["root", "archive", "swap"].map(|name| directory.path().join(name));
    furnish(&root);
    pack(&root, &archive);
    std::fs::File::create(&swap).and_then(|file| file.set_len(256 << 20)).expect("a file");
    let kernel = assets::kernel().expect("a kernel");
    let mut machine = Command::new("timeout");
    machine.args(["--foreground", "--signal", "KILL", PATIENCE, "qemu-system-x86_64"]);
    // Emulated: that works the same everywhere, and the kernel is up after three seconds.
    machine.args([
        "-accel",
        "tcg",
        "-m",
        "1024",
        "-smp",
        "2",
        "-nodefaults",
        "-display",
        "none",
        "-no-reboot",
    ]);
    machine.args(["-serial", "stdio", "-append", "console=ttyS0 quiet loglevel=0 panic=-1", "-kernel"]);
    machine.arg(kernel).arg("-initrd").arg(archive);
    machine.arg("-drive").arg(format!("if=none,id=swap,format=raw,file={}", swap.display()));
    machine.args(["-device", "nvme,drive=swap,serial=swap"]);
    let ran = machine.stdin(Stdio::null()).output().expect("timeout is there");
    let [said, errors] = [ran.stdout, ran.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(ran.status.success(), "{}: {errors}\n{said}", ran.status);
    said.replace('\r', "")
}

/// Writes all files of the machine.
fn furnish(root: &Path) {
    for directory in ["bin", "scene"] {
        std::fs::create_dir_all(root.join(directory)).expect("made");
    }
    copy(Path::new("/bin/busybox"), root, "bin/busybox");
    let stripped = Command::new("strip")
        .arg("-o")
        .arg(root.join("bin/windlass"))
        .arg(env!("CARGO_BIN_EXE_windlass"))
        .status();
    assert!(stripped.expect("strip is there").success());
    // Busybox has an unshare that knows no namespaces of control groups, and a wget that asks openssl for TLS.
    let programs = ["bin/openssl", "scene/unshare", "scene/crun", "scene/runc", "scene/youki"];
    let programs = programs.map(|place| (place, on_path(place.rsplit('/').next().expect("a name"))));
    for (place, program) in &programs {
        copy(program, root, place);
    }
    let windlass = PathBuf::from(env!("CARGO_BIN_EXE_windlass"));
    for library in libraries(programs.into_iter().map(|(_, program)| program).chain([windlass])) {
        copy(&library, root, library.to_str().expect("UTF-8").trim_start_matches('/'));
    }
    write_layout(&root.join("scene/images"), "test/busybox:1", &busybox(json!({})));
    for (name, text) in [
        ("init", include_str!("second_version/init").to_owned()),
        ("scene/node", include_str!("second_version/node").to_owned()),
        ("scene/limits.json", limits().to_string()),
        ("scene/held.json", image(true).to_string()),
        ("scene/apart.json", image(false).to_string()),
        ("scene/bomb.json", pod("bomb", &["sh", "-c", BOMB], json!({})).to_string()),
        ("scene/hog.json", pod("hog", &["tail", "/dev/zero"], json!({"memory": MEMORY})).to_string()),
    ] {
        std::fs::write(root.join(name), text).expect("written");
    }
    std::fs::set_permissions(root.join("init"), PermissionsExt::from_mode(0o755)).expect("changed");
}

fn copy(file: &Path, root: &Path, name: &str) {
    let target = root.join(name);
    std::fs::create_dir_all(target.parent().expect("it is below the root")).expect("made");
    std::fs::copy(file, target).unwrap_or_else(|error| panic!("copy {}: {error}", file.display()));
}

fn on_path(program: &str) -> PathBuf {
    let path = std::env::var_os("PATH").expect("a PATH");
    let found =
        std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file());
    found.unwrap_or_else(|| panic!("{program} is not installed: run `cargo xtask reference`"))
}

/// What programs are linked with.
fn libraries(programs: impl Iterator<Item = PathBuf>) -> BTreeSet<PathBuf> {
    let said = Command::new("ldd").args(programs).output().expect("ldd is there").stdout;
    let said = String::from_utf8(said).expect("UTF-8");
    // As in `libc.so.6 => /lib/libc.so.6 (0x1)` and `/lib64/ld.so (0x2)`.
    let files = said.lines().filter_map(|line| {
        let (before, _) = line.rsplit_once(" (0x")?;
        before.split_whitespace().next_back().filter(|file| file.starts_with('/'))
    });
    files.map(PathBuf::from).collect()
}

/// Makes of a directory what the kernel unpacks.
fn pack(root: &Path, archive: &Path) {
    let script = "cd \"$0\" && find . | /bin/busybox cpio -o -H newc > \"$1\"";
    let packed = Command::new("sh").args(["-c", script]).arg(root).arg(archive).output().expect("a shell");
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
}

/// A Job that takes too much memory and one that looks at its limits.
fn limits() -> Value {
    let job = |name: &str, script: &str, resources: Value| {
        let mut job: Value =
            serde_json::from_str(&job(name, json!({"backoffLimit": 0}), script)).expect("a Job");
        job["spec"]["template"]["spec"]["containers"][0]["resources"] = resources;
        job
    };
    let hog = job("hog", &format!("{MORE}; exit 3"), json!({"limits": {"memory": MEMORY}}));
    let look =
        job("look", LOOK, json!({"limits": {"memory": MEMORY, "cpu": "500m"}, "requests": {"cpu": "250m"}}));
    json!({"apiVersion": "v1", "kind": "List", "items": [hog, look]})
}

/// Two containers of an image that start together, of which the first takes too much memory. With `hostPID` only their groups hold their processes.
fn image(has_host_pid: bool) -> Value {
    let script = format!(
        "(sleep 4000 & sleep 4000) & cat /proc/self/cgroup; test $JOB_COMPLETION_INDEX = 1 || {{ {MORE}; exit 3; }}"
    );
    let spec = json!({
        "completions": 2, "parallelism": 2, "completionMode": "Indexed", "backoffLimitPerIndex": 0,
    });
    let mut job: Value = serde_json::from_str(&job("image", spec, &script)).expect("a Job");
    let pod = &mut job["spec"]["template"]["spec"];
    pod["hostPID"] = json!(has_host_pid);
    pod["containers"][0]["image"] = json!("test/busybox:1");
    pod["containers"][0]["resources"] = json!({"limits": {"memory": MEMORY}});
    job
}

fn pod(name: &str, command: &[&str], limits: Value) -> Value {
    let container = json!({
        "name": "main", "image": "host", "command": command, "resources": {"limits": limits},
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    })
}

/// What was said in one of the scenes.
struct Scene(Vec<&'static str>);

impl Scene {
    fn of(name: &str) -> Self {
        let title = format!("== {name}");
        let mut lines = CONSOLE.lines().skip_while(|line| *line != title);
        assert!(lines.next().is_some(), "no scene {name:?} in:\n{}", *CONSOLE);
        Self(lines.take_while(|line| !line.starts_with("== ")).collect())
    }

    fn all(&self) -> String {
        self.0.join("\n")
    }

    /// What pods have printed.
    fn logs(&self) -> Vec<&'static str> {
        self.0.iter().filter_map(|line| Some(line.split_once(" | ")?.1)).collect()
    }

    /// How the pods of a Job failed.
    fn failures(&self, job: &str) -> Vec<&'static str> {
        let start = format!("job/{job}: pod ");
        let failures = self.0.iter().filter(|line| line.starts_with(&start) && line.contains(" failed, "));
        failures.filter_map(|line| Some(line.rsplit_once(" (")?.1.trim_end_matches(')'))).collect()
    }

    /// What was there afterwards and not before.
    fn left(&self) -> Vec<&'static str> {
        self.0.iter().filter_map(|line| line.strip_prefix("left ")).collect()
    }

    fn has(&self, text: &str) -> bool {
        self.0.iter().any(|line| line.contains(text))
    }
}

/// All that a run should come to where its groups go below `tree`, and such limits can be kept.
fn assert_limited(name: &str, tree: &str, files: &[&str], left: &[&str]) {
    let scene = Scene::of(name);
    let all = scene.all();
    assert_eq!(scene.failures("hog"), ["container main: exit code 137, OOMKilled"], "{all}");
    let logs = scene.logs();
    assert!(logs.first().is_some_and(|group| group.starts_with(&format!("{tree}/windlass/"))), "{all}");
    assert_eq!(&logs[1..], files, "{all}");
    assert_eq!((scene.has("job/look: Complete"), scene.has("exit 1")), (true, true), "{all}");
    assert_eq!(scene.left(), left, "{all}");
}

/// Where services of a user go.
const SLICE: &str = "/user.slice/user-1000.slice/user@1000.service/app.slice";

/// What a container finds that has all limits.
const FILES: [&str; 6] = [
    "memory.max 33554432",
    "memory.swap.max 0",
    "memory.oom.group 1",
    "cpu.max 50000 100000",
    "cpu.weight 10",
    "pids.max max",
];

#[test]
fn limits_are_kept_in_a_session_although_nobody_has_asked_for_the_cpu_before() {
    assert_limited("session", "/sys/fs/cgroup/user.slice/user-0.slice", &FILES, &[]);
    assert!(!Scene::of("session").has(" WARN "), "{}", Scene::of("session").all());
}

#[test]
fn limits_are_kept_in_the_first_group_of_the_machine() {
    assert_limited("root", "/sys/fs/cgroup", &FILES, &[]);
    assert!(!Scene::of("root").has(" WARN "), "{}", Scene::of("root").all());
}

#[test]
fn limits_are_kept_for_a_user_who_owns_a_part_of_the_tree() {
    assert_limited("user", &format!("/sys/fs/cgroup{SLICE}"), &FILES, &[]);
}

#[test]
fn limits_are_kept_in_the_first_group_of_a_container_which_its_processes_leave_for_it() {
    assert_limited("container", "/sys/fs/cgroup", &FILES, &["/sys/fs/cgroup/box/moved-by-windlass"]);
}

#[test]
fn a_controller_that_is_missing_costs_its_limits_and_no_others_and_is_said_once() {
    let files: Vec<&str> = FILES.into_iter().filter(|file| !file.starts_with("cpu.")).collect();
    assert_limited(
        "part of the controllers",
        "/sys/fs/cgroup",
        &files,
        &["/sys/fs/cgroup/part/box/moved-by-windlass"],
    );
    let scene = Scene::of("part of the controllers");
    let said: Vec<_> = scene.0.iter().filter(|line| line.contains(" WARN ")).collect();
    assert_eq!(said.len(), 1, "{}", scene.all());
    assert!(said[0].contains("not all limits of containers are enforced"), "{}", said[0]);
    assert!(said[0].ends_with("file=\"cpu.max\""), "{}", said[0]);
}

#[test]
fn processes_that_multiply_are_held_by_the_limit_of_a_node_and_end_with_their_container() {
    let scene = Scene::of("node");
    let ends: Vec<Value> = scene
        .0
        .iter()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|pod| {
            let end = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
            json!([pod["metadata"]["name"], end["exitCode"], end["reason"], end["message"]])
        })
        .collect();
    let want = [json!(["bomb", 7, "Error", "at most 30\n"]), json!(["hog", 137, "OOMKilled", null])];
    assert_eq!((ends.as_slice(), scene.left()), (want.as_slice(), vec![]), "{}", scene.all());
}

/// What a Job of an image comes to.
fn assert_image_limited(name: &str, tree: &str) {
    let scene = Scene::of(name);
    let all = scene.all();
    assert_eq!(scene.failures("image"), ["container main: exit code 137, OOMKilled"], "{all}");
    let logs = scene.logs();
    assert_eq!(logs.len(), 2, "{all}");
    assert!(logs.iter().all(|group| group.starts_with(&format!("0::{tree}/windlass/"))), "{all}");
    assert!(scene.has("job/image: 1 succeeded, 1 failed"), "{all}");
    assert_eq!(scene.left(), Vec::<&str>::new(), "{all}");
}

#[test]
fn limits_hold_containers_of_images_and_their_groups_hold_their_processes() {
    assert_image_limited("crun", "");
    assert_image_limited("runc", "");
    assert_image_limited("youki", "");
}

#[test]
fn limits_hold_images_of_a_user_who_owns_a_part_of_the_tree() {
    assert_image_limited("crun of a user", SLICE);
    assert_image_limited("youki of a user", SLICE);
}

#[test]
fn the_machine_has_only_the_second_version_and_came_to_its_end() {
    let before = CONSOLE.split("\n== ").next().expect("a beginning");
    assert!(before.lines().any(|line| line == " cgroup2 "), "{before}");
    assert!(!before.lines().any(|line| line == " cgroup "), "{before}");
    assert!(before.contains("/dev/nvme0n1 "), "there is swap: {before}");
    assert_eq!(Scene::of("end").all(), "");
}
