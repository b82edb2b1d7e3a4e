//! In-process servers: tools of the embedding program, exposed like those of any other server.
//!
//! A [`LocalServer`] is a handle to a set of [`LocalTool`]s, which can change at any time; the
//! gateway is notified of every change and notifies its clients.

mod context;
mod output;
mod schema;
mod tool;

use std::sync::Arc;

use indexmap::IndexMap;
use parking_lot::{Mutex, RwLock};
use serde::{Deserialize, Serialize};
use serde_json::json;
use serde_json::value::{RawValue, to_raw_value};
use tokio::sync::mpsc;
use toolgate_core::name::ServerName;

pub use context::{CallIdentity, ToolContext};
pub use output::{IntoToolOutput, Json, LocalToolOutput, ToolError};
pub use schema::NoArguments;
pub use tokio_util::sync::CancellationToken;
pub use tool::LocalTool;
pub use toolgate_core::catalog::ToolHints;

use crate::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, RpcError, RpcResult};
use crate::transport::{OutgoingRequest, TransportEvent, TransportEvents};

/// A server that runs in this process. Clones share its tools.
#[derive(Clone, Debug)]
pub struct LocalServer(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: ServerName,
    tools: RwLock<IndexMap<String, Arc<LocalTool>>>,
    /// Connections to notify of changes.
    listeners: Mutex<Vec<mpsc::Sender<TransportEvent>>>,
}

#[derive(Deserialize)]
struct CallParams<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct ToolListing {
    tools: Vec<Arc<LocalTool>>,
}

impl LocalServer {
    /// Creates a server without tools.
    pub fn new(name: ServerName) -> Self {
        Self(Arc::new(Inner {
            name,
            tools: RwLock::default(),
            listeners: Mutex::default(),
        }))
    }

    /// Adds a tool while building a server.
    #[must_use]
    pub fn tool(self, tool: LocalTool) -> Self {
        self.add_tool(tool);
        self
    }

    /// Adds a tool, or replaces the one with the same name. Clients of a running gateway
    /// receive `notifications/tools/list_changed`.
    pub fn add_tool(&self, tool: LocalTool) {
        let mut tools = self.0.tools.write();
        tools.insert(tool.name().to_owned(), Arc::new(tool));
        drop(tools);
        self.announce_change();
    }

    /// Removes a tool; returns `false` if there is none with this name. Calls in flight finish.
    pub fn remove_tool(&self, name: &str) -> bool {
        let was_present = self.0.tools.write().shift_remove(name).is_some();
        if was_present {
            self.announce_change();
        }
        was_present
    }

    /// Returns the server's name.
    pub fn name(&self) -> &ServerName {
        &self.0.name
    }

    /// Returns the event channel of a new connection.
    pub(crate) fn events(&self) -> TransportEvents {
        let (sender, events) = mpsc::channel(1);
        self.0.listeners.lock().push(sender);
        events
    }

    pub(crate) async fn request(&self, outgoing: &OutgoingRequest) -> RpcResult {
        match outgoing.method {
            "initialize" => to_result(&json!({
                "protocolVersion": crate::handshake::LATEST_LEGACY_VERSION,
                "capabilities": {"tools": {"listChanged": true}},
                "serverInfo": {"name": self.0.name, "version": env!("CARGO_PKG_VERSION")},
            })),
            "tools/list" => to_result(&ToolListing {
                tools: self.0.tools.read().values().map(Arc::clone).collect(),
            }),
            "tools/call" => self.call(outgoing).await,
            method => Err(RpcError::method_not_found(method)),
        }
    }

    async fn call(&self, outgoing: &OutgoingRequest) -> RpcResult {
        let params = outgoing.params.to_string(); // `_meta` is not needed here
        let call: CallParams<'_> =
            serde_json::from_str(&params).map_err(|e| rpc_error(INVALID_PARAMS, e.to_string()))?;
        let tool = self.0.tools.read().get(&call.name).map(Arc::clone);
        let Some(tool) = tool else {
            let message = format!("unknown tool `{}`", call.name);
            return Err(rpc_error(INVALID_PARAMS, message));
        };
        let arguments = call.arguments.unwrap_or(RawValue::NULL).to_owned();
        let context = ToolContext::of_request(outgoing);
        // Dropping this future cancels the call; the token tells work that the tool has spawned.
        let cancel_on_drop = context.cancellation().clone().drop_guard();
        let output = tool.run(context, arguments).await;
        cancel_on_drop.disarm();
        match output {
            Ok(output) => output.into_result(),
            Err(error) => error.into_result(),
        }
    }

    fn announce_change(&self) {
        self.0.listeners.lock().retain(|listener| {
            // A full queue already contains an event that triggers the same refresh.
            let _ = listener.try_send(TransportEvent::ListChanged);
            !listener.is_closed()
        });
    }
}

fn to_result(value: &impl Serialize) -> RpcResult {
    to_raw_value(value).map_err(|e| rpc_error(INTERNAL_ERROR, e.to_string()))
}

fn rpc_error(code: i64, message: String) -> RpcError {
    RpcError {
        code,
        message,
        data: None,
    }
}
