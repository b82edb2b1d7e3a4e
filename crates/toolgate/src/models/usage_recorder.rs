//! Usage of model requests: stored in batches, counted in metrics and charged to the caller's budget.

use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Response;
use toolgate_core::config::Dialect;
use toolgate_llm::event::{FinishReason, TokenUsage};
use toolgate_llm::responses::references;
use tracing::Span;

use super::span::ModelSpan;
use super::store::ModelStore;
use super::table::{ModelTable, ModelTarget};
use super::{ModelCall, ModelError, Operation};
use crate::caller::Caller;
use crate::conversations::Conversations;
use crate::engine::{Engine, ModelSlot};
use crate::hook::ModelResponseEvent;
use crate::metrics::{Metrics, ModelRequestSample, ModelRequestTiming};
use crate::store::{BatchSettings, BatchSink, BatchWriter, StoreError, WriteAttempt, clock};

const MAX_BATCH_RECORDS: usize = 1024;
/// Records queued for writing; beyond that they are dropped to bound memory.
const MAX_QUEUED_RECORDS: usize = 65_536;

/// Record of one request to a model.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct ModelRecord {
    /// Id of the record.
    pub id: String,
    /// Id of the request.
    pub request_id: String,
    /// Name of the caller's key.
    pub caller: Option<String>,
    /// Name of the provider.
    pub provider: String,
    /// Name of the model at the provider.
    pub model: String,
    /// API of the request, or the endpoint, such as `embeddings`.
    pub dialect: String,
    /// HTTP status of the provider's response; 0 without a response.
    pub status: u16,
    /// `ok`, `error`, `broken` or `cancelled`.
    pub outcome: String,
    /// Whether the caller asked for a stream.
    pub stream: bool,
    /// Tokens used, if the provider reported them.
    pub usage: Option<TokenUsage>,
    /// Cost in millionths of a dollar, if the price is known.
    pub cost_micro_usd: Option<u64>,
    /// Milliseconds since the Unix epoch.
    pub started_at: i64,
    /// Time to the first byte of the response.
    pub first_byte_us: Option<i64>,
    /// Time to the end of the response.
    pub duration_us: i64,
    /// Ids of the response and its items, to which the caller may refer later.
    pub(super) response_ids: Vec<String>,
}

/// Writes model records in the background; clones share the queue.
#[derive(Clone, Debug)]
pub(crate) struct UsageRecorder {
    writer: Arc<BatchWriter<ModelRecord>>,
    metrics: Arc<Metrics>,
}

/// Recording of a request in progress. Dropping it closes the record; a request dropped before its
/// end counts as cancelled.
#[derive(Debug)]
pub(crate) struct UsageRecording {
    recorder: UsageRecorder,
    engine: Engine,
    caller: Caller,
    record: ModelRecord,
    span: ModelSpan,
    started_at: Instant,
    table: Arc<ModelTable>,
    requested_stream_usage: bool,
    /// Concurrency slot of the caller's key, held until the response ends.
    slot: Option<ModelSlot>,
    /// Set if the provider stores the response and the caller may refer to it by the provider's ids.
    conversations: Option<Conversations>,
}

impl ModelRecord {
    fn to_sample(&self) -> ModelRequestSample<'_> {
        let duration = |micros: i64| Duration::from_micros(micros.unsigned_abs());
        ModelRequestSample {
            provider: &self.provider,
            model: &self.model,
            caller: self.caller.as_deref(),
            status: self.status,
            outcome: &self.outcome,
            usage: self.usage,
            cost_micro_usd: self.cost_micro_usd,
            timing: ModelRequestTiming {
                first_byte: self.first_byte_us.map(duration),
                total: duration(self.duration_us),
            },
        }
    }
}

