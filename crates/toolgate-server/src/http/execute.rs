//! `POST /v1/mcp/tool/execute`: runs tool calls that a model asked for, one or several.
//!
//! Everything that concerns the tool is answered with 200 and a tool message, so that it can go
//! back to the model; only a body that is no tool call is an error of the request.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, QueryRejection};
use axum::extract::{Query, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use futures_util::{StreamExt as _, TryStreamExt as _};
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use toolgate::call::BadArguments;
use toolgate::result::Block;
use toolgate::{Arguments, CallError, Caller, Outcome, Request, ToolCall};
use utoipa::{IntoParams, ToSchema};

use super::error::{ApiError, ErrorBody};
use super::request::RequestId;
use super::{App, request};

/// Calls of one array that run at once, and that it may have.
const AT_ONCE: usize = 8;
const MOST_CALLS: usize = 128;

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
    /// The conversation so far, shown to whoever is asked to approve the call.
    #[serde(borrow, default)]
    #[schema(value_type = Option<Vec<Object>>)]
    messages: Option<&'a RawValue>,
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
    #[serde(borrow, default)]
    messages: Option<&'a RawValue>,
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
    /// The approval that the call needs, or ran with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) approval: Option<ApprovalNote>,
    /// Under which the whole of a large result can be read for a while.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) result_handle: Option<String>,
}

/// An approval that a call needs, or ran with.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ApprovalNote {
    pub(crate) id: String,
    /// Until when it can be given and used; absent once it was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<String>,
    /// Whether the approver put other arguments in the place of the call's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) edited: bool,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    approval: Option<ApprovalNote>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_handle: Option<String>,
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

/// Run a tool call, or an array of them: in parallel, answered in order.
#[utoipa::path(post, path = "/v1/mcp/tool/execute", tag = "tools", params(Params), request_body = ChatCall,
    responses((status = 200, body = ToolMessage), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
        (status = 429, body = ErrorBody, description = "a limit of the caller's key")))]
pub(crate) async fn execute(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(RequestId(id)): Extension<RequestId>,
    params: Result<Query<Params>, QueryRejection>,
    headers: HeaderMap,
    body: Result<Bytes, BytesRejection>,
) -> Result<Response, ApiError> {
    let Query(params) = params?;
    let body = body?;
    let format = Format::named(params.format.as_deref())?;
    let (calls, many) = read(&body)?;
    let door = Door {
        app,
        caller,
        format,
        request: Request {
            id: Some(id),
            parent: request::parent(&headers),
            filters: request::filters(&headers)?,
            headers,
            ..Request::default()
        },
    };
    // All are read before the first one runs.
    let mut calls = calls
        .into_iter()
        .map(|raw| door.call(raw))
        .collect::<Result<Vec<_>, ApiError>>()?;
    if let Some((id, call)) = calls.pop_if(|_| !many) {
        let answer = door.run(id, call).await?;
        let refused = answer.outcome.as_ref().err().and_then(own_limit);
        return Ok(refused.unwrap_or_else(|| answer.into_response()));
    }
    let running = futures_util::stream::iter(calls).map(|(id, call)| door.run(id, call));
    let answers: Vec<Answer> = running.buffered(AT_ONCE).try_collect().await?;
    let answers: Result<Vec<Box<RawValue>>, ApiError> = answers.iter().map(Answer::json).collect();
    Ok(Json(answers?).into_response())
}

/// How calls are written.
#[derive(Clone, Copy, Debug)]
enum Format {
    Chat,
    Responses,
}

/// Where calls come in, and for whom.
struct Door {
    app: App,
    caller: Caller,
    format: Format,
    request: Request,
}

/// What came of a call, and how to write it.
struct Answer {
    id: String,
    format: Format,
    outcome: Result<Outcome, CallError>,
}

impl Format {
    fn named(name: Option<&str>) -> Result<Self, ApiError> {
        match name {
            None | Some("chat") => Ok(Self::Chat),
            Some("responses") => Ok(Self::Responses),
            Some(_) => Err(ApiError::bad_request(
                "Invalid format value, must be 'chat' or 'responses'",
            )),
        }
    }
}

impl Door {
    /// What concerns the request rather than the tool is an error of the request.
    async fn run(&self, id: String, call: ToolCall) -> Result<Answer, ApiError> {
        let outcome = self.app.gateway().call(&self.caller, call).await;
        match outcome {
            Err(error @ (CallError::KeyGone(_) | CallError::Filter(_) | CallError::Stopping)) => {
                Err(error.into())
            }
            outcome => Ok(Answer {
                id,
                format: self.format,
                outcome,
            }),
        }
    }

