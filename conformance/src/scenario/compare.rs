//! Plays scenarios on all bodies and compares how they end.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use futures::StreamExt;
use kube::Client;
use windlass_apiserver::Server;
use windlass_job::observation::Manages;

use super::Scenario;
use super::body::{Body, Controller, Crew, Ours};
use super::play::{Manner, World, play};
use super::record::Record;
use super::tap::Writes;
use crate::Cluster;
use crate::cluster::Options;

/// Scenarios under way at a time, on our own API server and on the real one.
const AT_ONCE: usize = 48;

/// A difference from the built-in controller that we want.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Whose, or all of ours.
    pub body: Option<Body>,
    /// In which scenario; `*` for any.
    pub scenario: &'static str,
    /// How the line that tells of it begins.
    pub line: &'static str,
    /// Why we want it.
    pub why: &'static str,
}

/// How a scenario ended on a body.
pub type Ending = Result<Record>;

/// All endings.
pub type Endings = BTreeMap<(String, Body), Ending>;

/// A real API server for scenarios.
pub async fn cluster() -> Result<Arc<Cluster>> {
    // Without service accounts in each namespace there would be no pods.
    let options = Options {
        apiserver: vec!["--disable-admission-plugins=ServiceAccount".to_owned()],
        ..Options::default()
    };
    Ok(Arc::new(Cluster::start_with(&options).await?))
}

/// Plays all scenarios on all bodies.
pub async fn play_all(scenarios: &[Scenario]) -> Result<Endings> {
    let cluster = cluster().await?;
    let world = Arc::new(World::new(cluster.client().await?));
    let mut endings = Endings::new();
    // First ours alone: Jobs that nobody claims are ours then.
    let (embedded, all) =
        tokio::join!(on_embedded(scenarios), on_cluster(&world, scenarios, Body::All, Manages::Unclaimed));
    endings.extend(embedded);
    endings.extend(all);
    // Then both side by side.
    let manager = cluster.controller_manager(&["job-controller"], "")?;
    let (steady, restarted): (Vec<_>, Vec<_>) =
        scenarios.iter().cloned().partition(|scenario| !scenario.has_restarts());
    let (opted_in, go) = tokio::join!(
        on_cluster(&world, scenarios, Body::OptedIn, Manages::OptedIn),
        on_go(&world, &steady, None)
    );
    endings.extend(opted_in);
    endings.extend(go);
    let crew = Crew::new(Arc::clone(&cluster), manager);
    endings.extend(on_go(&world, &restarted, Some(crew)).await);
    Ok(endings)
}

/// Plays scenarios on our own API server, one for each.
pub async fn on_embedded(scenarios: &[Scenario]) -> Endings {
    let plays = scenarios.iter().cloned().map(|scenario| async move {
        let server = Server::new(windlass_apiserver::Config::default());
        let world = World::new(Client::new(server.router(), "default"));
        let ours = Ours::new(world.client.clone(), &scenario.name, Manages::Unclaimed, Writes::new(None));
        let manner = Manner { opts_in: false, tells_all: true };
        let ending = play(&world, &scenario.name, &scenario, &mut Controller::Ours(ours), manner).await;
        ((scenario.name, Body::Embedded), ending)
    });
    together(plays).await
}

/// Plays scenarios with our controller on a real API server.
pub async fn on_cluster(world: &Arc<World>, scenarios: &[Scenario], body: Body, manages: Manages) -> Endings {
    let plays = scenarios.iter().cloned().map(|scenario| {
        let world = Arc::clone(world);
        async move {
            let namespace = format!("{}-{body}", scenario.name);
            let writes = Writes::new(None);
            let ours = Ours::new(world.client.clone(), &namespace, manages, writes);
            let manner = Manner { opts_in: manages == Manages::OptedIn, tells_all: true };
            let ending = play(&world, &namespace, &scenario, &mut Controller::Ours(ours), manner).await;
            ((scenario.name, body), ending)
        }
    });
    together(plays).await
}

/// Plays scenarios with the built-in controller, which runs. Those that stop it need a crew, and then all of them are
/// under way at the same time.
pub async fn on_go(world: &Arc<World>, scenarios: &[Scenario], crew: Option<Arc<Crew>>) -> Endings {
    let seats: Vec<_> = scenarios.iter().map(|_| crew.as_ref().map(Crew::seat)).collect();
    let plays = scenarios.iter().cloned().zip(seats).map(|(scenario, seat)| {
        let world = Arc::clone(world);
        async move {
            let namespace = format!("{}-go", scenario.name);
            let mut controller = Controller::Go(seat);
            let manner = Manner { opts_in: false, tells_all: true };
            let ending = play(&world, &namespace, &scenario, &mut controller, manner).await;
            ((scenario.name, Body::Go), ending)
        }
    });
    together(plays).await
}

