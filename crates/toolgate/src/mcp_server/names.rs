//! Names that stay unique across servers: qualified URIs and prompt names, also inside results.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};
use toolgate_core::catalog::replace_text_member;
use toolgate_core::name::ServerName;

const SCHEME: &str = "toolgate://";

/// Qualifies a server's URI or URI template with the server's name.
pub(super) fn qualify_uri(server: &ServerName, uri: &str) -> String {
    format!("{SCHEME}{server}/{uri}")
}

/// Splits a qualified URI into the server and its raw URI.
pub(super) fn split_uri(uri: &str) -> Option<(ServerName, &str)> {
    let (server, uri) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    Some((ServerName::parse(server).ok()?, uri))
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
