//! The rules that an object must keep, with upstream's texts in upstream's order.

pub mod meta;
pub mod pod;
