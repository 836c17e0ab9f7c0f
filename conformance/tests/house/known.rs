//! Differences from the real Kubernetes that we want, or can't help, each with its reason.

use windlass_conformance::compare::Known;

const VERDICTS: &str = "what became of failed pods is kept with their Job, for `windlass why`";

const fn known(step: &'static str, at: &'static str, reason: &'static str) -> Known {
    Known { step, at, reason }
}

/// Of the scheduler. An entry that no longer differs fails the test.
pub const SCHEDULED: &[Known] = &[];

/// Of the controllers.
pub const CONTROLLED: &[Known] = &[known("policies/*", "/metadata/annotations", VERDICTS)];
