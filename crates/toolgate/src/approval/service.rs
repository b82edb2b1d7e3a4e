//! Requests, decides and redeems approvals.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;
use toolgate_core::config::{Approver, Approvers};
use toolgate_core::name::ToolId;

use super::store::ApprovalStore;
use super::ticket::Ticket;
use super::{
    Approval, ApprovalDecision, ApprovalGrant, ApprovalRequest, ApprovalScope, ApprovalState,
    DecideError, Decider, MAX_CLIENT_ARGUMENT_BYTES, Ruling, ToolFingerprint,
};
use crate::call::{CallError, LimitReached};
use crate::event_channel::EventChannel;
use crate::store::{StoreError, clock};

/// Maximum number of pending approvals of one caller.
const MAX_PENDING_APPROVALS_PER_CALLER: i64 = 100;
/// Maximum number of pending approvals of all callers.
const MAX_PENDING_APPROVALS: i64 = 1000;
/// Maximum size of arguments that an administrator can be shown.
const MAX_ARGUMENT_BYTES: usize = 256 * 1024;
/// Session grants expire after this time without use.
const SESSION_GRANT_IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
const MAX_SESSION_GRANTS: u64 = 100_000;
/// Attempts to claim a ticket or create a request before giving up.
const MAX_CLEARANCE_ATTEMPTS: usize = 8;

/// Reason for the end of an approval that nobody can decide.
const UNDECIDABLE: &str = "`approval_by` no longer allows anyone to decide about this call";

/// What the configuration in force says about a decision.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DecisionTerms {
    pub(crate) approvers: Approvers,
    /// Time within which an approval must be used.
    pub(crate) expiry: Duration,
}

/// The permission with which a call may run.
#[derive(Debug)]
pub(crate) enum Clearance {
    /// Covered by an earlier grant.
    Granted {
        approval: String,
    },
    Ticket(Ticket),
}

/// Manages all approvals of a gateway. Clones share state.
#[derive(Clone, Debug)]
pub(crate) struct ApprovalService {
    store: ApprovalStore,
    events: EventChannel<Arc<Approval>>,
    /// Maps to the id of the approval that created the grant.
    session_grants: Cache<SessionGrantKey, String>,
    /// Transitions that must complete even if the caller disconnects.
    tasks: TaskTracker,
}

/// The calls that a session grant covers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SessionGrantKey {
    /// Caller and session, see [`ApprovalRequest::session_key`].
    session: String,
    tool: ToolId,
    fingerprint: ToolFingerprint,
}

impl SessionGrantKey {
    /// Returns the key of the grant that covers a call; `None` if the call belongs to no session.
    fn new(request: &ApprovalRequest) -> Option<Self> {
        Some(Self {
            session: request.session_key()?,
            tool: request.tool.clone(),
            fingerprint: request.fingerprint.clone(),
        })
    }
}

impl ApprovalService {
    pub(crate) fn new(store: ApprovalStore) -> Self {
        Self {
            store,
            events: EventChannel::new(),
            session_grants: Cache::builder()
                .max_capacity(MAX_SESSION_GRANTS)
                .time_to_idle(SESSION_GRANT_IDLE_TIMEOUT)
                .support_invalidation_closures()
                .build(),
            tasks: TaskTracker::new(),
        }
    }

