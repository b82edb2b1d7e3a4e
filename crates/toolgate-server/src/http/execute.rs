//! `POST /v1/mcp/tool/execute`: executes one or more tool calls requested by a model.
//!
//! Failures of a tool are returned with 200 as a tool message, so that the caller can pass them on to
//! the model. Only errors of the request itself, such as a malformed body, get an error status.

mod message;

use std::borrow::Cow;
use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use toolgate::call::ArgumentsError;
use toolgate::concurrent::run_in_order;
use toolgate::{Arguments, CallError, Caller, Outcome, RequestContext, ToolCall};
use utoipa::{IntoParams, ToSchema};

use message::FunctionCallOutput;
pub(crate) use message::{MessageContent, MessagePart, ToolMessage};

use super::error::{ApiError, ErrorBody};
use super::extract::{ApiBytes, ApiQuery};
use super::request::RequestId;
use super::{App, request};

/// Calls of one array that run concurrently.
const MAX_CONCURRENT_CALLS: usize = 8;
/// Maximum number of calls in one array.
const MAX_CALLS: usize = 128;

#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExecuteParams {
    /// Format of calls and results: `chat` (default) or `responses`.
    format: Option<String>,
}

/// A tool call in the Chat Completions format.
#[derive(Debug, Deserialize, ToSchema)]
#[schema(as = ChatToolCall)]
struct ChatCall<'a> {
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    function: Option<ChatFunction<'a>>,
    /// Conversation so far, shown to the approver if the call needs approval.
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
    /// JSON object encoded as a string; a plain object is accepted too.
    #[serde(borrow, default)]
    #[schema(value_type = Option<String>)]
    arguments: Option<&'a RawValue>,
}

/// A tool call in the Responses format.
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

/// Execute a tool call, or an array of them in parallel; results are returned in the order of the calls.
/// All calls of an array count against the rate limit of the caller's key before the first one runs.
#[utoipa::path(post, path = "/v1/mcp/tool/execute", tag = "tools", params(ExecuteParams), request_body = ChatCall,
    responses((status = 200, body = ToolMessage), (status = 400, body = ErrorBody), (status = 401, body = ErrorBody),
        (status = 429, body = ErrorBody, description = "rate limit or budget of the caller's key exceeded; nothing of an array was executed")))]
pub(crate) async fn execute(
    State(app): State<App>,
    Extension(caller): Extension<Caller>,
    Extension(RequestId(id)): Extension<RequestId>,
    ApiQuery(params): ApiQuery<ExecuteParams>,
    headers: HeaderMap,
    ApiBytes(body): ApiBytes,
) -> Result<Response, ApiError> {
    let format = CallFormat::parse(params.format.as_deref())?;
    let (calls, is_array) = parse_calls(&body)?;
    let context = ExecuteContext {
        app,
        caller,
        format,
        request: RequestContext {
            id: Some(id),
            parent: request::parent_id(&headers),
            filters: request::parse_filters(&headers)?,
            headers,
            ..RequestContext::default()
        },
    };
    // Parse all calls before executing the first, so that a malformed one executes nothing.
    let mut calls = calls
        .into_iter()
        .map(|raw| context.parse_call(raw))
        .collect::<Result<Vec<_>, ApiError>>()?;
    // What cannot be recorded is refused as a whole, before any of it runs.
    context.app.gateway().check_writable()?;
    if let Some((id, call)) = calls.pop_if(|_| !is_array) {
        return match context.run(id, call).await? {
            // The caller has to handle limits of its key and a failing store, not the model.
            CallResponse {
                outcome: Err(error),
                ..
            } if error.key_limit().is_some() || error.is_unrecorded() => Err(error.into()),
            response => Ok(context.with_warning(response.into_response())),
        };
    }
    let calls = context.admit_array(calls)?;
    let running = calls.into_iter().map(|(id, call)| context.run(id, call));
    let running = running.collect();
    let responses = run_in_order(running, MAX_CONCURRENT_CALLS).await;
    let responses: Result<Vec<Box<RawValue>>, ApiError> = responses
        .into_iter()
        .map(|response| response?.to_json())
        .collect();
    Ok(context.with_warning(Json(responses?).into_response()))
}

/// Format of calls and results.
#[derive(Clone, Copy, Debug)]
enum CallFormat {
    Chat,
    Responses,
}

/// Context shared by the calls of one request.
struct ExecuteContext {
    app: App,
    caller: Caller,
    format: CallFormat,
    request: RequestContext,
}

/// The outcome of a call and the format to write it in.
struct CallResponse {
    id: String,
    format: CallFormat,
    outcome: Result<Outcome, CallError>,
}

impl CallFormat {
    fn parse(name: Option<&str>) -> Result<Self, ApiError> {
        match name {
            None | Some("chat") => Ok(Self::Chat),
            Some("responses") => Ok(Self::Responses),
            Some(_) => Err(ApiError::bad_request(
                "Invalid format value, must be 'chat' or 'responses'",
            )),
        }
    }
}

