//! What a pod leaves on this machine, and how it goes when the pod is gone.

use std::io;
use std::path::{Path, PathBuf};

use k8s_openapi::api::core::v1::Pod;

use crate::oci::bundle;
use crate::pod::Context;
use crate::{logs, mounts, prepare};

/// The files of one pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Files {
    uid: String,
    logs: Option<PathBuf>,
    /// Volumes and the like.
    own: PathBuf,
    /// What its containers need while they run. Never there without `own`.
    run: PathBuf,
}

impl Files {
    /// Those of a pod.
    pub(crate) fn of(context: &Context, pod: &Pod) -> Self {
        Self {
            uid: pod.metadata.uid.clone().unwrap_or_default(),
            logs: Some(logs::pod_directory(&context.logs, prepare::pod_name(pod))),
            own: context.pod_directory(pod),
            run: context.run_directory(pod),
        }
    }

    /// Those of all pods that ever were here and are not removed.
    pub(crate) fn all(context: &Context) -> Vec<Self> {
        let (pods, runs) = (context.config.data_dir.join("pods"), &context.config.run_dir);
        let entries = |path: &Path| {
            let names = std::fs::read_dir(path).into_iter().flatten().flatten();
            names.filter_map(|entry| entry.file_name().into_string().ok()).collect::<Vec<_>>()
        };
        let of_logs = entries(&context.logs).into_iter().filter_map(|name| {
            let uid = uid(&name)?.to_owned();
            Some(Self {
                own: pods.join(&uid),
                run: runs.join(&uid),
                logs: Some(context.logs.join(name)),
                uid,
            })
        });
        let of_pods = entries(&pods).into_iter();
        let of_pods = of_pods.map(|uid| Self { own: pods.join(&uid), run: runs.join(&uid), logs: None, uid });
        of_logs.chain(of_pods).collect()
    }

    /// The UID of the pod.
    pub(crate) fn uid(&self) -> &str {
        &self.uid
    }

    /// Whether there is anything but logs.
    pub(crate) fn has_own(&self) -> bool {
        self.own.exists()
    }

    /// Removes them; the logs only if they are not to be kept. Links in them are not followed.
    pub(crate) fn remove(&self, keeps_logs: bool) {
        if self.uid.is_empty() {
            return;
        }
        if let Err(error) = bundle::remove(&self.run) {
            tracing::warn!(%error, path = %self.run.display(), "remove bundles");
        }
        mounts::remove(&self.own);
        let Some(logs) = self.logs.as_ref().filter(|_| !keeps_logs) else { return };
        match std::fs::remove_dir_all(logs) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => tracing::warn!(%error, path = %logs.display(), "remove logs"),
        }
    }
}

/// The UID in the name of a directory of logs. A workload may have made that name: it must not lead to other files than those of a
/// pod, as `_..` would.
fn uid(logs: &str) -> Option<&str> {
    let uid = logs.rsplit('_').next()?;
    (!matches!(uid, "" | "." | "..")).then_some(uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_of_logs_leads_to_the_files_of_a_pod_or_to_none() {
        for (name, want) in [
            ("ns_pod_1234-5", Some("1234-5")),
            ("1234", Some("1234")),
            ("ns_pod_", None),
            ("_.", None),
            ("_..", None),
            ("a_b_..", None),
            ("_...", Some("...")),
        ] {
            assert_eq!(uid(name), want, "{name}");
        }
    }
}
