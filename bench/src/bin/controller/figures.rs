//! What is measured, and the bars.

use std::time::Duration;

use crate::load::Scenario;

/// One controller in one scenario.
#[derive(Clone, Debug)]
pub struct Figures {
    /// From the creation of the Job to its end: the whole load, or the median of several.
    pub time: Duration,
    /// Writes to pods and statuses of Jobs for each pod.
    pub writes_a_pod: f64,
    /// Events for each pod. A controller may drop some of them when it has much to do.
    pub events_a_pod: f64,
    /// Of the controller.
    pub cpu: Duration,
    /// The most memory that the controller had, in bytes.
    pub memory: u64,
    /// From a pod's end until the status of its Job counts it.
    pub lag: Lag,
}

/// How late pods were counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Lag {
    pub p50: Duration,
    pub p99: Duration,
}

impl Lag {
    pub fn of(mut lags: Vec<Duration>) -> Self {
        lags.sort_unstable();
        let at = |share: f64| {
            let last = lags.len().saturating_sub(1);
            lags.get((last as f64 * share).round() as usize).copied().unwrap_or_default()
        };
        Self { p50: at(0.5), p99: at(0.99) }
    }
}

impl Figures {
    pub const HEADER: &'static str = "scenario        controller                  time  writes/pod  events/pod     CPU      memory   lag p50   lag p99";

    pub fn row(&self, scenario: &str, controller: &str) -> String {
        format!(
            "{scenario:<15} {controller:<24} {:>6.2} s  {:>10.3}  {:>10.3} {:>6.2} s  {:>6.1} MB  {:>5.0} ms  {:>5.0} ms",
            self.time.as_secs_f64(),
            self.writes_a_pod,
            self.events_a_pod,
            self.cpu.as_secs_f64(),
            self.memory as f64 / 1e6,
            self.lag.p50.as_secs_f64() * 1e3,
            self.lag.p99.as_secs_f64() * 1e3,
        )
    }
}

/// Those of the median time, of at least one.
pub fn median(mut rounds: Vec<Figures>) -> Figures {
    rounds.sort_unstable_by_key(|figures| figures.time);
    rounds.swap_remove(rounds.len() / 2)
}

/// How late a pod may be counted when the API server has time.
const LAG_MAX: Duration = Duration::from_millis(100);

/// Bars that we do not reach.
pub fn missed(scenario: Scenario, theirs: &Figures, ours: &Figures) -> Vec<String> {
    let mut missed = Vec::new();
    let mut bar = |holds: bool, text: String| missed.extend((!holds).then_some(text));
    let faster = theirs.time.as_secs_f64() / ours.time.as_secs_f64().max(1e-9);
    let cpu = ours.cpu.as_secs_f64() / theirs.cpu.as_secs_f64().max(1e-9);
    let memory = ours.memory as f64 / theirs.memory.max(1) as f64;
    let writes = format!("{:.3} writes a pod, theirs {:.3}", ours.writes_a_pod, theirs.writes_a_pod);
    let lag = format!("lag p99 {:?}, {LAG_MAX:?} asked for", ours.lag.p99);
    match scenario {
        Scenario::Succeed { .. } | Scenario::FailPerIndex { .. } | Scenario::Many { .. } => {
            bar(ours.writes_a_pod <= theirs.writes_a_pod, writes);
            bar(faster >= 1.0, format!("{faster:.2} times as fast, 1 asked for"));
            bar(cpu <= 1.0 / 3.0, format!("{cpu:.2} of its CPU, 0.33 asked for"));
            bar(memory <= 1.0 / 3.0, format!("{memory:.2} of its memory, 0.33 asked for"));
        }
        Scenario::One | Scenario::Hundred => {
            let least = if scenario == Scenario::One { 10.0 } else { 2.0 };
            bar(faster >= least, format!("{faster:.2} times as fast, {least} asked for"));
            bar(ours.writes_a_pod <= theirs.writes_a_pod, writes);
            // A hundred pods that end at once keep the API server busy: how late they are counted is up to it.
            let has_time = scenario == Scenario::One;
            bar(!has_time || ours.lag.p99 <= LAG_MAX, lag);
        }
        Scenario::Steady => bar(ours.lag.p99 <= LAG_MAX, lag),
        Scenario::Beside { .. } => {
            bar(ours.lag.p99 <= Duration::from_secs(2), format!("lag p99 {:?}, 2 s asked for", ours.lag.p99));
        }
    }
    missed
}
