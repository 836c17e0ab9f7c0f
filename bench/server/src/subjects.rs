//! The two servers that are compared, each for as long as its value lives.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};
use tempfile::TempDir;
use windlass_conformance::Cluster;

use crate::client::Endpoint;
use crate::measure::Starts;

/// How often the start is measured, each time from nothing and once more with what that left.
const STARTS: usize = 5;

/// A process that is ended when the value is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already; there is nobody to tell.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How much of a `windlass server` is started.
#[derive(Clone, Copy, Debug)]
pub enum Extent {
    /// All of it: controllers, scheduler and a node of this machine.
    Whole,
    /// The same, but without a node: nothing runs the pods.
    WithoutNode,
    /// The API and its store, as kube-apiserver and etcd are.
    Api,
}

impl Extent {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Whole => &["--nodes", "1"],
            Self::WithoutNode => &["--nodes", "0"],
            Self::Api => &["--api-only"],
        }
    }
}

/// A running `windlass server`.
pub struct Windlass {
    process: Process,
    endpoint: Endpoint,
    directory: TempDir,
}

impl Windlass {
    /// Starts one in a directory of its own, with a token of its administrator.
    pub async fn start(program: &Path, extent: Extent) -> Result<Self> {
        let mut windlass =
            Self::start_in(program, extent, tempfile::tempdir().context("make a directory")?).await?;
        windlass.endpoint.set_token(&windlass.token(program)?)?;
        Ok(windlass)
    }

    /// Starts one, and waits until it answers.
    async fn start_in(program: &Path, extent: Extent, directory: TempDir) -> Result<Self> {
        let child = Command::new(program)
            .args(["server", "--listen", "127.0.0.1:0"])
            .args(extent.flags())
            .arg("--data-dir")
            .arg(directory.path().join("data"))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let mut process = Process(child);
        let address = address(&mut process.0)?;
        let authority = directory.path().join("data/pki/ca.crt");
        let authority =
            fs::read_to_string(&authority).with_context(|| format!("read {}", authority.display()))?;
        let endpoint = Endpoint::new(address, &authority)?;
        endpoint.connect().await?.get("/readyz").await?;
        Ok(Self { process, endpoint, directory })
    }

    fn token(&self, program: &Path) -> Result<String> {
        let output = Command::new(program)
            .args(["token", "--user", "bench", "--group", "system:masters", "--data-dir"])
            .arg(self.directory.path().join("data"))
            .output()
            .context("make a token")?;
        if !output.status.success() {
            bail!("make a token: {}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout).context("read a token")?.trim().to_owned())
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.0.id()
    }

    /// Where it is.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }

    /// Ends it as a user does, and leaves its directory.
    fn stop(mut self) -> Result<TempDir> {
        let id = self.id().to_string();
        let status = Command::new("kill").args(["-TERM", &id]).status().context("start kill")?;
        if !status.success() {
            bail!("kill -TERM {id}: {status}");
        }
        self.process.0.wait().context("wait for windlass")?;
        Ok(self.directory)
    }
}

/// Where a server says that it is ready. What it says later is of no interest, and must not fill its pipe.
fn address(child: &mut Child) -> Result<SocketAddr> {
    let mut lines = BufReader::new(child.stderr.take().context("its stderr is ours")?).lines();
    let mut said = String::new();
    for line in lines.by_ref() {
        let line = line.context("hear windlass")?;
        if let Some((_, address)) = line.split_once("is ready at https://") {
            let address = address.trim().parse().with_context(|| format!("read {line:?}"))?;
            std::thread::spawn(move || lines.for_each(drop));
            return Ok(address);
        }
        said.push_str(&line);
    }
    bail!("windlass ended: {said}")
}

/// From the start of the program to its first answer: with an empty directory, and with one that was used before.
pub async fn start_times(program: &Path) -> Result<Starts> {
    let mut starts = Starts::default();
    for _ in 0..STARTS {
        let directory = tempfile::tempdir().context("make a directory")?;
        let began = Instant::now();
        let first = Windlass::start_in(program, Extent::Whole, directory).await?;
        starts.first.push(began.elapsed());
        let directory = first.stop()?;
        let began = Instant::now();
        let again = Windlass::start_in(program, Extent::Whole, directory).await?;
        starts.again.push(began.elapsed());
        again.stop()?;
    }
    Ok(starts)
}

/// A running kube-apiserver with its etcd.
pub struct Reference {
    cluster: Cluster,
    endpoint: Endpoint,
}

impl Reference {
    /// Starts them, and waits until they answer.
    pub async fn start() -> Result<Self> {
        let cluster = Cluster::start().await?;
        let url = cluster.url();
        let address = url.strip_prefix("https://").and_then(|address| address.parse().ok());
        let mut endpoint = Endpoint::new(address.context("read its address")?, cluster.authority())?;
        endpoint.set_token(cluster.token())?;
        Ok(Self { cluster, endpoint })
    }

    /// Its processes.
    pub fn ids(&self) -> [u32; 2] {
        self.cluster.ids()
    }

    /// Where it is.
    pub fn endpoint(&self) -> Endpoint {
        self.endpoint.clone()
    }
}
