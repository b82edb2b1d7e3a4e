//! Tools of the embedding program, offered like those of any other server.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use toolgate_core::name::ServerName;

use crate::jsonrpc::{Answer, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError};
use crate::transport::{Events, Outgoing, RequestError};

/// A server that lives in this process.
pub struct LocalServer {
    name: ServerName,
    tools: IndexMap<String, LocalTool>,
}

/// What a tool of the embedding program answers with.
#[derive(Debug)]
pub enum Output {
    Text(String),
    /// Structured content; its JSON is the text for those who read only text.
    Structured(Value),
    /// A whole `CallToolResult`.
    Raw(Box<RawValue>),
}

struct LocalTool {
    definition: Box<RawValue>,
    run: Box<dyn Fn(Box<RawValue>) -> Run + Send + Sync>,
}

type Run = Pin<Box<dyn Future<Output = Result<Output, String>> + Send>>;

#[derive(Deserialize)]
struct Call<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Serialize)]
struct Tools<'a> {
    tools: Vec<&'a RawValue>,
}

impl LocalServer {
    pub fn new(name: ServerName) -> Self {
        Self {
            name,
            tools: IndexMap::new(),
        }
    }

    /// Adds a tool. `run` gets the arguments as they were sent; an error is told to the model.
    #[must_use]
    pub fn tool<F, R>(mut self, name: &str, description: &str, input_schema: &Value, run: F) -> Self
    where
        F: Fn(Box<RawValue>) -> R + Send + Sync + 'static,
        R: Future<Output = Result<Output, String>> + Send + 'static,
    {
        let definition =
            json!({"name": name, "description": description, "inputSchema": input_schema});
        if let Ok(definition) = to_raw_value(&definition) {
            let run = Box::new(move |arguments| Box::pin(run(arguments)) as Run);
            self.tools
                .insert(name.to_owned(), LocalTool { definition, run });
        }
        self
    }

    pub fn name(&self) -> &ServerName {
        &self.name
    }

    /// Nothing is ever announced: the tools are fixed once the gateway runs.
    pub(crate) fn events() -> Events {
        mpsc::channel(1).1
    }

    pub(crate) async fn request(&self, outgoing: &Outgoing) -> Result<Answer, RequestError> {
        let params = outgoing.params.to_string(); // nothing here reads `_meta`
        Ok(match outgoing.method {
            "initialize" => raw(&json!({
                "protocolVersion": crate::handshake::NEWEST_LEGACY,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": self.name, "version": env!("CARGO_PKG_VERSION")},
            })),
            "tools/list" => raw(&Tools {
                tools: self.tools.values().map(|tool| &*tool.definition).collect(),
            }),
            "tools/call" => self.call(&params).await,
            method => Err(error(METHOD_NOT_FOUND, format!("no method `{method}`"))),
        })
    }

    async fn call(&self, params: &str) -> Answer {
        let call: Call<'_> =
            serde_json::from_str(params).map_err(|e| error(INVALID_PARAMS, e.to_string()))?;
        let Some(tool) = self.tools.get(&call.name) else {
            return Err(error(INVALID_PARAMS, format!("no tool `{}`", call.name)));
        };
        let arguments = call.arguments.unwrap_or(RawValue::NULL);
        match (tool.run)(arguments.to_owned()).await {
            Ok(Output::Raw(result)) => Ok(result),
            Ok(Output::Text(text)) => raw(&json!({"content": [{"type": "text", "text": text}]})),
            Ok(Output::Structured(value)) => raw(&json!({
                "content": [{"type": "text", "text": value.to_string()}],
                "structuredContent": value,
            })),
            Err(text) => {
                raw(&json!({"content": [{"type": "text", "text": text}], "isError": true}))
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

fn raw(value: &impl Serialize) -> Answer {
    to_raw_value(value).map_err(|e| error(-32603, e.to_string()))
}

fn error(code: i64, message: String) -> RpcError {
    RpcError {
        code,
        message,
        data: None,
    }
}
