//! The gateway's own tools. They belong to no server, and are known under the reserved name.

use serde_json::{Value, json};
use toolgate_core::name::{ServerName, ToolId, ToolName};

use super::kept::{Kept, Part};
use crate::call::Arguments;
use crate::caller::Caller;
use crate::result::ToolResult;

/// Every spelling of the tool that reads on in a large result.
const READ_RESULT: [&str; 4] = [
    "toolgate_read_result",
    "toolgate-read_result",
    "mcp__toolgate__read_result",
    "toolgate.read_result",
];

pub(super) fn is_read_result(name: &str) -> bool {
    READ_RESULT.contains(&name)
}

/// The id under which it is recorded.
pub(super) fn read_result_id() -> ToolId {
    ToolId {
        server: ServerName::own(),
        tool: ToolName::new("read_result"),
    }
}

/// Reads on in a result that was too large for a model.
pub(super) fn read_result(
    kept: &Kept,
    caller: &Caller,
    arguments: &Arguments,
    most: usize,
) -> ToolResult {
    let value = arguments.value();
    let offset = value["offset"].as_u64().unwrap_or(0);
    let handle = value["handle"].as_str().unwrap_or_default();
    let answer = match kept.read(caller, handle, offset, most) {
        Some(part) => json!({"content": [{"type": "text", "text": shown(handle, part)}]}),
        None => json!({"isError": true, "content": [{"type": "text", "text":
            "no result is kept under this `handle`: it was kept for a while only, or belongs to another caller; call the tool again"}]}),
    };
    ToolResult::from_value(&answer)
}

fn shown(handle: &str, part: Part) -> String {
    let Part {
        text,
        offset,
        next,
        total,
    } = part;
    match next {
        None => text,
        Some(next) => {
            let more: Value = json!({"handle": handle, "offset": next});
            format!("{text}\n[bytes {offset} to {next} of {total}; for more: {more}]")
        }
    }
}
