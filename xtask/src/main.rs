//! Project chores, run as `cargo xtask <task>`.

fn main() {}
