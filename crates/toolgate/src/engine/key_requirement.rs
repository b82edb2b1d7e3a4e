//! Whether callers need a key although none is defined.
//!
//! Once a key has existed, the store remembers that keys are required, until that is turned off
//! explicitly: removing the last key must not open the gateway to callers without one. The
//! requirement is stored before the first key takes effect.

use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};
use toolgate_core::Config;

use crate::audit::{AdminAction, AuditLog};
use crate::store::{ConfigChange, Store, StoreError};

const SETTING: &str = "keys_required";

/// The stored requirement, and its value in memory for every request.
#[derive(Debug)]
pub(crate) struct KeyRequirement {
    audit: AuditLog,
    required: AtomicBool,
    /// Serializes changes of the requirement and of keys. Held while the store is written, because a
    /// key that is added meanwhile must find the requirement that it relies on.
    changing: Mutex<()>,
}

/// Keeps the requirement from being turned off while keys are added.
#[derive(Debug)]
#[must_use]
pub(crate) struct RequirementGuard<'a>(
    #[expect(dead_code, reason = "held for its Drop")] MutexGuard<'a, ()>,
);

impl KeyRequirement {
    /// Loads the requirement. Fails if it cannot be read: assuming that keys are optional could open
    /// the gateway to anyone.
    pub(crate) async fn load(
        store: &Store,
        audit: AuditLog,
        config: &Config,
    ) -> Result<Self, StoreError> {
        let required = match store.setting(SETTING).await? {
            None => false,
            Some((Value::Bool(required), _)) => required,
            Some(_) => return Err(StoreError::UnreadableSetting(SETTING.to_owned())),
        };
        let requirement = Self {
            audit,
            required: AtomicBool::new(required),
            changing: Mutex::new(()),
        };
        drop(requirement.remember_keys(config).await?);
        Ok(requirement)
    }

    pub(super) fn is_set(&self) -> bool {
        self.required.load(Ordering::Acquire)
    }

    /// Stores that keys are required if the configuration has any. It may be applied while the
    /// returned guard is held.
    pub(super) async fn remember_keys(
        &self,
        config: &Config,
    ) -> Result<RequirementGuard<'_>, StoreError> {
        let guard = self.changing.lock().await;
        if !config.keys.is_empty() {
            self.set(true, AdminAction::new("configuration", "keys.require", ""))
                .await?;
        }
        Ok(RequirementGuard(guard))
    }

    /// Requires keys from now on.
    pub(super) async fn turn_on(&self, action: AdminAction) -> Result<(), StoreError> {
        let _guard = self.changing.lock().await;
        self.set(true, action).await
    }

    /// Makes keys optional if none is defined. Returns whether it did.
    pub(super) async fn turn_off(
        &self,
        has_keys: impl FnOnce() -> bool,
        action: AdminAction,
    ) -> Result<bool, StoreError> {
        let _guard = self.changing.lock().await;
        if has_keys() {
            return Ok(false);
        }
        self.set(false, action).await?;
        Ok(true)
    }

    async fn set(&self, required: bool, action: AdminAction) -> Result<(), StoreError> {
        if self.is_set() == required {
            return Ok(());
        }
        let change = ConfigChange::PutSetting {
            key: SETTING.to_owned(),
            value: Value::Bool(required),
            file_hash: String::new(),
        };
        self.audit.save(&[change], action).await?;
        self.required.store(required, Ordering::Release);
        if required {
            tracing::info!("callers need a key from now on, even if the last key is removed");
        } else {
            tracing::warn!("callers need no key from now on");
        }
        Ok(())
    }
}
