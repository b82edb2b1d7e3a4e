//! Tests of the library against real processes and sockets.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed expectation must fail the test"
)]

mod agent;
mod chaos;
mod dispatch;
mod engine;
mod fidelity;
mod hook;
mod hook_chain;
mod keys;
mod layers;
mod local;
mod reconfiguration;
mod support;
