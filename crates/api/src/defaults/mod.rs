//! What objects have when their authors do not say.

pub mod job;
pub mod pod;
