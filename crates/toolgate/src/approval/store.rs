//! Storage of approvals and grants. Arguments and conversations are sealed.

use serde_json::json;
use serde_json::value::RawValue;
use sqlx::any::AnyRow;
use sqlx::{AssertSqlSafe, Row as _};
use toolgate_core::config::{Approver, Approvers};
use toolgate_core::{ServerName, ToolId, ToolName};

use super::{
    Approval, ApprovalDecision, ApprovalGrant, ApprovalOrigin, ApprovalRequest, ApprovalScope,
    ApprovalState, ToolFingerprint,
};
use crate::audit::{AdminAction, AuditKind, AuditLog, AuditRecord};
use crate::store::{Store, StoreError, StoreTransaction};

const COLUMNS: &str = "id, state, caller, session, origin, server, tool, alias, digest, fingerprint, rule, request_id, run_id, arguments, edited, conversation, created_at, expires_at, decided_at, decided_by, scope, reason, approvers";

/// Reads and writes approvals and grants, which survive a power failure. Clones share the store.
#[derive(Clone, Debug)]
pub(crate) struct ApprovalStore {
    store: Store,
    audit: AuditLog,
}

impl ApprovalStore {
    pub(crate) fn new(store: Store, audit: AuditLog) -> Self {
        Self { store, audit }
    }

    /// Marks approvals whose calls were running when a previous gateway process stopped.
    pub(crate) async fn mark_interrupted(&self) -> Result<(), StoreError> {
        self.store
            .execute_durable(sqlx::query(
                "UPDATE approvals SET state = 'unknown' WHERE state = 'executing'",
            ))
            .await?;
        Ok(())
    }

