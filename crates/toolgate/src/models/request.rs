//! Requests to models and their responses, as callers send and receive them.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use toolgate_core::config::Dialect;
use toolgate_llm::endpoint::Endpoint;

use super::ModelError;
use crate::call::RequestContext;

/// A model request as received from a caller.
#[derive(Debug)]
pub struct ModelRequest {
    /// API in which the body is written.
    pub dialect: Dialect,
    /// Operation requested.
    pub operation: Operation,
    /// The body, byte for byte.
    pub body: Bytes,
    /// Query string of the caller's URL, forwarded to a provider of the same dialect.
    pub query: Option<String>,
    /// Request id, filters and headers.
    pub request: Arc<RequestContext>,
}

/// Operation requested from a model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Operation {
    /// Generate a response.
    #[default]
    Complete,
    /// Count the tokens of a request. They are estimated if the provider's dialect is another one.
    CountTokens,
    /// Forward the request to another endpoint of OpenAI's API. The dialect must be that of Chat
    /// Completions.
    Forward(Endpoint),
    /// Read or change a response that the provider has stored.
    StoredResponse,
}

impl Operation {
    /// Returns whether providers charge nothing for it.
    pub(super) fn is_free(self) -> bool {
        match self {
            Self::Complete => false,
            Self::CountTokens | Self::StoredResponse => true,
            Self::Forward(endpoint) => endpoint.is_free(),
        }
    }
}

/// Response to a model request.
pub struct ModelResponse {
    /// HTTP status.
    pub status: StatusCode,
    /// Headers for the caller.
    pub headers: HeaderMap,
    /// The body.
    pub body: ResponseBody,
}

/// Body of a [`ModelResponse`].
pub enum ResponseBody {
    /// A complete body.
    Whole(Bytes),
    /// Server-sent events; an interrupted provider stream ends with an error event.
    Stream(BoxStream<'static, Bytes>),
    /// Media, or events of another endpoint; ends with an error if the provider cuts it off.
    Chunks(ResponseChunks),
}

/// Chunks of a response.
pub type ResponseChunks = BoxStream<'static, Result<Bytes, ModelError>>;

impl ModelRequest {
    /// Creates a completion request in the given dialect.
    pub fn new(dialect: Dialect, body: &Value) -> Self {
        Self {
            dialect,
            operation: Operation::Complete,
            body: body.to_string().into(),
            query: None,
            request: Arc::default(),
        }
    }

    /// Sets the request context: id, filters and headers.
    #[must_use]
    pub fn with_request(self, request: &Arc<RequestContext>) -> Self {
        Self {
            request: Arc::clone(request),
            ..self
        }
    }
}

impl ModelResponse {
    /// Collects the whole body; of a stream, all its events. A body that the provider cuts off ends
    /// there.
    pub async fn bytes(self) -> Bytes {
        match self.body {
            ResponseBody::Whole(bytes) => bytes,
            ResponseBody::Stream(mut chunks) => {
                let mut body = Vec::new();
                while let Some(chunk) = chunks.next().await {
                    body.extend_from_slice(&chunk);
                }
                body.into()
            }
            ResponseBody::Chunks(mut chunks) => {
                let mut body = Vec::new();
                while let Some(Ok(chunk)) = chunks.next().await {
                    body.extend_from_slice(&chunk);
                }
                body.into()
            }
        }
    }
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Whole(_) => "Whole",
            Self::Stream(_) => "Stream",
            Self::Chunks(_) => "Chunks",
        })
    }
}

impl fmt::Debug for ModelResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ModelResponse")
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}
