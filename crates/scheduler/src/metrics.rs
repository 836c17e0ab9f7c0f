//! Figures for Prometheus, by upstream's names. Labels come from closed sets.

mod plugins;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::fit::Filter;

/// The one profile there is.
const PROFILE: (&str, &str) = ("profile", crate::NAME);
/// upstream: the label of pods that were tried as often or more often.
const TRIES_MAX: usize = 15;
const TRIES: [&str; TRIES_MAX + 1] =
    ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15+"];

type Labels<const N: usize> = [(&'static str, &'static str); N];
type Histograms<const N: usize> = Family<Labels<N>, Histogram>;
type Counters<const N: usize> = Family<Labels<N>, Counter>;
type Gauges<const N: usize> = Family<Labels<N>, Gauge>;

/// All figures of a scheduler. Clones are the same.
#[derive(Clone, Debug)]
pub struct Metrics(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    registry: Mutex<Registry>,
    attempts: Counters<2>,
    attempt_duration: Histograms<2>,
    algorithm_duration: Histogram,
    pod_duration: Histograms<1>,
    pod_attempts: Histogram,
    pending: Gauges<1>,
    incoming: Counters<2>,
    preemption_attempts: Counter,
    preemption_victims: Histogram,
    preemptions: Counters<1>,
    preemption_duration: Histograms<1>,
    unschedulable: Gauges<2>,
    cache: Gauges<1>,
    events: Histograms<1>,
    scheduled_old: Counter,
    plugins: plugins::Figures,
}

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// With a node.
    Scheduled,
    /// Without one.
    Unschedulable,
    /// The API server failed.
    Error,
}

impl Attempt {
    fn label(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Unschedulable => "unschedulable",
            Self::Error => "error",
        }
    }
}

impl Default for Metrics {
    fn default() -> Self {
        let seconds = || Histogram::new(exponential_buckets(0.001, 2.0, 15));
        let long = || Histogram::new(exponential_buckets(0.01, 2.0, 20));
        let mut registry = Registry::default();
        let ours = registry.sub_registry_with_prefix("scheduler");
        let plugins = plugins::Figures::registered(ours);
        let inner = Inner {
            registry: Mutex::default(),
            attempts: Counters::default(),
            attempt_duration: Histograms::new_with_constructor(seconds),
            algorithm_duration: seconds(),
            pod_duration: Histograms::new_with_constructor(long),
            pod_attempts: Histogram::new(exponential_buckets(1.0, 2.0, 5)),
            pending: Gauges::default(),
            incoming: Counters::default(),
            preemption_attempts: Counter::default(),
            preemption_victims: Histogram::new(exponential_buckets(1.0, 2.0, 7)),
            preemptions: Counters::default(),
            preemption_duration: Histograms::new_with_constructor(long),
            unschedulable: Gauges::default(),
            cache: Gauges::default(),
            events: Histograms::new_with_constructor(|| Histogram::new(exponential_buckets(0.0001, 2.0, 12))),
            scheduled_old: Counter::default(),
            plugins,
        };
        inner.register(ours);
        *inner.registry.lock() = registry;
        Self(Arc::new(inner))
    }
}

impl Inner {
    fn register(&self, registry: &mut Registry) {
        registry.register(
            "schedule_attempts",
            "Number of attempts to schedule pods, by the result. 'unschedulable' means a pod could not be \
             scheduled, while 'error' means an internal scheduler problem",
            self.attempts.clone(),
        );
        registry.register(
            "scheduling_attempt_duration_seconds",
            "Scheduling attempt latency in seconds (scheduling algorithm + binding)",
            self.attempt_duration.clone(),
        );
        registry.register(
            "scheduling_algorithm_duration_seconds",
            "Scheduling algorithm latency in seconds",
            self.algorithm_duration.clone(),
        );
        registry.register(
            "pod_scheduling_sli_duration_seconds",
            "E2e latency for a pod being scheduled, from the time the pod enters the scheduling queue",
            self.pod_duration.clone(),
        );
        registry.register(
            "pod_scheduling_attempts",
            "Number of attempts to successfully schedule a pod",
            self.pod_attempts.clone(),
        );
        registry.register("pending_pods", "Number of pending pods, by the queue type", self.pending.clone());
        registry.register(
            "queue_incoming_pods",
            "Number of pods added to scheduling queues by event and queue type",
            self.incoming.clone(),
        );
        registry.register(
            "preemption_attempts",
            "Total preemption attempts in the cluster till now",
            self.preemption_attempts.clone(),
        );
        registry.register(
            "preemption_victims",
            "Number of selected preemption victims",
            self.preemption_victims.clone(),
        );
        registry.register(
            "preemption_goroutines_execution",
            "Number of preemptions carried out, by the result",
            self.preemptions.clone(),
        );
        registry.register(
            "preemption_goroutines_duration_seconds",
            "Duration in seconds for running preemptions",
            self.preemption_duration.clone(),
        );
        registry.register(
            "unschedulable_pods",
            "The number of unschedulable pods broken down by plugin name",
            self.unschedulable.clone(),
        );
        registry.register(
            "cache_size",
            "Number of nodes, pods, and assumed (bound) pods in the scheduler cache",
            self.cache.clone(),
        );
        registry.register(
            "event_handling_duration_seconds",
            "Event handling latency in seconds",
            self.events.clone(),
        );
        registry.register(
            "pod_scheduled_after_flush",
            "Number of pods that were successfully scheduled after being flushed from unschedulablePods due to \
             timeout",
            self.scheduled_old.clone(),
        );
    }
}

