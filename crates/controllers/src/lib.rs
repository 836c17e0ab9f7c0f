//! The controllers: thin drivers of pure decisions.
//!
//! | module | what it drives |
//! |---|---|
//! | [`job`] | `windlass_job::decide`: Jobs and their pods |
//!
//! What they share: the watches (`watch`), the work queue (`queue`), events for people ([`events`]), and the objects as
//! they come over the wire (`wire`).

pub mod events;
pub mod job;
mod queue;
mod watch;
mod wire;

use std::sync::Arc;

use jiff::Timestamp;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
