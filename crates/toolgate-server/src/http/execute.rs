//! `POST /v1/mcp/tool/execute`: runs one tool call that a model asked for.
//!
//! Everything that concerns the tool is answered with 200 and a tool message, so that it can go
//! back to the model; only a body that is no tool call is an error of the request.

use std::borrow::Cow;

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse as _, Response};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolgate::result::Block;
use toolgate::{Arguments, CallError, Caller, Outcome, ToolCall};
use utoipa::{IntoParams, ToSchema};

use super::App;
use super::error::{ApiError, ErrorBody};

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct Params {
    /// `chat` (default) or `responses`.
    format: Option<String>,
}

/// A tool call as Chat Completions writes it.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatToolCall)]
struct ChatCall<'a> {
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    function: Option<ChatFunction<'a>>,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
#[schema(as = ChatFunction)]
struct ChatFunction<'a> {
    #[serde(borrow, default)]
    #[schema(value_type = String)]
    name: Cow<'a, str>,
    /// A JSON object as a string; an object is accepted too.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    arguments: Option<&'a RawValue>,
}

/// A tool call as Responses writes it.
#[derive(Debug, Deserialize)]
struct ResponsesCall<'a> {
    #[serde(borrow, default)]
    call_id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

/// The tool's answer as Chat Completions takes it.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ToolMessage {
    /// Always `tool`.
    #[schema(value_type = String)]
    pub(crate) role: Cow<'static, str>,
    /// A string if all blocks are text, else an array of parts.
    pub(crate) content: Content,
    pub(crate) tool_call_id: String,
    /// True where the call failed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_error: bool,
    /// Where a fallback ran instead of the server that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) fallback: Option<Fallback>,
}

/// The server that ran a call, and the one that was asked for.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct Fallback {
    pub(crate) server: String,
    pub(crate) instead_of: String,
}

/// The tool's answer as Responses takes it.
#[derive(Debug, Serialize, ToSchema)]
struct FunctionCallOutput {
    #[serde(rename = "type")]
    kind: &'static str,
    call_id: String,
    output: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_error: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    fallback: Option<Fallback>,
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum Part {
    Text { text: String },
    ImageUrl { image_url: ImageUrl },
}

#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ImageUrl {
    /// A data URL.
    pub(crate) url: String,
}

/// Run one tool call.
#[utoipa::path(post, path = "/v1/mcp/tool/execute", tag = "tools", params(Params), request_body = ChatCall,
    responses((status = 200, body = ToolMessage), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody)))]
pub(crate) async fn execute(
    State(app): State<App>,
    params: Result<Query<Params>, QueryRejection>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let Query(params) = params?;
    let body = body?;
    match params.format.as_deref() {
        None | Some("chat") => {
            let call: ChatCall<'_> = read(&body)?;
            let function = call.function.unwrap_or_default();
            let id = call.id.unwrap_or_default().into_owned();
            let answer = run(&app, &function.name, function.arguments, headers).await?;
            Ok(Json(ToolMessage::new(&id, &answer)).into_response())
        }
        Some("responses") => {
            let call: ResponsesCall<'_> = read(&body)?;
            let id = call.call_id.unwrap_or_default().into_owned();
            let answer = run(&app, &call.name, call.arguments, headers).await?;
            Ok(Json(FunctionCallOutput::new(id, &answer)).into_response())
        }
        Some(_) => Err(ApiError::bad_request(
            "Invalid format value, must be 'chat' or 'responses'",
        )),
    }
}

/// Calls the tool; a failed call is an answer too.
async fn run(
    app: &App,
    name: &str,
    arguments: Option<&RawValue>,
    headers: HeaderMap,
) -> Result<Result<Outcome, CallError>, ApiError> {
    if name.is_empty() {
        return Err(ApiError::bad_request("Tool function name is required"));
    }
    let arguments = match parse(arguments) {
        Ok(arguments) => arguments,
        Err(error) => return Ok(Err(error)),
    };
    let call = ToolCall {
        name: name.to_owned(),
        arguments,
        headers,
    };
    Ok(app.gateway().call(&Caller::http(), call).await)
}

/// Arguments are a JSON object, or one in a string.
fn parse(raw: Option<&RawValue>) -> Result<Arguments, CallError> {
    let text = raw.map(RawValue::get).unwrap_or_default();
    if text.starts_with('"') {
        let inner: String = serde_json::from_str(text).unwrap_or_default();
        return Ok(Arguments::parse(&inner)?);
    }
    Ok(Arguments::parse(text)?)
}

/// Reads an object; serde alone would take an array for one too.
fn read<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, ApiError> {
    let invalid =
        |reason: &str| ApiError::bad_request(format!("Invalid request payload: {reason}"));
    if body.trim_ascii_start().first() != Some(&b'{') {
        return Err(invalid("send one tool call as a JSON object"));
    }
    serde_json::from_slice(body).map_err(|error| invalid(&error.to_string()))
}

impl ToolMessage {
    pub(crate) fn new(tool_call_id: &str, answer: &Result<Outcome, CallError>) -> Self {
        let (content, is_error) = match answer {
            Ok(outcome) => (
                Content::new(outcome.result.blocks()),
                outcome.result.is_error(),
            ),
            Err(error) => (Content::Text(error.to_string()), true),
        };
        Self {
            role: "tool".into(),
            content,
            tool_call_id: tool_call_id.to_owned(),
            is_error,
            fallback: fallback(answer),
        }
    }
}

impl FunctionCallOutput {
    fn new(call_id: String, answer: &Result<Outcome, CallError>) -> Self {
        let (output, is_error) = match answer {
            Ok(outcome) => (outcome.result.text(), outcome.result.is_error()),
            Err(error) => (error.to_string(), true),
        };
        Self {
            kind: "function_call_output",
            call_id,
            output,
            is_error,
            fallback: fallback(answer),
        }
    }
}

impl Content {
    fn new(blocks: Vec<Block<'_>>) -> Self {
        let only_text = blocks.iter().all(|block| matches!(block, Block::Text(_)));
        let parts: Vec<Part> = blocks.into_iter().map(Part::new).collect();
        if !only_text {
            return Self::Parts(parts);
        }
        let texts = parts.into_iter().map(|part| match part {
            Part::Text { text } => text,
            Part::ImageUrl { image_url } => image_url.url,
        });
        Self::Text(texts.collect::<Vec<_>>().join("\n"))
    }
}

impl Part {
    fn new(block: Block<'_>) -> Self {
        match block {
            Block::Text(text) => Self::Text {
                text: text.into_owned(),
            },
            Block::Image { mime_type, data } => Self::ImageUrl {
                image_url: ImageUrl {
                    url: format!("data:{mime_type};base64,{data}"),
                },
            },
            Block::Other(raw) => Self::Text {
                text: raw.get().to_owned(),
            },
        }
    }
}

fn fallback(answer: &Result<Outcome, CallError>) -> Option<Fallback> {
    let outcome = answer.as_ref().ok()?;
    Some(Fallback {
        server: outcome.tool.server.to_string(),
        instead_of: outcome.instead_of.as_ref()?.server.to_string(),
    })
}
