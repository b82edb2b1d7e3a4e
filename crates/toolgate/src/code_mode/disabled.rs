//! Stands in for code mode in builds without the feature `code-mode`.
//!
//! No scope contains code-mode tools in such a build: a configuration with a code-mode server does
//! not start. Scripts that another build has stored are still deleted.

mod deletion;

use serde_json::value::RawValue;
use toolgate_core::Config;

pub(crate) use self::deletion::{delete_expired_scripts, delete_scripts_of};
use crate::store::Store;

/// Runtime of code mode, of which nothing remains.
#[derive(Debug)]
pub(crate) struct CodeMode;

/// A program that runs scripts; there is none.
#[derive(Clone, Debug)]
pub(crate) enum WorkerProgram {}

impl CodeMode {
    pub(crate) fn new(_: &Config, _: Option<WorkerProgram>, _: Store) -> Self {
        Self
    }

    pub(crate) fn apply(&self, _: &Config) {}

    pub(crate) fn close(&self) -> std::future::Ready<()> {
        std::future::ready(())
    }
}

/// MCP definitions of the code-mode tools, by name.
pub(crate) fn definitions() -> &'static [(String, Box<RawValue>)] {
    &[]
}
