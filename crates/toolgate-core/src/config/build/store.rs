//! Builds and checks where the key of the store is kept.

use std::time::Duration;

use super::FileContext;
use super::entry::non_zero_duration;
use crate::config::file::StoreTable;
use crate::config::{Document, KeyCommand, STORE_KEY_VARIABLE, StoreKeySource};
use crate::secret::Secret;

const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Returns the place of the key, if the file names one.
pub(super) fn build_store_key(
    table: StoreTable,
    context: &mut FileContext<'_>,
) -> Option<StoreKeySource> {
    if context.document.is_project() && context.document.value.get("store").is_some() {
        context.error(
            "/store",
            "`store` has no place in the file of a project; set it in your own file, `~/.config/toolgate/toolgate.toml`",
        );
        return None;
    }
    let StoreTable {
        key,
        key_file,
        key_command,
        key_command_env,
        key_command_timeout,
    } = table;
    match (key, key_file, key_command) {
        (None, None, None) => {
            if !key_command_env.is_empty() || key_command_timeout.is_some() {
                context.error(
                    "/store",
                    "`key_command_env` and `key_command_timeout` need `key_command`",
                );
            }
            None
        }
        (Some(Secret::Env(name)), None, None) => Some(StoreKeySource::Variable(name)),
        (Some(Secret::Literal(_)), None, None) => {
            context.error(
                "/store/key",
                "the key itself has no place in a configuration file; write `env.NAME`, or use `key_file` or `key_command`",
            );
            None
        }
        (None, Some(file), None) => Some(StoreKeySource::File(file)),
        (None, None, Some(command)) => {
            let mut words = command.into_iter();
            let Some(program) = words.next().filter(|program| !program.is_empty()) else {
                context.error("/store/key_command", "`key_command` names no program");
                return None;
            };
            let env = key_command_env.iter().map(|entry| {
                let (name, value) = Secret::of_variable(entry);
                (name.to_owned(), value)
            });
            Some(StoreKeySource::Command(KeyCommand {
                program,
                args: words.collect(),
                env: env.collect(),
                timeout: non_zero_duration(key_command_timeout).unwrap_or(DEFAULT_TIMEOUT),
            }))
        }
        _ => {
            context.error(
                "/store",
                "set only one of `key`, `key_file` and `key_command`",
            );
            None
        }
    }
}

/// Returns the variables that may hold the key, and which no other setting may use.
pub(super) fn reserved_variables(documents: &[Document]) -> Vec<String> {
    let configured = documents.iter().filter_map(|document| {
        let key = document.value.get("store")?.get("key")?;
        match serde_json::from_value(key.clone()) {
            Ok(Secret::Env(name)) => Some(name),
            _ => None,
        }
    });
    configured.chain([STORE_KEY_VARIABLE.to_owned()]).collect()
}
