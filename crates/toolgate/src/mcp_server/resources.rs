//! Resources, templates, prompts and completion. Lists come from the catalog; everything else is
//! forwarded to the server that owns the item.

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use toolgate_core::catalog::{self, ListedItem, ServerListing, replace_text_member};
use toolgate_core::name::ServerName;
use toolgate_core::policy::ServerItem;
use toolgate_core::scope::AccessView;
use toolgate_mcp::jsonrpc::{INVALID_PARAMS, Object, RESOURCE_NOT_FOUND, RpcError, RpcResult};
use toolgate_mcp::lane::UpstreamRequest;

use super::method::{CompleteParams, PromptParams};
use super::names::{self, map_items, map_member, qualify_links, qualify_meta, qualify_uri_member};
use super::page::encode_page;
use super::request::{RequestHandler, to_rpc_error};
use crate::call::CallError;

/// Describes how one kind of item is listed.
struct ItemKind {
    listed: catalog::ItemKind,
    member: &'static str,
    key: &'static str,
    items: fn(&ServerListing) -> &[ListedItem],
    name: fn(&ServerName, &str) -> String,
    item: for<'a> fn(&'a ServerName, &'a str) -> ServerItem<'a>,
}

/// What the reference of a completion is to.
#[derive(Clone, Copy)]
enum ReferenceKind {
    Prompt,
    Resource,
}

/// The item that a completion belongs to.
#[derive(Deserialize)]
struct Reference {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    uri: Option<String>,
}

impl RequestHandler {
    pub(super) fn list_resources(&self, cursor: Option<&str>) -> RpcResult {
        let kind = ItemKind {
            listed: catalog::ItemKind::Resource,
            member: "resources",
            key: "uri",
            items: |listing| &listing.resources,
            name: names::qualify_uri,
            item: resource_item,
        };
        self.list_items(&kind, cursor)
    }

    pub(super) fn list_templates(&self, cursor: Option<&str>) -> RpcResult {
        let kind = ItemKind {
            listed: catalog::ItemKind::Template,
            member: "resourceTemplates",
            key: "uriTemplate",
            items: |listing| &listing.templates,
            name: names::qualify_uri,
            item: resource_item,
        };
        self.list_items(&kind, cursor)
    }

    pub(super) fn list_prompts(&self, cursor: Option<&str>) -> RpcResult {
        let kind = ItemKind {
            listed: catalog::ItemKind::Prompt,
            member: "prompts",
            key: "name",
            items: |listing| &listing.prompts,
            name: names::qualify_prompt,
            item: prompt_item,
        };
        self.list_items(&kind, cursor)
    }

    fn list_items(&self, kind: &ItemKind, cursor: Option<&str>) -> RpcResult {
        let resources = self.gateway().resources();
        let servers = resources.servers(&self.caller, &self.context.filters);
        let servers = servers.map_err(|error| to_rpc_error(&error))?;
        let list = |view: &AccessView<'_>| self.visible_items(kind, &servers, view);
        let items = resources.with_access(&self.caller, &self.context.filters, list);
        let mut items = items.map_err(|error| to_rpc_error(&error))?;
        items.sort_by(|a, b| a.0.cmp(&b.0));
        let listed = items.iter().map(|(key, item)| (key.clone(), &**item));
        encode_page(kind.member, listed, cursor)
    }

    /// Returns the names and definitions of the visible items of these servers.
    fn visible_items(
        &self,
        kind: &ItemKind,
        servers: &[ServerName],
        view: &AccessView<'_>,
    ) -> Vec<(String, Box<RawValue>)> {
        let catalog = self.catalog();
        let mut items: Vec<(String, Box<RawValue>)> = Vec::new();
        for server in servers {
            let Some(server_listing) = catalog.listing(server) else {
                continue;
            };
            for item in (kind.items)(server_listing) {
                if view.judge_item((kind.item)(server, &item.key)).is_none() {
                    continue;
                }
                items.push(if self.endpoint.single_server().is_some() {
                    let key = names::position_key(Some(server_listing), kind.listed, &item.key);
                    (key, item.definition.clone())
                } else {
                    let name = (kind.name)(server, &item.key);
                    let definition = replace_text_member(&item.definition, kind.key, &name);
                    let is_listed = |uri: &str| names::is_listed_resource(&catalog, server, uri);
                    let qualified = qualify_meta(&definition, server, &is_listed).into_owned();
                    (name, qualified)
                });
            }
        }
        items
    }

    pub(super) async fn read_resource(&self, uri: &str) -> RpcResult {
        let (server, raw_uri) = self.resolve_resource(uri)?;
        let upstream = UpstreamRequest {
            method: "resources/read",
            params: Object::new().text("uri", raw_uri),
            name: Some(raw_uri.to_owned()),
            ..UpstreamRequest::default()
        };
        let item = resource_item(&server, raw_uri);
        let result = self.send_to_server(item, upstream, || unknown_resource(uri));
        let result = result.await?;
        if self.endpoint.single_server().is_some() {
            return Ok(result);
        }
        let catalog = self.catalog();
        Ok(map_items(&result, "contents", |content| {
            let content = qualify_uri_member(content, &server);
            let is_listed = |uri: &str| names::is_listed_resource(&catalog, &server, uri);
            qualify_meta(&content, &server, &is_listed).into_owned()
        }))
    }

