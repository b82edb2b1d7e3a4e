//! The methods that clients may use, parsed once with their parameters.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_mcp::client_handler::LogLevel;
use toolgate_mcp::handshake::{Era, LATEST_LEGACY_VERSION, LEGACY_VERSIONS};
use toolgate_mcp::jsonrpc::{self, INVALID_PARAMS, RpcError};

use super::client_capabilities::{ClientCapabilities, MAX_CAPABILITIES_BYTES};
use super::era_adapter::Caching;
use super::tasks::TaskWish;
use crate::call::{Arguments, ArgumentsError};

pub(super) const INITIALIZE: &str = "initialize";
pub(super) const DISCOVER: &str = "server/discover";
pub(super) const LISTEN: &str = "subscriptions/listen";

/// A request's method with its parameters. It owns them, because it outlives the message.
#[derive(Debug)]
pub(super) enum Method {
    Initialize(InitializeRequest),
    Ping,
    Discover,
    SetLogLevel(LogLevel),
    ListTools { cursor: Option<String> },
    CallTool(ToolCallParams),
    ListResources { cursor: Option<String> },
    ListTemplates { cursor: Option<String> },
    ReadResource { uri: String },
    Subscribe { uri: String },
    Unsubscribe { uri: String },
    Listen(RequestedNotifications),
    ListPrompts { cursor: Option<String> },
    GetPrompt(PromptParams),
    Complete(CompleteParams),
    GetTask { id: String },
    UpdateTask(UpdateTaskParams),
    CancelTask { id: String },
    ListTasks { cursor: Option<String> },
    TaskResult { id: String },
}

/// A notification from a client that the gateway acts on.
#[derive(Debug)]
pub(super) enum ClientNotification<'a> {
    Initialized,
    Cancelled { request_id: &'a RawValue },
    RootsChanged,
}

/// The parameters of a client's `initialize`.
#[derive(Clone, Debug)]
pub(super) struct InitializeRequest {
    /// The negotiated protocol version.
    pub(super) version: &'static str,
    pub(super) capabilities: ClientCapabilities,
}

#[derive(Debug)]
pub(super) struct ToolCallParams {
    pub(super) name: String,
    /// Invalid arguments are kept, because such a call is recorded as an attempt too.
    pub(super) arguments: Result<Arguments, ArgumentsError>,
    /// What a legacy client asks for that wants the call as a task.
    pub(super) task: Option<TaskWish>,
}

/// A modern client's answers to the questions of a task.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct UpdateTaskParams {
    pub(super) task_id: String,
    pub(super) input_responses: Box<RawValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PromptParams {
    pub(super) name: String,
    #[serde(default)]
    pub(super) arguments: Option<Box<RawValue>>,
}

#[derive(Debug, Deserialize)]
pub(super) struct CompleteParams {
    #[serde(rename = "ref")]
    pub(super) reference: Box<RawValue>,
    pub(super) argument: Box<RawValue>,
    #[serde(default)]
    pub(super) context: Option<Box<RawValue>>,
}

/// Notifications requested by a modern client.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct RequestedNotifications {
    pub(super) tools_list_changed: bool,
    pub(super) prompts_list_changed: bool,
    pub(super) resources_list_changed: bool,
    pub(super) resource_subscriptions: Vec<String>,
    pub(super) task_ids: Vec<String>,
}

