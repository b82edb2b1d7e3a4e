//! Where approvals are asked for, decided and used.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use moka::sync::Cache;
use tokio::sync::oneshot;
use tokio_util::task::TaskTracker;
use toolgate_core::config::{Approvals as Settings, Approver};
use toolgate_core::name::ToolId;
use uuid::Uuid;

use super::{
    Approval, ApprovalScope, ApprovalState, Ask, DecideError, Decided, Decider, Grant, Ruling,
};
use crate::call::{CallError, Limit};
use crate::event::{Event, Events};
use crate::store::{Store, StoreError, millis};

/// Calls that may wait for a decision at once, of one caller and of all.
const MOST_OF_ONE: i64 = 100;
const MOST_PENDING: i64 = 1000;
/// Bytes of arguments that can be put before an approver.
const LONGEST_ARGUMENTS: usize = 256 * 1024;
/// Sessions end when nothing was heard of them for so long.
const SESSION: Duration = Duration::from_secs(30 * 60);
const MOST_SESSION_GRANTS: u64 = 100_000;

/// What lets a call run.
#[derive(Debug)]
pub(crate) enum Clearance {
    /// Someone granted it earlier.
    Granted {
        approval: String,
    },
    Ticket(Box<Approval>),
}

/// All approvals of a gateway; clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Approvals {
    store: Store,
    events: Events,
    /// With the approval that each was given with.
    session_grants: Cache<SessionGrant, String>,
    /// Steps that must not stop halfway, whoever leaves.
    tasks: TaskTracker,
}

/// A caller's session, a tool, and what its server's name stood for.
type SessionGrant = (String, ToolId, String);

impl Approvals {
    pub(crate) fn new(store: Store, events: Events) -> Self {
        Self {
            store,
            events,
            session_grants: Cache::builder()
                .max_capacity(MOST_SESSION_GRANTS)
                .time_to_idle(SESSION)
                .support_invalidation_closures()
                .build(),
            tasks: TaskTracker::new(),
        }
    }

    /// Waits for decisions under way.
    pub(crate) async fn stop(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }

    /// Takes back all that a caller was granted.
    pub(crate) async fn forget(&self, caller: &str) -> Result<(), StoreError> {
        let own = format!("{caller}\0");
        let forgotten = self
            .session_grants
            .invalidate_entries_if(move |(session, ..), _| session.starts_with(&own));
        if let Err(error) = forgotten {
            tracing::error!(%error, "grants for sessions could not be taken back");
        }
        self.store.forget_caller(caller).await
    }

