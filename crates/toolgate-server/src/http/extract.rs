//! Extractors whose rejection is an [`ApiError`], so that handlers take plain values and clients get
//! every error in the same format.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use toolgate::Hold;

use super::connections::Connection;
use super::error::ApiError;

/// The parameters in the path.
#[derive(Debug)]
pub(crate) struct ApiPath<T>(pub(crate) T);

/// The query parameters.
#[derive(Debug)]
pub(crate) struct ApiQuery<T>(pub(crate) T);

/// The body as bytes.
#[derive(Debug)]
pub(crate) struct ApiBytes(pub(crate) Bytes);

/// The body of a message whose processing may outlive the request.
#[derive(Debug)]
pub(crate) struct ApiMessage {
    pub(crate) body: Bytes,
    /// The memory of a large body, to be held while the message is processed.
    pub(crate) memory: Option<Arc<Hold>>,
}

/// The body, parsed as JSON regardless of its content type.
#[derive(Debug)]
pub(crate) struct ApiJson<T>(pub(crate) T);

/// The body, which must be a JSON object. For configuration entries, which are validated as a whole later.
#[derive(Debug)]
pub(crate) struct ApiObject(pub(crate) Map<String, Value>);

impl<T, S> FromRequestParts<S> for ApiPath<T>
where
    T: DeserializeOwned + Send,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Path(value) = Path::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

impl<T, S> FromRequestParts<S> for ApiQuery<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let Query(value) = Query::from_request_parts(parts, state).await?;
        Ok(Self(value))
    }
}

impl<S: Send + Sync> FromRequest<S> for ApiBytes {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Ok(Self(Bytes::from_request(request, state).await?))
    }
}

impl<S: Send + Sync> FromRequest<S> for ApiMessage {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let connection = request.extensions().get::<Arc<Connection>>().cloned();
        let body = Bytes::from_request(request, state).await?;
        Ok(Self {
            body,
            memory: connection.and_then(|connection| connection.body()),
        })
    }
}

impl<T, S> FromRequest<S> for ApiJson<T>
where
    T: DeserializeOwned,
    S: Send + Sync,
{
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let body = Bytes::from_request(request, state).await?;
        let parsed = serde_json::from_slice(&body);
        let parsed = parsed
            .map_err(|error| ApiError::bad_request(format!("Invalid request payload: {error}")));
        parsed.map(Self)
    }
}

impl<S: Send + Sync> FromRequest<S> for ApiObject {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let body = Bytes::from_request(request, state).await?;
        let parsed = serde_json::from_slice(&body);
        let parsed = parsed.map_err(|error| {
            ApiError::bad_request(format!("the body must be a JSON object: {error}"))
        });
        parsed.map(Self)
    }
}
