//! What a model is told of a script, and what is recorded of it.

use std::fmt::Write as _;

use serde_json::{Value, json};
use toolgate_script::protocol::{Failure, FailureKind};
use toolgate_script::surface::{self, Called, Shown};

use super::journal::{KeptScript, ScriptState};
use super::run::{End, Run};
use super::value::for_model;
use crate::result::ToolResult;

/// Names that a hint lists.
const LISTED: usize = 30;
/// Bytes of an error or a hint.
const LONGEST: usize = 4096;

pub(super) fn text(text: &str) -> ToolResult {
    ToolResult::from_value(&json!({"content": [{"type": "text", "text": text}]}))
}

/// An answer that tells a model what to do.
pub(crate) fn advice(text: &str) -> ToolResult {
    ToolResult::from_value(&json!({"isError": true, "content": [{"type": "text", "text": text}]}))
}

/// What is said of a script that was gone on with already.
pub(super) fn begun(kept: &KeptScript) -> ToolResult {
    let made = kept.steps.iter().flatten().count();
    advice(&match kept.state {
        ScriptState::Done => {
            "this script has already run to its end and is not run again".to_owned()
        }
        ScriptState::Waiting | ScriptState::Running => format!(
            "this script is being gone on with, or was when the gateway ended: its outcome is unknown, it may have run; {made} calls were made before that"
        ),
    })
}

pub(super) fn of(run: &Run<'_>, end: &End) -> ToolResult {
    let calls = called(run);
    match end {
        End::Done(value) => {
            let value = value.as_deref().map(for_model);
            let value = value.as_deref().map(|value| value.get());
            text(&surface::answer(
                value,
                &run.printed,
                &calls,
                Shown::default(),
            ))
        }
        End::Failed(failure) => advice(&failed(run, failure, &calls)),
        End::Waits(_) => advice("the script waits"),
    }
}

fn failed(run: &Run<'_>, failure: &Failure, calls: &[Called]) -> String {
    let mut said = match &failure.kind {
        FailureKind::Syntax => "syntax error".to_owned(),
        FailureKind::Limit(which) => format!("the script was stopped ({which})"),
        _ => "the script failed".to_owned(),
    };
    match (failure.line, failure.column) {
        (Some(line), Some(column)) => _ = write!(said, " at line {line}, column {column}"),
        (Some(line), None) => _ = write!(said, " at line {line}"),
        _ => {}
    }
    _ = write!(said, ": {}", cut(&failure.message));
    let own = hints(run, failure);
    let theirs = match &failure.kind {
        // Of all servers more is known here.
        FailureKind::UnknownTool { .. } => &[],
        _ => failure.hints.as_slice(),
    };
    for hint in theirs.iter().chain(&own) {
        _ = write!(said, "\n- {}", cut(hint));
    }
    if !calls.is_empty() {
        let made = surface::made(calls, Shown::default().calls);
        _ = write!(
            said,
            "\n{made} (these are done; do not repeat those with effects)"
        );
    }
    if !run.printed.trim().is_empty() {
        let printed = surface::answer(None, &run.printed, &[], Shown::default());
        _ = write!(said, "\n{printed}");
    }
    said
}

/// A text as long as it helps.
fn cut(text: &str) -> &str {
    &text[..text.floor_char_boundary(LONGEST)]
}

/// What the worker cannot know.
fn hints(run: &Run<'_>, failure: &Failure) -> Vec<String> {
    let bindings = run.bindings;
    match &failure.kind {
        FailureKind::UndefinedName(name) => {
            let mut hints = Vec::new();
            let near = bindings.nearest(name);
            if !near.is_empty() {
                hints.push(format!("did you mean `{}`?", near.join("` or `")));
            }
            let servers = bindings.servers();
            let names: Vec<&str> = servers
                .iter()
                .take(LISTED)
                .map(|server| &*server.identifier)
                .collect();
            let more = match servers.len() > LISTED {
                true => ", … (listToolFiles)",
                false => "",
            };
            hints.push(format!("servers: {}{more}", names.join(", ")));
            hints
        }
        FailureKind::UnknownTool { server, tool } => {
            let near = bindings.nearest(&format!("{server}.{tool}"));
            let file = format!("readToolFile(\"servers/{server}.pyi\") lists its tools");
            match near.is_empty() {
                true => vec![file],
                false => vec![format!("did you mean `{}`?", near.join("` or `")), file],
            }
        }
        FailureKind::BadCall { server, tool } => {
            let found = bindings.called(server, tool);
            found
                .map(|tool| format!("it is: {}", tool.signature()))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

/// The calls that a script has made, in words; nothing if there are none.
pub(super) fn made(run: &Run<'_>) -> String {
    match called(run).as_slice() {
        [] => String::new(),
        calls => format!("; so far {}", surface::made(calls, Shown::default().calls)),
    }
}

fn called(run: &Run<'_>) -> Vec<Called> {
    let mut called: Vec<Called> = Vec::new();
    for call in &run.calls {
        let known = called.iter_mut().find(|known| known.tool == call.name);
        let (succeeded, failed) = (usize::from(!call.failed), usize::from(call.failed));
        match known {
            Some(known) => {
                known.succeeded += succeeded;
                known.failed += failed;
            }
            None => called.push(Called {
                tool: call.name.clone(),
                succeeded,
                failed,
            }),
        }
    }
    called
}

/// What the audit trail says of a script, beside its code and its result.
pub(super) fn record(run: &Run<'_>, end: &End, saved_tokens: u64) -> Value {
    let mut record = json!({"calls": run.calls.len(), "saved_tokens": saved_tokens});
    if let End::Failed(Failure {
        kind: FailureKind::Limit(which),
        ..
    }) = end
    {
        record["limit"] = json!(which);
    }
    record
}
