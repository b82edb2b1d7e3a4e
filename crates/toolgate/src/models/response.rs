//! Relays a provider's response to the caller, unchanged or translated between dialects.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use reqwest::Response;
use toolgate_core::config::Dialect;
use toolgate_core::sse;
use toolgate_llm::dialect::{StreamDecoder, StreamEncoder};
use toolgate_llm::event::{ProviderError, TurnEvent};
use toolgate_llm::observer::{self, ResponseObserver, UsageChunkFilter};
use toolgate_llm::turn::ResponseHead;
use toolgate_llm::{ModelTurn, RequestBody, WireFormat as _};

use super::usage_recorder::UsageRecording;
use super::{ModelCall, ModelError, ModelResponse, ProviderResponse, ResponseBody, headers};
use crate::caller::Caller;
use crate::conversations::Conversations;

/// Largest response body that is buffered.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;
/// Largest event of a stream.
pub(crate) const MAX_EVENT_BYTES: usize = 16 * 1024 * 1024;
/// Buffered bytes of a stream above which no further chunks are combined into one write.
const MAX_COALESCED_BYTES: usize = 64 * 1024;

/// Relays a response to the caller and records its usage.
pub(super) async fn relay_response(
    model_call: &ModelCall,
    response: ProviderResponse,
    conversations: &Conversations,
) -> Result<ModelResponse, ModelError> {
    let ProviderResponse {
        dialect: provider_dialect,
        response,
        mut recording,
    } = response;
    let caller_dialect = model_call.request.dialect;
    let status = response.status();
    let mut headers = headers::caller_headers(response.headers());
    recording.record_status(status.as_u16());
    if is_stream(response.headers()) && status.is_success() {
        let body = if caller_dialect == provider_dialect {
            pass_through(response, caller_dialect, recording).await
        } else {
            let response = ProviderResponse {
                dialect: provider_dialect,
                response,
                recording,
            };
            translate(response, model_call, conversations)
        };
        return Ok(ModelResponse {
            status,
            headers,
            body: ResponseBody::Stream(body),
        });
    }
    let body = read_body(response).await?;
    if caller_dialect == provider_dialect {
        recording.record_finish_reason(|| observer::finish(caller_dialect, &body));
        recording.record_completion(ResponseObserver::usage_from_body(caller_dialect, &body));
        recording.record_response_ids(&body);
        return Ok(ModelResponse {
            status,
            headers,
            body: ResponseBody::Whole(body),
        });
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let text = String::from_utf8_lossy(&body);
    let body = if status.is_success() {
        let turn = ModelTurn::from_events(&provider_dialect.decode_response(&text)?);
        recording.record_completion(turn.usage);
        if let Some(finish) = &turn.finish {
            recording.record_finish(finish);
        }
        match &turn.error {
            Some(failure) => caller_dialect.encode_error(failure).to_string(),
            None => {
                let mut head = model_call.response_head();
                head.id = caller_dialect.new_response_id();
                let answer = caller_dialect.encode_response(&head, &turn);
                if caller_dialect == Dialect::Responses {
                    conversations.store_response(
                        &model_call.caller,
                        model_call.body.as_str(),
                        &answer,
                    );
                }
                answer
            }
        }
    } else {
        caller_dialect
            .encode_error(&parse_provider_error(&text))
            .to_string()
    };
    Ok(ModelResponse {
        status,
        headers,
        body: ResponseBody::Whole(body.into()),
    })
}

pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    let content_type = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    content_type.is_some_and(|value| value.starts_with("text/event-stream"))
}

