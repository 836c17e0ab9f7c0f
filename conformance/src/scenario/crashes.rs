//! Our controller is killed before and after each of its writes in turn; the end must be the same.

use std::sync::Arc;

use anyhow::{Result, bail};
use futures::StreamExt;
use windlass_job::observation::Manages;

use super::Scenario;
use super::body::{Controller, Kill, Ours};
use super::compare::cluster;
use super::play::{Manner, World, play};
use super::record::Record;
use super::tap::Writes;

/// Runs under way at a time.
const AT_ONCE: usize = 24;

/// Which writes it is killed at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// Before and after each.
    Each,
    /// Before one and after another; which ones differs from scenario to scenario.
    Sample,
}

/// A difference that a crash at an unlucky moment makes, and that can't be avoided.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// In which scenario.
    pub scenario: &'static str,
    /// How the line that tells of it begins.
    pub line: &'static str,
    /// Why.
    pub why: &'static str,
}

/// All of them. The built-in controller has them too: like ours, it deletes pods before it writes why.
pub const KNOWN: &[Known] = &[
    Known {
        scenario: "per-index-global-first",
        line: "job.status.failedIndexes",
        why: DELETED_BEFORE_WRITTEN,
    },
    Known {
        scenario: "per-index-max-failed",
        line: "the end: waited for [Failed(MaxFailedIndexesExceeded) failed=3 failedIndexes=0,1] in vain: the Job is \
               [Failed(MaxFailedIndexesExceeded) failed=3 failedIndexes=0-2], uncounted {}",
        why: DELETED_BEFORE_WRITTEN,
    },
    Known {
        scenario: "per-index-max-edited",
        line: "the end: waited for [Failed(MaxFailedIndexesExceeded) failed=2 failedIndexes=0] in vain: the Job is \
               [Failed(MaxFailedIndexesExceeded) failed=2 failedIndexes=0,1], uncounted {}",
        why: DELETED_BEFORE_WRITTEN,
    },
];

const DELETED_BEFORE_WRITTEN: &str = "a pod that was deleted because the Job fails, before that was written, looks like \
                                      one that a user deleted: its index, which has no retry left, counts as failed";

fn is_known(scenario: &str, line: &str) -> bool {
    KNOWN.iter().any(|known| known.scenario == scenario && line.starts_with(known.line))
}

/// Plays every scenario once undisturbed, and then as often as `which` says. Gives the number of runs.
pub async fn run(scenarios: &[Scenario], which: Which) -> Result<usize> {
    let cluster = cluster().await?;
    let world = Arc::new(World::new(cluster.client().await?));
    let undisturbed = scenarios.iter().cloned().enumerate().map(|(number, scenario)| {
        let world = Arc::clone(&world);
        tokio::spawn(async move {
            let (record, writes) = once(&world, &scenario, None).await;
            (number, scenario, record, writes)
        })
    });
    let mut wrong = Vec::new();
    let mut runs = Vec::new();
    let mut undisturbed = futures::stream::iter(undisturbed).buffer_unordered(AT_ONCE);
    while let Some(played) = undisturbed.next().await {
        let (number, scenario, record, writes) = played?;
        match record {
            Ok(record) => {
                let record = Arc::new(record);
                let kills = kills(which, number, writes);
                runs.extend(kills.into_iter().map(|kill| (scenario.clone(), Arc::clone(&record), kill)));
            }
            Err(error) => wrong.push(format!("{}: {error:#}", scenario.name)),
        }
    }
    let count = runs.len();
    let runs = runs.into_iter().map(|(scenario, expected, kill)| {
        let world = Arc::clone(&world);
        async move { tokio::spawn(disturbed(world, scenario, expected, kill)).await }
    });
    let mut runs = futures::stream::iter(runs).buffer_unordered(AT_ONCE);
    while let Some(found) = runs.next().await {
        wrong.extend(found?);
    }
    if !wrong.is_empty() {
        bail!("{} of {count} runs end differently:\n{}", wrong.len(), wrong.join("\n"));
    }
    Ok(count)
}

fn kills(which: Which, number: usize, writes: usize) -> Vec<Kill> {
    match which {
        Which::Each => (0..writes).flat_map(|at| [Kill::Before(at), Kill::After(at)]).collect(),
        Which::Sample if writes == 0 => Vec::new(),
        Which::Sample => vec![Kill::Before(number % writes), Kill::After((number * 7 + 3) % writes)],
    }
}

async fn once(world: &World, scenario: &Scenario, kill: Option<Kill>) -> (Result<Record>, usize) {
    let suffix = match kill {
        None => "calm".to_owned(),
        Some(Kill::Before(at)) => format!("before-{at}"),
        Some(Kill::After(at)) => format!("after-{at}"),
    };
    let namespace = format!("{}-{suffix}", scenario.name);
    let writes = Writes::new(kill);
    let manages = Manages::Unclaimed;
    let ours = Ours::new(world.client.clone(), &namespace, manages, Arc::clone(&writes));
    let manner = Manner { opts_in: false, tells_all: false };
    let record = play(world, &namespace, scenario, &mut Controller::Ours(ours), manner).await;
    (record, writes.count())
}

async fn disturbed(
    world: Arc<World>,
    scenario: Scenario,
    expected: Arc<Record>,
    kill: Kill,
) -> Option<String> {
    match once(&world, &scenario, Some(kill)).await.0 {
        Ok(record) => {
            let mut differences = record.differences(&expected, false);
            differences.retain(|line| !is_known(&scenario.name, line));
            (!differences.is_empty())
                .then(|| format!("{} {kill:?}: {}", scenario.name, differences.join("; ")))
        }
        Err(error) => {
            let line = format!("{error:#}");
            (!is_known(&scenario.name, &line)).then(|| format!("{} {kill:?}: {line}", scenario.name))
        }
    }
}
