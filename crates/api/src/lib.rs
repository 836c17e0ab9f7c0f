//! The contract of the Job API: names, defaults, validation, feature gates, selectors, quantities, index sets.
//!
//! Everything here is a function of its arguments: no clock, no I/O, no randomness (a test in `xtask` sees to it).
//! The texts of errors and warnings are those of Kubernetes v1.36, because clients read them.

pub mod cron;
pub mod defaults;
pub mod draft;
mod equality;
pub mod field;
pub mod gates;
pub mod indexes;
pub mod names;
mod part;
pub mod protobuf;
pub mod quantity;
pub mod resources;
pub mod selector;
pub mod strategy;
pub mod validation;
mod view;
pub mod warnings;

pub use gates::Gates;
