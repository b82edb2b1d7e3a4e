//! `toolgate backup` and `toolgate restore`: copies of the data directory.

use std::path::PathBuf;
use std::process::ExitCode;

use toolgate::store::backup::{self, BackupManifest, ExistingData};
use toolgate_core::Config;
use toolgate_core::plural::count;

use super::{ConfigFlags, print_line};
use crate::files;

/// Flags that select the data directory.
#[derive(Debug, clap::Args)]
pub(super) struct DataDirFlags {
    #[command(flatten)]
    config: ConfigFlags,
    /// Data directory [default: that of the configuration, or $XDG_DATA_HOME/toolgate]
    #[arg(long, env = "TOOLGATE_DATA_DIR", value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

impl DataDirFlags {
    /// Returns the data directory and the configuration.
    pub(super) fn resolve(self) -> anyhow::Result<(PathBuf, Config)> {
        let environment = files::environment();
        let documents = self.config.load_documents(&environment)?;
        let (config, _) = Config::load(&documents)?;
        let data_dir = self.data_dir.or_else(|| config.listen.data_dir.clone());
        Ok((files::data_dir(data_dir, &environment)?, config))
    }
}

/// Copy the data directory, also while the gateway is running
///
/// The copy contains the database, the key that its entries are sealed with, and the generated admin key.
/// Keep it as safe as the data directory itself.
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
        let (data_dir, _) = self.data.resolve()?;
        let manifest = backup::back_up(&data_dir, &self.target).await?;
        print_line(&format!(
            "backed up `{}` to `{}` ({})",
            data_dir.display(),
            self.target.display(),
            describe(&manifest)
        ))?;
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
        let (data_dir, _) = self.data.resolve()?;
        let manifest = backup::restore(&self.backup, &data_dir, existing).await?;
        print_line(&format!(
            "restored `{}` to `{}` ({})",
            self.backup.display(),
            data_dir.display(),
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
