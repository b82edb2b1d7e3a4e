//! Resources, templates, prompts and completion. Lists come from the catalog; everything else is
//! forwarded to the server that owns the item.

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::{RawValue, to_raw_value};
use toolgate_core::catalog::{ListedItem, ServerListing, replace_text_member};
use toolgate_core::name::ServerName;
use toolgate_mcp::jsonrpc::{INVALID_PARAMS, Object, RpcError, RpcResult};
use toolgate_mcp::lane::UpstreamRequest;
use toolgate_mcp::serve::{RESOURCE_NOT_FOUND, rpc_error};

use super::tools::{qualify_links, qualify_uri_member};
use super::{
    ListParams, McpEndpoint, McpRequestContext, McpServer, encode_page, names, parse_params,
    to_rpc_error,
};

/// Describes how one kind of item is listed.
struct ItemKind {
    member: &'static str,
    key: &'static str,
    items: fn(&ServerListing) -> &[ListedItem],
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

impl McpServer {
    pub(super) fn list_resources(
        &self,
        context: &McpRequestContext,
        params: Option<&RawValue>,
    ) -> RpcResult {
        let kind = ItemKind {
            member: "resources",
            key: "uri",
            items: |listing| &listing.resources,
            name: names::qualify_uri,
        };
        self.list_items(context, params, &kind)
    }

    pub(super) fn list_templates(
        &self,
        context: &McpRequestContext,
        params: Option<&RawValue>,
    ) -> RpcResult {
        let kind = ItemKind {
            member: "resourceTemplates",
            key: "uriTemplate",
            items: |listing| &listing.templates,
            name: names::qualify_uri,
        };
        self.list_items(context, params, &kind)
    }

    pub(super) fn list_prompts(
        &self,
        context: &McpRequestContext,
        params: Option<&RawValue>,
    ) -> RpcResult {
        let kind = ItemKind {
            member: "prompts",
            key: "name",
            items: |listing| &listing.prompts,
            name: names::qualify_prompt,
        };
        self.list_items(context, params, &kind)
    }

