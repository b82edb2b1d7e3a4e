//! Resources, templates, prompts and completion: listed from the catalog, asked of their server.

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use toolgate_core::catalog::{Item, Offer, with_text};
use toolgate_core::name::ServerName;
use toolgate_mcp::jsonrpc::{Answer, INVALID_PARAMS, Object, RpcError};
use toolgate_mcp::lane::Ask;
use toolgate_mcp::serve::{RESOURCE_NOT_FOUND, rpc};

use super::tools::{with_link, with_uri};
use super::{Asker, Door, Face, ListParams, failed, page, read, uri};

/// A list of items, and how clients of all servers know one.
struct Listing {
    member: &'static str,
    key: &'static str,
    items: fn(&Offer) -> &[Item],
    name: fn(&ServerName, &str) -> String,
}

#[derive(Deserialize)]
struct ReadParams {
    uri: String,
}

#[derive(Deserialize)]
struct PromptParams<'a> {
    name: String,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct CompleteParams<'a> {
    #[serde(borrow, rename = "ref")]
    reference: &'a RawValue,
    #[serde(borrow)]
    argument: &'a RawValue,
    #[serde(borrow, default)]
    context: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Reference {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uri: Option<String>,
}

impl Door {
    pub(super) fn list_resources(&self, asker: &Asker, params: Option<&RawValue>) -> Answer {
        let listing = Listing {
            member: "resources",
            key: "uri",
            items: |offer| &offer.resources,
            name: uri::wrap,
        };
        self.list_items(asker, params, &listing)
    }

    pub(super) fn list_templates(&self, asker: &Asker, params: Option<&RawValue>) -> Answer {
        let listing = Listing {
            member: "resourceTemplates",
            key: "uriTemplate",
            items: |offer| &offer.templates,
            name: uri::wrap,
        };
        self.list_items(asker, params, &listing)
    }

    pub(super) fn list_prompts(&self, asker: &Asker, params: Option<&RawValue>) -> Answer {
        let listing = Listing {
            member: "prompts",
            key: "name",
            items: |offer| &offer.prompts,
            name: uri::prompt,
        };
        self.list_items(asker, params, &listing)
    }

    fn list_items(&self, asker: &Asker, params: Option<&RawValue>, listing: &Listing) -> Answer {
        let servers = self.servers(asker)?;
        let catalog = self.gateway.catalog();
        let mut items: Vec<(String, Box<RawValue>)> = Vec::new();
        for server in &servers {
            let Some(offer) = catalog.offer(server) else {
                continue;
            };
            for item in (listing.items)(offer) {
                items.push(match self.is_raw() {
                    true => (item.key.clone(), item.definition.clone()),
                    false => {
                        let name = (listing.name)(server, &item.key);
                        let definition = with_text(&item.definition, listing.key, &name);
                        (name, definition)
                    }
                });
            }
        }
        items.sort_by(|a, b| a.0.cmp(&b.0));
        let listed = items.iter().map(|(key, item)| (key.clone(), &**item));
        let ListParams { cursor } = read(params)?;
        page(listing.member, listed, cursor.as_deref())
    }

    pub(super) async fn read_resource(&self, asker: &Asker, params: Option<&RawValue>) -> Answer {
        let params: ReadParams = read(params)?;
        let (server, own) = self.resource(asker, &params.uri)?;
        let ask = Ask {
            method: "resources/read",
            params: Object::new().text("uri", own),
            name: Some(own.to_owned()),
            ..Ask::default()
        };
        let result = self.ask(asker, &server, ask).await?;
        Ok(match self.is_raw() {
            true => result,
            false => each(&result, "contents", |content| with_uri(content, &server)),
        })
    }

    pub(super) async fn get_prompt(&self, asker: &Asker, params: Option<&RawValue>) -> Answer {
        let params: PromptParams<'_> = read(params)?;
        let missing = || rpc(INVALID_PARAMS, format!("unknown prompt `{}`", params.name));
        let (server, own) = match &self.face {
            Face::Server(name) => (name.clone(), params.name.as_str()),
            Face::All | Face::Virtual(_) => uri::prompt_of(&params.name).ok_or_else(missing)?,
        };
        if !self.servers(asker)?.contains(&server) {
            return Err(missing());
        }
        let asked = Object::new().text("name", own);
        let ask = Ask {
            method: "prompts/get",
            params: match params.arguments {
                Some(arguments) => asked.raw("arguments", arguments.get()),
                None => asked,
            },
            name: Some(own.to_owned()),
            ..Ask::default()
        };
        let result = self.ask(asker, &server, ask).await?;
        Ok(match self.is_raw() {
            true => result,
            false => each(&result, "messages", |message| {
                member(message, "content", |content| with_link(content, &server))
            }),
        })
    }

