//! Resources, templates, prompts and completion. Lists come from the catalog; everything else is
//! forwarded to the server that owns the item.

use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use toolgate_core::catalog::{ListedItem, ServerListing, replace_text_member};
use toolgate_core::name::ServerName;
use toolgate_mcp::jsonrpc::{INVALID_PARAMS, Object, RESOURCE_NOT_FOUND, RpcError, RpcResult};
use toolgate_mcp::lane::UpstreamRequest;

use super::method::{CompleteParams, PromptParams};
use super::names::{self, map_items, map_member, qualify_links, qualify_uri_member};
use super::page::encode_page;
use super::request::{RequestHandler, to_rpc_error};

/// Describes how one kind of item is listed.
struct ItemKind {
    member: &'static str,
    key: &'static str,
    items: fn(&ServerListing) -> &[ListedItem],
    name: fn(&ServerName, &str) -> String,
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
            member: "resources",
            key: "uri",
            items: |listing| &listing.resources,
            name: names::qualify_uri,
        };
        self.list_items(&kind, cursor)
    }

    pub(super) fn list_templates(&self, cursor: Option<&str>) -> RpcResult {
        let kind = ItemKind {
            member: "resourceTemplates",
            key: "uriTemplate",
            items: |listing| &listing.templates,
            name: names::qualify_uri,
        };
        self.list_items(&kind, cursor)
    }

    pub(super) fn list_prompts(&self, cursor: Option<&str>) -> RpcResult {
        let kind = ItemKind {
            member: "prompts",
            key: "name",
            items: |listing| &listing.prompts,
            name: names::qualify_prompt,
        };
        self.list_items(&kind, cursor)
    }

    fn list_items(&self, kind: &ItemKind, cursor: Option<&str>) -> RpcResult {
        let servers = self.visible_servers()?;
        let catalog = self.gateway().catalog();
        let mut items: Vec<(String, Box<RawValue>)> = Vec::new();
        for server in &servers {
            let Some(server_listing) = catalog.listing(server) else {
                continue;
            };
            for item in (kind.items)(server_listing) {
                items.push(if self.endpoint.single_server().is_some() {
                    (item.key.clone(), item.definition.clone())
                } else {
                    let name = (kind.name)(server, &item.key);
                    let definition = replace_text_member(&item.definition, kind.key, &name);
                    (name, definition)
                });
            }
        }
        items.sort_by(|a, b| a.0.cmp(&b.0));
        let listed = items.iter().map(|(key, item)| (key.clone(), &**item));
        encode_page(kind.member, listed, cursor)
    }

    pub(super) async fn read_resource(&self, uri: &str) -> RpcResult {
        let (server, raw_uri) = self.resolve_resource(uri)?;
        let upstream = UpstreamRequest {
            method: "resources/read",
            params: Object::new().text("uri", raw_uri),
            name: Some(raw_uri.to_owned()),
            ..UpstreamRequest::default()
        };
        let result = self.send_to_server(&server, upstream).await?;
        if self.endpoint.single_server().is_some() {
            return Ok(result);
        }
        Ok(map_items(&result, "contents", |content| {
            qualify_uri_member(content, &server)
        }))
    }

    pub(super) async fn get_prompt(&self, params: PromptParams) -> RpcResult {
        let missing = || RpcError::new(INVALID_PARAMS, format!("unknown prompt `{}`", params.name));
        let (server, raw_name) = match self.endpoint.single_server() {
            Some(server) => (server.clone(), params.name.as_str()),
            None => names::split_prompt(&params.name).ok_or_else(missing)?,
        };
        if !self.visible_servers()?.contains(&server) {
            return Err(missing());
        }
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
        let result = self.send_to_server(&server, upstream).await?;
        if self.endpoint.single_server().is_some() {
            return Ok(result);
        }
        Ok(map_items(&result, "messages", |message| {
            map_member(message, "content", |content| {
                qualify_links(content, &server)
            })
        }))
    }

    /// Resolves a URI to a visible server and its raw URI.
    pub(super) fn resolve_resource<'a>(
        &self,
        uri: &'a str,
    ) -> Result<(ServerName, &'a str), RpcError> {
        let found = match self.endpoint.single_server() {
            Some(server) => Some((server.clone(), uri)),
            None => names::split_uri(uri),
        };
        let servers = self.visible_servers()?;
        let found = found.filter(|(server, _)| servers.contains(server));
        found.ok_or_else(|| RpcError {
            data: to_raw_value(&serde_json::json!({"uri": uri})).ok(),
            ..RpcError::new(
                RESOURCE_NOT_FOUND,
                format!("no resource has the URI `{uri}`"),
            )
        })
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
        let (server, raw_reference) = match (single_server, &named.name, &named.uri) {
            (Some(server), ..) => (server.clone(), reference),
            (None, Some(name), _) => {
                let (server, raw_name) = names::split_prompt(name).ok_or_else(unknown)?;
                (server, replace_text_member(&reference, "name", raw_name))
            }
            (None, None, Some(uri)) => {
                let (server, raw_uri) = names::split_uri(uri).ok_or_else(unknown)?;
                (server, replace_text_member(&reference, "uri", raw_uri))
            }
            (None, None, None) => return Err(unknown()),
        };
        if !self.visible_servers()?.contains(&server) {
            return Err(unknown());
        }
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
        self.send_to_server(&server, upstream).await
    }

    fn visible_servers(&self) -> Result<Vec<ServerName>, RpcError> {
        self.gateway()
            .resources()
            .servers(&self.caller, &self.context.filters)
            .map_err(|error| to_rpc_error(&error))
    }

    async fn send_to_server(&self, server: &ServerName, upstream: UpstreamRequest) -> RpcResult {
        let result = self
            .gateway()
            .resources()
            .send_request(&self.caller, &self.context, server, upstream)
            .await;
        result.map_err(|error| to_rpc_error(&error))
    }
}
