//! The work queue: which keys need a look, and when.
//!
//! A key is never given to two workers at once. A key that is added while it is worked on is given out again
//! afterwards; one that is added twice before that, once. Of several wakes for one key the earliest counts, and a look at
//! the key takes the place of all of them: it says itself when the next is due.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{Busy, Metrics, QueueFigures};

const RETRY_BASE: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(60);

/// Keys that need a look.
#[derive(Debug)]
pub(crate) struct Queue<K> {
    state: Arc<Mutex<State<K>>>,
    figures: QueueFigures,
    wake: Notify,
}

#[derive(Debug)]
struct State<K> {
    ready: VecDeque<K>,
    /// In `ready`, or to be put there when its worker is done; and since when.
    dirty: HashMap<K, Instant>,
    /// Worked on, and since when.
    running: HashMap<K, Instant>,
    due: BTreeSet<(Instant, K)>,
    due_at: HashMap<K, Instant>,
    failures: HashMap<K, u32>,
}

impl<K> Default for State<K> {
    fn default() -> Self {
        Self {
            ready: VecDeque::new(),
            dirty: HashMap::new(),
            running: HashMap::new(),
            due: BTreeSet::new(),
            due_at: HashMap::new(),
            failures: HashMap::new(),
        }
    }
}

impl<K: Send> Busy for Mutex<State<K>> {
    fn since(&self) -> Vec<Instant> {
        self.lock().running.values().copied().collect()
    }
}

