//! How far containers of the host runtime are kept apart from this machine: what is asked for, and what a node can give.
//!
//! As far as possible on a node of a server, as containers are; not in `windlass run`: a Job that somebody runs on a machine of
//! their own writes its results to its working directory, and those have to stay.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use tokio::sync::oneshot;

use crate::oci::bundle;
use crate::runtimes::host::{Event, Host};
use crate::runtimes::sandbox::{Cover, Sandbox};
use crate::runtimes::{Input, Process, StartError};
use crate::security::Own;

/// The annotation by which a pod asks for it, and a node says what it can give.
pub const ANNOTATION: &str = "windlass.dev/isolation";

/// In which ways a container is kept apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Isolation {
    /// It does not see the processes of the machine, and all of it ends with its first process.
    pub pids: bool,
    /// What it writes outside its volumes is seen by nobody else, and goes with it.
    pub files: bool,
}

impl Isolation {
    /// The words for its parts.
    fn parts(self) -> impl Iterator<Item = &'static str> {
        [("pid", self.pids), ("files", self.files)]
            .into_iter()
            .filter(|(_, is_set)| *is_set)
            .map(|(name, _)| name)
    }

    /// Whether it is of any kind.
    pub fn is_any(self) -> bool {
        self.pids || self.files
    }
}

impl fmt::Display for Isolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<&str> = self.parts().collect();
        f.write_str(&if parts.is_empty() { "none".to_owned() } else { parts.join(",") })
    }
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// This, or the container does not start.
    Exactly(Isolation),
    /// As much as the node can give.
    Most,
}

impl Default for Wanted {
    fn default() -> Self {
        Self::Exactly(Isolation::default())
    }
}

/// A text says no kinds of isolation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("isolation {0:?} is not known: it is none, auto, pid, files or pid,files")]
pub struct Unknown(String);

impl FromStr for Wanted {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let mut wanted = Isolation::default();
        match text {
            "none" => return Ok(Self::default()),
            "auto" => return Ok(Self::Most),
            _ => {}
        }
        for part in text.split(',') {
            match part.trim() {
                "pid" => wanted.pids = true,
                "files" => wanted.files = true,
                _ => return Err(Unknown(text.to_owned())),
            }
        }
        Ok(Self::Exactly(wanted))
    }
}

impl Wanted {
    /// What a container gets on a node that can give `given`; what is missing if that is not enough.
    pub fn of(self, given: Isolation) -> Result<Isolation, String> {
        let Self::Exactly(wanted) = self else { return Ok(given) };
        let missing = Isolation { pids: wanted.pids && !given.pids, files: wanted.files && !given.files };
        match missing.is_any() {
            true => {
                Err(format!("isolation by {missing} is not possible on this node, which can give: {given}"))
            }
            false => Ok(wanted),
        }
    }
}

/// What a pod gets: what its annotation says, else what the node was told.
pub(crate) fn of_pod(node: Wanted, annotation: Option<&str>, given: Isolation) -> Result<Isolation, String> {
    let wanted = match annotation {
        Some(text) => text.parse().map_err(|error| format!("annotation {ANNOTATION}: {error}"))?,
        None => node,
    };
    wanted.of(given)
}

/// What a node can give: found out by trying.
pub(crate) async fn given(host: &Host, data_dir: &Path) -> Isolation {
    let directory = data_dir.join("probe");
    let can = async |name: &str, sandbox: Sandbox| {
        let (tell, told) = oneshot::channel();
        let tell = parking_lot::Mutex::new(Some(tell));
        let process = Process {
            // Whether there is such a program does not matter: it is looked for when all else is done.
            argv: vec!["true".into()],
            env: Vec::new(),
            cwd: "/".into(),
            log: directory.join(name),
            // It prints nothing.
            makes_log_late: true,
            sandbox: Some(Box::new(sandbox)),
            starts: None,
            input: Input::Nothing,
            log_limits: None,
        };
        host.run(process, None, move |event| {
            if !matches!(event, Event::Started(_))
                && let Some(tell) = tell.lock().take()
            {
                let _ = tell.send(event);
            }
        });
        match told.await {
            Ok(Event::Failed(StartError::Exec { .. }) | Event::Exited(_)) => true,
            Ok(event) => {
                tracing::debug!(?event, "isolation by {name} is not possible");
                false
            }
            Err(_) => false,
        }
    };
    let cover = Cover { directory: directory.join("cover"), agent: data_dir.to_owned() };
    // It may be left from an agent that was killed.
    let made = bundle::remove(&directory).and_then(|()| std::fs::create_dir_all(&directory));
    if let Err(error) = made.and_then(|()| cover.make()) {
        tracing::warn!(%error, path = %directory.display(), "find out how containers can be isolated");
        return Isolation::default();
    }
    let known_as = Own::of_this_process().inside();
    let pids = can("pid", Sandbox { has_own_pids: true, known_as, ..Sandbox::default() });
    let files = can("files", Sandbox { cover: Some(cover), ..Sandbox::default() });
    let (pids, files) = tokio::join!(pids, files);
    if let Err(error) = bundle::remove(&directory) {
        tracing::warn!(%error, path = %directory.display(), "remove what an attempt has left");
    }
    Isolation { pids, files }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NONE: Isolation = Isolation { pids: false, files: false };
    const PIDS: Isolation = Isolation { pids: true, files: false };
    const FILES: Isolation = Isolation { pids: false, files: true };
    const ALL: Isolation = Isolation { pids: true, files: true };

    #[test]
    fn what_is_asked_for_is_read() {
        for (text, want) in [
            ("none", Ok(Wanted::Exactly(NONE))),
            ("auto", Ok(Wanted::Most)),
            ("pid", Ok(Wanted::Exactly(PIDS))),
            ("files", Ok(Wanted::Exactly(FILES))),
            ("files, pid", Ok(Wanted::Exactly(ALL))),
            ("", Err(Unknown("".into()))),
            ("none,pid", Err(Unknown("none,pid".into()))),
            ("network", Err(Unknown("network".into()))),
        ] {
            assert_eq!(text.parse(), want, "{text}");
        }
        assert_eq!(
            [NONE, PIDS, FILES, ALL].map(|some| some.to_string()),
            ["none", "pid", "files", "pid,files"]
        );
    }

    #[test]
    fn a_pod_gets_what_it_asks_for_or_does_not_start() {
        let missing = "isolation by files is not possible on this node, which can give: pid";
        let unknown = "annotation windlass.dev/isolation: isolation \"x\" is not known: it is none, auto, pid, files or \
                       pid,files";
        for (node, annotation, given, want) in [
            (Wanted::default(), None, ALL, Ok(NONE)),
            (Wanted::Most, None, PIDS, Ok(PIDS)),
            (Wanted::Most, Some("none"), ALL, Ok(NONE)),
            (Wanted::default(), Some("pid,files"), ALL, Ok(ALL)),
            (Wanted::default(), Some("auto"), NONE, Ok(NONE)),
            (Wanted::default(), Some("pid,files"), PIDS, Err(missing)),
            (Wanted::Exactly(FILES), None, PIDS, Err(missing)),
            (Wanted::default(), Some("x"), ALL, Err(unknown)),
        ] {
            assert_eq!(of_pod(node, annotation, given), want.map_err(str::to_owned), "{annotation:?}");
        }
    }
}
