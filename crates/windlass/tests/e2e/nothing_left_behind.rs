//! However the command ends, no process of its pods lives on.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{Running, job, run_manifest, wait_until};

/// An argument of `sleep` that no other process of the machine has.
fn unique_sleep(test: u32) -> String {
    format!("40{:07}.{test}", std::process::id())
}

fn processes() -> impl Iterator<Item = (i32, String)> {
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    pids.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        Some((pid, String::from_utf8_lossy(&line).replace('\0', " ")))
    })
}

fn count(text: &str) -> usize {
    processes().filter(|(_, line)| line.contains(text)).count()
}

pub fn children(parent: u32) -> Vec<i32> {
    let is_child = |pid: &i32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        after_name.split_whitespace().nth(1).and_then(|ppid| ppid.parse().ok()) == Some(parent)
    };
    processes().map(|(pid, _)| pid).filter(is_child).collect()
}

/// A script with a process in the background, one that left for a session of its own, and one in front.
fn family(sleep: &str) -> String {
    format!("sleep {sleep} & setsid sh -c 'sleep {sleep} & sleep {sleep}' & sleep {sleep}")
}

#[test]
fn kill_9_leaves_no_process_behind() {
    let sleep = unique_sleep(1);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("job.json");
    std::fs::write(&file, job("x", json!({"parallelism": 2, "completions": 2}), &family(&sleep)))
        .expect("written");
    let mut command = crate::support::windlass(&["run"]);
    command.arg(&file).env("TMPDIR", directory.path());
    let running = Running::spawn(&mut command);
    // In each of two pods: four processes that sleep, and two shells that have the number in their script.
    wait_until("all processes", || (count(&sleep) == 12).then_some(()));
    let keepers = children(running.child.id());
    assert_eq!(keepers.len(), 1, "one child that keeps all others");
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, None, "killed");
    wait_until("the end of all processes", || (count(&sleep) == 0).then_some(()));
    let keeper = format!("/proc/{}/stat", keepers[0]);
    wait_until("the end of the keeper", || {
        let stat = std::fs::read_to_string(&keeper).unwrap_or_default();
        (stat.is_empty() || stat.contains(") Z")).then_some(())
    });
}

/// The control groups of all containers of the machine.
fn control_groups() -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut next = vec![PathBuf::from("/sys/fs/cgroup")];
    while let Some(directory) = next.pop() {
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let directories = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        for path in directories.map(|entry| entry.path()) {
            if path.ancestors().any(is_agents) {
                found.insert(path.clone());
            }
            next.push(path);
        }
    }
    found
}

#[test]
fn kill_9_leaves_no_control_group_behind() {
    killed_in_its_groups(&json!({"limits": {"memory": "64Mi"}}));
    let own = std::fs::read_to_string("/proc/self/cgroup").expect("groups of this process");
    let is_cpu =
        |line: &str| line.split(':').nth(1).is_some_and(|names| names.split(',').any(|it| it == "cpu"));
    // Without limits it has none of its own: with version 1 all such containers of an agent share one.
    if own.lines().any(is_cpu) {
        killed_in_its_groups(&json!({}));
    }
}

/// Kills a run while its container is in control groups, and waits for their end.
fn killed_in_its_groups(resources: &Value) {
    let sleep = unique_sleep(4);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("job.json");
    let mut limited: Value =
        serde_json::from_str(&job("x", json!({}), &format!("sleep {sleep}"))).expect("JSON");
    limited["spec"]["template"]["spec"]["containers"][0]["resources"] = resources.clone();
    std::fs::write(&file, limited.to_string()).expect("written");
    let running = Running::start(&["-o", "json"], &file);
    wait_until("the process", || (count(&sleep) > 0).then_some(()));
    // By the process, because other tests make groups as well.
    let of_process = || {
        let pid = processes().find(|(_, line)| line.starts_with(&format!("sleep {sleep}")))?.0.to_string();
        let is_in = |group: &PathBuf| {
            std::fs::read_to_string(group.join("cgroup.procs"))
                .is_ok_and(|pids| pids.lines().any(|it| it == pid))
        };
        let groups: BTreeSet<PathBuf> = control_groups().into_iter().filter(is_in).collect();
        (!groups.is_empty()).then_some(groups)
    };
    let groups = wait_until("its control group", of_process);
    running.signal(Signal::KILL);
    assert_eq!(running.finish().code, None, "killed");
    let agents =
        groups.iter().map(|group| group.ancestors().find(|above| is_agents(above)).expect("of an agent"));
    let agents: BTreeSet<&Path> = agents.collect();
    wait_until("the end of its groups", || agents.iter().all(|group| !group.exists()).then_some(()));
}

/// A group directly in that of all agents.
fn is_agents(group: &Path) -> bool {
    group.parent().is_some_and(|above| above.ends_with("windlass"))
}

#[test]
fn an_interrupted_run_leaves_no_process_behind() {
    let sleep = unique_sleep(2);
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("job.json");
    std::fs::write(&file, job("x", json!({}), &family(&sleep))).expect("written");
    let running = Running::start(&[], &file);
    wait_until("all processes", || (count(&sleep) == 6).then_some(()));
    running.signal(Signal::INT);
    assert_eq!(running.finish().code, Some(130));
    wait_until("the end of all processes", || (count(&sleep) == 0).then_some(()));
}

#[test]
fn a_complete_job_leaves_no_process_behind() {
    let sleep = unique_sleep(3);
    let ran =
        run_manifest(&[], &job("x", json!({}), &format!("setsid sleep {sleep} & sleep {sleep} & exit 0")));
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    wait_until("the end of all processes", || (count(&sleep) == 0).then_some(()));
}