impl Metrics {
    /// All figures as Prometheus reads them.
    pub fn text(&self) -> String {
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &self.0.registry.lock())
            .expect("a String takes everything");
        text
    }

    /// A node was looked for.
    pub(crate) fn looked(&self, took: Duration) {
        self.0.algorithm_duration.observe(took.as_secs_f64());
    }

    /// A try ended, after so long.
    pub(crate) fn tried(&self, attempt: Attempt, took: Duration) {
        let labels = [("result", attempt.label()), PROFILE];
        self.0.attempts.get_or_create(&labels).inc();
        self.0.attempt_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }

    /// A pod got its node, after so many tries and so long.
    pub(crate) fn scheduled(&self, tries: u32, waited_s: f64) {
        let label = TRIES[usize::try_from(tries).map_or(TRIES_MAX, |tries| tries.min(TRIES_MAX))];
        self.0.pod_attempts.observe(f64::from(tries));
        self.0.pod_duration.get_or_create(&[("attempts", label)]).observe(waited_s);
    }

    /// So many pods came into a queue.
    pub(crate) fn incoming(&self, queue: &'static str, event: &'static str, count: usize) {
        if count > 0 {
            let labels = [("queue", queue), ("event", event)];
            self.0.incoming.get_or_create(&labels).inc_by(count as u64);
        }
    }

    /// So many pods are in a queue.
    pub(crate) fn pending(&self, queue: &'static str, count: usize) {
        self.0.pending.get_or_create(&[("queue", queue)]).set(count as i64);
    }

    /// So much is known.
    pub(crate) fn cached(&self, what: &'static str, count: usize) {
        self.0.cache.get_or_create(&[("type", what)]).set(count as i64);
    }

    /// A filter keeps so many pods waiting.
    pub(crate) fn unschedulable(&self, filter: Filter, count: usize) {
        let labels = [("plugin", filter.name()), PROFILE];
        self.0.unschedulable.get_or_create(&labels).set(count as i64);
    }

    /// Something that was seen was taken in.
    pub(crate) fn handled(&self, event: &'static str, took: Duration) {
        self.0.events.get_or_create(&[("event", event)]).observe(took.as_secs_f64());
    }

    /// A pod got its node after it had been resting for so long that it was tried without a reason.
    pub(crate) fn scheduled_old(&self) {
        self.0.scheduled_old.inc();
    }

    /// Room was looked for.
    pub(crate) fn looked_for_room(&self) {
        self.0.preemption_attempts.inc();
    }

    /// So many pods have to leave.
    pub(crate) fn preempts(&self, victims: usize) {
        self.0.preemption_victims.observe(victims as f64);
    }

    /// They were told to, or that failed.
    pub(crate) fn preempted(&self, is_done: bool, took: Duration) {
        let labels = [("result", if is_done { "success" } else { "error" })];
        self.0.preemptions.get_or_create(&labels).inc();
        self.0.preemption_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_upstreams_names_and_labels() {
        let metrics = Metrics::default();
        metrics.tried(Attempt::Scheduled, Duration::from_millis(3));
        metrics.tried(Attempt::Unschedulable, Duration::from_millis(3));
        metrics.tried(Attempt::Error, Duration::from_millis(3));
        metrics.looked(Duration::from_millis(1));
        metrics.scheduled(2, 0.5);
        metrics.scheduled(40, 0.5);
        metrics.incoming("active", "UnschedulablePodAdd", 3);
        metrics.incoming("active", "Nothing", 0);
        metrics.pending("gated", 7);
        metrics.cached("nodes", 2);
        metrics.unschedulable(Filter::NodeResourcesFit, 4);
        metrics.handled("NodeAdd", Duration::from_micros(3));
        metrics.scheduled_old();
        metrics.looked_for_room();
        metrics.preempts(2);
        metrics.preempted(true, Duration::from_millis(3));
        let text = metrics.text();
        for line in [
            "scheduler_schedule_attempts_total{result=\"scheduled\",profile=\"default-scheduler\"} 1",
            "scheduler_schedule_attempts_total{result=\"unschedulable\",profile=\"default-scheduler\"} 1",
            "scheduler_schedule_attempts_total{result=\"error\",profile=\"default-scheduler\"} 1",
            "scheduler_scheduling_attempt_duration_seconds_count{result=\"error\",profile=\"default-scheduler\"} 1",
            "scheduler_scheduling_algorithm_duration_seconds_count 1",
            "scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"2\"} 1",
            "scheduler_pod_scheduling_sli_duration_seconds_count{attempts=\"15+\"} 1",
            "scheduler_pod_scheduling_attempts_count 2",
            "scheduler_queue_incoming_pods_total{queue=\"active\",event=\"UnschedulablePodAdd\"} 3",
            "scheduler_pending_pods{queue=\"gated\"} 7",
            "scheduler_cache_size{type=\"nodes\"} 2",
            "scheduler_unschedulable_pods{plugin=\"NodeResourcesFit\",profile=\"default-scheduler\"} 4",
            "scheduler_event_handling_duration_seconds_bucket{le=\"0.0001\",event=\"NodeAdd\"} 1",
            "scheduler_pod_scheduled_after_flush_total 1",
            "scheduler_preemption_attempts_total 1",
            "scheduler_preemption_victims_count 1",
            "scheduler_preemption_goroutines_execution_total{result=\"success\"} 1",
            "scheduler_preemption_goroutines_duration_seconds_count{result=\"success\"} 1",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
        }
        assert!(!text.contains("Nothing"));
    }
}
