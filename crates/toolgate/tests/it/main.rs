//! Tests of the library against real processes and sockets.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed expectation must fail the test"
)]

mod agent;
mod approval_grants;
mod approval_support;
mod approval_tickets;
mod approvals;
mod audit_sink;
mod audit_trail;
mod chaos;
mod definitions;
mod dispatch;
mod engine;
mod fidelity;
mod hook;
mod hook_chain;
mod keys;
mod layers;
mod limits;
mod local;
mod reconfiguration;
mod resource_tools;
mod result_cache;
mod results;
mod rules;
mod scanner;
mod support;
mod unsent;
