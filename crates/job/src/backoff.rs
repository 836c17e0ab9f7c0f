//! How long to wait before a failed pod is replaced, computed from facts that outlive us.

use jiff::{SignedDuration, Timestamp};

/// The pod failure back-off: `base · 2^(failures−1)`, at most `max`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub base: SignedDuration,
    /// No delay is longer.
    pub max: SignedDuration,
}

impl Default for Backoff {
    /// Kubernetes' own numbers: 10, 20, 40, … 320, 600, 600 seconds.
    fn default() -> Self {
        Self { base: SignedDuration::from_secs(10), max: SignedDuration::from_secs(600) }
    }
}

impl Backoff {
    /// The delay after `failures` failures in a row.
    pub fn delay(&self, failures: u32) -> SignedDuration {
        let Some(doublings) = failures.checked_sub(1) else { return SignedDuration::ZERO };
        let factor = 1_i32.checked_shl(doublings).filter(|factor| *factor > 0);
        factor.and_then(|factor| self.base.checked_mul(factor)).map_or(self.max, |delay| delay.min(self.max))
    }

    /// When the replacement is due, if the last of `failures` failures finished at `last`.
    pub fn due(&self, failures: u32, last: Timestamp) -> Timestamp {
        later(last, self.delay(failures))
    }
}

/// `time + span`, and the end of time where that does not exist.
pub(crate) fn later(time: Timestamp, span: SignedDuration) -> Timestamp {
    time.checked_add(span).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(backoff: Backoff, failures: impl IntoIterator<Item = u32>) -> Vec<i64> {
        failures.into_iter().map(|n| backoff.delay(n).as_secs()).collect()
    }

    #[test]
    fn delays_double_up_to_the_cap() {
        assert_eq!(seconds(Backoff::default(), 0..=8), [0, 10, 20, 40, 80, 160, 320, 600, 600]);
    }

    #[test]
    fn base_5_and_cap_700_reach_the_cap_at_the_ninth_failure() {
        let backoff = Backoff { base: SignedDuration::from_secs(5), max: SignedDuration::from_secs(700) };
        assert_eq!(seconds(backoff, 8..=9), [640, 700]);
    }

    #[test]
    fn a_huge_number_of_failures_waits_for_the_cap() {
        assert_eq!(seconds(Backoff::default(), [31, 32, 33, 1000, u32::MAX]), [600; 5]);
    }

    #[test]
    fn a_due_time_beyond_the_end_of_time_is_the_end_of_time() {
        assert_eq!(Backoff::default().due(1, Timestamp::MAX), Timestamp::MAX);
        assert_eq!(
            Backoff::default().due(2, Timestamp::UNIX_EPOCH),
            Timestamp::from_second(20).expect("in range")
        );
    }
}