pub(crate) async fn read_body(mut response: Response) -> Result<Bytes, ModelError> {
    let expected = response.content_length().unwrap_or_default();
    let expected = usize::try_from(expected).unwrap_or(usize::MAX);
    if expected > MAX_RESPONSE_BYTES {
        return Err(ModelError::TooLarge(MAX_RESPONSE_BYTES));
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| ModelError::Incomplete)? {
        if body.is_empty() && chunk.len() == expected {
            return Ok(chunk);
        }
        if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
            return Err(ModelError::TooLarge(MAX_RESPONSE_BYTES));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// Extracts the error from a provider's response, in any dialect's format.
pub(crate) fn parse_provider_error(body: &str) -> ProviderError {
    let value: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let error = &value["error"];
    let message = error["message"].as_str().or(error.as_str());
    let message = message.or(value["message"].as_str());
    ProviderError {
        kind: error["type"].as_str().map(str::to_owned),
        message: message.unwrap_or("the provider gave no reason").to_owned(),
        code: error.get("code").filter(|code| !code.is_null()).cloned(),
    }
}

/// Returns the output of a future if it is ready now or after other ready tasks have run.
///
/// The connection task hands over its chunks one by one. Chunks that arrived together are forwarded
/// together, because a separate write per chunk dominates the cost; nothing waits for chunks that have
/// not arrived yet.
async fn if_ready<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut yielded = false;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if yielded => Poll::Ready(None),
        Poll::Pending => {
            yielded = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

/// A stream that is forwarded unchanged.
struct PassthroughStream {
    response: Response,
    observer: ResponseObserver,
    /// Removes the usage chunk that the caller did not request.
    usage_filter: Option<UsageChunkFilter>,
    dialect: Dialect,
    recording: UsageRecording,
    /// Received chunks that were not forwarded yet.
    buffered: Vec<Bytes>,
    ended: bool,
}

pub(super) async fn pass_through(
    response: Response,
    dialect: Dialect,
    recording: UsageRecording,
) -> BoxStream<'static, Bytes> {
    let mut stream_state = PassthroughStream {
        response,
        observer: ResponseObserver::new(dialect),
        usage_filter: recording
            .requested_stream_usage()
            .then(UsageChunkFilter::default),
        dialect,
        recording,
        buffered: Vec::new(),
        ended: false,
    };
    // Forward chunks that arrived with the response head together with it.
    stream_state.buffer_ready_chunks().await;
    stream::unfold(stream_state, |mut stream_state| async move {
        let chunk = stream_state.next().await?;
        Some((chunk, stream_state))
    })
    .boxed()
}

impl PassthroughStream {
    async fn next(&mut self) -> Option<Bytes> {
        while self.buffered.is_empty() {
            if self.ended {
                return None;
            }
            let chunk = self.response.chunk().await;
            self.accept_chunk(chunk);
            self.buffer_ready_chunks().await;
        }
        Some(match self.buffered.len() {
            1 => self.buffered.pop()?,
            _ => Bytes::from(std::mem::take(&mut self.buffered).concat()),
        })
    }

    /// Buffers the chunks that have already arrived.
    async fn buffer_ready_chunks(&mut self) {
        while !self.ended
            && self.buffered.iter().map(Bytes::len).sum::<usize>() < MAX_COALESCED_BYTES
        {
            match if_ready(self.response.chunk()).await {
                Some(chunk) => self.accept_chunk(chunk),
                None => return,
            }
        }
    }

    fn accept_chunk(&mut self, chunk: reqwest::Result<Option<Bytes>>) {
        let forwarded = match chunk {
            Ok(Some(chunk)) => {
                self.recording.record_first_byte();
                self.observer.feed(&chunk);
                self.recording.record_usage(self.observer.usage());
                self.recording.add_response_ids(self.observer.take_ids());
                match &mut self.usage_filter {
                    Some(filter) => filter.filter(&chunk),
                    None => chunk,
                }
            }
            Ok(None) if self.observer.is_done() => {
                self.finish();
                self.usage_filter
                    .take()
                    .map(UsageChunkFilter::into_rest)
                    .unwrap_or_default()
            }
            Ok(None) | Err(_) => {
                self.finish();
                self.recording.record_incomplete();
                let held = self.usage_filter.take().map(UsageChunkFilter::into_rest);
                let mut last = held.unwrap_or_default().to_vec();
                last.extend(self.dialect.interrupted_stream_event().into_bytes());
                last.into()
            }
        };
        if !forwarded.is_empty() {
            self.buffered.push(forwarded);
        }
    }

    fn finish(&mut self) {
        self.ended = true;
        self.recording
            .record_finish_reason(|| self.observer.finish_reason());
        self.recording.record_completion(self.observer.usage());
    }
}

/// A stream that is decoded and re-encoded in the caller's dialect.
struct TranslatedStream {
    response: Response,
    events: sse::SseDecoder,
    decoder: StreamDecoder,
    encoder: StreamEncoder,
    recording: UsageRecording,
    capture: Option<ConversationCapture>,
    ended: bool,
}

/// Collects a response that the caller may refer to later.
struct ConversationCapture {
    conversations: Conversations,
    caller: Caller,
    body: RequestBody,
    head: ResponseHead,
    turn: ModelTurn,
}

/// Translates a streamed response into the caller's dialect.
fn translate(
    response: ProviderResponse,
    model_call: &ModelCall,
    conversations: &Conversations,
) -> BoxStream<'static, Bytes> {
    let ProviderResponse {
        dialect: provider_dialect,
        response,
        recording,
    } = response;
    let mut head = model_call.response_head();
    let caller_dialect = model_call.request.dialect;
    head.id = caller_dialect.new_response_id();
    let capture = (caller_dialect == Dialect::Responses).then(|| ConversationCapture {
        conversations: conversations.clone(),
        caller: model_call.caller.clone(),
        body: model_call.body.clone(),
        head: head.clone(),
        turn: ModelTurn::default(),
    });
    let stream_state = TranslatedStream {
        response,
        events: sse::SseDecoder::new(MAX_EVENT_BYTES),
        decoder: provider_dialect.stream_decoder(),
        encoder: caller_dialect.stream_encoder(head),
        recording,
        capture,
        ended: false,
    };
    stream::unfold(stream_state, |mut stream_state| async move {
        let chunk = stream_state.next().await?;
        Some((chunk, stream_state))
    })
    .boxed()
}

impl TranslatedStream {
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = String::new();
        while !self.ended && out.len() < MAX_COALESCED_BYTES {
            let chunk = if out.is_empty() {
                self.response.chunk().await
            } else {
                match if_ready(self.response.chunk()).await {
                    Some(chunk) => chunk,
                    None => break,
                }
            };
            match chunk {
                Ok(Some(chunk)) => {
                    self.recording.record_first_byte();
                    if let Err(message) = self.translate_chunk(&chunk, &mut out) {
                        self.fail(message, &mut out);
                    }
                }
                Ok(None) if self.decoder.is_done() => {
                    self.ended = true;
                    self.recording.record_completion(None);
                    self.encoder.finish(&mut out);
                    if let Some(done) = self.capture.take() {
                        let answer = Dialect::Responses.encode_response(&done.head, &done.turn);
                        done.conversations.store_response(
                            &done.caller,
                            done.body.as_str(),
                            &answer,
                        );
                    }
                }
                Ok(None) | Err(_) => self.fail(ModelError::Incomplete.to_string(), &mut out),
            }
        }
        (!out.is_empty()).then(|| out.into())
    }

    fn translate_chunk(&mut self, chunk: &[u8], out: &mut String) -> Result<(), String> {
        let (mut raw, mut events) = (Vec::new(), Vec::new());
        let fed = self.events.feed(chunk, &mut raw);
        for event in &raw {
            let decoded = self.decoder.decode(event, &mut events);
            decoded.map_err(|error| error.to_string())?;
        }
        for event in &events {
            match event {
                TurnEvent::Usage(usage) => self.recording.record_usage(Some(*usage)),
                TurnEvent::Finish(finish) => self.recording.record_finish(finish),
                _ => {}
            }
            if let Some(capture) = &mut self.capture {
                capture.turn.apply(event);
            }
            self.encoder.encode(event, out);
        }
        fed.map_err(|error| error.to_string())
    }

    fn fail(&mut self, message: String, out: &mut String) {
        self.ended = true;
        self.recording.record_incomplete();
        let failure = ProviderError {
            kind: Some("api_error".to_owned()),
            message,
            code: None,
        };
        self.encoder.encode(&TurnEvent::Error(failure), out);
        self.encoder.finish(out);
    }
}
