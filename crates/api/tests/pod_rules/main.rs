//! What is wrong with pods and templates of pods, in Kubernetes' words.

mod containers;
mod create;
mod env;
mod general;
mod missing;
mod mounts;
mod probes;
mod resources;
mod scheduling;
mod security;
mod support;
mod update;
mod volumes;
mod warnings;
