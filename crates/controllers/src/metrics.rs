//! Figures for Prometheus: those of Kubernetes' own controllers under their names, and ours under `windlass_`.
//!
//! Labels come from closed sets, but for names of other controllers, of which only so many are told apart: nobody can
//! make the number of series grow by what they put into a Job.

mod house;
mod job;
mod queues;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use crate::calls::Call;
pub(crate) use job::{Ledger, SyncAction, SyncLabels};
pub(crate) use queues::{Busy, QueueFigures};

/// Names and values of labels.
type Labels<const N: usize> = [(&'static str, &'static str); N];
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Histograms<const N: usize> = Family<Labels<N>, Histogram>;

/// All figures of a process. Clones are the same.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Mutex<Registry>,
    job: job::Figures,
    house: house::Figures,
    queues: queues::Figures,
    requests: Counters<3>,
    request_duration: Histograms<2>,
    write_slots: Gauge,
    under_way: Gauge,
    is_leader: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::default();
        let job = job::Figures::registered(&mut registry);
        let house = house::Figures::registered(&mut registry);
        let queues = queues::Figures::registered(&mut registry);
        let inner = Inner {
            job,
            house,
            queues,
            requests: Counters::default(),
            request_duration: Histograms::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 16))
            }),
            write_slots: Gauge::default(),
            under_way: Gauge::default(),
            is_leader: Gauge::default(),
            registry: Mutex::default(),
        };
        registry.register(
            "windlass_api_writes",
            "Requests that write, and the reads that go with them, by verb, resource and code (lost: no answer)",
            inner.requests.clone(),
        );
        registry.register(
            "windlass_api_write_duration_seconds",
            "How long the API server took to answer them",
            inner.request_duration.clone(),
        );
        registry.register(
            "windlass_api_write_slots",
            "Writes that may be under way at the same time; fewer after the API server answered 429",
            inner.write_slots.clone(),
        );
        registry.register(
            "windlass_api_writes_under_way",
            "Writes that the API server has not answered yet",
            inner.under_way.clone(),
        );
        registry.register("windlass_leader", "Whether this replica is the leader", inner.is_leader.clone());
        *inner.registry.lock() = registry;
        Self(Arc::new(inner))
    }
}

impl Metrics {
    /// The content type of [`text`](Self::text).
    pub const CONTENT_TYPE: &'static str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

    /// All figures as Prometheus reads them.
    pub fn text(&self) -> String {
        self.0.queues.update(Instant::now());
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0.registry.lock())
            .expect("a String takes everything");
        text
    }

    /// This replica leads now, or does not.
    pub fn leads(&self, is_leader: bool) {
        self.0.is_leader.set(i64::from(is_leader));
    }

    /// A request was answered with `code`, or not at all.
    pub(crate) fn called(&self, call: Call, code: Option<u16>, took: Duration) {
        let (verb, resource) = (("verb", call.verb), ("resource", call.resource));
        self.0.requests.get_or_create(&[verb, resource, ("code", code_label(code))]).inc();
        self.0.request_duration.get_or_create(&[verb, resource]).observe(took.as_secs_f64());
    }

    /// A write is under way until what is returned is dropped.
    pub(crate) fn write_begins(&self) -> UnderWay {
        self.0.under_way.inc();
        UnderWay(self.0.under_way.clone())
    }

    /// Writes that the API server has not answered yet.
    pub fn writes_under_way(&self) -> usize {
        usize::try_from(self.0.under_way.get()).unwrap_or(0)
    }

    /// So many writes may be under way at the same time.
    pub(crate) fn write_slots(&self, slots: usize) {
        self.0.write_slots.set(i64::try_from(slots).unwrap_or(i64::MAX));
    }
}

/// A write that is not answered yet.
pub(crate) struct UnderWay(Gauge);

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.0.dec();
    }
}

/// Every code that a Kubernetes API server gives.
fn code_label(code: Option<u16>) -> &'static str {
    match code {
        None => "lost",
        Some(200) => "200",
        Some(201) => "201",
        Some(202) => "202",
        Some(400) => "400",
        Some(401) => "401",
        Some(403) => "403",
        Some(404) => "404",
        Some(405) => "405",
        Some(409) => "409",
        Some(410) => "410",
        Some(413) => "413",
        Some(422) => "422",
        Some(429) => "429",
        Some(500) => "500",
        Some(503) => "503",
        Some(504) => "504",
        Some(_) => "other",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_told_apart_by_verb_resource_and_code() {
        let metrics = Metrics::default();
        let call = Call { verb: "create", resource: "pods" };
        for code in [Some(201), Some(201), Some(429), None, Some(299)] {
            metrics.called(call, code, Duration::from_millis(3));
        }
        let text = metrics.text();
        for (code, count) in [("201", 2), ("429", 1), ("lost", 1), ("other", 1)] {
            let line = format!(
                "windlass_api_writes_total{{verb=\"create\",resource=\"pods\",code=\"{code}\"}} {count}\n"
            );
            assert!(text.contains(&line), "{line} in {text}");
        }
        assert!(
            text.contains("windlass_api_write_duration_seconds_count{verb=\"create\",resource=\"pods\"} 5\n")
        );
    }
}
