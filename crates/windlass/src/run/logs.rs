//! `--logs`: what pods have printed, shown when they have ended.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use futures::stream::BoxStream;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use windlass_node::logs::directory::Directory;

use super::Logs;

/// Of a failed pod the end is shown; `--keep` has the rest.
const FAILED_LINES_MAX: usize = 50;
/// How long the last pods may take to be told of, once all Jobs have finished.
const REST_WITHIN: Duration = Duration::from_secs(2);

/// Shows the output of pods.
pub struct Printer {
    logs: Logs,
    client: kube::Client,
    directories: Vec<PathBuf>,
    succeeded: Option<BoxStream<'static, Result<watcher::Event<Pod>, watcher::Error>>>,
    shown: HashSet<String>,
}

impl Printer {
    /// Reads from the directories of the nodes.
    pub fn new(logs: Logs, client: kube::Client, directories: Vec<PathBuf>) -> Self {
        let succeeded = (logs == Logs::All).then(|| {
            let config = watcher::Config::default().fields("status.phase=Succeeded");
            watcher(Api::<Pod>::all(client.clone()), config).default_backoff().boxed()
        });
        Self { logs, client, directories, succeeded, shown: HashSet::new() }
    }

    /// The next pod that has succeeded, if its output is wanted. Can be dropped at any time.
    pub async fn next_success(&mut self) -> Pod {
        let Some(events) = &mut self.succeeded else { return std::future::pending().await };
        loop {
            match events.next().await {
                Some(Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod))) => return pod,
                Some(Ok(watcher::Event::Init | watcher::Event::InitDone | watcher::Event::Delete(_))) => {}
                Some(Err(error)) => tracing::warn!(%error, "watch succeeded pods"),
                None => std::future::pending().await,
            }
        }
    }

    /// Pods that have ended, some of them perhaps unseen.
    pub async fn rest(&mut self) -> Vec<Pod> {
        if self.logs == Logs::None {
            return Vec::new();
        }
        let pods = Api::<Pod>::all(self.client.clone());
        let listed = tokio::time::timeout(REST_WITHIN, pods.list(&ListParams::default())).await;
        listed.ok().and_then(Result::ok).map(|list| list.items).unwrap_or_default()
    }

    /// What the pod has printed, if that is wanted and was not shown before.
    pub fn lines(&mut self, pod: &Pod) -> Vec<String> {
        let meta = &pod.metadata;
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
        let is_wanted = match (self.logs, phase) {
            (Logs::All, Some("Succeeded" | "Failed")) | (Logs::Failed, Some("Failed")) => true,
            (Logs::None | Logs::Failed | Logs::All, _) => false,
        };
        let (Some(uid), Some(name)) = (&meta.uid, &meta.name) else { return Vec::new() };
        if !is_wanted || !self.shown.insert(uid.clone()) {
            return Vec::new();
        }
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        let directory = format!("logs/{namespace}_{name}_{uid}");
        let lines_max = if phase == Some("Failed") { FAILED_LINES_MAX } else { usize::MAX };
        let containers = self.directories.iter().flat_map(|node| files(&node.join(&directory)));
        let mut containers: Vec<(String, PathBuf)> = containers.collect();
        containers.sort();
        let has_several = containers.iter().any(|(container, _)| *container != containers[0].0);
        let prefix = |container: &str| {
            if has_several { format!("{name} {container} |") } else { format!("{name} |") }
        };
        containers.iter().flat_map(|(container, file)| tail(file, &prefix(container), lines_max)).collect()
    }
}

/// The log files of a pod, each with its container.
fn files(pod: &Path) -> Vec<(String, PathBuf)> {
    let entries = |path: &Path| {
        let read = std::fs::read_dir(path).into_iter().flatten().flatten();
        read.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let name = |path: &Path| path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    entries(pod)
        .iter()
        .flat_map(|container| {
            entries(container).into_iter().filter(is_log).map(|file| (name(container), file))
        })
        .collect()
}

/// The last lines of a file, with what stands in front of each.
fn tail(file: &Path, prefix: &str, lines_max: usize) -> Vec<String> {
    let mut bytes = Vec::new();
    let read = Directory::open(file).and_then(|directory| directory.read(file)?.read_to_end(&mut bytes));
    if read.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<&str> = text.lines().collect();
    let skipped = lines.len().saturating_sub(lines_max);
    let told = (skipped > 0).then(|| format!("{prefix} … {skipped} lines before these"));
    told.into_iter().chain(lines[skipped..].iter().map(|line| format!("{prefix} {line}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_log_the_end_is_shown() {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("0.log");
        std::fs::write(&file, "a\nb\nc\n").expect("written");
        assert_eq!(tail(&file, "p |", 2), ["p | … 1 lines before these", "p | b", "p | c"]);
        assert_eq!(tail(&file, "p |", 3), ["p | a", "p | b", "p | c"]);
        assert_eq!(tail(&directory.path().join("1.log"), "p |", 3), [""; 0]);
    }
}
