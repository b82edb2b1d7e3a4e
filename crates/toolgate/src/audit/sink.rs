//! The second sink: another place for the trail, outside of the database, that must have accepted the
//! opening of a call before the call is sent.
//!
//! Everything else is delivered in order and retried until it is accepted. The lines of a batch end with
//! its seal, so that entries removed from the end of the database are found by comparison.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_core::config::{AuditDurability, AuditSettings, AuditSinkSettings};
use toolgate_core::secret::Secret;
use url::Url;

use super::chain::{ChainHead, EntryKind};
use super::columns::RecordRow;
use super::{AuditEntry, AuditRecord, AuditStartError};
use crate::store::clock;

/// Lines waiting for delivery; beyond that, calls are refused.
const MAX_QUEUED_LINES: usize = 20_000;
const MAX_BATCH_LINES: usize = 256;
const RETRY_DELAY: Duration = Duration::from_secs(1);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Handle to the task that delivers lines. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct SecondSink(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    lines: mpsc::Sender<Line>,
    problem: watch::Receiver<Option<Arc<str>>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A line of JSON.
#[derive(Debug)]
struct Line {
    text: String,
    /// Reports whether the line was accepted. Such a line is not retried: its call is refused instead.
    accepted: Option<oneshot::Sender<bool>>,
}

/// Where lines go.
enum Target {
    File { path: PathBuf, sync: bool },
    Http { client: reqwest::Client, url: Url },
}

impl SecondSink {
    pub(super) fn start(
        settings: &AuditSinkSettings,
        audit: &AuditSettings,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, AuditStartError> {
        let target = match settings {
            AuditSinkSettings::File(path) => Target::File {
                path: path.clone(),
                sync: audit.durability == AuditDurability::Disk,
            },
            AuditSinkSettings::Http { url, headers } => {
                let mut map = HeaderMap::new();
                for (name, secret) in headers {
                    map.insert(header_name(name)?, header_value(name, secret, env)?);
                }
                // Fails only if a provider is already installed.
                let _ = rustls::crypto::ring::default_provider().install_default();
                let client = reqwest::Client::builder()
                    .default_headers(map)
                    .timeout(REQUEST_TIMEOUT)
                    .redirect(reqwest::redirect::Policy::none())
                    .build();
                Target::Http {
                    client: client.map_err(|error| AuditStartError::Sink(error.to_string()))?,
                    url: url.clone(),
                }
            }
        };
        let (lines, inbox) = mpsc::channel(MAX_QUEUED_LINES);
        let (state, problem) = watch::channel(None);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        let delivery = Delivery {
            target,
            state,
            stop: stop.clone(),
        };
        tasks.spawn(delivery.run(inbox));
        tasks.close();
        Ok(Self(Arc::new(Inner {
            lines,
            problem,
            tasks,
            stop,
        })))
    }

    /// Returns why lines are not accepted, if they are not.
    pub(super) fn problem(&self) -> Option<Arc<str>> {
        self.0.problem.borrow().clone()
    }

    /// Sends the opening of a call. Resolves to whether it was accepted.
    pub(super) fn open(&self, record: &AuditRecord) -> impl Future<Output = bool> + use<> {
        let (accepted, answer) = oneshot::channel();
        let line = Line {
            text: entry_line(EntryKind::Opened, record).to_string(),
            accepted: Some(accepted),
        };
        let queued = self.0.lines.try_send(line).is_ok();
        async move { queued && answer.await.unwrap_or(false) }
    }

    /// Queues entries that are stored, and the seal over them.
    pub(super) fn forward<'a>(
        &self,
        entries: impl IntoIterator<Item = &'a AuditEntry>,
        head: Option<ChainHead>,
    ) {
        let entries = entries.into_iter();
        let lines = entries.map(|entry| entry_line(entry.kind, &entry.record));
        let seal =
            head.map(|head| json!({"entry": "seal", "seq": head.seq, "hash": head.hash_text()}));
        for line in lines.chain(seal) {
            let line = Line {
                text: line.to_string(),
                accepted: None,
            };
            if self.0.lines.try_send(line).is_err() {
                tracing::error!("dropping line for the second audit sink: too many are waiting");
            }
        }
    }

    /// Delivers what is queued, with one attempt, and stops.
    pub(super) async fn stop(&self) {
        self.0.stop.cancel();
        self.0.tasks.wait().await;
    }
}

struct Delivery {
    target: Target,
    state: watch::Sender<Option<Arc<str>>>,
    stop: CancellationToken,
}

impl Delivery {
    async fn run(self, mut inbox: mpsc::Receiver<Line>) {
        loop {
            let mut lines = Vec::new();
            tokio::select! {
                biased;
                received = inbox.recv_many(&mut lines, MAX_BATCH_LINES) => {
                    if received == 0 {
                        return;
                    }
                }
                () = self.stop.cancelled() => return,
            }
            self.deliver(lines, &mut inbox).await;
        }
    }

    /// Delivers lines in order, retrying all but the openings of calls.
    async fn deliver(&self, mut lines: Vec<Line>, inbox: &mut mpsc::Receiver<Line>) {
        while !lines.is_empty() {
            let error = match self.send(&lines).await {
                Ok(()) => {
                    self.state.send_replace(None);
                    accept(lines);
                    return;
                }
                Err(error) => error,
            };
            let reason: Arc<str> = error.to_string().into();
            if self.state.send_replace(Some(reason)).is_none() {
                tracing::error!(%error, "the second audit sink does not accept records");
            }
            // A call that waits is refused, and then its opening is not needed.
            lines.retain(|line| line.accepted.is_none());
            if lines.is_empty() {
                // Something must be delivered to find out that the sink works again.
                lines.push(Line {
                    text: json!({"entry": "probe", "at": clock::now()}).to_string(),
                    accepted: None,
                });
            }
            if self.stop.is_cancelled() {
                tracing::error!(
                    lines = lines.len(),
                    "stopping without having delivered audit records to the second sink"
                );
                return;
            }
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(RETRY_DELAY) => {}
            }
            while lines.len() < MAX_BATCH_LINES
                && let Ok(line) = inbox.try_recv()
            {
                lines.push(line);
            }
        }
    }

    async fn send(&self, lines: &[Line]) -> Result<(), SinkError> {
        let mut body = String::new();
        for line in lines {
            body.push_str(&line.text);
            body.push('\n');
        }
        match &self.target {
            Target::File { path, sync } => append(path, &body, *sync).await?,
            Target::Http { client, url } => {
                let request = client
                    .post(url.clone())
                    .header(http::header::CONTENT_TYPE, "application/x-ndjson")
                    .body(body);
                let response = request.send().await?;
                if !response.status().is_success() {
                    return Err(SinkError::Status(response.status()));
                }
            }
        }
        Ok(())
    }
}

