//! Feature gates: behaviour that can be switched off, and the first draft that can be switched on.

use std::fmt;
use std::str::FromStr;

/// Which features are on. The default is what Kubernetes v1.36 does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gates {
    /// Components that end pods add the `DisruptionTarget` condition.
    pub pod_disruption_conditions: bool,
    /// `spec.podFailurePolicy` is accepted and followed.
    pub job_pod_failure_policy: bool,
    /// `spec.podReplacementPolicy` is accepted and followed, `status.terminating` is kept.
    pub job_pod_replacement_policy: bool,
    /// `spec.backoffLimitPerIndex`, `spec.maxFailedIndexes` and `FailIndex` are accepted and followed.
    pub job_backoff_limit_per_index: bool,
    /// The first draft of the failure policy, `spec.backoffPolicy`, is accepted and followed.
    pub retriable_and_non_retriable_failures: bool,
}

impl Default for Gates {
    fn default() -> Self {
        Self {
            pod_disruption_conditions: true,
            job_pod_failure_policy: true,
            job_pod_replacement_policy: true,
            job_backoff_limit_per_index: true,
            retriable_and_non_retriable_failures: false,
        }
    }
}

impl Gates {
    /// The names of all gates, as users write them.
    pub const NAMES: [&'static str; 5] = [
        "JobBackoffLimitPerIndex",
        "JobPodFailurePolicy",
        "JobPodReplacementPolicy",
        "PodDisruptionConditions",
        "RetriableAndNonRetriableFailures",
    ];

    /// Whether a pod that is deleted reaches a terminal phase before it is gone, whoever sees to its end (KEP-3939).
    pub fn deleted_pods_end(&self) -> bool {
        self.pod_disruption_conditions || self.job_pod_replacement_policy
    }

    fn gate(&mut self, name: &str) -> Option<&mut bool> {
        match name {
            "PodDisruptionConditions" => Some(&mut self.pod_disruption_conditions),
            "JobPodFailurePolicy" => Some(&mut self.job_pod_failure_policy),
            "JobPodReplacementPolicy" => Some(&mut self.job_pod_replacement_policy),
            "JobBackoffLimitPerIndex" => Some(&mut self.job_backoff_limit_per_index),
            "RetriableAndNonRetriableFailures" => Some(&mut self.retriable_and_non_retriable_failures),
            _ => None,
        }
    }
}

/// Why a `--feature-gates` value could not be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// An item is not `Name=true` or `Name=false`.
    #[error("{0:?} is not of the form Name=true or Name=false")]
    Malformed(String),
    /// There is no gate of that name.
    #[error("unknown feature gate {0:?}; known gates: {known}", known = Gates::NAMES.join(", "))]
    Unknown(String),
}

/// Reads `A=true,B=false`, on top of the defaults. Later items win.
impl FromStr for Gates {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let mut gates = Self::default();
        for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').ok_or_else(|| Error::Malformed(item.to_owned()))?;
            let on = match value.trim() {
                "true" => true,
                "false" => false,
                _ => return Err(Error::Malformed(item.to_owned())),
            };
            *gates.gate(name.trim()).ok_or_else(|| Error::Unknown(name.trim().to_owned()))? = on;
        }
        Ok(gates)
    }
}

impl fmt::Display for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut copy = *self;
        for (i, name) in Self::NAMES.into_iter().enumerate() {
            let on = copy.gate(name).is_some_and(|on| *on);
            write!(f, "{}{name}={on}", if i == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_are_those_of_kubernetes_and_the_draft_is_off() {
        let gates = Gates::default();
        assert!(gates.pod_disruption_conditions && gates.job_pod_failure_policy);
        assert!(gates.job_pod_replacement_policy && gates.job_backoff_limit_per_index);
        assert!(!gates.retriable_and_non_retriable_failures);
    }

    #[test]
    fn every_name_switches_its_own_gate_and_survives_printing() {
        for name in Gates::NAMES {
            let mut want = Gates::default();
            let gate = want.gate(name).expect("every listed name is a gate");
            *gate = !*gate;
            let on = *gate;
            let read: Gates = format!("{name}={on}").parse().expect("a listed gate parses");
            assert_eq!(read, want, "{name}");
            assert_eq!(read.to_string().parse::<Gates>(), Ok(read), "{name}");
        }
    }

    #[test]
    fn deleted_pods_reach_a_terminal_phase_unless_both_features_that_need_it_are_off() {
        for (conditions, replacement, want) in
            [(true, true, true), (true, false, true), (false, true, true), (false, false, false)]
        {
            let gates = Gates {
                pod_disruption_conditions: conditions,
                job_pod_replacement_policy: replacement,
                ..Gates::default()
            };
            assert_eq!(gates.deleted_pods_end(), want, "{gates}");
        }
    }

    #[test]
    fn bad_items_are_named() {
        assert_eq!(
            "JobPodFailurePolicy".parse::<Gates>(),
            Err(Error::Malformed("JobPodFailurePolicy".into()))
        );
        assert_eq!("X=yes".parse::<Gates>(), Err(Error::Malformed("X=yes".into())));
        let unknown = "NoSuch=true".parse::<Gates>().expect_err("not a gate");
        assert_eq!(
            unknown.to_string(),
            "unknown feature gate \"NoSuch\"; known gates: JobBackoffLimitPerIndex, JobPodFailurePolicy, \
             JobPodReplacementPolicy, PodDisruptionConditions, RetriableAndNonRetriableFailures"
        );
    }

    #[test]
    fn spaces_and_empty_items_do_no_harm_and_the_last_item_wins() {
        let read: Gates = " JobPodFailurePolicy=true, ,JobPodFailurePolicy = false,".parse().expect("parses");
        assert!(!read.job_pod_failure_policy);
    }
}
