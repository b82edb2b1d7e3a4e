//! `GET /v1/mcp/results/{handle}`: the whole of a result that was too large for a model.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use toolgate::Caller;
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::error::{ApiError, ErrorBody};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Params {
    /// Byte to begin at. Default 0.
    offset: Option<u64>,
}

/// A part of a result's text.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ResultPart {
    pub(crate) text: String,
    pub(crate) offset: usize,
    /// Where to go on; null at the end.
    pub(crate) next_offset: Option<usize>,
    pub(crate) total_bytes: usize,
}

/// Read on in a large result. Only who made the call can.
#[utoipa::path(get, path = "/v1/mcp/results/{handle}", tag = "tools",
    params(("handle" = String, Path, description = "`result_handle` of the tool message"), Params),
    responses((status = 200, body = ResultPart), (status = 404, body = ErrorBody)))]
pub(crate) async fn read(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    handle: Result<Path<String>, PathRejection>,
    params: Result<Query<Params>, QueryRejection>,
) -> Result<Json<ResultPart>, ApiError> {
    let (Path(handle), Query(params)) = (handle?, params?);
    let offset = params.offset.unwrap_or(0);
    let part = app.gateway().read_result(&caller, &handle, offset);
    let part = part.ok_or_else(|| {
        ApiError::not_found("no result is kept under this handle; call the tool again")
    })?;
    Ok(Json(ResultPart {
        text: part.text,
        offset: part.offset,
        next_offset: part.next,
        total_bytes: part.total,
    }))
}
