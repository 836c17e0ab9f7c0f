//! The controllers: thin drivers of pure decisions.
//!
//! | module | what it drives |
//! |---|---|
//! | [`job`] | `windlass_job::decide`: Jobs and their pods |
//!
//! What they share: the watches (`watch`), the work queue (`queue`), who may write when (`turns`, `calls`), events for
//! people ([`events`]), figures for machines ([`metrics`]), and the objects as they come over the wire (`wire`).

mod calls;
pub mod events;
pub mod job;
pub mod metrics;
mod queue;
mod turns;
mod watch;
mod wire;

use std::sync::Arc;

use jiff::Timestamp;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
