//! Code mode's engine: scripts that orchestrate tools, in processes that can do nothing else.
//!
//! A [`worker`] is a process that runs one script after another and reaches nothing but the pipes to
//! its host. It asks the host for every tool call by the messages of [`protocol`], which know nothing
//! of the language; the host decides. [`stubs`] say in Python what a script can call, and [`preview`]
//! which tools a script names, without running it.

pub mod preview;
pub mod protocol;
mod starlark;
pub mod stubs;
pub mod surface;
pub mod tokens;
pub mod worker;
