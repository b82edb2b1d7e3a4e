//! Finds the key of the store: a file, an environment variable or the output of a command. Without any of
//! them, it is in the data directory.

mod command;

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use toolgate::Environment;
use toolgate::store::{ProvidedKey, StoreKey};
use toolgate_core::Config;
use toolgate_core::config::{STORE_KEY_VARIABLE, StoreKeySource};

/// Maximum size of a key, as text with white space around it.
const MAX_KEY_BYTES: u64 = 4096;

/// Flags that say where the key of the store is.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct StoreKeyFlags {
    /// File that contains the key of the store, if it is kept outside of the data directory; alternatives are
    /// TOOLGATE_STORE_KEY and the configuration's `[store]`
    #[arg(long, env = "TOOLGATE_STORE_KEY_FILE", value_name = "FILE")]
    pub(crate) store_key_file: Option<PathBuf>,
}

/// A place of the key outside of the data directory, and what it is called in messages.
#[derive(Clone, Debug)]
pub(crate) struct KeyPlace {
    source: StoreKeySource,
    origin: String,
}

impl StoreKeyFlags {
    /// Returns where the key is; `None` for the data directory.
    pub(crate) fn place(
        &self,
        config: &Config,
        environment: &Environment,
    ) -> anyhow::Result<Option<KeyPlace>> {
        // `${KEY:-}` in a shell or compose file yields an empty variable, which counts as unset.
        let is_set = |name: &str| environment.get(name).is_some_and(|value| !value.is_empty());
        let flag = self.store_key_file.as_ref();
        let flag = flag.filter(|file| !file.as_os_str().is_empty());
        let flag = flag.map(|file| KeyPlace {
            origin: format!("`{}`", file.display()),
            source: StoreKeySource::File(file.clone()),
        });
        let variable = is_set(STORE_KEY_VARIABLE).then(|| KeyPlace {
            origin: STORE_KEY_VARIABLE.to_owned(),
            source: StoreKeySource::Variable(STORE_KEY_VARIABLE.to_owned()),
        });
        let setting = config.listen.store_key.as_ref().map(KeyPlace::of_setting);
        let mut places = [flag, variable, setting].into_iter().flatten();
        let place = places.next();
        if places.next().is_some() {
            bail!(
                "the key of the store is set in several places; use only one of --store-key-file (TOOLGATE_STORE_KEY_FILE), {STORE_KEY_VARIABLE} and `[store]` in the configuration"
            );
        }
        Ok(place)
    }
}

impl KeyPlace {
    fn of_setting(source: &StoreKeySource) -> Self {
        let origin = match source {
            StoreKeySource::Variable(name) => format!("the variable {name} (`store.key`)"),
            StoreKeySource::File(file) => format!("`{}` (`store.key_file`)", file.display()),
            StoreKeySource::Command(command) => {
                format!("the command `{}` (`store.key_command`)", command.program)
            }
        };
        Self {
            source: source.clone(),
            origin,
        }
    }

    /// Describes the place, for messages.
    pub(crate) fn origin(&self) -> &str {
        &self.origin
    }

    async fn read(&self, environment: &Environment) -> anyhow::Result<ProvidedKey> {
        let origin = &self.origin;
        let failed = || format!("cannot get the key of the store from {origin}");
        Ok(match &self.source {
            StoreKeySource::Variable(name) => {
                let value = environment.get(name).filter(|value| !value.is_empty());
                let value = value.context("it is not set").with_context(failed)?;
                ProvidedKey::from_text(&value, origin)?
            }
            StoreKeySource::File(file) => {
                let content = read_file(file).with_context(failed)?;
                ProvidedKey::from_content(&content, origin)?
            }
            StoreKeySource::Command(command) => {
                let output = command::run(command, environment).await;
                ProvidedKey::from_content(&output.with_context(failed)?, origin)?
            }
        })
    }
}

/// Reads the key from its place.
pub(crate) async fn load(
    place: Option<&KeyPlace>,
    environment: &Environment,
) -> anyhow::Result<StoreKey> {
    Ok(match place {
        None => StoreKey::DataDir,
        Some(place) => StoreKey::Provided(place.read(environment).await?),
    })
}

fn read_file(path: &Path) -> anyhow::Result<Vec<u8>> {
    let file = File::open(path)?;
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        bail!("it is not a file");
    }
    // Not an error: where a secret is mounted for a container, its mode is often fixed.
    if metadata.permissions().mode() & 0o077 != 0 {
        tracing::warn!(
            path = %path.display(),
            "other users may read the key of the store; make the file private with `chmod 600`"
        );
    }
    let mut content = Vec::new();
    file.take(MAX_KEY_BYTES).read_to_end(&mut content)?;
    Ok(content)
}
