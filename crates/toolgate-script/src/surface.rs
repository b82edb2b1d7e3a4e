//! The four tools that stand for all others, and what a script's run is to a model.
//!
//! Every word here is sent with every request, so each has to earn its place; a test holds the
//! whole to 600 tokens.

use std::fmt::Write as _;

/// A tool as models are told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Definition {
    pub name: &'static str,
    pub description: &'static str,
    /// A JSON Schema, as text.
    pub parameters: &'static str,
}

pub const LIST: &str = "listToolFiles";
pub const READ: &str = "readToolFile";
pub const DOCS: &str = "getToolDocs";
pub const EXECUTE: &str = "executeToolCode";

/// The four tools, in the order in which they are used.
pub const TOOLS: [Definition; 4] = [
    Definition {
        name: LIST,
        description: "List the servers whose tools you can call from code, one .pyi file each. Start here: these tools are not in your tool list.",
        parameters: r#"{"type":"object","properties":{}}"#,
    },
    Definition {
        name: READ,
        description: "Read a .pyi file: one typed Python signature per tool. A \"key?\" may be missing.",
        parameters: r#"{"type":"object","properties":{"fileName":{"type":"string","description":"servers/youtube.pyi; with * as wildcard to search all: servers/*/*video*"},"startLine":{"type":"integer"},"endLine":{"type":"integer"}},"required":["fileName"]}"#,
    },
    Definition {
        name: DOCS,
        description: "Full docs of one tool, if its signature is not enough.",
        parameters: r#"{"type":"object","properties":{"server":{"type":"string"},"tool":{"type":"string"}},"required":["server","tool"]}"#,
    },
    Definition {
        name: EXECUTE,
        description: "Run Python (Starlark) that calls tools: listToolFiles, readToolFile, then do the whole job in one script.\n\
            - Call server.tool(arg=value), keyword arguments only. It returns data: d[\"key\"] or d.get(\"key\"), not d.key.\n\
            - Assign `result` (JSON) or print(). You see only that, not tool outputs: filter and aggregate in the script. Nothing is kept between runs.\n\
            - parallel([(server.tool, {\"arg\": v}), ...]) calls side by side and returns a list in order.\n\
            - attempt(lambda: server.tool(arg=v)) catches a failure: it gives {\"ok\": True, \"value\": ...} or {\"ok\": False, \"error\": \"...\"}.\n\
            - Not in the language: import, while, try, class, with, is (write ==), generator expressions (write [x for x in y]), f-string format specs (write format(x, \".2f\")), a < b < c, ** and unpacking with *. Use for, range, def, lambda, json.loads/dumps, sum, sorted, round.",
        parameters: r#"{"type":"object","properties":{"code":{"type":"string"}},"required":["code"]}"#,
    },
];

impl Definition {
    /// As a chat completion request carries it.
    pub fn for_chat(&self) -> String {
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

/// How often a script called a tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Called {
    /// `server.tool`, as identifiers.
    pub tool: String,
    pub succeeded: usize,
    pub failed: usize,
}

/// How much of a run a model sees, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    pub result: usize,
    pub printed: usize,
    /// Tools in the list of calls.
    pub calls: usize,
}

impl Default for Shown {
    fn default() -> Self {
        Self {
            result: 64 * 1024,
            printed: 16 * 1024,
            calls: 30,
        }
    }
}

/// What `executeToolCode` says of a script that came to its end: the result on a line of its own,
/// the calls that were made on the next, and then what was printed, which nothing follows.
pub fn answer(result: Option<&str>, printed: &str, calls: &[Called], shown: Shown) -> String {
    let mut text = String::new();
    match (result, printed.trim().is_empty()) {
        (Some(result), _) => {
            text.push_str(&cut(result, shown.result, "assign less to `result`"));
            text.push('\n');
        }
        (None, true) => text.push_str("no result: assign to `result` or print()\n"),
        (None, false) => {}
    }
    if !calls.is_empty() {
        let _ = writeln!(text, "{}", made(calls, shown.calls));
    }
    if !printed.trim().is_empty() {
        text.push_str("printed:\n");
        text.push_str(&cut(printed.trim_end(), shown.printed, "print less"));
        text.push('\n');
    }
    text.truncate(text.trim_end().len());
    text
}

/// The calls that a script made, on one line: `calls: crm.get_record×6, fs.write_file failed`.
pub fn made(calls: &[Called], most: usize) -> String {
    let mut text = "calls: ".to_owned();
    for (at, call) in calls.iter().take(most).enumerate() {
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
    if calls.len() > most {
        let _ = write!(text, ", and {} more tools", calls.len() - most);
    }
    text
}

/// A text within a bound, with a word on what to do about it.
fn cut(text: &str, limit: usize, advice: &str) -> String {
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
