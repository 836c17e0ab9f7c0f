//! Windlass beside the real Kubernetes: the programs of v1.36, started here, and what both answer.

pub mod assets;
pub mod cluster;
pub mod compare;
pub mod kubeconfig;
pub mod normal;
pub mod ours;
mod pki;
mod port;
mod process;
pub mod scenario;
pub mod session;

pub use cluster::{Cluster, ControllerManager};
pub use ours::Ours;
