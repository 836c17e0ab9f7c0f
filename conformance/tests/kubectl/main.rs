//! The same kubectl commands against our API server and the real one: what is printed, and the exit code.
//!
//! Nobody runs pods on either side; where a kubelet would report something, a command of the session does.

mod known;
mod normal;
mod sessions;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::process::Command;
use windlass_conformance::assets;
use windlass_conformance::compare::{Difference, differences, judge};
use windlass_conformance::{Cluster, Ours};

/// No command takes longer, on a busy machine.
const COMMAND_WITHIN: Duration = Duration::from_secs(120);

/// One server as one kubectl sees it.
struct Side {
    kubeconfig: PathBuf,
    url: String,
    home: PathBuf,
    /// The directory of the kubectl in question.
    program: PathBuf,
    /// The files of the session, the same for both.
    files: PathBuf,
}

impl Side {
    fn new(root: &Path, name: &str, kubeconfig: &Path, url: String, kubectl: &Path) -> Result<Self> {
        let home = root.join(name);
        let program = home.join("bin");
        fs::create_dir_all(&program).context("make a home")?;
        symlink(kubectl, program.join("kubectl")).context("link kubectl")?;
        Ok(Self { kubeconfig: kubeconfig.to_owned(), url, home, program, files: root.join("files") })
    }

    /// Runs a line of shell and gives what came of it.
    async fn run(&self, line: &str) -> Result<Value> {
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.program.display());
        let child = Command::new("bash")
            .args(["-c", line])
            .env_clear()
            .env("PATH", path)
            .env("HOME", &self.home)
            .env("TMPDIR", &self.home)
            .env("KUBECONFIG", &self.kubeconfig)
            .current_dir(&self.files)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("start a shell")?;
        let output = tokio::time::timeout(COMMAND_WITHIN, child.wait_with_output()).await;
        let output = output.with_context(|| format!("did not end in time: {line}"))??;
        let text = |bytes: &[u8]| {
            let text = String::from_utf8_lossy(bytes).replace(&self.url, "<server>");
            normal::lines(&text.replace(&self.home.display().to_string(), "<home>"))
        };
        Ok(json!({"code": output.status.code(), "out": text(&output.stdout), "err": text(&output.stderr)}))
    }
}

/// Of what a server offers, only what ours offers is compared.
fn narrow(line: &str, ours: &Value, theirs: &mut Value) {
    if !line.starts_with("kubectl api-") {
        return;
    }
    let empty = Vec::new();
    let kept: Vec<Value> = theirs["out"]
        .as_array()
        .unwrap_or(&empty)
        .iter()
        .filter(|row| ours["out"].as_array().is_some_and(|rows| rows.contains(row)))
        .cloned()
        .collect();
    theirs["out"] = Value::Array(kept);
}

async fn compare(
    program: &str,
    kubectl: &Path,
    ours: &Ours,
    theirs: &Cluster,
    found: &mut Vec<Difference>,
) -> Result<usize> {
    let root = tempfile::tempdir()?;
    let files = root.path().join("files");
    fs::create_dir(&files)?;
    for (name, text) in sessions::FILES {
        fs::write(files.join(name), text)?;
    }
    let kubeconfig = (ours.kubeconfig()?, theirs.kubeconfig()?);
    let ours = Side::new(root.path(), "ours", &kubeconfig.0, ours.url(), kubectl)?;
    let theirs = Side::new(root.path(), "theirs", &kubeconfig.1, theirs.url(), kubectl)?;
    let lines = sessions::lines(program);
    for line in &lines {
        let (said, heard) = tokio::join!(ours.run(line), theirs.run(line));
        let (said, mut heard) = (said?, heard?);
        narrow(line, &said, &mut heard);
        let step = format!("{program}: {line}");
        found.extend(differences(&step, &said, &heard));
    }
    Ok(lines.len())
}

#[tokio::test(flavor = "multi_thread")]
async fn kubectl_prints_what_it_prints_with_the_real_server() -> Result<()> {
    let theirs = Cluster::start().await?;
    let ours = Ours::start().await?;
    let mut found = Vec::new();
    let mut count = compare("new", &assets::find("kubectl")?, &ours, &theirs, &mut found).await?;
    count += compare("older", &assets::older_kubectl()?, &ours, &theirs, &mut found).await?;
    let wrong = judge(&found, known::KNOWN);
    println!("{count} commands, {} differences", found.len());
    assert!(wrong.is_empty(), "{} places differ\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}
