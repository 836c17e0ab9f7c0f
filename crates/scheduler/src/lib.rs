//! Which pod goes on which node, and who has to leave for it.
//!
//! | module | what it knows |
//! |---|---|
//! | [`pod`], [`labels`], [`resources`], [`cluster`] | the facts: pods, nodes and what is on them |
//! | [`fit`], [`affinity`], [`spread`] | whether a pod may go on a node |
//! | [`score`] | which node is the best |
//! | [`cycle`] | one try: all of this for one pod |
//! | [`preempt`] | who has to leave when there is no room |
//! | [`message`] | what a pod that does not fit is told |
//! | [`meter`] | what all this costs, by upstream's names of its parts |
//! | [`queue`], [`hints`] | whose turn it is, and when to try again |
//!
//! These decide and are pure: no clock, no I/O. The driver watches and writes: `driver` takes what is seen (`watched` reads it), `turn` takes
//! pods from the queue, `writes` are the requests, `events` and [`metrics`] tell people and machines.

pub mod affinity;
pub mod cluster;
pub mod cycle;
mod driver;
mod events;
pub mod fit;
pub mod hints;
pub mod labels;
pub mod message;
pub mod meter;
pub mod metrics;
pub mod pod;
pub mod preempt;
pub mod queue;
pub mod resources;
pub mod score;
pub mod spread;
#[cfg(test)]
mod testing;
mod turn;
mod watched;
mod writes;

use std::sync::Arc;

use jiff::Timestamp;

pub use driver::{Config, Placer, Scheduler};
pub use metrics::Metrics;
pub use watched::WatchedPod;

/// The name by which pods ask for this scheduler.
pub const NAME: &str = "default-scheduler";

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
