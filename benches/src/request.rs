//! Requests of every API that is measured, with what their answers must contain.

use crate::load::{Exchange, Expect, Method};
use crate::mock::mcp::{self, Era};
use crate::mock::model::{self, Dialect};
use crate::mock::tools;

const SYSTEM: &str = "You are a helpful assistant that answers questions about the records of a company. Answer briefly, and say so if you do not know.";
const USER: &str = "How many invoices are open, and how old is the oldest of them?";

/// Whether an answer comes at once or in pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    Whole,
    Stream,
}

/// A request to a model; `tools` are definitions with commas between them.
pub(crate) fn model(dialect: Dialect, model: &str, form: Form, tools: &str) -> Exchange {
    let stream = match form {
        Form::Whole => "",
        Form::Stream => r#""stream":true,"#,
    };
    let head = format!(r#"{{"model":"{model}",{stream}"#);
    let tools = match tools {
        "" => String::new(),
        tools => format!(r#","tools":[{tools}]"#),
    };
    let user = format!(r#"{{"role":"user","content":"{USER}"}}"#);
    let (path, body) = match dialect {
        Dialect::Chat => (
            "/v1/chat/completions",
            format!(
                r#"{head}"temperature":0.2,"messages":[{{"role":"system","content":"{SYSTEM}"}},{user}]{tools}}}"#
            ),
        ),
        Dialect::Responses => (
            "/v1/responses",
            format!(r#"{head}"instructions":"{SYSTEM}","input":[{user}]{tools}}}"#),
        ),
        Dialect::Messages => (
            "/v1/messages",
            format!(r#"{head}"max_tokens":512,"system":"{SYSTEM}","messages":[{user}]{tools}}}"#),
        ),
    };
    Exchange {
        path: path.to_owned(),
        body,
        expect: match form {
            Form::Whole => contains(model::MARKER),
            Form::Stream => Expect {
                marker: model::PIECE.to_owned(),
                times: model::PIECES,
                end: dialect.end().to_owned(),
            },
        },
        ..Exchange::default()
    }
}

/// A request that a model answers after so many rounds with a tool.
pub(crate) fn agent(rounds: usize) -> Exchange {
    let name = format!("mock/rounds-{rounds}");
    model(Dialect::Chat, &name, Form::Whole, "")
}

/// `tools/call` at an MCP endpoint.
pub(crate) fn call(era: Era, path: &str, tool: &str) -> Exchange {
    let params = format!(r#""name":"{tool}","arguments":{}"#, tools::ARGUMENTS);
    rpc(
        era,
        path,
        ("tools/call", Some(tool)),
        &params,
        contains(mcp::MARKER),
    )
}

/// `tools/list` at an MCP endpoint, which has to show so many tools; 0 for any number.
pub(crate) fn list(era: Era, path: &str, tools: usize) -> Exchange {
    let expect = Expect {
        marker: r#""inputSchema""#.to_owned(),
        times: tools,
        ..Expect::default()
    };
    rpc(era, path, ("tools/list", None), "", expect)
}

/// A tool call as a model asks for it.
pub(crate) fn execute(alias: &str) -> Exchange {
    let arguments = serde_json::Value::from(tools::ARGUMENTS);
    Exchange {
        path: "/v1/mcp/tool/execute".to_owned(),
        body: format!(
            r#"{{"id":"call_1","type":"function","function":{{"name":"{alias}","arguments":{arguments}}}}}"#
        ),
        expect: contains(mcp::MARKER),
        ..Exchange::default()
    }
}

/// A script that calls one tool several times.
pub(crate) fn script(server: &str, tool: &str, calls: usize) -> Exchange {
    let arguments = serde_json::Value::from(tools::ARGUMENTS);
    let code_of = format!(
        "arguments = json.loads({arguments})\nfor i in range({calls}):\n    result = {server}.{tool}(arguments)\n"
    );
    code(&code_of, mcp::MARKER)
}

/// Any script, and what stands in its answer.
pub(crate) fn code(code: &str, marker: &str) -> Exchange {
    let arguments = serde_json::json!({"code": code}).to_string();
    let arguments = serde_json::Value::from(arguments);
    Exchange {
        path: "/v1/mcp/tool/execute".to_owned(),
        body: format!(
            r#"{{"id":"call_1","type":"function","function":{{"name":"executeToolCode","arguments":{arguments}}}}}"#
        ),
        expect: contains(marker),
        ..Exchange::default()
    }
}

/// The administrator's list of servers.
pub(crate) fn clients(servers: usize) -> Exchange {
    Exchange {
        method: Method::Get,
        path: "/api/mcp/clients?limit=1000".to_owned(),
        expect: Expect {
            marker: r#""stderr_tail""#.to_owned(),
            times: servers,
            ..Expect::default()
        },
        ..Exchange::default()
    }
}

fn rpc(
    era: Era,
    path: &str,
    (method, name): (&str, Option<&str>),
    params: &str,
    expect: Expect,
) -> Exchange {
    let mut headers = vec![("accept", "application/json, text/event-stream")];
    headers.push(("mcp-protocol-version", era.version()));
    let (meta, sessions) = match era {
        Era::Legacy => (String::new(), 1),
        Era::Modern => {
            headers.push(("mcp-method", method));
            headers.extend(name.map(|name| ("mcp-name", name)));
            let comma = if params.is_empty() { "" } else { "," };
            let meta = format!(
                r#"{comma}"_meta":{{"io.modelcontextprotocol/protocolVersion":"{}","io.modelcontextprotocol/clientInfo":{{"name":"bench","version":"1"}},"io.modelcontextprotocol/clientCapabilities":{{}}}}"#,
                era.version()
            );
            (meta, 0)
        }
    };
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    Exchange {
        path: path.to_owned(),
        headers: headers.into_iter().map(owned).collect(),
        body: format!(
            r#"{{"jsonrpc":"2.0","id":7,"method":"{method}","params":{{{params}{meta}}}}}"#
        ),
        expect,
        sessions,
        ..Exchange::default()
    }
}

fn contains(marker: &str) -> Expect {
    Expect {
        marker: marker.to_owned(),
        ..Expect::default()
    }
}

impl Exchange {
    /// The same with a key.
    pub(crate) fn with_key(mut self, key: &str) -> Self {
        let value = format!("Bearer {key}");
        self.headers.push(("authorization".to_owned(), value));
        self
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_body_is_json() {
        let mut all = vec![execute("a_b"), call(Era::Legacy, "/mcp", "t")];
        all.push(call(Era::Modern, "/mcp", "t"));
        all.push(list(Era::Modern, "/mcp", 3));
        for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
            all.push(model(dialect, "m", Form::Stream, &tools::function("s", 1)));
        }
        for exchange in all {
            assert!(serde_json::from_str::<Value>(&exchange.body).is_ok());
        }
    }
}
