//! The figures of the controllers that end pods and keep house, under upstream's names.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use jiff::SignedDuration;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::{Histograms, Metrics, code_label};

type ByZone<M> = Family<[(&'static str, String); 1], M>;
/// By the pod's namespace and why it was collected.
type Collected = Family<[(&'static str, String); 2], Counter>;

#[derive(Debug)]
pub(super) struct Figures {
    taint_deletions: Counter,
    taint_deletion_duration: Histogram,
    collected: Collected,
    collect_errors: Collected,
    zone_health: ByZone<Gauge<f64, AtomicU64>>,
    zone_size: ByZone<Gauge>,
    zone_unhealthy: ByZone<Gauge>,
    zone_evictions: ByZone<Counter>,
    node_health_duration: Histogram,
    nodes_health_duration: Histogram,
    ttl_duration: Histogram,
    cron_skew: Histogram,
    collector_sync_errors: Counter,
    root_ca_syncs: Family<[(&'static str, &'static str); 1], Counter>,
    root_ca_duration: Histograms<1>,
}

impl Figures {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let taint_buckets = [0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 10.0, 30.0, 60.0, 120.0, 180.0, 240.0];
        let figures = Self {
            taint_deletions: Counter::default(),
            taint_deletion_duration: Histogram::new(taint_buckets),
            collected: Collected::default(),
            collect_errors: Collected::default(),
            zone_health: ByZone::default(),
            zone_size: ByZone::default(),
            zone_unhealthy: ByZone::default(),
            zone_evictions: ByZone::default(),
            node_health_duration: Histogram::new(exponential_buckets(0.001, 4.0, 8)),
            nodes_health_duration: Histogram::new(exponential_buckets(0.01, 4.0, 8)),
            ttl_duration: Histogram::new(exponential_buckets(0.1, 2.0, 14)),
            cron_skew: Histogram::new(exponential_buckets(1.0, 2.0, 10)),
            collector_sync_errors: Counter::default(),
            root_ca_syncs: Family::default(),
            root_ca_duration: Histograms::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.001, 2.0, 15))
            }),
        };
        figures.register_pods(registry);
        figures.register_nodes(registry);
        figures.register_objects(registry);
        figures
    }

    fn register_pods(&self, registry: &mut Registry) {
        registry.register(
            "taint_eviction_controller_pod_deletions",
            "Total number of Pods deleted by TaintEvictionController since its start",
            self.taint_deletions.clone(),
        );
        registry.register(
            "taint_eviction_controller_pod_deletion_duration_seconds",
            "Latency, in seconds, between the time when a taint effect has been activated for the Pod and its deletion",
            self.taint_deletion_duration.clone(),
        );
        registry.register(
            "pod_gc_collector_force_delete_pods",
            "Number of pods that are being forcefully deleted since the Pod GC Controller started",
            self.collected.clone(),
        );
        registry.register(
            "pod_gc_collector_force_delete_pod_errors",
            "Number of errors encountered when forcefully deleting the pods since the Pod GC Controller started",
            self.collect_errors.clone(),
        );
    }

    fn register_nodes(&self, registry: &mut Registry) {
        registry.register(
            "node_collector_zone_health",
            "Gauge measuring percentage of healthy nodes per zone",
            self.zone_health.clone(),
        );
        registry.register(
            "node_collector_zone_size",
            "Gauge measuring number of registered Nodes per zones",
            self.zone_size.clone(),
        );
        registry.register(
            "node_collector_unhealthy_nodes_in_zone",
            "Gauge measuring number of not Ready Nodes per zones",
            self.zone_unhealthy.clone(),
        );
        registry.register(
            "node_collector_evictions",
            "Number of Node evictions that happened since current instance of NodeController started",
            self.zone_evictions.clone(),
        );
        registry.register(
            "node_collector_update_node_health_duration_seconds",
            "Duration in seconds for NodeController to update the health of a single node",
            self.node_health_duration.clone(),
        );
        registry.register(
            "node_collector_update_all_nodes_health_duration_seconds",
            "Duration in seconds for NodeController to update the health of all nodes",
            self.nodes_health_duration.clone(),
        );
    }

    fn register_objects(&self, registry: &mut Registry) {
        registry.register(
            "ttl_after_finished_controller_job_deletion_duration_seconds",
            "The time it took to delete the job since it became eligible for deletion",
            self.ttl_duration.clone(),
        );
        registry.register(
            "cronjob_controller_job_creation_skew_duration_seconds",
            "Time between when a cronjob is scheduled to be run, and when the corresponding job is created",
            self.cron_skew.clone(),
        );
        registry.register(
            "garbagecollector_controller_resources_sync_error",
            "Number of garbage collector resources sync errors",
            self.collector_sync_errors.clone(),
        );
        registry.register(
            "root_ca_cert_publisher_sync",
            "Number of namespace syncs happened in root ca cert publisher",
            self.root_ca_syncs.clone(),
        );
        registry.register(
            "root_ca_cert_publisher_sync_duration_seconds",
            "Number of namespace syncs happened in root ca cert publisher",
            self.root_ca_duration.clone(),
        );
    }
}

