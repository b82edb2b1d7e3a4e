//! Loads the key that seals entries, and proves that it fits the database.
//!
//! The database holds a known text sealed with the key. Without this check, a lost key would look like
//! a new installation: what was made through the API, such as the keys of callers, would vanish.

use std::path::Path;

use sqlx::{AnyConnection, AssertSqlSafe, Connection as _, Executor as _, Row as _};

use super::data_dir::KEY_FILE;
use super::key::StoreKey;
use super::seal::StoreCipher;
use super::{StoreError, schema};

/// Entry of the table `meta` that holds the sealed text.
const CHECK_KEY: &str = "key_check";
const CHECK_TEXT: &str = "toolgate";
/// Version of the schema that introduced the check.
const CHECKED_SINCE: i64 = 8;
/// The table is also part of that version; here, it may be needed earlier.
const CREATE_META: &str =
    "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)";

/// Loads the key, creating it for a new database. `version` is that of the schema; `None` for a new
/// database. Runs before migrations: a crash between the two leaves a database that either has its check
/// or is of a version that had none.
pub(super) async fn load_key(
    connection: &mut AnyConnection,
    data_dir: &Path,
    key: &StoreKey,
    version: Option<i64>,
) -> Result<StoreCipher, StoreError> {
    let file = data_dir.join(KEY_FILE);
    let name = file.display().to_string();
    let existing = key.load(data_dir)?;
    let is_checked = version.is_some_and(|version| version >= CHECKED_SINCE);
    if !is_checked {
        connection.execute(CREATE_META).await?;
    }
    match (read_check(connection).await?, existing) {
        (Some(_), None) => Err(StoreError::MissingKey(name)),
        (Some(check), Some(cipher)) if cipher.fits(&check) => {
            report_unused_file(key, &file);
            Ok(cipher)
        }
        (Some(check), Some(_)) => Err(key.wrong_key(data_dir, |cipher| cipher.fits(&check))),
        (None, _) if is_checked => Err(StoreError::MissingKeyCheck),
        (None, existing) => {
            let cipher = match existing {
                Some(cipher) => cipher,
                None if version.is_some() && has_sealed_rows(connection).await? => {
                    return Err(StoreError::MissingKey(name));
                }
                None => StoreCipher::create(&file)?,
            };
            let wrong_key = || key.wrong_key(data_dir, |_| false);
            connection.execute("BEGIN IMMEDIATE").await?;
            if version.is_some() {
                check_sealed_rows(connection, &cipher, &wrong_key).await?;
                seal_plain_settings(connection, &cipher, &wrong_key).await?;
            }
            sqlx::query("INSERT INTO meta (key, value) VALUES ($1, $2)")
                .bind(CHECK_KEY)
                .bind(cipher.seal(CHECK_TEXT)?)
                .execute(&mut *connection)
                .await?;
            connection.execute("COMMIT").await?;
            Ok(cipher)
        }
    }
}

async fn read_check(connection: &mut AnyConnection) -> Result<Option<String>, StoreError> {
    let row = sqlx::query("SELECT value FROM meta WHERE key = $1")
        .bind(CHECK_KEY)
        .fetch_optional(connection)
        .await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}

impl StoreCipher {
    /// Returns whether a check was sealed with this key.
    fn fits(&self, check: &str) -> bool {
        self.unseal(check).as_deref() == Some(CHECK_TEXT)
    }
}

/// Loads the key of a database that is not to be changed.
pub(super) async fn verify_key(
    url: &str,
    data_dir: &Path,
    key: &StoreKey,
) -> Result<StoreCipher, StoreError> {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(url).await?;
    match schema::version(&mut connection).await? {
        Some(schema::LATEST) => {}
        version => return Err(StoreError::OtherSchema(version.unwrap_or(0))),
    }
    let check = read_check(&mut connection).await?;
    connection.close().await?;
    let cipher = key.load(data_dir)?.ok_or_else(|| {
        let file = data_dir.join(KEY_FILE);
        StoreError::MissingKey(file.display().to_string())
    })?;
    let check = check.ok_or(StoreError::MissingKeyCheck)?;
    if cipher.fits(&check) {
        Ok(cipher)
    } else {
        Err(key.wrong_key(data_dir, |cipher| cipher.fits(&check)))
    }
}

/// Warns about a key in the data directory that is kept elsewhere, because it is as good as that one.
fn report_unused_file(key: &StoreKey, file: &Path) {
    if let StoreKey::Provided(key) = key
        && file.exists()
    {
        tracing::warn!(
            file = %file.display(),
            key = key.origin(),
            "the key of the store is kept elsewhere, but the data directory also has a key file; check that the key is in a safe place and delete the file"
        );
    }
}

/// Returns whether a database of an earlier version has entries that are sealed.
async fn has_sealed_rows(connection: &mut AnyConnection) -> Result<bool, StoreError> {
    for table in [
        "settings",
        "server_overrides",
        "approvals",
        "runs",
        "scripts",
    ] {
        if !has_table(connection, table).await? {
            continue; // of a later version
        }
        let sql = format!("SELECT 1 FROM {table} LIMIT 1");
        let row = sqlx::query(AssertSqlSafe(sql))
            .fetch_optional(&mut *connection)
            .await?;
        if row.is_some() {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Returns an error if the key does not fit what an earlier version has sealed.
async fn check_sealed_rows(
    connection: &mut AnyConnection,
    cipher: &StoreCipher,
    wrong_key: &dyn Fn() -> StoreError,
) -> Result<(), StoreError> {
    for (table, column) in [
        ("server_overrides", "entry"),
        ("approvals", "arguments"),
        ("runs", "request"),
    ] {
        if !has_table(connection, table).await? {
            continue;
        }
        let sql = format!("SELECT {column} FROM {table} WHERE {column} IS NOT NULL LIMIT 1");
        let row = sqlx::query(AssertSqlSafe(sql))
            .fetch_optional(&mut *connection)
            .await?;
        let sealed: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
        if sealed.is_some_and(|sealed| cipher.unseal(&sealed).is_none()) {
            return Err(wrong_key());
        }
    }
    Ok(())
}

async fn has_table(connection: &mut AnyConnection, table: &str) -> Result<bool, StoreError> {
    let row = sqlx::query("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = $1")
        .bind(table)
        .fetch_optional(connection)
        .await?;
    Ok(row.is_some())
}

/// Seals the settings that earlier versions stored in plain text. From then on, plain text is an error.
async fn seal_plain_settings(
    connection: &mut AnyConnection,
    cipher: &StoreCipher,
    wrong_key: &dyn Fn() -> StoreError,
) -> Result<(), StoreError> {
    let rows = sqlx::query("SELECT key, value FROM settings")
        .fetch_all(&mut *connection)
        .await?;
    for row in rows {
        let (key, value): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        if cipher.unseal(&value).is_some() {
            continue;
        }
        if serde_json::from_str::<serde_json::Value>(&value).is_err() {
            return Err(wrong_key());
        }
        sqlx::query("UPDATE settings SET value = $2 WHERE key = $1")
            .bind(key)
            .bind(cipher.seal(&value)?)
            .execute(&mut *connection)
            .await?;
    }
    Ok(())
}
