//! Limits of containers as control groups of the kernel, of both versions.
//!
//! What to make and write is decided here; [`Group::make`] does it. Without the right to make groups containers run
//! without limits, and where a controller is missing without its limits. The agent says so once.

mod controllers;
mod kill;

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use k8s_openapi::api::core::v1::Container;
use windlass_api::quantity::Quantity;

pub(crate) use kill::{end, find, kill, kill_others};

/// The period in which CPU time is counted, in microseconds (upstream: QuotaPeriod).
const CPU_PERIOD: i64 = 100_000;
/// The least CPU time in a period (upstream: MinQuotaPeriod).
const CPU_QUOTA_MIN: i64 = 1000;

/// How control groups are mounted, and where groups of ours go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Layout {
    /// One tree for all.
    V2(PathBuf),
    /// A tree for each controller: `memory`, `cpu`, `pids`.
    V1(BTreeMap<&'static str, PathBuf>),
}

/// The group of all agents.
const SHARED: &str = "windlass";

/// How often it is made when other agents, which see nobody in it yet, remove it meanwhile.
const MAKE_TRIES: usize = 100;

/// Limits that a kernel without accounting of swap does not know, and does not need.
const OF_SWAP: [&str; 2] = ["memory.swap.max", "memory.memsw.limit_in_bytes"];

/// The controllers that are used.
const CONTROLLERS: [&str; 3] = ["memory", "cpu", "pids"];

impl Layout {
    /// From what the kernel says in `/proc/self/mountinfo` and `/proc/self/cgroup`. Groups go beside the one of this
    /// process (version 2 wants processes in leaves only), or below it (version 1).
    pub fn read(mounts: &str, own: &str) -> Option<Self> {
        let path_of = |controller: &str| {
            let line = own.lines().find(|line| {
                let mut parts = line.splitn(3, ':');
                let names = parts.nth(1).unwrap_or_default();
                names == controller
                    || (!controller.is_empty() && names.split(',').any(|name| name == controller))
            })?;
            line.splitn(3, ':').nth(2)
        };
        let (mut first, mut second) = (BTreeMap::new(), None);
        for line in mounts.lines() {
            let Some((left, right)) = line.split_once(" - ") else { continue };
            let mut left = left.split(' ').skip(3);
            let (shown, point) = (left.next().unwrap_or_default(), left.next().unwrap_or_default());
            let own = |controller| below(shown, path_of(controller).unwrap_or_default());
            let mut kind = right.split(' ');
            match kind.next() {
                Some("cgroup2") => {
                    let beside = own("").parent().unwrap_or(Path::new("")).join(SHARED);
                    second = Some(Path::new(point).join(beside));
                }
                Some("cgroup") => {
                    let options = kind.nth(1).unwrap_or_default();
                    for controller in CONTROLLERS {
                        if options.split(',').any(|option| option == controller) {
                            let tree = Path::new(point).join(own(controller)).join(SHARED);
                            first.insert(controller, tree);
                        }
                    }
                }
                _ => {}
            }
        }
        if !first.is_empty() {
            return Some(Self::V1(first));
        }
        second.map(Self::V2)
    }

