//! `/api/keys-required`: whether callers need a key. Once a key has existed, they do until the
//! administrator turns it off.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::http::App;
use crate::http::error::{ApiError, ErrorBody};
use crate::http::extract::ApiBytes;

/// Whether callers need a key.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct KeyRequirementView {
    /// Whether callers on the gateway's machine need a key; all others always do.
    pub(crate) required: bool,
    /// Whether any key is defined. While one is, keys are required.
    pub(crate) has_keys: bool,
}

/// A change of whether callers need a key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct KeyRequirementChange {
    required: bool,
}

/// Get whether callers need a key.
#[utoipa::path(get, path = "/api/keys-required", tag = "api", responses((status = 200, body = KeyRequirementView)))]
pub(crate) async fn get(State(app): State<App>) -> Json<KeyRequirementView> {
    Json(KeyRequirementView::new(&app))
}

/// Require keys of callers, or let callers on the gateway's machine do without. The latter fails while any
/// key is defined, and lasts until the next one is.
#[utoipa::path(put, path = "/api/keys-required", tag = "api", request_body = KeyRequirementChange,
    responses((status = 200, body = KeyRequirementView), (status = 400, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn put(
    State(app): State<App>,
    ApiBytes(body): ApiBytes,
) -> Result<Json<KeyRequirementView>, ApiError> {
    let KeyRequirementChange { required } = serde_json::from_slice(&body).map_err(|error| {
        ApiError::bad_request(format!("the body must be {{\"required\": false}}: {error}"))
    })?;
    if required {
        app.configuration().require_keys().await?;
    } else {
        app.configuration().make_keys_optional().await?;
    }
    Ok(Json(KeyRequirementView::new(&app)))
}

impl KeyRequirementView {
    fn new(app: &App) -> Self {
        let keys = app.gateway().keys();
        Self {
            required: keys.are_required(),
            has_keys: keys.has_any(),
        }
    }
}