impl<K: Clone + Eq + Hash + Ord + Send + 'static> Queue<K> {
    /// An empty queue that is counted under that name.
    pub(crate) fn new(name: &'static str, metrics: &Metrics) -> Self {
        let state = Arc::<Mutex<State<K>>>::default();
        let busy = Arc::downgrade(&state);
        Self { figures: metrics.queue(name, busy), state, wake: Notify::new() }
    }

    /// The key needs a look now.
    pub(crate) fn add(&self, key: K) {
        if self.state.lock().push(key, &self.figures) {
            self.wake.notify_one();
        }
    }

    /// The key needs a look at that time, or before.
    pub(crate) fn add_at(&self, key: K, at: Instant) {
        self.figures.put_off();
        let mut state = self.state.lock();
        match state.due_at.get(&key) {
            Some(earlier) if *earlier <= at => return,
            Some(later) => {
                let later = (*later, key.clone());
                state.due.remove(&later);
            }
            None => {}
        }
        state.due_at.insert(key.clone(), at);
        state.due.insert((at, key));
        drop(state);
        self.wake.notify_one();
    }

    /// Work on the key failed: it needs another look after a while, longer each time.
    pub(crate) fn retry(&self, key: K) {
        let failures = {
            let mut state = self.state.lock();
            let failures = state.failures.entry(key.clone()).or_default();
            *failures = failures.saturating_add(1);
            *failures
        };
        let delay = RETRY_BASE.saturating_mul(1 << (failures - 1).min(16)).min(RETRY_MAX);
        self.add_at(key, Instant::now() + delay);
    }

    /// Work on the key succeeded: its failures are forgotten.
    pub(crate) fn forget_failures(&self, key: &K) {
        self.state.lock().failures.remove(key);
    }

    /// The next key to look at; give it back with [`done`](Self::done).
    pub(crate) async fn next(&self) -> K {
        loop {
            let next_due = {
                let mut state = self.state.lock();
                let now = Instant::now();
                state.promote(now, &self.figures);
                if let Some(key) = state.pop(now, &self.figures) {
                    // The others must hear of what is left, now that this worker will be busy.
                    if !state.ready.is_empty() || !state.due.is_empty() {
                        self.wake.notify_one();
                    }
                    return key;
                }
                state.due.first().map(|(at, _)| *at)
            };
            let notified = self.wake.notified();
            match next_due {
                Some(at) => _ = tokio::time::timeout_at(at, notified).await,
                None => notified.await,
            }
        }
    }

    /// The worker is done with the key.
    pub(crate) fn done(&self, key: &K) {
        let mut state = self.state.lock();
        if let Some(taken) = state.running.remove(key) {
            self.figures.done(taken);
        }
        if state.dirty.contains_key(key) {
            state.ready.push_back(key.clone());
            drop(state);
            self.wake.notify_one();
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> State<K> {
    /// Says whether a worker can take the key now.
    fn push(&mut self, key: K, figures: &QueueFigures) -> bool {
        if self.dirty.contains_key(&key) {
            return false;
        }
        self.dirty.insert(key.clone(), Instant::now());
        figures.added(self.dirty.len());
        if self.running.contains_key(&key) {
            return false;
        }
        self.ready.push_back(key);
        true
    }

    fn promote(&mut self, now: Instant, figures: &QueueFigures) {
        while let Some((at, _)) = self.due.first()
            && *at <= now
            && let Some((_, key)) = self.due.pop_first()
        {
            self.due_at.remove(&key);
            self.push(key, figures);
        }
    }

    fn pop(&mut self, now: Instant, figures: &QueueFigures) -> Option<K> {
        let key = self.ready.pop_front()?;
        let added = self.dirty.remove(&key).unwrap_or(now);
        figures.taken(added, now, self.dirty.len());
        self.running.insert(key.clone(), now);
        if let Some(at) = self.due_at.remove(&key) {
            self.due.remove(&(at, key.clone()));
        }
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn queue() -> Queue<&'static str> {
        Queue::new("test", &Metrics::default())
    }

    fn next(queue: &Queue<&'static str>) -> Option<&'static str> {
        queue.next().now_or_never()
    }

    #[tokio::test]
    async fn a_key_is_given_to_one_worker_at_a_time_and_again_if_it_changed_meanwhile() {
        let queue = queue();
        queue.add("a");
        queue.add("a");
        queue.add("b");
        assert_eq!(next(&queue), Some("a"));
        queue.add("a");
        assert_eq!(next(&queue), Some("b"));
        assert_eq!(next(&queue), None, "a is being worked on");
        queue.done(&"a");
        queue.done(&"b");
        assert_eq!(next(&queue), Some("a"));
        queue.done(&"a");
        assert_eq!(next(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_wakes_the_earliest_counts() {
        let queue = queue();
        let start = Instant::now();
        for seconds in [30, 10, 20] {
            queue.add_at("a", start + Duration::from_secs(seconds));
        }
        assert_eq!(queue.next().await, "a");
        assert_eq!(start.elapsed(), Duration::from_secs(10));
        queue.done(&"a");
        assert_eq!(next(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_look_takes_the_place_of_a_later_wake() {
        let queue = queue();
        queue.add_at("a", Instant::now() + Duration::from_secs(10));
        queue.add("a");
        assert_eq!(next(&queue), Some("a"));
        queue.done(&"a");
        tokio::time::advance(Duration::from_secs(11)).await;
        assert_eq!(next(&queue), None);
    }

    #[tokio::test(start_paused = true)]
    async fn retries_come_later_each_time_until_one_succeeds() {
        let queue = queue();
        let mut delays = Vec::new();
        for round in 0..9 {
            let start = Instant::now();
            queue.retry("a");
            queue.next().await;
            delays.push(start.elapsed().as_secs());
            if round == 7 {
                queue.forget_failures(&"a");
            }
            queue.done(&"a");
        }
        assert_eq!(delays, [1, 2, 4, 8, 16, 32, 60, 60, 1]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_is_heard_by_another_worker_while_the_first_is_busy() {
        let queue = Arc::new(queue());
        let workers: Vec<_> = (0..2)
            .map(|_| {
                let queue = Arc::clone(&queue);
                // Each takes one key and never gives it back.
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.add_at("later", Instant::now() + Duration::from_secs(5));
        tokio::task::yield_now().await;
        queue.add("now");
        let mut taken = Vec::new();
        for worker in workers {
            taken.push(worker.await.expect("no panic"));
        }
        taken.sort_unstable();
        assert_eq!(taken, ["later", "now"]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_figures_of_a_queue_have_upstreams_names_and_say_what_happened() {
        let metrics = Metrics::default();
        let queue = Queue::new("job", &metrics);
        queue.add("a");
        queue.add("a");
        queue.add("b");
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(next(&queue), Some("a"));
        tokio::time::advance(Duration::from_secs(2)).await;
        queue.done(&"a");
        assert_eq!(next(&queue), Some("b"));
        // Waits for its worker: it is in the queue all the same.
        queue.add("b");
        queue.retry("c");
        queue.add("d");
        assert_eq!(next(&queue), Some("d"));
        tokio::time::advance(Duration::from_millis(500)).await;
        let text = metrics.text();
        for line in [
            "workqueue_depth{name=\"job\"} 1",
            "workqueue_adds_total{name=\"job\"} 4",
            "workqueue_retries_total{name=\"job\"} 1",
            "workqueue_queue_duration_seconds_sum{name=\"job\"} 4.0",
            "workqueue_queue_duration_seconds_count{name=\"job\"} 3",
            "workqueue_work_duration_seconds_sum{name=\"job\"} 2.0",
            "workqueue_work_duration_seconds_bucket{le=\"1.0\",name=\"job\"} 0",
            "workqueue_work_duration_seconds_bucket{le=\"10.0\",name=\"job\"} 1",
            "workqueue_unfinished_work_seconds{name=\"job\"} 1.0",
            "workqueue_longest_running_processor_seconds{name=\"job\"} 0.5",
        ] {
            assert!(text.contains(&format!("{line}\n")), "{line} in {text}");
        }
        drop(queue);
        assert!(metrics.text().contains("workqueue_unfinished_work_seconds{name=\"job\"} 0.0\n"));
    }
}
