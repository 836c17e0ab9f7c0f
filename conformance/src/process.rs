//! A program of the reference, with its output in a file, ended when dropped.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result};

/// A running program.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    child: Child,
}

impl Process {
    /// Starts it; what it prints goes to `<directory>/<name>.log`.
    pub fn start(name: &str, program: &Path, args: &[String], directory: &Path) -> Result<Self> {
        let log = directory.join(format!("{name}.log"));
        let out = File::options().create(true).append(true).open(&log);
        let out = out.with_context(|| format!("open {}", log.display()))?;
        let child = Command::new(program)
            .args(args)
            .stdin(Stdio::null())
            .stdout(out.try_clone().context("share a log")?)
            .stderr(out)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        Ok(Self { name: name.to_owned(), log, child })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Whether it ended by itself, and how.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        self.child.try_wait().with_context(|| format!("ask for {}", self.name))
    }

    /// The end of what it printed, for an error message.
    pub fn last_words(&self) -> String {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        format!("{}:\n{}", self.name, lines.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; there is nobody to tell.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
