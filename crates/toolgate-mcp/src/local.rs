//! In-process servers: tools of the embedding program, exposed like those of any other server.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use toolgate_core::name::ServerName;

use crate::jsonrpc::{INVALID_PARAMS, METHOD_NOT_FOUND, RpcError, RpcResult};
use crate::transport::{OutgoingRequest, RequestError, TransportEvents};

/// A server that runs in this process.
pub struct LocalServer {
    name: ServerName,
    tools: IndexMap<String, LocalTool>,
}

/// The output of an in-process tool.
#[derive(Debug)]
pub enum LocalToolOutput {
    Text(String),
    /// Structured content; its JSON is also returned as text.
    Structured(Value),
    /// A complete `CallToolResult`.
    Raw(Box<RawValue>),
}

struct LocalTool {
    definition: Box<RawValue>,
    run: Box<dyn Fn(Box<RawValue>) -> ToolFuture + Send + Sync>,
}

type ToolFuture = Pin<Box<dyn Future<Output = Result<LocalToolOutput, String>> + Send>>;

#[derive(Deserialize)]
struct CallParams<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct ToolList<'a> {
    tools: Vec<&'a RawValue>,
}

impl LocalServer {
    pub fn new(name: ServerName) -> Self {
        Self {
            name,
            tools: IndexMap::new(),
        }
    }

    /// Adds a tool. `run` receives the raw arguments; its error text is returned to the model.
    #[must_use]
    pub fn tool<F, R>(mut self, name: &str, description: &str, input_schema: &Value, run: F) -> Self
    where
        F: Fn(Box<RawValue>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<LocalToolOutput, String>> + Send + 'static,
    {
        let definition =
            json!({"name": name, "description": description, "inputSchema": input_schema});
        if let Ok(definition) = to_raw_value(&definition) {
            let run = Box::new(move |arguments| Box::pin(run(arguments)) as ToolFuture);
            self.tools
                .insert(name.to_owned(), LocalTool { definition, run });
        }
        self
    }

    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// Returns an event channel that never yields: the tools are fixed once the gateway runs.
    pub(crate) fn events() -> TransportEvents {
        mpsc::channel(1).1
    }

    pub(crate) async fn request(
        &self,
        outgoing: &OutgoingRequest,
    ) -> Result<RpcResult, RequestError> {
        let params = outgoing.params.to_string(); // `_meta` is not needed here
        Ok(match outgoing.method {
            "initialize" => to_result(&json!({
                "protocolVersion": crate::handshake::LATEST_LEGACY_VERSION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": self.name, "version": env!("CARGO_PKG_VERSION")},
            })),
            "tools/list" => to_result(&ToolList {
                tools: self.tools.values().map(|tool| &*tool.definition).collect(),
            }),
            "tools/call" => self.call(&params).await,
            method => Err(rpc_error(
                METHOD_NOT_FOUND,
                format!("unknown method `{method}`"),
            )),
        })
    }

    async fn call(&self, params: &str) -> RpcResult {
        let call: CallParams<'_> =
            serde_json::from_str(params).map_err(|e| rpc_error(INVALID_PARAMS, e.to_string()))?;
        let Some(tool) = self.tools.get(&call.name) else {
            return Err(rpc_error(
                INVALID_PARAMS,
                format!("unknown tool `{}`", call.name),
            ));
        };
        let arguments = call.arguments.unwrap_or(RawValue::NULL);
        match (tool.run)(arguments.to_owned()).await {
            Ok(LocalToolOutput::Raw(result)) => Ok(result),
            Ok(LocalToolOutput::Text(text)) => {
                to_result(&json!({"content": [{"type": "text", "text": text}]}))
            }
            Ok(LocalToolOutput::Structured(value)) => to_result(&json!({
                "content": [{"type": "text", "text": value.to_string()}],
                "structuredContent": value,
            })),
            Err(text) => {
                to_result(&json!({"content": [{"type": "text", "text": text}], "isError": true}))
            }
        }
    }
}

impl fmt::Debug for LocalServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalServer")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn to_result(value: &impl Serialize) -> RpcResult {
    to_raw_value(value).map_err(|e| rpc_error(-32603, e.to_string()))
}

fn rpc_error(code: i64, message: String) -> RpcError {
    RpcError {
        code,
        message,
        data: None,
    }
}
