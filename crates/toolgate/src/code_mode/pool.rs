//! The processes that run scripts: some are kept ready, and each that a script has harmed is ended.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;
use toolgate_script::protocol::{self, LONGEST_MESSAGE, ToHost, ToWorker};
use toolgate_script::worker::FLAG;

/// Workers that are kept ready.
const READY: usize = 2;
/// Scripts after which a worker is replaced, whatever it looks like.
const MOST_SCRIPTS: u32 = 500;
/// How long a new worker may take until it is ready.
const START: Duration = Duration::from_secs(10);
/// How long counting tokens may take.
const COUNT: Duration = Duration::from_secs(20);
/// How long one that was asked to leave may take.
const LEAVE: Duration = Duration::from_secs(2);
/// Bytes of a worker's last words.
const LAST_WORDS: u64 = 4096;

/// The program that becomes a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) args: Vec<String>,
}

/// Workers; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Pool(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    program: Program,
    /// Bytes of memory for a script.
    memory: u64,
    idle: Mutex<Vec<Worker>>,
    /// Workers that are being started to be kept.
    starting: AtomicUsize,
    places: Arc<Semaphore>,
    tasks: TaskTracker,
}

/// One process, between two messages.
#[derive(Debug)]
struct Worker {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
    scripts: u32,
}

/// A worker that one script has for itself. Dropping it ends the process.
#[derive(Debug)]
pub(super) struct Checkout {
    worker: Option<Worker>,
    pool: Pool,
    _place: OwnedSemaphorePermit,
}

/// How a worker came to its end.
#[derive(Debug)]
pub(super) struct Death {
    pub(super) status: Option<ExitStatus>,
    pub(super) last_words: String,
}

impl Program {
    /// This program itself, which must become a worker when it is asked to.
    pub(crate) fn own() -> io::Result<Self> {
        let path = match cfg!(target_os = "linux") {
            // Also if another version has taken its place on disk.
            true => PathBuf::from("/proc/self/exe"),
            false => std::env::current_exe()?,
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

impl Pool {
    pub(super) fn new(program: Program, memory: u64, most: usize) -> Self {
        Self(Arc::new(Inner {
            program,
            memory,
            idle: Mutex::default(),
            starting: AtomicUsize::new(0),
            places: Arc::new(Semaphore::new(most)),
            tasks: TaskTracker::new(),
        }))
    }

    /// Has workers ready before the first script comes.
    pub(super) fn warm(&self) {
        let there = self.idle().len() + self.0.starting.load(Ordering::Relaxed);
        for _ in there..READY {
            let pool = self.clone();
            self.0.starting.fetch_add(1, Ordering::Relaxed);
            self.0.tasks.spawn(async move {
                let started = pool.start().await;
                pool.0.starting.fetch_sub(1, Ordering::Relaxed);
                match started {
                    Ok(worker) => pool.keep(worker),
                    Err(error) => {
                        tracing::error!(%error, "a script worker could not be started");
                    }
                }
            });
        }
    }

    /// A worker for one script, once there is a place for it.
    pub(super) async fn checkout(&self) -> io::Result<Checkout> {
        let places = Arc::clone(&self.0.places);
        let place = places.acquire_owned().await.map_err(io::Error::other)?;
        let kept = self.idle().pop();
        let worker = match kept {
            Some(worker) => worker,
            None => self.start().await?,
        };
        Ok(Checkout {
            worker: Some(worker),
            pool: self.clone(),
            _place: place,
        })
    }

    /// Ends all workers and waits for them.
    pub(super) async fn close(&self) {
        self.0.places.close();
        let idle = std::mem::take(&mut *self.idle());
        for worker in idle {
            self.end(worker);
        }
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    /// Has something done that must not outlive the workers.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.tasks.spawn(work);
    }

    /// How many tokens texts are, counted by a worker of its own, which grows by that and is ended.
    pub(super) async fn count(&self, texts: Vec<String>) -> Option<Vec<usize>> {
        let counted = async {
            let mut worker = self.start().await.ok()?;
            worker.say(&ToWorker::Count(texts)).await.ok()?;
            worker.hear().await.ok()?
        };
        match tokio::time::timeout(COUNT, counted).await {
            Ok(Some(ToHost::Counts(counts))) => Some(counts),
            _ => None,
        }
    }

    fn idle(&self) -> std::sync::MutexGuard<'_, Vec<Worker>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn start(&self) -> io::Result<Worker> {
        let Inner {
            program, memory, ..
        } = &*self.0;
        let mut child = Command::new(&program.path)
            .args(&program.args)
            .args([FLAG, &memory.to_string()])
            .env_clear()
            // One arena: others would reserve more address space than a script may have.
            .env("MALLOC_ARENA_MAX", "1")
            .current_dir("/")
            // What is typed at the gateway's terminal is not for it.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a worker without pipes"));
        };
        let mut worker = Worker {
            child,
            to,
            from: BufReader::new(from),
            scripts: 0,
        };
        let ready = tokio::time::timeout(START, worker.hear()).await;
        match ready {
            Ok(Ok(Some(ToHost::Ready))) => Ok(worker),
            Ok(Err(error)) => Err(error),
            _ => {
                let death = worker.die().await;
                Err(io::Error::other(format!(
                    "the worker did not get ready: {}",
                    death.last_words
                )))
            }
        }
    }

    fn keep(&self, worker: Worker) {
        let too_many = worker.scripts >= MOST_SCRIPTS || self.0.places.is_closed();
        let mut idle = self.idle();
        if too_many || idle.len() >= READY.max(self.0.places.available_permits().min(8)) {
            drop(idle);
            self.end(worker);
            return;
        }
        idle.push(worker);
    }

    /// Ends a worker, in the background.
    fn end(&self, mut worker: Worker) {
        self.0.tasks.spawn(async move {
            drop(worker.to);
            if tokio::time::timeout(LEAVE, worker.child.wait())
                .await
                .is_err()
            {
                let _gone = worker.child.kill().await;
            }
        });
    }
}

impl Worker {
    async fn say(&mut self, message: &ToWorker) -> io::Result<()> {
        self.to.write_all(&protocol::encode(message)?).await
    }

