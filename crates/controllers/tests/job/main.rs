//! The Job controller against the real API server in the process. The kubelet's part is played by a script that
//! writes pod statuses through the API, as a kubelet does; nothing else is played.
#![allow(clippy::unwrap_used, missing_docs)]

mod basics;
mod crashes;
mod faults;
mod load;
mod metrics;
mod ownership;
mod policies;
mod scale;
mod tap;
mod world;