    /// Waits for pending state transitions.
    pub(crate) async fn stop(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Revokes the session grants of a caller.
    pub(crate) fn revoke_session_grants(&self, caller: &str) {
        let prefix = format!("{caller}\0");
        let invalidated = self
            .session_grants
            .invalidate_entries_if(move |key, _| key.session.starts_with(&prefix));
        if let Err(error) = invalidated {
            tracing::error!(%error, "failed to revoke session grants");
        }
    }

    /// Claims a ticket or grant for a call, or requests an approval and fails with its id.
    pub(crate) async fn obtain_clearance(
        &self,
        request: ApprovalRequest,
        expiry: Duration,
    ) -> Result<Clearance, CallError> {
        let has_approver = request.approvers.contains(Approver::Admin)
            || (request.client_can_approve && request.approvers.contains(Approver::Client));
        // An iteration repeats only if a concurrent call won the race for the ticket or request.
        for _ in 0..MAX_CLEARANCE_ATTEMPTS {
            let now = clock::now();
            let latest = if has_approver {
                self.store.latest(&request, now).await?
            } else {
                None
            };
            // A ticket is worth nothing if its approver may no longer decide about this call.
            let latest = latest.filter(|found| {
                found.state != ApprovalState::Approved
                    || found
                        .decision
                        .as_ref()
                        .is_some_and(|decision| request.approvers.contains(decision.approver()))
            });
            // Tickets come before grants: the call that led to a grant has its own ticket, possibly
            // with edited arguments.
            if let Some(found) = &latest
                && found.state == ApprovalState::Approved
            {
                match self.claim_ticket(found.clone()).await? {
                    Some(ticket) => return Ok(Clearance::Ticket(ticket)),
                    None => continue,
                }
            }
            if let Some(approval) = self.find_grant(&request).await? {
                return Ok(Clearance::Granted { approval });
            }
            match latest {
                Some(found) if found.state == ApprovalState::Denied => {
                    return Err(denied_error(request, found));
                }
                Some(found) => return Err(needs_approval_error(&found)),
                None if !has_approver => {
                    return Err(CallError::NoApprover {
                        alias: request.alias,
                        because: request.rule,
                    });
                }
                None => {
                    if let Some(created) = self.create_request(&request, expiry).await? {
                        return Err(needs_approval_error(&created));
                    }
                }
            }
        }
        Err(CallError::Unrecorded)
    }

    /// Claims an approved ticket; `None` if a concurrent call claimed it first. The ticket is
    /// released if the caller has gone away meanwhile.
    async fn claim_ticket(&self, approval: Approval) -> Result<Option<Ticket>, CallError> {
        let (sender, claimed) = oneshot::channel();
        let service = self.clone();
        self.tasks.spawn(async move {
            let (from, to) = (ApprovalState::Approved, ApprovalState::Executing);
            let moved = service.transition(approval, from, to).await;
            let ticket = moved.map(|moved| moved.map(|approval| Ticket::new(service, approval)));
            // The caller may be dropped before or after this, so the ticket releases itself.
            let _ = sender.send(ticket);
        });
        Ok(claimed.await.map_err(|_| CallError::Cancelled)??)
    }

    /// Moves an approval to another state and publishes it; `None` if it was not in state `from` or
    /// has expired.
    async fn transition(
        &self,
        approval: Approval,
        from: ApprovalState,
        to: ApprovalState,
    ) -> Result<Option<Approval>, StoreError> {
        let now = match from {
            // Executing approvals do not expire.
            ApprovalState::Executing => 0,
            _ => clock::now(),
        };
        let moved = self.store.transition(&approval.id, from, to, now).await?;
        Ok(moved.then(|| {
            self.publish(Approval {
                state: to,
                ..approval
            })
        }))
    }

    /// Moves the approval of a call that has ended to another state. This completes even if nobody
    /// waits for it.
    pub(super) fn finish(&self, approval: Approval, to: ApprovalState) -> JoinHandle<()> {
        let service = self.clone();
        self.tasks.spawn(async move {
            let id = approval.id.clone();
            let moved = service.transition(approval, ApprovalState::Executing, to);
            if let Err(error) = moved.await {
                tracing::error!(%error, approval = id, "failed to close approval");
            }
        })
    }

    /// Applies a decision. It completes even if the caller stops waiting.
    pub(crate) async fn decide(
        &self,
        id: &str,
        ruling: Ruling,
        by: &Decider,
        terms: DecisionTerms,
    ) -> Result<Approval, DecideError> {
        let (service, id, by) = (self.clone(), id.to_owned(), by.clone());
        let deciding = self
            .tasks
            .spawn(async move { service.apply_ruling(id, ruling, by, terms).await });
        deciding.await.unwrap_or(Err(DecideError::Stopping))
    }

    /// Ends a pending approval that nobody can decide any more, and returns it.
    pub(crate) async fn expire_undecidable(
        &self,
        approval: Approval,
    ) -> Result<Approval, StoreError> {
        let expired = Approval {
            state: ApprovalState::Expired,
            decision: Some(ApprovalDecision {
                by: "configuration".to_owned(),
                at: clock::now(),
                scope: ApprovalScope::Once,
                reason: Some(UNDECIDABLE.to_owned()),
            }),
            ..approval
        };
        if self.store.record_decision(&expired, None).await? {
            tracing::warn!(
                approval = expired.id,
                tool = %expired.request.tool,
                "approval expired because nobody may decide about it any more"
            );
            return Ok(self.publish(expired));
        }
        // It was decided meanwhile.
        let decided = self.store.get(&expired.id).await?;
        Ok(decided.unwrap_or(expired))
    }

    async fn apply_ruling(
        &self,
        id: String,
        ruling: Ruling,
        by: Decider,
        terms: DecisionTerms,
    ) -> Result<Approval, DecideError> {
        let DecisionTerms { approvers, expiry } = terms;
        let now = clock::now();
        self.store.expire(now).await?;
        let found = self.store.get(&id).await?;
        let mut approval = found.ok_or_else(|| DecideError::NotFound(id.clone()))?;
        if matches!(&by, Decider::Key(key) if approval.request.from.caller.as_ref() == Some(key)) {
            return Err(DecideError::OwnCall);
        }
        if approval.state != ApprovalState::Pending {
            return Err(DecideError::AlreadyDecided(approval.state.as_str()));
        }
        if !approvers.contains(by.approver()) {
            return Err(DecideError::DeciderNotAllowed);
        }
        let (scope, reason) = match ruling {
            Ruling::Approve {
                scope: ApprovalScope::Caller,
                ..
            }
            | Ruling::Deny {
                scope: ApprovalScope::Session | ApprovalScope::Always,
                ..
            } => return Err(DecideError::WrongScope),
            Ruling::Approve { scope, arguments } => {
                if scope != ApprovalScope::Once && approval.request.is_from_scanner() {
                    return Err(DecideError::OnlyOnce);
                }
                if scope == ApprovalScope::Session && approval.request.session_key().is_none() {
                    return Err(DecideError::NoSession);
                }
                approval.state = ApprovalState::Approved;
                approval.edited = arguments.map(|arguments| arguments.raw().to_owned());
                approval.expires_at = now + i64::try_from(expiry.as_millis()).unwrap_or(i64::MAX);
                (scope, None)
            }
            Ruling::Deny { reason, scope } => {
                approval.state = ApprovalState::Denied;
                (scope, reason)
            }
        };
        approval.decision = Some(ApprovalDecision {
            by: by.to_string(),
            at: now,
            scope,
            reason,
        });
        let grant = (scope == ApprovalScope::Always).then(|| ApprovalGrant::new(&approval, &by));
        if !self
            .store
            .record_decision(&approval, grant.as_ref())
            .await?
        {
            let state = self.store.get(&id).await?.map(|now| now.state);
            let state = state.unwrap_or(ApprovalState::Expired);
            return Err(DecideError::AlreadyDecided(state.as_str()));
        }
        if scope == ApprovalScope::Session
            && let Some(key) = SessionGrantKey::new(&approval.request)
        {
            self.session_grants.insert(key, approval.id.clone());
        }
        Ok(self.publish(approval))
    }

    /// Subscribes to approvals, published when they are created or change their state.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Arc<Approval>> {
        self.events.subscribe()
    }

