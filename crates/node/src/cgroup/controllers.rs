//! What groups must allow before the groups in them can have limits. Version 2 only: version 1 asks for nothing.

use std::io;
use std::path::Path;

use super::{CONTROLLERS, write};

/// Where processes go that are in the way.
const LEAF: &str = "moved-by-windlass";
/// How often processes are moved that multiply meanwhile.
const TRIES: usize = 100;

/// Lets the groups in `parent` have limits. Every group above has to allow it, from the root of the tree on.
pub(super) fn allow(parent: &Path) {
    let is_second = |group: &&Path| group.join("cgroup.subtree_control").exists();
    let above: Vec<&Path> = parent.ancestors().take_while(is_second).collect();
    for group in above.into_iter().rev() {
        if let Err(error) = allow_in(group) {
            // What can't be limited for it is told by who writes the limits.
            tracing::debug!(%error, group = %group.display(), "allow limits in a control group");
        }
    }
}

fn allow_in(group: &Path) -> io::Result<()> {
    let read = |file| std::fs::read_to_string(group.join(file));
    let request = request(&read("cgroup.controllers")?, &read("cgroup.subtree_control")?);
    if request.is_empty() {
        return Ok(());
    }
    // All at once and not with processes in it: what can count threads would be allowed even then, and no process could be
    // put in a group below any more. Only the root of the machine may have both, and only it has no type.
    for _ in 0..TRIES {
        if group.join("cgroup.type").exists() {
            clear(group)?;
        }
        match write(&group.join("cgroup.subtree_control"), &request) {
            // One more has come.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
            done => return done,
        }
    }
    Err(io::ErrorKind::ResourceBusy.into())
}

/// What to write for the controllers that are there and not allowed yet.
fn request(there: &str, allowed: &str) -> String {
    let has = |list: &str, name: &str| list.split_ascii_whitespace().any(|one| one == name);
    let wanted = CONTROLLERS.into_iter().filter(|name| has(there, name) && !has(allowed, name));
    wanted.map(|name| format!("+{name}")).collect::<Vec<_>>().join(" ")
}

/// A group has either processes or limits in it. Where this process is in the way itself, as in the first group of a
/// container, all of them move to a group below. Those of others are left where they are.
fn clear(group: &Path) -> io::Result<()> {
    let found = processes(group)?;
    if found.is_empty() {
        return Ok(());
    }
    if !found.contains(&std::process::id()) {
        return Err(io::Error::other("others have processes in it"));
    }
    let leaf = group.join(LEAF);
    match std::fs::create_dir(&leaf) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    tracing::info!(from = %group.display(), to = %leaf.display(), "move processes, so that containers can have limits");
    for pid in found {
        match write(&leaf.join("cgroup.procs"), &pid.to_string()) {
            // It has just ended.
            Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => {}
            moved => moved?,
        }
    }
    Ok(())
}

/// The processes of a group. 0 is one of another pid namespace; to write that would move this process.
fn processes(group: &Path) -> io::Result<Vec<u32>> {
    let text = std::fs::read_to_string(group.join("cgroup.procs"))?;
    let found: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    match found.contains(&0) {
        true => Err(io::Error::other("processes of another pid namespace are in it")),
        false => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn only_what_is_there_and_not_allowed_yet_is_asked_for() {
        for (there, allowed, want) in [
            ("cpuset cpu io memory hugetlb pids\n", "\n", "+memory +cpu +pids"),
            ("cpuset cpu io memory pids", "memory pids", "+cpu"),
            ("cpuset cpu pids", "cpuset", "+cpu +pids"),
            ("cpu memory pids", "cpu memory pids", ""),
            ("", "", ""),
        ] {
            assert_eq!(request(there, allowed), want, "{there:?} {allowed:?}");
        }
    }

    /// A directory that looks like a group.
    fn fake(path: &Path, processes: &str) -> PathBuf {
        std::fs::create_dir_all(path).expect("made");
        for (file, text) in [
            ("cgroup.controllers", "cpu memory pids"),
            ("cgroup.subtree_control", ""),
            ("cgroup.procs", processes),
            ("cgroup.type", "domain"),
        ] {
            std::fs::write(path.join(file), text).expect("written");
        }
        path.join("cgroup.subtree_control")
    }

    #[test]
    fn every_group_above_allows_limits_but_not_one_with_processes_of_others() {
        let root = tempfile::tempdir().expect("a directory");
        let top = root.path().join("top");
        let groups = [top.clone(), top.join("a"), top.join("a/b"), top.join("a/b/c"), top.join("a/b/c/d")];
        let files = groups.map(|group| fake(&group, if group.ends_with("b") { "1\n" } else { "" }));
        allow(&top.join("a/b/c/d"));
        let asked = files.map(|file| std::fs::read_to_string(file).expect("there"));
        let all = "+memory +cpu +pids";
        assert_eq!(asked, [all, all, "", all, all]);
        assert!(!root.path().join("cgroup.subtree_control").exists(), "this is no group");
    }
}
