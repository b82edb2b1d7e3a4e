//! The zoo and the scripted model, driven over plain pipes and sockets: checks the behaviour that
//! other tests rely on.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "these are tests")]

mod conformance;
mod fault;
mod fixture;
mod http;
mod model;
mod model_wire;
mod stdio;
mod stdio_zoo;
mod wire;