impl Metrics {
    /// A pod was deleted because of a taint, so long after that was due.
    pub(crate) fn taint_evicted(&self, late: SignedDuration) {
        self.0.house.taint_deletions.inc();
        self.0.house.taint_deletion_duration.observe(late.as_secs_f64());
    }

    /// PodGC deletes a pod, or could not.
    pub(crate) fn pod_collected(&self, namespace: &str, reason: &str, is_deleted: bool) {
        let labels = [("namespace", namespace.to_owned()), ("reason", reason.to_owned())];
        self.0.house.collected.get_or_create(&labels).inc();
        if !is_deleted {
            self.0.house.collect_errors.get_or_create(&labels).inc();
        }
    }

    /// So many nodes are in a zone, and so many of them are not ready.
    pub(crate) fn zone_seen(&self, zone: &str, size: usize, unhealthy: usize) {
        let labels = [("zone", zone.to_owned())];
        let health = if size == 0 { 100.0 } else { as_f64(100 * (size - unhealthy)) / as_f64(size) };
        self.0.house.zone_health.get_or_create(&labels).set(health);
        self.0.house.zone_size.get_or_create(&labels).set(i64::try_from(size).unwrap_or(i64::MAX));
        self.0.house.zone_unhealthy.get_or_create(&labels).set(i64::try_from(unhealthy).unwrap_or(i64::MAX));
    }

    /// There is such a zone, and so many of its nodes were tainted so that their pods leave.
    pub(crate) fn zone_evicted(&self, zone: &str, nodes: u64) {
        self.0.house.zone_evictions.get_or_create(&[("zone", zone.to_owned())]).inc_by(nodes);
    }

    /// A look at one node took so long.
    pub(crate) fn node_looked_at(&self, took: Duration) {
        self.0.house.node_health_duration.observe(took.as_secs_f64());
    }

    /// A look at all nodes took so long.
    pub(crate) fn nodes_looked_at(&self, took: Duration) {
        self.0.house.nodes_health_duration.observe(took.as_secs_f64());
    }

    /// A finished Job was deleted, so long after its time was up.
    pub(crate) fn job_expired(&self, late: SignedDuration) {
        self.0.house.ttl_duration.observe(late.as_secs_f64());
    }

    /// A Job was created, so long after its CronJob's time.
    pub(crate) fn job_scheduled(&self, late: SignedDuration) {
        self.0.house.cron_skew.observe(late.as_secs_f64());
    }

    /// What there is to collect could not be found out.
    pub fn collector_sync_failed(&self) {
        self.0.house.collector_sync_errors.inc();
    }

    /// A namespace has the certificate that it should have, by the code of the last answer.
    pub(crate) fn root_ca_synced(&self, code: u16, took: Duration) {
        let labels = [("code", code_label(Some(code)))];
        self.0.house.root_ca_syncs.get_or_create(&labels).inc();
        self.0.house.root_ca_duration.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

fn as_f64(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_figures_have_the_names_that_upstream_gives_them() {
        let metrics = Metrics::default();
        metrics.taint_evicted(SignedDuration::from_secs(1));
        metrics.pod_collected("ns", "orphaned", true);
        metrics.pod_collected("ns", "orphaned", false);
        metrics.zone_seen("z", 4, 1);
        metrics.zone_seen("empty", 0, 0);
        metrics.zone_evicted("z", 2);
        metrics.node_looked_at(Duration::from_millis(2));
        metrics.nodes_looked_at(Duration::from_millis(20));
        metrics.job_expired(SignedDuration::from_secs(1));
        metrics.job_scheduled(SignedDuration::from_secs(1));
        metrics.collector_sync_failed();
        metrics.root_ca_synced(200, Duration::from_millis(1));
        let text = metrics.text();
        for line in [
            "taint_eviction_controller_pod_deletions_total 1\n",
            "taint_eviction_controller_pod_deletion_duration_seconds_count 1\n",
            "pod_gc_collector_force_delete_pods_total{namespace=\"ns\",reason=\"orphaned\"} 2\n",
            "pod_gc_collector_force_delete_pod_errors_total{namespace=\"ns\",reason=\"orphaned\"} 1\n",
            "node_collector_zone_health{zone=\"z\"} 75.0\n",
            "node_collector_zone_health{zone=\"empty\"} 100.0\n",
            "node_collector_zone_size{zone=\"z\"} 4\n",
            "node_collector_unhealthy_nodes_in_zone{zone=\"z\"} 1\n",
            "node_collector_evictions_total{zone=\"z\"} 2\n",
            "node_collector_update_node_health_duration_seconds_count 1\n",
            "node_collector_update_all_nodes_health_duration_seconds_count 1\n",
            "ttl_after_finished_controller_job_deletion_duration_seconds_count 1\n",
            "cronjob_controller_job_creation_skew_duration_seconds_count 1\n",
            "garbagecollector_controller_resources_sync_error_total 1\n",
            "root_ca_cert_publisher_sync_total{code=\"200\"} 1\n",
            "root_ca_cert_publisher_sync_duration_seconds_count{code=\"200\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
    }
}
