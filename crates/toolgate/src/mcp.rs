//! The gateway as an MCP server: what a client's requests are answered with.
//!
//! A [`Door`] shows all servers as one, under names that never clash and can be traced to their
//! server; or one server alone, with its raw names; or a virtual server. How messages come and go
//! is not here. Nothing that a caller may not use exists here either: everything goes through the
//! [`Gateway`].

mod approval;
mod asker;
mod batch;
mod client;
mod hearer;
mod items;
mod news;
mod pages;
mod tools;
mod uri;
mod watcher;

use std::borrow::Cow;

pub use asker::Asker;
pub use client::OldClient;
pub use news::{Subscription, Watch};
pub use pages::Page;
pub(crate) use pages::Pages;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use toolgate_core::name::ServerName;
use toolgate_core::scope::Filters;
pub use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::{Answer, INTERNAL_ERROR, INVALID_PARAMS, Object, RpcError};
use toolgate_mcp::serve::{
    Caching, RESOURCE_NOT_FOUND, VERSIONS, empty_object, for_legacy, for_modern, no_method, rpc,
};
use toolgate_mcp::transport::RequestError;

use crate::call::CallError;
use crate::caller::Caller;
use crate::gateway::Gateway;
use crate::result::asks_for_input;

/// What a client is told of all servers together.
const INSTRUCTIONS: &str = "Tools of several servers behind one gateway; each tool's name begins with its server's. Prompts are named `SERVER.PROMPT`, resources `toolgate://SERVER/URI`.";

/// Items on one page of a list.
const PAGE: usize = 1000;

/// Which part of the gateway a client talks to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Face {
    /// All servers as one.
    All,
    /// One server, with its raw names.
    Server(ServerName),
    /// A named subset.
    Virtual(String),
}

/// Where clients come in.
#[derive(Clone, Debug)]
pub struct Door {
    gateway: Gateway,
    face: Face,
    instructions: Option<Cow<'static, str>>,
}

#[derive(Deserialize, Default)]
struct ListParams {
    #[serde(default)]
    cursor: Option<String>,
}

impl Door {
    /// A door to a part of the gateway; none if no such part exists for the caller.
    pub fn open(gateway: &Gateway, face: Face, caller: &Caller) -> Option<Self> {
        let instructions = match &face {
            Face::All => Some(Cow::Borrowed(INSTRUCTIONS)),
            Face::Server(name) => {
                let entries = gateway.servers();
                let entry = entries.iter().find(|entry| entry.server.name == *name)?;
                let status = entry.status();
                let session = status.session.as_ref();
                session.and_then(|session| session.instructions.clone().map(Cow::Owned))
            }
            Face::Virtual(name) => gateway.virtual_server(name)?.description.map(Cow::Owned),
        };
        let door = Self {
            gateway: gateway.clone(),
            face,
            instructions,
        };
        let filters = door.filters(Filters::default());
        let exists = door.face == Face::All || gateway.sees_any_server(caller, &filters);
        exists.then_some(door)
    }

    /// The request's own filters, and those of this door.
    pub fn filters(&self, filters: Filters) -> Filters {
        Filters {
            server: match &self.face {
                Face::Server(name) => Some(name.clone()),
                Face::All | Face::Virtual(_) => None,
            },
            virtual_server: match &self.face {
                Face::Virtual(name) => Some(name.clone()),
                Face::All | Face::Server(_) => None,
            },
            ..filters
        }
    }

    /// What `initialize` is answered with.
    pub fn hello(&self, version: &str) -> Box<RawValue> {
        let hello = Object::new()
            .text("protocolVersion", version)
            .raw("capabilities", CAPABILITIES)
            .raw("serverInfo", server_info());
        raw(&self.with_instructions(hello))
    }

    /// What `server/discover` is answered with.
    pub fn discovered(&self) -> Box<RawValue> {
        let versions = to_raw_value(&VERSIONS).map_or_else(|_| "[]".to_owned(), |v| v.to_string());
        let discovered = Object::new()
            .raw("supportedVersions", &versions)
            .raw("capabilities", CAPABILITIES);
        raw(&self.with_instructions(discovered))
    }

    fn with_instructions(&self, object: Object) -> Object {
        match &self.instructions {
            Some(text) => object.text("instructions", text),
            None => object,
        }
    }