    /// Where control groups of either version are mounted.
    pub fn mounts(mounts: &str) -> impl Iterator<Item = PathBuf> + use<'_> {
        kinds(mounts).filter(|(_, kind)| matches!(*kind, "cgroup" | "cgroup2")).map(|(point, _)| point.into())
    }

    /// Where the second version is mounted beside the first, which some programs can't stand.
    pub fn second_beside_first(mounts: &str) -> Vec<PathBuf> {
        match kinds(mounts).any(|(_, kind)| kind == "cgroup") {
            true => {
                kinds(mounts).filter(|(_, kind)| *kind == "cgroup2").map(|(point, _)| point.into()).collect()
            }
            false => Vec::new(),
        }
    }

    /// The part of it that belongs to the agent with this directory. Agents on one machine must not touch each other's
    /// groups: one that nothing runs in yet looks as if it had been left behind.
    pub(crate) fn of_agent(self, data_dir: &Path) -> io::Result<Self> {
        let directory = std::fs::metadata(data_dir)?;
        let name = format!("{:x}-{:x}", directory.dev(), directory.ino());
        Ok(match self {
            Self::V2(tree) => Self::V2(tree.join(name)),
            Self::V1(trees) => {
                Self::V1(trees.into_iter().map(|(controller, tree)| (controller, tree.join(&name))).collect())
            }
        })
    }

    fn trees(&self) -> Vec<&PathBuf> {
        match self {
            Self::V2(tree) => vec![tree],
            Self::V1(trees) => trees.values().collect(),
        }
    }

    /// Removes the groups that an agent before this one left, and ends what is in them.
    pub(crate) fn sweep(&self) {
        self.trees().into_iter().for_each(|tree| sweep(tree));
    }

    /// Removes itself, if there are no groups in it, and with the last agent the group of all.
    pub(crate) fn remove(&self) {
        self.trees().into_iter().for_each(|tree| remove(tree));
    }

    /// Of this process.
    pub fn of_this_process() -> Option<Self> {
        let read = |file| std::fs::read_to_string(file).ok();
        Self::read(&read("/proc/self/mountinfo")?, &read("/proc/self/cgroup")?)
    }
}

/// A process that shares processors with the rest of the machine as one group, together with all that it starts.
///
/// The kernel would make a group of its own for each session instead (autogroup), and does not know a new one well enough to
/// choose a processor for it: short containers took a tenth longer.
#[derive(Debug)]
pub(crate) struct Gathered {
    home: PathBuf,
    group: PathBuf,
}

impl Gathered {
    /// This process, in the group of its agent. Nothing where that needs more than a directory: version 2 shares processors
    /// by groups only where that is allowed for all others beside it too.
    pub(crate) fn this_process(agent: &Layout) -> Option<Self> {
        let Layout::V1(trees) = agent else { return None };
        let group = trees.get("cpu")?.clone();
        let home = group.parent()?.parent()?.to_owned();
        make_all(&group).ok()?;
        let gathered = Self { home, group };
        enter(&gathered.group).is_ok().then_some(gathered)
    }

    /// Goes back to where it was, and removes the group if nothing else is in it.
    pub(crate) fn leave(self) {
        if enter(&self.home).is_ok() {
            remove(&self.group);
        }
    }
}

/// Puts this process into a group.
fn enter(group: &Path) -> io::Result<()> {
    write(&group.join("cgroup.procs"), "0")
}

/// Removes the groups in that of an agent, and ends what is in them.
pub(crate) fn sweep(tree: &Path) {
    for entry in std::fs::read_dir(tree).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            if let Err(error) = end(&entry.path()) {
                tracing::warn!(%error, path = %entry.path().display(), "end what is left in a control group");
            }
            remove_group(&entry.path());
        }
    }
}

/// Removes the group of an agent, if there are no others in it, and with the last one the group of all.
pub(crate) fn remove(tree: &Path) {
    let _ = std::fs::remove_dir(tree);
    if let Some(shared) = tree.parent().filter(|above| above.ends_with(SHARED)) {
        let _ = std::fs::remove_dir(shared);
    }
}

/// The group of the agent that made this file, to which processes of a container are written.
pub(crate) fn of_agent(members: &Path) -> Option<&Path> {
    members.parent()?.parent()
}

/// Where a group is below the mount point that shows the tree from `shown` on. One that can't be seen there, because it is
/// outside of a container or of its namespace, is taken to be at the top.
fn below(shown: &str, group: &str) -> PathBuf {
    let path = Path::new(group).strip_prefix(shown).unwrap_or(Path::new(""));
    let is_outside = path.components().any(|part| part == Component::ParentDir);
    if is_outside { PathBuf::new() } else { path.to_owned() }
}

/// The mount points of `/proc/self/mountinfo` and what is mounted there.
fn kinds(mounts: &str) -> impl Iterator<Item = (&str, &str)> {
    mounts.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        Some((left.split(' ').nth(4)?, right.split(' ').next()?))
    })
}

/// What a container may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<i64>,
    /// Thousandths of a CPU.
    pub cpu: Option<i64>,
    /// Thousandths of a CPU that it has a claim to.
    pub cpu_request: Option<i64>,
    /// How many processes and threads.
    pub pids: Option<i64>,
}

