//! Storage of the tasks of MCP clients: which server runs a task for whom, and what came of it.
//!
//! What servers say about a task, its result among it, is sealed. A task is deleted when its time is over.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::RawValue;
use sqlx::Row as _;
use sqlx::any::AnyRow;
use toolgate_core::config::Share;
use toolgate_core::name::ServerName;
use toolgate_mcp::jsonrpc::RpcError;

use crate::store::{Store, StoreError, StoreTransaction, clock};

const COLUMNS: &str = "id, caller, endpoint, server, server_task, state, message, created_at, updated_at, expires_at, poll_ms";

/// Reads and writes tasks. Clones share the store.
#[derive(Clone, Debug)]
pub(crate) struct TaskStore(Store);

/// Who a task belongs to. For everyone else it does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TaskOwner {
    /// Name of the caller's key; empty without one.
    pub(crate) caller: String,
    /// The endpoint at which the task was started.
    pub(crate) endpoint: String,
}

/// A task without its result.
#[derive(Clone, Debug)]
pub(crate) struct TaskRecord {
    pub(crate) id: String,
    pub(crate) owner: TaskOwner,
    /// The task at its server, unless the gateway itself turned the call into a task.
    pub(crate) origin: Option<TaskOrigin>,
    pub(crate) state: TaskState,
    /// Describes the state to people.
    pub(crate) message: Option<String>,
    /// Times in milliseconds since the Unix epoch.
    pub(crate) created_at: i64,
    pub(crate) updated_at: i64,
    pub(crate) expires_at: i64,
    /// Suggested interval between requests, in milliseconds.
    pub(crate) poll_ms: i64,
}

/// A task at its server.
#[derive(Clone, Debug)]
pub(crate) struct TaskOrigin {
    pub(crate) server: ServerName,
    /// The server's id of the task; `None` if it ends with the connection.
    pub(crate) id: Option<String>,
}

/// State of a stored task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskState {
    /// Also that of a task which was interrupted by the end of the process.
    Working,
    Completed,
    /// Completed with a result that says that the tool failed.
    ToolError,
    Failed,
    Cancelled,
}

/// What came of a task.
#[derive(Clone, Debug)]
pub(crate) enum TaskOutcome {
    Result(Arc<RawValue>),
    Failed(RpcError),
    Cancelled,
}

/// Whether there is room for a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskRoom {
    /// There is, and the task was added if that was asked for.
    Added,
    /// The caller has as many tasks as it may.
    FullForCaller,
    Full,
}

impl TaskState {
    const ALL: [Self; 5] = [
        Self::Working,
        Self::Completed,
        Self::ToolError,
        Self::Failed,
        Self::Cancelled,
    ];

    fn as_str(self) -> &'static str {
        match self {
            Self::Working => "working",
            Self::Completed => "completed",
            Self::ToolError => "tool_error",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == name)
    }
}

impl TaskRecord {
    pub(crate) fn is_expired(&self) -> bool {
        self.expires_at <= clock::now()
    }

    pub(crate) fn time_left(&self) -> Duration {
        let left = u64::try_from(self.expires_at - clock::now());
        Duration::from_millis(left.unwrap_or(0))
    }
}

impl TaskStore {
    pub(crate) fn new(store: Store) -> Self {
        Self(store)
    }

    /// Adds a task if there is room for it.
    pub(crate) async fn add(
        &self,
        task: &TaskRecord,
        share: Share,
    ) -> Result<TaskRoom, StoreError> {
        let now = clock::now();
        let mut transaction = self.0.begin().await?;
        let expired = sqlx::query("DELETE FROM tasks WHERE expires_at <= $1").bind(now);
        transaction.run(expired).await?;
        let count = |max: usize| i64::try_from(max).unwrap_or(i64::MAX);
        let origin = task.origin.as_ref();
        let server_task = origin.and_then(|origin| origin.id.as_deref());
        let insert = sqlx::query(
            "INSERT INTO tasks (id, caller, endpoint, server, server_task, state, message, created_at, updated_at, expires_at, poll_ms)
             SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11
             WHERE (SELECT COUNT(*) FROM tasks WHERE caller = $2) < $12
               AND (SELECT COUNT(*) FROM tasks) < $13",
        )
        .bind(&task.id)
        .bind(&task.owner.caller)
        .bind(&task.owner.endpoint)
        .bind(origin.map(|origin| origin.server.to_string()))
        .bind(self.seal(server_task)?)
        .bind(task.state.as_str())
        .bind(self.seal(task.message.as_deref())?)
        .bind(task.created_at)
        .bind(task.updated_at)
        .bind(task.expires_at)
        .bind(task.poll_ms)
        .bind(count(share.max_per_key))
        .bind(count(share.max));
        let added = transaction.run(insert).await? == 1;
        transaction.commit().await?;
        if added {
            return Ok(TaskRoom::Added);
        }
        // Another task may have ended meanwhile, but this one was not added.
        Ok(match self.room(&task.owner, share).await? {
            TaskRoom::FullForCaller => TaskRoom::FullForCaller,
            TaskRoom::Added | TaskRoom::Full => TaskRoom::Full,
        })
    }

