//! What the tests of this crate share: builders of Jobs and pods, and a bench on which a Job runs.

#![allow(dead_code, unused_imports, reason = "each test file uses its own part")]

mod bench;
mod build;
mod server;

pub use bench::Bench;
pub use build::{JobBuilder, PodBuilder, at, conditions, job, merge, on_condition, on_exit, pod, rfc3339};
