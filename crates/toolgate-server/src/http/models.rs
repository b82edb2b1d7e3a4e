//! `/v1/chat/completions`, `/v1/responses`, `/v1/messages` and `/v1/models`, compatible with the SDKs
//! of OpenAI and Anthropic, including their error formats.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{FromRequest, RawQuery, Request as HttpRequest, State};
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use toolgate::models::{ModelName, Operation};
use toolgate::{
    Caller, Dialect, ModelError, ModelRequest, ModelResponse, RequestContext, ResponseBody,
};

use super::App;
use super::error::{ApiError, STORE_RETRY_AFTER};
use super::extract::ApiBytes;
use super::request::{self, OwnedHeaders, RequestId};

/// Create a chat completion with any model; the caller's tools are added to the request.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "models", request_body = Object,
    responses((status = 200, description = "response in OpenAI's format, or an event stream"), (status = 404, description = "unknown model")))]
pub(crate) async fn chat(request: IncomingModelRequest) -> Response {
    request.send(Dialect::Chat, Operation::Complete).await
}

/// Create a response with any model; the caller's tools are added to the request.
#[utoipa::path(post, path = "/v1/responses", tag = "models", request_body = Object,
    responses((status = 200, description = "response in OpenAI's format, or an event stream"), (status = 404, description = "unknown model")))]
pub(crate) async fn responses(request: IncomingModelRequest) -> Response {
    request.send(Dialect::Responses, Operation::Complete).await
}

/// Create a message with any model; the caller's tools are added to the request.
#[utoipa::path(post, path = "/v1/messages", tag = "models", request_body = Object,
    responses((status = 200, description = "response in Anthropic's format, or an event stream"), (status = 404, description = "unknown model")))]
pub(crate) async fn messages(request: IncomingModelRequest) -> Response {
    request.send(Dialect::Messages, Operation::Complete).await
}

/// Count the tokens of a request, if the provider supports it.
#[utoipa::path(post, path = "/v1/messages/count_tokens", tag = "models", request_body = Object,
    responses((status = 200, description = "response in Anthropic's format"), (status = 404, description = "unknown model, or its provider does not count tokens")))]
pub(crate) async fn count_tokens(request: IncomingModelRequest) -> Response {
    request
        .send(Dialect::Messages, Operation::CountTokens)
        .await
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
pub(crate) struct IncomingModelRequest {
    app: App,
    caller: Caller,
    id: String,
    query: Option<String>,
    headers: HeaderMap,
    body: Bytes,
}

/// Extractors of an [`IncomingModelRequest`], in the order in which they run.
type ModelRequestParts = (
    Extension<Caller>,
    Extension<RequestId>,
    RawQuery,
    OwnedHeaders,
    ApiBytes,
);

impl FromRequest<App> for IncomingModelRequest {
    type Rejection = Response;

    async fn from_request(request: HttpRequest, app: &App) -> Result<Self, Response> {
        let (
            Extension(caller),
            Extension(RequestId(id)),
            RawQuery(query),
            OwnedHeaders(headers),
            ApiBytes(body),
        ) = ModelRequestParts::from_request(request, app).await?;
        Ok(Self {
            app: app.clone(),
            caller,
            id,
            query,
            headers,
            body,
        })
    }
}

impl IncomingModelRequest {
    async fn send(self, dialect: Dialect, operation: Operation) -> Response {
        let filters = match request::parse_filters(&self.headers) {
            Ok(filters) => filters,
            Err(error) => return error.into_response(),
        };
        let context = Arc::new(RequestContext {
            id: Some(self.id),
            parent: request::parent_id(&self.headers),
            filters,
            headers: self.headers,
            ..RequestContext::default()
        });
        let request = ModelRequest {
            dialect,
            operation,
            body: self.body,
            query: self.query,
            request: Arc::clone(&context),
        };
        let mut response = match self.app.gateway().complete(&self.caller, request).await {
            Ok(answer) => model_response(answer),
            Err(error) => model_error_response(dialect, &error),
        };
        let filters = &context.filters;
        request::warn_of_unmatched_filters(&self.app, &self.caller, filters, &mut response);
        response
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
    if let Some(after) = retry_after(error)
        && let Ok(seconds) = HeaderValue::from_str(&after.as_secs_f64().ceil().to_string())
    {
        response.headers_mut().insert(RETRY_AFTER, seconds);
    }
    response
}

/// Returns the time after which a failed request is worth another try, if it is known.
pub(crate) fn retry_after(error: &ModelError) -> Option<Duration> {
    match error {
        ModelError::Refused(error) if error.is_unrecorded() => Some(STORE_RETRY_AFTER),
        ModelError::Refused(error) => error.retry_after(),
        _ => None,
    }
}

/// Returns whether the request targets the Anthropic-compatible API.
pub(super) fn is_messages(request: &HttpRequest) -> bool {
    request.uri().path().starts_with("/v1/messages")
}

/// Rewrites the body of the gateway's own errors (authentication, body size, host) to Anthropic's format.
pub(super) fn with_anthropic_error(mut response: Response) -> Response {
    let Some(error) = response.extensions().get::<Arc<ApiError>>() else {
        return response;
    };
    let body = toolgate::models::error_body(Dialect::Messages, &error.to_failure());
    response.headers_mut().remove(CONTENT_LENGTH);
    *response.body_mut() = Body::from(body);
    response
}
