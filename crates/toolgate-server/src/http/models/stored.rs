//! `/v1/responses/{id}`: stored responses, which exist only for the caller who received them.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{FromRequestParts, RawQuery};
use axum::http::request::Parts;
use axum::response::Response;
use toolgate::models::{StoredResponseAction, StoredResponseRequest};
use toolgate::{Caller, Dialect, RequestContext};

use super::{model_error_response, model_response};
use crate::http::App;
use crate::http::extract::ApiPath;
use crate::http::request::{OwnedHeaders, RequestId};

/// Get a stored response.
#[utoipa::path(get, path = "/v1/responses/{id}", tag = "models", params(("id" = String, Path)),
    responses((status = 200, description = "response in OpenAI's format, or an event stream"), (status = 404, description = "no such response of this caller")))]
pub(crate) async fn get(request: IncomingStoredRequest) -> Response {
    request.send(StoredResponseAction::Get).await
}

/// Delete a stored response.
#[utoipa::path(delete, path = "/v1/responses/{id}", tag = "models", params(("id" = String, Path)),
    responses((status = 200, description = "deleted"), (status = 404, description = "no such response of this caller")))]
pub(crate) async fn delete(request: IncomingStoredRequest) -> Response {
    request.send(StoredResponseAction::Delete).await
}

/// Cancel a response that is created in the background.
#[utoipa::path(post, path = "/v1/responses/{id}/cancel", tag = "models", params(("id" = String, Path)),
    responses((status = 200, description = "response in OpenAI's format"), (status = 404, description = "no such response of this caller")))]
pub(crate) async fn cancel(request: IncomingStoredRequest) -> Response {
    request.send(StoredResponseAction::Cancel).await
}

/// List the input items of a stored response.
#[utoipa::path(get, path = "/v1/responses/{id}/input_items", tag = "models", params(("id" = String, Path)),
    responses((status = 200, description = "list in OpenAI's format"), (status = 404, description = "no such response of this caller")))]
pub(crate) async fn input_items(request: IncomingStoredRequest) -> Response {
    request.send(StoredResponseAction::InputItems).await
}

/// An HTTP request about a stored response.
pub(crate) struct IncomingStoredRequest {
    app: App,
    caller: Caller,
    response_id: String,
    query: Option<String>,
    context: RequestContext,
}

/// Extractors of an [`IncomingStoredRequest`], in the order in which they run.
type StoredRequestParts = (
    Extension<Caller>,
    Extension<RequestId>,
    ApiPath<String>,
    RawQuery,
    OwnedHeaders,
);

impl FromRequestParts<App> for IncomingStoredRequest {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, Response> {
        let (
            Extension(caller),
            Extension(RequestId(id)),
            ApiPath(response_id),
            RawQuery(query),
            OwnedHeaders(headers),
        ) = StoredRequestParts::from_request_parts(parts, app).await?;
        Ok(Self {
            app: app.clone(),
            caller,
            response_id,
            query,
            context: RequestContext {
                id: Some(id),
                headers,
                ..RequestContext::default()
            },
        })
    }
}

impl IncomingStoredRequest {
    async fn send(self, action: StoredResponseAction) -> Response {
        let request = StoredResponseRequest {
            id: self.response_id,
            action,
            query: self.query,
            request: Arc::new(self.context),
        };
        let models = self.app.gateway().models();
        match models.stored_response(&self.caller, request).await {
            Ok(response) => model_response(response),
            Err(error) => model_error_response(Dialect::Responses, &error),
        }
    }
}
