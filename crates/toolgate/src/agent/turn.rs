//! One turn of a run: sends a request to the model and reads its response.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;
use toolgate_core::config::Dialect;
use toolgate_core::sse;
use toolgate_llm::event::{FinishReason, ProviderError, TurnEvent};
use toolgate_llm::history::{self, HistoryCollector};
use toolgate_llm::provider_turn::ProviderTurn;
use toolgate_llm::turn::ModelTurn;
use toolgate_llm::{TokenUsage, WireFormat as _};

use super::AgentRun;
use super::sink::RunSink;
use crate::metrics::Bound;
use crate::models::{
    MAX_EVENT_BYTES, ModelCall, ModelError, ProviderResponse, is_stream, parse_provider_error,
    read_body,
};

/// Output of a model in one turn.
pub(super) struct TurnOutput {
    pub(super) turn: ModelTurn,
    /// The turn as conversation items in the caller's dialect.
    pub(super) items: Vec<Value>,
    /// The turn as the provider wrote it, if that speaks another dialect.
    pub(super) provider_turn: Option<Arc<ProviderTurn>>,
    /// The unmodified response body, if it was not streamed and is in the caller's dialect.
    pub(super) raw: Option<Bytes>,
    pub(super) headers: HeaderMap,
    pub(super) micro_usd: u64,
    /// Dialect spoken by the provider.
    pub(super) provider_dialect: Dialect,
}

impl TurnOutput {
    /// Returns whether the provider paused its server-side tools and expects the turn to be sent back.
    pub(super) fn is_paused(&self) -> bool {
        matches!(&self.turn.finish, Some(FinishReason::Other(reason)) if reason == "pause_turn")
    }
}

/// Error of a turn.
pub(super) enum TurnError {
    /// The provider responded with an error status.
    Status {
        status: StatusCode,
        headers: HeaderMap,
        body: Bytes,
        failure: ProviderError,
    },
    Error(ModelError),
}

impl From<ModelError> for TurnError {
    fn from(error: ModelError) -> Self {
        Self::Error(error)
    }
}

impl AgentRun {
    /// Sends one model request and accounts for its usage and cost.
    pub(super) async fn request_turn(
        &mut self,
        model_call: &ModelCall,
        sink: &mut RunSink,
    ) -> Result<TurnOutput, TurnError> {
        let ProviderResponse {
            dialect: provider_dialect,
            response,
            mut recording,
        } = self.runs.models().send(model_call).await?;
        let dialects = TurnDialects {
            provider: provider_dialect,
            caller: model_call.request.dialect,
        };
        let status = response.status();
        let mut headers = crate::models::caller_headers(response.headers());
        recording.record_status(status.as_u16());
        if !status.is_success() {
            let body = read_body(response).await?;
            let failure = parse_provider_error(&String::from_utf8_lossy(&body));
            let body = if dialects.are_same() {
                body
            } else {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
                dialects.caller.encode_error(&failure).to_string().into()
            };
            return Err(TurnError::Status {
                status,
                headers,
                body,
                failure,
            });
        }
        sink.start_turn();
        let output = if is_stream(response.headers()) {
            let engine = self.runs.engine();
            let max_bytes = engine.capacity().max_turn_bytes;
            let output = read_stream(response, dialects, max_bytes, sink, &mut recording).await;
            output.inspect_err(|error| {
                if matches!(error, TurnError::Error(ModelError::TooLarge(_))) {
                    engine.report_bound(Bound::TurnSize, &model_call.caller);
                }
            })
        } else {
            let body = read_body(response).await?;
            recording.record_response_ids(&body);
            read_whole(&body, dialects, sink).await
        };
        let output = output.inspect_err(|_| recording.record_incomplete())?;
        recording.record_completion(output.turn.usage);
        self.usage = self.usage.plus(output.turn.usage.unwrap_or_default());
        let micro_usd = recording.cost().unwrap_or_default();
        self.micro_usd += micro_usd;
        Ok(TurnOutput {
            headers,
            micro_usd,
            ..output
        })
    }
}