    /// Returns whether there is room for a further task.
    pub(crate) async fn room(
        &self,
        owner: &TaskOwner,
        share: Share,
    ) -> Result<TaskRoom, StoreError> {
        let counts = "SELECT COUNT(*), COALESCE(SUM(CASE WHEN caller = $1 THEN 1 ELSE 0 END), 0) FROM tasks WHERE expires_at > $2";
        let row = sqlx::query(counts)
            .bind(&owner.caller)
            .bind(clock::now())
            .fetch_one(self.0.readers())
            .await?;
        let is_full = |count: i64, max: usize| usize::try_from(count).is_ok_and(|n| n >= max);
        Ok(if is_full(row.try_get(1)?, share.max_per_key) {
            TaskRoom::FullForCaller
        } else if is_full(row.try_get(0)?, share.max) {
            TaskRoom::Full
        } else {
            TaskRoom::Added
        })
    }

    /// Stores the end of a task. One that has ended already stays as it is.
    pub(crate) async fn finish(
        &self,
        id: &str,
        state: TaskState,
        message: Option<&str>,
        outcome: &TaskOutcome,
    ) -> Result<(), StoreError> {
        let outcome = match outcome {
            TaskOutcome::Result(result) => Some(self.0.seal(result.get())?),
            TaskOutcome::Failed(error) => {
                let error = serde_json::to_string(error).map_err(|_| StoreError::SealFailed)?;
                Some(self.0.seal(&error)?)
            }
            TaskOutcome::Cancelled => None,
        };
        let update = sqlx::query(
            "UPDATE tasks SET state = $1, message = $2, outcome = $3, updated_at = $4
             WHERE id = $5 AND state = 'working'",
        )
        .bind(state.as_str())
        .bind(self.seal(message)?)
        .bind(outcome)
        .bind(clock::now())
        .bind(id);
        self.0.execute(update).await?;
        Ok(())
    }

    /// Returns a task of an owner.
    pub(crate) async fn get(
        &self,
        owner: &TaskOwner,
        id: &str,
    ) -> Result<Option<TaskRecord>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM tasks WHERE id = $1 AND caller = $2 AND endpoint = $3 AND expires_at > $4"
        );
        let row = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(id)
            .bind(&owner.caller)
            .bind(&owner.endpoint)
            .bind(clock::now())
            .fetch_optional(self.0.readers())
            .await?;
        row.map(|row| self.to_record(&row)).transpose()
    }

    /// Returns the tasks of an owner.
    pub(crate) async fn list(&self, owner: &TaskOwner) -> Result<Vec<TaskRecord>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM tasks WHERE caller = $1 AND endpoint = $2 AND expires_at > $3"
        );
        let rows = sqlx::query(sqlx::AssertSqlSafe(sql))
            .bind(&owner.caller)
            .bind(&owner.endpoint)
            .bind(clock::now())
            .fetch_all(self.0.readers())
            .await?;
        rows.iter().map(|row| self.to_record(row)).collect()
    }

    /// Returns what came of a task that has ended.
    pub(crate) async fn outcome(&self, task: &TaskRecord) -> Result<TaskOutcome, StoreError> {
        let row = sqlx::query("SELECT outcome FROM tasks WHERE id = $1")
            .bind(&task.id)
            .fetch_one(self.0.readers())
            .await?;
        let outcome = self.unseal(row.try_get(0)?)?;
        match (task.state, outcome) {
            (TaskState::Cancelled, _) => Ok(TaskOutcome::Cancelled),
            (TaskState::Failed, Some(error)) => {
                let error = serde_json::from_str(&error).map_err(|_| StoreError::Unreadable)?;
                Ok(TaskOutcome::Failed(error))
            }
            (TaskState::Completed | TaskState::ToolError, Some(result)) => {
                let result = RawValue::from_string(result).map_err(|_| StoreError::Unreadable)?;
                Ok(TaskOutcome::Result(result.into()))
            }
            _ => Err(StoreError::Unreadable),
        }
    }

    /// Deletes tasks whose time is over.
    pub(crate) async fn delete_expired(&self) -> Result<(), StoreError> {
        let delete = sqlx::query("DELETE FROM tasks WHERE expires_at <= $1").bind(clock::now());
        self.0.execute(delete).await?;
        Ok(())
    }

    fn to_record(&self, row: &AnyRow) -> Result<TaskRecord, StoreError> {
        let server: Option<String> = row.try_get(3)?;
        let origin = match server.map(|server| ServerName::parse(&server)) {
            Some(Ok(server)) => Some(TaskOrigin {
                server,
                id: self.unseal(row.try_get(4)?)?,
            }),
            Some(Err(_)) => return Err(StoreError::Unreadable),
            None => None,
        };
        let state: String = row.try_get(5)?;
        Ok(TaskRecord {
            id: row.try_get(0)?,
            owner: TaskOwner {
                caller: row.try_get(1)?,
                endpoint: row.try_get(2)?,
            },
            origin,
            state: TaskState::from_name(&state).ok_or(StoreError::Unreadable)?,
            message: self.unseal(row.try_get(6)?)?,
            created_at: row.try_get(7)?,
            updated_at: row.try_get(8)?,
            expires_at: row.try_get(9)?,
            poll_ms: row.try_get(10)?,
        })
    }

    fn seal(&self, text: Option<&str>) -> Result<Option<String>, StoreError> {
        text.map(|text| self.0.seal(text)).transpose()
    }

    fn unseal(&self, sealed: Option<String>) -> Result<Option<String>, StoreError> {
        sealed
            .map(|sealed| self.0.unseal(&sealed).ok_or(StoreError::Unreadable))
            .transpose()
    }
}

/// Deletes the tasks of a caller.
pub(crate) async fn delete_tasks_of(
    transaction: &mut StoreTransaction,
    caller: &str,
) -> Result<(), StoreError> {
    let delete = sqlx::query("DELETE FROM tasks WHERE caller = $1").bind(caller);
    transaction.run(delete).await?;
    Ok(())
}
