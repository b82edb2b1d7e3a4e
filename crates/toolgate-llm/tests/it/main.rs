//! Snapshot and property tests of the wire formats.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "test code"
)]

mod chat;
mod messages;
mod responses;
