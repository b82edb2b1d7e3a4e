//! `/v1/chat/completions`, `/v1/responses`, `/v1/messages` and `/v1/models`: models, in the shape
//! that the SDKs of OpenAI and Anthropic expect, errors included.

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
    AnswerBody, CallError, Caller, Dialect, ModelAnswer, ModelError, ModelRequest, Request,
};

use super::App;
use super::error::ApiError;
use super::request::{self, RequestId, Sent};

/// A chat completion of any model, with the caller's tools added.
#[utoipa::path(post, path = "/v1/chat/completions", tag = "models", request_body = Object,
    responses((status = 200, description = "as OpenAI writes it, or an event stream"), (status = 404, description = "no such model")))]
pub(crate) async fn chat(
    state: State<App>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    query: RawQuery,
    Sent(headers): Sent,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let visit = Visit::new(state, Dialect::Chat, caller, id, headers);
    visit.ask(Operation::Complete, query, body).await
}

/// A response of any model, with the caller's tools added.
#[utoipa::path(post, path = "/v1/responses", tag = "models", request_body = Object,
    responses((status = 200, description = "as OpenAI writes it, or an event stream"), (status = 404, description = "no such model")))]
pub(crate) async fn responses(
    state: State<App>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    query: RawQuery,
    Sent(headers): Sent,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let visit = Visit::new(state, Dialect::Responses, caller, id, headers);
    visit.ask(Operation::Complete, query, body).await
}

/// A message of any model, with the caller's tools added.
#[utoipa::path(post, path = "/v1/messages", tag = "models", request_body = Object,
    responses((status = 200, description = "as Anthropic writes it, or an event stream"), (status = 404, description = "no such model")))]
pub(crate) async fn messages(
    state: State<App>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    query: RawQuery,
    Sent(headers): Sent,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let visit = Visit::new(state, Dialect::Messages, caller, id, headers);
    visit.ask(Operation::Complete, query, body).await
}

/// How many tokens a request would have, where the provider counts them.
#[utoipa::path(post, path = "/v1/messages/count_tokens", tag = "models", request_body = Object,
    responses((status = 200, description = "as Anthropic writes it"), (status = 404, description = "no such model, or its provider does not count")))]
pub(crate) async fn count_tokens(
    state: State<App>,
    caller: Extension<Caller>,
    id: Extension<RequestId>,
    query: RawQuery,
    Sent(headers): Sent,
    body: Result<Bytes, BytesRejection>,
) -> Response {
    let visit = Visit::new(state, Dialect::Messages, caller, id, headers);
    visit.ask(Operation::CountTokens, query, body).await
}

/// The models that are known by name.
#[utoipa::path(get, path = "/v1/models", tag = "models", responses((status = 200, description = "as OpenAI or Anthropic lists them")))]
pub(crate) async fn list(State(app): State<App>, headers: HeaderMap) -> Json<Value> {
    let models = app.gateway().models().list().await;
    Json(match headers.contains_key("anthropic-version") {
        true => anthropic_list(&models),
        false => {
            let data = models.iter().map(|ModelName { name, provider }| {
                json!({"id": name, "object": "model", "created": 0, "owned_by": provider})
            });
            json!({"object": "list", "data": data.collect::<Vec<_>>()})
        }
    })
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

/// One request to a model.
struct Visit {
    app: App,
    dialect: Dialect,
    caller: Caller,
    id: String,
    headers: HeaderMap,
}

impl Visit {
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

    async fn ask(
        self,
        operation: Operation,
        RawQuery(query): RawQuery,
        body: Result<Bytes, BytesRejection>,
    ) -> Response {
        let (dialect, models) = (self.dialect, self.app.gateway().models().clone());
        let request = match (body, request::filters(&self.headers)) {
            (Ok(body), Ok(filters)) => ModelRequest {
                dialect,
                operation,
                body,
                query,
                request: Arc::new(Request {
                    id: Some(self.id),
                    parent: request::parent(&self.headers),
                    filters,
                    headers: self.headers,
                    ..Request::default()
                }),
            },
            (Err(rejection), _) => return ApiError::from(rejection).into_response(),
            (_, Err(error)) => return error.into_response(),
        };
        match models.complete(&self.caller, request).await {
            Ok(answer) => written(answer),
            Err(error) => refused(dialect, &error),
        }
    }
}

pub(crate) fn written(answer: ModelAnswer) -> Response {
    let ModelAnswer {
        status,
        headers,
        body,
    } = answer;
    let body = match body {
        AnswerBody::Whole(bytes) => Body::from(bytes),
        AnswerBody::Stream(stream) => {
            Body::from_stream(stream.map(Ok::<Bytes, std::convert::Infallible>))
        }
    };
    (status, headers, body).into_response()
}

/// An error in the shape of the dialect that was spoken.
fn refused(dialect: Dialect, error: &ModelError) -> Response {
    if error.status().is_server_error() {
        let mut cause: &dyn std::error::Error = error;
        while let Some(inner) = cause.source() {
            cause = inner;
        }
        tracing::warn!(%error, %cause, "a model request failed");
    }
    let body = toolgate::models::error_body(dialect, &error.failure());
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

/// Whether Anthropic's SDKs send such requests.
pub(super) fn is_messages(request: &HttpRequest) -> bool {
    request.uri().path().starts_with("/v1/messages")
}

/// Writes the gateway's own errors (keys, sizes, hosts) as Anthropic's SDKs expect them.
pub(super) fn with_anthropic_error(response: Response) -> Response {
    let Some(error) = response.extensions().get::<Arc<ApiError>>() else {
        return response;
    };
    let body = toolgate::models::error_body(Dialect::Messages, &error.failure());
    let status = response.status();
    (status, [(CONTENT_TYPE, "application/json")], body).into_response()
}
