//! What goes wrong in a script by our own hand, and what the host is told of any error.

use std::fmt;

use starlark::ErrorKind;
use starlark::codemap::FileSpan;

use super::source::Source;
use crate::protocol::{Failure, FailureKind};

/// How many callers a message names.
const TRACE: usize = 5;

/// An error of a native function.
#[derive(Debug, thiserror::Error)]
pub(super) enum Trouble {
    #[error("{message}")]
    Tool {
        server: String,
        tool: String,
        message: String,
    },
    #[error("{message}")]
    BadCall {
        server: String,
        tool: String,
        message: String,
        hint: Option<String>,
    },
    #[error("{message}")]
    UnknownTool {
        server: String,
        tool: String,
        message: String,
        hint: Option<String>,
    },
    /// The script said so.
    #[error("{0}")]
    Fail(String),
    /// A native function was used wrongly.
    #[error("{message}")]
    Misuse {
        message: String,
        hint: Option<String>,
    },
    #[error("{}", .0.message())]
    Limit(Limit),
    #[error("the run was ended")]
    Gone,
    #[error("the function was called outside of a run")]
    Astray,
}

/// A bound that a script reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Limit {
    Time,
    Memory,
    Calls,
    Result,
    Printed,
    Depth,
}

impl Limit {
    fn message(self) -> &'static str {
        match self {
            Self::Time => "the script ran longer than it may",
            Self::Memory => "the script used more memory than it may",
            Self::Calls => "the script made more tool calls than it may",
            Self::Result => "the result is larger or deeper than it may be",
            Self::Printed => "the script printed more than it may",
            Self::Depth => "the script is nested too deeply",
        }
    }

    pub(super) fn failure(self) -> Failure {
        Failure::new(FailureKind::Limit(self.to_string()), self.message())
    }
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "time",
            Self::Memory => "memory",
            Self::Calls => "calls",
            Self::Result => "result",
            Self::Printed => "printed",
            Self::Depth => "depth",
        })
    }
}

impl Trouble {
    pub(super) fn misuse(message: impl Into<String>) -> Self {
        Self::Misuse {
            message: message.into(),
            hint: None,
        }
    }

    fn kind(&self) -> FailureKind {
        match self {
            Self::Tool { server, tool, .. } => FailureKind::Tool {
                server: server.clone(),
                tool: tool.clone(),
            },
            Self::BadCall { server, tool, .. } => FailureKind::BadCall {
                server: server.clone(),
                tool: tool.clone(),
            },
            Self::UnknownTool { server, tool, .. } => FailureKind::UnknownTool {
                server: server.clone(),
                tool: tool.clone(),
            },
            Self::Limit(limit) => FailureKind::Limit(limit.to_string()),
            Self::Fail(_) | Self::Misuse { .. } | Self::Gone | Self::Astray => FailureKind::Runtime,
        }
    }

    fn hint(&self) -> Option<String> {
        match self {
            Self::BadCall { hint, .. }
            | Self::UnknownTool { hint, .. }
            | Self::Misuse { hint, .. } => hint.clone(),
            _ => None,
        }
    }
}

impl From<Trouble> for starlark::Error {
    fn from(trouble: Trouble) -> Self {
        Self::new_native(trouble)
    }
}

/// The trouble in an error, if it is ours.
pub(super) fn trouble(error: &starlark::Error) -> Option<&Trouble> {
    match error.kind() {
        ErrorKind::Native(inner) | ErrorKind::Other(inner) | ErrorKind::Value(inner) => {
            inner.downcast_ref::<Trouble>()
        }
        _ => None,
    }
}

/// What happened, without the place.
pub(super) fn message(error: &starlark::Error) -> String {
    let text = error.without_diagnostic().to_string();
    let text = text.strip_prefix("Parse error:").unwrap_or(&text).trim();
    let mut message = text.replace("`string`", "`str`");
    if let ErrorKind::StackOverflow(_) = error.kind() {
        "functions call each other too deeply".clone_into(&mut message);
    }
    message
}

/// An error as the host is told of it.
pub(super) fn failure(error: &starlark::Error, source: &Source) -> Failure {
    let message = message(error);
    let kind = match (trouble(error), error.kind()) {
        (Some(trouble), _) => trouble.kind(),
        (None, ErrorKind::Scope(_)) => match undefined(&message) {
            Some(name) => FailureKind::UndefinedName(name.to_owned()),
            None => FailureKind::Syntax,
        },
        (None, ErrorKind::StackOverflow(_)) => FailureKind::Limit(Limit::Depth.to_string()),
        _ => FailureKind::Runtime,
    };
    let message = match &kind {
        FailureKind::UndefinedName(name) => format!("`{name}` is not defined"),
        _ => message,
    };
    let mut failure = Failure::new(kind, message);
    place(&mut failure, error, source);
    failure.hints.extend(trouble(error).and_then(Trouble::hint));
    failure
}

/// The name in the library's words for a name that nothing has.
fn undefined(message: &str) -> Option<&str> {
    message.strip_prefix("Variable `")?.split('`').next()
}

/// Where it happened: in the innermost frame that the script has, with its callers in the message.
fn place(failure: &mut Failure, error: &starlark::Error, source: &Source) {
    let frames = &error.call_stack().frames;
    let own = |span: &&FileSpan| span.filename() == source.name();
    let innermost = error.span().filter(own).or_else(|| {
        let mut frames = frames.iter().rev();
        frames.find_map(|frame| frame.location.as_ref().filter(own))
    });
    if let Some(span) = innermost {
        let (line, column) = source.place(span);
        failure.line = Some(line);
        failure.column = Some(column);
    }
    let mut trace = Vec::new();
    for frame in frames.iter().rev() {
        let Some(span) = frame.location.as_ref().filter(own) else {
            continue;
        };
        // The innermost call of a native function is the place itself.
        let (line, _) = source.place(span);
        if Some(line) != failure.line || !trace.is_empty() {
            trace.push(format!("`{}` called in line {line}", frame.name));
        }
    }
    if !trace.is_empty() {
        let more = trace.len().saturating_sub(TRACE);
        trace.truncate(TRACE);
        if more > 0 {
            trace.push(format!("and {more} more"));
        }
        failure.message.push_str(" (");
        failure.message.push_str(&trace.join(", "));
        failure.message.push(')');
    }
}

/// Our trouble at the place of another error.
pub(super) fn instead(error: &starlark::Error, trouble: Trouble) -> starlark::Error {
    let mut ours = starlark::Error::from(trouble);
    if let Some(span) = error.span() {
        ours.set_span(span.span, &span.file);
    }
    ours.set_call_stack(|| error.call_stack().clone());
    ours
}
