//! How much is done at the same time, and for whom: lanes that do not take room from each other, and turns by user in each.
//!
//! ```text
//!  nodes, leases ──► seats ┐
//!  controllers   ──► seats ├─ full: wait in the user's own line; seats are given to users in turn
//!  users         ──► seats ┘  line full, or no seat in time: 429
//!  nobody        ──► seats, and no waiting
//!  watches and other streams are counted by user, and do not take seats
//! ```

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::action::{Action, Object};
use super::identity::Identity;
use crate::status::{Result, Status};

/// What a refused client is to wait.
const RETRY_AFTER_SECONDS: u64 = 1;

/// How many requests may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reads of all lanes, without watches.
    pub reads: usize,
    /// Writes of all lanes.
    pub writes: usize,
    /// Requests of nobody: health.
    pub unknown: usize,
    /// Requests of one user that wait for a seat.
    pub waiting_each: usize,
    /// How long a request waits for a seat.
    pub wait_max: Duration,
    /// Watches and other streams of one user.
    pub watches_each: usize,
    /// Watches and other streams of all users.
    pub watches: usize,
}

/// upstream: 400 reads and 200 writes, lines of 50, and a quarter of the request's time to wait.
impl Default for Limits {
    fn default() -> Self {
        Self {
            reads: 400,
            writes: 200,
            unknown: 20,
            waiting_each: 50,
            wait_max: Duration::from_secs(15),
            watches_each: 1_000,
            watches: 10_000,
        }
    }
}

/// Whose requests share seats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Lane {
    /// Nodes, and leases of everybody: who misses these is taken for dead.
    Nodes,
    /// The parts of the system.
    Controllers,
    /// Everybody else.
    Users,
}

impl Lane {
    const ALL: [Self; 3] = [Self::Nodes, Self::Controllers, Self::Users];

    /// Of how many in a hundred seats. upstream's shares, for three lanes.
    fn percent(self) -> usize {
        match self {
            Self::Nodes => 25,
            Self::Controllers => 35,
            Self::Users => 40,
        }
    }

    fn of(who: &Identity, action: &Action) -> Self {
        let is_lease = match &action.to {
            Object::Resource(target) => target.group == "coordination.k8s.io" && target.resource == "leases",
            Object::Path(_) => false,
        };
        if is_lease || who.is_in("system:nodes") {
            Self::Nodes
        } else if who.name.starts_with("system:kube-") || who.is_in("system:serviceaccounts:kube-system") {
            Self::Controllers
        } else {
            Self::Users
        }
    }
}

/// The room that is left.
#[derive(Debug)]
pub(super) struct Lanes {
    limits: Limits,
    reads: HashMap<Lane, Arc<Seats>>,
    writes: HashMap<Lane, Arc<Seats>>,
    unknown: Arc<Seats>,
    streams: Arc<Mutex<HashMap<String, usize>>>,
}

/// A place in a lane, until it is dropped.
#[derive(Debug)]
pub(super) enum Place {
    Request { _seat: Seat },
    Stream { _stream: Streaming },
}

impl Lanes {
    pub(super) fn new(limits: Limits) -> Self {
        let lanes = |seats: usize| {
            let share = |lane: Lane| Seats::new((seats * lane.percent() / 100).max(seats.min(1)));
            Lane::ALL.into_iter().map(|lane| (lane, share(lane))).collect()
        };
        Self {
            limits,
            reads: lanes(limits.reads),
            writes: lanes(limits.writes),
            unknown: Seats::new(limits.unknown),
            streams: Arc::default(),
        }
    }

    /// A place for a request of nobody.
    pub(super) fn enter_unknown(&self) -> Result<Place> {
        self.unknown.try_take().map(|seat| Place::Request { _seat: seat }).ok_or_else(refused)
    }

    /// A place for what a user wants to do; 429 when there is none in time.
    pub(super) async fn enter(&self, who: &Identity, action: &Action) -> Result<Place> {
        if action.is_stream() {
            return self.stream(&who.name);
        }
        let lane = Lane::of(who, action);
        let seats = if action.only_reads() { &self.reads[&lane] } else { &self.writes[&lane] };
        let seat = seats.take(&who.name, self.limits.waiting_each, self.limits.wait_max).await;
        seat.map(|seat| Place::Request { _seat: seat }).ok_or_else(refused)
    }

