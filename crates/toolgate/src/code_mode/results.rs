//! Tool results that report on scripts to models, and their audit details.

use std::fmt::Write as _;

use serde_json::{Value, json};
use toolgate_core::plural::count;
use toolgate_script::protocol::{FailureKind, ScriptFailure};
use toolgate_script::surface::{self, CallCount, OutputLimits};

use super::journal::{ScriptState, StoredScript};
use super::run::{ScriptEnd, ScriptRun};
use super::value::without_binary_data;
use crate::result::{ToolResult, error_result};

/// Server names listed in a hint.
const MAX_LISTED_SERVERS: usize = 30;
/// Size of an error message or a hint.
const MAX_MESSAGE_BYTES: usize = 4096;

pub(super) fn text_result(text: &str) -> ToolResult {
    ToolResult::from_value(&json!({"content": [{"type": "text", "text": text}]}))
}

/// Result for a script that is already being resumed or has ended.
pub(super) fn already_started(stored: &StoredScript) -> ToolResult {
    let calls = stored.steps.iter().flatten().count() as u64;
    error_result(&match stored.state {
        ScriptState::Done => {
            "this script has already run to completion and is not run again".to_owned()
        }
        ScriptState::Waiting | ScriptState::Running => format!(
            "this script is being resumed, or was when the gateway stopped: its outcome is unknown, it may have run; it had made {} before that",
            count(calls, "call", "calls")
        ),
    })
}

pub(super) fn script_result(run: &ScriptRun<'_>, end: &ScriptEnd) -> ToolResult {
    let calls = count_calls(run);
    match end {
        ScriptEnd::Done(value) => {
            let value = value.as_deref().map(without_binary_data);
            let value = value.as_deref().map(|value| value.get());
            text_result(&surface::format_run(
                value,
                &run.printed,
                &calls,
                OutputLimits::default(),
            ))
        }
        ScriptEnd::Failed(failure) => error_result(&failure_text(run, failure, &calls)),
        ScriptEnd::Waiting(_) => error_result("the script is waiting for a decision"),
    }
}

fn failure_text(run: &ScriptRun<'_>, failure: &ScriptFailure, calls: &[CallCount]) -> String {
    let mut text = match &failure.kind {
        FailureKind::Syntax => "syntax error".to_owned(),
        FailureKind::Limit(which) => format!("the script was stopped ({which})"),
        _ => "the script failed".to_owned(),
    };
    match (failure.line, failure.column) {
        (Some(line), Some(column)) => _ = write!(text, " at line {line}, column {column}"),
        (Some(line), None) => _ = write!(text, " at line {line}"),
        _ => {}
    }
    _ = write!(text, ": {}", truncate(&failure.message));
    let host_hints = failure_hints(run, failure);
    let worker_hints = match &failure.kind {
        // The host knows all servers, so its hints are better.
        FailureKind::UnknownTool { .. } => &[],
        _ => failure.hints.as_slice(),
    };
    for hint in worker_hints.iter().chain(&host_hints) {
        _ = write!(text, "\n- {}", truncate(hint));
    }
    if !calls.is_empty() {
        let made = surface::format_calls(calls, OutputLimits::default().calls);
        _ = write!(
            text,
            "\n{made} (these have run; do not repeat those with side effects)"
        );
    }
    if !run.printed.trim().is_empty() {
        let printed = surface::format_run(None, &run.printed, &[], OutputLimits::default());
        _ = write!(text, "\n{printed}");
    }
    text
}

fn truncate(text: &str) -> &str {
    &text[..text.floor_char_boundary(MAX_MESSAGE_BYTES)]
}

/// Hints that need all bindings, which the worker does not have.
fn failure_hints(run: &ScriptRun<'_>, failure: &ScriptFailure) -> Vec<String> {
    let bindings = run.bindings;
    match &failure.kind {
        FailureKind::UndefinedName(name) => {
            let mut hints = Vec::new();
            let near = bindings.find_similar(name);
            if !near.is_empty() {
                hints.push(format!("did you mean `{}`?", near.join("` or `")));
            }
            let servers = bindings.servers();
            let names: Vec<&str> = servers
                .iter()
                .take(MAX_LISTED_SERVERS)
                .map(|server| &*server.identifier)
                .collect();
            let more = if servers.len() > MAX_LISTED_SERVERS {
                ", … (listToolFiles)"
            } else {
                ""
            };
            hints.push(format!("servers: {}{more}", names.join(", ")));
            hints
        }
        FailureKind::UnknownTool { server, tool } => {
            let near = bindings.find_similar(&format!("{server}.{tool}"));
            let file = format!("readToolFile(\"servers/{server}.pyi\") lists its tools");
            if near.is_empty() {
                vec![file]
            } else {
                vec![format!("did you mean `{}`?", near.join("` or `")), file]
            }
        }
        FailureKind::BadCall { server, tool } => {
            let found = bindings.tool(server, tool);
            found
                .map(|tool| format!("signature: {}", tool.signature()))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Text listing the calls a script has made; empty if there are none.
pub(super) fn calls_made_text(run: &ScriptRun<'_>) -> String {
    match count_calls(run).as_slice() {
        [] => String::new(),
        calls => format!(
            "; so far {}",
            surface::format_calls(calls, OutputLimits::default().calls)
        ),
    }
}

fn count_calls(run: &ScriptRun<'_>) -> Vec<CallCount> {
    let mut counts: Vec<CallCount> = Vec::new();
    for call in &run.calls {
        let count = counts.iter_mut().find(|count| count.tool == call.name);
        let (succeeded, failed) = (usize::from(!call.failed), usize::from(call.failed));
        match count {
            Some(count) => {
                count.succeeded += succeeded;
                count.failed += failed;
            }
            None => counts.push(CallCount {
                tool: call.name.clone(),
                succeeded,
                failed,
            }),
        }
    }
    counts
}

/// Audit details of a script, in addition to its code and result.
pub(super) fn audit_details(run: &ScriptRun<'_>, end: &ScriptEnd, saved_tokens: u64) -> Value {
    let mut record = json!({"calls": run.calls.len(), "saved_tokens": saved_tokens});
    if let ScriptEnd::Failed(ScriptFailure {
        kind: FailureKind::Limit(which),
        ..
    }) = end
    {
        record["limit"] = json!(which);
    }
    record
}