impl ExecuteContext {
    /// Executes a call. Errors of the request rather than of the tool are returned as `ApiError`.
    async fn run(&self, id: String, call: ToolCall) -> Result<CallResponse, ApiError> {
        let outcome = self.app.gateway().call(&self.caller, call).await;
        match outcome {
            Err(
                error @ (CallError::InvalidKey(_) | CallError::Filter(_) | CallError::Stopping),
            ) => Err(error.into()),
            outcome => Ok(CallResponse {
                id,
                format: self.format,
                outcome,
            }),
        }
    }

    /// Adds a warning about filters that match nothing.
    fn with_warning(&self, mut response: Response) -> Response {
        let filters = &self.request.filters;
        request::warn_of_unmatched_filters(&self.app, &self.caller, filters, &mut response);
        response
    }

    /// Counts an array against the rate limit of the caller's key, before any of its calls runs. The
    /// array is refused as a whole if the limit does not suffice for it.
    fn admit_array(
        &self,
        mut calls: Vec<(String, ToolCall)>,
    ) -> Result<Vec<(String, ToolCall)>, ApiError> {
        let keys = self.app.gateway().keys();
        let admission = keys.admit_calls(&self.caller, calls.len())?;
        for (_, call) in &mut calls {
            // Each call has a context of its own, so nothing is copied.
            Arc::make_mut(&mut call.request).rate_admission = Some(admission.clone());
        }
        Ok(calls)
    }

    /// Parses a call; returns it with the id that the model assigned.
    fn parse_call(&self, raw: &RawValue) -> Result<(String, ToolCall), ApiError> {
        if !raw.get().starts_with('{') {
            return Err(invalid_payload("a tool call must be a JSON object"));
        }
        let invalid_json = |error: serde_json::Error| invalid_payload(&error.to_string());
        let (id, name, arguments, conversation) = match self.format {
            CallFormat::Chat => {
                let call: ChatCall<'_> = serde_json::from_str(raw.get()).map_err(invalid_json)?;
                let function = call.function.unwrap_or_default();
                (call.id, function.name, function.arguments, call.messages)
            }
            CallFormat::Responses => {
                let call: ResponsesCall<'_> =
                    serde_json::from_str(raw.get()).map_err(invalid_json)?;
                (call.call_id, call.name, call.arguments, call.messages)
            }
        };
        if name.is_empty() {
            return Err(ApiError::bad_request("Tool function name is required"));
        }
        let request = RequestContext {
            conversation: conversation.map(|raw| Arc::from(raw.to_owned())),
            ..self.request.clone()
        };
        let call = ToolCall {
            name: name.into_owned(),
            server: None,
            id: id.as_deref().filter(|id| !id.is_empty()).map(str::to_owned),
            arguments: parse_arguments(arguments),
            request: Arc::new(request),
        };
        Ok((id.unwrap_or_default().into_owned(), call))
    }
}

impl CallResponse {
    fn into_response(self) -> Response {
        match self.format {
            CallFormat::Chat => Json(ToolMessage::new(&self.id, &self.outcome)).into_response(),
            CallFormat::Responses => {
                Json(FunctionCallOutput::new(self.id, &self.outcome)).into_response()
            }
        }
    }

    fn to_json(&self) -> Result<Box<RawValue>, ApiError> {
        let json = match self.format {
            CallFormat::Chat => to_raw_value(&ToolMessage::new(&self.id, &self.outcome)),
            CallFormat::Responses => {
                to_raw_value(&FunctionCallOutput::new(self.id.clone(), &self.outcome))
            }
        };
        json.map_err(|error| {
            let message = format!("could not serialize the result: {error}");
            ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "answer", message)
        })
    }
}

/// Parses arguments: a JSON object, either plain or encoded as a string.
fn parse_arguments(raw: Option<&RawValue>) -> Result<Arguments, ArgumentsError> {
    let text = raw.map(RawValue::get).unwrap_or_default();
    if text.starts_with('"') {
        let inner: String = serde_json::from_str(text)
            .map_err(|error| ArgumentsError::NotJson(error.to_string()))?;
        return Arguments::parse(&inner);
    }
    Arguments::parse(text)
}

/// Splits a body into calls; also returns whether it was an array.
fn parse_calls(body: &[u8]) -> Result<(Vec<&RawValue>, bool), ApiError> {
    let invalid_json = |error: serde_json::Error| invalid_payload(&error.to_string());
    match body.trim_ascii_start().first() {
        Some(b'{') => Ok((
            vec![serde_json::from_slice(body).map_err(invalid_json)?],
            false,
        )),
        Some(b'[') => {
            let calls: Vec<&RawValue> = serde_json::from_slice(body).map_err(invalid_json)?;
            match calls.len() {
                0 => Err(invalid_payload("the array contains no tool calls")),
                1..=MAX_CALLS => Ok((calls, true)),
                _ => Err(invalid_payload(&format!(
                    "an array can have at most {MAX_CALLS} tool calls"
                ))),
            }
        }
        _ => Err(invalid_payload(
            "send a tool call as a JSON object, or an array of them",
        )),
    }
}

fn invalid_payload(reason: &str) -> ApiError {
    ApiError::bad_request(format!("Invalid request payload: {reason}"))
}
