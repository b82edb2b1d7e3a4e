//! Pool of worker processes that run scripts. Some are started in advance; a worker that a script may
//! have damaged is terminated instead of reused, and one that dies while it is idle is replaced.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio_util::task::TaskTracker;
use toolgate_mcp::fair_queue::{FairQueue, NoSlot, Owner, QueueLimits, Slot};
use toolgate_script::protocol::{HostMessage, WorkerMessage};

use super::worker_process::{Worker, WorkerExit};

/// Idle workers started in advance.
const MIN_IDLE_WORKERS: usize = 2;
/// Scripts after which a worker is replaced.
const MAX_SCRIPTS_PER_WORKER: u32 = 500;
/// Time for a new worker to become ready.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for counting tokens.
const COUNT_TIMEOUT: Duration = Duration::from_secs(120);

/// Command that starts a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WorkerProgram {
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
}

/// Pool of workers; clones share it.
#[derive(Clone, Debug)]
pub(super) struct WorkerPool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: WorkerProgram,
    /// Memory limit of a script in bytes.
    memory: u64,
    idle: Mutex<Vec<Worker>>,
    /// Idle workers that are being started.
    starting: AtomicUsize,
    slots: FairQueue,
    tasks: TaskTracker,
}

/// Exclusive use of a worker by one script. Dropping it terminates the process.
#[derive(Debug)]
pub(super) struct WorkerLease {
    worker: Option<Worker>,
    pool: WorkerPool,
    _slot: Slot,
}

/// Reasons why a script gets no worker.
#[derive(Debug)]
pub(super) enum AcquireError {
    /// No slot.
    Slot(NoSlot),
    /// The worker did not start.
    Start(io::Error),
}

impl From<NoSlot> for AcquireError {
    fn from(error: NoSlot) -> Self {
        Self::Slot(error)
    }
}

impl From<io::Error> for AcquireError {
    fn from(error: io::Error) -> Self {
        Self::Start(error)
    }
}

impl WorkerProgram {
    /// Returns the current program, which must act as a worker when started with the worker flag.
    pub(crate) fn current_exe() -> io::Result<Self> {
        let path = if cfg!(target_os = "linux") {
            // Stays valid if the file on disk is replaced by another version.
            PathBuf::from("/proc/self/exe")
        } else {
            std::env::current_exe()?
        };
        Ok(Self {
            path,
            args: Vec::new(),
        })
    }

    pub(crate) fn new(command: &[String]) -> Option<Self> {
        let (path, args) = command.split_first()?;
        Some(Self {
            path: path.into(),
            args: args.to_vec(),
        })
    }
}

impl WorkerPool {
    pub(super) fn new(program: WorkerProgram, memory: u64, limits: QueueLimits) -> Self {
        Self(Arc::new(Inner {
            program,
            memory,
            idle: Mutex::default(),
            starting: AtomicUsize::new(0),
            slots: FairQueue::new(limits),
            tasks: TaskTracker::new(),
        }))
    }

    /// Starts idle workers in the background.
    pub(super) fn warm(&self) {
        let available = self.idle().len() + self.0.starting.load(Ordering::Relaxed);
        for _ in available..MIN_IDLE_WORKERS {
            let pool = self.clone();
            self.0.starting.fetch_add(1, Ordering::Relaxed);
            self.0.tasks.spawn(async move {
                let started = pool.start().await;
                pool.0.starting.fetch_sub(1, Ordering::Relaxed);
                match started {
                    Ok(worker) => pool.return_idle(worker),
                    Err(error) => {
                        tracing::error!(%error, "failed to start script worker");
                    }
                }
            });
        }
    }

    /// Waits for a free slot and returns a worker for one script.
    pub(super) async fn acquire(&self, owner: &Owner) -> Result<WorkerLease, AcquireError> {
        let slot = self.0.slots.acquire(owner).await?;
        let idle = self.idle().pop();
        let worker = match idle {
            Some(worker) => worker,
            None => self.start().await?,
        };
        Ok(WorkerLease {
            worker: Some(worker),
            pool: self.clone(),
            _slot: slot,
        })
    }

