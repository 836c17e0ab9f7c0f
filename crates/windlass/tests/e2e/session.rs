//! What the pages tell people to type, typed: the sessions of the README and of the server word for word, and the first
//! page as a newcomer meets it.

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

/// The shell of somebody who has just come: a home with nothing in it, and the programs on the path.
struct Shell {
    home: tempfile::TempDir,
    path: String,
    exports: String,
}

impl Shell {
    fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        let path = format!("{}:{}", programs(home.path()).display(), std::env::var("PATH").expect("a path"));
        Self { home, path, exports: String::new() }
    }

    fn home(&self) -> &str {
        self.home.path().to_str().expect("UTF-8")
    }

    fn command(&self, directory: &Path, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", &format!("{}{script}", self.exports)]).current_dir(directory);
        command.stdin(Stdio::null()).env("PATH", &self.path).env("HOME", self.home.path());
        for name in ["KUBECONFIG", "XDG_DATA_HOME", "WINDLASS_LOG", "NO_COLOR", "TERM"] {
            command.env_remove(name);
        }
        command
    }

    /// Starts a server. Only the port must be another: this may not be the only server of the machine.
    fn serve(&self, directory: &Path, command: &str) -> Running {
        let script = format!("exec {command} --listen 127.0.0.1:0");
        let mut server = Running::spawn(&mut self.command(directory, &script));
        server.wait_for_lines(&["is ready at https://127.0.0.1:", "kubectl get jobs"]);
        server
    }

    /// Types a command. What it prints, and its exit code; nothing for what only the shell keeps in mind.
    fn types(&mut self, directory: &Path, command: &str) -> Option<(Option<i32>, String)> {
        if command.starts_with("export ") {
            self.exports.push_str(&format!("{command}; "));
            return None;
        }
        let ran = Running::spawn(&mut self.command(directory, &format!("exec 2>&1; {command}"))).finish();
        Some((ran.code, ran.stdout))
    }
}

fn plays_as_written(page: &str) {
    let mut shell = Shell::new();
    let place = shell.home().to_owned();
    let steps = steps(page);
    let (start, rest) = steps.split_first().expect("a session");
    assert!(rest.len() >= 5, "{page} has a session: {steps:?}");
    let server = shell.serve(&root(), &start.command);
    for step in rest {
        let printed = shell.types(&root(), &step.command).map_or_else(String::new, |(_, printed)| printed);
        let (want, got) = (normal(&step.printed, &place), normal(&printed, &place));
        assert_eq!(got, want, "{page}: $ {}\n{printed}", step.command);
    }
    server.signal(rustix::process::Signal::TERM);
    let ran = server.finish();
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    let greeting = ran.stderr.split("stopping:").next().unwrap_or_default();
    assert_eq!(normal(greeting.trim_end(), &place), normal(start.printed.trim_end(), &place), "{page}");
}

/// The lines of a page that are indented as commands are.
fn typed(page: &str) -> Vec<String> {
    let is_outside = |(place, _): &(usize, &str)| place % 2 == 0;
    let outside = page.split("```").enumerate().filter(is_outside).flat_map(|(_, text)| text.lines());
    outside.filter_map(|line| line.strip_prefix("    ")).map(str::to_owned).collect()
}

#[test]
fn a_newcomer_can_type_the_first_page() {
    let page = std::fs::read_to_string(root().join("docs/getting-started.md")).expect("a page");
    let mut shell = Shell::new();
    let directory = tempfile::tempdir().expect("a directory");
    let manifest = page.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next());
    std::fs::write(directory.path().join("flaky.yaml"), manifest.expect("a manifest")).expect("written");
    let commands = typed(&page);
    // What it takes to get the program is what built this test.
    let first = commands.iter().position(|command| command.starts_with("cargo install")).expect("an install");
    let (mut server, mut last) = (None, String::new());
    for command in &commands[first + 1..] {
        if let Some(start) = command.strip_suffix(" &") {
            server = Some(shell.serve(directory.path(), start));
            continue;
        }
        if let Some((code, printed)) = shell.types(directory.path(), command) {
            assert_eq!(code, Some(0), "$ {command}\n{printed}");
            last = printed;
        }
    }
    assert_eq!(commands.len() - first - 1, 13, "{commands:?}");
    assert!(last.starts_with("job/flaky: Complete (CompletionsReached)"), "{last}");
    assert!(last.contains("no rule matches: counted") && last.contains("exit code 1"), "{last}");
    let server = server.expect("a server");
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.finish().code, Some(0));
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
fn the_commands_of_the_page_of_the_node_start_one() {
    let page = std::fs::read_to_string(root().join("docs/node.md")).expect("a page");
    let blocks = page.split("```").skip(1).step_by(2).take(2);
    let text = blocks.collect::<String>().replace("\\\n", " ");
    let commands: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    assert_eq!(commands.len(), 3, "{commands:?}");
    let mut shell = Shell::new();
    let directory = tempfile::tempdir().expect("a directory");
    let mut server = shell.serve(directory.path(), "windlass server --nodes 0");
    let ready = server.wait_for_nth("is ready at https://127.0.0.1:", 1);
    let (_, address) = ready.split_once(" at ").expect("an address");
    let place = directory.path().join("two").display().to_string();
    for command in commands {
        // This may not be the only server of the machine, nor the only node.
        let command = command.replace("https://127.0.0.1:6443", address).replace("/tmp/two", &place);
        if command.starts_with("windlass node ") {
            let mut node = Running::spawn(&mut shell.command(directory.path(), &format!("exec {command}")));
            node.wait_for_lines(&["runs node two"]);
            node.signal(rustix::process::Signal::TERM);
            assert_eq!(node.finish().code, Some(0), "$ {command}");
        } else {
            let (code, printed) = shell.types(directory.path(), &command).expect("a command");
            assert_eq!((code, &*printed), (Some(0), ""), "$ {command}");
        }
    }
    server.signal(rustix::process::Signal::TERM);
    assert_eq!(server.finish().code, Some(0));
}

#[test]
fn only_what_differs_between_runs_is_set_aside() {
    let text = "hello   Complete   1/1   3s   1m2s\n\"suites-3-x7k2p\" at https://127.0.0.1:4711 job-hello /tmp/x/y 42";
    let want =
        ["hello Complete 1/1 TIME TIME", "\"suites-3-?????\" at https://127.0.0.1:PORT job-hello HOME/y 42"];
    assert_eq!(normal(text, "/tmp/x"), want);
}
