//! Code mode engine: runs scripts that orchestrate tools in sandboxed worker processes.
//!
//! A [`worker`] is a process that runs one script after another and has access to nothing but the
//! pipes to its host. It requests every tool call from the host through the language-independent
//! messages of [`protocol`]; the host decides whether to make the call. [`stubs`] describes the callable
//! tools as Python signatures, and [`preview`] finds the tools a script mentions without running it.

mod lexer;
pub mod preview;
pub mod protocol;
mod starlark;
pub mod stubs;
pub mod surface;
pub mod tokens;
pub mod worker;
