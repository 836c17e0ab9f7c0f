//! The sessions that the README and the page of the server show, word for word.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use windlass_conformance::assets;

use crate::support::Running;

/// A command of a session, and what it prints.
#[derive(Debug)]
struct Step {
    command: String,
    printed: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the checkout")
}

/// The steps of the console blocks of a page that belong to the session: from the start of the server on.
fn steps(page: &str) -> Vec<Step> {
    let text = std::fs::read_to_string(root().join(page)).expect("a page");
    let blocks = text.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let mut steps: Vec<Step> = Vec::new();
    for line in
        blocks.skip_while(|block| !block.starts_with("$ windlass server")).take(2).flat_map(str::lines)
    {
        match (line.strip_prefix("$ "), steps.last_mut()) {
            (Some(command), _) => steps.push(Step { command: command.to_owned(), printed: String::new() }),
            (None, Some(step)) => step.printed.push_str(&format!("{line}\n")),
            (None, None) => panic!("{page}: output before a command: {line}"),
        }
    }
    steps
}

/// Without what differs from one run to the next: times, random ends of names, the port, the home, and with them the
/// width of columns.
fn normal(text: &str, home: &str) -> Vec<String> {
    let text = text.replace(home, "HOME").replace("/home/me", "HOME");
    text.lines().map(|line| line.split_whitespace().map(normal_word).collect::<Vec<_>>().join(" ")).collect()
}

fn normal_word(word: &str) -> String {
    let is_duration = word.starts_with(|c: char| c.is_ascii_digit())
        && word.ends_with(['s', 'm', 'h'])
        && word.chars().all(|c| c.is_ascii_digit() || "smh".contains(c));
    if is_duration {
        return "TIME".to_owned();
    }
    if let Some(port) = word.strip_prefix("https://127.0.0.1:") {
        return format!("https://127.0.0.1:{}", if port.parse::<u16>().is_ok() { "PORT" } else { port });
    }
    // The five random characters of a pod's name; generated names have neither vowels nor 0, 1 and 3.
    let (bare, quote) = word.strip_suffix('"').map_or((word, ""), |bare| (bare, "\""));
    match bare.rsplit_once('-') {
        Some((start, end)) if is_random(end) => format!("{start}-?????{quote}"),
        _ => word.to_owned(),
    }
}

fn is_random(end: &str) -> bool {
    end.len() == 5 && end.chars().all(|c| "bcdfghjklmnpqrstvwxz2456789".contains(c))
}

/// A directory with the programs that a session names.
fn programs(home: &Path) -> PathBuf {
    let bin = home.join("bin");
    std::fs::create_dir(&bin).expect("made");
    let link = |from: &Path, name: &str| std::os::unix::fs::symlink(from, bin.join(name)).expect("linked");
    link(Path::new(env!("CARGO_BIN_EXE_windlass")), "windlass");
    link(&assets::find("kubectl").expect("kubectl"), "kubectl");
    bin
}

fn plays_as_written(page: &str) {
    let home = tempfile::tempdir().expect("a directory");
    let place = home.path().to_str().expect("UTF-8");
    let path = format!("{}:{}", programs(home.path()).display(), std::env::var("PATH").expect("a path"));
    let shell = |script: &str| {
        let mut command = Command::new("bash");
        command
            .args(["-c", script])
            .current_dir(root())
            .stdin(Stdio::null())
            .env("PATH", &path)
            .env("HOME", place);
        for name in ["KUBECONFIG", "XDG_DATA_HOME", "WINDLASS_LOG", "NO_COLOR", "TERM"] {
            command.env_remove(name);
        }
        command
    };
    let steps = steps(page);
    let (start, rest) = steps.split_first().expect("a session");
    assert!(rest.len() >= 5, "{page} has a session: {steps:?}");
    // Only the port must be another: this may not be the only server of the machine.
    let mut server = Running::spawn(&mut shell(&format!("exec {} --listen 127.0.0.1:0", start.command)));
    server.wait_for_lines(&["is ready at https://127.0.0.1:", "kubectl get jobs"]);
    let mut exports = String::new();
    for step in rest {
        if step.command.starts_with("export ") {
            exports.push_str(&format!("{}; ", step.command));
            assert_eq!(step.printed, "", "{page}");
            continue;
        }
        let script = format!("{exports}exec 2>&1; {}", step.command);
        let ran = Running::spawn(&mut shell(&script)).finish();
        let (want, got) = (normal(&step.printed, place), normal(&ran.stdout, place));
        assert_eq!(got, want, "{page}: $ {}\n{}", step.command, ran.stdout);
    }
    server.signal(rustix::process::Signal::TERM);
    let ran = server.finish();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let greeting = ran.stderr.split("stopping:").next().unwrap_or_default();
    assert_eq!(normal(greeting.trim_end(), place), normal(start.printed.trim_end(), place), "{page}");
}

#[test]
fn the_session_of_the_readme_is_what_happens() {
    plays_as_written("README.md");
}

#[test]
fn the_session_of_the_page_of_the_server_is_what_happens() {
    plays_as_written("docs/server.md");
}

#[test]
fn only_what_differs_between_runs_is_set_aside() {
    let text = "hello   Complete   1/1   3s   1m2s\n\"suites-3-x7k2p\" at https://127.0.0.1:4711 job-hello /tmp/x/y 42";
    let want =
        ["hello Complete 1/1 TIME TIME", "\"suites-3-?????\" at https://127.0.0.1:PORT job-hello HOME/y 42"];
    assert_eq!(normal(text, "/tmp/x"), want);
}
