//! Backups of the data directory: a consistent copy, made while a gateway may be running, with a manifest
//! that says what it contains.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use ring::digest::{Context, SHA256};
use serde::{Deserialize, Serialize};
use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Row as _};

use super::data_dir::{DATABASE_FILE, DataDir, KEY_FILE, database_url};
use super::{StoreError, StoreKey, clock, key_check, schema};

const MANIFEST_FILE: &str = "manifest.json";
/// Version of the format of backups.
const FORMAT: u32 = 1;
/// Files besides the database, in the order in which they are copied. The intent log comes before the
/// database: a call that is in neither began after the backup.
const OTHER_FILES: [&str; 4] = ["intents-0.log", "intents-1.log", KEY_FILE, "admin.key"];

/// Description of a backup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct BackupManifest {
    /// Version of the format.
    pub format: u32,
    /// Version of Toolgate that made the backup.
    pub toolgate: String,
    /// Version of the database schema.
    pub schema: i64,
    /// Milliseconds since the Unix epoch.
    pub created_at: i64,
    /// SHA-256 of each file, in hexadecimal.
    pub files: BTreeMap<String, String>,
}

/// An error while making or restoring a backup.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages explain the fields")]
pub enum BackupError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file failed.
    #[error("`{}`: {cause}", .path.display())]
    File { path: PathBuf, cause: io::Error },
    /// There is nothing to back up.
    #[error("`{}` is not a data directory: it has no database", .0.display())]
    NoData(PathBuf),
    /// The target is in use.
    #[error("`{}` is not empty; choose a new directory", .0.display())]
    NotEmpty(PathBuf),
    /// The data directory has data already.
    #[error(
        "the data directory `{}` already has data; add --force to move it to a subdirectory and restore the backup", .0.display()
    )]
    HasData(PathBuf),
    /// The directory is not a backup.
    #[error("`{}` is not a complete backup: it has no readable {MANIFEST_FILE}", .0.display())]
    NoBackup(PathBuf),
    /// The backup was made by a newer version.
    #[error(
        "the backup was made by Toolgate {version} with a newer format; restore it with that version"
    )]
    Newer { version: String },
    /// A file of the backup was changed or is damaged.
    #[error("`{0}` in the backup is damaged: it does not match the manifest")]
    Damaged(String),
}

/// Whether a backup contains `store.key`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyInBackup {
    /// As far as the data directory has it.
    Included,
    /// The key is kept elsewhere, apart from backups.
    LeftOut,
}

/// What to do with data that a restore finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExistingData {
    /// Refuse to restore.
    Keep,
    /// Move it to a subdirectory.
    MoveAway,
}

/// Copies a data directory to a new directory, consistently even while a gateway uses it.
pub async fn back_up(
    data_dir: &Path,
    target: &Path,
    key: KeyInBackup,
) -> Result<BackupManifest, BackupError> {
    let database = data_dir.join(DATABASE_FILE);
    if !database.is_file() {
        return Err(BackupError::NoData(data_dir.to_owned()));
    }
    create_target(target)?;
    let mut files = BTreeMap::new();
    for name in OTHER_FILES {
        let source = data_dir.join(name);
        let is_left_out = name == KEY_FILE && key == KeyInBackup::LeftOut;
        if source.is_file() && !is_left_out {
            let digest = copy(&source, &target.join(name))?;
            files.insert(name.to_owned(), digest);
        }
    }
    let copied = target.join(DATABASE_FILE);
    let schema = copy_database(&database, &copied).await?;
    // Created here, so that nobody else can read it.
    files.insert(DATABASE_FILE.to_owned(), digest_file(&copied)?);
    let manifest = BackupManifest {
        format: FORMAT,
        toolgate: env!("CARGO_PKG_VERSION").to_owned(),
        schema,
        created_at: clock::now(),
        files,
    };
    // Last, since a backup with a manifest is complete.
    let path = target.join(MANIFEST_FILE);
    let text = serde_json::to_vec_pretty(&manifest).map_err(io::Error::other);
    let written = text.and_then(|text| write_file(&path, &text));
    written.map_err(|cause| BackupError::File { path, cause })?;
    sync_directory(target)?;
    Ok(manifest)
}

