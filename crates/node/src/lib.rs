//! Runs pods on this machine and reports every end truthfully.
//!
//! Decisions are pure and stand apart from the driver:
//!
//! ```text
//!   watch ─► agent ─► pod (one task each) ─► runtimes::host ═socket═► keeper ─► processes
//!                       │  lifecycle::next: what to do now
//!                       │  phase::of, status::build: what to report
//!                       └► pods/status
//!   apiserver ─► streams (logs, exec, attach) ─► logs, runtimes::host
//! ```
//!
//! Read `lifecycle` for the order of a pod's life, `phase` for how it ends, `runtimes::keeper` for how
//! nothing is left behind.

pub mod backoff;
pub mod container;
pub mod env;
pub mod lifecycle;
pub mod logs;
pub mod phase;
pub mod runtimes;
pub mod status;
pub mod streams;

mod agent;
mod pod;
mod prepare;
mod register;
mod writes;

pub use agent::{Agent, Capacity, Config, Error};
