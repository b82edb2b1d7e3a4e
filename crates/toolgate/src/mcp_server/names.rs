//! Names that stay unique across servers: qualified URIs and prompt names, also inside results.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use indexmap::IndexMap;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use toolgate_core::Catalog;
use toolgate_core::catalog::{ItemKind, ServerListing, replace_text_member};
use toolgate_core::json::may_contain;
use toolgate_core::name::ServerName;

const SCHEME: &str = "toolgate://";

/// Maximum size of `_meta`, and number of URIs in it, that are qualified.
const MAX_QUALIFIED_META_BYTES: usize = 64 * 1024;
const MAX_QUALIFIED_URIS: usize = 64;

/// Qualifies a server's URI or URI template with the server's name.
pub(super) fn qualify_uri(server: &ServerName, uri: &str) -> String {
    format!("{SCHEME}{server}/{uri}")
}

/// Splits a qualified URI into the server and its raw URI.
pub(super) fn split_uri(uri: &str) -> Option<(ServerName, &str)> {
    let (server, uri) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    Some((ServerName::parse(server).ok()?, uri))
}

/// Returns a key that sorts items in the order of the server's own list.
pub(super) fn position_key(
    listing: Option<&Arc<ServerListing>>,
    kind: ItemKind,
    key: &str,
) -> String {
    let position = listing.map_or(usize::MAX, |listing| listing.position(kind, key));
    format!("{position:020} {key}")
}

/// Returns whether a server lists a resource.
pub(super) fn is_listed_resource(catalog: &Catalog, server: &ServerName, uri: &str) -> bool {
    let listing = catalog.listing(server);
    listing.is_some_and(|listing| listing.resources.iter().any(|item| item.key == uri))
}

/// Qualifies a prompt with its server's name. Server names contain no dots.
pub(super) fn qualify_prompt(server: &ServerName, name: &str) -> String {
    format!("{server}.{name}")
}

/// Splits a qualified prompt name into the server and the raw name.
pub(super) fn split_prompt(name: &str) -> Option<(ServerName, &str)> {
    let (server, name) = name.split_once('.')?;
    Some((ServerName::parse(server).ok()?, name))
}

/// Qualifies the URI of a resource or resource link in a content block.
pub(super) fn qualify_links(block: &RawValue, server: &ServerName) -> Box<RawValue> {
    let head: BTreeMap<String, &RawValue> = serde_json::from_str(block.get()).unwrap_or_default();
    let text = |raw: &RawValue| serde_json::from_str::<String>(raw.get()).ok();
    let kind = head.get("type").and_then(|raw| text(raw));
    match kind.as_deref() {
        Some("resource_link") => qualify_uri_member(block, server),
        Some("resource") => {
            map_member(block, "resource", |inner| qualify_uri_member(inner, server))
        }
        _ => block.to_owned(),
    }
}

/// Qualifies the `uri` member of an object.
pub(super) fn qualify_uri_member(object: &RawValue, server: &ServerName) -> Box<RawValue> {
    let value: Value = serde_json::from_str(object.get()).unwrap_or_default();
    match value["uri"].as_str() {
        Some(uri) => replace_text_member(object, "uri", &qualify_uri(server, uri)),
        None => object.to_owned(),
    }
}

/// Qualifies the URIs in the `_meta` of an object that name resources: those of MCP Apps (`ui://`), which
/// need not be listed, and those that the server lists. All other bytes stay unchanged.
pub(super) fn qualify_meta<'a>(
    object: &'a RawValue,
    server: &ServerName,
    is_listed: &dyn Fn(&str) -> bool,
) -> Cow<'a, RawValue> {
    let text = object.get();
    if !may_contain(text, "_meta") || !text.contains("://") {
        return Cow::Borrowed(object);
    }
    Cow::Owned(map_member(object, "_meta", |meta| {
        if meta.get().len() > MAX_QUALIFIED_META_BYTES {
            return meta.to_owned();
        }
        let value: Value = serde_json::from_str(meta.get()).unwrap_or_default();
        let mut uris = BTreeSet::new();
        collect_texts(&value, &mut |text| {
            let has_room = uris.len() < MAX_QUALIFIED_URIS && text.contains("://");
            if has_room && (text.starts_with("ui://") || is_listed(text)) {
                uris.insert(text.to_owned());
            }
        });
        let qualified = uris.iter().fold(meta.get().to_owned(), |meta, uri| {
            replace_text_value(&meta, uri, &qualify_uri(server, uri))
        });
        RawValue::from_string(qualified).unwrap_or_else(|_| meta.to_owned())
    }))
}

fn collect_texts(value: &Value, found: &mut dyn FnMut(&str)) {
    match value {
        Value::String(text) => found(text),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, found)),
        Value::Object(members) => {
            let values = members.values();
            values.for_each(|value| collect_texts(value, found));
        }
        _ => {}
    }
}

/// Replaces a string of a JSON text where it is a value, and not the name of a member.
fn replace_text_value(json: &str, from: &str, to: &str) -> String {
    let [from, to] = [from, to].map(|text| Value::from(text).to_string());
    let mut replaced = String::with_capacity(json.len() + to.len());
    let mut rest = json;
    while let Some(at) = rest.find(&from) {
        let (before, found) = rest.split_at(at);
        let (found, after) = found.split_at(from.len());
        replaced.push_str(before);
        let is_name = after.trim_start().starts_with(':');
        replaced.push_str(if is_name { found } else { &to });
        rest = after;
    }
    replaced + rest
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_of_resources_in_meta_are_qualified_and_other_bytes_kept() {
        let server = ServerName::parse("s").unwrap();
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let is_listed = |uri: &str| uri == "file:///a";
        let tool = raw(
            r#"{"name":"ui://x","_meta":{"ui":{"resourceUri":"ui://x"},"ui://x" : 1e400,"l":["file:///a","file:///b"]}}"#,
        );
        let qualified = qualify_meta(&tool, &server, &is_listed);
        assert_eq!(
            qualified.get(),
            r#"{"name":"ui://x","_meta":{"ui":{"resourceUri":"toolgate://s/ui://x"},"ui://x" : 1e400,"l":["toolgate://s/file:///a","file:///b"]}}"#
        );
        let plain = raw(r#"{"name": "a", "url": "ui://x"}"#);
        assert_eq!(qualify_meta(&plain, &server, &is_listed).get(), plain.get());
    }

    #[test]
    fn qualified_names_round_trip() {
        let server = ServerName::parse("a_b").unwrap();
        for uri in ["file:///x/y", "test://template/{id}/data", "", "a/b"] {
            let wrapped = qualify_uri(&server, uri);
            assert_eq!(split_uri(&wrapped), Some((server.clone(), uri)));
        }
        assert_eq!(split_uri("file:///x"), None);
        assert_eq!(split_uri("toolgate://no server/x"), None);
        assert_eq!(split_prompt("a_b.c.d"), Some((server, "c.d")));
    }
}
