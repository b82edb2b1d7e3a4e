//! Where approvals are asked for, decided and used.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moka::sync::Cache;
use toolgate_core::config::Approvals as Settings;
use toolgate_core::name::ToolId;
use uuid::Uuid;

use super::{
    Approval, ApprovalScope, ApprovalState, Ask, DecideError, Decided, Decider, Grant, Ruling,
};
use crate::call::{CallError, Limit};
use crate::event::{Event, Events};
use crate::store::{Store, StoreError, millis};

/// Calls that may wait for a decision at once.
const MOST_PENDING: i64 = 1000;
/// Sessions end when nothing was heard of them for so long.
const SESSION: Duration = Duration::from_secs(30 * 60);
const MOST_SESSION_GRANTS: u64 = 100_000;

/// What lets a call run.
#[derive(Debug)]
pub(crate) enum Clearance {
    /// Someone granted it earlier.
    Granted,
    Ticket(Box<Approval>),
}

/// All approvals of a gateway; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Approvals {
    store: Store,
    events: Events,
    session_grants: Cache<(String, ToolId, String), ()>,
}

impl Approvals {
    pub(crate) fn new(store: Store, events: Events) -> Self {
        Self {
            store,
            events,
            session_grants: Cache::builder()
                .max_capacity(MOST_SESSION_GRANTS)
                .time_to_idle(SESSION)
                .build(),
        }
    }

    /// Finds what lets a call run, or asks for it.
    pub(crate) async fn clear(
        &self,
        ask: Ask,
        settings: &Settings,
    ) -> Result<Clearance, CallError> {
        if self.is_granted(&ask).await? {
            return Ok(Clearance::Granted);
        }
        // Each turn of the loop has seen another caller win.
        for _ in 0..8 {
            let now = millis(SystemTime::now());
            let latest = self.store.latest_approval(&ask, now).await;
            match latest? {
                Some(found) if found.state == ApprovalState::Approved => {
                    let (from, to) = (ApprovalState::Approved, ApprovalState::Executing);
                    let taken = self.store.move_approval(&found.id, from, to, now).await;
                    if taken? {
                        return Ok(Clearance::Ticket(Box::new(
                            self.told(Approval { state: to, ..found }),
                        )));
                    }
                }
                Some(found) if found.state == ApprovalState::Denied => {
                    let reason = found.decided.and_then(|decided| decided.reason);
                    return Err(CallError::Denied {
                        alias: ask.alias,
                        because: ask.rule,
                        reason: reason.map_or_else(
                            || "the approver denied it".to_owned(),
                            |reason| format!("the approver denied it: {reason}"),
                        ),
                    });
                }
                Some(found) => return Err(waits(&found)),
                None if settings.by.is_empty() => {
                    return Err(CallError::NobodyToAsk {
                        alias: ask.alias,
                        because: ask.rule,
                    });
                }
                None => {
                    if let Some(asked) = self.ask(&ask, settings.expiry).await? {
                        return Err(waits(&asked));
                    }
                }
            }
        }
        Err(CallError::Unrecorded)
    }

    /// The call that a ticket let run has ended.
    pub(crate) async fn done(&self, approval: Approval) {
        let (from, to) = (ApprovalState::Executing, ApprovalState::Done);
        let moved = self.store.move_approval(&approval.id, from, to, 0).await;
        if let Err(error) = moved {
            tracing::error!(%error, approval = approval.id, "an approval could not be closed");
        }
        self.told(Approval {
            state: to,
            ..approval
        });
    }

    /// The call that a ticket was taken for was never sent: it may be used again.
    pub(crate) async fn give_back(&self, approval: Approval) {
        let (from, to) = (ApprovalState::Executing, ApprovalState::Approved);
        let moved = self.store.move_approval(&approval.id, from, to, 0).await;
        if let Err(error) = moved {
            tracing::error!(%error, approval = approval.id, "an approval could not be given back");
        }
        self.told(Approval {
            state: to,
            ..approval
        });
    }