    /// Deletes closed approvals created before a time.
    pub(crate) async fn delete_closed(&self, before: i64) -> Result<(), StoreError> {
        self.store.delete_closed(before).await
    }

    /// Returns an approval by id.
    pub(crate) async fn get(&self, id: &str) -> Result<Option<Approval>, StoreError> {
        self.store.get(id).await
    }

    /// Counts the approvals that wait for a decision.
    pub(crate) async fn count_waiting(&self) -> Result<i64, StoreError> {
        self.store.count_waiting(clock::now()).await
    }

    /// Returns all permanent grants, oldest first.
    pub(crate) async fn grants(&self) -> Result<Vec<ApprovalGrant>, StoreError> {
        self.store.grants().await
    }

    /// Revokes a permanent grant; returns `false` if it does not exist.
    pub(crate) async fn revoke_grant(&self, id: &str, by: &Decider) -> Result<bool, StoreError> {
        self.store.delete_grant(id, &by.to_string()).await
    }

    /// Returns approvals, oldest first.
    pub(crate) async fn list(
        &self,
        state: Option<ApprovalState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Approval>, StoreError> {
        self.store.expire(clock::now()).await?;
        self.store.list(state, after, limit).await
    }

    /// Returns the id of the approval behind a session or permanent grant that covers the call. The
    /// scanner flags specific arguments, so its requests are only ever satisfied by a ticket.
    async fn find_grant(&self, request: &ApprovalRequest) -> Result<Option<String>, StoreError> {
        if request.is_from_scanner() {
            return Ok(None);
        }
        let key = SessionGrantKey::new(request);
        if let Some(approval) = key.and_then(|key| self.session_grants.get(&key)) {
            return Ok(Some(approval));
        }
        self.store.find_grant(request).await
    }

    /// Creates a pending approval; `None` if a concurrent call created the same one.
    async fn create_request(
        &self,
        request: &ApprovalRequest,
        expiry: Duration,
    ) -> Result<Option<Approval>, CallError> {
        let limit_error = |limit| CallError::Limited {
            limit,
            retry_after: None,
        };
        // Nobody is asked about arguments that they cannot be shown whole.
        let max_bytes = if request.approvers.contains(Approver::Admin) {
            MAX_ARGUMENT_BYTES
        } else {
            MAX_CLIENT_ARGUMENT_BYTES
        };
        if request.arguments.get().len() > max_bytes {
            return Err(limit_error(LimitReached::ApprovalSize));
        }
        let now = clock::now();
        let approval = Approval {
            id: clock::new_id().to_string(),
            state: ApprovalState::Pending,
            request: request.clone(),
            edited: None,
            created_at: now,
            expires_at: now + i64::try_from(expiry.as_millis()).unwrap_or(i64::MAX),
            decision: None,
        };
        self.store.expire(approval.created_at).await?;
        let caller = request.from.caller.as_deref().unwrap_or_default();
        let (of_caller, all) = self.store.count_pending(caller).await?;
        if of_caller >= MAX_PENDING_APPROVALS_PER_CALLER || all >= MAX_PENDING_APPROVALS {
            return Err(limit_error(LimitReached::Approvals));
        }
        let put = self.store.put(&approval).await;
        Ok(put?.then(|| self.publish(approval)))
    }

    fn publish(&self, approval: Approval) -> Approval {
        self.events.publish(|| Arc::new(approval.clone()));
        approval
    }
}

fn denied_error(request: ApprovalRequest, approval: Approval) -> CallError {
    let reason = approval.decision.and_then(|decided| decided.reason);
    CallError::Denied {
        approval: Some(approval.id),
        alias: request.alias,
        because: request.rule,
        reason: match reason {
            Some(reason) => format!("the approver denied it: {reason}"),
            None => "the approver denied it".to_owned(),
        },
    }
}

fn needs_approval_error(approval: &Approval) -> CallError {
    CallError::NeedsApproval {
        alias: approval.request.alias.clone(),
        because: approval.request.rule.clone(),
        id: approval.id.clone(),
        expires_at: crate::store::from_unix_millis(approval.expires_at),
    }
}
