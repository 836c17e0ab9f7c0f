//! `windlass server` beside the real kube-apiserver and etcd: the same clients, the same bodies, one after the other.
//!
//! Clients speak HTTP/2 over TLS with a bearer token, as client-go does, and share this machine with the server.

mod client;
mod measure;
mod report;
mod subjects;

use std::path::PathBuf;

use anyhow::{Context, Result, bail};

use report::Report;
use subjects::{Extent, Reference, Windlass};

fn main() -> Result<()> {
    let program = std::env::args_os().nth(1).map(PathBuf::from).context("give the path of windlass")?;
    // One thread: what the clients use is not there for the server, and is the same for both.
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start tokio")?;
    let report = runtime.block_on(compare(&program))?;
    println!("{report}");
    let missed = report.missed();
    if !missed.is_empty() {
        bail!("bars that were missed: {}", missed.join("; "));
    }
    Ok(())
}

async fn compare(program: &std::path::Path) -> Result<Report> {
    eprintln!("starting windlass server, several times");
    let starts = subjects::start_times(program).await?;
    let ours = {
        let windlass = Windlass::start(program, Extent::Whole).await?;
        let idle = measure::idle_bytes(&[windlass.id()]).await?;
        drop(windlass);
        let windlass = Windlass::start(program, Extent::Api).await?;
        measure::all("windlass", &windlass.endpoint(), idle, starts).await?
    };
    let watched = {
        // Nothing of this machine is to run the pods of the measurement.
        let windlass = Windlass::start(program, Extent::WithoutNode).await?;
        measure::creates_alone("windlass with its controllers", &windlass.endpoint()).await?
    };
    let theirs = {
        let started = std::time::Instant::now();
        let reference = Reference::start().await?;
        let start = started.elapsed();
        let idle = measure::idle_bytes(&reference.ids()).await?;
        measure::all("kube-apiserver", &reference.endpoint(), idle, measure::Starts::once(start)).await?
    };
    Ok(Report { ours, watched, theirs })
}
