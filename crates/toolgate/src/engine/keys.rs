//! Handle for the keys of callers.

use std::num::NonZeroU32;
use std::sync::Arc;

use toolgate_core::config::APPROVER_ROLE;

use super::rules::KeyError;
use super::{Inner, spending};
use crate::approval;
use crate::audit::AdminAction;
use crate::call::{CallError, RateAdmission};
use crate::caller::Caller;
use crate::code_mode;
use crate::metrics::AuthKind;
use crate::store::StoreError;
use crate::tasks;

/// Handle for the keys with which callers authenticate.
#[derive(Clone, Copy, Debug)]
pub struct Keys<'a>(&'a Inner);

/// The reason why keys cannot be made optional.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MakeOptionalError {
    /// Keys are defined.
    #[error("callers need a key while any is defined; remove all keys first")]
    KeysDefined,
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<'a> Keys<'a> {
    pub(super) fn new(engine: &'a Inner) -> Self {
        Self(engine)
    }

    /// Returns the name of the presented key if it is valid.
    pub fn authenticate(self, presented: &str) -> Result<Arc<str>, KeyError> {
        self.0.rules.load().authenticate(presented)
    }

    /// Returns whether callers need a key: while any is defined, and after that until
    /// [`Self::make_optional`] turns it off. The store remembers it.
    pub fn are_required(self) -> bool {
        self.has_any() || self.0.key_requirement.is_set()
    }

    /// Returns whether any key is defined, valid or not.
    pub fn has_any(self) -> bool {
        self.0.rules.load().has_keys()
    }

    /// Requires a key of callers from now on, even if none is defined. The action is recorded.
    pub async fn require(self, action: AdminAction) -> Result<(), StoreError> {
        self.0.key_requirement.turn_on(action).await
    }

    /// Lets callers do without a key again, until the next one is defined. Fails while any is defined.
    /// The action is recorded.
    pub async fn make_optional(self, action: AdminAction) -> Result<(), MakeOptionalError> {
        let requirement = &self.0.key_requirement;
        if requirement.turn_off(|| self.has_any(), action).await? {
            Ok(())
        } else {
            Err(MakeOptionalError::KeysDefined)
        }
    }

    /// Returns whether the caller's key, if it has one, is still valid.
    pub fn is_valid(self, caller: &Caller) -> bool {
        self.0.rules.load().key_entry(caller).is_ok()
    }

    /// Returns whether a key, by name, may decide on approvals.
    pub fn is_approver(self, key: &str) -> bool {
        self.0.rules.load().has_role(key, APPROVER_ROLE)
    }

    /// Counts a request that failed to authenticate in the metrics.
    #[doc(hidden)] // for the API of the binary
    pub fn count_failure(self, kind: AuthKind) {
        self.0.deps.metrics.count_auth_failure(kind);
    }

    /// Fails if the rate limit of the caller's key is known to be used up. Counts nothing, so that a
    /// request can be refused before its body is read; the refusal is recorded.
    pub fn check_exhausted(self, caller: &Caller, request_id: &str) -> Result<(), CallError> {
        let Some(key) = caller.key() else {
            return Ok(());
        };
        let refused = self.0.rules.load().limits.check_exhausted(key);
        refused.inspect_err(|error| {
            let audit = &self.0.deps.audit;
            audit.record_unread_request(caller, request_id, error);
        })
    }

    /// Counts several calls against the rate limit of the caller's key before the first of them runs:
    /// all of them, or none if they exceed it.
    ///
    /// Put the returned admission into the [`RequestContext`](crate::RequestContext) of those calls;
    /// otherwise each of them is counted again. Fails with [`CallError::Limited`] if the calls can be
    /// admitted later, and with [`CallError::TooManyCalls`] if they are more than the limit ever admits
    /// at once.
    pub fn admit_calls(self, caller: &Caller, calls: usize) -> Result<RateAdmission, CallError> {
        let rules = self.0.rules.load();
        rules.key_entry(caller)?;
        let calls = u32::try_from(calls).unwrap_or(u32::MAX);
        if let (Some(key), Some(count)) = (caller.key(), NonZeroU32::new(calls))
            && let Err(error) = rules.limits.check_key_rate(key, count)
        {
            self.0
                .deps
                .audit
                .record_refused_calls(caller, calls, &error);
            return Err(error);
        }
        Ok(RateAdmission::new(caller.key().cloned(), calls))
    }

    /// Revokes everything granted to a key, by name, and resets its budget. A new key of the same name
    /// inherits nothing.
    pub async fn reset(self, key: &str) -> Result<(), StoreError> {
        let deps = &self.0.deps;
        deps.approvals.revoke_session_grants(key);
        let mut transaction = deps.store.begin_durable().await?;
        approval::revoke_caller(&mut transaction, key).await?;
        code_mode::delete_scripts_of(&mut transaction, key).await?;
        tasks::delete_tasks_of(&mut transaction, key).await?;
        spending::reset_spending(&mut transaction, key).await?;
        transaction.commit().await?;
        self.0.budgets.reset(key);
        deps.conversations.forget_caller(key);
        Ok(())
    }
}
