//! Where the key of the store is kept.

use std::path::PathBuf;
use std::time::Duration;

use indexmap::IndexMap;

use crate::secret::Secret;

/// Variable that holds the key of the store, without any setting.
pub const STORE_KEY_VARIABLE: &str = "TOOLGATE_STORE_KEY";

/// Place of the store's key outside of the data directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreKeySource {
    /// Environment variable of this name.
    Variable(String),
    File(PathBuf),
    Command(KeyCommand),
}

/// A command that prints the key of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyCommand {
    pub program: String,
    pub args: Vec<String>,
    /// Environment variables of the command, in addition to a minimal environment.
    pub env: IndexMap<String, Secret>,
    pub timeout: Duration,
}
