//! Which pod goes on which node: the first, by name, on which it fits.
//!
//! `fit` and `queue` decide and are pure; `driver` watches and writes.

mod driver;
pub mod fit;
pub mod queue;

pub use driver::Scheduler;