#[derive(Deserialize)]
struct RawCallParams<'a> {
    #[serde(borrow)]
    name: Cow<'a, str>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    task: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskParams {
    task_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct InitializeParams {
    #[serde(default)]
    protocol_version: String,
    #[serde(default)]
    capabilities: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
struct ListParams {
    #[serde(default)]
    cursor: Option<String>,
}

#[derive(Deserialize)]
struct ResourceParams {
    uri: String,
}

#[derive(Deserialize)]
struct LogLevelParams {
    level: LogLevel,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ListenParams {
    notifications: RequestedNotifications,
}

impl Method {
    /// Parses a request of a client of one era. Absent parameters count as empty.
    pub(super) fn parse(name: &str, era: Era, params: Option<&RawValue>) -> Result<Self, RpcError> {
        let list = || parse_params(params).map(|ListParams { cursor }| cursor);
        let uri = || parse_params(params).map(|ResourceParams { uri }| uri);
        let task = || parse_params(params).map(|TaskParams { task_id }| task_id);
        Ok(match (name, era) {
            ("tools/call", _) => Self::CallTool(ToolCallParams::parse(params, era)?),
            ("tools/list", _) => Self::ListTools { cursor: list()? },
            ("resources/list", _) => Self::ListResources { cursor: list()? },
            ("resources/templates/list", _) => Self::ListTemplates { cursor: list()? },
            ("resources/read", _) => Self::ReadResource { uri: uri()? },
            ("prompts/list", _) => Self::ListPrompts { cursor: list()? },
            ("prompts/get", _) => Self::GetPrompt(parse_params(params)?),
            ("completion/complete", _) => Self::Complete(parse_params(params)?),
            (INITIALIZE, Era::Legacy) => Self::Initialize(InitializeRequest::parse(params)?),
            ("ping", Era::Legacy) => Self::Ping,
            ("logging/setLevel", Era::Legacy) => {
                let LogLevelParams { level } = parse_params(params)?;
                Self::SetLogLevel(level)
            }
            ("resources/subscribe", Era::Legacy) => Self::Subscribe { uri: uri()? },
            ("resources/unsubscribe", Era::Legacy) => Self::Unsubscribe { uri: uri()? },
            ("tasks/get", _) => Self::GetTask { id: task()? },
            ("tasks/cancel", _) => Self::CancelTask { id: task()? },
            ("tasks/list", Era::Legacy) => Self::ListTasks { cursor: list()? },
            ("tasks/result", Era::Legacy) => Self::TaskResult { id: task()? },
            ("tasks/update", Era::Modern) => Self::UpdateTask(parse_params(params)?),
            (DISCOVER, Era::Modern) => Self::Discover,
            (LISTEN, Era::Modern) => {
                let ListenParams { notifications } = parse_params(params)?;
                Self::Listen(notifications)
            }
            _ => return Err(RpcError::method_not_found(name)),
        })
    }

    /// Returns the name or URI that the header `Mcp-Name` repeats.
    pub(super) fn header_name(&self) -> Option<&str> {
        match self {
            Self::CallTool(ToolCallParams { name, .. })
            | Self::GetPrompt(PromptParams { name, .. }) => Some(name),
            Self::ReadResource { uri } => Some(uri),
            Self::GetTask { id } | Self::CancelTask { id } => Some(id),
            Self::UpdateTask(UpdateTaskParams { task_id, .. }) => Some(task_id),
            _ => None,
        }
    }

    /// Returns whether only modern clients may send the request that declare the tasks extension.
    pub(super) fn needs_tasks(&self) -> bool {
        match self {
            Self::GetTask { .. } | Self::CancelTask { .. } | Self::UpdateTask(_) => true,
            Self::Listen(requested) => !requested.task_ids.is_empty(),
            _ => false,
        }
    }

    /// Returns what identifies a request during which a server may ask the client; `None` for others.
    pub(super) fn digest(&self) -> Option<String> {
        match self {
            Self::CallTool(ToolCallParams {
                name, arguments, ..
            }) => {
                // Invalid arguments are refused before a server could ask.
                let arguments = arguments.as_ref().ok()?.digest();
                Some(format!("tools/call\n{name}\n{arguments}"))
            }
            Self::GetPrompt(PromptParams { name, arguments }) => {
                let arguments = arguments.as_ref().map_or("", |arguments| arguments.get());
                Some(format!("prompts/get\n{name}\n{arguments}"))
            }
            Self::ReadResource { uri } => Some(format!("resources/read\n{uri}")),
            _ => None,
        }
    }

    /// Returns whether the result is a list of what servers offer.
    pub(super) fn is_list(&self) -> bool {
        matches!(
            self,
            Self::ListTools { .. }
                | Self::ListResources { .. }
                | Self::ListTemplates { .. }
                | Self::ListPrompts { .. }
        )
    }

    /// Returns how modern clients may cache the result.
    pub(super) fn caching(&self) -> Caching {
        match self {
            Self::Discover
            | Self::ListTools { .. }
            | Self::ListResources { .. }
            | Self::ListTemplates { .. }
            | Self::ListPrompts { .. }
            | Self::ReadResource { .. } => Caching::Private,
            _ => Caching::None,
        }
    }
}

impl<'a> ClientNotification<'a> {
    pub(super) const ROOTS_CHANGED: &'static str = "notifications/roots/list_changed";

    /// Parses a notification; `None` if the gateway does not act on it.
    pub(super) fn parse(method: &str, params: Option<&'a RawValue>) -> Option<Self> {
        match method {
            "notifications/initialized" => Some(Self::Initialized),
            "notifications/cancelled" => {
                let request_id = jsonrpc::cancelled_request_id(params)?;
                Some(Self::Cancelled { request_id })
            }
            Self::ROOTS_CHANGED => Some(Self::RootsChanged),
            _ => None,
        }
    }
}

impl InitializeRequest {
    /// An unknown version is answered with the latest legacy version.
    fn parse(params: Option<&RawValue>) -> Result<Self, RpcError> {
        if params.is_none() {
            return Err(RpcError::new(INVALID_PARAMS, "`params` is missing"));
        }
        let params: InitializeParams = parse_params(params)?;
        let known = LEGACY_VERSIONS
            .into_iter()
            .find(|known| *known == params.protocol_version);
        let capabilities = params.capabilities.as_ref().map_or("{}", |raw| raw.get());
        if capabilities.len() > MAX_CAPABILITIES_BYTES {
            let message = format!(
                "`capabilities` has {} bytes; the maximum is {MAX_CAPABILITIES_BYTES}",
                capabilities.len()
            );
            return Err(RpcError::new(INVALID_PARAMS, message));
        }
        // Names and texts are copied, because they may contain escapes.
        let _: HashMap<String, &RawValue> = serde_json::from_str(capabilities)
            .map_err(|error| RpcError::new(INVALID_PARAMS, format!("`capabilities`: {error}")))?;
        Ok(Self {
            version: known.unwrap_or(LATEST_LEGACY_VERSION),
            capabilities: ClientCapabilities::parse(capabilities, Era::Legacy),
        })
    }
}

impl ToolCallParams {
    fn parse(params: Option<&RawValue>, era: Era) -> Result<Self, RpcError> {
        let RawCallParams {
            name,
            arguments,
            task,
        } = parse_params(params)?;
        // Modern clients have no say in it.
        let task = task.filter(|_| era == Era::Legacy);
        Ok(Self {
            name: name.into_owned(),
            arguments: Arguments::parse(arguments.map_or("", RawValue::get)),
            task: task.map(TaskWish::parse).transpose()?,
        })
    }
}

fn parse_params<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, RpcError> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|error| RpcError::new(INVALID_PARAMS, error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn methods_belong_to_their_era_and_parse_their_parameters() {
        let parse = |name, era, params: &str| match Method::parse(name, era, Some(&raw(params))) {
            Ok(method) => Ok(method.header_name().map(str::to_owned)),
            Err(error) => Err(error.code),
        };
        for (name, era, params, expected) in [
            ("tools/call", Era::Modern, r#"{"name":"a"}"#, Ok(Some("a"))),
            ("tools/call", Era::Legacy, "{}", Err(INVALID_PARAMS)),
            ("tools/list", Era::Legacy, r#"{"cursor":"x"}"#, Ok(None)),
            (
                "tools/list",
                Era::Legacy,
                r#"{"cursor":1}"#,
                Err(INVALID_PARAMS),
            ),
            (
                "resources/read",
                Era::Legacy,
                r#"{"uri":"u:v"}"#,
                Ok(Some("u:v")),
            ),
            ("prompts/get", Era::Modern, r#"{"name":"p"}"#, Ok(Some("p"))),
            ("ping", Era::Legacy, "{}", Ok(None)),
            ("ping", Era::Modern, "{}", Err(jsonrpc::METHOD_NOT_FOUND)),
            (
                INITIALIZE,
                Era::Modern,
                "{}",
                Err(jsonrpc::METHOD_NOT_FOUND),
            ),
            (LISTEN, Era::Legacy, "{}", Err(jsonrpc::METHOD_NOT_FOUND)),
            (
                LISTEN,
                Era::Modern,
                r#"{"notifications":1}"#,
                Err(INVALID_PARAMS),
            ),
            ("no/such", Era::Modern, "{}", Err(jsonrpc::METHOD_NOT_FOUND)),
        ] {
            let expected = expected.map(|name| name.map(str::to_owned));
            assert_eq!(parse(name, era, params), expected, "{name} {params}");
        }
        let call = Method::parse(
            "tools/call",
            Era::Modern,
            Some(&raw(r#"{"name":"a","arguments":[]}"#)),
        );
        assert!(
            matches!(
                call,
                Ok(Method::CallTool(ToolCallParams {
                    arguments: Err(_),
                    ..
                }))
            ),
            "invalid arguments are left to the engine, which records the attempt"
        );
    }

    #[test]
    fn initialize_negotiates_the_requested_or_latest_legacy_version() {
        for (requested, negotiated) in [
            ("2024-11-05", "2024-11-05"),
            ("2025-11-25", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("1999-01-01", "2025-11-25"),
        ] {
            let params = format!(r#"{{"protocolVersion":"{requested}","capabilities":{{}}}}"#);
            let params = raw(&params);
            assert_eq!(
                InitializeRequest::parse(Some(&params)).unwrap().version,
                negotiated
            );
        }
    }
}
