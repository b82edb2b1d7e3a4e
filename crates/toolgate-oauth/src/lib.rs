//! OAuth 2.1: the client half, with which the gateway signs in to MCP servers, and the checks with
//! which it accepts the tokens of others.
//!
//! Nothing here knows MCP, stores anything or decides what a caller may do.

pub mod authorization;
pub mod challenge;
pub mod discovery;
pub mod fetch;
pub mod registration;
pub mod token;
