//! `GET /v1/mcp/results/{handle}`: the full text of a result that was truncated for the model.

use axum::extract::State;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use toolgate::Caller;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::error::{ApiError, ErrorBody};
use super::extract::{ApiPath, ApiQuery};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ResultParams {
    /// Byte offset to read from. Defaults to 0.
    offset: Option<u64>,
}

/// A chunk of a result's text.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ResultPart {
    pub(crate) text: String,
    pub(crate) offset: usize,
    /// Offset of the next chunk; null at the end.
    #[schema(required)]
    pub(crate) next_offset: Option<usize>,
    pub(crate) total_bytes: usize,
}

/// Read a chunk of a large result. Only the caller that made the tool call can read it.
#[utoipa::path(get, path = "/v1/mcp/results/{handle}", tag = "tools", operation_id = "read_result",
    params(("handle" = String, Path, description = "`result_handle` from the tool message"), ResultParams),
    responses((status = 200, body = ResultPart), (status = 404, body = ErrorBody)))]
pub(crate) async fn read_result(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    ApiPath(handle): ApiPath<String>,
    ApiQuery(params): ApiQuery<ResultParams>,
) -> Result<Json<ResultPart>, ApiError> {
    let offset = params.offset.unwrap_or(0);
    let part = app.gateway().tools().read_result(&caller, &handle, offset);
    let part = part.ok_or_else(|| {
        ApiError::not_found(
            "no result is stored under this handle, or it has expired; call the tool again",
        )
    })?;
    Ok(Json(ResultPart {
        text: part.text,
        offset: part.offset,
        next_offset: part.next,
        total_bytes: part.total,
    }))
}