    /// Requests under way: reads, and writes.
    pub(super) fn busy(&self) -> (usize, usize) {
        let sum = |lanes: &HashMap<Lane, Arc<Seats>>| lanes.values().map(|seats| seats.busy()).sum();
        (sum(&self.reads), sum(&self.writes))
    }

    /// Streams that are open.
    pub(super) fn streaming(&self) -> usize {
        lock(&self.streams).values().sum()
    }

    fn stream(&self, user: &str) -> Result<Place> {
        let mut streams = lock(&self.streams);
        let own = streams.get(user).copied().unwrap_or_default();
        if own >= self.limits.watches_each || streams.values().sum::<usize>() >= self.limits.watches {
            return Err(refused());
        }
        streams.insert(user.to_owned(), own + 1);
        let stream = Streaming { user: user.to_owned(), streams: Arc::clone(&self.streams) };
        Ok(Place::Stream { _stream: stream })
    }
}

fn refused() -> Status {
    Status::too_many_requests(RETRY_AFTER_SECONDS)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that is counted.
#[derive(Debug)]
pub(super) struct Streaming {
    user: String,
    streams: Arc<Mutex<HashMap<String, usize>>>,
}

impl Drop for Streaming {
    fn drop(&mut self) {
        let mut streams = lock(&self.streams);
        if let Some(count) = streams.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                streams.remove(&self.user);
            }
        }
    }
}

/// The seats of a lane, and who waits for one.
#[derive(Debug)]
struct Seats {
    max: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    free: usize,
    /// Of each user who waits, in the order in which they came.
    lines: HashMap<String, VecDeque<oneshot::Sender<Seat>>>,
    /// Whose turn it is, first to last.
    turns: VecDeque<String>,
}

impl Seats {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { max, state: Mutex::new(State { free: max, ..State::default() }) })
    }

    fn busy(&self) -> usize {
        self.max - lock(&self.state).free
    }

    fn try_take(self: &Arc<Self>) -> Option<Seat> {
        let mut state = lock(&self.state);
        state.free = state.free.checked_sub(1)?;
        Some(Seat(Some(Arc::clone(self))))
    }

    async fn take(self: &Arc<Self>, user: &str, line_max: usize, wait_max: Duration) -> Option<Seat> {
        if let Some(seat) = self.try_take() {
            return Some(seat);
        }
        let turn = self.stand_in_line(user, line_max)?;
        tokio::time::timeout(wait_max, turn).await.ok()?.ok()
    }

    /// `None` when the user's line is full.
    fn stand_in_line(&self, user: &str, line_max: usize) -> Option<oneshot::Receiver<Seat>> {
        let mut state = lock(&self.state);
        let line = state.lines.entry(user.to_owned()).or_default();
        // Those who have given up are in nobody's way.
        line.retain(|waiting| !waiting.is_closed());
        if line.len() >= line_max {
            return None;
        }
        let (sender, receiver) = oneshot::channel();
        line.push_back(sender);
        if line.len() == 1 && !state.turns.iter().any(|waiting| waiting == user) {
            state.turns.push_back(user.to_owned());
        }
        Some(receiver)
    }

    /// Who is next, one of each user in turn.
    fn next(&self) -> Option<oneshot::Sender<Seat>> {
        let mut state = lock(&self.state);
        while let Some(user) = state.turns.pop_front() {
            let line = state.lines.get_mut(&user);
            let waiting = line.and_then(VecDeque::pop_front);
            if state.lines.get(&user).is_some_and(|line| !line.is_empty()) {
                state.turns.push_back(user);
            } else {
                state.lines.remove(&user);
            }
            if waiting.is_some() {
                return waiting;
            }
        }
        state.free += 1;
        None
    }
}

/// Given back when dropped: to who waits longest for their turn.
#[derive(Debug)]
pub(super) struct Seat(Option<Arc<Seats>>);

