//! What a host and its worker say to each other: JSON messages, each behind its length.
//!
//! The host sends a script and then answers the calls that the worker asks for, until the worker says
//! how the script ended. Nothing here knows what language the script is written in.

use std::io::{self, Read, Write};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The longest message; a longer one ends the worker.
pub const LONGEST_MESSAGE: usize = 64 * 1024 * 1024;

/// What the host says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToWorker {
    Run(Script),
    /// To the calls that were asked for, in their order.
    Answers(Vec<Answer>),
    /// How many tokens these texts are.
    Count(Vec<String>),
}

/// What the worker says.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToHost {
    /// It is locked in and waits for a script.
    Ready,
    /// The script waits for these calls, which may run side by side.
    Calls {
        calls: Vec<Call>,
        /// What was printed since the last message.
        printed: String,
    },
    Ended {
        ended: Result<Value, Failure>,
        printed: String,
    },
    Counts(Vec<usize>),
}

/// A script and what it can reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Script {
    pub language: Language,
    pub code: String,
    /// What the script sees by name. Servers that it does not mention may be left out.
    pub servers: Vec<Server>,
    pub bounds: Bounds,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    #[default]
    Starlark,
}

/// A server as scripts know it; all names in it are identifiers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Server {
    pub name: String,
    pub tools: Vec<Tool>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tool {
    pub name: String,
    /// In the order in which the stub shows them.
    pub parameters: Vec<Parameter>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parameter {
    pub name: String,
    /// The name in the tool's schema, where it is no usable identifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wire: Option<String>,
    /// Whether it may not be left out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub required: bool,
}

/// Bounds that a worker keeps by itself, out of courtesy: the host and the system keep them too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    pub own_ms: u64,
    pub memory: u64,
    pub calls: u32,
    pub result: usize,
    pub printed: usize,
}

/// A tool call that a script makes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    pub server: String,
    pub tool: String,
    /// A JSON object, by the names of the tool's schema.
    pub arguments: Box<RawValue>,
    /// Where it stands in the script, counted from one.
    pub line: u32,
}

/// What a tool call came to.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Value(Box<RawValue>),
    /// The call failed, which the script may catch.
    Error(String),
}

/// What a script made.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Value {
    /// JSON; none if the script only printed.
    pub value: Option<Box<RawValue>>,
}

/// Why a script ended without a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// What happened, without the place.
    pub message: String,
    /// Counted from one.
    pub line: Option<u32>,
    pub column: Option<u32>,
    /// What to write instead, as far as the worker knows.
    pub hints: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureKind {
    /// It is not a script.
    Syntax,
    /// A name that nothing has.
    UndefinedName(String),
    /// A server that has no such tool.
    UnknownTool { server: String, tool: String },
    /// A call that does not fit the tool's signature.
    BadCall { server: String, tool: String },
    /// A tool failed, and the script did not catch it.
    Tool { server: String, tool: String },
    /// Anything else that went wrong while it ran.
    Runtime,
    /// The interpreter failed, not the script.
    Broken,
    /// A bound was reached: `time`, `memory`, `calls`, `result`, `printed` or `depth`.
    Limit(String),
}

impl Failure {
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

impl Parameter {
    /// The name in the tool's schema.
    pub fn wire(&self) -> &str {
        self.wire.as_deref().unwrap_or(&self.name)
    }
}

/// A message as it goes over a pipe.
pub fn encode(message: &impl Serialize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = u32::try_from(bytes.len() - 4).map_err(io::Error::other)?;
    bytes[..4].copy_from_slice(&length.to_le_bytes());
    Ok(bytes)
}

/// Reads a message; none if the other side is gone.
pub(crate) fn read<T: DeserializeOwned>(from: &mut impl Read) -> io::Result<Option<T>> {
    let mut head = [0; 4];
    if let Err(error) = from.read_exact(&mut head) {
        return match error.kind() {
            io::ErrorKind::UnexpectedEof => Ok(None),
            _ => Err(error),
        };
    }
    let length = u32::from_le_bytes(head) as usize;
    if length > LONGEST_MESSAGE {
        return Err(io::Error::other("message too long"));
    }
    let mut body = vec![0; length];
    from.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
}

pub(crate) fn write(to: &mut impl Write, message: &impl Serialize) -> io::Result<()> {
    to.write_all(&encode(message)?)?;
    to.flush()
}
