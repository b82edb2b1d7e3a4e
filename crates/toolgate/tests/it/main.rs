//! The gateway as a library, against real processes and sockets.

mod catalog;
mod door;
mod faults;
mod fidelity;
mod http;
mod local;
mod stdio;
mod support;
