//! Which pods are to be ended and when. Pure.
//!
//! A timer runs from the time it was first set, whatever happened to the taint before; a new controller starts anew.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::decide::Verdict;
use crate::cluster::Key;

/// Pods that are to be ended.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    pods: BTreeMap<Key, Timer>,
    due: BTreeSet<(Timestamp, Key)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Timer {
    Waiting {
        since: Timestamp,
        until: Timestamp,
    },
    /// It is being ended.
    Ending,
}

/// What is to be done about a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Say that it is not ended after all.
    SayCancelled,
    /// End it, which was due at that time.
    End(Timestamp),
}

impl Timers {
    /// The pod, its tolerations or the taints of its node are new.
    pub(crate) fn judge(&mut self, pod: &Key, verdict: Verdict, now: Timestamp) -> Vec<Step> {
        match verdict {
            Verdict::Forever => self.cancel(pod),
            Verdict::Untolerated => {
                let mut steps = self.cancel(pod);
                steps.extend(self.end(pod, now));
                steps
            }
            Verdict::For(time) => {
                let until = now.checked_add(time).unwrap_or(Timestamp::MAX);
                match self.pods.get(pod) {
                    // upstream: it goes on, also with another time, unless it was set at this very moment.
                    Some(Timer::Waiting { since, .. }) if *since < now => Vec::new(),
                    Some(Timer::Ending) => Vec::new(),
                    Some(Timer::Waiting { since, .. }) => {
                        let since = *since;
                        let mut steps = self.cancel(pod);
                        steps.extend(self.start(pod, since, until, now));
                        steps
                    }
                    None => self.start(pod, now, until, now).into_iter().collect(),
                }
            }
        }
    }

    /// The pod is gone, or nothing ends it any more.
    pub(crate) fn cancel(&mut self, pod: &Key) -> Vec<Step> {
        match self.pods.get(pod) {
            Some(Timer::Waiting { until, .. }) => {
                self.due.remove(&(*until, pod.clone()));
                self.pods.remove(pod);
                vec![Step::SayCancelled]
            }
            // What has begun is not taken back.
            Some(Timer::Ending) | None => Vec::new(),
        }
    }

    /// When the next one is due.
    pub(crate) fn next(&self) -> Option<Timestamp> {
        self.due.first().map(|(time, _)| *time)
    }

    /// Those that are due, to be ended now.
    pub(crate) fn take_due(&mut self, now: Timestamp) -> Vec<(Key, Timestamp)> {
        let mut taken = Vec::new();
        while let Some((time, _)) = self.due.first()
            && *time <= now
            && let Some((time, pod)) = self.due.pop_first()
        {
            self.pods.insert(pod.clone(), Timer::Ending);
            taken.push((pod, time));
        }
        taken
    }

    /// The pod was ended, or could not be.
    pub(crate) fn ended(&mut self, pod: &Key) {
        if self.pods.get(pod) == Some(&Timer::Ending) {
            self.pods.remove(pod);
        }
    }

    fn start(&mut self, pod: &Key, since: Timestamp, until: Timestamp, now: Timestamp) -> Option<Step> {
        if until <= now {
            return self.end(pod, until);
        }
        self.pods.insert(pod.clone(), Timer::Waiting { since, until });
        self.due.insert((until, pod.clone()));
        None
    }

    fn end(&mut self, pod: &Key, due: Timestamp) -> Option<Step> {
        let is_new = self.pods.insert(pod.clone(), Timer::Ending) != Some(Timer::Ending);
        is_new.then_some(Step::End(due))
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("a time")
    }

    fn seconds(seconds: i64) -> Verdict {
        Verdict::For(SignedDuration::from_secs(seconds))
    }

    fn pod() -> Key {
        Key::new("ns", "pod")
    }

    #[test]
    fn each_story_of_a_pod_ends_as_upstream_ends_it() {
        use Verdict::{Forever, Untolerated};
        // When, what, and the steps that follow at once; then when it is due.
        type Story = (&'static str, Vec<(i64, Verdict, Vec<Step>)>, Option<i64>);
        let stories: [Story; 8] = [
            ("nobody tolerates it", vec![(5, Untolerated, vec![Step::End(at(5))])], None),
            ("tolerated for ever", vec![(5, Forever, vec![])], None),
            ("for no time", vec![(5, seconds(0), vec![Step::End(at(5))])], None),
            ("for a time", vec![(5, seconds(300), vec![])], Some(305)),
            (
                "a taint comes that is not tolerated",
                vec![(5, seconds(300), vec![]), (9, Untolerated, vec![Step::SayCancelled, Step::End(at(9))])],
                None,
            ),
            (
                "tolerated for ever after all",
                vec![(5, seconds(300), vec![]), (9, Forever, vec![Step::SayCancelled])],
                None,
            ),
            (
                "another time does not move a timer that runs",
                vec![(5, seconds(300), vec![]), (9, seconds(10), vec![]), (10, seconds(0), vec![])],
                Some(305),
            ),
            (
                "unless it was set at this very moment",
                vec![(5, seconds(300), vec![]), (5, seconds(10), vec![Step::SayCancelled])],
                Some(15),
            ),
        ];
        for (name, looks, due) in stories {
            let mut timers = Timers::default();
            for (time, verdict, steps) in looks {
                assert_eq!(timers.judge(&pod(), verdict, at(time)), steps, "{name}: {verdict:?} at {time}");
            }
            assert_eq!(timers.next(), due.map(at), "{name}");
        }
    }

    #[test]
    fn a_pod_is_ended_once_until_that_is_done() {
        let mut timers = Timers::default();
        timers.judge(&pod(), seconds(10), at(0));
        assert_eq!(timers.take_due(at(9)), []);
        assert_eq!(timers.take_due(at(11)), [(pod(), at(10))]);
        assert_eq!(timers.take_due(at(12)), []);
        assert_eq!(timers.judge(&pod(), Verdict::Untolerated, at(12)), [], "it is under way");
        assert_eq!(timers.cancel(&pod()), []);
        timers.ended(&pod());
        assert_eq!(timers.judge(&pod(), Verdict::Untolerated, at(13)), [Step::End(at(13))]);
    }

    #[test]
    fn a_pod_that_is_gone_is_not_waited_for() {
        let mut timers = Timers::default();
        timers.judge(&pod(), seconds(10), at(0));
        assert_eq!(timers.cancel(&pod()), [Step::SayCancelled]);
        assert_eq!((timers.next(), timers.cancel(&pod())), (None, vec![]));
    }
}
