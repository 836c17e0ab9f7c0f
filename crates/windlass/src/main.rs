//! The `windlass` command: runs Kubernetes Jobs on this machine.

mod cli;
mod columns;
mod controller;
mod durations;
mod evictions;
mod explain;
mod images;
mod lint;
mod manifest;
mod node;
mod parts;
mod reach;
mod rests;
mod run;
mod server;
mod shutdown;
mod why;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::fmt::writer::MakeWriterExt;
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

/// The command is done. What is logged after that tells of connections that are cut because it leaves.
static IS_LEAVING: AtomicBool = AtomicBool::new(false);

/// Logs to standard error what `WINDLASS_LOG` asks for.
fn log_to_stderr(default: &str) {
    log_to(std::io::stderr, default);
}

/// Logs what `WINDLASS_LOG` asks for, a filter such as `debug` or `windlass_node=trace`, until the command leaves.
fn log_to(writer: impl for<'a> MakeWriter<'a> + Send + Sync + 'static, default: &str) {
    let filter = EnvFilter::try_from_env("WINDLASS_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let writer = writer.with_filter(|_| !IS_LEAVING.load(Ordering::Relaxed));
    tracing_subscriber::fmt().with_env_filter(filter).with_ansi(false).with_writer(writer).init();
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
            IS_LEAVING.store(true, Ordering::Relaxed);
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
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    /// What was logged.
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl Log {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().expect("no writer panics").clone()).expect("UTF-8")
        }
    }

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no writer panics").write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_command_leaves_when_no_thread_is_busy_any_more_and_is_silent_from_its_end_on() {
        let (log, is_done) = (Log::default(), Arc::new(AtomicBool::new(false)));
        let (writer, done) = (log.clone(), Arc::clone(&is_done));
        log_to(move || writer.clone(), "warn");
        let code = with_threads(async move {
            let (begun, is_begun) = tokio::sync::oneshot::channel();
            tokio::spawn(async move {
                tracing::warn!("it begins");
                begun.send(()).expect("awaited");
                // A step that takes a while.
                std::thread::sleep(Duration::from_millis(50));
                tracing::warn!("it is cut off");
                done.store(true, Ordering::Relaxed);
            });
            is_begun.await.expect("begun");
            ExitCode::SUCCESS
        });
        assert_eq!(code, ExitCode::SUCCESS);
        assert!(is_done.load(Ordering::Relaxed));
        let text = log.text();
        assert!(text.contains("it begins") && !text.contains("it is cut off"), "{text}");
    }
}