async fn together<F>(plays: impl Iterator<Item = F>) -> Endings
where
    F: Future<Output = ((String, Body), Ending)> + Send + 'static,
{
    let mut endings = Endings::new();
    let mut plays = futures::stream::iter(plays.map(tokio::spawn)).buffer_unordered(AT_ONCE);
    while let Some(played) = plays.next().await {
        if let Ok((key, ending)) = played {
            endings.insert(key, ending);
        }
    }
    endings
}

/// What the comparison says.
#[derive(Debug, Default)]
pub struct Report {
    /// The table of scenarios and bodies, and the differences that we want.
    pub table: String,
    /// What is not as it should be.
    pub wrong: Vec<String>,
}

impl Report {
    /// Fails if anything is wrong.
    pub fn check(&self) -> Result<()> {
        if self.wrong.is_empty() {
            return Ok(());
        }
        bail!("{} differences that nobody wants:\n{}", self.wrong.len(), self.wrong.join("\n"))
    }
}

/// Compares each body with the built-in controller.
pub fn report(scenarios: &[Scenario], endings: &Endings, known: &[Known]) -> Report {
    let mut report = Report::default();
    let mut occurred = BTreeSet::new();
    let width = scenarios.iter().map(|scenario| scenario.name.len()).max().unwrap_or_default();
    let line = |name: &str, cells: [String; 4]| {
        let cells: Vec<String> = cells.iter().map(|cell| format!("{cell:<9}")).collect();
        format!("{name:<width$}  {}", cells.join(" ").trim_end())
    };
    let head = Body::EVERY.map(|body| body.to_string());
    _ = writeln!(report.table, "{}", line("scenario", head));
    for scenario in scenarios {
        let go = endings.get(&(scenario.name.clone(), Body::Go));
        let cells = Body::EVERY.map(|body| {
            let ending = endings.get(&(scenario.name.clone(), body));
            let lines = lines(ending, go);
            let (wanted, wrong): (Vec<_>, Vec<_>) = lines.into_iter().partition(|line| {
                let found = known.iter().position(|known| known.explains(body, &scenario.name, line));
                found.map(|number| occurred.insert(number)).is_some()
            });
            let cell = match (ending, wanted.is_empty(), wrong.is_empty()) {
                (None, ..) => "missing",
                (Some(Err(_)), ..) => "FAILED",
                (_, _, false) => "DIFFERS",
                (_, false, true) => "wanted",
                (_, true, true) => "same",
            };
            report.wrong.extend(wrong.into_iter().map(|line| format!("{} on {body}: {line}", scenario.name)));
            cell.to_owned()
        });
        _ = writeln!(report.table, "{}", line(&scenario.name, cells));
    }
    _ = writeln!(report.table, "\nDifferences that we want:");
    for (number, known) in known.iter().enumerate() {
        let place = known.body.map_or_else(|| "ours".to_owned(), |body| body.to_string());
        _ = writeln!(report.table, "- {} on {place}, {}: {}", known.scenario, known.line, known.why);
        if !occurred.contains(&number) {
            report.wrong.push(format!("{} on {place}, {}: did not occur", known.scenario, known.line));
        }
    }
    report
}

impl Known {
    fn explains(&self, body: Body, scenario: &str, line: &str) -> bool {
        self.body.map_or(body != Body::Go, |of| of == body)
            && (self.scenario == "*" || self.scenario == scenario)
            && line.starts_with(self.line)
    }
}

fn lines(ending: Option<&Ending>, go: Option<&Ending>) -> Vec<String> {
    match (ending, go) {
        (None, _) => vec!["it was not played".to_owned()],
        (Some(Err(error)), _) => vec![format!("it failed: {error:#}")],
        (Some(Ok(ending)), Some(Ok(go))) => {
            let lines = ending.differences(go, true);
            if lines.is_empty() {
                return lines;
            }
            lines
                .into_iter()
                .map(|line| format!("{line} ([{}] / [{}])", ending.summary, go.summary))
                .collect()
        }
        // The failure of the built-in controller is told once, in its own column.
        (Some(Ok(_)), _) => Vec::new(),
    }
}

/// Plays and compares; prints the table.
pub async fn compare(scenarios: &[Scenario], known: &[Known]) -> Result<()> {
    let endings = play_all(scenarios).await.context("play the scenarios")?;
    let report = report(scenarios, &endings, known);
    println!("{}", report.table);
    report.check()
}
