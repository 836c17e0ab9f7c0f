//! How often a thread wakes up: at once for what is rare, and fifty or two hundred times a second for what comes all the time.
//!
//! To wake up, read, decrypt and look around costs more than most answers are worth. A thread that rests a few milliseconds
//! while answers and events come in takes them all at once, and what they lead to goes out together.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A thread that is woken all the time wakes up once in this time …
const EVERY: Duration = Duration::from_millis(5);
/// … and one that waits for many answers, once in this.
const EVERY_BUSY: Duration = Duration::from_millis(20);
/// So many times it may wake up without a rest, if it slept long enough before.
const AT_ONCE: u32 = 100;

/// The rests of one thread.
pub struct Rests<F> {
    start: Instant,
    /// When the next wake-up is due, if all were so far apart as they should be.
    next: Mutex<Duration>,
    /// Many answers are waited for.
    is_busy: F,
}

impl<F: Fn() -> bool> Rests<F> {
    pub fn new(is_busy: F) -> Self {
        Self { start: Instant::now(), next: Mutex::default(), is_busy }
    }

    /// The thread has nothing to do at the moment: it rests, if it was woken too often before.
    pub fn take(&self) {
        let Ok(mut next) = self.next.lock() else { return };
        let every = if (self.is_busy)() { EVERY_BUSY } else { EVERY };
        let rest = due(&mut next, self.start.elapsed(), every);
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }
}

/// How long to rest now.
fn due(next: &mut Duration, now: Duration, every: Duration) -> Duration {
    *next = (*next).max(now.saturating_sub(EVERY * AT_ONCE)) + every;
    next.saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_woken_now_and_then_never_rests() {
        for every in [EVERY, EVERY_BUSY] {
            let mut next = Duration::ZERO;
            assert!((1..1000).all(|n| due(&mut next, every * n, every).is_zero()));
        }
    }

    #[test]
    fn a_burst_is_free_and_then_wake_ups_are_so_far_apart() {
        let cases = [
            (EVERY, [vec![0; 124], vec![1], vec![4; 5]].concat()),
            (EVERY_BUSY, [vec![0; 26], vec![14], vec![19; 103]].concat()),
        ];
        for (every, expected) in cases {
            let (mut next, mut now) = (Duration::ZERO, Duration::from_secs(10));
            let mut rests = Vec::new();
            for _ in 0..130 {
                let rest = due(&mut next, now, every);
                rests.push(rest.as_millis());
                // What is done in between takes its time too.
                now += rest + Duration::from_millis(1);
            }
            assert_eq!(rests, expected, "{every:?}");
        }
    }

    #[test]
    fn after_a_quiet_time_there_is_a_burst_again() {
        let (mut next, now) = (Duration::ZERO, Duration::from_secs(10));
        let rests =
            |next: &mut Duration, now| (0..AT_ONCE + 2).map(|_| due(next, now, EVERY)).collect::<Vec<_>>();
        let expected = [vec![Duration::ZERO; 100], vec![EVERY, EVERY * 2]].concat();
        assert_eq!(rests(&mut next, now), expected);
        assert_eq!(rests(&mut next, now + Duration::from_secs(5)), expected);
    }
}
