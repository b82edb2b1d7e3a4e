//! A client's settings file: reads it, and replaces it as a whole.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, bail};

/// Maximum size of a settings file.
const MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Mode of a new file: settings often contain secrets.
const NEW_FILE_MODE: u32 = 0o600;

/// A settings file as it was read.
#[derive(Debug)]
pub(crate) struct SettingsFile {
    /// The file itself, where the client's path is a symbolic link.
    path: PathBuf,
    /// `None` if there is no file.
    content: Option<String>,
    mode: u32,
}

impl SettingsFile {
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let name = path.display();
        let path = match fs::canonicalize(path) {
            Ok(path) => path,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                if path.is_symlink() {
                    bail!("`{name}` is a symbolic link to a file that does not exist; remove it");
                }
                return Ok(Self {
                    path: path.to_owned(),
                    content: None,
                    mode: NEW_FILE_MODE,
                });
            }
            Err(error) => return Err(error).with_context(|| format!("cannot read `{name}`")),
        };
        let metadata = fs::metadata(&path).with_context(|| format!("cannot read `{name}`"))?;
        if !metadata.is_file() || metadata.len() > MAX_BYTES {
            bail!("`{name}` is not a settings file");
        }
        let content = fs::read_to_string(&path).with_context(|| format!("cannot read `{name}`"))?;
        Ok(Self {
            path,
            content: Some(content),
            mode: metadata.permissions().mode() & 0o7777,
        })
    }

    pub(crate) fn content(&self) -> &str {
        self.content.as_deref().unwrap_or_default()
    }

    /// Replaces the file. The previous one is kept beside it; returns its path.
    pub(crate) fn replace(&self, content: &str) -> anyhow::Result<Option<PathBuf>> {
        let name = self.path.display();
        let folder = self
            .path
            .parent()
            .context("the settings file has no folder")?;
        let failed = || {
            format!(
                "cannot write `{name}`; nothing was changed. Use --print to get the settings and write them yourself"
            )
        };
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)
            .with_context(failed)?;
        if Self::read(&self.path)?.content != self.content {
            bail!("`{name}` was changed in the meantime; run the command again");
        }
        let backup = match &self.content {
            Some(previous) => {
                let backup = self.backup_path();
                write_new(&backup, previous, self.mode).with_context(failed)?;
                Some(backup)
            }
            None => None,
        };
        let temporary = self.beside(&format!("tmp-{}", std::process::id()));
        let written = write_new(&temporary, content, self.mode)
            .and_then(|()| fs::rename(&temporary, &self.path));
        if written.is_err() {
            let _ = fs::remove_file(&temporary);
            if let Some(backup) = &backup {
                let _ = fs::remove_file(backup);
            }
        }
        written.with_context(failed)?;
        // The rename itself is durable once the folder is; if that fails, the file is still a whole one.
        let _ = File::open(folder).and_then(|folder| folder.sync_all());
        Ok(backup)
    }

    fn backup_path(&self) -> PathBuf {
        let time = humantime::format_rfc3339_micros(SystemTime::now()).to_string();
        let digits: String = time.chars().filter(char::is_ascii_digit).collect();
        self.beside(&format!("backup-{digits}"))
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{suffix}"));
        self.path.with_file_name(name)
    }
}

/// Writes a file that does not exist yet.
fn write_new(path: &Path, content: &str, mode: u32) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    let mut file = options
        .write(true)
        .create_new(true)
        .mode(mode & 0o777)
        .open(path)?;
    // The mode above is reduced by the mask of the process.
    file.set_permissions(Permissions::from_mode(mode))?;
    file.write_all(content.as_bytes())?;
    file.sync_all()
}
