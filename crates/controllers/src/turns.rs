//! Who may write next: a bounded number of writes at a time, shared fairly between Jobs, fewer when the API server is
//! overloaded.
//!
//! Each Job has a lane of its own and lanes take turns of a few writes, so that a Job with one pod does not wait behind the
//! ten thousand writes of another, and of many small Jobs each is done with its pods before the next begins: one status then
//! says what became of all of them. A turn goes on with what the answers lead to: the first pods of a Job are made one after
//! the other. In a lane, what is urgent goes first. No lane has all the slots: a newcomer finds one at once.
//!
//! The number of slots follows the server. Writes that only queue up there are not done sooner, and everybody's next one
//! waits behind them: when answers take several times as long as the quickest ones there are fewer slots, and when all
//! slots are used and answers are still quick there are more. When the server answers 429 the number of slots is halved
//! and nobody starts before the time that it named.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;
use windlass_job::Uid;

/// A lane may have so many of four slots.
const LANE_QUARTERS: usize = 3;
/// Writes that a lane may begin before it is the next one's turn: as many as a small Job takes to get on by a step, which are
/// those to its pods, and its status before and after.
const IN_A_ROW: usize = 16;
/// A lane that has nothing to write for so long has ended its turn.
const TURN_PAUSE: Duration = Duration::from_millis(50);
/// Slots at the start, before anything is known about the server.
const LIMIT_START: usize = 16;
/// Slow answers do not take more slots than leave so many: as many as keep a small server busy.
const LIMIT_CROWDED: usize = 24;
/// Answers are slow when a round of them takes so many times as long as the quickest one, on average, and this longer.
const CROWDED_TIMES: u32 = 4;
const CROWDED_SLACK: Duration = Duration::from_millis(5);
/// The quickest answer counts for one of so many parts less with each round: servers change.
const QUICKEST_FADES: u32 = 64;

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
    /// Lanes that have nothing to write, and since when.
    idle: VecDeque<(Instant, Uid)>,
    not_before: Option<Instant>,
    /// Grows with each 429: answers to what was sent before one say nothing about the time after it.
    era: u64,
    /// The present round: writes that went well, how long they took, and whether all slots were used in it.
    good: usize,
    took: Duration,
    was_full: bool,
    quickest: Duration,
    /// Answers were slow, or 429, before: no more doubling.
    was_crowded: bool,
}

#[derive(Debug, Default)]
struct Lane {
    taken: usize,
    /// Begun since it is this lane's turn.
    in_a_row: usize,
    /// Since when there is nothing to write.
    idle_since: Option<Instant>,
    urgent: VecDeque<oneshot::Sender<Turn>>,
    waiting: VecDeque<oneshot::Sender<Turn>>,
}

/// Who goes first in a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Urgency {
    /// Before all others.
    Urgent,
    /// One after the other.
    Usual,
}

impl Lane {
    fn is_waiting(&self) -> bool {
        !self.urgent.is_empty() || !self.waiting.is_empty()
    }
}

/// Leave to write, until dropped.
#[derive(Debug)]
pub(crate) struct Turn {
    turns: Turns,
    lane: Uid,
    urgency: Urgency,
    era: u64,
    is_given_back: bool,
}

