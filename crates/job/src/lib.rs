//! What should happen to one Job now.
