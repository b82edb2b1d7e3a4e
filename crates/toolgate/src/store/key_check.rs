//! Loads the key that seals entries, and proves that it fits the database.
//!
//! The database holds a known text sealed with the key. Without this check, a lost key would look like
//! a new installation: what was made through the API, such as the keys of callers, would vanish.

use std::path::Path;

use sqlx::{AnyConnection, Connection as _, Executor as _, Row as _};

use super::data_dir::database_url;
use super::seal::StoreCipher;
use super::{StoreError, schema};

/// Entry of the table `meta` that holds the sealed text.
const CHECK_KEY: &str = "key_check";
const CHECK_TEXT: &str = "toolgate";
/// Version of the schema that introduced the check.
const CHECKED_SINCE: i64 = 8;

/// Loads the key, creating it for a new database. `version` is the version of the schema before it was
/// migrated; `None` for a new database.
pub(super) async fn load_key(
    url: &str,
    file: &Path,
    version: Option<i64>,
) -> Result<StoreCipher, StoreError> {
    let mut connection = AnyConnection::connect(url).await?;
    let name = file.display().to_string();
    let existing = StoreCipher::load(file)?;
    let row = sqlx::query("SELECT value FROM meta WHERE key = $1")
        .bind(CHECK_KEY)
        .fetch_optional(&mut connection)
        .await?;
    let check: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
    let cipher = match (check, existing) {
        (Some(_), None) => return Err(StoreError::MissingKey(name)),
        (Some(check), Some(cipher)) => {
            if cipher.unseal(&check).as_deref() != Some(CHECK_TEXT) {
                return Err(StoreError::WrongKey(name));
            }
            cipher
        }
        (None, _) if version.is_some_and(|version| version >= CHECKED_SINCE) => {
            return Err(StoreError::MissingKeyCheck);
        }
        (None, existing) => {
            let has_sealed = has_rows(&mut connection).await?;
            let cipher = match existing {
                Some(cipher) => cipher,
                None if has_sealed => return Err(StoreError::MissingKey(name)),
                None => StoreCipher::create(file)?,
            };
            introduce_check(&mut connection, &cipher, &name).await?;
            cipher
        }
    };
    connection.close().await?;
    Ok(cipher)
}

/// Loads the key of a database that is not to be changed.
pub(super) async fn verify_key(database: &Path, file: &Path) -> Result<StoreCipher, StoreError> {
    sqlx::any::install_default_drivers();
    let mut connection = AnyConnection::connect(&database_url(database, "rw")).await?;
    match schema::version(&mut connection).await? {
        Some(schema::LATEST) => {}
        version => return Err(StoreError::OtherSchema(version.unwrap_or(0))),
    }
    let row = sqlx::query("SELECT value FROM meta WHERE key = $1")
        .bind(CHECK_KEY)
        .fetch_optional(&mut connection)
        .await?;
    let check: Option<String> = row.map(|row| row.try_get(0)).transpose()?;
    connection.close().await?;
    let name = file.display().to_string();
    let cipher = StoreCipher::load(file)?.ok_or_else(|| StoreError::MissingKey(name.clone()))?;
    let check = check.ok_or(StoreError::MissingKeyCheck)?;
    if cipher.unseal(&check).as_deref() == Some(CHECK_TEXT) {
        Ok(cipher)
    } else {
        Err(StoreError::WrongKey(name))
    }
}

/// Returns whether there are entries that are sealed.
async fn has_rows(connection: &mut AnyConnection) -> Result<bool, StoreError> {
    let row = sqlx::query(
        "SELECT (SELECT COUNT(*) FROM settings) + (SELECT COUNT(*) FROM server_overrides WHERE entry IS NOT NULL)
         + (SELECT COUNT(*) FROM approvals) + (SELECT COUNT(*) FROM runs)",
    )
    .fetch_one(connection)
    .await?;
    let count: i64 = row.try_get(0)?;
    Ok(count > 0)
}

/// Seals the settings that earlier versions stored in plain text, and stores the check. From then on,
/// plain text is an error.
async fn introduce_check(
    connection: &mut AnyConnection,
    cipher: &StoreCipher,
    name: &str,
) -> Result<(), StoreError> {
    connection.execute("BEGIN IMMEDIATE").await?;
    let rows = sqlx::query("SELECT key, value FROM settings")
        .fetch_all(&mut *connection)
        .await?;
    for row in rows {
        let (key, value): (String, String) = (row.try_get(0)?, row.try_get(1)?);
        if cipher.unseal(&value).is_some() {
            continue;
        }
        if serde_json::from_str::<serde_json::Value>(&value).is_err() {
            return Err(StoreError::WrongKey(name.to_owned()));
        }
        sqlx::query("UPDATE settings SET value = $2 WHERE key = $1")
            .bind(key)
            .bind(cipher.seal(&value)?)
            .execute(&mut *connection)
            .await?;
    }
    sqlx::query("INSERT INTO meta (key, value) VALUES ($1, $2)")
        .bind(CHECK_KEY)
        .bind(cipher.seal(CHECK_TEXT)?)
        .execute(&mut *connection)
        .await?;
    connection.execute("COMMIT").await?;
    Ok(())
}
