//! Nodes that are given up one after the other, not faster than a rate. Pure.

use std::collections::{BTreeSet, VecDeque};

use jiff::Timestamp;

/// Those that wait, and those that were given up and have not come back.
#[derive(Debug)]
pub(crate) struct Slow {
    waiting: VecDeque<String>,
    known: BTreeSet<String>,
    bucket: Bucket,
}

impl Slow {
    pub(crate) fn new(rate: f64, now: Timestamp) -> Self {
        Self {
            waiting: VecDeque::new(),
            known: BTreeSet::new(),
            bucket: Bucket { rate, tokens: 1.0, at: now },
        }
    }

    /// The node is to be given up. One that was is not again, until it is removed.
    pub(crate) fn add(&mut self, node: &str) {
        if self.known.insert(node.to_owned()) {
            self.waiting.push_back(node.to_owned());
        }
    }

    /// The node is not given up after all, or can be again. Says whether it was known.
    pub(crate) fn remove(&mut self, node: &str) -> bool {
        self.waiting.retain(|waiting| waiting != node);
        self.known.remove(node)
    }

    /// The next one, if the rate allows one now.
    pub(crate) fn next(&mut self, now: Timestamp) -> Option<String> {
        if self.waiting.is_empty() || !self.bucket.take(now) { None } else { self.waiting.pop_front() }
    }

    /// It could not be given up: again later.
    pub(crate) fn retry(&mut self, node: String) {
        if self.known.contains(&node) {
            self.waiting.push_back(node);
        }
    }

    /// Whether nobody is given up at all.
    pub(crate) fn is_stopped(&self) -> bool {
        self.bucket.rate <= 0.0
    }

    /// From now on this rate. Who had to wait has to wait at the new one too.
    pub(crate) fn set_rate(&mut self, rate: f64, now: Timestamp) {
        if (self.bucket.rate - rate).abs() > f64::EPSILON {
            let tokens = if self.bucket.take(now) { 1.0 } else { 0.0 };
            self.bucket = Bucket { rate, tokens, at: now };
        }
    }
}

/// A token bucket that holds one.
#[derive(Debug)]
struct Bucket {
    /// Tokens a second; none if it is not positive.
    rate: f64,
    tokens: f64,
    at: Timestamp,
}

impl Bucket {
    fn take(&mut self, now: Timestamp) -> bool {
        if self.rate <= 0.0 {
            return false;
        }
        let passed = now.duration_since(self.at).as_secs_f64().max(0.0);
        (self.tokens, self.at) = ((self.tokens + passed * self.rate).min(1.0), now);
        let has_one = self.tokens >= 1.0;
        if has_one {
            self.tokens -= 1.0;
        }
        has_one
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    #[test]
    fn nodes_are_given_up_in_order_and_not_faster_than_the_rate() {
        let mut slow = Slow::new(0.1, at(0));
        for node in ["a", "b", "a", "c"] {
            slow.add(node);
        }
        let mut next = |second| slow.next(at(second));
        assert_eq!(next(0).as_deref(), Some("a"));
        assert_eq!(next(9), None);
        assert_eq!(next(10).as_deref(), Some("b"));
        assert_eq!(next(100).as_deref(), Some("c"), "what was not used is not saved");
        assert_eq!(next(101), None);
    }

    #[test]
    fn a_node_that_was_given_up_is_not_again_until_it_came_back() {
        let mut slow = Slow::new(1.0, at(0));
        slow.add("a");
        assert_eq!(slow.next(at(0)).as_deref(), Some("a"));
        slow.add("a");
        assert_eq!(slow.next(at(9)), None);
        assert!(slow.remove("a"));
        assert!(!slow.remove("a"));
        slow.add("a");
        assert_eq!(slow.next(at(10)).as_deref(), Some("a"));
        slow.retry("a".to_owned());
        assert_eq!(slow.next(at(12)).as_deref(), Some("a"));
        slow.remove("a");
        slow.retry("a".to_owned());
        assert_eq!(slow.next(at(20)), None);
    }

    #[test]
    fn at_rate_zero_nobody_is_given_up_and_another_rate_starts_as_the_old_one_stood() {
        let mut slow = Slow::new(0.1, at(0));
        slow.add("a");
        slow.set_rate(0.0, at(0));
        assert!(slow.is_stopped());
        assert_eq!(slow.next(at(1000)), None);
        slow.set_rate(0.1, at(1000));
        assert_eq!(slow.next(at(1000)), None, "it had to wait before");
        assert_eq!(slow.next(at(1010)).as_deref(), Some("a"));
    }
}
