//! What one process costs in the host runtime, beside a plain fork and exec: `cargo run --release --example
//! spawn_cost`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use futures::StreamExt;
use tokio::sync::mpsc;
use windlass_node::runtimes::host::{Command, Event, Host, KEEPER_ARGUMENT};
use windlass_node::runtimes::{Process, keeper};

const COUNT: u32 = 2000;

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(KEEPER_ARGUMENT) {
        return keeper::main();
    }
    let start = Instant::now();
    for _ in 0..COUNT {
        let status = std::process::Command::new("/bin/true").status().expect("/bin/true runs");
        assert!(status.success());
    }
    report("plain spawn and wait, one at a time", start.elapsed());
    // A gigabyte that an agent might hold: a fork of this process would copy its page tables.
    let ballast = vec![1_u8; 1 << 30];
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    for at_once in [1, 2, 16] {
        let elapsed = runtime.block_on(run(at_once));
        report(&format!("host runtime, {at_once} at a time, beside {} MiB", ballast.len() >> 20), elapsed);
    }
    ExitCode::SUCCESS
}

fn report(what: &str, elapsed: Duration) {
    println!("{what}: {:?} each", elapsed / COUNT);
}

async fn run(at_once: usize) -> Duration {
    let logs = std::env::temp_dir().join(format!("spawn-cost-{}-{at_once}", std::process::id()));
    std::fs::create_dir_all(&logs).expect("a directory for logs");
    let host = Host::start(&Command::default()).await.expect("the keeper starts");
    let start = Instant::now();
    let runs = futures::stream::iter(0..COUNT).for_each_concurrent(at_once, |i| {
        let process = Process {
            argv: vec!["/bin/true".into()],
            env: vec![(keeper::MARKER.into(), format!("{i}"))],
            cwd: "/".into(),
            log: logs.join(format!("{i}.log")),
            makes_log_late: false,
            sandbox: None,
            starts: None,
            input: windlass_node::runtimes::Input::Nothing,
            log_limits: None,
        };
        let (sender, mut events) = mpsc::unbounded_channel();
        host.run(process, None, move |event| drop(sender.send(event)));
        async move { while !matches!(events.recv().await.expect("an event"), Event::Exited(_)) {} }
    });
    runs.await;
    let elapsed = start.elapsed();
    std::fs::remove_dir_all(&logs).expect("removed");
    elapsed
}
