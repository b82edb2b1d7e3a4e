//! The four code mode tools offered to models, and the text a model sees of a script run.
//!
//! The definitions are sent with every request, so every word counts; a test limits them to 600 tokens.

use std::fmt::Write as _;

/// Definition of a tool as sent to models.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ToolDefinition {
    pub name: &'static str,
    pub description: &'static str,
    /// JSON Schema of the arguments.
    pub parameters: &'static str,
}

pub const LIST_TOOL_FILES: &str = "listToolFiles";
pub const READ_TOOL_FILE: &str = "readToolFile";
pub const GET_TOOL_DOCS: &str = "getToolDocs";
pub const EXECUTE_TOOL_CODE: &str = "executeToolCode";

/// The four tools, in the order in which a model uses them.
pub const TOOLS: [ToolDefinition; 4] = [
    ToolDefinition {
        name: LIST_TOOL_FILES,
        description: "List the servers whose tools you can call from code, one .pyi file each. Start here: these tools are not in your tool list.",
        parameters: r#"{"type":"object","properties":{}}"#,
    },
    ToolDefinition {
        name: READ_TOOL_FILE,
        description: "Read a .pyi file: one typed Python signature per tool. A \"key?\" may be missing.",
        parameters: r#"{"type":"object","properties":{"fileName":{"type":"string","description":"servers/youtube.pyi; with * as wildcard to search all: servers/*/*video*"},"startLine":{"type":"integer"},"endLine":{"type":"integer"}},"required":["fileName"]}"#,
    },
    ToolDefinition {
        name: GET_TOOL_DOCS,
        description: "Full docs of one tool, if its signature is not enough.",
        parameters: r#"{"type":"object","properties":{"server":{"type":"string"},"tool":{"type":"string"}},"required":["server","tool"]}"#,
    },
    ToolDefinition {
        name: EXECUTE_TOOL_CODE,
        description: "Run Python (Starlark) that calls tools: listToolFiles, readToolFile, then do the whole job in one script.\n\
            - Call server.tool(arg=value), keyword arguments only. It returns data: d[\"key\"] or d.get(\"key\"), not d.key.\n\
            - Assign `result` (JSON) or print(). You see only that, not tool outputs: filter and aggregate in the script. Nothing is kept between runs.\n\
            - parallel([(server.tool, {\"arg\": v}), ...]) runs calls concurrently and returns their results in order.\n\
            - attempt(lambda: server.tool(arg=v)) catches a failure: it returns {\"ok\": True, \"value\": ...} or {\"ok\": False, \"error\": \"...\"}.\n\
            - Not in the language: import, while, try, class, with, is (write ==), generator expressions (write [x for x in y]), f-string format specs (write format(x, \".2f\")), a < b < c, ** and unpacking with *. Use for, range, def, lambda, json.loads/dumps, sum, sorted, round.",
        parameters: r#"{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}"#,
    },
];

impl ToolDefinition {
    /// Encodes the definition for a chat completion request.
    pub fn to_chat_json(&self) -> String {
        let Self {
            name,
            description,
            parameters,
        } = self;
        let description = serde_json::Value::from(*description);
        format!(
            r#"{{"type":"function","function":{{"name":"{name}","description":{description},"parameters":{parameters}}}}}"#
        )
    }
}

/// Number of calls a script made to one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallCount {
    /// Identifiers in the form `server.tool`.
    pub tool: String,
    pub succeeded: usize,
    pub failed: usize,
}

/// Limits on the text a model sees of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputLimits {
    /// Bytes of the result.
    pub result: usize,
    /// Bytes of the printed output.
    pub printed: usize,
    /// Number of tools in the list of calls.
    pub calls: usize,
}

impl Default for OutputLimits {
    fn default() -> Self {
        Self {
            result: 64 * 1024,
            printed: 16 * 1024,
            calls: 30,
        }
    }
}

/// Formats the output of `executeToolCode` for a completed script.
///
/// The result comes on the first line, the calls on the second, then the printed output. Printed
/// output is last so that it cannot imitate the lines above.
pub fn format_run(
    result: Option<&str>,
    printed: &str,
    calls: &[CallCount],
    limits: OutputLimits,
) -> String {
    let mut text = String::new();
    match (result, printed.trim().is_empty()) {
        (Some(result), _) => {
            text.push_str(&truncate_with_advice(
                result,
                limits.result,
                "assign less to `result`",
            ));
            text.push('\n');
        }
        (None, true) => text.push_str("no result: assign to `result` or print()\n"),
        (None, false) => {}
    }
    if !calls.is_empty() {
        let _ = writeln!(text, "{}", format_calls(calls, limits.calls));
    }
    if !printed.trim().is_empty() {
        text.push_str("printed:\n");
        text.push_str(&truncate_with_advice(
            printed.trim_end(),
            limits.printed,
            "print less",
        ));
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

/// Formats the calls of a script on one line: `calls: crm.get_record×6, fs.write_file failed`.
pub fn format_calls(calls: &[CallCount], max_tools: usize) -> String {
    let mut text = "calls: ".to_owned();
    for (at, call) in calls.iter().take(max_tools).enumerate() {
        if at > 0 {
            text.push_str(", ");
        }
        text.push_str(&call.tool);
        let _ = match (call.succeeded, call.failed) {
            (0, 1) => write!(text, " failed"),
            (0, failed) => write!(text, "×{failed} failed"),
            (1, 0) => Ok(()),
            (succeeded, 0) => write!(text, "×{succeeded}"),
            (succeeded, failed) => write!(text, "×{} ({failed} failed)", succeeded + failed),
        };
    }
    if calls.len() > max_tools {
        let _ = write!(text, ", and {} more tools", calls.len() - max_tools);
    }
    text
}

/// Truncates `text` to `limit` bytes and appends advice on how to shorten it.
fn truncate_with_advice(text: &str, limit: usize, advice: &str) -> String {
    if text.len() <= limit {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(limit);
    format!(
        "{}… ({} more bytes; {advice})",
        &text[..end],
        text.len() - end
    )
}

#[cfg(test)]
mod tests;
