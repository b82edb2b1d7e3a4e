//! `/v1/chat/completions`, `/v1/responses`, `/v1/messages` and `/v1/models`, compatible with the SDKs
//! of OpenAI and Anthropic, including their error formats. [`endpoints`] has the other endpoints.

pub(crate) mod endpoints;
pub(crate) mod stored;

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
use super::extract::{ApiBytes, ApiPath};
use super::request::{self, OwnedHeaders, RequestId};

/// Names the provider of models whose names have none.
const PROVIDER_HEADER: &str = "x-toolgate-provider";

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

/// Count the tokens of a request. They are estimated if the provider speaks another dialect.
#[utoipa::path(post, path = "/v1/messages/count_tokens", tag = "models", request_body = Object,
    responses((status = 200, description = "response in Anthropic's format"), (status = 404, description = "unknown model")))]
pub(crate) async fn count_tokens(request: IncomingModelRequest) -> Response {
    request
        .send(Dialect::Messages, Operation::CountTokens)
        .await
}

/// Count the tokens of a request to `/v1/responses`. They are estimated if the provider speaks another dialect.
#[utoipa::path(post, path = "/v1/responses/input_tokens", tag = "models", request_body = Object,
    responses((status = 200, description = "response in OpenAI's format"), (status = 404, description = "unknown model")))]
pub(crate) async fn input_tokens(request: IncomingModelRequest) -> Response {
    request
        .send(Dialect::Responses, Operation::CountTokens)
        .await
}

/// List the available models.
#[utoipa::path(get, path = "/v1/models", tag = "models", responses((status = 200, description = "list in OpenAI's or Anthropic's format")))]
pub(crate) async fn list(State(app): State<App>, headers: HeaderMap) -> Json<Value> {
    let models = app.gateway().models().list().await;
    if headers.contains_key("anthropic-version") {
        return Json(anthropic_list(&models));
    }
    let data = models.iter().map(openai_model);
    Json(json!({"object": "list", "data": data.collect::<Vec<_>>()}))
}

/// Get a model by any name that requests may use for it.
#[utoipa::path(get, path = "/v1/models/{id}", tag = "models", params(("id" = String, Path)),
    responses((status = 200, description = "model in OpenAI's or Anthropic's format"), (status = 404, description = "unknown model")))]
pub(crate) async fn get(
    State(app): State<App>,
    ApiPath(id): ApiPath<String>,
    headers: HeaderMap,
) -> Response {
    find(&app, &id, &headers).await
}

/// As [`get`], for a name whose `/` is not encoded.
pub(crate) async fn get_qualified(
    State(app): State<App>,
    ApiPath((provider, model)): ApiPath<(String, String)>,
    headers: HeaderMap,
) -> Response {
    find(&app, &format!("{provider}/{model}"), &headers).await
}

async fn find(app: &App, name: &str, headers: &HeaderMap) -> Response {
    let is_anthropic = headers.contains_key("anthropic-version");
    match app.gateway().models().find(name).await {
        Some(model) if is_anthropic => Json(anthropic_model(&model)).into_response(),
        Some(model) => Json(openai_model(&model)).into_response(),
        None => {
            let dialect = if is_anthropic {
                Dialect::Messages
            } else {
                Dialect::Chat
            };
            let error = ModelError::UnknownModel {
                name: name.to_owned(),
                hint: "`GET /v1/models` lists those that are available".to_owned(),
            };
            model_error_response(dialect, &error)
        }
    }
}

fn openai_model(ModelName { name, provider }: &ModelName) -> Value {
    json!({"id": name, "object": "model", "created": 0, "owned_by": provider})
}

fn anthropic_model(ModelName { name, .. }: &ModelName) -> Value {
    json!({"type": "model", "id": name, "display_name": name, "created_at": "1970-01-01T00:00:00Z"})
}

fn anthropic_list(models: &[ModelName]) -> Value {
    let data = models.iter().map(anthropic_model);
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
        ResponseBody::Chunks(chunks) => Body::from_stream(chunks),
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

/// Rewrites a request below a path that names a provider: its base URL may lack `/v1`, and models whose
/// names have no provider are of this one.
pub(super) fn with_provider(mut request: HttpRequest, provider: &'static str) -> HttpRequest {
    let uri = request.uri();
    if !uri.path().starts_with("/v1/") {
        let target = uri.path_and_query().map_or("", |target| target.as_str());
        // The path is part of a valid URI already.
        if let Ok(versioned) = format!("/v1{target}").parse() {
            *request.uri_mut() = versioned;
        }
    }
    let headers = request.headers_mut();
    headers.insert(PROVIDER_HEADER, HeaderValue::from_static(provider));
    request
}

/// Returns whether the request targets the Anthropic-compatible API.
pub(super) fn is_messages(request: &HttpRequest) -> bool {
    let path = request.uri().path();
    match path.strip_prefix("/anthropic") {
        Some(rest) => rest.starts_with("/v1/messages") || rest.starts_with("/messages"),
        None => path.starts_with("/v1/messages"),
    }
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
