//! What a server offers: all four lists, all their pages.
//!
//! A list that fails is a problem of that list; only a lost connection fails the whole.

use std::collections::HashSet;

use http::HeaderMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_core::catalog::{Kind, Offer};

use crate::handshake::Era;
use crate::jsonrpc::{METHOD_NOT_FOUND, Object};
use crate::lane::Lane;
use crate::param_header;
use crate::transport::RequestError;

const MAX_PAGES: usize = 1_000;
/// All pages of a list together.
const MAX_LIST_BYTES: usize = 2 * crate::MAX_MESSAGE_BYTES;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<'a> {
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

/// Asks for all lists; one that fails keeps what it had `before`.
pub(crate) async fn discover(lane: &Lane, before: Option<&Offer>) -> Result<Offer, RequestError> {
    let mut offer = Offer::default();
    for kind in Kind::ALL {
        if !offered(lane, kind) {
            continue;
        }
        match list(lane, kind, &mut offer).await {
            Ok(()) => {}
            Err(RequestError::Rpc(error)) if error.code == METHOD_NOT_FOUND => {}
            Err(
                error @ (RequestError::Rpc(_)
                | RequestError::Malformed(_)
                | RequestError::TooLarge(_)),
            ) => {
                offer
                    .failed
                    .push(format!("`{}` failed: {error}", list_method(kind)));
                if let Some(before) = before {
                    offer.keep(kind, before);
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(offer)
}

/// Takes out the tools that a modern HTTP client must not offer.
pub(crate) fn drop_invalid_headers(offer: &mut Offer) {
    let mut wrong = Vec::new();
    offer
        .tools
        .retain(|tool| match param_header::check(&tool.view()) {
            Ok(()) => true,
            Err(reason) => {
                wrong.push((tool.id.tool.to_string(), reason));
                false
            }
        });
    for (name, reason) in wrong {
        offer.reject(Kind::Tool, &name, &reason);
    }
}

/// Servers have been seen that have tools and do not say so.
fn offered(lane: &Lane, kind: Kind) -> bool {
    let capabilities = lane.session().capabilities;
    match kind {
        Kind::Tool => true,
        Kind::Resource | Kind::Template => capabilities.resources,
        Kind::Prompt => capabilities.prompts,
    }
}

async fn list(lane: &Lane, kind: Kind, offer: &mut Offer) -> Result<(), RequestError> {
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    let mut bytes = 0;
    for _ in 0..MAX_PAGES {
        let params = match &cursor {
            Some(cursor) => Object::new().raw("cursor", cursor),
            None => Object::new(),
        };
        let result = lane
            .request(list_method(kind), params, HeaderMap::new())
            .await?;
        bytes += result.get().len();
        if bytes > MAX_LIST_BYTES {
            offer.reject(kind, "further pages", "the list is too large");
            return Ok(());
        }
        let page: Page<'_> = serde_json::from_str(result.get())
            .map_err(|error| RequestError::Malformed(error.to_string()))?;
        for item in page.items {
            offer.add(&lane.key().server, kind, item);
        }
        let ends =
            |next: &str| next == "null" || (next == "\"\"" && lane.session().era == Era::Legacy);
        match page.next_cursor.map(RawValue::get) {
            None => return Ok(()),
            Some(next) if ends(next) => return Ok(()),
            Some(next) if !seen.insert(next.to_owned()) => break,
            Some(next) => cursor = Some(next.to_owned()),
        }
    }
    offer.reject(kind, "further pages", "the server's pages do not end");
    Ok(())
}

fn list_method(kind: Kind) -> &'static str {
    match kind {
        Kind::Tool => "tools/list",
        Kind::Resource => "resources/list",
        Kind::Template => "resources/templates/list",
        Kind::Prompt => "prompts/list",
    }
}