impl Turns {
    /// At most `most` at a time.
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1);
        let shared = Shared {
            most,
            limit: most.min(LIMIT_START),
            taken: 0,
            lanes: HashMap::new(),
            order: VecDeque::new(),
            idle: VecDeque::new(),
            not_before: None,
            era: 0,
            good: 0,
            took: Duration::ZERO,
            was_full: false,
            quickest: Duration::MAX,
            was_crowded: false,
        };
        Self { shared: Arc::new(Mutex::new(shared)) }
    }

    /// Waits for a turn in `lane`.
    pub(crate) async fn next(&self, lane: &Uid, urgency: Urgency) -> Turn {
        let (sender, receiver) = oneshot::channel();
        self.shared.lock().wait(lane, urgency, sender);
        self.grant();
        receiver.await.expect("every waiter is granted a turn while there are any")
    }

    /// Writes that may be under way at the same time now.
    pub(crate) fn limit(&self) -> usize {
        self.shared.lock().limit
    }

    fn grant(&self) {
        loop {
            let (lane, urgency, era, waiter) = {
                let mut shared = self.shared.lock();
                let Some((lane, urgency, waiter)) = shared.pop(Instant::now()) else { return };
                (lane, urgency, shared.era, waiter)
            };
            // One who has gone away gives the turn back by dropping it.
            drop(waiter.send(Turn { turns: self.clone(), lane, urgency, era, is_given_back: false }));
        }
    }
}

impl Turn {
    /// Gives the turn back and waits for another one.
    pub(crate) async fn renew(&mut self) {
        self.give_back();
        *self = self.turns.next(&self.lane, self.urgency).await;
    }

    fn give_back(&mut self) {
        if !std::mem::replace(&mut self.is_given_back, true) {
            self.turns.shared.lock().give_back(&self.lane);
            self.turns.grant();
        }
    }

    /// The write went well, and took so long.
    pub(crate) fn went_well(&self, took: Duration) {
        let mut shared = self.turns.shared.lock();
        if self.era == shared.era {
            shared.went_well(took);
        }
    }