/// Dialects on both sides of a turn.
#[derive(Clone, Copy, Debug)]
struct TurnDialects {
    provider: Dialect,
    caller: Dialect,
}

impl TurnDialects {
    /// Returns whether responses need no translation.
    fn are_same(self) -> bool {
        self.provider == self.caller
    }

    /// Creates the output of a turn from its items in the provider's dialect.
    fn turn_output(self, turn: ModelTurn, items: Vec<Value>) -> Result<TurnOutput, ModelError> {
        let (items, provider_turn) = if self.are_same() {
            (items, None)
        } else {
            let translated = history::items_from_turn(self.caller, &turn)?;
            (translated, ProviderTurn::new(self.provider, items, &turn))
        };
        Ok(TurnOutput {
            turn,
            items,
            provider_turn: provider_turn.map(Arc::new),
            raw: None,
            headers: HeaderMap::new(),
            micro_usd: 0,
            provider_dialect: self.provider,
        })
    }
}

/// Reads a response that was not streamed.
async fn read_whole(
    body: &Bytes,
    dialects: TurnDialects,
    sink: &mut RunSink,
) -> Result<TurnOutput, TurnError> {
    let text = String::from_utf8_lossy(body);
    let events = if dialects.are_same() {
        dialects.provider.decode_response_with_raw(&text)
    } else {
        dialects.provider.decode_response(&text)
    };
    let events = events.map_err(ModelError::from)?;
    for event in &events {
        sink.write(event).await;
    }
    let turn = ModelTurn::from_events(&events);
    if let Some(failure) = turn.error {
        return Err(TurnError::Error(ModelError::Failed(failure)));
    }
    let items = history::items_from_response(dialects.provider, &text);
    Ok(TurnOutput {
        raw: dialects.are_same().then(|| body.clone()),
        ..dialects.turn_output(turn, items)?
    })
}

/// Reads a streamed response, forwarding its events to the sink as they arrive.
async fn read_stream(
    mut response: reqwest::Response,
    dialects: TurnDialects,
    max_bytes: usize,
    sink: &mut RunSink,
    recording: &mut crate::models::UsageRecording,
) -> Result<TurnOutput, TurnError> {
    let mut sse_decoder = sse::SseDecoder::new(MAX_EVENT_BYTES);
    let mut decoder = if dialects.are_same() {
        dialects.provider.stream_decoder().preserve_raw()
    } else {
        dialects.provider.stream_decoder()
    };
    let mut collector = HistoryCollector::new(dialects.provider);
    let mut turn = ModelTurn::default();
    let mut received = 0;
    let incomplete = |_| TurnError::Error(ModelError::Incomplete);
    while let Some(chunk) = response.chunk().await.map_err(incomplete)? {
        recording.record_first_byte();
        received += chunk.len();
        if received > max_bytes {
            return Err(TurnError::Error(ModelError::TooLarge(max_bytes)));
        }
        let (mut raw, mut events) = (Vec::new(), Vec::new());
        let fed = sse_decoder.feed(&chunk, &mut raw);
        for event in &raw {
            recording.record_event_ids(event.data.as_bytes());
            collector.push(event);
            decoder
                .decode(event, &mut events)
                .map_err(ModelError::from)?;
        }
        for event in &events {
            turn.apply(event);
            if let TurnEvent::Usage(usage) = event {
                recording.record_usage(Some::<TokenUsage>(*usage));
            }
            sink.write(event).await;
        }
        fed.map_err(|error| TurnError::Error(ModelError::Event(error)))?;
    }
    if let Some(failure) = turn.error {
        return Err(TurnError::Error(ModelError::Failed(failure)));
    }
    if !decoder.is_done() {
        return Err(TurnError::Error(ModelError::Incomplete));
    }
    Ok(dialects.turn_output(turn, collector.into_items())?)
}