#[derive(Debug, thiserror::Error)]
enum SinkError {
    #[error(transparent)]
    File(#[from] io::Error),
    #[error(transparent)]
    Http(reqwest::Error),
    #[error("it answered with status {0}")]
    Status(http::StatusCode),
}

impl From<reqwest::Error> for SinkError {
    fn from(error: reqwest::Error) -> Self {
        // The URL may contain a password.
        Self::Http(error.without_url())
    }
}

async fn append(path: &PathBuf, body: &str, sync: bool) -> io::Result<()> {
    let mut options = tokio::fs::OpenOptions::new();
    options.append(true).create(true).mode(0o600);
    // Opened each time, so that rotated files are noticed.
    let mut file = options.open(path).await?;
    let size = file.metadata().await?.len();
    let written = match file.write_all(body.as_bytes()).await {
        Ok(()) => file.flush().await,
        Err(error) => Err(error),
    };
    if let Err(error) = written {
        // Takes back what was written of the lines, since they are written again.
        file.set_len(size).await?;
        return Err(error);
    }
    if sync {
        file.sync_data().await?;
    }
    Ok(())
}

fn accept(lines: Vec<Line>) {
    for line in lines {
        if let Some(accepted) = line.accepted {
            // The call may have been cancelled meanwhile.
            let _ = accepted.send(true);
        }
    }
}

fn entry_line(kind: EntryKind, record: &AuditRecord) -> Value {
    json!({"entry": kind.as_str(), "record": RecordRow::new(record).to_json()})
}

fn header_name(name: &str) -> Result<HeaderName, AuditStartError> {
    name.parse()
        .map_err(|_| AuditStartError::Sink(format!("`{name}` is not a valid header name")))
}

fn header_value(
    name: &str,
    secret: &Secret,
    env: &dyn Fn(&str) -> Option<String>,
) -> Result<HeaderValue, AuditStartError> {
    let mut value = HeaderValue::from_str(&secret.resolve(env)?).map_err(|_| {
        AuditStartError::Sink(format!(
            "the value of header `{name}` contains invalid characters"
        ))
    })?;
    value.set_sensitive(true);
    Ok(value)
}
