//! Endpoints of OpenAI's API besides the dialects: requests are forwarded with another model name, and
//! responses returned as they come, with the limits and records of other model requests.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use reqwest::Response;
use serde_json::{Value, json};
use toolgate_core::config::Dialect;
use toolgate_core::sse::{SseDecoder, SseEvent};
use toolgate_llm::endpoint::{self, Endpoint};
use toolgate_llm::form::Form;
use toolgate_llm::upstream::ProviderRequest;
use toolgate_llm::{FieldError, RequestBody};

use super::table::{self, ModelTarget};
use super::{
    MAX_EVENT_BYTES, ModelCall, ModelError, ModelRequest, ModelResponse, Models, Operation,
    ProviderResponse, ResponseBody, ResponseChunks, UsageRecording, headers, is_stream, read_body,
    response,
};
use crate::call::RequestContext;
use crate::caller::Caller;

impl Models {
    /// Forwards a request to an endpoint of its model's provider, and relays the response.
    pub(crate) async fn forward(
        &self,
        caller: &Caller,
        request: ModelRequest,
    ) -> Result<ModelResponse, ModelError> {
        let request = self.with_request_id(request);
        let model_call = parse_call(request, caller)?;
        let response = self.send(&model_call).await?;
        relay(&model_call, response).await
    }

    /// Generates the id of a request that has none.
    pub(super) fn with_request_id(&self, request: ModelRequest) -> ModelRequest {
        if request.request.id.is_some() {
            return request;
        }
        let context = RequestContext {
            id: Some(self.0.engine.hooks().request_id()),
            ..(*request.request).clone()
        };
        request.with_request(&Arc::new(context))
    }

    pub(super) async fn forward_to(
        &self,
        endpoint: Endpoint,
        model_call: &ModelCall,
        target: &ModelTarget,
        recording: &UsageRecording,
    ) -> Result<Response, ModelError> {
        let upstream = &target.upstream;
        if !upstream.has_openai_endpoints() {
            return Err(ModelError::NoEndpoint {
                provider: upstream.name.clone(),
                endpoint: endpoint.path(),
            });
        }
        let mut path = format!("/{}", endpoint.path());
        if let Some(query) = &model_call.request.query {
            path.push('?');
            path.push_str(query);
        }
        let (body, content_type) = match &model_call.form {
            Some(form) => {
                let content_type = model_call.context.headers.get(CONTENT_TYPE).cloned();
                (form.with_field("model", &target.model), content_type)
            }
            None => {
                let json = HeaderValue::from_static("application/json");
                (self.forwarded_body(model_call, target), Some(json))
            }
        };
        let outgoing = ProviderRequest {
            method: Method::POST,
            path: &path,
            dialect: Dialect::Chat,
            model: &target.model,
            body,
            content_type,
            headers: self.provider_headers(model_call, target, Dialect::Chat, recording),
        };
        Ok(upstream.send(&outgoing).await?)
    }

    fn forwarded_body(&self, model_call: &ModelCall, target: &ModelTarget) -> Bytes {
        let mut edit = model_call.body.edit();
        if target.model != model_call.name {
            edit = edit.set("model", &Value::from(target.model.as_str()).to_string());
        }
        if let Some(fallbacks) = model_call.body.get("fallbacks")
            && table::is_fallbacks(fallbacks)
        {
            edit = edit.remove("fallbacks");
        }
        if model_call.must_request_stream_usage(&self.0.engine) {
            let mut options = model_call.stream_options();
            options["include_usage"] = Value::Bool(true);
            edit = edit.set("stream_options", &options.to_string());
        }
        edit.finish()
    }
}