impl Drop for Seat {
    fn drop(&mut self) {
        let Some(seats) = self.0.take() else { return };
        while let Some(waiting) = seats.next() {
            match waiting.send(Seat(Some(Arc::clone(&seats)))) {
                Ok(()) => return,
                // They have given up: the seat is still ours to give.
                Err(mut seat) => seat.0 = None,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::action::Resource;

    fn action(verb: &str) -> Action {
        Action { verb: verb.to_owned(), to: Object::Resource(Resource::default()) }
    }

    fn user(name: &str) -> Identity {
        Identity::new(name, Vec::new())
    }

    fn small() -> Limits {
        Limits {
            reads: 3,
            writes: 3,
            unknown: 1,
            waiting_each: 2,
            wait_max: Duration::from_secs(15),
            watches_each: 1,
            watches: 2,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_lane_refuses_after_a_while_and_leaves_the_others_alone() {
        let lanes = Lanes::new(small());
        let refused = Status::too_many_requests(1);
        for verb in ["get", "create"] {
            let place = lanes.enter(&user("a"), &action(verb)).await.expect("the first");
            assert_eq!(lanes.enter(&user("b"), &action(verb)).await.expect_err("full"), refused, "{verb}");
            let node = Identity::new("system:node:n", vec!["system:nodes".to_owned()]);
            lanes.enter(&node, &action(verb)).await.expect("a lane of their own");
            let controller = user("system:kube-controller-manager");
            lanes.enter(&controller, &action(verb)).await.expect("a lane of their own");
            let mut lease = action(verb);
            lease.to = Object::Resource(Resource {
                group: "coordination.k8s.io".to_owned(),
                resource: "leases".to_owned(),
                ..Resource::default()
            });
            lanes.enter(&user("b"), &lease).await.expect("leases are in the lane of nodes");
            drop(place);
            lanes.enter(&user("a"), &action(verb)).await.expect("room again");
        }
        assert_eq!(lanes.busy(), (0, 0));
        let _place = lanes.enter_unknown().expect("the first");
        assert_eq!(lanes.enter_unknown().expect_err("full"), refused);
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_with_many_requests_does_not_starve_somebody_with_one() {
        let lanes = Arc::new(Lanes::new(small()));
        let held = lanes.enter(&user("many"), &action("get")).await.expect("the only seat");
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut waiting = Vec::new();
        for name in ["many", "many", "one", "other"] {
            let (lanes, order) = (Arc::clone(&lanes), Arc::clone(&order));
            waiting.push(tokio::spawn(async move {
                let _place = lanes.enter(&user(name), &action("get")).await.expect("a seat");
                lock(&order).push(name);
            }));
            tokio::task::yield_now().await;
        }
        let refused = lanes.enter(&user("many"), &action("get")).await.expect_err("the line is full");
        assert_eq!(refused, Status::too_many_requests(1));
        drop(held);
        for task in waiting {
            task.await.expect("ended");
        }
        assert_eq!(*lock(&order), ["many", "one", "other", "many"]);
        assert_eq!(lanes.busy(), (0, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn a_seat_passes_by_those_who_have_given_up() {
        let lanes = Lanes::new(small());
        let held = lanes.enter(&user("a"), &action("get")).await.expect("the only seat");
        for _ in 0..2 {
            let (b, get) = (user("b"), action("get"));
            let gone = lanes.enter(&b, &get);
            assert!(tokio::time::timeout(Duration::from_secs(1), gone).await.is_err());
        }
        assert_eq!(lanes.busy(), (1, 0));
        drop(held);
        assert_eq!(lanes.busy(), (0, 0));
        lanes.enter(&user("c"), &action("get")).await.expect("room");
    }

    #[tokio::test]
    async fn streams_are_counted_for_each_user_and_for_all() {
        let lanes = Lanes::new(small());
        let refused = Status::too_many_requests(1);
        let a = lanes.enter(&user("a"), &action("watch")).await.expect("own room");
        assert_eq!(lanes.enter(&user("a"), &action("watch")).await.expect_err("one each"), refused);
        let _b = lanes.enter(&user("b"), &action("watch")).await.expect("own room");
        assert_eq!(lanes.enter(&user("c"), &action("watch")).await.expect_err("all together"), refused);
        assert_eq!(lanes.streaming(), 2);
        drop(a);
        lanes.enter(&user("c"), &action("watch")).await.expect("room again");
    }
}