    /// The server has too much to do and wants to be left alone for a while.
    pub(crate) fn was_pushed_back(&self, retry_after: Duration) {
        let until = Instant::now() + retry_after;
        {
            let mut shared = self.turns.shared.lock();
            if self.era == shared.era {
                shared.limit = (shared.limit / 2).max(1);
                shared.era += 1;
                shared.was_crowded = true;
                shared.begin_round();
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
        self.give_back();
    }
}

impl Shared {
    fn begin_round(&mut self) {
        (self.good, self.took, self.was_full) = (0, Duration::ZERO, false);
    }

    fn went_well(&mut self, took: Duration) {
        self.good += 1;
        self.took += took;
        self.quickest = self.quickest.min(took);
        if self.good < self.limit {
            return;
        }
        let mean = self.took / u32::try_from(self.good).unwrap_or(u32::MAX);
        let is_crowded = mean > self.quickest.saturating_mul(CROWDED_TIMES).saturating_add(CROWDED_SLACK);
        if is_crowded {
            self.was_crowded = true;
            self.limit = self.limit.min(LIMIT_CROWDED.max(self.limit * 3 / 4));
        } else if self.was_full || self.limit < LIMIT_START {
            let more = if self.was_crowded { 1 } else { self.limit };
            self.limit = (self.limit + more).min(self.most);
        }
        self.quickest += self.quickest / QUICKEST_FADES;
        self.begin_round();
    }

    fn wait(&mut self, key: &Uid, urgency: Urgency, waiter: oneshot::Sender<Turn>) {
        self.end_turns(Instant::now());
        let lane = self.lanes.entry(key.clone()).or_default();
        lane.idle_since = None;
        if !lane.is_waiting() && lane.in_a_row == 0 {
            self.order.push_back(key.clone());
        } else if !lane.is_waiting() {
            self.order.push_front(key.clone());
        }
        match urgency {
            Urgency::Urgent => lane.urgent.push_back(waiter),
            Urgency::Usual => lane.waiting.push_back(waiter),
        }
    }

    /// The next lane's first waiter, if there is a slot for it.
    fn pop(&mut self, now: Instant) -> Option<(Uid, Urgency, oneshot::Sender<Turn>)> {
        if self.taken >= self.limit {
            self.was_full |= !self.order.is_empty();
            return None;
        }
        if self.not_before.is_some_and(|until| until > now) {
            return None;
        }
        self.not_before = None;
        let share = (self.limit * LANE_QUARTERS).div_ceil(4);
        let has_share = |lane: &Uid| self.lanes.get(lane).is_some_and(|lane| lane.taken < share);
        let Some(next) = self.order.iter().position(has_share) else {
            // Those who wait have their share: with more slots they would have more.
            self.was_full |= !self.order.is_empty();
            return None;
        };
        let key = self.order.remove(next)?;
        let lane = self.lanes.get_mut(&key)?;
        let urgent = lane.urgent.pop_front().map(|waiter| (Urgency::Urgent, waiter));
        let (urgency, waiter) =
            urgent.or_else(|| lane.waiting.pop_front().map(|waiter| (Urgency::Usual, waiter)))?;
        lane.taken += 1;
        self.taken += 1;
        lane.in_a_row = (lane.in_a_row + 1) % IN_A_ROW;
        if lane.is_waiting() && lane.in_a_row > 0 {
            self.order.push_front(key.clone());
        } else if lane.is_waiting() {
            self.order.push_back(key.clone());
        }
        Some((key, urgency, waiter))
    }

    /// Forgets lanes that have had nothing to write for a while.
    fn end_turns(&mut self, now: Instant) {
        while let Some((since, _)) = self.idle.front()
            && now.duration_since(*since) >= TURN_PAUSE
        {
            let Some((since, key)) = self.idle.pop_front() else { return };
            if self.lanes.get(&key).is_some_and(|lane| lane.idle_since == Some(since)) {
                self.lanes.remove(&key);
            }
        }
    }

    fn give_back(&mut self, key: &Uid) {
        self.taken -= 1;
        if let Some(lane) = self.lanes.get_mut(key) {
            lane.taken -= 1;
            if lane.taken == 0 && !lane.is_waiting() {
                let now = Instant::now();
                lane.idle_since = Some(now);
                self.idle.push_back((now, key.clone()));
                self.end_turns(now);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    fn take(turns: &Turns, lane: &str) -> Option<Turn> {
        turns.next(&Uid::new(lane), Urgency::Usual).now_or_never()
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
    async fn lanes_take_turns_of_a_few_writes() {
        let turns = Turns::new(1);
        let first = take(&turns, "big").expect("free");
        let big = [vec!["big"; IN_A_ROW + 2], vec!["small"], vec!["big"]].concat();
        let mut waiting: Vec<_> = big
            .into_iter()
            .map(|lane| {
                let turns = turns.clone();
                let mut waiter = Box::pin(async move { turns.next(&Uid::new(lane), Urgency::Usual).await });
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
        // One more was begun before.
        assert_eq!(order, [vec!["big"; IN_A_ROW - 1], vec!["small"], vec!["big"; 4]].concat());
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_goes_on_with_what_an_answer_leads_to_unless_that_takes_long() {
        for (pause, goes_on) in [(Duration::ZERO, true), (TURN_PAUSE, false)] {
            let turns = Turns::new(1);
            let first = take(&turns, "a").expect("free");
            let [b, c] = ["b", "c"].map(Uid::new);
            let mut b = Box::pin(turns.next(&b, Urgency::Usual));
            let mut c = Box::pin(turns.next(&c, Urgency::Usual));
            assert!((&mut b).now_or_never().is_none() && (&mut c).now_or_never().is_none());
            drop(first);
            let b = b.now_or_never().expect("its turn");
            tokio::time::advance(pause).await;
            let a = Uid::new("a");
            let mut again = Box::pin(turns.next(&a, Urgency::Usual));
            assert!((&mut again).now_or_never().is_none());
            drop(b);
            let (again, c) = (again.now_or_never(), c.now_or_never());
            assert_eq!((again.is_some(), c.is_some()), (goes_on, !goes_on), "after {pause:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_lane_that_has_nothing_to_write_is_forgotten() {
        let turns = Turns::new(4);
        drop(take(&turns, "a"));
        drop(take(&turns, "a"));
        tokio::time::advance(TURN_PAUSE).await;
        let b = take(&turns, "b").expect("free");
        assert_eq!(turns.shared.lock().lanes.keys().collect::<Vec<_>>(), [&Uid::new("b")]);
        drop(b);
        assert_eq!(turns.shared.lock().idle.len(), 1);
    }

    #[tokio::test]
    async fn in_a_lane_what_is_urgent_goes_first() {
        let turns = Turns::new(1);
        let first = take(&turns, "a").expect("free");
        let lane = Uid::new("a");
        let mut usual = Box::pin(turns.next(&lane, Urgency::Usual));
        assert!((&mut usual).now_or_never().is_none());
        let mut urgent = Box::pin(turns.next(&lane, Urgency::Urgent));
        assert!((&mut urgent).now_or_never().is_none());
        drop(first);
        assert!((&mut usual).now_or_never().is_none());
        drop(urgent.now_or_never().expect("its turn"));
        assert!(usual.now_or_never().is_some());
    }

    #[tokio::test]
    async fn one_who_renews_a_turn_waits_behind_the_others() {
        let turns = Turns::new(1);
        let mut first = take(&turns, "a").expect("free");
        let lane = Uid::new("b");
        let mut second = Box::pin(turns.next(&lane, Urgency::Usual));
        assert!((&mut second).now_or_never().is_none());
        assert!(first.renew().now_or_never().is_none(), "the slot is the other's");
        let second = second.now_or_never().expect("its turn");
        drop(second);
        drop(first);
        assert!(take(&turns, "c").is_some(), "nobody holds it twice");
    }

    #[tokio::test]
    async fn a_turn_for_one_who_has_gone_away_goes_to_the_next() {
        let turns = Turns::new(1);
        let first = take(&turns, "a").expect("free");
        drop(take(&turns, "b"));
        let lane = Uid::new("c");
        let mut next = Box::pin(turns.next(&lane, Urgency::Usual).map(drop));
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
        let turn = turns.next(&Uid::new("a"), Urgency::Usual).await;
        assert_eq!(start.elapsed(), Duration::from_secs(2));
        for _ in 0..4 {
            turn.went_well(Duration::ZERO);
        }
        assert_eq!(turns.limit(), 5, "a round that went well");
        for _ in 0..100 {
            turn.went_well(Duration::ZERO);
        }
        assert_eq!(turns.limit(), 8, "never more than allowed");
    }

    /// A round in which all slots are used, and each write takes so long.
    fn round(turns: &Turns, millis: u64) -> usize {
        let lanes = ["a", "b", "c"];
        let taken: Vec<Turn> =
            lanes.iter().cycle().take(turns.limit()).filter_map(|l| take(turns, l)).collect();
        assert!(take(turns, "d").is_none(), "all are taken");
        taken.iter().for_each(|turn| turn.went_well(Duration::from_millis(millis)));
        turns.limit()
    }

    // No runtime: it would make a task that polls so often wait.
    #[test]
    fn there_are_more_slots_while_answers_are_quick_and_fewer_when_they_are_slow() {
        let turns = Turns::new(64);
        assert_eq!(turns.limit(), 16);
        assert_eq!([round(&turns, 2), round(&turns, 3), round(&turns, 12)], [32, 64, 64], "quick");
        let slow: Vec<usize> = (0..8).map(|_| round(&turns, 20)).collect();
        assert_eq!(slow, [48, 36, 27, 24, 24, 24, 24, 24]);
        assert_eq!([round(&turns, 5), round(&turns, 5)], [25, 26], "with more care");
    }

    #[test]
    fn slots_that_nobody_needs_do_not_become_more() {
        let turns = Turns::new(64);
        let turn = take(&turns, "a").expect("free");
        (0..100).for_each(|_| turn.went_well(Duration::from_millis(2)));
        assert_eq!(turns.limit(), 16);
    }
}
