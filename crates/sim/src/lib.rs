//! The whole Job path in one thread, from one seed, with faults and a checker.
