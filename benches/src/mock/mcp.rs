//! An MCP server that answers at once: the answers are encoded beforehand.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::tools;

/// What every call is answered with.
pub(crate) const MARKER: &str = "bench-ok";
/// Tools on a page of the list.
const PAGE: usize = 1000;

/// The revisions that matter: the last but one with sessions, and the one without.
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

    /// As it stands in paths and flags.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::Legacy => "25",
            Self::Modern => "26",
        }
    }

    pub(crate) fn parse(short: &str) -> Option<Self> {
        [Self::Legacy, Self::Modern]
            .into_iter()
            .find(|era| era.short() == short)
    }
}

/// A server of one era with a number of tools.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub(crate) era: Era,
    hello: Arc<str>,
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

impl Server {
    pub(crate) fn new(era: Era, tools: usize) -> Self {
        let info = r#"{"name":"bench","version":"1"}"#;
        let (stamp, kept) = match era {
            Era::Legacy => (String::new(), ""),
            Era::Modern => (
                format!(
                    r#","resultType":"complete","_meta":{{"io.modelcontextprotocol/serverInfo":{info}}}"#
                ),
                r#","ttlMs":600000,"cacheScope":"public""#,
            ),
        };
        let hello = match era {
            Era::Legacy => format!(
                r#"{{"protocolVersion":"{}","capabilities":{{"tools":{{}}}},"serverInfo":{info}}}"#,
                era.version()
            ),
            Era::Modern => format!(
                r#"{{"supportedVersions":["{}"],"capabilities":{{"tools":{{}}}}{kept}{stamp}}}"#,
                era.version()
            ),
        };
        let numbers: Vec<usize> = (0..tools).collect();
        let pages = numbers.chunks(PAGE).map(|page| {
            let tools: Vec<String> = page
                .iter()
                .map(|number| tools::definition(*number))
                .collect();
            let next = page.last().map_or(0, |last| last + 1);
            let cursor = match next < numbers.len() {
                true => format!(r#","nextCursor":"{}""#, next / PAGE),
                false => String::new(),
            };
            format!(r#"{{"tools":[{}]{cursor}{kept}{stamp}}}"#, tools.join(","))
        });
        let call = format!(
            r#"{{"content":[{{"type":"text","text":"{MARKER}: 3 records found, the best is number 17"}}],"isError":false{stamp}}}"#
        );
        Self {
            era,
            hello: hello.into(),
            call: call.into(),
            pages: pages.collect(),
        }
    }

    /// The answer to a message, unless it is a notification.
    pub(crate) fn answer(&self, text: &str) -> Option<String> {
        let Ok(Message { id, method, params }) = serde_json::from_str(text) else {
            return Some(error("null", -32700, "this is no message"));
        };
        let id = id?.get();
        let result = match (self.era, method.as_deref()?) {
            (Era::Legacy, "initialize") | (Era::Modern, "server/discover") => &*self.hello,
            (_, "tools/call") => &*self.call,
            (_, "tools/list") => self.page(params),
            (Era::Legacy, "ping") => "{}",
            _ => return Some(error(id, -32601, "unknown method")),
        };
        Some(format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#
        ))
    }

    fn page(&self, params: Option<&RawValue>) -> &str {
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

fn error(id: &str, code: i64, message: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_tool_is_listed_once_over_all_pages() {
        let server = Server::new(Era::Modern, 2500);
        let (mut seen, mut cursor) = (0, String::new());
        loop {
            let asked = format!(r#"{{"id":1,"method":"tools/list","params":{{{cursor}}}}}"#);
            let answer: Value = serde_json::from_str(&server.answer(&asked).unwrap()).unwrap();
            let tools = answer["result"]["tools"].as_array().unwrap();
            assert_eq!(tools[0]["name"], tools::name(seen));
            seen += tools.len();
            match answer["result"]["nextCursor"].as_str() {
                Some(next) => cursor = format!(r#""cursor":"{next}""#),
                None => break,
            }
        }
        assert_eq!(seen, 2500);
    }

    #[test]
    fn notifications_and_unknown_methods() {
        let server = Server::new(Era::Legacy, 1);
        assert!(
            server
                .answer(r#"{"method":"notifications/initialized"}"#)
                .is_none()
        );
        let refused = server
            .answer(r#"{"id":2,"method":"server/discover"}"#)
            .unwrap();
        assert!(refused.contains("-32601"));
    }
}
