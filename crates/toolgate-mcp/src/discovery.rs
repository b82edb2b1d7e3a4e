//! Fetches a server's listing: tools, resources, templates and prompts, with all their pages.
//!
//! A failing list affects only itself; only a lost connection fails the whole listing.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_core::catalog::{ItemKind, ServerListing};

use crate::client_handler::ModernClient;
use crate::handshake::Era;
use crate::jsonrpc::{METHOD_NOT_FOUND, Object};
use crate::lane::{Lane, UpstreamRequest};
use crate::param_header;
use crate::transport::RequestError;

/// Maximum number of pages of one list.
const MAX_PAGES: usize = 1_000;
/// Maximum size of all pages of one list together.
const MAX_LIST_BYTES: usize = 2 * crate::MAX_MESSAGE_BYTES;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListPage<'a> {
    #[serde(
        borrow,
        default,
        alias = "tools",
        alias = "resources",
        alias = "resourceTemplates",
        alias = "prompts"
    )]
    items: Vec<&'a RawValue>,
    #[serde(borrow, default)]
    next_cursor: Option<&'a RawValue>,
}

/// Fetches all lists, those for `client` if there is one; a list that fails keeps its items from
/// `previous`.
pub(crate) async fn discover(
    lane: &Lane,
    previous: Option<&ServerListing>,
    client: Option<&Arc<ModernClient>>,
) -> Result<ServerListing, RequestError> {
    let mut listing = ServerListing::default();
    for kind in ItemKind::ALL {
        if !should_fetch(lane, kind) {
            continue;
        }
        match fetch_list(lane, kind, client, &mut listing).await {
            Ok(()) => {}
            Err(RequestError::Rpc(error)) if error.code == METHOD_NOT_FOUND => {}
            Err(
                error @ (RequestError::Rpc(_)
                | RequestError::Malformed(_)
                | RequestError::TooLarge(_)),
            ) => {
                listing
                    .failures
                    .push(format!("`{}` failed: {error}", list_method(kind)));
                if let Some(previous) = previous {
                    listing.keep_previous(kind, previous);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(listing)
}

/// Removes tools whose `x-mcp-header` annotations are invalid, as modern HTTP requires.
pub(crate) fn drop_tools_with_invalid_headers(listing: &mut ServerListing) {
    let mut rejected = Vec::new();
    listing
        .tools
        .retain(|tool| match param_header::validate(&tool.view()) {
            Ok(()) => true,
            Err(reason) => {
                rejected.push((tool.id.tool.to_string(), reason));
                false
            }
        });
    for (name, reason) in rejected {
        listing.reject(ItemKind::Tool, &name, &reason);
    }
}

/// Returns whether to fetch a list. Tools are always fetched because some servers have tools
/// without declaring the capability.
fn should_fetch(lane: &Lane, kind: ItemKind) -> bool {
    let capabilities = lane.session().capabilities;
    match kind {
        ItemKind::Tool => true,
        ItemKind::Resource | ItemKind::Template => capabilities.resources,
        ItemKind::Prompt => capabilities.prompts,
    }
}

async fn fetch_list(
    lane: &Lane,
    kind: ItemKind,
    client: Option<&Arc<ModernClient>>,
    listing: &mut ServerListing,
) -> Result<(), RequestError> {
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for _ in 0..MAX_PAGES {
        let params = match &cursor {
            Some(cursor) => Object::new().raw("cursor", cursor),
            None => Object::new(),
        };
        let request = UpstreamRequest {
            method: list_method(kind),
            params,
            modern_client: client.cloned(),
            ..UpstreamRequest::default()
        };
        let result = lane.send(request).await?;
        bytes += result.get().len();
        if bytes > MAX_LIST_BYTES {
            listing.reject(kind, "remaining pages", "the list is too large");
            return Ok(());
        }
        let page: ListPage<'_> = serde_json::from_str(result.get())
            .map_err(|error| RequestError::Malformed(error.to_string()))?;
        for item in page.items {
            listing.add(&lane.key().server, kind, item);
        }
        // Some legacy servers end their lists with an empty cursor.
        let is_end =
            |next: &str| next == "null" || (next == "\"\"" && lane.session().era == Era::Legacy);
        match page.next_cursor.map(RawValue::get) {
            None => return Ok(()),
            Some(next) if is_end(next) => return Ok(()),
            // A repeated cursor would loop forever.
            Some(next) if !seen.insert(next.to_owned()) => break,
            Some(next) => cursor = Some(next.to_owned()),
        }
    }
    listing.reject(kind, "remaining pages", "pagination does not end");
    Ok(())
}

fn list_method(kind: ItemKind) -> &'static str {
    match kind {
        ItemKind::Tool => "tools/list",
        ItemKind::Resource => "resources/list",
        ItemKind::Template => "resources/templates/list",
        ItemKind::Prompt => "prompts/list",
    }
}
