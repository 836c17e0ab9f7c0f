//! The controllers: thin drivers of pure decisions.
//!
//! | module | what it drives |
//! |---|---|
//! | [`job`] | `windlass_job::decide`: Jobs and their pods |
//! | [`cron_job`] | a Job for each time of a schedule |
//! | [`disruption`] | what disruption budgets allow, and marks of disruptions that never came |
//! | [`namespace`] | namespaces that are deleted, and all that is in them |
//! | [`node_lifecycle`] | nodes that are silent or not well, and what that means for their pods |
//! | [`owner_gc`] | what no owner keeps is deleted |
//! | [`pod_gc`] | pods whose node is gone, or that nobody will end otherwise |
//! | [`service_account`] | the account and the certificate that every namespace has |
//! | [`taint_eviction`] | pods leave nodes whose taints they do not tolerate |
//! | [`ttl`] | finished Jobs are deleted when their time is up |
//!
//! What they share: the watches (`watch`, `pod_watch`), what is known of pods and nodes ([`cluster`]), how a pod is ended
//! (`ending`), the work queue (`queue`), who may write when (`turns`, `calls`), events for people ([`events`]), figures for
//! machines ([`metrics`]), and the objects as they come over the wire (`wire`). On a cluster there are also connections
//! ([`connect`]) and the question who works ([`lease`]).

mod calls;
pub mod cluster;
pub mod connect;
pub mod cron_job;
pub mod disruption;
mod ending;
pub mod events;
pub mod job;
pub mod lease;
pub mod metrics;
pub mod namespace;
pub mod node_lifecycle;
pub mod owner_gc;
pub mod pod_gc;
mod pod_watch;
mod queue;
pub mod service_account;
pub mod taint_eviction;
pub mod ttl;
mod turns;
mod watch;
mod wire;

use std::sync::Arc;

use jiff::Timestamp;

pub use ending::Marks;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;
