//! The wire formats, by golden files.

#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::unwrap_used,
    reason = "these are tests"
)]

mod chat;
mod messages;
mod responses;