/// Parses a request: a JSON object, or a form, whose fields stand for its members.
fn parse_call(request: ModelRequest, caller: &Caller) -> Result<ModelCall, ModelError> {
    let content_type = request.request.headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    let Some(content_type) = content_type.filter(|value| Form::is_form(value)) else {
        let body = RequestBody::parse(request.body.clone())?;
        return ModelCall::new(request, body, caller.clone());
    };
    let form = Form::parse(content_type, request.body.clone()).map_err(|error| FieldError {
        field: "body".to_owned(),
        problem: error.to_string(),
    })?;
    let model = form.get("model").ok_or(ModelError::MissingModel)?;
    let stream = form.get("stream") == Some("true");
    let body = json!({"model": model, "stream": stream}).to_string();
    let body = RequestBody::parse(body.into())?;
    let mut model_call = ModelCall::new(request, body, caller.clone())?;
    model_call.form = Some(Arc::new(form));
    Ok(model_call)
}

/// Relays the response of an endpoint and records its usage.
async fn relay(
    model_call: &ModelCall,
    response: ProviderResponse,
) -> Result<ModelResponse, ModelError> {
    let ProviderResponse {
        response,
        mut recording,
        ..
    } = response;
    let status = response.status();
    let headers = headers::caller_headers(response.headers());
    recording.record_status(status.as_u16());
    let is_completion = model_call.request.operation == Operation::Forward(Endpoint::Completions);
    let body = if !status.is_success() || is_json(response.headers()) {
        let body = read_body(response).await?;
        recording.record_completion(endpoint::decode_usage(&body));
        ResponseBody::Whole(body)
    } else if is_completion && is_stream(response.headers()) {
        ResponseBody::Stream(response::pass_through(response, Dialect::Chat, recording).await)
    } else {
        ResponseBody::Chunks(relay_chunks(response, recording, UsageInEvents::Recorded))
    };
    Ok(ModelResponse {
        status,
        headers,
        body,
    })
}

fn is_json(headers: &HeaderMap) -> bool {
    let content_type = headers.get(CONTENT_TYPE);
    let content_type = content_type.and_then(|value| value.to_str().ok());
    content_type.is_none_or(|value| value.starts_with("application/json"))
}

/// A response that is relayed chunk by chunk: media, or events of any kind.
struct ForwardedStream {
    response: Response,
    recording: UsageRecording,
    /// Finds the usage in events; `None` for other content, or after an event that is too large.
    events: Option<SseDecoder>,
    ended: bool,
}

/// Whether the usage in a response is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UsageInEvents {
    Recorded,
    /// It was recorded when the response was created.
    AlreadyRecorded,
}

/// Relays a response as it arrives. One that the provider cuts off ends with an error.
pub(super) fn relay_chunks(
    response: Response,
    recording: UsageRecording,
    usage: UsageInEvents,
) -> ResponseChunks {
    let has_usage = usage == UsageInEvents::Recorded && is_stream(response.headers());
    let state = ForwardedStream {
        events: has_usage.then(|| SseDecoder::new(MAX_EVENT_BYTES)),
        response,
        recording,
        ended: false,
    };
    let chunks = stream::unfold(state, |mut state| async move {
        let chunk = state.next().await?;
        Some((chunk, state))
    });
    chunks.boxed()
}

impl ForwardedStream {
    async fn next(&mut self) -> Option<Result<Bytes, ModelError>> {
        if self.ended {
            return None;
        }
        match self.response.chunk().await {
            Ok(Some(chunk)) => {
                self.recording.record_first_byte();
                self.observe(&chunk);
                Some(Ok(chunk))
            }
            Ok(None) => {
                self.ended = true;
                self.recording.record_completion(None);
                None
            }
            Err(_) => {
                self.ended = true;
                self.recording.record_incomplete();
                Some(Err(ModelError::Incomplete))
            }
        }
    }

    /// Records the usage in events.
    fn observe(&mut self, chunk: &[u8]) {
        let Some(decoder) = &mut self.events else {
            return;
        };
        let mut events: Vec<SseEvent> = Vec::new();
        if decoder.feed(chunk, &mut events).is_err() {
            self.events = None;
        }
        for event in &events {
            if event.data.contains("\"usage\"") {
                let usage = endpoint::decode_usage(event.data.as_bytes());
                self.recording.record_usage(usage);
            }
        }
    }
}
