//! How much is done at the same time: reads, writes and watches have room of their own, and no user takes all of it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::action::Action;
use crate::status::{Result, Status};

/// What a refused client is to wait.
const RETRY_AFTER_SECONDS: u64 = 1;

/// How many requests may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Reads, without watches.
    pub reads: usize,
    /// Writes.
    pub writes: usize,
    /// Requests of nobody: health.
    pub unknown: usize,
    /// Watches of one user.
    pub watches_each: usize,
    /// Watches of all users.
    pub watches: usize,
}

/// upstream: 400 reads and 200 writes.
impl Default for Limits {
    fn default() -> Self {
        Self { reads: 400, writes: 200, unknown: 20, watches_each: 1_000, watches: 10_000 }
    }
}

/// The room that is left.
#[derive(Debug)]
pub(super) struct Lanes {
    limits: Limits,
    reads: Arc<Semaphore>,
    writes: Arc<Semaphore>,
    unknown: Arc<Semaphore>,
    watches: Arc<Mutex<HashMap<String, usize>>>,
}

/// A place in a lane, until it is dropped.
#[derive(Debug)]
pub(super) enum Place {
    Request { _permit: OwnedSemaphorePermit },
    Watch { _watch: Watching },
}

/// A watch that is counted.
#[derive(Debug)]
pub(super) struct Watching {
    user: String,
    watches: Arc<Mutex<HashMap<String, usize>>>,
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = watches.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                watches.remove(&self.user);
            }
        }
    }
}

impl Lanes {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            reads: Arc::new(Semaphore::new(limits.reads)),
            writes: Arc::new(Semaphore::new(limits.writes)),
            unknown: Arc::new(Semaphore::new(limits.unknown)),
            watches: Arc::default(),
        }
    }

    /// A place for a request of nobody.
    pub(super) fn enter_unknown(&self) -> Result<Place> {
        take(&self.unknown)
    }

    /// A place for what a user wants to do; 429 when there is none.
    pub(super) fn enter(&self, user: &str, action: &Action) -> Result<Place> {
        if action.verb == "watch" {
            return self.watch(user);
        }
        take(if action.only_reads() { &self.reads } else { &self.writes })
    }

    fn watch(&self, user: &str) -> Result<Place> {
        let mut watches = self.watches.lock().unwrap_or_else(PoisonError::into_inner);
        let own = watches.get(user).copied().unwrap_or_default();
        if own >= self.limits.watches_each || watches.values().sum::<usize>() >= self.limits.watches {
            return Err(Status::too_many_requests(RETRY_AFTER_SECONDS));
        }
        watches.insert(user.to_owned(), own + 1);
        let watch = Watching { user: user.to_owned(), watches: Arc::clone(&self.watches) };
        Ok(Place::Watch { _watch: watch })
    }
}

fn take(lane: &Arc<Semaphore>) -> Result<Place> {
    match Arc::clone(lane).try_acquire_owned() {
        Ok(permit) => Ok(Place::Request { _permit: permit }),
        Err(_) => Err(Status::too_many_requests(RETRY_AFTER_SECONDS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::action::{Object, Resource};

    fn action(verb: &str) -> Action {
        Action { verb: verb.to_owned(), to: Object::Resource(Resource::default()) }
    }

    #[test]
    fn a_full_lane_refuses_until_somebody_leaves_and_leaves_the_others_alone() {
        let lanes = Lanes::new(Limits { reads: 1, writes: 1, unknown: 1, watches_each: 1, watches: 2 });
        let refused = Status::too_many_requests(1);
        for verb in ["get", "create", "watch"] {
            let place = lanes.enter("a", &action(verb)).expect("the first");
            assert_eq!(lanes.enter("a", &action(verb)).expect_err("full"), refused, "{verb}");
            drop(place);
            lanes.enter("a", &action(verb)).expect("room again");
        }
        let _a = lanes.enter("a", &action("watch")).expect("own room");
        let _b = lanes.enter("b", &action("watch")).expect("own room");
        assert_eq!(lanes.enter("c", &action("watch")).expect_err("all together"), refused);
    }
}