    /// The worker's next message; none if it is gone.
    async fn hear(&mut self) -> io::Result<Option<ToHost>> {
        let mut head = [0; 4];
        if self.from.read_exact(&mut head).await.is_err() {
            return Ok(None);
        }
        let length = u32::from_le_bytes(head) as usize;
        if length > LONGEST_MESSAGE {
            return Err(io::Error::other("a message of the worker is too long"));
        }
        // What was announced need not come.
        let mut body = Vec::new();
        let most = u64::try_from(length).unwrap_or(u64::MAX);
        let read = (&mut self.from).take(most).read_to_end(&mut body).await;
        if read.is_err() || body.len() < length {
            return Ok(None);
        }
        Ok(Some(serde_json::from_slice(&body)?))
    }

    /// Makes sure that it is dead, and asks what it died of.
    async fn die(mut self) -> Death {
        let left = tokio::time::timeout(Duration::from_millis(200), self.child.wait()).await;
        let status = match left {
            Ok(status) => status.ok(),
            Err(_) => {
                let _gone = self.child.kill().await;
                None
            }
        };
        let mut last_words = Vec::new();
        if let Some(stderr) = self.child.stderr.take() {
            let _as_far_as_possible = stderr.take(LAST_WORDS).read_to_end(&mut last_words).await;
        }
        Death {
            status,
            last_words: String::from_utf8_lossy(&last_words).into_owned(),
        }
    }
}

impl Checkout {
    pub(super) async fn say(&mut self, message: &ToWorker) -> io::Result<()> {
        match &mut self.worker {
            Some(worker) => worker.say(message).await,
            None => Err(io::ErrorKind::BrokenPipe.into()),
        }
    }

    /// The worker's next message; none if it is gone, or says what makes no sense.
    pub(super) async fn hear(&mut self) -> Option<ToHost> {
        match &mut self.worker {
            Some(worker) => worker.hear().await.ok().flatten(),
            None => None,
        }
    }

    /// The script has ended as it should; the worker can take another one.
    pub(super) fn give_back(mut self) {
        if let Some(mut worker) = self.worker.take() {
            worker.scripts += 1;
            self.pool.keep(worker);
        }
    }

    /// What the worker died of.
    pub(super) async fn die(mut self) -> Death {
        match self.worker.take() {
            Some(worker) => worker.die().await,
            None => Death {
                status: None,
                last_words: String::new(),
            },
        }
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        if let Some(mut worker) = self.worker.take() {
            let _if_alive = worker.child.start_kill();
            self.pool.end(worker);
        }
        if !self.pool.0.places.is_closed() && self.pool.idle().is_empty() {
            self.pool.warm();
        }
    }
}
