//! `/api/code`: runs scripts in code mode and serves the stub files that describe what they can call.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate::{Arguments, Caller, RequestContext, ToolCall};
use utoipa::{IntoParams, ToSchema};

use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::execute::ToolMessage;
use crate::http::extract::{ApiBytes, ApiQuery};
use crate::http::request::RequestId;

/// A script and the caller it runs as.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CodeRun {
    /// Starlark source; assign the output to `result`.
    code: String,
    /// Name of a caller key to act as. Defaults to a caller without a key.
    key: Option<String>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FileParams {
    /// File name, such as `servers/github.pyi`. Without it, all files are listed.
    name: Option<String>,
    /// Name of a caller key to act as. Defaults to a caller without a key.
    key: Option<String>,
}

/// List the code mode stub files or read one, as `listToolFiles` and `readToolFile` return them to models.
#[utoipa::path(get, path = "/api/code/files", tag = "api", params(FileParams),
    responses((status = 200, body = ToolMessage), (status = 400, body = ErrorBody)))]
pub(crate) async fn files(
    State(app): State<App>,
    Extension(RequestId(id)): Extension<RequestId>,
    ApiQuery(FileParams { name, key }): ApiQuery<FileParams>,
) -> Result<Json<ToolMessage>, ApiError> {
    let (tool, arguments) = match name {
        Some(name) => ("readToolFile", json!({"fileName": name})),
        None => ("listToolFiles", json!({})),
    };
    call_code_tool(&app, &id, key.as_deref(), tool, &arguments).await
}

/// Run a script in code mode, under the same limits and rules as for models.
#[utoipa::path(post, path = "/api/code/run", tag = "api", request_body = CodeRun,
    responses((status = 200, body = ToolMessage), (status = 400, body = ErrorBody)))]
pub(crate) async fn run(
    State(app): State<App>,
    Extension(RequestId(id)): Extension<RequestId>,
    ApiBytes(body): ApiBytes,
) -> Result<Json<ToolMessage>, ApiError> {
    let CodeRun { code, key } = serde_json::from_slice(&body).map_err(|error| {
        ApiError::bad_request(format!(
            "the body must be {{\"code\": \"result = …\"}}: {error}"
        ))
    })?;
    let arguments = json!({"code": code});
    call_code_tool(&app, &id, key.as_deref(), "executeToolCode", &arguments).await
}

/// Calls a code mode tool, as the given key if any.
async fn call_code_tool(
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
    let request = Arc::new(RequestContext {
        id: Some(id.to_owned()),
        ..RequestContext::default()
    });
    let call = ToolCall::new(tool, arguments).with_request(&request);
    let answer = app.gateway().call(&caller, call).await;
    Ok(Json(ToolMessage::new("", &answer)))
}
