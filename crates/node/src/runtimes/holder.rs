//! The first process of a pid namespace that the containers of a pod share: it does nothing but to be there, so that the
//! namespace is, whichever of the containers comes and goes, and to collect the orphans that become its children.
//!
//! A keeper starts it with the first container of such a pod and kills it when none of them is left. What a container leaves
//! is ended before that by its control group.

use std::io;
use std::process::Stdio;

use rustix::process::WaitOptions;
use tokio::signal::unix::{SignalKind, signal};

use super::keeper::{self, Manner, PidNamespace};
use super::protocol::StartError;

/// What it is called in the environment.
pub(super) const ROLE: &str = "holder";

/// Starts one, and returns its pid.
pub(super) fn start() -> Result<i32, StartError> {
    let mut command = keeper::again(ROLE);
    // What the keeper has there would stay open as long as this.
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let manner = Manner { has_terminal: false, has_other_pids: true, files: None, stand_in: None };
    keeper::in_pid_namespace(Some(PidNamespace::New), || keeper::run(command, &[], None, manner))
}

/// Is one, until it is killed.
pub(super) fn hold() -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_io().build()?.block_on(async {
        let mut child_ended = signal(SignalKind::child())?;
        loop {
            while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
            child_ended.recv().await;
        }
    })
}