impl UsageRecorder {
    pub(crate) fn start(store: ModelStore, metrics: Arc<Metrics>) -> Self {
        let settings = BatchSettings {
            kind: "model",
            max_queued: MAX_QUEUED_RECORDS,
            max_batch: MAX_BATCH_RECORDS,
        };
        Self {
            writer: Arc::new(BatchWriter::start(store, settings)),
            metrics,
        }
    }

    /// Stops the writer after it has written all queued records.
    pub(crate) async fn stop(&self) {
        self.writer.stop().await;
    }

    fn enqueue(&self, record: ModelRecord) {
        if let Err(lost) = self.writer.enqueue(record) {
            tracing::error!(
                request = lost.item.request_id,
                reason = %lost.reason,
                dropped = lost.dropped,
                "dropping model record"
            );
        }
    }
}

impl BatchSink for ModelStore {
    type Item = ModelRecord;
    type Batch = Vec<ModelRecord>;

    fn prepare(&self, records: Vec<ModelRecord>) -> Vec<ModelRecord> {
        records
    }

    async fn write(
        &self,
        records: &Vec<ModelRecord>,
        attempt: WriteAttempt,
    ) -> Result<(), StoreError> {
        if attempt == WriteAttempt::Retry && self.contains(records).await? {
            return Ok(());
        }
        self.put_records(records).await
    }
}

impl UsageRecording {
    pub(super) fn new(
        recorder: &UsageRecorder,
        engine: &Engine,
        model_call: &ModelCall,
        target: &ModelTarget,
        table: &Arc<ModelTable>,
    ) -> Self {
        let caller = model_call.caller.clone();
        let record = ModelRecord {
            id: clock::new_id().to_string(),
            request_id: model_call.context.id.clone().unwrap_or_default(),
            caller: caller.key().map(ToString::to_string),
            provider: target.upstream.name.clone(),
            model: target.model.clone(),
            dialect: model_call.record_name().to_owned(),
            outcome: "cancelled".to_owned(),
            stream: model_call.stream,
            started_at: clock::now(),
            ..ModelRecord::default()
        };
        Self {
            recorder: recorder.clone(),
            engine: engine.clone(),
            requested_stream_usage: model_call.must_request_stream_usage(engine),
            caller,
            record,
            span: ModelSpan::start(model_call.request.operation, target, model_call.stream),
            started_at: Instant::now(),
            table: Arc::clone(table),
            slot: None,
            conversations: has_referable_ids(model_call, target)
                .then(|| engine.conversations().clone()),
        }
    }

    /// Holds the caller's slot until the recording is dropped.
    pub(super) fn with_slot(mut self, slot: Option<ModelSlot>) -> Self {
        self.slot = slot;
        self
    }

    /// Returns whether the gateway, not the caller, requested usage in the stream.
    pub(super) fn requested_stream_usage(&self) -> bool {
        self.requested_stream_usage
    }

    /// Trace span of the request.
    pub(super) fn span(&self) -> &Span {
        &self.span.span
    }

    /// Records that the provider did not respond, or with an error that is not relayed.
    pub(super) fn record_failure(&mut self, result: &Result<Response, ModelError>) {
        match result {
            Ok(response) => {
                self.record.status = response.status().as_u16();
                self.log_error_status();
            }
            Err(error) => {
                self.span.record_failure(error);
                if let ModelError::Send(error) = error {
                    let (provider, model) = (&self.record.provider, &self.record.model);
                    let request = &self.record.request_id;
                    tracing::warn!(%provider, %model, %error, request, "request to the provider failed");
                }
            }
        }
        "error".clone_into(&mut self.record.outcome);
    }

    pub(crate) fn record_status(&mut self, status: u16) {
        self.record.status = status;
        if status >= 400 {
            "error".clone_into(&mut self.record.outcome);
            self.log_error_status();
        }
    }

    fn log_error_status(&self) {
        tracing::warn!(
            provider = self.record.provider,
            model = self.record.model,
            status = self.record.status,
            request = self.record.request_id,
            "the provider answered with an error"
        );
    }

