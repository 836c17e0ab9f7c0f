//! Windlass beside the real Kubernetes: the programs of v1.36, started here, and what both answer.

pub mod assets;
pub mod cluster;
mod pki;
mod process;
pub mod scenario;

pub use cluster::{Cluster, ControllerManager};
