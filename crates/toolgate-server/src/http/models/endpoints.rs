//! Endpoints of OpenAI's API that are forwarded to the provider of the named model, with the keys, limits
//! and records of other model requests.

use axum::response::Response;
use toolgate::Dialect;
use toolgate::models::{Endpoint, Operation};

use super::IncomingModelRequest;

/// Create embeddings of texts.
#[utoipa::path(post, path = "/v1/embeddings", tag = "models", request_body = Object,
    responses((status = 200, description = "response in OpenAI's format"), (status = 404, description = "unknown model, or its provider has no such endpoint")))]
pub(crate) async fn embeddings(request: IncomingModelRequest) -> Response {
    forward(request, Endpoint::Embeddings).await
}

/// Create a text completion.
#[utoipa::path(post, path = "/v1/completions", tag = "models", request_body = Object,
    responses((status = 200, description = "response in OpenAI's format, or an event stream"), (status = 404, description = "unknown model, or its provider has no such endpoint")))]
pub(crate) async fn completions(request: IncomingModelRequest) -> Response {
    forward(request, Endpoint::Completions).await
}

/// Classify harmful content.
#[utoipa::path(post, path = "/v1/moderations", tag = "models", request_body = Object,
    responses((status = 200, description = "response in OpenAI's format"), (status = 404, description = "unknown model, or its provider has no such endpoint")))]
pub(crate) async fn moderations(request: IncomingModelRequest) -> Response {
    forward(request, Endpoint::Moderations).await
}

/// Rank documents by relevance.
#[utoipa::path(post, path = "/v1/rerank", tag = "models", request_body = Object,
    responses((status = 200, description = "response of the provider"), (status = 404, description = "unknown model, or its provider has no such endpoint")))]
pub(crate) async fn rerank(request: IncomingModelRequest) -> Response {
    forward(request, Endpoint::Rerank).await
}

/// Create images from a text.
#[utoipa::path(post, path = "/v1/images/generations", tag = "models", request_body = Object,
    responses((status = 200, description = "response in OpenAI's format, or an event stream"), (status = 404, description = "unknown model, or its provider has no such endpoint")))]
pub(crate) async fn image_generations(request: IncomingModelRequest) -> Response {
    forward(request, Endpoint::ImageGenerations).await
}

/// Change images.
#[utoipa::path(post, path = "/v1/images/edits", tag = "models", request_body(content = Object, content_type = "multipart/form-data"),
    responses((status = 200, description = "response in OpenAI's format, or an event stream"), (status = 404, description = "unknown model, or its provider has no such endpoint")))]
pub(crate) async fn image_edits(request: IncomingModelRequest) -> Response {
    forward(request, Endpoint::ImageEdits).await
}

/// Create variations of an image.
#[utoipa::path(post, path = "/v1/images/variations", tag = "models", request_body(content = Object, content_type = "multipart/form-data"),
    responses((status = 200, description = "response in OpenAI's format"), (status = 404, description = "unknown model, or its provider has no such endpoint")))]
pub(crate) async fn image_variations(request: IncomingModelRequest) -> Response {
    forward(request, Endpoint::ImageVariations).await
}

/// Create speech from a text.
#[utoipa::path(post, path = "/v1/audio/speech", tag = "models", request_body = Object,
    responses((status = 200, description = "audio, or an event stream"), (status = 404, description = "unknown model, or its provider has no such endpoint")))]
pub(crate) async fn speech(request: IncomingModelRequest) -> Response {
    forward(request, Endpoint::Speech).await
}

/// Transcribe speech.
#[utoipa::path(post, path = "/v1/audio/transcriptions", tag = "models", request_body(content = Object, content_type = "multipart/form-data"),
    responses((status = 200, description = "response in OpenAI's format, or an event stream"), (status = 404, description = "unknown model, or its provider has no such endpoint")))]
pub(crate) async fn transcriptions(request: IncomingModelRequest) -> Response {
    forward(request, Endpoint::Transcriptions).await
}

/// Translate speech to English text.
#[utoipa::path(post, path = "/v1/audio/translations", tag = "models", request_body(content = Object, content_type = "multipart/form-data"),
    responses((status = 200, description = "response in OpenAI's format"), (status = 404, description = "unknown model, or its provider has no such endpoint")))]
pub(crate) async fn translations(request: IncomingModelRequest) -> Response {
    forward(request, Endpoint::Translations).await
}

async fn forward(request: IncomingModelRequest, endpoint: Endpoint) -> Response {
    request
        .send(Dialect::Chat, Operation::Forward(endpoint))
        .await
}
