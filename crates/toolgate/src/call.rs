//! A tool call: what was asked for, and what came of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::HeaderMap;
use serde_json::value::RawValue;
use toolgate_core::name::{ServerName, ToolId};
use toolgate_core::scope::Filters;
use toolgate_mcp::TraceContext;
use toolgate_mcp::ear::{Client, Ear, Guest, Level};
use toolgate_mcp::jsonrpc::Object;

pub use toolgate_core::arguments::{Arguments, BadArguments};

use crate::result::ToolResult;

mod error;

pub use error::{CallError, Limit, Needed, ScriptWaits, WaitingCall};

/// A call as the caller wrote it.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The tool's alias, or any other spelling of server and tool.
    pub name: String,
    /// The server whose raw tool name it is, where a client talks to one server alone.
    pub server: Option<ServerName>,
    /// The id that a model gave it.
    pub id: Option<String>,
    /// Arguments that cannot be read are an attempt too.
    pub arguments: Result<Arguments, BadArguments>,
    pub request: Arc<Request>,
}

/// The request that calls belong to.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// By which logs and the audit trail know it; made up where absent.
    pub id: Option<String>,
    /// The request that led to this one.
    pub parent: Option<String>,
    /// The run of an agent that it belongs to.
    pub run: Option<String>,
    pub filters: Filters,
    /// Headers of the caller's request, of which a server gets those that its config names.
    pub headers: HeaderMap,
    /// The conversation so far, for whoever is asked to approve.
    pub conversation: Option<Arc<RawValue>>,
    /// Members of `_meta` that the server gets too.
    pub meta: Object,
    /// The trace to which the client says that its message belongs; else the headers may tell.
    pub trace: TraceContext,
    /// Who hears of the progress of its calls.
    pub ear: Option<Arc<dyn Ear>>,
    /// The client, if a modern server may ask it.
    pub guest: Option<Arc<Guest>>,
    /// The client's session, if servers may ask it there.
    pub session: Option<ClientSession>,
    /// From which level on the client wants to hear log messages.
    pub log_level: Option<Level>,
}

/// A session of a client that can be asked, with connections of its own.
#[derive(Clone, Debug)]
pub struct ClientSession {
    pub id: String,
    pub client: Client,
}

/// A call that ran; whether the tool failed is in the result.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The tool that ran.
    pub tool: ToolId,
    /// The tool that was asked for, where a fallback ran.
    pub instead_of: Option<ToolId>,
    pub result: ToolResult,
    /// The approval that let it run, and whether its arguments were edited.
    pub approval: Option<Approved>,
    /// Under which the whole of a result can be read that was too large.
    pub handle: Option<String>,
    pub cached: bool,
    pub elapsed: Duration,
}

/// An approval that was used for a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Approved {
    pub id: String,
    pub edited: bool,
}

impl Outcome {
    pub(crate) fn new(tool: ToolId, result: ToolResult, began: Instant) -> Self {
        Self {
            tool,
            instead_of: None,
            result,
            approval: None,
            handle: None,
            cached: false,
            elapsed: began.elapsed(),
        }
    }
}

impl ToolCall {
    pub fn new(name: &str, arguments: Arguments) -> Self {
        Self {
            name: name.to_owned(),
            server: None,
            id: None,
            arguments: Ok(arguments),
            request: Arc::default(),
        }
    }

    /// A call with arguments as text; what is wrong with them is said when it is made.
    pub fn parse(name: &str, arguments: &str) -> Self {
        Self {
            name: name.to_owned(),
            server: None,
            id: None,
            arguments: Arguments::parse(arguments),
            request: Arc::default(),
        }
    }

    /// The same call by the id that a model gave it.
    #[must_use]
    pub fn known_as(self, id: &str) -> Self {
        Self {
            id: Some(id.to_owned()),
            ..self
        }
    }

    #[must_use]
    pub fn of(self, request: &Arc<Request>) -> Self {
        Self {
            request: Arc::clone(request),
            ..self
        }
    }
}

impl Request {
    /// Whether the person at the client can be asked for an approval.
    pub(crate) fn can_approve(&self) -> bool {
        let guest = self.guest.as_ref();
        self.declares("elicitation")
            || guest.is_some_and(|guest| declares(&guest.capabilities, "elicitation"))
    }

    /// Whether a server may ask a person at the client while a call is under way. A modern client
    /// is asked by the result, for which no call waits.
    pub(crate) fn may_wait_for_a_person(&self) -> bool {
        self.declares("elicitation") || self.declares("sampling")
    }

    fn declares(&self, capability: &str) -> bool {
        let session = self.session.as_ref();
        session.is_some_and(|session| declares(&session.client.capabilities, capability))
    }

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
