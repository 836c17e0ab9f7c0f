//! What runs containers: processes of this machine, of which some are OCI runtimes that make containers of images.

#[allow(unsafe_code)] // JUSTIFICATION: a user namespace has to be made between fork and exec.
pub mod apart;
mod cover;
mod holder;
pub mod host;
#[allow(unsafe_code)] // JUSTIFICATION: setsid and PR_SET_PDEATHSIG have to happen between fork and exec.
pub mod keeper;
mod output;
mod protocol;
#[allow(unsafe_code)] // JUSTIFICATION: unshare is unsafe for file descriptors, which are not unshared.
pub mod sandbox;
mod sealed;
#[allow(unsafe_code)] // JUSTIFICATION: a descriptor that is watched has to stay the same, which it does.
mod socket;
#[allow(unsafe_code)] // JUSTIFICATION: a process that is started in the memory of this one, and its signals.
mod spawn;
#[allow(unsafe_code)] // JUSTIFICATION: signals that are waited for, and descriptors of a fork.
mod stand_in;
pub mod streams;
mod takeover;

pub use protocol::{Exit, Guest, Input, Left, LogLimits, Process, StartError, Starts};
