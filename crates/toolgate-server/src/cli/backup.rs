//! `toolgate backup` and `toolgate restore`: copies of the data directory.

use std::path::PathBuf;
use std::process::ExitCode;

use toolgate::store::StoreKey;
use toolgate::store::backup::{self, BackupManifest, ExistingData, KeyInBackup};
use toolgate_core::Config;
use toolgate_core::plural::count;

use super::{ConfigFlags, print_line};
use crate::files;
use crate::store_key::{self, KeyPlace, StoreKeyFlags};

/// Flags that select the data directory and the key of its store.
#[derive(Debug, clap::Args)]
pub(super) struct DataDirFlags {
    #[command(flatten)]
    config: ConfigFlags,
    /// Data directory [default: that of the configuration, or $XDG_DATA_HOME/toolgate]
    #[arg(long, env = "TOOLGATE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    store_key: StoreKeyFlags,
}

/// A data directory, and what is needed to read it.
pub(super) struct SelectedData {
    pub(super) dir: PathBuf,
    pub(super) config: Config,
    /// `None` for a key in the data directory.
    key_place: Option<KeyPlace>,
}

impl SelectedData {
    /// Reads the key of the store.
    pub(super) async fn load_key(&self) -> anyhow::Result<StoreKey> {
        store_key::load(self.key_place.as_ref(), &files::environment()).await
    }
}

impl DataDirFlags {
    /// Returns the data directory and the configuration.
    pub(super) fn resolve(self) -> anyhow::Result<SelectedData> {
        let environment = files::environment();
        let documents = self.config.load_documents(&environment)?;
        let (config, _) = Config::load(&documents)?;
        let data_dir = self.data_dir.or_else(|| config.listen.data_dir.clone());
        Ok(SelectedData {
            dir: files::data_dir(data_dir, &environment)?,
            key_place: self.store_key.place(&config, &environment)?,
            config,
        })
    }
}

/// Copy the data directory, also while the gateway is running
///
/// The copy contains the database, the generated admin key, and the key that entries are sealed with, unless
/// that is kept outside of the data directory. Keep it as safe as the data directory itself.
#[derive(Debug, clap::Args)]
pub(super) struct BackupCommand {
    /// New directory for the backup
    target: PathBuf,
    #[command(flatten)]
    data: DataDirFlags,
}

/// Restore a backup to the data directory of a gateway that is not running
#[derive(Debug, clap::Args)]
pub(super) struct RestoreCommand {
    /// Directory of the backup
    backup: PathBuf,
    /// Move data that is there to a subdirectory `before-restore-…`
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    data: DataDirFlags,
}

impl BackupCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let data = self.data.resolve()?;
        let key = match &data.key_place {
            None => KeyInBackup::Included,
            Some(_) => KeyInBackup::LeftOut,
        };
        let manifest = backup::back_up(&data.dir, &self.target, key).await?;
        print_line(&format!(
            "backed up `{}` to `{}` ({})",
            data.dir.display(),
            self.target.display(),
            describe(&manifest)
        ))?;
        if let Some(place) = &data.key_place {
            print_line(&format!(
                "it does not contain the key of the store, without which it cannot be used: keep that from {}",
                place.origin()
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl RestoreCommand {
    pub(super) async fn run(self) -> anyhow::Result<ExitCode> {
        let existing = if self.force {
            ExistingData::MoveAway
        } else {
            ExistingData::Keep
        };
        let data = self.data.resolve()?;
        let key = data.load_key().await?;
        let manifest = backup::restore(&self.backup, &data.dir, existing, &key).await?;
        print_line(&format!(
            "restored `{}` to `{}` ({})",
            self.backup.display(),
            data.dir.display(),
            describe(&manifest)
        ))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn describe(manifest: &BackupManifest) -> String {
    let files = count(manifest.files.len() as u64, "file", "files");
    format!(
        "{files}, Toolgate {}, schema {}",
        manifest.toolgate, manifest.schema
    )
}