impl Limits {
    /// Those of a container, and the node's own for processes.
    pub fn of(container: &Container, pids: Option<i64>) -> Self {
        let resources = container.resources.as_ref();
        let amount = |is_limit: bool, name: &str| -> Option<Quantity> {
            let list =
                resources.and_then(|all| if is_limit { all.limits.as_ref() } else { all.requests.as_ref() });
            list?.get(name)?.0.parse::<Quantity>().ok().filter(|quantity| !quantity.is_zero())
        };
        let cpu = amount(true, "cpu").map(|cpu| cpu.milli_value());
        Self {
            memory: amount(true, "memory").map(|memory| memory.value()),
            cpu,
            cpu_request: amount(false, "cpu").map(|cpu| cpu.milli_value()).or(cpu),
            pids,
        }
    }
}

/// A group for one container: what to make, what to write, what to read.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Group {
    /// The directories, each with what is to be written in it.
    pub directories: Vec<(PathBuf, Vec<(&'static str, String)>)>,
    /// The file that counts processes that were killed for memory.
    pub oom: Option<PathBuf>,
    /// The directory by which all processes of the container are ended, where nothing else does.
    pub holds: Option<PathBuf>,
}

impl Group {
    /// The group for these limits; `None` when there are none, and the group does not have to hold the container.
    pub fn plan(layout: &Layout, name: &str, limits: &Limits, holds: bool) -> Option<Self> {
        if *limits == Limits::default() && !holds {
            return None;
        }
        let quota = limits.cpu.map(|milli| (milli * CPU_PERIOD / 1000).max(CPU_QUOTA_MIN));
        let shares = limits.cpu_request.map(|milli| (milli * 1024 / 1000).clamp(2, 262_144));
        Some(match layout {
            Layout::V2(root) => {
                let mut files = Vec::new();
                if let Some(bytes) = limits.memory {
                    files.push(("memory.max", bytes.to_string()));
                    // As in Kubernetes: swap would make more of it.
                    files.push(("memory.swap.max", "0".to_owned()));
                    // All of a container, not the process that happened to ask last.
                    files.push(("memory.oom.group", "1".to_owned()));
                }
                files.extend(quota.map(|quota| ("cpu.max", format!("{quota} {CPU_PERIOD}"))));
                files.extend(shares.map(|shares| ("cpu.weight", weight(shares).to_string())));
                files.extend(limits.pids.map(|pids| ("pids.max", pids.to_string())));
                let directory = root.join(name);
                let oom = limits.memory.map(|_| directory.join("memory.events"));
                let holds = holds.then(|| directory.clone());
                Self { directories: vec![(directory, files)], oom, holds }
            }
            Layout::V1(trees) => {
                let mut group = Self::default();
                // The one that can keep processes from multiplying while they are killed, if it is there.
                let held_by = trees.contains_key("pids").then_some("pids").or(trees.keys().next().copied());
                let held_by = held_by.filter(|_| holds);
                let mut add = |controller: &str, files: Vec<(&'static str, String)>| {
                    let is_needed = !files.is_empty() || held_by == Some(controller);
                    if let Some(tree) = trees.get(controller).filter(|_| is_needed) {
                        group.directories.push((tree.join(name), files));
                    }
                };
                // The second is of memory and swap, and can't be less than the first.
                let memory = ["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"];
                let memory = limits.memory.map(|bytes| memory.map(|file| (file, bytes.to_string())));
                add("memory", memory.into_iter().flatten().collect());
                let mut cpu = Vec::new();
                if let Some(quota) = quota {
                    cpu.push(("cpu.cfs_period_us", CPU_PERIOD.to_string()));
                    cpu.push(("cpu.cfs_quota_us", quota.to_string()));
                }
                cpu.extend(shares.map(|shares| ("cpu.shares", shares.to_string())));
                add("cpu", cpu);
                add("pids", limits.pids.map(|pids| ("pids.max", pids.to_string())).into_iter().collect());
                let oom = trees.get("memory").filter(|_| limits.memory.is_some());
                group.oom = oom.map(|tree| tree.join(name).join("memory.oom_control"));
                group.holds =
                    held_by.and_then(|controller| trees.get(controller)).map(|tree| tree.join(name));
                group
            }
        })
    }

    /// Makes it. A limit whose controller is missing here is left out, which is said once.
    pub(crate) fn make(&self) -> io::Result<()> {
        for (directory, files) in &self.directories {
            let parent = directory.parent().unwrap_or(directory);
            make_all(parent)?;
            controllers::allow(parent);
            match std::fs::create_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            for (file, value) in files {
                match write(&directory.join(file), value) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => say_missing(file),
                    written => written?,
                }
            }
        }
        Ok(())
    }

    /// The files that a process is written to that belongs to it.
    pub fn members(&self) -> Vec<PathBuf> {
        self.directories.iter().map(|(directory, _)| directory.join("cgroup.procs")).collect()
    }

    /// Whether a process of it was killed for memory.
    pub(crate) fn ran_out_of_memory(&self) -> bool {
        let text = self.oom.as_ref().and_then(|file| std::fs::read_to_string(file).ok());
        text.is_some_and(|text| oom_kills(&text) > 0)
    }

    /// Removes it. Nothing happens to one with processes in it.
    pub(crate) fn remove(&self) {
        for (directory, _) in &self.directories {
            remove_group(directory);
        }
    }
}

