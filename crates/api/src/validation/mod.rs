//! The rules that an object must keep, with upstream's texts in upstream's order.

pub mod job;
pub mod job_status;
pub mod job_update;
pub mod meta;
pub mod pod;
