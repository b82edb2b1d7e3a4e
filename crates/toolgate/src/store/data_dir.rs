//! The data directory: who may read it, and that only one gateway uses it.

use std::fs::{self, File, OpenOptions, Permissions, TryLockError};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use super::StoreError;

const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// File name of the database.
pub(crate) const DATABASE_FILE: &str = "toolgate.db";
/// File name of the key that seals entries.
pub(crate) const KEY_FILE: &str = "store.key";

/// A data directory that this process has locked.
#[derive(Debug)]
pub(super) struct DataDir {
    path: PathBuf,
    /// The directory itself is locked, since a lock file could be removed.
    lock: File,
}

impl DataDir {
    /// Locks the directory.
    pub(super) fn lock(path: &Path) -> Result<Self, StoreError> {
        let folder = path.display().to_string();
        let error = |cause| StoreError::Folder {
            folder: folder.clone(),
            cause,
        };
        let lock = File::open(path).map_err(error)?;
        match lock.try_lock() {
            Ok(()) => Ok(Self {
                path: path.to_owned(),
                lock,
            }),
            Err(TryLockError::WouldBlock) => Err(StoreError::InUse(folder)),
            Err(TryLockError::Error(cause)) => Err(error(cause)),
        }
    }

    /// Locks the directory, makes it and its files private, and creates the database.
    pub(super) fn open(path: &Path) -> Result<Self, StoreError> {
        let data_dir = Self::lock(path)?;
        data_dir.make_private()?;
        // SQLite gives its other files the mode of the database.
        let database = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(FILE_MODE)
            .open(path.join(DATABASE_FILE));
        database.map_err(|cause| data_dir.error(cause))?;
        Ok(data_dir)
    }

    /// Takes the permissions of others away, for the directory and its files.
    pub(super) fn make_private(&self) -> Result<(), StoreError> {
        restrict(&self.path, DIRECTORY_MODE);
        for entry in fs::read_dir(&self.path).map_err(|cause| self.error(cause))? {
            let entry = entry.map_err(|cause| self.error(cause))?;
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                restrict(&entry.path(), FILE_MODE);
            }
        }
        Ok(())
    }

    fn error(&self, cause: io::Error) -> StoreError {
        StoreError::Folder {
            folder: self.path.display().to_string(),
            cause,
        }
    }

    /// Lets others use the directory. Closing the file is not enough: a child process that is being
    /// started at the moment shares it until it runs its program.
    pub(super) fn unlock(&self) {
        if let Err(error) = self.lock.unlock() {
            tracing::warn!(%error, "failed to unlock the data directory");
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the URL of the database.
    pub(super) fn database_url(&self) -> String {
        database_url(&self.path.join(DATABASE_FILE), "rwc")
    }
}

/// Returns the URL that opens a database file.
pub(super) fn database_url(file: &Path, mode: &str) -> String {
    let file = file.display().to_string();
    let file = file
        .replace('%', "%25")
        .replace('?', "%3f")
        .replace('#', "%23");
    format!("sqlite://{file}?mode={mode}")
}

/// Takes away permissions of others. Fails softly: where a volume belongs to another user, its owner
/// decides.
fn restrict(path: &Path, mode: u32) {
    let restricted = fs::metadata(path).and_then(|metadata| {
        let current = metadata.permissions().mode() & 0o777;
        if current & !mode == 0 {
            return Ok(false);
        }
        fs::set_permissions(path, Permissions::from_mode(current & mode))?;
        Ok(true)
    });
    match restricted {
        Ok(false) => {}
        Ok(true) => tracing::info!(path = %path.display(), "made the file private"),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => {
            tracing::warn!(path = %path.display(), %error, "other users may read the file and its permissions cannot be changed");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn directory_and_files_become_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let file = path.join("admin.key");
        fs::write(&file, "k").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        let opened = DataDir::open(&path).unwrap();
        assert_eq!(mode(&path), DIRECTORY_MODE);
        assert_eq!(mode(&file), FILE_MODE);
        assert_eq!(mode(&opened.path().join(DATABASE_FILE)), FILE_MODE);
    }

    #[test]
    fn lock_holds_although_every_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let first = DataDir::open(folder.path()).unwrap();
        for entry in fs::read_dir(folder.path()).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
        let second = DataDir::open(folder.path());
        assert!(matches!(second, Err(StoreError::InUse(_))), "{second:?}");
        drop(first);
        DataDir::open(folder.path()).unwrap();
    }
}