    /// Revokes the grants and open approvals of versions that did not store the definition of the
    /// tool: nothing shows that it is still the one that was approved.
    pub(crate) async fn revoke_without_definition(&self) -> Result<(), StoreError> {
        const OLD: &str = "fingerprint NOT LIKE '%:_%'";
        let sql = format!("SELECT id, caller, server, tool FROM grants WHERE {OLD}");
        let rows = sqlx::query(AssertSqlSafe(sql))
            .fetch_all(self.store.readers())
            .await?;
        for row in &rows {
            let (caller, server, tool): (String, String, String) =
                (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
            tracing::warn!(
                caller,
                server,
                tool,
                "revoking permanent approval that does not name the tool's definition; approve the next call again"
            );
            self.delete_grant(row.try_get(0)?, "upgrade").await?;
        }
        let expire = format!(
            "UPDATE approvals SET state = 'expired' WHERE state IN ('pending', 'approved') AND {OLD}"
        );
        self.store
            .execute_durable(sqlx::query(AssertSqlSafe(expire)))
            .await?;
        Ok(())
    }

    /// Stores a pending approval; returns `false` if the same call is already pending.
    pub(crate) async fn put(&self, approval: &Approval) -> Result<bool, StoreError> {
        let request = &approval.request;
        let conversation = request.conversation.as_ref();
        let done = self.store.execute_durable(sqlx::query(
            "INSERT INTO approvals (id, state, caller, session, origin, server, tool, alias, digest, fingerprint, rule, request_id, run_id, arguments, conversation, created_at, expires_at, approvers)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18) ON CONFLICT DO NOTHING",
        )
        .bind(&approval.id)
        .bind(approval.state.as_str())
        .bind(request.from.caller.as_deref().unwrap_or_default())
        .bind(&request.from.session)
        .bind(&request.from.origin)
        .bind(request.tool.server.as_str())
        .bind(request.tool.tool.as_str())
        .bind(&request.alias)
        .bind(&request.digest)
        .bind(request.fingerprint.to_string())
        .bind(&request.rule)
        .bind(&request.from.request_id)
        .bind(&request.from.run_id)
        .bind(self.store.seal(request.arguments.get())?)
        .bind(conversation.map(|raw| self.store.seal(raw.get())).transpose()?)
        .bind(approval.created_at)
        .bind(approval.expires_at)
        .bind(format_approvers(request.approvers))).await?;
        Ok(done == 1)
    }

    /// Returns the newest approval of the same call by the same caller that is pending, approved or
    /// denied and has not expired. A denial in a run counts in that run only, unless its scope is wider.
    pub(crate) async fn latest(
        &self,
        request: &ApprovalRequest,
        now: i64,
    ) -> Result<Option<Approval>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM approvals WHERE caller = $1 AND server = $2 AND tool = $3 AND digest = $4 AND fingerprint = $5
             AND state IN ('pending', 'approved', 'denied') AND expires_at > $6
             AND (scope IS NULL OR scope <> 'session' OR session = $7)
             AND (state <> 'denied' OR scope = 'caller' OR run_id IS NULL OR run_id = $8) ORDER BY id DESC LIMIT 1"
        );
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(request.from.caller.as_deref().unwrap_or_default())
            .bind(request.tool.server.as_str())
            .bind(request.tool.tool.as_str())
            .bind(&request.digest)
            .bind(request.fingerprint.to_string())
            .bind(now)
            .bind(request.from.session.as_deref().unwrap_or_default())
            .bind(request.from.run_id.as_deref().unwrap_or_default())
            .fetch_optional(self.store.readers())
            .await?;
        row.map(|row| self.read_approval(&row)).transpose()
    }

    pub(crate) async fn get(&self, id: &str) -> Result<Option<Approval>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM approvals WHERE id = $1");
        let row = sqlx::query(AssertSqlSafe(sql))
            .bind(id)
            .fetch_optional(self.store.readers())
            .await?;
        row.map(|row| self.read_approval(&row)).transpose()
    }

    /// Returns approvals, oldest first. One that cannot be read is logged and left out, so that the
    /// others can still be decided.
    pub(crate) async fn list(
        &self,
        state: Option<ApprovalState>,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<Approval>, StoreError> {
        let state = state.map_or("%", ApprovalState::as_str);
        let sql = format!(
            "SELECT {COLUMNS} FROM approvals WHERE state LIKE $1 AND id > $2 ORDER BY id LIMIT {limit}"
        );
        let rows = sqlx::query(AssertSqlSafe(sql))
            .bind(state)
            .bind(after.unwrap_or_default())
            .fetch_all(self.store.readers())
            .await?;
        let mut approvals = Vec::new();
        for row in &rows {
            match self.read_approval(row) {
                Ok(approval) => approvals.push(approval),
                Err(error @ StoreError::Unreadable) => {
                    let approval: String = row.try_get(0)?;
                    tracing::error!(approval, %error, "leaving out approval that cannot be read");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(approvals)
    }

    /// Moves an approval from one state to another; returns `false` if it was in another state or
    /// has expired.
    pub(crate) async fn transition(
        &self,
        id: &str,
        from: ApprovalState,
        to: ApprovalState,
        now: i64,
    ) -> Result<bool, StoreError> {
        let done = self.store.execute_durable(sqlx::query(
            "UPDATE approvals SET state = $1 WHERE id = $2 AND state = $3 AND expires_at > $4",
        )
        .bind(to.as_str())
        .bind(id)
        .bind(from.as_str())
        .bind(now)).await?;
        Ok(done == 1)
    }

    /// Stores the decision on a pending approval and the resulting grant; returns `false` if the
    /// approval is no longer pending.
    pub(crate) async fn record_decision(
        &self,
        approval: &Approval,
        grant: Option<&ApprovalGrant>,
    ) -> Result<bool, StoreError> {
        let decided = approval.decision.as_ref();
        let edited = approval.edited.as_ref();
        let mut transaction = self.store.begin_durable().await?;
        let update = sqlx::query(
            "UPDATE approvals SET state = $1, edited = $2, expires_at = $3, decided_at = $4, decided_by = $5, scope = $6, reason = $7
             WHERE id = $8 AND state = 'pending'",
        )
        .bind(approval.state.as_str())
        .bind(edited.map(|raw| self.store.seal(raw.get())).transpose()?)
        .bind(approval.expires_at)
        .bind(decided.map(|decided| decided.at))
        .bind(decided.map(|decided| decided.by.clone()))
        .bind(decided.map(|decided| decided.scope.as_str()))
        .bind(decided.and_then(|decided| decided.reason.clone()))
        .bind(&approval.id);
        if transaction.run(update).await? == 0 {
            transaction.commit().await?;
            return Ok(false);
        }
        if let Some(grant) = grant {
            let insert = sqlx::query(
                "INSERT INTO grants (id, caller, server, tool, fingerprint, approval, granted_by, created_at)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8) ON CONFLICT DO NOTHING",
            )
            .bind(&grant.id)
            .bind(grant.caller.as_deref().unwrap_or_default())
            .bind(&grant.server)
            .bind(&grant.tool)
            .bind(grant.fingerprint.to_string())
            .bind(&grant.approval)
            .bind(&grant.granted_by)
            .bind(grant.created_at);
            transaction.run(insert).await?;
        }
        let entry = self.audit.prepare(decision_record(approval));
        self.audit.commit(transaction, vec![entry]).await?;
        Ok(true)
    }

    /// Marks open approvals that have passed their expiry.
    pub(crate) async fn expire(&self, now: i64) -> Result<(), StoreError> {
        const EXPIRED: &str = "state IN ('pending', 'approved') AND expires_at <= $1";
        let sql = format!("SELECT {COLUMNS} FROM approvals WHERE {EXPIRED}");
        let select = || sqlx::query(AssertSqlSafe(sql.clone())).bind(now);
        // Most often there is none, and then nothing has to be written.
        if select()
            .fetch_optional(self.store.readers())
            .await?
            .is_none()
        {
            return Ok(());
        }
        let mut transaction = self.store.begin_durable().await?;
        let rows = select().fetch_all(&mut *transaction).await?;
        let update = format!("UPDATE approvals SET state = 'expired' WHERE {EXPIRED}");
        transaction
            .run(sqlx::query(AssertSqlSafe(update)).bind(now))
            .await?;
        let expired = rows.iter().filter_map(|row| {
            let approval = self.read_approval(row).ok()?;
            Some(self.audit.prepare(decision_record(&Approval {
                state: ApprovalState::Expired,
                ..approval
            })))
        });
        let entries = expired.collect();
        self.audit.commit(transaction, entries).await
    }

    /// Deletes closed approvals created before a time.
    pub(crate) async fn delete_closed(&self, before: i64) -> Result<(), StoreError> {
        self.store.execute_durable(sqlx::query(
            "DELETE FROM approvals WHERE created_at < $1 AND state NOT IN ('pending', 'approved')",
        )
        .bind(before)).await?;
        Ok(())
    }

    /// Counts the pending approvals of one caller and of all callers.
    pub(crate) async fn count_pending(&self, caller: &str) -> Result<(i64, i64), StoreError> {
        let row = sqlx::query(
            "SELECT COALESCE(SUM(CASE WHEN caller = $1 THEN 1 ELSE 0 END), 0), COUNT(*) FROM approvals WHERE state = 'pending'",
        )
        .bind(caller)
        .fetch_one(self.store.readers())
        .await?;
        Ok((row.try_get(0)?, row.try_get(1)?))
    }

    /// Counts the pending approvals that have not expired.
    pub(crate) async fn count_waiting(&self, now: i64) -> Result<i64, StoreError> {
        let row = sqlx::query(
            "SELECT COUNT(*) FROM approvals WHERE state = 'pending' AND expires_at > $1",
        )
        .bind(now)
        .fetch_one(self.store.readers())
        .await?;
        Ok(row.try_get(0)?)
    }

    /// Returns the id of the approval behind a permanent grant that covers the call.
    pub(crate) async fn find_grant(
        &self,
        request: &ApprovalRequest,
    ) -> Result<Option<String>, StoreError> {
        let row = sqlx::query(
            "SELECT approval FROM grants WHERE caller = $1 AND server = $2 AND tool = $3 AND fingerprint = $4",
        )
        .bind(request.from.caller.as_deref().unwrap_or_default())
        .bind(request.tool.server.as_str())
        .bind(request.tool.tool.as_str())
        .bind(request.fingerprint.to_string())
        .fetch_optional(self.store.readers())
        .await?;
        Ok(row.map(|row| row.try_get(0)).transpose()?)
    }

    /// Returns all permanent grants, oldest first.
    pub(crate) async fn grants(&self) -> Result<Vec<ApprovalGrant>, StoreError> {
        let rows = sqlx::query(
            "SELECT id, caller, server, tool, fingerprint, approval, granted_by, created_at FROM grants ORDER BY id",
        )
        .fetch_all(self.store.readers())
        .await?;
        let grant = |row: &AnyRow| {
            let caller: String = row.try_get(1)?;
            Ok(ApprovalGrant {
                id: row.try_get(0)?,
                caller: Some(caller).filter(|caller| !caller.is_empty()),
                server: row.try_get(2)?,
                tool: row.try_get(3)?,
                fingerprint: ToolFingerprint::parse(row.try_get(4)?),
                approval: row.try_get(5)?,
                granted_by: row.try_get(6)?,
                created_at: row.try_get(7)?,
            })
        };
        rows.iter().map(grant).collect()
    }

    /// Revokes a permanent grant; returns `false` if it does not exist.
    pub(crate) async fn delete_grant(&self, id: &str, by: &str) -> Result<bool, StoreError> {
        let mut transaction = self.store.begin_durable().await?;
        // The call that led to the grant may not have used its ticket yet.
        let expire = sqlx::query(
            "UPDATE approvals SET state = 'expired' WHERE state = 'approved' AND id IN (SELECT approval FROM grants WHERE id = $1)",
        );
        transaction.run(expire.bind(id)).await?;
        let row = sqlx::query("SELECT caller, server, tool FROM grants WHERE id = $1")
            .bind(id)
            .fetch_optional(&mut *transaction)
            .await?;
        let Some(row) = row else {
            transaction.commit().await?;
            return Ok(false);
        };
        let (caller, server, tool): (String, String, String) =
            (row.try_get(0)?, row.try_get(1)?, row.try_get(2)?);
        let delete = sqlx::query("DELETE FROM grants WHERE id = $1").bind(id);
        transaction.run(delete).await?;
        let before = json!({"caller": caller, "server": server, "tool": tool});
        let action = AdminAction::new(by, "grant.revoke", id).with_change(Some(before), None);
        let entry = self.audit.prepare(action.into_record());
        self.audit.commit(transaction, vec![entry]).await?;
        Ok(true)
    }

    fn read_approval(&self, row: &AnyRow) -> Result<Approval, StoreError> {
        let text = |at: usize| -> Result<Option<String>, sqlx::Error> { row.try_get(at) };
        // An approver must not decide on arguments that cannot be shown, nor an edit be lost.
        let unseal = |sealed: String| -> Result<Box<RawValue>, StoreError> {
            let text = self.store.unseal(&sealed).ok_or(StoreError::Unreadable)?;
            RawValue::from_string(text).map_err(|_| StoreError::Unreadable)
        };
        let (state, caller): (String, String) = (row.try_get(1)?, row.try_get(2)?);
        let (server, tool): (String, String) = (row.try_get(5)?, row.try_get(6)?);
        let server =
            ServerName::parse(&server).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
        let decided_at: Option<i64> = row.try_get(18)?;
        let decided = match decided_at {
            None => None,
            Some(at) => Some(ApprovalDecision {
                at,
                by: text(19)?.unwrap_or_default(),
                // The default is the narrowest scope.
                scope: text(20)?
                    .and_then(|scope| ApprovalScope::parse(&scope))
                    .unwrap_or_default(),
                reason: text(21)?,
            }),
        };
        Ok(Approval {
            id: row.try_get(0)?,
            state: ApprovalState::parse(&state).unwrap_or(ApprovalState::Unknown),
            request: ApprovalRequest {
                tool: ToolId {
                    server,
                    tool: ToolName::new(&tool),
                },
                alias: row.try_get(7)?,
                digest: row.try_get(8)?,
                fingerprint: ToolFingerprint::parse(row.try_get(9)?),
                rule: row.try_get(10)?,
                arguments: unseal(row.try_get(13)?)?,
                approvers: parse_approvers(row.try_get(22)?),
                client_can_approve: false,
                conversation: text(15)?.map(unseal).transpose()?,
                from: ApprovalOrigin {
                    caller: Some(caller).filter(|caller| !caller.is_empty()),
                    session: text(3)?,
                    origin: row.try_get(4)?,
                    request_id: row.try_get(11)?,
                    run_id: text(12)?,
                },
            },
            edited: text(14)?.map(unseal).transpose()?,
            created_at: row.try_get(16)?,
            expires_at: row.try_get(17)?,
            decision: decided,
        })
    }
}

/// Returns the names of approvers, separated by commas.
fn format_approvers(approvers: Approvers) -> String {
    let names: Vec<&str> = approvers.iter().map(Approver::as_str).collect();
    names.join(",")
}

fn parse_approvers(text: &str) -> Approvers {
    let is_named = |approver: &Approver| text.split(',').any(|name| name == approver.as_str());
    Approver::ALL.into_iter().filter(is_named).collect()
}

/// Returns the record of a decision, or of the expiry of a request that nobody decided.
fn decision_record(approval: &Approval) -> AuditRecord {
    let Approval {
        request, decision, ..
    } = approval;
    let mut detail = json!({"arguments": request.digest, "rule": request.rule});
    if let Some(decision) = decision {
        detail["by"] = decision.by.clone().into();
        detail["scope"] = decision.scope.as_str().into();
        detail["reason"] = decision.reason.clone().into();
        detail["edited"] = approval.edited.is_some().into();
    }
    AuditRecord {
        request_id: request.from.request_id.clone(),
        run_id: request.from.run_id.clone(),
        caller: request.from.caller.clone(),
        origin: request.from.origin.clone(),
        server: Some(request.tool.server.to_string()),
        tool: Some(request.tool.tool.to_string()),
        rule: Some(request.rule.clone()),
        approval: Some(approval.id.clone()),
        arguments: Some(request.arguments.clone()),
        bytes_in: i64::try_from(request.arguments.get().len()).unwrap_or(i64::MAX),
        detail: Some(detail),
        ..AuditRecord::event(AuditKind::Approval, &request.alias, approval.state.as_str())
    }
}

/// Revokes the grants and open approvals of a caller.
pub(crate) async fn revoke_caller(
    transaction: &mut StoreTransaction,
    caller: &str,
) -> Result<(), StoreError> {
    for sql in [
        "DELETE FROM grants WHERE caller = $1",
        "UPDATE approvals SET state = 'expired' WHERE caller = $1 AND state IN ('pending', 'approved')",
    ] {
        transaction.run(sqlx::query(sql).bind(caller)).await?;
    }
    Ok(())
}
