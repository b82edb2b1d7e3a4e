//! Tests of transports, supervision and listings against real processes and sockets.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a failed expectation must fail the test"
)]

mod cancellation;
mod catalog;
mod faults;
mod fidelity;
mod http;
mod progress;
mod sse;
mod stdio;
mod supervision;
mod support;
