//! `/api/code`: scripts run by hand.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::extract::rejection::BytesRejection;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;
use toolgate::{Arguments, Caller, Request, ToolCall};
use utoipa::ToSchema;

use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::execute::ToolMessage;
use crate::http::request::RequestId;

/// A script, and on whose behalf it runs.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CodeRun {
    code: String,
    /// The name of a caller's key; without it, a caller who needs none.
    key: Option<String>,
}

/// Run a script over the servers in code mode, with the bounds and rules that hold for models.
#[utoipa::path(post, path = "/api/code/run", tag = "api", request_body = CodeRun,
    responses((status = 200, body = ToolMessage), (status = 400, body = ErrorBody)))]
pub(crate) async fn run(
    State(app): State<App>,
    Extension(RequestId(id)): Extension<RequestId>,
    body: Result<Bytes, BytesRejection>,
) -> Result<Json<ToolMessage>, ApiError> {
    let CodeRun { code, key } = serde_json::from_slice(&body?).map_err(|error| {
        ApiError::bad_request(format!("send {{\"code\": \"result = …\"}}: {error}"))
    })?;
    let caller = match &key {
        Some(key) => Caller::http().with_key(key),
        None => Caller::http(),
    };
    let arguments = Arguments::parse(&json!({"code": code}).to_string());
    let arguments = arguments.map_err(|error| ApiError::bad_request(error.to_string()))?;
    let request = Arc::new(Request {
        id: Some(id.to_string()),
        ..Request::default()
    });
    let call = ToolCall::new("executeToolCode", arguments).of(&request);
    let answer = app.gateway().call(&caller, call).await;
    Ok(Json(ToolMessage::new("", &answer)))
}
