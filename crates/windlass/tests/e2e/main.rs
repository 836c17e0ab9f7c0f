//! The real command with real processes, as a user runs it.

mod controller;
mod controller_on_kubernetes;
mod disruptions;
mod docs;
mod exits;
mod gates;
mod input;
mod kubectl;
mod nothing_left_behind;
mod output;
mod server;
mod stories;
mod support;
mod terminal;