    /// The server that a URI leads to, and the URI there.
    pub(super) fn resource<'a>(
        &self,
        asker: &Asker,
        uri: &'a str,
    ) -> Result<(ServerName, &'a str), RpcError> {
        let found = match &self.face {
            Face::Server(name) => Some((name.clone(), uri)),
            Face::All | Face::Virtual(_) => uri::unwrap(uri),
        };
        let servers = self.servers(asker)?;
        let found = found.filter(|(server, _)| servers.contains(server));
        found.ok_or_else(|| RpcError {
            data: to_raw_value(&serde_json::json!({"uri": uri})).ok(),
            ..rpc(
                RESOURCE_NOT_FOUND,
                format!("no resource has the URI `{uri}`"),
            )
        })
    }

    pub(super) async fn complete(&self, asker: &Asker, params: Option<&RawValue>) -> Answer {
        let params: CompleteParams<'_> = read(params)?;
        let reference: Reference = read(Some(params.reference))?;
        let unknown = || rpc(INVALID_PARAMS, "`ref` names no prompt and no resource");
        let (server, own) = match (&self.face, &reference.name, &reference.uri) {
            (Face::Server(name), ..) => (name.clone(), params.reference.to_owned()),
            (_, Some(name), _) => {
                let (server, own) = uri::prompt_of(name).ok_or_else(unknown)?;
                (server, with_text(params.reference, "name", own))
            }
            (_, None, Some(uri)) => {
                let (server, own) = uri::unwrap(uri).ok_or_else(unknown)?;
                (server, with_text(params.reference, "uri", own))
            }
            (_, None, None) => return Err(unknown()),
        };
        if !self.servers(asker)?.contains(&server) {
            return Err(unknown());
        }
        let asked = Object::new()
            .raw("ref", own.get())
            .raw("argument", params.argument.get());
        let ask = Ask {
            method: "completion/complete",
            params: match params.context {
                Some(context) => asked.raw("context", context.get()),
                None => asked,
            },
            ..Ask::default()
        };
        self.ask(asker, &server, ask).await
    }

    fn servers(&self, asker: &Asker) -> Result<Vec<ServerName>, RpcError> {
        let filters = &asker.request.filters;
        self.gateway
            .servers_with_resources(&asker.caller, filters)
            .map_err(|error| failed(&error))
    }

    async fn ask(&self, asker: &Asker, server: &ServerName, ask: Ask) -> Answer {
        let answer = self
            .gateway
            .ask(&asker.caller, &asker.request, server, ask)
            .await;
        answer.map_err(|error| failed(&error))
    }
}

/// A result with each item of one of its lists made anew.
pub(super) fn each(
    result: &RawValue,
    list: &str,
    make: impl Fn(&RawValue) -> Box<RawValue>,
) -> Box<RawValue> {
    member(result, list, |items| {
        let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(items.get()) else {
            return items.to_owned();
        };
        let made: Vec<Box<RawValue>> = items.iter().map(|item| make(item)).collect();
        to_raw_value(&made).unwrap_or_else(|_| RawValue::NULL.to_owned())
    })
}

/// An object with one of its members made anew; as it came if it has no such member.
pub(super) fn member(
    object: &RawValue,
    name: &str,
    make: impl FnOnce(&RawValue) -> Box<RawValue>,
) -> Box<RawValue> {
    let parts = serde_json::from_str::<IndexMap<String, Box<RawValue>>>(object.get());
    let Ok(mut parts) = parts else {
        return object.to_owned();
    };
    let Some(found) = parts.get_mut(name) else {
        return object.to_owned();
    };
    *found = make(found);
    to_raw_value(&parts).unwrap_or_else(|_| object.to_owned())
}
