//! Requests to every API under test, with their expected responses.

use crate::load::{Exchange, Expectation, Method};
use crate::mock::mcp::{self, Era};
use crate::mock::model::{self, Dialect};
use crate::mock::tools;

const SYSTEM: &str = "You are a helpful assistant that answers questions about the records of a company. Answer briefly, and say so if you do not know.";
const USER: &str = "How many invoices are open, and how old is the oldest of them?";

/// Whether a response is complete or streamed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ResponseMode {
    Whole,
    Stream,
}

/// Builds a model request; `tools` holds comma-separated definitions.
pub(crate) fn model_request(
    dialect: Dialect,
    model: &str,
    form: ResponseMode,
    tools: &str,
) -> Exchange {
    let stream = match form {
        ResponseMode::Whole => "",
        ResponseMode::Stream => r#""stream":true,"#,
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
            ResponseMode::Whole => expect_marker(model::MARKER),
            ResponseMode::Stream => Expectation {
                marker: model::PIECE.to_owned(),
                times: model::PIECES,
                end: dialect.stream_end_marker().to_owned(),
            },
        },
        ..Exchange::default()
    }
}

/// Builds an agent request that takes this many tool rounds.
pub(crate) fn agent_request(rounds: usize) -> Exchange {
    let name = format!("mock/rounds-{rounds}");
    model_request(Dialect::Chat, &name, ResponseMode::Whole, "")
}

/// Builds a `tools/call` request to an MCP endpoint.
pub(crate) fn tool_call(era: Era, path: &str, tool: &str) -> Exchange {
    let params = format!(r#""name":"{tool}","arguments":{}"#, tools::ARGUMENTS);
    rpc(
        era,
        path,
        &RpcMethod {
            method: "tools/call",
            name: Some(tool),
        },
        &params,
        expect_marker(mcp::MARKER),
    )
}

/// Builds a `tools/list` request that must return this many tools; 0 for any number.
pub(crate) fn tool_list(era: Era, path: &str, tools: usize) -> Exchange {
    let expect = Expectation {
        marker: r#""inputSchema""#.to_owned(),
        times: tools,
        ..Expectation::default()
    };
    let method = RpcMethod {
        method: "tools/list",
        name: None,
    };
    rpc(era, path, &method, "", expect)
}

/// Builds a tool execution request in the form of a model's tool call.
pub(crate) fn tool_execute(alias: &str) -> Exchange {
    let arguments = serde_json::Value::from(tools::ARGUMENTS);
    Exchange {
        path: "/v1/mcp/tool/execute".to_owned(),
        body: format!(
            r#"{{"id":"call_1","type":"function","function":{{"name":"{alias}","arguments":{arguments}}}}}"#
        ),
        expect: expect_marker(mcp::MARKER),
        ..Exchange::default()
    }
}

/// Builds a request for a script that calls one tool several times.
pub(crate) fn script_with_calls(server: &str, tool: &str, calls: usize) -> Exchange {
    let arguments = serde_json::Value::from(tools::ARGUMENTS);
    let code = format!(
        "arguments = json.loads({arguments})\nfor i in range({calls}):\n    result = {server}.{tool}(arguments)\n"
    );
    script_request(&code, mcp::MARKER)
}

/// Builds a request for a script whose response must contain `marker`.
pub(crate) fn script_request(code: &str, marker: &str) -> Exchange {
    let arguments = serde_json::json!({"code": code}).to_string();
    let arguments = serde_json::Value::from(arguments);
    Exchange {
        path: "/v1/mcp/tool/execute".to_owned(),
        body: format!(
            r#"{{"id":"call_1","type":"function","function":{{"name":"executeToolCode","arguments":{arguments}}}}}"#
        ),
        expect: expect_marker(marker),
        ..Exchange::default()
    }
}

/// Builds an admin request for the list of servers.
pub(crate) fn client_list(servers: usize) -> Exchange {
    Exchange {
        method: Method::Get,
        path: "/api/mcp/clients?limit=1000".to_owned(),
        expect: Expectation {
            marker: r#""stderr_tail""#.to_owned(),
            times: servers,
            ..Expectation::default()
        },
        ..Exchange::default()
    }
}

/// A method with the name that modern requests repeat in a header.
struct RpcMethod<'a> {
    method: &'a str,
    name: Option<&'a str>,
}

fn rpc(
    era: Era,
    path: &str,
    called: &RpcMethod<'_>,
    params: &str,
    expect: Expectation,
) -> Exchange {
    let RpcMethod { method, name } = *called;
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

fn expect_marker(marker: &str) -> Expectation {
    Expectation {
        marker: marker.to_owned(),
        ..Expectation::default()
    }
}

impl Exchange {
    /// Adds a bearer key.
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
    fn request_bodies_are_valid_json() {
        let mut all = vec![tool_execute("a_b"), tool_call(Era::Legacy, "/mcp", "t")];
        all.push(tool_call(Era::Modern, "/mcp", "t"));
        all.push(tool_list(Era::Modern, "/mcp", 3));
        for dialect in [Dialect::Chat, Dialect::Responses, Dialect::Messages] {
            all.push(model_request(
                dialect,
                "m",
                ResponseMode::Stream,
                &tools::function_definition("s", 1),
            ));
        }
        for exchange in all {
            assert!(serde_json::from_str::<Value>(&exchange.body).is_ok());
        }
    }
}
