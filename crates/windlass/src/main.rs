//! The `windlass` command: runs Kubernetes Jobs on this machine.

mod cli;
mod columns;
mod controller;
mod durations;
mod explain;
mod images;
mod lint;
mod manifest;
mod node;
mod parts;
mod rests;
mod run;
mod server;
mod why;

use std::process::ExitCode;
use std::time::Duration;

use windlass_node::runtimes::{host, keeper};

/// A Job has failed, or something else that another command line would not have helped.
const EXIT_FAILED: u8 = 1;
/// The manifest or the command line is wrong.
const EXIT_BAD_INPUT: u8 = 2;

/// A server decodes and encodes small pieces of JSON on all threads: the allocator of the system took a fifth of its time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    // The node agent runs this program once more, as the keeper of its processes.
    let is_keeper = std::env::args_os().nth(1).is_some_and(|argument| argument == host::KEEPER_ARGUMENT);
    keep_pages_small(!is_keeper);
    if is_keeper { keeper::main() } else { cli::main() }
}

/// The allocator asks for huge pages, which make a server that does nothing half as large again. What pods get is for
/// them to say, so their keeper takes back what it inherited.
fn keep_pages_small(is_wanted: bool) {
    // A kernel without it is fine.
    _ = rustix::thread::disable_transparent_huge_pages(is_wanted);
}

/// Logs to standard error what `WINDLASS_LOG` asks for.
fn log_to_stderr(default: &str) {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WINDLASS_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(default));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(std::io::stderr).init();
}

/// How a command ends: with what went wrong on standard error, and the code that stands for it.
fn report<E: std::fmt::Display>(ended: Result<(), E>, code: impl Fn(&E) -> u8) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::from(code(&error))
        }
    }
}

/// How long a command waits at its end for threads that are busy with something: a connection that is being made ends at
/// its next step, a file that is being unpacked may take longer and is not waited for.
const THREADS_END_MAX: Duration = Duration::from_secs(1);

/// Runs `work` on as many threads as the machine has cores.
fn with_threads(work: impl Future<Output = ExitCode>) -> ExitCode {
    with_runtime(tokio::runtime::Builder::new_multi_thread(), work)
}

/// Runs `work` on half of the cores: the others are for the processes that it starts. Where that is one, it is this thread
/// alone, for threads that wake each other for every answer take more time than short work itself.
fn with_half_the_threads(work: impl Future<Output = ExitCode>) -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, |cores| cores.get() / 2);
    if threads < 2 {
        return with_runtime(tokio::runtime::Builder::new_current_thread(), work);
    }
    let mut kind = tokio::runtime::Builder::new_multi_thread();
    kind.worker_threads(threads);
    with_runtime(kind, work)
}

/// Runs `work` on this thread, which rests a little when it is woken all the time, and longer when it is busy.
fn with_one_thread(
    is_busy: impl Fn() -> bool + Send + Sync + 'static,
    work: impl Future<Output = ExitCode>,
) -> ExitCode {
    let mut kind = tokio::runtime::Builder::new_current_thread();
    let rests = rests::Rests::new(is_busy);
    kind.on_thread_park(move || rests.take());
    with_runtime(kind, work)
}

/// What `work` left behind is dropped. Its threads have ended when this returns: one that still began a TLS connection while
/// the process leaves would find the state of its random numbers cleared, and abort.
fn with_runtime(mut kind: tokio::runtime::Builder, work: impl Future<Output = ExitCode>) -> ExitCode {
    match kind.enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(work);
            runtime.shutdown_timeout(THREADS_END_MAX);
            code
        }
        Err(error) => {
            eprintln!(
                "error: start threads: {error}\nhint: this machine is short of something; look at `ulimit -a`"
            );
            ExitCode::from(EXIT_FAILED)
        }
    }
}

/// An error and what led to it, on one line.
fn with_sources(error: &dyn std::error::Error) -> String {
    let sources = std::iter::successors(error.source(), |error| error.source());
    sources.fold(error.to_string(), |text, source| format!("{text}: {source}"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn no_thread_is_busy_any_more_when_a_command_leaves() {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        let code = with_threads(async move {
            let (begun, is_begun) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                begun.send(()).expect("awaited");
                // A step that takes a while.
                std::thread::sleep(Duration::from_millis(50));
                done.store(true, Ordering::Relaxed);
            });
            is_begun.await.expect("begun");
            ExitCode::SUCCESS
        });
        assert_eq!(code, ExitCode::SUCCESS);
        assert!(is_done.load(Ordering::Relaxed));
    }
}
