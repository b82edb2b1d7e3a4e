//! The connection for writes, and its guards against acknowledging what is not stored.
//!
//! A write counts only once it is committed. A connection whose write failed or was given up is closed
//! instead of reused: SQLite may have rolled the transaction back by itself, and later writes on the
//! same connection would then succeed without ever being committed. Transactions are plain `BEGIN` and
//! `COMMIT` statements, since the nesting depth that sqlx keeps goes wrong in exactly that case.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Any, AnyConnection, AnyPool, Executor as _};

use super::health::StoreHealth;
use super::{Statement, StoreError};

/// The only connection that writes, since SQLite allows one writer at a time. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct StoreWriter {
    pool: AnyPool,
    health: StoreHealth,
}

/// What a committed transaction survives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Durability {
    /// A crash of the process.
    Process,
    /// A power failure too.
    Disk,
}

/// A transaction. Dropping it without a commit closes its connection, which rolls it back.
#[derive(Debug)]
pub(crate) struct StoreTransaction {
    connection: WriteConnection,
    durability: Durability,
    health: StoreHealth,
}

/// A connection that is closed when it is dropped, unless its work is known to be complete.
#[derive(Debug)]
struct WriteConnection {
    connection: PoolConnection<Any>,
    is_clean: bool,
}

impl StoreWriter {
    pub(super) fn new(pool: AnyPool, health: StoreHealth) -> Self {
        Self { pool, health }
    }

    pub(super) fn pool(&self) -> &AnyPool {
        &self.pool
    }

    /// Executes a statement as a transaction of its own and returns the number of rows it changed.
    pub(super) async fn execute(&self, statement: Statement<'_>) -> Result<u64, StoreError> {
        self.health.check()?;
        let done = self.execute_unchecked(statement).await;
        self.health.observe(done)
    }

    async fn execute_unchecked(&self, statement: Statement<'_>) -> Result<u64, StoreError> {
        let mut writer = WriteConnection::acquire(&self.pool).await?;
        let done = statement.execute(&mut *writer.connection).await?;
        writer.is_clean = true;
        Ok(done.rows_affected())
    }

    /// Starts a transaction.
    pub(super) async fn begin(
        &self,
        durability: Durability,
    ) -> Result<StoreTransaction, StoreError> {
        self.health.check()?;
        self.begin_unchecked(durability).await
    }

    /// Starts a transaction even if earlier writes failed, to find out whether writes work again.
    pub(super) async fn begin_unchecked(
        &self,
        durability: Durability,
    ) -> Result<StoreTransaction, StoreError> {
        let begun = self.try_begin(durability).await;
        self.health.observe(begun)
    }

    async fn try_begin(&self, durability: Durability) -> Result<StoreTransaction, StoreError> {
        let mut writer = WriteConnection::acquire(&self.pool).await?;
        if durability == Durability::Disk {
            writer
                .connection
                .execute("PRAGMA synchronous = FULL")
                .await?;
        }
        // Not deferred, so that a lock held by another process fails here and not in the middle.
        writer.connection.execute("BEGIN IMMEDIATE").await?;
        Ok(StoreTransaction {
            connection: writer,
            durability,
            health: self.health.clone(),
        })
    }
}

impl StoreTransaction {
    pub(crate) async fn commit(mut self) -> Result<(), StoreError> {
        let committed = self.try_commit().await;
        self.connection.is_clean = committed.is_ok();
        self.health.observe(committed)
    }

    async fn try_commit(&mut self) -> Result<(), StoreError> {
        let connection = &mut self.connection.connection;
        connection.execute("COMMIT").await?;
        if self.durability == Durability::Disk {
            connection.execute("PRAGMA synchronous = NORMAL").await?;
        }
        Ok(())
    }

    /// Executes a statement and returns the number of rows it changed. After an error, nothing more
    /// may be done with the transaction.
    pub(crate) async fn run(&mut self, statement: Statement<'_>) -> Result<u64, StoreError> {
        let done = statement.execute(&mut *self.connection.connection).await;
        let done = done.map_err(StoreError::from);
        Ok(self.health.observe(done)?.rows_affected())
    }
}

impl Deref for StoreTransaction {
    type Target = AnyConnection;

    fn deref(&self) -> &AnyConnection {
        &self.connection.connection
    }
}

impl DerefMut for StoreTransaction {
    fn deref_mut(&mut self) -> &mut AnyConnection {
        &mut self.connection.connection
    }
}

impl WriteConnection {
    async fn acquire(pool: &AnyPool) -> Result<Self, StoreError> {
        Ok(Self {
            connection: pool.acquire().await?,
            is_clean: false,
        })
    }
}

impl Drop for WriteConnection {
    fn drop(&mut self) {
        if !self.is_clean {
            self.connection.close_on_drop();
        }
    }
}