    pub(crate) async fn decide(
        &self,
        id: &str,
        ruling: Ruling,
        by: &Decider,
        expiry: Duration,
    ) -> Result<Approval, DecideError> {
        let now = millis(SystemTime::now());
        self.store.expire_approvals(now).await?;
        let found = self.store.approval(id).await?;
        let mut approval = found.ok_or_else(|| DecideError::NotFound(id.to_owned()))?;
        if matches!(by, Decider::Key(key) if approval.ask.from.caller.as_ref() == Some(key)) {
            return Err(DecideError::OwnCall);
        }
        if approval.state != ApprovalState::Pending {
            return Err(DecideError::Settled(approval.state.as_str()));
        }
        let (scope, reason) = match ruling {
            Ruling::Approve { scope, arguments } => {
                if scope == ApprovalScope::Session && approval.ask.session().is_none() {
                    return Err(DecideError::NoSession);
                }
                approval.state = ApprovalState::Approved;
                approval.edited = arguments.map(|arguments| arguments.raw().to_owned());
                approval.expires_at = now + i64::try_from(expiry.as_millis()).unwrap_or(i64::MAX);
                (scope, None)
            }
            Ruling::Deny { reason } => {
                approval.state = ApprovalState::Denied;
                (ApprovalScope::Once, reason)
            }
        };
        approval.decided = Some(Decided {
            by: by.to_string(),
            at: now,
            scope,
            reason,
        });
        if !self.store.settle_approval(&approval).await? {
            let state = self.store.approval(id).await?.map(|now| now.state);
            let state = state.unwrap_or(ApprovalState::Expired);
            return Err(DecideError::Settled(state.as_str()));
        }
        if approval.state == ApprovalState::Approved {
            self.grant(&approval, scope).await?;
        }
        Ok(self.told(approval))
    }

    pub(crate) async fn list(
        &self,
        state: Option<ApprovalState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Approval>, StoreError> {
        self.store
            .expire_approvals(millis(SystemTime::now()))
            .await?;
        self.store.approvals(state, after, limit).await
    }

    async fn is_granted(&self, ask: &Ask) -> Result<bool, StoreError> {
        if let Some(session) = ask.session() {
            let key = (session, ask.tool.clone(), ask.binding.clone());
            if self.session_grants.get(&key).is_some() {
                return Ok(true);
            }
        }
        self.store.has_grant(ask).await
    }

    async fn grant(&self, approval: &Approval, scope: ApprovalScope) -> Result<(), StoreError> {
        let ask = &approval.ask;
        match (scope, ask.session()) {
            (ApprovalScope::Once, _) | (ApprovalScope::Session, None) => Ok(()),
            (ApprovalScope::Session, Some(session)) => {
                let key = (session, ask.tool.clone(), ask.binding.clone());
                self.session_grants.insert(key, ());
                Ok(())
            }
            (ApprovalScope::Always, _) => {
                let decided = approval.decided.as_ref();
                self.store
                    .put_grant(&Grant {
                        id: Uuid::now_v7().to_string(),
                        caller: ask.from.caller.clone(),
                        server: ask.tool.server.to_string(),
                        tool: ask.tool.tool.to_string(),
                        binding: ask.binding.clone(),
                        approval: approval.id.clone(),
                        granted_by: decided.map(|d| d.by.clone()).unwrap_or_default(),
                        created_at: millis(SystemTime::now()),
                    })
                    .await
            }
        }
    }

    /// Puts the call before the approvers; none if the same call was put before them meanwhile.
    async fn ask(&self, ask: &Ask, expiry: Duration) -> Result<Option<Approval>, CallError> {
        let now = SystemTime::now();
        let approval = Approval {
            id: Uuid::now_v7().to_string(),
            state: ApprovalState::Pending,
            ask: ask.clone(),
            edited: None,
            created_at: millis(now),
            expires_at: millis(now + expiry),
            decided: None,
        };
        let expired = self.store.expire_approvals(approval.created_at).await;
        expired?;
        if self.store.pending().await? >= MOST_PENDING {
            return Err(CallError::Limited {
                limit: Limit::Approvals,
                retry_after: None,
            });
        }
        let put = self.store.put_approval(&approval).await;
        Ok(put?.then(|| self.told(approval)))
    }

    fn told(&self, approval: Approval) -> Approval {
        self.events
            .tell(|| Event::Approval(Arc::new(approval.clone())));
        approval
    }
}

fn waits(approval: &Approval) -> CallError {
    CallError::NeedsApproval {
        alias: approval.ask.alias.clone(),
        because: approval.ask.rule.clone(),
        id: approval.id.clone(),
        expires_at: crate::store::from_millis(approval.expires_at),
    }
}
