//! A tool call: what was asked for, what came of it, and why nothing did.

use std::time::Duration;

use http::HeaderMap;
use serde_json::value::RawValue;
use toolgate_core::name::{ServerName, ToolId};
use toolgate_mcp::Busy;
use toolgate_mcp::registry::Away;
use toolgate_mcp::transport::RequestError;

use crate::result::ToolResult;

/// A call as the caller wrote it.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// The tool's alias, or any other spelling of server and tool.
    pub name: String,
    pub arguments: Arguments,
    /// Headers of the caller's request, of which a server gets those that its config names.
    pub headers: HeaderMap,
}

/// A JSON object, byte for byte as it was sent.
#[derive(Clone, Debug)]
pub struct Arguments(Box<RawValue>);

/// A call that ran; whether the tool failed is in the result.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The tool that ran.
    pub tool: ToolId,
    /// The tool that was asked for, where a fallback ran.
    pub instead_of: Option<ToolId>,
    pub result: ToolResult,
    pub elapsed: Duration,
}

/// Why a call did not run, or has no result.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    #[error("unknown tool `{name}`{}", suggest(.nearest))]
    Unknown { name: String, nearest: Vec<String> },
    #[error("`{name}` fits several tools; use one of these names: {}", .aliases.join(", "))]
    Ambiguous { name: String, aliases: Vec<String> },
    #[error(transparent)]
    BadArguments(#[from] BadArguments),
    #[error("tool `{alias}` needs an approval (`{because}`), and nobody can be asked")]
    NobodyToAsk { alias: String, because: String },
    #[error("{}{}", .0, next_try(.0))]
    Away(Away),
    #[error("server `{server}` is busy: {busy}")]
    Busy { server: ServerName, busy: Busy },
    #[error(
        "tool `{tool}` did not answer within {} and was cancelled; try less work in one call, or raise the timeout in the configuration",
        seconds(.after)
    )]
    Timeout { tool: ToolId, after: Duration },
    #[error("server `{server}`: {cause}")]
    Server {
        server: ServerName,
        cause: RequestError,
    },
    #[error("the call was cancelled")]
    Cancelled,
    /// A tool of the embedding program.
    #[error("tool `{0}` panicked")]
    Panicked(ToolId),
}

/// Arguments that are no JSON object.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadArguments {
    #[error("the arguments are not valid JSON: {0}; send one JSON object")]
    NotJson(String),
    #[error("the arguments must be a JSON object such as {{\"key\": \"value\"}}, not {0}")]
    NotObject(&'static str),
}

impl ToolCall {
    pub fn new(name: &str, arguments: Arguments) -> Self {
        Self {
            name: name.to_owned(),
            arguments,
            headers: HeaderMap::new(),
        }
    }
}

impl Arguments {
    /// Reads a JSON object. Models send nothing at all for "no arguments", so that is `{}`.
    pub fn parse(text: &str) -> Result<Self, BadArguments> {
        let text = match text.trim() {
            "" | "null" => "{}",
            text => text,
        };
        let raw: Box<RawValue> =
            serde_json::from_str(text).map_err(|error| BadArguments::NotJson(error.to_string()))?;
        match raw.get().as_bytes().first() {
            Some(b'{') => Ok(Self(raw)),
            Some(b'[') => Err(BadArguments::NotObject("an array")),
            Some(b'"') => Err(BadArguments::NotObject("a string")),
            Some(b't' | b'f') => Err(BadArguments::NotObject("a boolean")),
            _ => Err(BadArguments::NotObject("a number")),
        }
    }

    pub fn raw(&self) -> &RawValue {
        &self.0
    }
}

impl CallError {
    /// A word for metrics and machines.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unknown { .. } | Self::Ambiguous { .. } => "unknown",
            Self::BadArguments(_) => "bad_arguments",
            Self::NobodyToAsk { .. } => "ask",
            Self::Away(_) => "away",
            Self::Busy { .. } => "busy",
            Self::Timeout { .. } => "timeout",
            Self::Server { .. } => "server",
            Self::Cancelled => "cancelled",
            Self::Panicked(_) => "panicked",
        }
    }
}

fn suggest(nearest: &[String]) -> String {
    match nearest {
        [] => String::new(),
        names => format!("; did you mean {}?", names.join(" or ")),
    }
}

fn next_try(away: &Away) -> String {
    let until = away
        .status
        .next_try_at
        .and_then(|at| at.duration_since(std::time::SystemTime::now()).ok());
    match until {
        Some(until) => format!("; it is tried again in {}", seconds(&until)),
        None => String::new(),
    }
}

fn seconds(duration: &Duration) -> String {
    format!("{:.1} s", duration.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_one_object_byte_for_byte() {
        let text = r#"{"b": 1e400, "a": -0.0, "n": 18446744073709551617, "x": 0.10}"#;
        assert_eq!(Arguments::parse(text).unwrap().raw().get(), text);
        assert_eq!(Arguments::parse(" ").unwrap().raw().get(), "{}");
        assert_eq!(Arguments::parse("null").unwrap().raw().get(), "{}");
        for (text, kind) in [
            ("[1]", "an array"),
            ("\"{}\"", "a string"),
            ("7", "a number"),
            ("true", "a boolean"),
        ] {
            assert_eq!(
                Arguments::parse(text).unwrap_err(),
                BadArguments::NotObject(kind)
            );
        }
        assert!(matches!(
            Arguments::parse("{\"a\":").unwrap_err(),
            BadArguments::NotJson(_)
        ));
    }
}
