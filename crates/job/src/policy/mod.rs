//! The policies of a Job: which failures count, and which successes suffice.

pub mod failure;
pub mod success;