/// Verifies a backup and copies it to a data directory that no gateway uses.
pub async fn restore(
    backup: &Path,
    data_dir: &Path,
    existing: ExistingData,
    key: &StoreKey,
) -> Result<BackupManifest, BackupError> {
    let manifest = read_manifest(backup)?;
    if manifest.format > FORMAT || manifest.schema > schema::LATEST {
        return Err(BackupError::Newer {
            version: manifest.toolgate,
        });
    }
    for (name, expected) in &manifest.files {
        if name.contains('/') || digest_file(&backup.join(name))? != *expected {
            return Err(BackupError::Damaged(name.clone()));
        }
    }
    let database_url = read_only_url(&backup.join(DATABASE_FILE));
    check_integrity(&database_url).await?;
    // A database of an earlier version is upgraded, and its key checked, when the gateway starts.
    if manifest.schema == schema::LATEST {
        key_check::verify_key(&database_url, backup, key).await?;
    }
    let lock = DataDir::lock(data_dir)?;
    lock.make_private()?;
    if data_dir.join(DATABASE_FILE).exists() {
        match existing {
            ExistingData::Keep => return Err(BackupError::HasData(data_dir.to_owned())),
            ExistingData::MoveAway => move_away(data_dir)?,
        }
    }
    // The database last: without it, the directory counts as empty and the restore can be repeated.
    let is_copied = |name: &&String| {
        *name != DATABASE_FILE && (*name != KEY_FILE || matches!(key, StoreKey::DataDir))
    };
    let others = manifest.files.keys().filter(is_copied);
    let database = manifest.files.keys().filter(|name| *name == DATABASE_FILE);
    for name in others.chain(database) {
        let draft = data_dir.join(format!("{name}.restoring"));
        copy(&backup.join(name), &draft)?;
        let path = data_dir.join(name);
        fs::rename(&draft, &path).map_err(|cause| BackupError::File { path, cause })?;
    }
    sync_directory(data_dir)?;
    lock.unlock();
    Ok(manifest)
}

fn create_target(target: &Path) -> Result<(), BackupError> {
    let error = |cause| BackupError::File {
        path: target.to_owned(),
        cause,
    };
    match fs::read_dir(target) {
        Ok(mut entries) => match entries.next() {
            Some(_) => Err(BackupError::NotEmpty(target.to_owned())),
            None => Ok(()),
        },
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => {
            let mut builder = fs::DirBuilder::new();
            builder
                .recursive(true)
                .mode(0o700)
                .create(target)
                .map_err(error)
        }
        Err(cause) => Err(error(cause)),
    }
}

/// Copies a database as of one moment and returns the version of its schema.
async fn copy_database(source: &Path, target: &Path) -> Result<i64, BackupError> {
    sqlx::any::install_default_drivers();
    let database = |error: sqlx::Error| BackupError::Store(StoreError::Database(error));
    // SQLite writes to an existing file only if it is empty.
    write_file(target, b"").map_err(|cause| BackupError::File {
        path: target.to_owned(),
        cause,
    })?;
    let mut connection = AnyConnection::connect(&database_url(source, "rw"))
        .await
        .map_err(database)?;
    let version = schema::version(&mut connection).await.map_err(database)?;
    let path = target.display().to_string().replace('\'', "''");
    let vacuum = format!("VACUUM INTO '{path}'");
    sqlx::query(AssertSqlSafe(vacuum))
        .execute(&mut connection)
        .await
        .map_err(database)?;
    connection.close().await.map_err(database)?;
    let synced = File::open(target).and_then(|file| file.sync_all());
    synced.map_err(|cause| BackupError::File {
        path: target.to_owned(),
        cause,
    })?;
    Ok(version.unwrap_or(0))
}

/// Returns the URL that opens a database which nothing changes, without creating files beside it.
fn read_only_url(database: &Path) -> String {
    format!("{}&immutable=1", database_url(database, "ro"))
}

async fn check_integrity(url: &str) -> Result<(), BackupError> {
    sqlx::any::install_default_drivers();
    let error = |error: sqlx::Error| BackupError::Store(StoreError::Database(error));
    let mut connection = AnyConnection::connect(url).await.map_err(error)?;
    let row = sqlx::query("PRAGMA integrity_check(1)")
        .fetch_one(&mut connection)
        .await
        .map_err(error)?;
    let result: String = row.try_get(0).map_err(error)?;
    connection.close().await.map_err(error)?;
    if result == "ok" {
        Ok(())
    } else {
        Err(BackupError::Damaged(DATABASE_FILE.to_owned()))
    }
}

fn read_manifest(backup: &Path) -> Result<BackupManifest, BackupError> {
    let text = fs::read(backup.join(MANIFEST_FILE));
    let manifest = text
        .ok()
        .and_then(|text| serde_json::from_slice(&text).ok());
    manifest.ok_or_else(|| BackupError::NoBackup(backup.to_owned()))
}

/// Moves all files of a data directory to a subdirectory.
fn move_away(data_dir: &Path) -> Result<(), BackupError> {
    let folder = data_dir.join(format!("before-restore-{}", clock::now()));
    let error = |cause| BackupError::File {
        path: folder.clone(),
        cause,
    };
    let mut builder = fs::DirBuilder::new();
    builder.mode(0o700).create(&folder).map_err(error)?;
    for entry in fs::read_dir(data_dir).map_err(error)? {
        let entry = entry.map_err(error)?;
        if entry.file_type().map_err(error)?.is_file() {
            fs::rename(entry.path(), folder.join(entry.file_name())).map_err(error)?;
        }
    }
    Ok(())
}

