//! The `windlass` command: runs Kubernetes Jobs on this machine.

mod cli;
mod durations;
mod manifest;
mod run;
mod server;

use std::process::ExitCode;

use windlass_node::runtimes::{host, keeper};

fn main() -> ExitCode {
    // The node agent runs this program once more, as the keeper of its processes.
    if std::env::args_os().nth(1).is_some_and(|argument| argument == host::KEEPER_ARGUMENT) {
        return keeper::main();
    }
    cli::main()
}
