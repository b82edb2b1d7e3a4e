//! The start of the trail: takes over what an earlier process left.

use toolgate_core::secret::UnsetVariable;

use super::AuditStore;
use super::intent_log::{IntentLog, Leftovers};
use crate::store::StoreError;

/// Purpose of a key derived from that of the store.
const INTENT_PURPOSE: &str = "intent log";

/// An error while starting the audit trail.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AuditStartError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The intent log cannot be used.
    #[error("the intent log in the data directory cannot be used: {0}")]
    IntentLog(#[from] std::io::Error),
    /// A setting refers to a variable that is not set.
    #[error("`audit`: {0}")]
    Unset(#[from] UnsetVariable),
    /// The second sink cannot be used.
    #[error("`audit.sink`: {0}")]
    Sink(String),
}

/// Takes over what an earlier process left, and returns the intent log; `None` for a store in memory.
pub(super) async fn recover(store: &AuditStore) -> Result<Option<IntentLog>, AuditStartError> {
    let stored = store.stored_intents().await?;
    let folder = store.store.data_dir().map(ToOwned::to_owned);
    let key = store.store.derive_key(INTENT_PURPOSE);
    let left = match &folder {
        Some(folder) => IntentLog::read(folder, &key, stored)?,
        None => Leftovers::default(),
    };
    let last = left.last.max(stored);
    let interrupted = store.recover(left.calls, last).await?;
    if interrupted > 0 {
        tracing::warn!(
            calls = interrupted,
            "calls were in flight when the gateway stopped; they may have run"
        );
    }
    // Only now, when the database holds their lines, the files may be overwritten.
    let log = folder.map(|folder| IntentLog::create(&folder, &key, last));
    Ok(log.transpose()?)
}
