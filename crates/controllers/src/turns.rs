//! Who may write next: a bounded number of writes at a time, shared fairly between Jobs, fewer when the API server is
//! overloaded.
//!
//! Each Job has a lane of its own and lanes take turns, so that a Job with one pod does not wait behind the ten thousand
//! writes of another. No lane has all the slots: a newcomer finds one at once. When the server answers 429 the number of
//! slots is halved and nobody starts before the time that it named; each round without a 429 adds one slot again.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass_job::Uid;

/// A lane may have so many of four slots.
const LANE_QUARTERS: usize = 3;

/// The slots. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Turns {
    shared: Arc<Mutex<Shared>>,
}

#[derive(Debug)]
struct Shared {
    most: usize,
    limit: usize,
    taken: usize,
    lanes: HashMap<Uid, Lane>,
    /// Lanes in which somebody waits, the next first.
    order: VecDeque<Uid>,
    not_before: Option<Instant>,
    /// Grows with each 429: answers to what was sent before one say nothing about the time after it.
    era: u64,
    /// Writes that went well since the number of slots changed.
    good: usize,
}

#[derive(Debug, Default)]
struct Lane {
    taken: usize,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// Leave to write, until dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    lane: Uid,
    era: u64,
}

impl Turns {
    /// At most `most` at a time.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1);
        let shared = Shared {
            most,
            limit: most,
            taken: 0,
            lanes: HashMap::new(),
            order: VecDeque::new(),
            not_before: None,
            era: 0,
            good: 0,
        };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Waits for a turn in `lane`.
    pub(crate) async fn next(&self, lane: &Uid) -> Turn {
        let (sender, receiver) = oneshot::channel();
        self.shared.lock().wait(lane, sender);
        self.grant();
        receiver.await.expect("every waiter is granted a turn while there are any")
    }

    /// Writes that may be under way at the same time now.
    pub(crate) fn limit(&self) -> usize {
        self.shared.lock().limit
    }

    fn grant(&self) {
        loop {
            let (lane, era, waiter) = {
                let mut shared = self.shared.lock();
                let Some((lane, waiter)) = shared.pop(Instant::now()) else { return };
                (lane, shared.era, waiter)
            };
            // One who has gone away gives the turn back by dropping it.
            drop(waiter.send(Turn { turns: self.clone(), lane, era }));
        }
    }
}

impl Turn {
    /// The write went well.
    pub(crate) fn went_well(&self) {
        let mut shared = self.turns.shared.lock();
        if self.era != shared.era || shared.limit == shared.most {
            return;
        }
        shared.good += 1;
        if shared.good >= shared.limit {
            shared.limit += 1;
            shared.good = 0;
        }
    }

    /// The server has too much to do and wants to be left alone for a while.
    pub(crate) fn was_pushed_back(&self, retry_after: Duration) {
        let until = Instant::now() + retry_after;
        {
            let mut shared = self.turns.shared.lock();
            if self.era == shared.era {
                shared.limit = (shared.limit / 2).max(1);
                (shared.good, shared.era) = (0, shared.era + 1);
            }
            if shared.not_before.is_some_and(|other| other >= until) {
                return;
            }
            shared.not_before = Some(until);
        }
        let turns = self.turns.clone();
        tokio::spawn(async move {
            tokio::time::sleep_until(until).await;
            turns.grant();
        });
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.shared.lock().give_back(&self.lane);
        self.turns.grant();
    }
}

impl Shared {
    fn wait(&mut self, lane: &Uid, waiter: oneshot::Sender<Turn>) {
        let waiting = &mut self.lanes.entry(lane.clone()).or_default().waiting;
        waiting.push_back(waiter);
        if waiting.len() == 1 {
            self.order.push_back(lane.clone());
        }
    }

    /// The next lane's first waiter, if there is a slot for it.
    fn pop(&mut self, now: Instant) -> Option<(Uid, oneshot::Sender<Turn>)> {
        if self.taken >= self.limit || self.not_before.is_some_and(|until| until > now) {
            return None;
        }
        self.not_before = None;
        let share = (self.limit * LANE_QUARTERS).div_ceil(4);
        let next =
            self.order.iter().position(|lane| self.lanes.get(lane).is_some_and(|l| l.taken < share))?;
        let key = self.order.remove(next)?;
        let lane = self.lanes.get_mut(&key)?;
        let waiter = lane.waiting.pop_front()?;
        lane.taken += 1;
        self.taken += 1;
        if !lane.waiting.is_empty() {
            self.order.push_back(key.clone());
        }
        Some((key, waiter))
    }

    fn give_back(&mut self, key: &Uid) {
        self.taken -= 1;
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.taken -= 1;
            if lane.taken == 0 && lane.waiting.is_empty() {
                self.lanes.remove(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn take(turns: &Turns, lane: &str) -> Option<Turn> {
        turns.next(&Uid::new(lane)).now_or_never()
    }

    #[tokio::test]
    async fn a_newcomer_finds_a_slot_that_a_busy_lane_can_not_have() {
        let turns = Turns::new(4);
        let busy: Vec<Turn> = (0..3).filter_map(|_| take(&turns, "big")).collect();
        assert_eq!(busy.len(), 3);
        assert!(take(&turns, "big").is_none(), "its share is used up");
        assert!(take(&turns, "small").is_some());
    }

    #[tokio::test]
    async fn lanes_take_turns() {
        let turns = Turns::new(1);
        let first = take(&turns, "big").expect("free");
        let mut waiting: Vec<_> = ["big", "big", "small", "big"]
            .into_iter()
            .map(|lane| {
                let turns = turns.clone();
                let mut waiter = Box::pin(async move { turns.next(&Uid::new(lane)).await });
                assert!((&mut waiter).now_or_never().is_none());
                (lane, waiter)
            })
            .collect();
        drop(first);
        let mut order = Vec::new();
        while !waiting.is_empty() {
            let (at, turn) = waiting
                .iter_mut()
                .enumerate()
                .find_map(|(at, (_, waiter))| Some((at, waiter.now_or_never()?)))
                .expect("somebody has the slot");
            order.push(waiting.remove(at).0);
            drop(turn);
        }
        assert_eq!(order, ["big", "small", "big", "big"]);
    }

    #[tokio::test]
    async fn a_turn_for_one_who_has_gone_away_goes_to_the_next() {
        let turns = Turns::new(1);
        let first = take(&turns, "a").expect("free");
        drop(take(&turns, "b"));
        let lane = Uid::new("c");
        let mut next = Box::pin(turns.next(&lane).map(drop));
        assert!((&mut next).now_or_never().is_none());
        drop(first);
        assert!(next.now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_429_nobody_starts_before_the_time_that_the_server_named_and_then_half_as_many() {
        let turns = Turns::new(8);
        let sent: Vec<Turn> = (0..6).filter_map(|_| take(&turns, "a")).collect();
        for turn in &sent {
            turn.was_pushed_back(Duration::from_secs(2));
        }
        assert_eq!(turns.limit(), 4, "six answers to one burst are one push back");
        drop(sent);
        assert!(take(&turns, "a").is_none());
        let start = Instant::now();
        let turn = turns.next(&Uid::new("a")).await;
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        for _ in 0..4 {
            turn.went_well();
        }
        assert_eq!(turns.limit(), 5, "a round that went well");
        for _ in 0..100 {
            turn.went_well();
        }
        assert_eq!(turns.limit(), 8, "never more than at first");
    }
}
