//! The zoo and the scripted model, driven over plain pipes and sockets: what they promise is what other tests rely on.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

mod conformance;
mod fault;
mod fixture;
mod http;
mod model;
mod model_wire;
mod pipe;
mod stdio;
mod wire;