    /// Stops all workers and waits for them.
    pub(super) async fn close(&self) {
        self.0.slots.close();
        let idle = std::mem::take(&mut *self.idle());
        for worker in idle {
            self.shut_down(worker);
        }
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Spawns a task that must not outlive the pool.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn(work);
    }

    /// Counts the tokens of texts in a dedicated worker, which is discarded because it loads the
    /// vocabulary into memory.
    pub(super) async fn count_tokens(&self, texts: Vec<String>) -> Option<Vec<usize>> {
        let counted = async {
            let mut worker = self.start().await.ok()?;
            worker.send(&HostMessage::Count(texts)).await.ok()?;
            worker.receive().await.ok()?
        };
        match tokio::time::timeout(COUNT_TIMEOUT, counted).await {
            Ok(Some(WorkerMessage::Counts(counts))) => Some(counts),
            _ => None,
        }
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Worker>> {
        self.0.idle.lock()
    }

    async fn start(&self) -> io::Result<Worker> {
        let (mut worker, watch) = Worker::spawn(&self.0.program, self.0.memory)?;
        let pool = self.clone();
        self.0.tasks.spawn(async move {
            let exit = watch.run().await;
            pool.remove_dead(&exit);
        });
        match tokio::time::timeout(START_TIMEOUT, worker.receive()).await {
            Ok(Ok(Some(WorkerMessage::Ready))) => Ok(worker),
            Ok(Err(error)) => Err(error),
            _ => {
                let exit = worker.terminate().await;
                Err(io::Error::other(format!(
                    "worker did not become ready: {}",
                    exit.stderr
                )))
            }
        }
    }

    /// Replaces idle workers that have died.
    fn remove_dead(&self, exit: &WorkerExit) {
        let has_dead = {
            let mut idle = self.idle();
            let before = idle.len();
            idle.retain(|worker| !worker.has_exited());
            idle.len() < before
        };
        if has_dead {
            let WorkerExit { status, stderr } = exit;
            tracing::warn!(?status, %stderr, "idle script worker died; starting another");
            self.warm();
        }
    }

    fn return_idle(&self, worker: Worker) {
        let mut idle = self.idle();
        // Under the lock: a worker that dies later is found in the list.
        let is_unusable = worker.has_exited()
            || worker.scripts_run >= MAX_SCRIPTS_PER_WORKER
            || self.0.slots.is_closed();
        if is_unusable || idle.len() >= MIN_IDLE_WORKERS.max(self.0.slots.free().min(8)) {
            drop(idle);
            self.shut_down(worker);
            return;
        }
        idle.push(worker);
    }

    /// Stops a worker in the background.
    fn shut_down(&self, worker: Worker) {
        self.0.tasks.spawn(worker.shut_down());
    }
}

impl WorkerLease {
    pub(super) async fn send(&mut self, message: &HostMessage) -> io::Result<()> {
        match &mut self.worker {
            Some(worker) => worker.send(message).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// Reads the next message; returns `None` if the worker is gone or sent an invalid message.
    pub(super) async fn receive(&mut self) -> Option<WorkerMessage> {
        match &mut self.worker {
            Some(worker) => worker.receive().await.ok().flatten(),
            None => None,
        }
    }

    /// Returns the worker to the pool after a script that left it intact.
    pub(super) fn release(mut self) {
        if let Some(mut worker) = self.worker.take() {
            worker.scripts_run += 1;
            self.pool.return_idle(worker);
        }
    }

    /// Terminates the worker and returns how it exited.
    pub(super) async fn terminate(&mut self) -> WorkerExit {
        match self.worker.take() {
            Some(worker) => worker.terminate().await,
            None => WorkerExit::default(),
        }
    }

    /// Starts another worker in the same slot.
    pub(super) async fn replace(&mut self) -> io::Result<()> {
        self.worker = Some(self.pool.start().await?);
        Ok(())
    }
}

impl Drop for WorkerLease {
    fn drop(&mut self) {
        // Kills the process.
        drop(self.worker.take());
        if !self.pool.0.slots.is_closed() && self.pool.idle().is_empty() {
            self.pool.warm();
        }
    }
}