    /// Finds what lets a call run, or asks for it.
    pub(crate) async fn clear(
        &self,
        ask: Ask,
        settings: &Settings,
    ) -> Result<Clearance, CallError> {
        let can_be_asked = settings.by.contains(&Approver::Admin)
            || (ask.by_client && settings.by.contains(&Approver::Client));
        // Each turn of the loop has seen another caller win.
        for _ in 0..8 {
            let now = millis(SystemTime::now());
            let latest = match can_be_asked {
                true => self.store.latest_approval(&ask, now).await?,
                false => None,
            };
            // The call for which a grant was given has a ticket of its own, perhaps with edits.
            if let Some(found) = &latest
                && found.state == ApprovalState::Approved
            {
                match self.take(found.clone()).await? {
                    Some(ticket) => return Ok(Clearance::Ticket(Box::new(ticket))),
                    None => continue,
                }
            }
            if let Some(approval) = self.granted(&ask).await? {
                return Ok(Clearance::Granted { approval });
            }
            match latest {
                Some(found) if found.state == ApprovalState::Denied => {
                    return Err(denied(ask, found));
                }
                Some(found) => return Err(waits(&found)),
                None if !can_be_asked => {
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

    /// Takes an approved ticket, unless another does first. If nobody waits for it any more, it is
    /// given back.
    async fn take(&self, approval: Approval) -> Result<Option<Approval>, CallError> {
        let (hand, taken) = oneshot::channel();
        let desk = self.clone();
        self.tasks.spawn(async move {
            let (from, to) = (ApprovalState::Approved, ApprovalState::Executing);
            let moved = desk.moved(approval, from, to).await;
            if let Err(Ok(Some(ticket))) = hand.send(moved) {
                desk.give_back(ticket).await;
            }
        });
        Ok(taken.await.map_err(|_| CallError::Cancelled)??)
    }

    /// Moves an approval on and tells of it; none if it was not in that state, or has expired.
    async fn moved(
        &self,
        approval: Approval,
        from: ApprovalState,
        to: ApprovalState,
    ) -> Result<Option<Approval>, StoreError> {
        let now = match from {
            // What runs does not expire.
            ApprovalState::Executing => 0,
            _ => millis(SystemTime::now()),
        };
        let moved = self
            .store
            .move_approval(&approval.id, from, to, now)
            .await?;
        Ok(moved.then(|| {
            self.told(Approval {
                state: to,
                ..approval
            })
        }))
    }

    /// The call that a ticket let run has ended.
    pub(crate) async fn done(&self, approval: Approval) {
        self.end(approval, ApprovalState::Done).await;
    }

    /// Nobody knows whether the call that a ticket let run has done its work.
    pub(crate) async fn uncertain(&self, approval: Approval) {
        self.end(approval, ApprovalState::Unknown).await;
    }

    /// The call that a ticket was taken for was never sent: it may be used again.
    pub(crate) async fn give_back(&self, approval: Approval) {
        self.end(approval, ApprovalState::Approved).await;
    }

    async fn end(&self, approval: Approval, to: ApprovalState) {
        let id = approval.id.clone();
        let moved = self.moved(approval, ApprovalState::Executing, to).await;
        if let Err(error) = moved {
            tracing::error!(%error, approval = id, "an approval could not be closed");
        }
    }

    /// Decides, also if whoever decides does not wait for the end of it.
    pub(crate) async fn decide(
        &self,
        id: &str,
        ruling: Ruling,
        by: &Decider,
        settings: &Settings,
    ) -> Result<Approval, DecideError> {
        let asked = match by {
            Decider::Admin | Decider::Key(_) => Approver::Admin,
            Decider::Client => Approver::Client,
        };
        if !settings.by.contains(&asked) {
            return Err(DecideError::NotAsked);
        }
        let (desk, id, by, expiry) = (self.clone(), id.to_owned(), by.clone(), settings.expiry);
        let deciding = self
            .tasks
            .spawn(async move { desk.settle(id, ruling, by, expiry).await });
        deciding.await.unwrap_or(Err(DecideError::Stopping))
    }

    async fn settle(
        &self,
        id: String,
        ruling: Ruling,
        by: Decider,
        expiry: Duration,
    ) -> Result<Approval, DecideError> {
        let now = millis(SystemTime::now());
        self.store.expire_approvals(now).await?;
        let found = self.store.approval(&id).await?;
        let mut approval = found.ok_or_else(|| DecideError::NotFound(id.clone()))?;
        if matches!(&by, Decider::Key(key) if approval.ask.from.caller.as_ref() == Some(key)) {
            return Err(DecideError::OwnCall);
        }
        if approval.state != ApprovalState::Pending {
            return Err(DecideError::Settled(approval.state.as_str()));
        }
        let (scope, reason) = match ruling {
            Ruling::Approve { scope, arguments } => {
                if scope != ApprovalScope::Once && approval.ask.is_by_scanner() {
                    return Err(DecideError::OnlyOnce);
                }
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
        let grant = (scope == ApprovalScope::Always).then(|| grant(&approval, &by));
        if !self
            .store
            .settle_approval(&approval, grant.as_ref())
            .await?
        {
            let state = self.store.approval(&id).await?.map(|now| now.state);
            let state = state.unwrap_or(ApprovalState::Expired);
            return Err(DecideError::Settled(state.as_str()));
        }
        if let (ApprovalScope::Session, Some(session)) = (scope, approval.ask.session()) {
            let ask = &approval.ask;
            let key = (session, ask.tool.clone(), ask.binding.clone());
            self.session_grants.insert(key, approval.id.clone());
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

    /// The approval with which it was answered for the session or for good. What the scanner asks is about these
    /// very arguments, so only a ticket answers it.
    async fn granted(&self, ask: &Ask) -> Result<Option<String>, StoreError> {
        if ask.is_by_scanner() {
            return Ok(None);
        }
        if let Some(session) = ask.session() {
            let key = (session, ask.tool.clone(), ask.binding.clone());
            if let Some(approval) = self.session_grants.get(&key) {
                return Ok(Some(approval));
            }
        }
        self.store.grant(ask).await
    }

    /// Puts the call before the approvers; none if the same call was put before them meanwhile.
    async fn ask(&self, ask: &Ask, expiry: Duration) -> Result<Option<Approval>, CallError> {
        let limited = |limit| CallError::Limited {
            limit,
            retry_after: None,
        };
        if ask.arguments.get().len() > LONGEST_ARGUMENTS {
            return Err(limited(Limit::ApprovalSize));
        }
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
        let caller = ask.from.caller.as_deref().unwrap_or_default();
        let (own, all) = self.store.pending(caller).await?;
        if own >= MOST_OF_ONE || all >= MOST_PENDING {
            return Err(limited(Limit::Approvals));
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

fn grant(approval: &Approval, by: &Decider) -> Grant {
    let ask = &approval.ask;
    Grant {
        id: Uuid::now_v7().to_string(),
        caller: ask.from.caller.clone(),
        server: ask.tool.server.to_string(),
        tool: ask.tool.tool.to_string(),
        binding: ask.binding.clone(),
        approval: approval.id.clone(),
        granted_by: by.to_string(),
        created_at: millis(SystemTime::now()),
    }
}

fn denied(ask: Ask, approval: Approval) -> CallError {
    let reason = approval.decided.and_then(|decided| decided.reason);
    CallError::Denied {
        approval: Some(approval.id),
        alias: ask.alias,
        because: ask.rule,
        reason: match reason {
            Some(reason) => format!("the approver denied it: {reason}"),
            None => "the approver denied it".to_owned(),
        },
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
