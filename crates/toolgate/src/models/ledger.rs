//! What each model request used: written down, counted, and taken from the caller's budget.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use reqwest::Response;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_llm::event::{Finish, Usage};
use tracing::Span;
use uuid::Uuid;

use super::table::{Table, Target};
use super::{Asked, ModelError};
use crate::caller::Caller;
use crate::engine::{Engine, Place};
use crate::metrics::Metrics;
use crate::store::{Store, millis};
use crate::trace::model::ModelSpan;

/// Longest time before a record is written.
const BATCH: Duration = Duration::from_millis(50);
const MOST: usize = 1024;
/// Records that may wait; more are lost rather than remembered without end.
const WAITING: usize = 65_536;

/// One request to a model.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ModelRecord {
    pub id: String,
    pub request_id: String,
    pub caller: Option<String>,
    pub provider: String,
    pub model: String,
    pub dialect: String,
    /// The status that the provider answered with; 0 if it did not.
    pub status: u16,
    /// `ok`, `error`, `broken` or `cancelled`.
    pub outcome: String,
    pub stream: bool,
    pub usage: Option<Usage>,
    pub cost_micro_usd: Option<u64>,
    /// Milliseconds since 1970.
    pub started_at: i64,
    /// Until the first byte of the answer.
    pub first_byte_us: Option<i64>,
    pub duration_us: i64,
}

/// Where records go; clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    sender: mpsc::Sender<ModelRecord>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    tasks: TaskTracker,
}

/// A request that is being recorded. Dropping it closes the record: whoever leaves in the middle
/// has cancelled.
#[derive(Debug)]
pub(crate) struct Recording {
    ledger: Ledger,
    engine: Engine,
    caller: Caller,
    record: ModelRecord,
    span: ModelSpan,
    began: Instant,
    table: Arc<Table>,
    counts_stream: bool,
    /// The caller's place among those with its key.
    place: Option<Place>,
}

impl Ledger {
    pub(crate) fn start(store: Store, metrics: Arc<Metrics>) -> Self {
        let (sender, inbox) = mpsc::channel(WAITING);
        let (tasks, stop) = (TaskTracker::new(), CancellationToken::new());
        tasks.spawn(write(store, inbox, stop.clone()));
        tasks.close();
        Self {
            sender,
            metrics,
            stop,
            tasks,
        }
    }

    /// Writes what is left.
    pub(crate) async fn stop(&self) {
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

async fn write(store: Store, mut inbox: mpsc::Receiver<ModelRecord>, stop: CancellationToken) {
    loop {
        let mut records = Vec::new();
        tokio::select! {
            biased;
            () = stop.cancelled() => inbox.close(),
            _ = inbox.recv_many(&mut records, MOST) => {
                tokio::select! {
                    () = tokio::time::sleep(BATCH) => {}
                    () = stop.cancelled() => {}
                }
            }
        }
        while let Ok(record) = inbox.try_recv() {
            records.push(record);
        }
        if let Err(error) = store.put_model_records(&records).await {
            tracing::error!(%error, records = records.len(), "model records could not be written");
        }
        if stop.is_cancelled() || inbox.is_closed() {
            return;
        }
    }
}

impl Recording {
    pub(super) fn new(
        (ledger, engine): (&Ledger, &Engine),
        asked: &Asked,
        target: &Target,
        table: &Arc<Table>,
    ) -> Self {
        let caller = asked.caller.clone();
        let record = ModelRecord {
            id: Uuid::now_v7().to_string(),
            request_id: asked.context.id.clone().unwrap_or_default(),
            caller: caller.key().map(ToString::to_string),
            provider: target.upstream.name.clone(),
            model: target.model.clone(),
            dialect: asked.request.dialect.as_str().to_owned(),
            outcome: "cancelled".to_owned(),
            stream: asked.stream,
            started_at: millis(SystemTime::now()),
            ..ModelRecord::default()
        };
        Self {
            ledger: ledger.clone(),
            engine: engine.clone(),
            counts_stream: asked.counts_stream(engine),
            caller,
            record,
            span: ModelSpan::begin(asked.request.operation, target, asked.stream),
            began: Instant::now(),
            table: Arc::clone(table),
            place: None,
        }
    }

    /// Keeps the caller's place as long as the answer is under way.
    pub(super) fn holding(mut self, place: Option<Place>) -> Self {
        self.place = place;
        self
    }

    /// Whether the usage of the stream was asked for on our own account.
    pub(super) fn counts_stream(&self) -> bool {
        self.counts_stream
    }

    /// The request as it is traced.
    pub(super) fn span(&self) -> &Span {
        &self.span.span
    }

    /// The provider did not answer, or with an error that is not passed on.
    pub(super) fn failed(&mut self, answer: &Result<Response, ModelError>) {
        match answer {
            Ok(response) => self.record.status = response.status().as_u16(),
            Err(error) => self.span.failed(error),
        }
        "error".clone_into(&mut self.record.outcome);
    }

    pub(crate) fn answered(&mut self, status: u16) {
        self.record.status = status;
        if status >= 400 {
            "error".clone_into(&mut self.record.outcome);
        }
    }

    pub(crate) fn first_byte(&mut self) {
        if self.record.first_byte_us.is_none() {
            self.record.first_byte_us = Some(micros(self.began));
        }
    }

    /// What the answer used so far.
    pub(crate) fn seen(&mut self, usage: Option<Usage>) {
        self.record.usage = usage.or(self.record.usage);
    }

    /// What the answer used; it has come to its end, or nearly.
    pub(crate) fn used(&mut self, usage: Option<Usage>) {
        self.record.usage = usage.or(self.record.usage);
        if self.record.outcome == "cancelled" {
            "ok".clone_into(&mut self.record.outcome);
        }
    }

    /// What it costs, as far as it is known.
    pub(crate) fn cost(&self) -> Option<u64> {
        let ModelRecord {
            provider,
            model,
            usage,
            ..
        } = &self.record;
        self.table
            .prices
            .cost(provider, model, &usage.unwrap_or_default())
    }

    /// Why the answer ended, in the provider's words.
    pub(crate) fn ended<'a>(&mut self, reason: impl FnOnce() -> Option<&'a str>) {
        self.span.ended(reason);
    }

    pub(crate) fn finished(&mut self, finish: &Finish) {
        self.span.finished(finish);
    }

    pub(crate) fn broke_off(&mut self) {
        "broken".clone_into(&mut self.record.outcome);
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let record = &mut self.record;
        record.duration_us = micros(self.began);
        if let Some(usage) = &record.usage {
            let prices = &self.table.prices;
            record.cost_micro_usd = prices.cost(&record.provider, &record.model, usage);
            let tokens = usage.input + usage.output;
            let cost = record.cost_micro_usd.unwrap_or_default();
            self.engine.spend(&self.caller, tokens, cost);
        }
        self.ledger.metrics.model(record);
        self.span.close(record);
        if self.ledger.sender.try_send(std::mem::take(record)).is_err() {
            tracing::error!("a model record is lost: too many wait to be written");
        }
    }
}

fn micros(began: Instant) -> i64 {
    i64::try_from(began.elapsed().as_micros()).unwrap_or(i64::MAX)
}
