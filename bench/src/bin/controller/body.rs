//! A controller at work: its process, and what it costs.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use windlass_conformance::{Cluster, ControllerManager};

/// Which controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Go,
    Windlass,
}

impl Kind {
    /// `spec.managedBy` of its Jobs.
    pub fn managed_by(self) -> Option<&'static str> {
        match self {
            Self::Go => None,
            Self::Windlass => Some("windlass.dev/job-controller"),
        }
    }
}

/// A controller that runs until dropped.
pub enum Body {
    Go(ControllerManager),
    Windlass(Child),
}

impl Drop for Body {
    fn drop(&mut self) {
        match self {
            Self::Go(_) => {}
            Self::Windlass(child) => {
                // It may have ended already.
                _ = child.kill();
                _ = child.wait();
            }
        }
    }
}

impl Body {
    pub fn start(kind: Kind, cluster: &Cluster, windlass: &Path) -> Result<Self> {
        if kind == Kind::Go {
            return Ok(Self::Go(cluster.controller_manager(&["job-controller"], "")?));
        }
        let kubeconfig = cluster.kubeconfig()?;
        let log = std::fs::File::create(cluster.directory().join("windlass.log")).context("make a log")?;
        let child = Command::new(windlass)
            .args(["controller", "--leader-elect=false", "--listen-health", "127.0.0.1:0", "--kubeconfig"])
            .arg(kubeconfig)
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {}", windlass.display()))?;
        Ok(Self::Windlass(child))
    }

    fn id(&self) -> u32 {
        match self {
            Self::Go(manager) => manager.id(),
            Self::Windlass(child) => child.id(),
        }
    }

    /// CPU time used so far.
    pub fn cpu(&self) -> Result<Duration> {
        let stat =
            std::fs::read_to_string(format!("/proc/{}/stat", self.id())).context("the controller ended")?;
        // Fields 14 and 15, counted after the name in parentheses, in hundredths of a second.
        let fields: Vec<&str> = stat.rsplit_once(')').context("a stat line")?.1.split_whitespace().collect();
        let ticks =
            |at: usize| fields.get(at).and_then(|text| text.parse::<u64>().ok()).context("a stat field");
        Ok(Duration::from_millis((ticks(11)? + ticks(12)?) * 10))
    }

    /// The most memory it had, in bytes.
    pub fn memory(&self) -> Result<u64> {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.id())).context("the controller ended")?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("VmHWM")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse().context("VmHWM")?;
        Ok(kilobytes * 1024)
    }
}
