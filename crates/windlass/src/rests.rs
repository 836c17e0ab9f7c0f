//! How often a thread wakes up: at once for what is rare, and a hundred times a second for what comes all the time.
//!
//! To wake up, read, decrypt and look around costs more than most answers are worth. A thread that rests a few milliseconds
//! while answers and events come in takes them all at once, and what they lead to goes out together.

use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A busy thread wakes up once in this time.
const EVERY: Duration = Duration::from_millis(10);
/// So many times it may wake up without a rest, if it slept long enough before.
const AT_ONCE: u32 = 100;

/// The rests of one thread.
#[derive(Debug)]
pub struct Rests {
    start: Instant,
    /// When the next wake-up is due, if all were so far apart as they should be.
    next: Mutex<Duration>,
}

impl Default for Rests {
    fn default() -> Self {
        Self { start: Instant::now(), next: Mutex::default() }
    }
}

impl Rests {
    /// The thread has nothing to do at the moment: it rests, if it was woken too often before.
    pub fn take(&self) {
        let Ok(mut next) = self.next.lock() else { return };
        let rest = due(&mut next, self.start.elapsed());
        if !rest.is_zero() {
            std::thread::sleep(rest);
        }
    }
}

/// How long to rest now.
fn due(next: &mut Duration, now: Duration) -> Duration {
    *next = (*next).max(now.saturating_sub(EVERY * AT_ONCE)) + EVERY;
    next.saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_is_woken_now_and_then_never_rests() {
        let mut next = Duration::ZERO;
        assert!((1..1000).all(|n| due(&mut next, EVERY * n).is_zero()));
    }

    #[test]
    fn a_burst_is_free_and_then_wake_ups_are_so_far_apart() {
        let (mut next, mut now) = (Duration::ZERO, Duration::from_secs(10));
        let mut rests = Vec::new();
        for _ in 0..130 {
            let rest = due(&mut next, now);
            rests.push(rest.as_millis());
            // What is done in between takes its time too.
            now += rest + Duration::from_millis(1);
        }
        assert_eq!(rests, [vec![0; 111], vec![9; 19]].concat());
    }

    #[test]
    fn after_a_quiet_time_there_is_a_burst_again() {
        let (mut next, now) = (Duration::ZERO, Duration::from_secs(10));
        let rests = |next: &mut Duration, now| (0..AT_ONCE + 2).map(|_| due(next, now)).collect::<Vec<_>>();
        let expected = [vec![Duration::ZERO; 100], vec![EVERY, EVERY * 2]].concat();
        assert_eq!(rests(&mut next, now), expected);
        assert_eq!(rests(&mut next, now + Duration::from_secs(5)), expected);
    }
}
