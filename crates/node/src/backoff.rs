//! How long a container waits before it is started again: 10 s, doubled each time, up to 5 minutes.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// The delays; `base` is Kubernetes' 10 s and shorter in tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Before the second restart; the first is at once.
    pub base: Duration,
    /// The longest.
    pub max: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { base: Duration::from_secs(10), max: Duration::from_secs(300) }
    }
}

/// What is remembered about a container's restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Backoff {
    /// The delay that the next restart has to keep, and when it was set.
    entry: Option<(Duration, Timestamp)>,
}

impl Backoff {
    /// When a container that ended at `finished` may start again, and after which delay.
    pub fn due(&self, finished: Timestamp, limits: &Limits) -> (Timestamp, Duration) {
        let delay = self.entry.filter(|(_, set)| !is_stale(*set, finished, limits)).map(|(delay, _)| delay);
        let delay = delay.unwrap_or_default();
        (add(finished, delay), delay)
    }

    /// Remembers a restart at `now` of a container that had ended at `finished`.
    pub fn restarted(&mut self, finished: Timestamp, now: Timestamp, limits: &Limits) {
        let delay = match self.entry {
            Some((delay, set)) if !is_stale(set, finished, limits) => (delay * 2).min(limits.max),
            _ => limits.base.min(limits.max),
        };
        self.entry = Some((delay, now));
    }
}

/// A container that ran for twice the longest delay has earned a fresh start.
fn is_stale(set: Timestamp, finished: Timestamp, limits: &Limits) -> bool {
    finished.duration_since(set) > SignedDuration::try_from(limits.max * 2).unwrap_or(SignedDuration::MAX)
}

/// `time + delay`, at most the end of time.
pub(crate) fn add(time: Timestamp, delay: Duration) -> Timestamp {
    time.checked_add(delay).unwrap_or(Timestamp::MAX)
}

/// A duration as Go prints it, which messages of Kubernetes contain: `10s`, `1m20s`, `5m0s`, `50ms`.
pub(crate) fn go_text(duration: Duration) -> String {
    let seconds = duration.as_secs();
    let millis = duration.subsec_millis();
    if seconds == 0 && millis > 0 {
        return format!("{millis}ms");
    }
    let fraction = if millis == 0 { String::new() } else { format!(".{millis:03}") };
    let fraction = fraction.trim_end_matches('0');
    match (seconds / 3600, seconds / 60 % 60, seconds % 60) {
        (0, 0, s) => format!("{s}{fraction}s"),
        (0, m, s) => format!("{m}m{s}{fraction}s"),
        (h, m, s) => format!("{h}h{m}m{s}{fraction}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::container::fixtures::at;

    #[test]
    fn the_first_restart_is_at_once_and_each_later_one_waits_twice_as_long_up_to_the_limit() {
        let (mut backoff, limits, mut now) = (Backoff::default(), Limits::default(), at(0));
        let mut delays = Vec::new();
        for _ in 0..8 {
            let finished = now;
            let (due, delay) = backoff.due(finished, &limits);
            delays.push(delay.as_secs());
            now = due;
            backoff.restarted(finished, now, &limits);
        }
        assert_eq!(delays, [0, 10, 20, 40, 80, 160, 300, 300]);
    }

    #[test]
    fn a_container_that_ran_longer_than_ten_minutes_starts_afresh() {
        let limits = Limits::default();
        let mut backoff = Backoff::default();
        backoff.restarted(at(0), at(0), &limits);
        assert_eq!(backoff.due(at(600), &limits), (at(610), Duration::from_secs(10)));
        assert_eq!(backoff.due(at(601), &limits), (at(601), Duration::ZERO));
        backoff.restarted(at(601), at(601), &limits);
        assert_eq!(backoff.due(at(602), &limits).1, Duration::from_secs(10));
    }

    #[test]
    fn durations_look_as_in_go() {
        for (millis, want) in [
            (10_000, "10s"),
            (80_000, "1m20s"),
            (300_000, "5m0s"),
            (50, "50ms"),
            (1_500, "1.5s"),
            (3_600_000, "1h0m0s"),
        ] {
            assert_eq!(go_text(Duration::from_millis(millis)), want);
        }
    }
}
