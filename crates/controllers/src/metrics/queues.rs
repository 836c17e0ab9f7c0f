//! The figures of work queues, under upstream's names.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::sync::atomic::AtomicU64;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::Instant;

use super::{Counters, Histograms, Labels, Metrics};

type Gauges<G> = Family<Labels<1>, G>;
type Seconds = Gauge<f64, AtomicU64>;

/// Says since when the keys that are worked on now are.
pub(crate) trait Busy: Send + Sync {
    /// One time a key.
    fn since(&self) -> Vec<Instant>;
}

#[derive(Debug)]
pub(super) struct Figures {
    depth: Gauges<Gauge>,
    adds: Counters<1>,
    retries: Counters<1>,
    waited: Histograms<1>,
    worked: Histograms<1>,
    unfinished: Gauges<Seconds>,
    longest: Gauges<Seconds>,
    /// The queues by name. Of two with one name, the younger.
    queues: Mutex<BTreeMap<&'static str, Weak<dyn Busy>>>,
}

impl Figures {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        // upstream: ten buckets from 10 ns on.
        let durations =
            || Histograms::new_with_constructor(|| Histogram::new(exponential_buckets(10e-9, 10.0, 10)));
        let figures = Self {
            depth: Gauges::default(),
            adds: Counters::default(),
            retries: Counters::default(),
            waited: durations(),
            worked: durations(),
            unfinished: Gauges::default(),
            longest: Gauges::default(),
            queues: Mutex::default(),
        };
        figures.register(registry.sub_registry_with_prefix("workqueue"));
        figures
    }

    fn register(&self, registry: &mut Registry) {
        registry.register("depth", "Current depth of workqueue", self.depth.clone());
        registry.register("adds", "Total number of adds handled by workqueue", self.adds.clone());
        registry.register("retries", "Total number of retries handled by workqueue", self.retries.clone());
        registry.register(
            "queue_duration_seconds",
            "How long in seconds an item stays in workqueue before being requested",
            self.waited.clone(),
        );
        registry.register(
            "work_duration_seconds",
            "How long in seconds processing an item from workqueue takes",
            self.worked.clone(),
        );
        registry.register(
            "unfinished_work_seconds",
            "How many seconds of work is in progress and not in work_duration yet",
            self.unfinished.clone(),
        );
        registry.register(
            "longest_running_processor_seconds",
            "How many seconds has the longest running processor for workqueue been running",
            self.longest.clone(),
        );
    }

    /// What is under way changes with the clock, not with events: it is added up when somebody asks.
    pub(super) fn update(&self, now: Instant) {
        for (name, queue) in self.queues.lock().iter() {
            let since = queue.upgrade().map(|queue| queue.since()).unwrap_or_default();
            let seconds = since.iter().map(|since| now.duration_since(*since).as_secs_f64());
            let labels = [("name", *name)];
            self.unfinished.get_or_create(&labels).set(seconds.clone().fold(0.0, |all, one| all + one));
            self.longest.get_or_create(&labels).set(seconds.fold(0.0, f64::max));
        }
    }
}

/// The figures of one queue.
#[derive(Debug)]
pub(crate) struct QueueFigures {
    depth: Gauge,
    adds: Counter,
    retries: Counter,
    waited: Histogram,
    worked: Histogram,
}

impl QueueFigures {
    /// A key came in; so many wait now.
    pub(crate) fn added(&self, depth: usize) {
        self.adds.inc();
        self.is_deep(depth);
    }

    /// A key that came in at that time was taken; so many wait now.
    pub(crate) fn taken(&self, added: Instant, now: Instant, depth: usize) {
        self.waited.observe(now.duration_since(added).as_secs_f64());
        self.is_deep(depth);
    }

    /// A key that was taken at that time is done.
    pub(crate) fn done(&self, taken: Instant) {
        self.worked.observe(taken.elapsed().as_secs_f64());
    }

    /// A key is to come in later.
    pub(crate) fn put_off(&self) {
        self.retries.inc();
    }

    fn is_deep(&self, depth: usize) {
        self.depth.set(i64::try_from(depth).unwrap_or(i64::MAX));
    }
}

impl Metrics {
    /// The figures of a queue, by upstream's name of it.
    pub(crate) fn queue(&self, name: &'static str, queue: Weak<dyn Busy>) -> QueueFigures {
        let figures = &self.0.queues;
        figures.queues.lock().insert(name, queue);
        let labels = [("name", name)];
        QueueFigures {
            depth: figures.depth.get_or_create_owned(&labels),
            adds: figures.adds.get_or_create_owned(&labels),
            retries: figures.retries.get_or_create_owned(&labels),
            waited: figures.waited.get_or_create_owned(&labels),
            worked: figures.worked.get_or_create_owned(&labels),
        }
    }
}
