//! `/api`: what an administrator reads and changes.

pub(crate) mod changes;
pub(crate) mod clients;
pub(crate) mod page;
pub(crate) mod stats;
pub(crate) mod tools;

use axum::Json;

/// This document.
#[utoipa::path(get, path = "/api/openapi.json", tag = "api", responses((status = 200, description = "OpenAPI 3.1")))]
pub(crate) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(super::router::openapi())
}
