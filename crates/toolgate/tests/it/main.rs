//! Tests of the library against real processes and sockets.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed expectation must fail the test"
)]

mod agent;
mod catalog;
mod chaos;
mod engine;
mod faults;
mod fidelity;
mod hook;
mod hook_chain;
mod http;
mod layers;
mod local;
mod progress;
mod stdio;
mod supervision;
mod support;
