//! What plugins and extension points cost. Each plugin is timed in one try of ten, as upstream does: that would cost more
//! than most of them do.

use std::time::{Duration, Instant};

use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::{Counters, Histograms, Metrics, PROFILE};
use crate::fit::Filter;
use crate::meter::{Code, Meter, Plugin, Point};

/// upstream: pluginMetricsSamplePercent.
const TRIES_A_SAMPLE: usize = 10;
/// Where evaluations are counted.
const COUNTED: [Point; 3] = [Point::PreFilter, Point::Filter, Point::Score];
const PLUGINS: usize = Filter::ALL.len() + 1;

#[derive(Debug)]
pub(super) struct Figures {
    points: Histograms<3>,
    plugins: Histograms<3>,
    evaluations: Counters<3>,
}

impl Figures {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let figures = Self {
            points: Histograms::new_with_constructor(|| Histogram::new(exponential_buckets(0.0001, 2.0, 12))),
            plugins: Histograms::new_with_constructor(|| {
                Histogram::new(exponential_buckets(0.00001, 1.5, 20))
            }),
            evaluations: Counters::default(),
        };
        registry.register(
            "framework_extension_point_duration_seconds",
            "Latency for running all plugins of a specific extension point",
            figures.points.clone(),
        );
        registry.register(
            "plugin_execution_duration_seconds",
            "Duration for running a plugin at a specific extension point",
            figures.plugins.clone(),
        );
        registry.register(
            "plugin_evaluation",
            "Number of attempts to schedule pods by each plugin and the extension point (available only in \
             PreFilter, Filter, PreScore, and Score)",
            figures.evaluations.clone(),
        );
        figures
    }

    fn point(&self, point: Point, code: Code, took: Duration) {
        let labels = [("extension_point", point.name()), ("status", code.name()), PROFILE];
        self.points.get_or_create(&labels).observe(took.as_secs_f64());
    }

    fn plugin(&self, point: Point, plugin: Plugin, code: Code, took: Duration) {
        let labels = [("plugin", plugin.name()), ("extension_point", point.name()), ("status", code.name())];
        self.plugins.get_or_create(&labels).observe(took.as_secs_f64());
    }
}

/// Measures one try.
pub(crate) struct Stopwatch {
    metrics: Metrics,
    is_sampled: bool,
    evaluations: [[u64; PLUGINS]; COUNTED.len()],
}

impl Stopwatch {
    /// The plugin's place, if it is one that is counted.
    fn place(plugin: Plugin) -> Option<usize> {
        match plugin {
            Plugin::Filter(filter) => Some(filter as usize),
            Plugin::Balance => Some(Filter::ALL.len()),
            Plugin::Preemption | Plugin::Binder => None,
        }
    }
}

impl Meter for Stopwatch {
    fn point<T>(
        &mut self,
        point: Point,
        ask: impl FnOnce(&mut Self) -> T,
        code: impl FnOnce(&T) -> Code,
    ) -> T {
        let start = Instant::now();
        let answer = ask(self);
        self.metrics.0.plugins.point(point, code(&answer), start.elapsed());
        answer
    }

    fn plugin<T>(
        &mut self,
        point: Point,
        plugin: Plugin,
        ask: impl FnOnce() -> T,
        code: impl FnOnce(&T) -> Code,
    ) -> T {
        let start = self.is_sampled.then(Instant::now);
        let answer = ask();
        let code = code(&answer);
        if let Some(start) = start {
            self.metrics.0.plugins.plugin(point, plugin, code, start.elapsed());
        }
        let counted = COUNTED.iter().position(|one| *one == point).filter(|_| code != Code::Skip);
        if let (Some(point), Some(plugin)) = (counted, Self::place(plugin)) {
            self.evaluations[point][plugin] += 1;
        }
        answer
    }
}

/// Evaluations are added up once a try: there are some for each node.
impl Drop for Stopwatch {
    fn drop(&mut self) {
        let plugins = Filter::ALL.map(Plugin::Filter).into_iter().chain([Plugin::Balance]);
        for (place, plugin) in plugins.enumerate() {
            for (point, counts) in COUNTED.iter().zip(&self.evaluations) {
                if counts[place] > 0 {
                    let labels = [("plugin", plugin.name()), ("extension_point", point.name()), PROFILE];
                    self.metrics.0.plugins.evaluations.get_or_create(&labels).inc_by(counts[place]);
                }
            }
        }
    }
}

impl Metrics {
    /// Measures a try, which is the so manieth.
    pub(crate) fn stopwatch(&self, nth: usize) -> Stopwatch {
        Stopwatch {
            metrics: self.clone(),
            is_sampled: nth.is_multiple_of(TRIES_A_SAMPLE),
            evaluations: <[[u64; PLUGINS]; COUNTED.len()]>::default(),
        }
    }

    /// A choice was written, or that failed.
    pub(crate) fn bound(&self, is_done: bool, took: Duration) {
        let code = if is_done { Code::Success } else { Code::Error };
        self.0.plugins.point(Point::Bind, code, took);
        self.0.plugins.plugin(Point::Bind, Plugin::Binder, code, took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plugins_are_counted_in_every_try_and_timed_in_one_of_ten() {
        let metrics = Metrics::default();
        for nth in 0..20 {
            let mut meter = metrics.stopwatch(nth);
            meter.point(
                Point::Filter,
                |meter| {
                    for filter in [Filter::TaintToleration, Filter::NodeResourcesFit] {
                        let code = |_: &()| Code::Unschedulable;
                        meter.plugin(Point::Filter, Plugin::Filter(filter), || (), code);
                    }
                },
                |()| Code::Success,
            );
            meter.plugin(Point::Score, Plugin::Balance, || (), |()| Code::Success);
            meter.plugin(Point::Score, Plugin::Filter(Filter::NodeAffinity), || (), |()| Code::Skip);
            meter.plugin(Point::PostFilter, Plugin::Preemption, || (), |()| Code::Success);
        }
        metrics.bound(false, Duration::from_millis(2));
        let text = metrics.text();
        let profile = "profile=\"default-scheduler\"";
        for line in [
            format!("framework_extension_point_duration_seconds_count{{extension_point=\"Filter\",status=\"Success\",{profile}}} 20"),
            format!("framework_extension_point_duration_seconds_count{{extension_point=\"Bind\",status=\"Error\",{profile}}} 1"),
            format!("plugin_evaluation_total{{plugin=\"TaintToleration\",extension_point=\"Filter\",{profile}}} 20"),
            format!("plugin_evaluation_total{{plugin=\"NodeResourcesFit\",extension_point=\"Filter\",{profile}}} 20"),
            format!("plugin_evaluation_total{{plugin=\"NodeResourcesBalancedAllocation\",extension_point=\"Score\",{profile}}} 20"),
            "plugin_execution_duration_seconds_count{plugin=\"TaintToleration\",extension_point=\"Filter\",status=\"Unschedulable\"} 2".into(),
            "plugin_execution_duration_seconds_count{plugin=\"NodeAffinity\",extension_point=\"Score\",status=\"Skip\"} 2".into(),
            "plugin_execution_duration_seconds_count{plugin=\"DefaultPreemption\",extension_point=\"PostFilter\",status=\"Success\"} 2".into(),
            "plugin_execution_duration_seconds_count{plugin=\"DefaultBinder\",extension_point=\"Bind\",status=\"Error\"} 1".into(),
        ] {
            assert!(text.contains(&format!("scheduler_{line}\n")), "{line} in {text}");
        }
        assert_eq!(text.matches("scheduler_plugin_evaluation_total{").count(), 3, "{text}");
    }
}
