//! `/v1/chat/completions`, `/v1/responses`, `/v1/messages` and `/v1/models`, compatible with the SDKs
//! of OpenAI and Anthropic, including their error formats.

use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::BytesRejection;
use axum::extract::{RawQuery, Request as HttpRequest, State};
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use toolgate::models::{ModelName, Operation};
use toolgate::{
    CallError, Caller, Dialect, ModelError, ModelRequest, ModelResponse, RequestContext,
    ResponseBody,
};

use super::App;
use super::error::ApiError;
use super::request::{self, OwnedHeaders, RequestId};

/// Create a chat completion with any model; the caller's tools are added to the request.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "models", request_body = Object,
    responses((status = 200, description = "response in OpenAI's format, or an event stream"), (status = 404, description = "unknown model")))]
pub(crate) async fn chat(
    state: State<App>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    query: RawQuery,
    OwnedHeaders(headers): OwnedHeaders,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let request = IncomingModelRequest::new(state, Dialect::Chat, caller, id, headers);
    request.send(Operation::Complete, query, body).await
}

/// Create a response with any model; the caller's tools are added to the request.
#[utoipa::path(post, path = "/v1/responses", tag = "models", request_body = Object,
    responses((status = 200, description = "response in OpenAI's format, or an event stream"), (status = 404, description = "unknown model")))]
pub(crate) async fn responses(
    state: State<App>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    query: RawQuery,
    OwnedHeaders(headers): OwnedHeaders,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let request = IncomingModelRequest::new(state, Dialect::Responses, caller, id, headers);
    request.send(Operation::Complete, query, body).await
}

/// Create a message with any model; the caller's tools are added to the request.
#[utoipa::path(post, path = "/v1/messages", tag = "models", request_body = Object,
    responses((status = 200, description = "response in Anthropic's format, or an event stream"), (status = 404, description = "unknown model")))]
pub(crate) async fn messages(
    state: State<App>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    query: RawQuery,
    OwnedHeaders(headers): OwnedHeaders,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let request = IncomingModelRequest::new(state, Dialect::Messages, caller, id, headers);
    request.send(Operation::Complete, query, body).await
}

/// Count the tokens of a request, if the provider supports it.
#[utoipa::path(post, path = "/v1/messages/count_tokens", tag = "models", request_body = Object,
    responses((status = 200, description = "response in Anthropic's format"), (status = 404, description = "unknown model, or its provider does not count tokens")))]
pub(crate) async fn count_tokens(
    state: State<App>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    query: RawQuery,
    OwnedHeaders(headers): OwnedHeaders,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let request = IncomingModelRequest::new(state, Dialect::Messages, caller, id, headers);
    request.send(Operation::CountTokens, query, body).await
}

/// List the available models.
#[utoipa::path(get, path = "/v1/models", tag = "models", responses((status = 200, description = "list in OpenAI's or Anthropic's format")))]
pub(crate) async fn list(State(app): State<App>, headers: HeaderMap) -> Json<Value> {
    let models = app.gateway().models().list().await;
    if headers.contains_key("anthropic-version") {
        return Json(anthropic_list(&models));
    }
    let data = models.iter().map(|ModelName { name, provider }| {
        json!({"id": name, "object": "model", "created": 0, "owned_by": provider})
    });
    Json(json!({"object": "list", "data": data.collect::<Vec<_>>()}))
}

fn anthropic_list(models: &[ModelName]) -> Value {
    let data = models.iter().map(|ModelName { name, .. }| {
        json!({"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"})
    });
    json!({
        "data": data.collect::<Vec<_>>(),
        "has_more": false,
        "first_id": models.first().map(|model| &model.name),
        "last_id": models.last().map(|model| &model.name),
    })
}

/// An HTTP request to one of the model endpoints.
struct IncomingModelRequest {
    app: App,
    dialect: Dialect,
    caller: Caller,
    id: String,
    headers: HeaderMap,
}

impl IncomingModelRequest {
    fn new(
        State(app): State<App>,
        dialect: Dialect,
        Extension(caller): Extension<Caller>,
        Extension(RequestId(id)): Extension<RequestId>,
        headers: HeaderMap,
    ) -> Self {
        Self {
            app,
            dialect,
            caller,
            id,
            headers,
        }
    }

    async fn send(
        self,
        operation: Operation,
        RawQuery(query): RawQuery,
        body: Result<Bytes, BytesRejection>,
    ) -> Response {
        let dialect = self.dialect;
        let request = match (body, request::parse_filters(&self.headers)) {
            (Ok(body), Ok(filters)) => ModelRequest {
                dialect,
                operation,
                body,
                query,
                request: Arc::new(RequestContext {
                    id: Some(self.id),
                    parent: request::parent_id(&self.headers),
                    filters,
                    headers: self.headers,
                    ..RequestContext::default()
                }),
            },
            (Err(rejection), _) => return ApiError::from(rejection).into_response(),
            (_, Err(error)) => return error.into_response(),
        };
        match self.app.gateway().complete(&self.caller, request).await {
            Ok(answer) => model_response(answer),
            Err(error) => model_error_response(dialect, &error),
        }
    }
}

pub(crate) fn model_response(answer: ModelResponse) -> Response {
    let ModelResponse {
        status,
        headers,
        body,
    } = answer;
    let body = match body {
        ResponseBody::Whole(bytes) => Body::from(bytes),
        ResponseBody::Stream(stream) => {
            Body::from_stream(stream.map(Ok::<Bytes, std::convert::Infallible>))
        }
    };
    (status, headers, body).into_response()
}

/// Writes an error in the format of the request's dialect.
fn model_error_response(dialect: Dialect, error: &ModelError) -> Response {
    if error.status().is_server_error() {
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        tracing::warn!(%error, %cause, "model request failed");
    }
    let body = toolgate::models::error_body(dialect, &error.to_provider_error());
    let mut response = (error.status(), [(CONTENT_TYPE, "application/json")], body).into_response();
    if let ModelError::Refused(CallError::Limited {
        retry_after: Some(after),
        ..
    }) = error
        && let Ok(seconds) = HeaderValue::from_str(&after.as_secs_f64().ceil().to_string())
    {
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

/// Returns whether the request targets the Anthropic-compatible API.
pub(super) fn is_messages(request: &HttpRequest) -> bool {
    request.uri().path().starts_with("/v1/messages")
}

/// Rewrites the gateway's own errors (authentication, body size, host) to Anthropic's format.
pub(super) fn with_anthropic_error(response: Response) -> Response {
    let Some(error) = response.extensions().get::<Arc<ApiError>>() else {
        return response;
    };
    let body = toolgate::models::error_body(Dialect::Messages, &error.to_failure());
    let status = response.status();
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}
