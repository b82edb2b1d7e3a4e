//! Mock MCP server that responds immediately with pre-encoded results.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::tools;

/// Text in the result of every call.
pub(crate) const MARKER: &str = "bench-ok";
/// Tools per page of `tools/list`.
const TOOLS_PER_PAGE: usize = 1000;

/// Protocol revisions under test: one with sessions, and one without.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Era {
    Legacy,
    Modern,
}

impl Era {
    pub(crate) fn version(self) -> &'static str {
        match self {
            Self::Legacy => "2025-06-18",
            Self::Modern => "2026-07-28",
        }
    }

    /// Returns the short form used in paths and flags.
    pub(crate) fn as_short(self) -> &'static str {
        match self {
            Self::Legacy => "25",
            Self::Modern => "26",
        }
    }

    pub(crate) fn parse(short: &str) -> Option<Self> {
        [Self::Legacy, Self::Modern]
            .into_iter()
            .find(|era| era.as_short() == short)
    }
}

/// A server of one era with a fixed number of tools.
#[derive(Clone, Debug)]
pub(crate) struct MockMcpServer {
    pub(crate) era: Era,
    handshake: Arc<str>,
    call: Arc<str>,
    pages: Arc<[String]>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    params: Option<&'a RawValue>,
}

impl MockMcpServer {
    pub(crate) fn new(era: Era, tools: usize) -> Self {
        let info = r#"{"name":"bench","version":"1"}"#;
        let (modern_fields, cache_fields) = match era {
            Era::Legacy => (String::new(), ""),
            Era::Modern => (
                format!(
                    r#","resultType":"complete","_meta":{{"io.modelcontextprotocol/serverInfo":{info}}}"#
                ),
                r#","ttlMs":600000,"cacheScope":"public""#,
            ),
        };
        let handshake = match era {
            Era::Legacy => format!(
                r#"{{"protocolVersion":"{}","capabilities":{{"tools":{{}}}},"serverInfo":{info}}}"#,
                era.version()
            ),
            Era::Modern => format!(
                r#"{{"supportedVersions":["{}"],"capabilities":{{"tools":{{}}}}{cache_fields}{modern_fields}}}"#,
                era.version()
            ),
        };
        let numbers: Vec<usize> = (0..tools).collect();
        let pages = numbers.chunks(TOOLS_PER_PAGE).map(|page| {
            let tools: Vec<String> = page
                .iter()
                .map(|number| tools::definition(*number))
                .collect();
            let next = page.last().map_or(0, |last| last + 1);
            let cursor = if next < numbers.len() {
                format!(r#","nextCursor":"{}""#, next / TOOLS_PER_PAGE)
            } else {
                String::new()
            };
            format!(
                r#"{{"tools":[{}]{cursor}{cache_fields}{modern_fields}}}"#,
                tools.join(",")
            )
        });
        let call = format!(
            r#"{{"content":[{{"type":"text","text":"{MARKER}: 3 records found, the best is number 17"}}],"isError":false{modern_fields}}}"#
        );
        Self {
            era,
            handshake: handshake.into(),
            call: call.into(),
            pages: pages.collect(),
        }
    }

    /// Returns the response to a message; `None` for a notification.
    pub(crate) fn respond(&self, text: &str) -> Option<String> {
        let Ok(Message { id, method, params }) = serde_json::from_str(text) else {
            return Some(error_response("null", -32700, "invalid message"));
        };
        let id = id?.get();
        let result = match (self.era, method.as_deref()?) {
            (Era::Legacy, "initialize") | (Era::Modern, "server/discover") => &*self.handshake,
            (_, "tools/call") => &*self.call,
            (_, "tools/list") => self.tools_page(params),
            (Era::Legacy, "ping") => "{}",
            _ => return Some(error_response(id, -32601, "unknown method")),
        };
        Some(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ))
    }

    fn tools_page(&self, params: Option<&RawValue>) -> &str {
        #[derive(Deserialize)]
        struct Params {
            #[serde(default)]
            cursor: Option<String>,
        }
        let params: Option<Params> =
            params.and_then(|params| serde_json::from_str(params.get()).ok());
        let cursor: Option<usize> = params.and_then(|params| params.cursor?.parse().ok());
        let page = self.pages.get(cursor.unwrap_or(0));
        page.map_or(r#"{"tools":[]}"#, |page| page)
    }
}

fn error_response(id: &str, code: i64, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_tool_is_listed_once_over_all_pages() {
        let server = MockMcpServer::new(Era::Modern, 2500);
        let (mut seen, mut cursor) = (0, String::new());
        loop {
            let request = format!(r#"{{"id":1,"method":"tools/list","params":{{{cursor}}}}}"#);
            let response: Value = serde_json::from_str(&server.respond(&request).unwrap()).unwrap();
            let tools = response["result"]["tools"].as_array().unwrap();
            assert_eq!(tools[0]["name"], tools::tool_name(seen));
            seen += tools.len();
            match response["result"]["nextCursor"].as_str() {
                Some(next) => cursor = format!(r#""cursor":"{next}""#),
                None => break,
            }
        }
        assert_eq!(seen, 2500);
    }

    #[test]
    fn notifications_get_no_response_and_unknown_methods_an_error() {
        let server = MockMcpServer::new(Era::Legacy, 1);
        assert!(
            server
                .respond(r#"{"method":"notifications/initialized"}"#)
                .is_none()
        );
        let refused = server
            .respond(r#"{"id":2,"method":"server/discover"}"#)
            .unwrap();
        assert!(refused.contains("-32601"));
    }
}