    /// Answers a request of either era.
    pub async fn answer(&self, asker: &Asker, method: &str, params: Option<&RawValue>) -> Answer {
        if method == "tools/list" {
            return self.tools(asker, params).map(|page| page.to_raw());
        }
        let caching = match method {
            "server/discover"
            | "resources/list"
            | "resources/templates/list"
            | "prompts/list"
            | "resources/read" => Caching::Private,
            _ => Caching::None,
        };
        let answer = self.found(asker, method, params).await;
        let answer = answer.map(|result| stamped(result, asker.era, caching));
        match asker.era {
            Era::Legacy => answer,
            Era::Modern => answer.map_err(|error| match error.code {
                RESOURCE_NOT_FOUND => RpcError {
                    code: INVALID_PARAMS,
                    ..error
                },
                _ => error,
            }),
        }
    }

    /// All but tool calls are boxed, so that they do not make every call larger.
    async fn found(&self, asker: &Asker, method: &str, params: Option<&RawValue>) -> Answer {
        match (method, asker.era) {
            ("ping", Era::Legacy) => Ok(empty_object()),
            ("logging/setLevel", Era::Legacy) => self.set_log_level(asker, params),
            ("server/discover", Era::Modern) => Ok(self.discovered()),
            ("tools/call", _) => self.call_tool(asker, params).await,
            ("resources/list", _) => self.list_resources(asker, params),
            ("resources/templates/list", _) => self.list_templates(asker, params),
            ("resources/read", _) => Box::pin(self.read_resource(asker, params)).await,
            ("prompts/list", _) => self.list_prompts(asker, params),
            ("prompts/get", _) => Box::pin(self.get_prompt(asker, params)).await,
            ("completion/complete", _) => Box::pin(self.complete(asker, params)).await,
            ("resources/subscribe", Era::Legacy) => Box::pin(self.subscribe(asker, params)).await,
            ("resources/unsubscribe", Era::Legacy) => Self::unsubscribe(asker, params),
            _ => Err(no_method(method)),
        }
    }

    /// Whether names and URIs are those of one server, and stay as they are.
    fn is_raw(&self) -> bool {
        matches!(self.face, Face::Server(_))
    }
}

const CAPABILITIES: &str = r#"{"tools":{"listChanged":true},"resources":{"listChanged":true,"subscribe":true},"prompts":{"listChanged":true},"completions":{},"logging":{}}"#;

/// A page of a list: what comes after the cursor, up to a page.
fn page<'a>(
    member: &str,
    items: impl Iterator<Item = (String, &'a RawValue)>,
    cursor: Option<&str>,
) -> Answer {
    let after = cursor.map(uri::decode).transpose();
    let after = after.map_err(|()| rpc(INVALID_PARAMS, "unknown cursor"))?;
    let mut items = items.skip_while(|(key, _)| after.as_ref().is_some_and(|after| key <= after));
    let mut list = String::from("[");
    let mut last = None;
    for (key, definition) in items.by_ref().take(PAGE) {
        if last.is_some() {
            list.push(',');
        }
        list.push_str(definition.get());
        last = Some(key);
    }
    list.push(']');
    let page = Object::new().raw(member, &list);
    Ok(raw(&match (items.next(), last) {
        (Some(_), Some(last)) => page.text("nextCursor", &uri::encode(&last)),
        _ => page,
    }))
}

/// The parameters of a request; absent ones are empty.
fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Result<T, RpcError> {
    let text = params.map_or("{}", RawValue::get);
    serde_json::from_str(text).map_err(|error| rpc(INVALID_PARAMS, error.to_string()))
}

/// What went wrong with a request that is no tool call.
fn failed(error: &CallError) -> RpcError {
    match said_by_server(error) {
        Some(error) => error.clone(),
        None => rpc(INTERNAL_ERROR, error.to_string()),
    }
}

/// The error that the server itself answered with.
fn said_by_server(error: &CallError) -> Option<&RpcError> {
    match error {
        CallError::Server {
            cause: RequestError::Rpc(error),
            ..
        }
        | CallError::Server {
            cause: RequestError::Status {
                rpc: Some(error), ..
            },
            ..
        } => Some(error),
        _ => None,
    }
}

/// A result as clients of an era want it.
fn stamped(result: Box<RawValue>, era: Era, caching: Caching) -> Box<RawValue> {
    match era {
        Era::Legacy => for_legacy(result),
        Era::Modern if asks_for_input(&result) => result,
        Era::Modern => for_modern(result, caching, server_info()),
    }
}

const fn server_info() -> &'static str {
    concat!(
        r#"{"name":"toolgate","title":"Toolgate","version":""#,
        env!("CARGO_PKG_VERSION"),
        r#""}"#
    )
}

fn raw(object: &Object) -> Box<RawValue> {
    RawValue::from_string(object.to_string()).unwrap_or_else(|_| empty_object())
}
