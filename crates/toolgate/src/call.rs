//! A tool call, the request it belongs to, and its outcome.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderMap;
use serde_json::value::RawValue;
use toolgate_core::name::{ServerName, ToolId};
use toolgate_core::scope::Filters;
use toolgate_mcp::TraceContext;
use toolgate_mcp::client_handler::{ClientHandler, LogLevel, ModernClient, SessionClient};
use toolgate_mcp::jsonrpc::Object;
use toolgate_mcp::task::TaskUse;

pub use toolgate_core::arguments::{Arguments, ArgumentsError};
pub use toolgate_core::schema::SchemaViolation;
pub use toolgate_core::scope::FilterError;
pub use toolgate_mcp::ServerBusy;
pub use toolgate_mcp::registry::ServerUnavailable;
pub use toolgate_mcp::transport::RequestError;

use crate::held_bytes::Hold;
use crate::result::ToolResult;

mod error;
mod rate_admission;

pub use error::{CallError, LimitReached, PendingCall, RequiredApproval, SuspendedScript};
pub use rate_admission::RateAdmission;

/// A call as made by the caller.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The tool's alias, or any other supported spelling of server and tool.
    pub name: String,
    /// Set if `name` is the raw name of a tool of this server.
    pub server: Option<ServerName>,
    /// The call id assigned by a model.
    pub id: Option<String>,
    /// Invalid arguments are kept, because such a call is recorded as an attempt too.
    pub arguments: Result<Arguments, ArgumentsError>,
    /// The request that the call belongs to.
    pub request: Arc<RequestContext>,
}

/// The request that one or more calls belong to.
#[derive(Clone, Debug, Default)]
pub struct RequestContext {
    /// Id in logs and the audit trail; generated if absent.
    pub id: Option<String>,
    /// Id of the request that caused this one.
    pub parent: Option<String>,
    /// Id of the agent run that the request belongs to.
    pub run: Option<String>,
    /// Restricts what exists for the request.
    pub filters: Filters,
    /// Headers of the caller's request. A server gets those that its configuration allows.
    pub headers: HeaderMap,
    /// Whether the headers must repeat the arguments that a tool mirrors in headers, as modern MCP
    /// clients send them over HTTP.
    pub headers_mirror_arguments: bool,
    /// Set if the calls were already counted against the rate limit of the caller's key.
    pub rate_admission: Option<RateAdmission>,
    /// The conversation so far, shown to approvers.
    pub conversation: Option<Arc<RawValue>>,
    /// Members of `_meta` that are forwarded to the server.
    pub meta: Object,
    /// Trace context from the client's message; if empty, the one in the headers applies.
    pub trace: TraceContext,
    /// Receives notifications and requests that servers send during the calls.
    pub client_handler: Option<Arc<dyn ClientHandler>>,
    /// The client's declaration, if modern servers may request input from it.
    pub modern_client: Option<Arc<ModernClient>>,
    /// The client's session, if servers may send requests to the client.
    pub session: Option<ClientSession>,
    /// Minimum level of log messages that the client has requested.
    pub log_level: Option<LogLevel>,
    /// Whether servers may run the calls as tasks.
    #[doc(hidden)] // for the MCP server
    pub tasks: TaskUse,
    /// The memory of the message that contains the request.
    #[doc(hidden)] // for the MCP server
    pub memory: Option<Arc<Hold>>,
}

/// A client session with its own lanes, through which servers can reach the client.
#[derive(Clone, Debug)]
pub struct ClientSession {
    /// Id of the session.
    pub id: String,
    /// The client.
    pub client: SessionClient,
}

/// The outcome of a call that ran. The result tells whether the tool itself failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The tool that ran.
    pub tool: ToolId,
    /// The requested tool, if a fallback ran instead.
    pub fallback_for: Option<ToolId>,
    /// The result.
    pub result: ToolResult,
    /// The approval used by the call.
    pub approval: Option<UsedApproval>,
    /// Handle of the full result, if the result was truncated.
    pub handle: Option<String>,
    /// Whether the result came from the cache.
    pub cached: bool,
    /// Time that the call took.
    pub elapsed: Duration,
}

/// An approval used by a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsedApproval {
    /// Id of the approval.
    pub id: String,
    /// Whether the approver edited the arguments.
    pub edited: bool,
}

impl Outcome {
    pub(crate) fn new(tool: ToolId, result: ToolResult, started: Instant) -> Self {
        Self {
            tool,
            fallback_for: None,
            result,
            approval: None,
            handle: None,
            cached: false,
            elapsed: started.elapsed(),
        }
    }
}

impl ToolCall {
    /// Creates a call of a tool by name.
    pub fn new(name: &str, arguments: Arguments) -> Self {
        Self {
            name: name.to_owned(),
            server: None,
            id: None,
            arguments: Ok(arguments),
            request: Arc::default(),
        }
    }

    /// Creates a call with arguments as text. Invalid arguments are reported when the call is made.
    pub fn parse(name: &str, arguments: &str) -> Self {
        Self {
            name: name.to_owned(),
            server: None,
            id: None,
            arguments: Arguments::parse(arguments),
            request: Arc::default(),
        }
    }

    /// Sets the call id assigned by a model.
    #[must_use]
    pub fn with_id(self, id: &str) -> Self {
        Self {
            id: Some(id.to_owned()),
            ..self
        }
    }

    /// Returns the call as a separate one, which is counted by itself even if this one was admitted
    /// with others.
    #[must_use]
    pub(crate) fn without_admission(mut self) -> Self {
        if self.request.rate_admission.is_some() {
            Arc::make_mut(&mut self.request).rate_admission = None;
        }
        self
    }

    /// Sets the request that the call belongs to.
    #[must_use]
    pub fn with_request(self, request: &Arc<RequestContext>) -> Self {
        Self {
            request: Arc::clone(request),
            ..self
        }
    }
}

impl RequestContext {
    /// Returns whether the client can ask its user for an approval.
    pub(crate) fn can_approve(&self) -> bool {
        let client = self.modern_client.as_ref();
        self.declares("elicitation")
            || client.is_some_and(|client| declares(&client.capabilities, "elicitation"))
    }

    /// Returns whether a server may prompt the client's user during a call.
    pub(crate) fn may_prompt_user(&self) -> bool {
        self.declares("elicitation") || self.declares("sampling")
    }

    fn declares(&self, capability: &str) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| declares(&session.client.capabilities, capability))
    }

    /// Creates a context with a request id.
    pub fn with_id(id: &str) -> Arc<Self> {
        Arc::new(Self {
            id: Some(id.to_owned()),
            ..Self::default()
        })
    }
}

fn declares(capabilities: &str, capability: &str) -> bool {
    let declared: HashMap<String, &RawValue> =
        serde_json::from_str(capabilities).unwrap_or_default();
    declared.contains_key(capability)
}
