//! The Job path in one thread, from one seed, with faults and a checker.
//!
//! ```text
//!    cases ──> steps ──> world (the truth, one revision, a log) ──> promises (the checker)
//!                │            ^ writes      │ events, late and twice
//!                │            │             v
//!                └─────> controller: the same `decide` and `JobView` as in production
//! ```
//!
//! A case is data: a Job in a few numbers and a list of steps. Nothing here asks a clock, starts a thread or draws a
//! number while a case runs, so a case that fails, fails again. [`replay`] runs the case of a seed; the tests do so
//! when `WINDLASS_SIM_SEED` is set, and run more cases when `WINDLASS_SIM_CASES` says so.

pub mod cases;
pub mod controller;
pub mod plan;
pub mod promises;
pub mod run;
pub mod sabotage;
pub mod steps;
pub mod story;
pub mod world;

pub use cases::{Finding, replay, search};
pub use plan::JobPlan;
pub use promises::{Breach, Promise};
pub use run::{Case, Run, run, run_with};
pub use sabotage::Sabotage;