    /// The call, and the id that the model gave it.
    fn call(&self, raw: &RawValue) -> Result<(String, ToolCall), ApiError> {
        if !raw.get().starts_with('{') {
            return Err(invalid("a tool call is a JSON object"));
        }
        let read = |error: serde_json::Error| invalid(&error.to_string());
        let (id, name, arguments, conversation) = match self.format {
            Format::Chat => {
                let call: ChatCall<'_> = serde_json::from_str(raw.get()).map_err(read)?;
                let function = call.function.unwrap_or_default();
                (call.id, function.name, function.arguments, call.messages)
            }
            Format::Responses => {
                let call: ResponsesCall<'_> = serde_json::from_str(raw.get()).map_err(read)?;
                (call.call_id, call.name, call.arguments, call.messages)
            }
        };
        if name.is_empty() {
            return Err(ApiError::bad_request("Tool function name is required"));
        }
        let request = Request {
            conversation: conversation.map(|raw| Arc::from(raw.to_owned())),
            ..self.request.clone()
        };
        let call = ToolCall {
            name: name.into_owned(),
            server: None,
            id: id.as_deref().filter(|id| !id.is_empty()).map(str::to_owned),
            arguments: parse(arguments),
            request: Arc::new(request),
        };
        Ok((id.unwrap_or_default().into_owned(), call))
    }
}

impl Answer {
    fn into_response(self) -> Response {
        match self.format {
            Format::Chat => Json(ToolMessage::new(&self.id, &self.outcome)).into_response(),
            Format::Responses => {
                Json(FunctionCallOutput::new(self.id, &self.outcome)).into_response()
            }
        }
    }

    fn json(&self) -> Result<Box<RawValue>, ApiError> {
        let written = match self.format {
            Format::Chat => to_raw_value(&ToolMessage::new(&self.id, &self.outcome)),
            Format::Responses => {
                to_raw_value(&FunctionCallOutput::new(self.id.clone(), &self.outcome))
            }
        };
        written.map_err(|error| {
            let message = format!("the answer could not be written: {error}");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "answer", message)
        })
    }
}

/// A limit of the caller's own key is the caller's business, not the model's.
fn own_limit(error: &CallError) -> Option<Response> {
    let (_, retry_after) = error.key_limit()?;
    let status = StatusCode::TOO_MANY_REQUESTS;
    let mut response = ApiError::new(status, "rate_limited", error.to_string()).into_response();
    if let Some(after) = retry_after {
        let seconds = after.as_secs_f64().ceil().to_string();
        if let Ok(value) = seconds.parse() {
            response.headers_mut().insert(RETRY_AFTER, value);
        }
    }
    Some(response)
}

/// Arguments are a JSON object, or one in a string.
fn parse(raw: Option<&RawValue>) -> Result<Arguments, BadArguments> {
    let text = raw.map(RawValue::get).unwrap_or_default();
    if text.starts_with('"') {
        let inner: String =
            serde_json::from_str(text).map_err(|error| BadArguments::NotJson(error.to_string()))?;
        return Arguments::parse(&inner);
    }
    Arguments::parse(text)
}

/// The calls in a body, and whether they came as an array.
fn read(body: &[u8]) -> Result<(Vec<&RawValue>, bool), ApiError> {
    let read = |error: serde_json::Error| invalid(&error.to_string());
    match body.trim_ascii_start().first() {
        Some(b'{') => Ok((vec![serde_json::from_slice(body).map_err(read)?], false)),
        Some(b'[') => {
            let calls: Vec<&RawValue> = serde_json::from_slice(body).map_err(read)?;
            match calls.len() {
                0 => Err(invalid("the array has no tool calls")),
                1..=MOST_CALLS => Ok((calls, true)),
                _ => Err(invalid(&format!("at most {MOST_CALLS} calls at once"))),
            }
        }
        _ => Err(invalid(
            "send a tool call as a JSON object, or an array of them",
        )),
    }
}

fn invalid(reason: &str) -> ApiError {
    ApiError::bad_request(format!("Invalid request payload: {reason}"))
}

impl ToolMessage {
    /// Whether its text begins so.
    pub(crate) fn says(&self, beginning: &str) -> bool {
        matches!(&self.content, Content::Text(text) if text.starts_with(beginning))
    }

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
            approval: approval(answer),
            result_handle: handle(answer),
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
            approval: approval(answer),
            result_handle: handle(answer),
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

fn approval(answer: &Result<Outcome, CallError>) -> Option<ApprovalNote> {
    match answer {
        Ok(outcome) => outcome.approval.as_ref().map(|approved| ApprovalNote {
            id: approved.id.clone(),
            expires_at: None,
            edited: approved.edited,
        }),
        Err(error) => error.needed().map(|needed| ApprovalNote {
            id: needed.id.to_owned(),
            expires_at: Some(humantime::format_rfc3339_millis(needed.expires_at).to_string()),
            edited: false,
        }),
    }
}

fn handle(answer: &Result<Outcome, CallError>) -> Option<String> {
    answer.as_ref().ok()?.handle.clone()
}

fn fallback(answer: &Result<Outcome, CallError>) -> Option<Fallback> {
    let outcome = answer.as_ref().ok()?;
    Some(Fallback {
        server: outcome.tool.server.to_string(),
        instead_of: outcome.instead_of.as_ref()?.server.to_string(),
    })
}