    pub(super) async fn get_prompt(&self, params: PromptParams) -> RpcResult {
        let missing = || RpcError::new(INVALID_PARAMS, format!("unknown prompt `{}`", params.name));
        let (server, raw_name) = match self.endpoint.single_server() {
            Some(server) => (server.clone(), params.name.as_str()),
            None => names::split_prompt(&params.name).ok_or_else(missing)?,
        };
        let upstream_params = Object::new().text("name", raw_name);
        let upstream = UpstreamRequest {
            method: "prompts/get",
            params: match &params.arguments {
                Some(arguments) => upstream_params.raw("arguments", arguments.get()),
                None => upstream_params,
            },
            name: Some(raw_name.to_owned()),
            ..UpstreamRequest::default()
        };
        let item = prompt_item(&server, raw_name);
        let result = self.send_to_server(item, upstream, missing).await?;
        if self.endpoint.single_server().is_some() {
            return Ok(result);
        }
        Ok(map_items(&result, "messages", |message| {
            map_member(message, "content", |content| {
                qualify_links(content, &server)
            })
        }))
    }

    /// Resolves a URI to a server and its raw URI. Whether it is visible is decided elsewhere.
    pub(super) fn resolve_resource<'a>(
        &self,
        uri: &'a str,
    ) -> Result<(ServerName, &'a str), RpcError> {
        let found = match self.endpoint.single_server() {
            Some(server) => Some((server.clone(), uri)),
            None => names::split_uri(uri),
        };
        found.ok_or_else(|| unknown_resource(uri))
    }

    pub(super) async fn complete(&self, params: CompleteParams) -> RpcResult {
        let CompleteParams {
            reference,
            argument,
            context,
        } = params;
        let named: Reference = serde_json::from_str(reference.get())
            .map_err(|error| RpcError::new(INVALID_PARAMS, error.to_string()))?;
        let unknown = || RpcError::new(INVALID_PARAMS, "`ref` matches no prompt or resource");
        let single_server = self.endpoint.single_server();
        // A reference with both members could be read as either, so the other would go unchecked.
        let (server, item_kind, raw_key) = match (&named.name, &named.uri) {
            (Some(name), None) => {
                let (server, raw_name) = match single_server {
                    Some(server) => (server.clone(), name.as_str()),
                    None => names::split_prompt(name).ok_or_else(unknown)?,
                };
                (server, ReferenceKind::Prompt, raw_name)
            }
            (None, Some(uri)) => {
                let (server, raw_uri) = match single_server {
                    Some(server) => (server.clone(), uri.as_str()),
                    None => names::split_uri(uri).ok_or_else(unknown)?,
                };
                (server, ReferenceKind::Resource, raw_uri)
            }
            (None, None) | (Some(_), Some(_)) => return Err(unknown()),
        };
        let (item, member) = match item_kind {
            ReferenceKind::Prompt => (prompt_item(&server, raw_key), "name"),
            ReferenceKind::Resource => (resource_item(&server, raw_key), "uri"),
        };
        let raw_reference = match single_server {
            Some(_) => reference,
            None => replace_text_member(&reference, member, raw_key),
        };
        let upstream_params = Object::new()
            .raw("ref", raw_reference.get())
            .raw("argument", argument.get());
        let upstream = UpstreamRequest {
            method: "completion/complete",
            params: match &context {
                Some(context) => upstream_params.raw("context", context.get()),
                None => upstream_params,
            },
            ..UpstreamRequest::default()
        };
        self.send_to_server(item, upstream, unknown).await
    }

    /// Sends a request about a resource or prompt. One that is hidden from the caller gets the same
    /// error as one that does not exist.
    async fn send_to_server(
        &self,
        item: ServerItem<'_>,
        upstream: UpstreamRequest,
        unknown: impl Fn() -> RpcError,
    ) -> RpcResult {
        let result = self
            .gateway()
            .resources()
            .send_request(&self.caller, &self.context, item, upstream)
            .await;
        result.map_err(|error| match error {
            CallError::UnknownItem(_) => unknown(),
            error => to_rpc_error(&error),
        })
    }
}

fn resource_item<'a>(server: &'a ServerName, uri: &'a str) -> ServerItem<'a> {
    ServerItem::Resource { server, uri }
}

fn prompt_item<'a>(server: &'a ServerName, name: &'a str) -> ServerItem<'a> {
    ServerItem::Prompt { server, name }
}

pub(super) fn unknown_resource(uri: &str) -> RpcError {
    RpcError {
        data: to_raw_value(&serde_json::json!({"uri": uri})).ok(),
        ..RpcError::new(
            RESOURCE_NOT_FOUND,
            format!("no resource has the URI `{uri}`"),
        )
    }
}
