//! The table, and the bars.

use std::fmt;
use std::time::Duration;

use crate::measure::{CLIENTS, Measured, PACE, PODS, WATCHERS, quantile};

const CREATES_TIMES_MIN: f64 = 5.0;
const LIST_TIMES_MIN: f64 = 3.0;
const START_MAX: Duration = Duration::from_millis(150);
const IDLE_BYTES_MAX: u64 = 40 << 20;

/// Both servers.
pub struct Report {
    pub ours: Measured,
    /// Creates a second while the controllers of the same process look on.
    pub watched: f64,
    pub theirs: Measured,
}

impl Report {
    fn creates_times(&self) -> f64 {
        self.ours.creates / self.theirs.creates
    }

    fn list_times(&self) -> f64 {
        self.theirs.list.as_secs_f64() / self.ours.list.as_secs_f64()
    }

    /// The bars that were not reached.
    pub fn missed(&self) -> Vec<String> {
        let (first, again) = (median(&self.ours.starts.first), median(&self.ours.starts.again));
        let idle = self.ours.idle_bytes;
        let bars = [
            (
                self.creates_times() >= CREATES_TIMES_MIN,
                format!("{:.1} times the creates", self.creates_times()),
            ),
            (self.list_times() >= LIST_TIMES_MIN, format!("{:.1} times as fast a list", self.list_times())),
            (first <= START_MAX, format!("first start in {first:.0?}")),
            (again <= START_MAX, format!("start in {again:.0?}")),
            (idle <= IDLE_BYTES_MAX, format!("{:.1} MB idle", megabytes(idle))),
        ];
        bars.into_iter().filter(|(is_reached, _)| !is_reached).map(|(_, what)| what).collect()
    }
}

fn median(times: &[Duration]) -> Duration {
    quantile(&mut times.to_vec(), 0.5)
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ours, watched, theirs } = self;
        writeln!(f, "| | windlass server | kube-apiserver + etcd | | bar |\n|---|---|---|---|---|")?;
        writeln!(
            f,
            "| durable creates/s, {CLIENTS} clients | {:.0} | {:.0} | {:.1}× | ≥ {CREATES_TIMES_MIN}× |",
            ours.creates,
            theirs.creates,
            self.creates_times()
        )?;
        writeln!(
            f,
            "| the same, its controllers and scheduler looking on | {watched:.0} | | {:.1}× | |",
            watched / theirs.creates
        )?;
        writeln!(
            f,
            "| list of {PODS} pods | {:.1?} ({:.1} MB) | {:.1?} ({:.1} MB) | {:.1}× | ≥ {LIST_TIMES_MIN}× |",
            ours.list,
            megabytes(ours.list_bytes),
            theirs.list,
            megabytes(theirs.list_bytes),
            self.list_times()
        )?;
        writeln!(
            f,
            "| events/s to {WATCHERS} watchers, {CLIENTS} clients create | {:.0} | {:.0} | {:.1}× | |",
            ours.events,
            theirs.events,
            ours.events / theirs.events
        )?;
        let pace = 1.0 / PACE.as_secs_f64();
        for (name, ours, theirs) in
            [("p50", ours.lag_p50, theirs.lag_p50), ("p99", ours.lag_p99, theirs.lag_p99)]
        {
            let times = theirs.as_secs_f64() / ours.as_secs_f64();
            writeln!(
                f,
                "| create sent → event seen, {pace:.0}/s, {name} | {ours:.2?} | {theirs:.2?} | {times:.1}× | |"
            )?;
        }
        writeln!(
            f,
            "| idle memory | {:.1} MB | {:.1} MB | | ≤ {} MB |",
            megabytes(ours.idle_bytes),
            megabytes(theirs.idle_bytes),
            IDLE_BYTES_MAX >> 20
        )?;
        let (first, again) = (median(&ours.starts.first), median(&ours.starts.again));
        writeln!(
            f,
            "| start → ready, first | {first:.0?} | {:.1?} | | ≤ {START_MAX:?} |",
            median(&theirs.starts.first)
        )?;
        write!(f, "| start → ready, again | {again:.0?} | | | ≤ {START_MAX:?} |")
    }
}
