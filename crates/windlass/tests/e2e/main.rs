//! The real command with real processes, as a user runs it.

mod controller;
mod controller_on_kubernetes;
mod disruptions;
mod docs;
mod ends_of_pods;
mod exits;
mod gates;
mod house;
mod input;
mod kubectl;
mod kubectl_streams;
mod look;
mod node;
mod nothing_left_behind;
mod output;
mod python_client;
mod real_kubectl;
mod run_flags;
mod rust_client;
mod server;
mod session;
mod stories;
mod support;
mod terminal;
mod upstream;
