//! `/api/code`: runs scripts in code mode and serves the stub files that describe what they can call.

use axum::extract::State;
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::json;
use toolgate::scope::Filters;
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
/// This is no tool call: it leaves no audit record and does not count.
#[utoipa::path(get, path = "/api/code/files", tag = "api", params(FileParams),
    responses((status = 200, body = ToolMessage), (status = 400, body = ErrorBody)))]
pub(crate) async fn files(
    State(app): State<App>,
    ApiQuery(FileParams { name, key }): ApiQuery<FileParams>,
) -> Json<ToolMessage> {
    let (caller, filters) = (caller(key.as_deref()), Filters::default());
    let tools = app.gateway().tools();
    let result = match name {
        Some(name) => tools.read_code_file(&caller, &filters, &name),
        None => tools.list_code_files(&caller, &filters),
    };
    Json(match result {
        Ok(result) => ToolMessage::from_result("", &result),
        Err(error) => ToolMessage::new("", &Err(error)),
    })
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
    let arguments = Arguments::parse(&json!({"code": code}).to_string());
    let arguments = arguments.map_err(|error| ApiError::bad_request(error.to_string()))?;
    let call = ToolCall::new("executeToolCode", arguments);
    let call = call.with_request(&RequestContext::with_id(&id));
    let answer = app.gateway().call(&caller(key.as_deref()), call).await;
    Ok(Json(ToolMessage::new("", &answer)))
}

/// Returns the caller to act as.
fn caller(key: Option<&str>) -> Caller {
    match key {
        Some(key) => Caller::http().with_key(key),
        None => Caller::http(),
    }
}
