//! How long a Job is left alone after a look at it: looks at a Job with many ended pods take a while, and one look can take in
//! many events at once.
//!
//! What counts is the time that the processor worked on it. On a busy machine a thread may wait for a processor much
//! longer than its work takes, and that is no reason to let the Job wait even longer. To ask for that time costs as much
//! as a look at a small Job: it is asked for when the look before took long by the clock on the wall.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Looks at a Job may take one of so many parts of the time, where the API server is another process that is slower than
/// they are.
pub(super) const LOOKS_SHARE: u32 = 100;
/// A rest shorter than this is none: small Jobs are answered at once, and their looks cost little.
const REST_MIN: Duration = Duration::from_millis(10);
/// Nor is one longer than this, however large the Job.
const REST_MAX: Duration = Duration::from_millis(250);

/// The work of this thread on one look.
#[derive(Debug)]
pub(super) struct Look {
    began: Duration,
}

impl Look {
    pub(super) fn begin() -> Self {
        Self { began: worked() }
    }

    /// How long the Job is left alone now, if at all, so that looks take one of `share` parts of the time.
    pub(super) fn rest(&self, share: u32) -> Option<Duration> {
        rest_after(worked().saturating_sub(self.began), share)
    }
}

/// Whether a look that took this long, waiting included, may have earned a rest.
pub(super) fn is_long(took: Duration, share: u32) -> bool {
    rest_after(took, share).is_some()
}

/// How long this thread has worked so far.
fn worked() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

fn rest_after(worked: Duration, share: u32) -> Option<Duration> {
    let rest = worked.saturating_mul(share.saturating_sub(1)).min(REST_MAX);
    Some(rest).filter(|rest| *rest >= REST_MIN)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_rest_is_so_many_times_as_long_as_the_work_if_that_is_worth_it() {
        let cases = [
            ((0, 100), None),
            ((101, 100), None),
            ((102, 100), Some(10_098)),
            ((1_000, 100), Some(99_000)),
            ((3_000, 100), Some(250_000)),
            ((1_000, 10), None),
            ((2_000, 10), Some(18_000)),
            ((2_000, 0), None),
        ];
        for ((micros, share), expected) in cases {
            let rest = rest_after(Duration::from_micros(micros), share);
            assert_eq!(rest, expected.map(Duration::from_micros), "{micros} µs, {share}");
            assert_eq!(
                is_long(Duration::from_micros(micros), share),
                expected.is_some(),
                "{micros} µs, {share}"
            );
        }
    }

    #[test]
    fn only_work_counts_and_not_the_wait_for_a_processor() {
        let (look, start) = (Look::begin(), Instant::now());
        std::thread::sleep(Duration::from_millis(50));
        let rest = look.rest(LOOKS_SHARE).unwrap_or_default();
        assert!(rest < start.elapsed(), "50 ms without work, and a rest of {rest:?}");
        while worked() < look.began + Duration::from_millis(2) {}
        assert!(
            look.rest(LOOKS_SHARE) >= Some(Duration::from_millis(198)),
            "2 ms of work, and a rest of {:?}",
            look.rest(LOOKS_SHARE)
        );
    }
}