    fn list_items(
        &self,
        context: &McpRequestContext,
        params: Option<&RawValue>,
        kind: &ItemKind,
    ) -> RpcResult {
        let servers = self.visible_servers(context)?;
        let catalog = self.gateway.catalog();
        let mut items: Vec<(String, Box<RawValue>)> = Vec::new();
        for server in &servers {
            let Some(server_listing) = catalog.listing(server) else {
                continue;
            };
            for item in (kind.items)(server_listing) {
                items.push(if self.uses_raw_names() {
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
        let ListParams { cursor } = parse_params(params)?;
        encode_page(kind.member, listed, cursor.as_deref())
    }

    pub(super) async fn read_resource(
        &self,
        context: &McpRequestContext,
        params: Option<&RawValue>,
    ) -> RpcResult {
        let params: ReadParams = parse_params(params)?;
        let (server, raw_uri) = self.resolve_resource(context, &params.uri)?;
        let upstream = UpstreamRequest {
            method: "resources/read",
            params: Object::new().text("uri", raw_uri),
            name: Some(raw_uri.to_owned()),
            ..UpstreamRequest::default()
        };
        let result = self.send_to_server(context, &server, upstream).await?;
        if self.uses_raw_names() {
            return Ok(result);
        }
        Ok(map_items(&result, "contents", |content| {
            qualify_uri_member(content, &server)
        }))
    }

    pub(super) async fn get_prompt(
        &self,
        context: &McpRequestContext,
        params: Option<&RawValue>,
    ) -> RpcResult {
        let params: PromptParams<'_> = parse_params(params)?;
        let missing = || rpc_error(INVALID_PARAMS, format!("unknown prompt `{}`", params.name));
        let (server, raw_name) = match &self.endpoint {
            McpEndpoint::Server(name) => (name.clone(), params.name.as_str()),
            McpEndpoint::All | McpEndpoint::Virtual(_) => {
                names::split_prompt(&params.name).ok_or_else(missing)?
            }
        };
        if !self.visible_servers(context)?.contains(&server) {
            return Err(missing());
        }
        let upstream_params = Object::new().text("name", raw_name);
        let upstream = UpstreamRequest {
            method: "prompts/get",
            params: match params.arguments {
                Some(arguments) => upstream_params.raw("arguments", arguments.get()),
                None => upstream_params,
            },
            name: Some(raw_name.to_owned()),
            ..UpstreamRequest::default()
        };
        let result = self.send_to_server(context, &server, upstream).await?;
        if self.uses_raw_names() {
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
        context: &McpRequestContext,
        uri: &'a str,
    ) -> Result<(ServerName, &'a str), RpcError> {
        let found = match &self.endpoint {
            McpEndpoint::Server(name) => Some((name.clone(), uri)),
            McpEndpoint::All | McpEndpoint::Virtual(_) => names::split_uri(uri),
        };
        let servers = self.visible_servers(context)?;
        let found = found.filter(|(server, _)| servers.contains(server));
        found.ok_or_else(|| RpcError {
            data: to_raw_value(&serde_json::json!({"uri": uri})).ok(),
            ..rpc_error(
                RESOURCE_NOT_FOUND,
                format!("no resource has the URI `{uri}`"),
            )
        })
    }

    pub(super) async fn complete(
        &self,
        context: &McpRequestContext,
        params: Option<&RawValue>,
    ) -> RpcResult {
        let params: CompleteParams<'_> = parse_params(params)?;
        let reference: Reference = parse_params(Some(params.reference))?;
        let unknown = || rpc_error(INVALID_PARAMS, "`ref` matches no prompt or resource");
        let (server, raw_reference) = match (&self.endpoint, &reference.name, &reference.uri) {
            (McpEndpoint::Server(name), ..) => (name.clone(), params.reference.to_owned()),
            (_, Some(name), _) => {
                let (server, raw_name) = names::split_prompt(name).ok_or_else(unknown)?;
                (
                    server,
                    replace_text_member(params.reference, "name", raw_name),
                )
            }
            (_, None, Some(uri)) => {
                let (server, raw_uri) = names::split_uri(uri).ok_or_else(unknown)?;
                (
                    server,
                    replace_text_member(params.reference, "uri", raw_uri),
                )
            }
            (_, None, None) => return Err(unknown()),
        };
        if !self.visible_servers(context)?.contains(&server) {
            return Err(unknown());
        }
        let upstream_params = Object::new()
            .raw("ref", raw_reference.get())
            .raw("argument", params.argument.get());
        let upstream = UpstreamRequest {
            method: "completion/complete",
            params: match params.context {
                Some(context) => upstream_params.raw("context", context.get()),
                None => upstream_params,
            },
            ..UpstreamRequest::default()
        };
        self.send_to_server(context, &server, upstream).await
    }

    fn visible_servers(&self, context: &McpRequestContext) -> Result<Vec<ServerName>, RpcError> {
        let filters = &context.request.filters;
        self.gateway
            .resources()
            .servers(&context.caller, filters)
            .map_err(|error| to_rpc_error(&error))
    }

    async fn send_to_server(
        &self,
        context: &McpRequestContext,
        server: &ServerName,
        upstream: UpstreamRequest,
    ) -> RpcResult {
        let answer = self
            .gateway
            .resources()
            .send_request(&context.caller, &context.request, server, upstream)
            .await;
        answer.map_err(|error| to_rpc_error(&error))
    }
}

/// Replaces each item of a list in a result.
pub(super) fn map_items(
    result: &RawValue,
    list: &str,
    map: impl Fn(&RawValue) -> Box<RawValue>,
) -> Box<RawValue> {
    map_member(result, list, |items| {
        let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(items.get()) else {
            return items.to_owned();
        };
        let mapped: Vec<Box<RawValue>> = items.iter().map(|item| map(item)).collect();
        to_raw_value(&mapped).unwrap_or_else(|_| RawValue::NULL.to_owned())
    })
}

/// Replaces a member of an object. Returns the object unchanged if it has no such member.
pub(super) fn map_member(
    object: &RawValue,
    name: &str,
    map: impl FnOnce(&RawValue) -> Box<RawValue>,
) -> Box<RawValue> {
    let parts = serde_json::from_str::<IndexMap<String, Box<RawValue>>>(object.get());
    let Ok(mut parts) = parts else {
        return object.to_owned();
    };
    let Some(found) = parts.get_mut(name) else {
        return object.to_owned();
    };
    *found = map(found);
    to_raw_value(&parts).unwrap_or_else(|_| object.to_owned())
}