/// Makes a group and those above it. Once it is there nobody else removes them.
fn make_all(group: &Path) -> io::Result<()> {
    for _ in 1..MAKE_TRIES {
        match std::fs::create_dir_all(group) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            made => return made,
        }
    }
    std::fs::create_dir_all(group)
}

/// Writes to a file of a group. To create one is refused like a write without the right to it, so it is not tried.
fn write(file: &Path, value: &str) -> io::Result<()> {
    std::fs::OpenOptions::new().write(true).open(file)?.write_all(value.as_bytes())
}

fn say_missing(file: &str) {
    static IS_SAID: AtomicBool = AtomicBool::new(false);
    if !OF_SWAP.contains(&file) && !IS_SAID.swap(true, Ordering::Relaxed) {
        tracing::warn!(
            file,
            "not all limits of containers are enforced: control groups here do not have this one"
        );
    }
}

/// A group and those in it, each before those that are in it. A container may make some for itself.
fn tree(group: &Path) -> Vec<PathBuf> {
    let mut all = vec![group.to_owned()];
    let mut next = 0;
    while let Some(group) = all.get(next) {
        let entries = std::fs::read_dir(group).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        let below: Vec<PathBuf> = below.map(|entry| entry.path()).collect();
        all.extend(below);
        next += 1;
    }
    all
}

fn remove_group(directory: &Path) {
    for group in tree(directory).iter().rev() {
        match std::fs::remove_dir(group) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(%error, path = %group.display(), "remove a control group");
            }
            _ => {}
        }
    }
}

