//! Errors raised by native functions, and the conversion of any error into a failure for the host.

use std::fmt;

use starlark::ErrorKind;
use starlark::codemap::FileSpan;

use super::source::ScriptSource;
use crate::protocol::{FailureKind, ScriptFailure};

/// Maximum number of callers listed in a message.
const MAX_TRACE_CALLERS: usize = 5;

/// An error raised by a native function.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScriptError {
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
    /// The script called `fail`.
    #[error("{0}")]
    Fail(String),
    /// A native function was called incorrectly.
    #[error("{message}")]
    Misuse {
        message: String,
        hint: Option<String>,
    },
    #[error("{}", .0.message())]
    Limit(LimitKind),
    #[error("the run was stopped")]
    HostGone,
    #[error("the function was called outside a script run")]
    NoRun,
}

/// A limit that a script exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitKind {
    Time,
    Memory,
    Calls,
    Result,
    Printed,
    Depth,
}

impl LimitKind {
    fn message(self) -> &'static str {
        match self {
            Self::Time => "the script exceeded its time limit",
            Self::Memory => "the script exceeded its memory limit",
            Self::Calls => "the script exceeded its limit on tool calls",
            Self::Result => "the result is too large or too deeply nested",
            Self::Printed => "the script exceeded its limit on printed output",
            Self::Depth => "the script is nested too deeply",
        }
    }

    pub(super) fn to_failure(self) -> ScriptFailure {
        ScriptFailure::new(FailureKind::Limit(self.to_string()), self.message())
    }
}

impl fmt::Display for LimitKind {
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

impl ScriptError {
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
            Self::Fail(_) | Self::Misuse { .. } | Self::HostGone | Self::NoRun => {
                FailureKind::Runtime
            }
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

impl From<ScriptError> for starlark::Error {
    fn from(error: ScriptError) -> Self {
        Self::new_native(error)
    }
}

/// Returns the [`ScriptError`] inside an error, if there is one.
pub(super) fn find_script_error(error: &starlark::Error) -> Option<&ScriptError> {
    match error.kind() {
        ErrorKind::Native(inner) | ErrorKind::Other(inner) | ErrorKind::Value(inner) => {
            inner.downcast_ref::<ScriptError>()
        }
        _ => None,
    }
}

/// Returns the message of an error, without its location.
pub(super) fn message(error: &starlark::Error) -> String {
    let text = error.without_diagnostic().to_string();
    let text = text.strip_prefix("Parse error:").unwrap_or(&text).trim();
    let mut message = text.replace("`string`", "`str`");
    if let ErrorKind::StackOverflow(_) = error.kind() {
        "the function calls are nested too deeply".clone_into(&mut message);
    }
    message
}

/// Converts an error into a failure for the host.
pub(super) fn to_failure(error: &starlark::Error, source: &ScriptSource) -> ScriptFailure {
    let message = message(error);
    let kind = match (find_script_error(error), error.kind()) {
        (Some(script_error), _) => script_error.kind(),
        (None, ErrorKind::Scope(_)) => match undefined_name(&message) {
            Some(name) => FailureKind::UndefinedName(name.to_owned()),
            None => FailureKind::Syntax,
        },
        (None, ErrorKind::StackOverflow(_)) => FailureKind::Limit(LimitKind::Depth.to_string()),
        _ => FailureKind::Runtime,
    };
    let message = match &kind {
        FailureKind::UndefinedName(name) => format!("`{name}` is not defined"),
        _ => message,
    };
    let mut failure = ScriptFailure::new(kind, message);
    add_location(&mut failure, error, source);
    failure
        .hints
        .extend(find_script_error(error).and_then(ScriptError::hint));
    failure
}

/// Extracts the name from the evaluator's message about an undefined name.
fn undefined_name(message: &str) -> Option<&str> {
    message.strip_prefix("Variable `")?.split('`').next()
}

/// Adds the location of the script's innermost frame, and lists its callers in the message.
fn add_location(failure: &mut ScriptFailure, error: &starlark::Error, source: &ScriptSource) {
    let frames = &error.call_stack().frames;
    let is_in_script = |span: &&FileSpan| span.filename() == source.name();
    let innermost = error.span().filter(is_in_script).or_else(|| {
        let mut frames = frames.iter().rev();
        frames.find_map(|frame| frame.location.as_ref().filter(is_in_script))
    });
    if let Some(span) = innermost {
        let (line, column) = source.location(span);
        failure.line = Some(line);
        failure.column = Some(column);
    }
    let mut trace = Vec::new();
    for frame in frames.iter().rev() {
        let Some(span) = frame.location.as_ref().filter(is_in_script) else {
            continue;
        };
        // The innermost frame, that of a native function, is the location itself.
        let (line, _) = source.location(span);
        if Some(line) != failure.line || !trace.is_empty() {
            trace.push(format!("`{}` called at line {line}", frame.name));
        }
    }
    if !trace.is_empty() {
        let omitted = trace.len().saturating_sub(MAX_TRACE_CALLERS);
        trace.truncate(MAX_TRACE_CALLERS);
        if omitted > 0 {
            trace.push(format!("and {omitted} more"));
        }
        failure.message.push_str(" (");
        failure.message.push_str(&trace.join(", "));
        failure.message.push(')');
    }
}

/// Returns `script_error` with the location and call stack of `error`.
pub(super) fn replace_error(error: &starlark::Error, script_error: ScriptError) -> starlark::Error {
    let mut replacement = starlark::Error::from(script_error);
    if let Some(span) = error.span() {
        replacement.set_span(span.span, &span.file);
    }
    replacement.set_call_stack(|| error.call_stack().clone());
    replacement
}
