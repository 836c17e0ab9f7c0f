//! The real kubectl, in the release that we follow and in an older one.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use windlass_conformance::assets;

use crate::support::{Ran, Running};

/// A kubectl with the access of a server's administrator.
pub struct Kubectl {
    program: PathBuf,
    directory: PathBuf,
}

/// Both of them, for the server that keeps its data in `directory`.
pub fn each(directory: &Path) -> [Kubectl; 2] {
    let newest = assets::find("kubectl").expect("kubectl");
    let older = assets::older_kubectl().expect("an older kubectl");
    [newest, older].map(|program| Kubectl { program, directory: directory.to_owned() })
}

impl Kubectl {
    /// For messages: which one it is.
    pub fn name(&self) -> String {
        self.program.display().to_string()
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(args).stdin(Stdio::null());
        command.env("KUBECONFIG", self.directory.join("kubeconfig")).env("HOME", &self.directory);
        command
    }

    /// Runs it to its end.
    pub fn run(&self, args: &[&str]) -> Ran {
        Running::spawn(&mut self.command(args)).finish()
    }

    /// Runs it with something to read.
    pub fn run_with(&self, args: &[&str], input: &str) -> Ran {
        let mut command = self.command(args);
        let mut running = Running::spawn(command.stdin(Stdio::piped()));
        let mut stdin = running.child.stdin.take().expect("piped");
        std::io::Write::write_all(&mut stdin, input.as_bytes()).expect("written");
        drop(stdin);
        running.finish()
    }

    /// Runs what must succeed, and returns what it printed.
    pub fn must(&self, args: &[&str]) -> String {
        let ran = self.run(args);
        assert_eq!(ran.code, Some(0), "{} {args:?}: {}{}", self.name(), ran.stdout, ran.stderr);
        ran.stdout
    }

    /// Creates what a manifest holds.
    pub fn apply(&self, manifest: &str) {
        let ran = self.run_with(&["apply", "-f", "-"], manifest);
        assert_eq!(ran.code, Some(0), "{}: {}{}", self.name(), ran.stdout, ran.stderr);
    }
}
