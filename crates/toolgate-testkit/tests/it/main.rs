//! The zoo, driven over plain pipes and sockets: what it promises is what other tests rely on.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

mod conformance;
mod fault;
mod fixture;
mod http;
mod pipe;
mod stdio;
mod wire;
