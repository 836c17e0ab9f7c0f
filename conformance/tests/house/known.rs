//! Differences from the real Kubernetes that we want, or can't help, each with its reason.

use windlass_conformance::compare::Known;

const ZONES: &str = "a pod is not labelled with the zone of its node: nothing here reads it";

const fn known(step: &'static str, at: &'static str, reason: &'static str) -> Known {
    Known { step, at, reason }
}

/// All of them. An entry that no longer differs fails the test.
pub const KNOWN: &[Known] = &[
    known("scheduling/affinity_to_pods/placed", "/metadata/labels", ZONES),
    known("scheduling/spread_over_zones/placed", "/metadata/labels/topology.kubernetes.io", ZONES),
];
