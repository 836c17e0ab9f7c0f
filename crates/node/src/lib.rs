//! Runs pods on this machine and reports every end truthfully.
//!
//! Decisions are pure and stand apart from the driver:
//!
//! ```text
//!   watch ─► pods ──► pod (one task each) ─► runtimes::host ═socket═► keeper ─► sandbox ─► processes
//!              │        │  lifecycle::next, stopping::next: what to do now
//!              │        │  volume, security, cgroup, isolation, env, services: what a container sees and may do
//!              │        │  images, oci: containers that are not of this machine
//!              │        │  probe, check: what it says about itself
//!              │        │  phase::of, status::build: what to report
//!              │        └► pods/status
//!              │  admission::judge: who may come
//!              │  pressure, shutdown: who has to go
//!              └► nodes/status, lease (register)
//!   apiserver ─► streams (logs, exec, attach) ─► logs, runtimes::host
//! ```
//!
//! Read `lifecycle` for the order of a pod's life, `phase` for how it ends, `runtimes::keeper` for how
//! nothing is left behind, `runtimes::sandbox` for what a container sees, `images` for where images come from and `oci` for
//! how they run.

pub mod admission;
pub mod backoff;
pub mod cgroup;
pub mod check;
pub mod container;
pub mod env;
pub mod events;
pub mod images;
mod input;
pub mod isolation;
pub mod lifecycle;
pub mod logs;
pub mod machine;
pub mod memory;
pub mod oci;
pub mod phase;
pub mod pressure;
pub mod probe;
pub mod runtimes;
pub mod security;
pub mod shutdown;
pub mod status;
pub mod stopping;
pub mod streams;
pub mod volume;

mod agent;
mod attend;
mod files;
mod mounts;
mod pod;
mod pods;
mod prepare;
mod register;
mod services;
mod survey;
mod watched;
mod writes;

pub use agent::{Agent, Capacity, Config, Error, Eviction, Oci};
