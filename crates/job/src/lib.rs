//! What should happen to one Job now: a function of what is known about it, and of nothing else.
//!
//! ```text
//!            watch events, answers to our writes
//!                           │
//!                           v
//!   JobView ── observe, fold ──> Observation ──> decide ──> Decision { stage, wake, because }
//!      ^                                                        │
//!      └──────────── what became of each action ────────────────┘   (the driver's only job)
//! ```
//!
//! Read in this order:
//!
//! 1. [`observation`]: everything a decision may look at; [`job_facts`], [`pod_facts`] and [`roster`] are its parts.
//! 2. [`decision`]: everything a decision may say; [`trace`] is why.
//! 3. [`decide`](mod@decide): the one function, and the order of its questions.
//! 4. `eligibility`, `tally`, [`verdict`], `fleet`, `track`: one question each.
//! 5. [`view`]: how facts and our own writes come together; [`in_flight`]: those that are not answered yet.
//! 6. [`analysis`]: what a Job's policy would do, asked before it runs.
//!
//! No clock, no I/O, no randomness, no iteration over hash maps: equal observations give equal decisions.

pub mod analysis;
pub mod backoff;
pub mod decide;
pub mod decision;
mod eligibility;
mod fleet;
pub mod history;
pub mod in_flight;
pub mod job_facts;
pub mod memory;
pub mod observation;
pub mod orphan;
pub mod pod_body;
pub mod pod_facts;
pub mod pod_names;
pub mod policy;
pub mod roster;
mod slots;
pub mod status_body;
mod tally;
pub mod trace;
mod track;
mod uid;
pub mod verdict;
pub mod view;

pub use decide::decide;
pub use decision::{Action, Decision, Wake};
pub use job_facts::JobFacts;
pub use observation::{Observation, Settings};
pub use pod_facts::PodFacts;
pub use uid::Uid;
pub use view::{JobView, Outcome};
