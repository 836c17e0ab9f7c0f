//! The controllers: thin drivers of pure decisions.
//!
//! | module | what it drives |
//! |---|---|
//! | [`job`] | `windlass_job::decide`: Jobs and their pods |
//! | [`cron_job`] | a Job for each time of a schedule |
//! | [`namespace`] | namespaces that are deleted, and all that is in them |
//! | [`owner_gc`] | what no owner keeps is deleted |
//! | [`pod_gc`] | pods whose node is gone, or that nobody will end otherwise |
//! | [`ttl`] | finished Jobs are deleted when their time is up |
//!
//! What they share: the watches (`watch`), the work queue (`queue`), who may write when (`turns`, `calls`), events for
//! people ([`events`]), figures for machines ([`metrics`]), and the objects as they come over the wire (`wire`). On a
//! cluster there are also connections ([`connect`]) and the question who works ([`lease`]).

mod calls;
pub mod connect;
pub mod cron_job;
pub mod events;
pub mod job;
pub mod lease;
pub mod metrics;
pub mod namespace;
pub mod owner_gc;
pub mod pod_gc;
mod queue;
pub mod ttl;
mod turns;
mod watch;
mod wire;

use std::sync::Arc;

use jiff::Timestamp;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