    pub(crate) fn record_first_byte(&mut self) {
        if self.record.first_byte_us.is_none() {
            self.record.first_byte_us = Some(elapsed_micros(self.started_at));
        }
    }

    /// Records the ids in a complete response.
    pub(crate) fn record_response_ids(&mut self, response: &[u8]) {
        if self.conversations.is_some() {
            self.add_response_ids(references::issued_ids(response));
        }
    }

    /// Records the ids in an event of a stream.
    pub(crate) fn record_event_ids(&mut self, data: &[u8]) {
        if self.conversations.is_some() {
            self.add_response_ids(references::issued_ids_of_event(data));
        }
    }

    /// Records ids under which the provider stores the response and its items.
    pub(super) fn add_response_ids(&mut self, ids: Vec<String>) {
        let Some(conversations) = &self.conversations else {
            return;
        };
        for id in ids {
            if self.record.response_ids.contains(&id) {
                continue;
            }
            conversations.add_issued_id(&self.caller, &id, &self.record.provider);
            self.record.response_ids.push(id);
        }
    }

    /// Records the usage reported so far.
    pub(crate) fn record_usage(&mut self, usage: Option<TokenUsage>) {
        self.record.usage = usage.or(self.record.usage);
    }

    /// Records the final usage and marks the request as completed unless it failed.
    pub(crate) fn record_completion(&mut self, usage: Option<TokenUsage>) {
        self.record.usage = usage.or(self.record.usage);
        if self.record.outcome == "cancelled" {
            "ok".clone_into(&mut self.record.outcome);
        }
    }

    /// Cost so far in millionths of a dollar, if the price is known.
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

    /// Records the finish reason as the provider spelled it.
    pub(crate) fn record_finish_reason<'a>(&mut self, reason: impl FnOnce() -> Option<&'a str>) {
        self.span.record_finish_reason(reason);
    }

    pub(crate) fn record_finish(&mut self, finish: &FinishReason) {
        self.span.record_finish(finish);
    }

    pub(crate) fn record_incomplete(&mut self) {
        if self.record.outcome != "broken" {
            tracing::warn!(
                provider = self.record.provider,
                model = self.record.model,
                request = self.record.request_id,
                "the provider's response ended too early"
            );
        }
        "broken".clone_into(&mut self.record.outcome);
    }
}

impl Drop for UsageRecording {
    fn drop(&mut self) {
        let record = &mut self.record;
        record.duration_us = elapsed_micros(self.started_at);
        if let Some(usage) = &record.usage {
            let prices = &self.table.prices;
            record.cost_micro_usd = prices.cost(&record.provider, &record.model, usage);
            let tokens = usage.input + usage.output;
            let cost = record.cost_micro_usd.unwrap_or_default();
            let limits = self.engine.limits();
            limits.record_spending(&self.caller, tokens, cost);
        }
        self.recorder
            .metrics
            .record_model_request(&record.to_sample());
        self.span.close(record);
        self.engine
            .hooks()
            .after_model_response(ModelResponseEvent {
                caller: &self.caller,
                request_id: &record.request_id,
                provider: &record.provider,
                model: &record.model,
                status: record.status,
                outcome: &record.outcome,
                stream: record.stream,
                usage: record.usage,
                cost_micro_usd: record.cost_micro_usd,
                elapsed: self.started_at.elapsed(),
            });
        self.recorder.enqueue(std::mem::take(record));
    }
}

/// Returns whether a caller receives ids of the provider to which it may refer later.
fn has_referable_ids(model_call: &ModelCall, target: &ModelTarget) -> bool {
    let dialect = model_call.request.dialect;
    dialect == Dialect::Responses
        && target.provider_dialect(dialect) == Dialect::Responses
        && model_call.request.operation == Operation::Complete
        && model_call.body.get("store") != Some("false")
}

fn elapsed_micros(start: Instant) -> i64 {
    i64::try_from(start.elapsed().as_micros()).unwrap_or(i64::MAX)
}
