//! Who asks, and whether they may: stands between the network and the router.
//!
//! ```text
//!  request ─► certificate or token ─► Identity ─► Action ─► nodes, RBAC ─► reviews, or Server::router()
//!               401 without                          403 without
//! ```
//!
//! Our own controllers talk to the router itself, inside the process, and pass none of this.

pub mod action;
pub mod audit;
pub mod certificate;
mod defaults;
mod escalation;
mod guard;
pub mod identity;
mod lanes;
pub(crate) mod nodes;
pub(crate) mod policy;
mod reviews;
pub mod tokens;

pub use guard::{Guard, Peer};
pub use identity::Identity;
pub use lanes::Limits;
