//! The zoo, driven over plain pipes and sockets: what it promises is what other tests rely on.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

mod fault;
mod http;
mod pipe;
mod stdio;
mod wire;
