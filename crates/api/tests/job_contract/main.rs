//! The Job half of the API contract, rule by rule: every error list is compared whole, as texts.

mod create;
mod defaults;
mod draft;
mod gates;
mod status;
mod strategy;
mod support;
mod update;
mod warnings;
