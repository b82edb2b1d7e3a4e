//! `/api/code`: scripts run by hand, and the files that tell what they can call.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate::{Arguments, Caller, Request, ToolCall};
use utoipa::{IntoParams, ToSchema};

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

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FileParams {
    /// A file such as `servers/github.pyi`; without it, the list of all.
    name: Option<String>,
    /// The name of a caller's key; without it, a caller who needs none.
    key: Option<String>,
}

/// The files that models read in code mode, as `listToolFiles` and `readToolFile` tell them.
#[utoipa::path(get, path = "/api/code/files", tag = "api", params(FileParams),
    responses((status = 200, body = ToolMessage), (status = 400, body = ErrorBody)))]
pub(crate) async fn files(
    State(app): State<App>,
    Extension(RequestId(id)): Extension<RequestId>,
    params: Result<Query<FileParams>, QueryRejection>,
) -> Result<Json<ToolMessage>, ApiError> {
    let Query(FileParams { name, key }) = params?;
    let (tool, arguments) = match name {
        Some(name) => ("readToolFile", json!({"fileName": name})),
        None => ("listToolFiles", json!({})),
    };
    call(&app, &id, key.as_deref(), tool, &arguments).await
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
    let arguments = json!({"code": code});
    call(&app, &id, key.as_deref(), "executeToolCode", &arguments).await
}

/// Calls one of the tools of code mode, on behalf of a key if one is named.
async fn call(
    app: &App,
    id: &str,
    key: Option<&str>,
    tool: &str,
    arguments: &Value,
) -> Result<Json<ToolMessage>, ApiError> {
    let caller = match key {
        Some(key) => Caller::http().with_key(key),
        None => Caller::http(),
    };
    let arguments = Arguments::parse(&arguments.to_string());
    let arguments = arguments.map_err(|error| ApiError::bad_request(error.to_string()))?;
    let request = Arc::new(Request {
        id: Some(id.to_owned()),
        ..Request::default()
    });
    let call = ToolCall::new(tool, arguments).of(&request);
    let answer = app.gateway().call(&caller, call).await;
    Ok(Json(ToolMessage::new("", &answer)))
}
