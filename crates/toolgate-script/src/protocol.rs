//! Wire protocol between a host and its worker: JSON messages, each prefixed with its length.
//!
//! The host sends a script, then answers the worker's call requests until the worker reports how the
//! script ended. The protocol is independent of the script's language.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Maximum length of a message body. A longer message terminates the worker.
pub const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// Message from the host to the worker.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HostMessage {
    Run(ScriptRequest),
    /// Results of the requested calls, in request order.
    Answers(Vec<ScriptCallResult>),
    /// Requests the token count of each text.
    Count(Vec<String>),
}

/// Message from the worker to the host.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WorkerMessage {
    /// The worker has sandboxed itself and is waiting for a script.
    Ready,
    /// The script is blocked on these calls, which may run concurrently.
    Calls {
        calls: Vec<ScriptCall>,
        /// Output printed since the last message.
        printed: String,
    },
    Ended {
        ended: Result<ScriptResult, ScriptFailure>,
        printed: String,
    },
    Counts(Vec<usize>),
}

/// A script and the servers it can reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScriptRequest {
    pub language: Language,
    pub code: String,
    /// Servers visible to the script. Servers that it does not mention may be omitted.
    pub servers: Vec<ScriptServer>,
    pub bounds: WorkerLimits,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    #[default]
    Starlark,
}

/// A server as a script sees it. All names are valid identifiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptServer {
    pub name: String,
    pub tools: Vec<ScriptTool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptTool {
    pub name: String,
    /// Parameters in the order of the stub's signature.
    pub parameters: Vec<ScriptParameter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptParameter {
    pub name: String,
    /// Name in the tool's schema, if it differs from `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

/// Limits that the worker enforces on a script.
///
/// The worker's checks only exist for better error messages: the host and the operating system enforce
/// the same limits and do not trust the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerLimits {
    /// Run time in milliseconds, excluding time spent waiting for tool calls.
    pub compute_ms: u64,
    /// Heap size in bytes.
    pub memory: u64,
    pub calls: u32,
    /// Size of the result in bytes.
    pub result: usize,
    /// Total size of the printed output in bytes.
    pub printed: usize,
}

/// A tool call made by a script.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ScriptCall {
    pub server: String,
    pub tool: String,
    /// JSON object keyed by the parameter names of the tool's schema.
    pub arguments: Box<RawValue>,
    /// Line of the call in the script, counted from one.
    pub line: u32,
}

/// Result of a tool call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptCallResult {
    Value(Box<RawValue>),
    /// The call failed; the script may catch the error.
    Error(String),
}

/// Result of a script that ran to completion.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ScriptResult {
    /// JSON value, or `None` if the script only printed.
    pub value: Option<Box<RawValue>>,
}

/// Reason why a script ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptFailure {
    pub kind: FailureKind,
    /// Description of the failure, without its location.
    pub message: String,
    /// Line, counted from one.
    pub line: Option<u32>,
    /// Column, counted from one.
    pub column: Option<u32>,
    /// Suggested fixes.
    pub hints: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// The code does not parse.
    Syntax,
    /// A name is not defined.
    UndefinedName(String),
    /// The server has no such tool.
    UnknownTool { server: String, tool: String },
    /// A call does not match the tool's signature.
    BadCall { server: String, tool: String },
    /// A tool call failed and the script did not catch the error.
    Tool { server: String, tool: String },
    /// Any other error at run time.
    Runtime,
    /// The interpreter itself crashed.
    Broken,
    /// A limit was exceeded: `time`, `memory`, `calls`, `result`, `printed` or `depth`.
    Limit(String),
}

impl ScriptFailure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self {
            kind,
            message: message.into(),
            line: None,
            column: None,
            hints: Vec::new(),
        }
    }
}

impl ScriptParameter {
    /// Returns the parameter's name in the tool's schema.
    pub fn wire(&self) -> &str {
        self.wire.as_deref().unwrap_or(&self.name)
    }
}

/// Encodes a message with its length prefix.
pub fn encode_message(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Reads a message. Returns `None` if the peer closed the pipe.
pub(crate) fn read_message<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut head = [0; 4];
    if let Err(error) = from.read_exact(&mut head) {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => Ok(None),
            _ => Err(error),
        };
    }
    let length = u32::from_le_bytes(head) as usize;
    if length > MAX_MESSAGE_BYTES {
        return Err(io::Error::other("message exceeds the maximum length"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
}

pub(crate) fn write_message(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode_message(message)?)?;
    to.flush()
}
