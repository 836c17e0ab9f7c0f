//! Probes: what a container says about itself, and when it is believed.

use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};

use crate::check::Check;

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Has it started? The others wait for it.
    Startup,
    /// Is it alive? If not, it is stopped.
    Liveness,
    /// Can it be used?
    Readiness,
}

impl Kind {
    /// As in texts: capitalised.
    pub fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Liveness => "Liveness",
            Self::Readiness => "Readiness",
        }
    }

    /// As in texts within a sentence.
    pub fn word(self) -> &'static str {
        match self {
            Self::Startup => "startup",
            Self::Liveness => "liveness",
            Self::Readiness => "readiness",
        }
    }
}

/// How a container is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// What is done.
    pub check: Result<Check, String>,
    /// Before the first time.
    pub initial_delay: Duration,
    /// Between two times.
    pub period: Duration,
    /// The longest that one may take.
    pub timeout: Duration,
    /// So many successes in a row count.
    pub success_threshold: u32,
    /// So many failures in a row count.
    pub failure_threshold: u32,
    /// The grace period of a container that is stopped because of it, if it is another than the pod's.
    pub grace: Option<Duration>,
}

impl Spec {
    /// The probe of a container for this purpose. What is not set is Kubernetes' default.
    pub fn of(container: &Container, kind: Kind) -> Option<Self> {
        let probe = match kind {
            Kind::Startup => container.startup_probe.as_ref(),
            Kind::Liveness => container.liveness_probe.as_ref(),
            Kind::Readiness => container.readiness_probe.as_ref(),
        };
        probe.map(|probe| Self::read(probe, container))
    }

    fn read(probe: &Probe, container: &Container) -> Self {
        let number = |value: Option<i32>, default: u32| {
            value.and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0).unwrap_or(default)
        };
        let seconds = |value: Option<i32>, default: u32| Duration::from_secs(number(value, default).into());
        let grace = probe.termination_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
        Self {
            check: Check::of_probe(probe, container),
            initial_delay: seconds(probe.initial_delay_seconds, 0),
            period: seconds(probe.period_seconds, 10),
            timeout: seconds(probe.timeout_seconds, 1),
            success_threshold: number(probe.success_threshold, 1),
            failure_threshold: number(probe.failure_threshold, 3),
            grace: grace.map(Duration::from_secs),
        }
    }
}

/// Counts results in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Tracker {
    last: Option<bool>,
    in_a_row: u32,
}

impl Tracker {
    /// One more result. Returns what is believed now, or `None` while too few are the same.
    pub fn add(&mut self, is_success: bool, spec: &Spec) -> Option<bool> {
        self.in_a_row = if self.last == Some(is_success) { self.in_a_row.saturating_add(1) } else { 1 };
        self.last = Some(is_success);
        let threshold = if is_success { spec.success_threshold } else { spec.failure_threshold };
        (self.in_a_row >= threshold).then_some(is_success)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn spec(probe: serde_json::Value) -> Spec {
        let container = serde_json::from_value(json!({"name": "c", "livenessProbe": probe}));
        Spec::of(&container.expect("a container"), Kind::Liveness).expect("a probe")
    }

    #[test]
    fn what_is_not_set_is_the_default_of_kubernetes() {
        let second = Duration::from_secs;
        let exec = json!({"exec": {"command": ["true"]}});
        let plain = Spec {
            check: Ok(Check::Exec(vec!["true".into()])),
            initial_delay: second(0),
            period: second(10),
            timeout: second(1),
            success_threshold: 1,
            failure_threshold: 3,
            grace: None,
        };
        assert_eq!(spec(exec), plain);
        let full = json!({
            "exec": {"command": ["true"]}, "initialDelaySeconds": 2, "periodSeconds": 3, "timeoutSeconds": 4,
            "successThreshold": 5, "failureThreshold": 6, "terminationGracePeriodSeconds": 7,
        });
        let want = Spec {
            initial_delay: second(2),
            period: second(3),
            timeout: second(4),
            success_threshold: 5,
            failure_threshold: 6,
            grace: Some(second(7)),
            ..plain
        };
        assert_eq!(spec(full), want);
    }

    #[test]
    fn a_result_is_believed_when_enough_are_the_same_in_a_row() {
        let spec = spec(json!({"tcpSocket": {"port": 1}, "successThreshold": 2, "failureThreshold": 3}));
        let (good, bad) = (Some(true), Some(false));
        for (results, want) in [
            ("++", vec![None, good]),
            ("+++", vec![None, good, good]),
            ("--+", vec![None, None, None]),
            ("--+---", vec![None, None, None, None, None, bad]),
            ("+-+-", vec![None; 4]),
        ] {
            let mut tracker = Tracker::default();
            let got: Vec<_> = results.chars().map(|result| tracker.add(result == '+', &spec)).collect();
            assert_eq!(got, want, "{results}");
        }
    }
}
