//! The whole program: the built binary on a free port, real servers behind it.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a broken expectation has to fail the test"
)]

mod agent;
mod agent_items;
mod agent_properties;
mod agent_sdk;
mod api;
mod approvals;
mod audit;
mod caller;
mod changes;
mod chat;
mod cli;
mod code_mode;
mod conformance;
mod control;
mod demo;
mod documents;
mod doors;
mod execute;
mod filters;
mod fuzz;
mod gate;
mod keys;
mod load;
mod mcp;
mod models;
mod models_sdk;
mod page;
mod pipes;
mod real;
mod real_model;
mod runs;
mod sdk;
mod serve;
mod sessions;
mod telemetry;
mod watching;
