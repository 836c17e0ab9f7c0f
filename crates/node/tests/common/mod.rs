//! Runs this test program again as its own process keeper, and looks at the processes of the machine.
#![allow(dead_code)] // each test program uses its part of it

pub mod fixture;
pub mod images;
pub mod oci;

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use windlass_node::runtimes::{host, keeper};

/// How long anything may take before a test gives up on it.
pub const PATIENCE: Duration = Duration::from_secs(180);

const ENTRY: &str = "WINDLASS_TEST_ENTRY";

/// The command that runs the test `name` of this program, alone, in a process of its own.
pub fn entry(name: &str, extra: &[(&str, &str)]) -> host::Command {
    let args = [name, "--exact", "--nocapture", "--test-threads=1"];
    let env = extra.iter().copied().chain([(ENTRY, name)]);
    host::Command {
        program: std::env::current_exe().expect("this program"),
        args: args.map(Into::into).to_vec(),
        env: env.map(|(name, value)| (name.into(), value.into())).collect(),
    }
}

/// Whether this process was started by [`entry`] for the test `name`.
pub fn is_entry(name: &str) -> bool {
    std::env::var(ENTRY).is_ok_and(|entry| entry == name)
}

/// The body of the test that is the keeper.
pub fn keeper_entry(name: &str) {
    if is_entry(name) {
        let code = keeper::main();
        std::process::exit(i32::from(code != ExitCode::SUCCESS));
    }
}

/// Whether this process has no rights.
pub fn is_user() -> bool {
    !rustix::process::geteuid().is_root()
}

/// Runs this program with such arguments as a user without rights, and returns what it printed.
pub fn as_user(args: &[&str]) -> String {
    run_as_user("exec \"$@\"", args)
}

/// The same for a user who may not make user namespaces: who is in a changed root may not.
pub fn as_user_without_namespaces(args: &[&str]) -> String {
    let changed = "mkdir root && mount --rbind / root && exec chroot root /usr/bin/env -C \"$PWD\" \"$@\"";
    run_as_user(changed, args)
}

/// `script` runs as root, with mounts of its own and a command as its arguments.
fn run_as_user(script: &str, args: &[&str]) -> String {
    let place = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(place.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("changed");
    // Where this program is, others may not be able to go.
    let program = place.path().join("test");
    let own = std::env::current_exe().expect("this program");
    std::fs::hard_link(&own, &program).or_else(|_| std::fs::copy(&own, &program).map(drop)).expect("copied");
    let out = std::process::Command::new("unshare")
        .args(["--mount", "sh", "-c", script, "sh"])
        // Neither root nor nobody, as whom others are seen.
        .args(["setpriv", "--reuid", "4242", "--regid", "4243", "--clear-groups"])
        .arg(&program)
        .args(args)
        .env("TMPDIR", place.path())
        .current_dir(place.path())
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}\n{}", String::from_utf8_lossy(&out.stderr));
    said
}

/// The processes with `text` in their command line, other than this one.
pub fn processes_with(text: &str) -> Vec<i32> {
    let own = std::process::id().cast_signed();
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| *pid != own)
        .filter(|pid| {
            let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(text)
        })
        .collect()
}

/// The children of all threads of a process.
pub fn children(pid: i32) -> Vec<i32> {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).expect("it runs").flatten();
    let lists = threads.filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let all = lists.collect::<Vec<_>>().join(" ");
    all.split_whitespace().map(|pid| pid.parse().expect("a number")).collect()
}

/// The processes with this variable, as `NAME=value`, in their environment.
pub fn processes_in(variable: &str) -> Vec<i32> {
    let pids = std::fs::read_dir("/proc").expect("/proc").flatten();
    pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| {
            let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
        })
        .collect()
}

/// Looks until `seen` gives a value.
pub async fn wait_for<T>(what: &str, mut seen: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = seen() {
            return value;
        }
        assert!(start.elapsed() < PATIENCE, "gave up waiting for {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Waits until a file has `text` in it.
pub async fn wait_for_text(path: &Path, text: &str) {
    let has_text = || std::fs::read_to_string(path).is_ok_and(|all| all.contains(text)).then_some(());
    wait_for(&format!("{text:?} in {}", path.display()), has_text).await;
}

/// An argument of `sleep` that no other process of the machine has.
pub fn unique_sleep() -> String {
    use std::sync::atomic::{AtomicU32, Ordering};
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("30{:07}.{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed) + 1000)
}