/// Copies a file and returns the digest of the copy.
fn copy(source: &Path, target: &Path) -> Result<String, BackupError> {
    let copied = fs::read(source).and_then(|bytes| write_file(target, &bytes));
    copied.map_err(|cause| BackupError::File {
        path: source.to_owned(),
        cause,
    })?;
    digest_file(target)
}

fn write_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

fn digest_file(path: &Path) -> Result<String, BackupError> {
    let read = || -> io::Result<String> {
        let mut file = File::open(path)?;
        let mut context = Context::new(&SHA256);
        let mut buffer = vec![0; 1 << 16];
        loop {
            let size = file.read(&mut buffer)?;
            if size == 0 {
                break;
            }
            context.update(&buffer[..size]);
        }
        let digest = context.finish();
        Ok(digest
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect())
    };
    read().map_err(|cause| BackupError::File {
        path: path.to_owned(),
        cause,
    })
}

fn sync_directory(path: &Path) -> Result<(), BackupError> {
    let synced = File::open(path).and_then(|folder| folder.sync_all());
    synced.map_err(|cause| BackupError::File {
        path: path.to_owned(),
        cause,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{ConfigChange, Store};
    use super::*;

    fn setting(key: &str) -> ConfigChange {
        ConfigChange::PutSetting {
            key: key.to_owned(),
            value: json!(1),
            file_hash: String::new(),
        }
    }

    #[tokio::test]
    async fn backup_of_a_running_store_restores_what_was_stored() {
        let folder = tempfile::tempdir().unwrap();
        let [data, backup, other] =
            ["data", "backup", "other"].map(|name| folder.path().join(name));
        fs::create_dir(&data).unwrap();
        fs::create_dir(&other).unwrap();
        let store = Store::open(&data).await.unwrap();
        store.save(&[setting("before")]).await.unwrap();
        let manifest = back_up(&data, &backup, KeyInBackup::Included)
            .await
            .unwrap();
        assert_eq!(manifest.schema, schema::LATEST);
        store.save(&[setting("after")]).await.unwrap();
        let again = back_up(&data, &backup, KeyInBackup::Included)
            .await
            .unwrap_err();
        assert!(matches!(again, BackupError::NotEmpty(_)), "{again}");

        restore(&backup, &other, ExistingData::Keep, &StoreKey::DataDir)
            .await
            .unwrap();
        let restored = Store::open(&other).await.unwrap();
        assert!(restored.setting("before").await.unwrap().is_some());
        assert!(restored.setting("after").await.unwrap().is_none());
        let in_use = restore(&backup, &other, ExistingData::MoveAway, &StoreKey::DataDir).await;
        assert!(matches!(
            in_use,
            Err(BackupError::Store(StoreError::InUse(_)))
        ));
        restored.close().await;
        drop(restored);
        let kept = restore(&backup, &other, ExistingData::Keep, &StoreKey::DataDir).await;
        assert!(matches!(kept, Err(BackupError::HasData(_))));
        restore(&backup, &other, ExistingData::MoveAway, &StoreKey::DataDir)
            .await
            .unwrap();
        Store::open(&other).await.unwrap();
    }

    #[tokio::test]
    async fn damaged_or_newer_backup_is_refused_and_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let [data, backup, other] =
            ["data", "backup", "other"].map(|name| folder.path().join(name));
        fs::create_dir(&data).unwrap();
        fs::create_dir(&other).unwrap();
        Store::open(&data).await.unwrap().close().await;
        let manifest = back_up(&data, &backup, KeyInBackup::Included)
            .await
            .unwrap();
        let database = backup.join(DATABASE_FILE);
        let whole = fs::read(&database).unwrap();
        let mut damaged = whole.clone();
        damaged[5000] ^= 1;
        fs::write(&database, damaged).unwrap();
        let error = restore(&backup, &other, ExistingData::Keep, &StoreKey::DataDir)
            .await
            .unwrap_err();
        assert!(matches!(error, BackupError::Damaged(_)), "{error}");
        fs::write(&database, whole).unwrap();
        let newer = BackupManifest {
            schema: schema::LATEST + 1,
            ..manifest
        };
        fs::write(
            backup.join(MANIFEST_FILE),
            serde_json::to_vec(&newer).unwrap(),
        )
        .unwrap();
        let error = restore(&backup, &other, ExistingData::Keep, &StoreKey::DataDir)
            .await
            .unwrap_err();
        assert!(matches!(error, BackupError::Newer { .. }), "{error}");
        fs::remove_file(backup.join(MANIFEST_FILE)).unwrap();
        let error = restore(&backup, &other, ExistingData::Keep, &StoreKey::DataDir)
            .await
            .unwrap_err();
        assert!(matches!(error, BackupError::NoBackup(_)), "{error}");
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
    }
}
