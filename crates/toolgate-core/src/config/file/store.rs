//! Where the key of the store is kept.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::config::duration::ConfigDuration;
use crate::secret::Secret;

/// Key of the store, if it is kept elsewhere than in `store.key` in the data directory: at most one of `key`, `key_file` and
/// `key_command`. The key consists of 32 bytes, as base64 or hexadecimal text; a file and a command may also give the bytes
/// themselves. Only the user's own file can set this. Changes take effect after a restart.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct StoreTable {
    /// `env.NAME`: the environment variable that holds the key. No other setting can use that variable.
    pub key: Option<Secret>,
    /// File that holds the key.
    pub key_file: Option<PathBuf>,
    /// Program that prints the key, and its arguments, such as a call of a secret manager.
    pub key_command: Option<Vec<String>>,
    /// Environment variables of that program, besides `PATH`, `HOME`, `LANG` and `TMPDIR`. `NAME` passes on the gateway's value,
    /// `NAME=value` sets one.
    #[schemars(extend("x-variables" = true))]
    pub key_command_env: Vec<String>,
    /// Maximum time for that program to finish. Default `30s`.
    pub key_command_timeout: Option<ConfigDuration>,
}