/// From `memory.oom_control` or `memory.events`.
fn oom_kills(text: &str) -> u64 {
    let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// Version 2's share of the CPU for one of version 1 (upstream: the formula of runc).
fn weight(shares: i64) -> i64 {
    1 + ((shares - 2) * 9999) / 262_142
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const MOUNTS_V1: &str = "\
30 20 0:25 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory
31 20 0:26 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:1 - cgroup cgroup rw,cpu,cpuacct
32 20 0:27 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids
33 20 0:28 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
34 20 0:29 / /proc rw - proc proc rw";
    const MOUNTS_V2: &str =
        "30 20 0:25 / /sys/fs/cgroup rw,relatime shared:4 - cgroup2 cgroup2 rw,nsdelegate";

    fn v1() -> Layout {
        let own = "3:cpu,cpuacct:/\n4:memory:/box/1\n8:pids:/\n0::/";
        Layout::read(MOUNTS_V1, own).expect("a layout")
    }

    fn v2() -> Layout {
        Layout::read(MOUNTS_V2, "0::/system.slice/windlass.service").expect("a layout")
    }

    #[test]
    fn the_layout_is_what_the_kernel_says() {
        let trees = [
            ("cpu", "/sys/fs/cgroup/cpu,cpuacct/windlass"),
            ("memory", "/sys/fs/cgroup/memory/box/1/windlass"),
            ("pids", "/sys/fs/cgroup/pids/windlass"),
        ];
        let trees = trees.into_iter().map(|(name, path)| (name, path.into())).collect();
        assert_eq!(v1(), Layout::V1(trees));
        assert_eq!(v2(), Layout::V2("/sys/fs/cgroup/system.slice/windlass".into()));
        for (own, want) in [
            ("0::/", "/sys/fs/cgroup/windlass"),
            (
                "0::/user.slice/user-0.slice/session-1.scope",
                "/sys/fs/cgroup/user.slice/user-0.slice/windlass",
            ),
            // Of another namespace.
            ("0::/../other", "/sys/fs/cgroup/windlass"),
            ("0::/..", "/sys/fs/cgroup/windlass"),
        ] {
            assert_eq!(Layout::read(MOUNTS_V2, own), Some(Layout::V2(want.into())), "{own}");
        }
        assert_eq!(Layout::read("34 20 0:29 / /proc rw - proc proc rw", ""), None);
    }

    #[test]
    fn a_container_may_see_its_own_part_of_the_tree_only() {
        let mount =
            |shown: &str, kind: &str| format!("30 20 0:25 {shown} /c rw,relatime - {kind} none rw,memory");
        for (shown, own, want) in [
            ("/box/1", "/box/1", "/c/windlass"),
            ("/box", "/box/1/2", "/c/1/windlass"),
            ("/box/1", "/box/12/3", "/c/windlass"),
            ("/..", "/1", "/c/windlass"),
        ] {
            let got = Layout::read(&mount(shown, "cgroup2"), &format!("0::{own}"));
            assert_eq!(got, Some(Layout::V2(want.into())), "{shown} {own}");
        }
        let got = Layout::read(&mount("/box", "cgroup"), "4:memory:/box/1");
        assert_eq!(got, Some(Layout::V1(BTreeMap::from([("memory", "/c/1/windlass".into())]))));
    }

    #[test]
    fn the_second_version_is_hidden_only_beside_the_first() {
        assert_eq!(Layout::second_beside_first(MOUNTS_V1), [PathBuf::from("/sys/fs/cgroup/unified")]);
        assert_eq!(Layout::second_beside_first(MOUNTS_V2), Vec::<PathBuf>::new());
        assert_eq!(Layout::mounts(MOUNTS_V1).count(), 4);
        assert_eq!(Layout::mounts(MOUNTS_V2).collect::<Vec<_>>(), [PathBuf::from("/sys/fs/cgroup")]);
    }

    #[test]
    fn limits_become_files_of_both_versions() {
        let container = serde_json::from_value(json!({"name": "c", "resources": {
            "requests": {"cpu": "500m"}, "limits": {"cpu": "1500m", "memory": "64Mi"},
        }}));
        let limits = Limits::of(&container.expect("a container"), Some(100));
        let text = |files: &[(&'static str, &str)]| -> Vec<(&'static str, String)> {
            files.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
        };
        let group = Group::plan(&v1(), "x", &limits, false).expect("limits");
        assert_eq!(
            group,
            Group {
                directories: vec![
                    (
                        "/sys/fs/cgroup/memory/box/1/windlass/x".into(),
                        text(&[
                            ("memory.limit_in_bytes", "67108864"),
                            ("memory.memsw.limit_in_bytes", "67108864"),
                        ])
                    ),
                    (
                        "/sys/fs/cgroup/cpu,cpuacct/windlass/x".into(),
                        text(&[
                            ("cpu.cfs_period_us", "100000"),
                            ("cpu.cfs_quota_us", "150000"),
                            ("cpu.shares", "512"),
                        ]),
                    ),
                    ("/sys/fs/cgroup/pids/windlass/x".into(), text(&[("pids.max", "100")])),
                ],
                oom: Some("/sys/fs/cgroup/memory/box/1/windlass/x/memory.oom_control".into()),
                holds: None,
            }
        );
        let group = Group::plan(&v2(), "x", &limits, false).expect("limits");
        let files = [
            ("memory.max", "67108864"),
            ("memory.swap.max", "0"),
            ("memory.oom.group", "1"),
            ("cpu.max", "150000 100000"),
            ("cpu.weight", "20"),
            ("pids.max", "100"),
        ];
        let directory = PathBuf::from("/sys/fs/cgroup/system.slice/windlass/x");
        assert_eq!(group.members(), [directory.join("cgroup.procs")]);
        let want = Group {
            directories: vec![(directory.clone(), text(&files))],
            oom: Some(directory.join("memory.events")),
            holds: None,
        };
        assert_eq!(group, want);
    }

    #[test]
    fn a_container_without_limits_needs_no_group_and_a_limit_alone_is_a_request() {
        let container = |value| Limits::of(&serde_json::from_value(value).expect("a container"), None);
        let none = container(json!({"name": "c", "resources": {"requests": {"memory": "1Gi"}}}));
        assert_eq!(Group::plan(&v2(), "x", &none, false), None);
        let cpu = container(json!({"name": "c", "resources": {"limits": {"cpu": "1m"}}}));
        assert_eq!(cpu, Limits { cpu: Some(1), cpu_request: Some(1), ..Limits::default() });
        let group = Group::plan(&v2(), "x", &cpu, false).expect("a limit");
        assert_eq!(group.directories[0].1, [("cpu.max", "1000 100000".into()), ("cpu.weight", "1".into())]);
        assert_eq!(group.oom, None);
    }

    #[test]
    fn a_container_that_has_to_be_held_has_a_group_without_limits_too() {
        let held =
            |layout: &Layout| Group::plan(layout, "x", &Limits::default(), true).expect("it is needed");
        let only = |directory: &str| Group {
            directories: vec![(directory.into(), vec![])],
            oom: None,
            holds: Some(directory.into()),
        };
        assert_eq!(held(&v1()), only("/sys/fs/cgroup/pids/windlass/x"));
        assert_eq!(held(&v2()), only("/sys/fs/cgroup/system.slice/windlass/x"));
        let without_pids = Layout::V1(BTreeMap::from([("cpu", "/c".into()), ("memory", "/m".into())]));
        assert_eq!(held(&without_pids), only("/c/x"));
        let limits = Limits { pids: Some(7), ..Limits::default() };
        let group = Group::plan(&v1(), "x", &limits, true).expect("limits");
        let directory = PathBuf::from("/sys/fs/cgroup/pids/windlass/x");
        let files = vec![("pids.max", "7".to_owned())];
        assert_eq!(
            group,
            Group { directories: vec![(directory.clone(), files)], oom: None, holds: Some(directory) }
        );
    }

    #[test]
    fn kills_for_memory_are_counted_in_both_versions() {
        for (text, want) in [
            ("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n", 2),
            ("low 0\nhigh 0\nmax 7\noom 1\noom_kill 1\noom_group_kill 1\n", 1),
            ("oom_kill_disable 0\n", 0),
        ] {
            assert_eq!(oom_kills(text), want);
        }
    }

    #[test]
    fn an_agent_removes_what_it_left_and_nothing_of_other_agents() {
        let (root, ours, theirs) = (tempfile::tempdir(), tempfile::tempdir(), tempfile::tempdir());
        let [root, ours, theirs] = [root, ours, theirs].map(|made| made.expect("a directory"));
        let [memory, pids] = ["m", "p"].map(|name| root.path().join(name).join(SHARED));
        let all = Layout::V1(BTreeMap::from([("memory", memory), ("pids", pids)]));
        let [ours, theirs] = [ours, theirs].map(|agent| all.clone().of_agent(agent.path()).expect("read"));
        let groups = [&ours, &theirs].map(|layout| {
            let directories: Vec<PathBuf> = layout.trees().iter().map(|tree| tree.join("x")).collect();
            directories.iter().for_each(|one| std::fs::create_dir_all(one).expect("made"));
            directories
        });
        ours.sweep();
        ours.remove();
        theirs.remove();
        let is_there = groups.map(|group| group.iter().map(|one| one.exists()).collect::<Vec<_>>());
        assert_eq!(is_there, [[false, false], [true, true]]);
        assert_eq!(ours.trees().iter().filter(|tree| tree.exists()).count(), 0);
        theirs.sweep();
        theirs.remove();
        assert!(all.trees().iter().all(|tree| !tree.exists()), "the last one removes what all share");
        assert!(root.path().join("m").exists(), "and nothing else");
    }
}
