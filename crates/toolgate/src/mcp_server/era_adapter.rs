//! Adapts results between eras: adds the members that modern clients require, removes those that
//! legacy clients do not know. All other bytes stay unchanged.

use serde_json::value::RawValue;
use toolgate_core::json::{Members, may_contain};
use toolgate_mcp::handshake::Era;
use toolgate_mcp::jsonrpc::Object;

use crate::result::is_input_required;

/// Caching directive of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Caching {
    /// The result carries no caching members.
    None,
    /// Valid for this client only and expires immediately: lists depend on the API key and change.
    Private,
}

/// Result members that only the modern era has.
const MODERN_MEMBERS: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// `_meta` member that names the responding server.
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";

/// Adapts a result to the client's era.
pub(super) fn adapt_result(result: Box<RawValue>, era: Era, caching: Caching) -> Box<RawValue> {
    match era {
        Era::Legacy => adapt_for_legacy(result),
        Era::Modern if is_input_required(&result) => result,
        Era::Modern => adapt_for_modern(result, caching, server_info()),
    }
}

/// Returns the gateway's description of itself, as JSON.
pub(super) const fn server_info() -> &'static str {
    concat!(
        r#"{"name":"toolgate","title":"Toolgate","version":""#,
        env!("CARGO_PKG_VERSION"),
        r#""}"#
    )
}

/// Adapts a result for a modern client; `server` is the server info as JSON.
fn adapt_for_modern(result: Box<RawValue>, caching: Caching, server: &str) -> Box<RawValue> {
    // Overrides the upstream value, because visibility depends on the API key.
    let result = match caching {
        Caching::Private => remove_members(result, &["cacheScope"]),
        Caching::None => result,
    };
    let text = result.get();
    let Some(members) = Members::parse(text) else {
        return result;
    };
    let has = |name: &str| members.get(name).is_some();
    let mut added = Object::new();
    if !has("resultType") {
        added = added.text("resultType", "complete");
    }
    if caching == Caching::Private {
        if !has("ttlMs") {
            added = added.raw("ttlMs", "0");
        }
        added = added.text("cacheScope", "private");
    }
    let meta = members.get("_meta");
    let new_meta = with_server_info(meta, server);
    if let (None, Some(new_meta)) = (meta, &new_meta) {
        added = added.raw("_meta", new_meta);
    }
    // Splice instead of re-serializing: the upstream bytes must stay as they are.
    let (from, to, replacement) = match (meta, &new_meta) {
        (Some(meta), Some(new_meta)) => {
            let from = meta.get().as_ptr().addr() - text.as_ptr().addr();
            (from, from + meta.get().len(), new_meta.as_str())
        }
        _ => (text.len(), text.len(), ""),
    };
    let first = text.find('{').map_or(0, |brace| brace + 1);
    let comma = match members.iter().next() {
        Some(_) if !added.is_empty() => ",",
        _ => "",
    };
    let added = added.to_string();
    let adapted = [
        &added[..added.len() - 1],
        comma,
        &text[first..from],
        replacement,
        &text[to..],
    ];
    RawValue::from_string(adapted.concat()).unwrap_or(result)
}

/// Adds a member to the `_meta` of a result or of parameters.
pub(super) fn add_meta(object: Box<RawValue>, name: &str, value: &str) -> Box<RawValue> {
    set_nested(&object, "_meta", name, value).unwrap_or(object)
}

/// Tells a legacy client that it may call a tool as a task, but need not.
pub(super) fn with_optional_tasks(definition: &RawValue) -> Option<Box<RawValue>> {
    set_nested(definition, "execution", "taskSupport", r#""optional""#)
}

/// Sets a member of an object within an object.
fn set_nested(object: &RawValue, outer: &str, name: &str, value: &str) -> Option<Box<RawValue>> {
    let members = Members::parse(object.get())?;
    let inner = members.get(outer);
    let inner = inner.and_then(|inner| Members::parse(inner.get()));
    let inner = inner.unwrap_or_default();
    let others = inner.iter().filter(|(known, _)| *known != name);
    let inner = others.fold(Object::new(), |inner, (name, raw)| {
        inner.raw(name, raw.get())
    });
    let kept = members.iter().filter(|(name, _)| *name != outer);
    let kept = kept.fold(Object::new(), |kept, (name, raw)| kept.raw(name, raw.get()));
    let changed = kept.raw(outer, &inner.raw(name, value).to_string());
    RawValue::from_string(changed.to_string()).ok()
}

/// Returns `_meta` with the server info added; `None` if it is already present.
fn with_server_info(meta: Option<&RawValue>, server: &str) -> Option<String> {
    let members = meta.and_then(|meta| Members::parse(meta.get()));
    let members = members.unwrap_or_default();
    if members.get(SERVER_INFO).is_some() {
        return None;
    }
    let meta = members
        .iter()
        .fold(Object::new(), |meta, (name, raw)| meta.raw(name, raw.get()));
    Some(meta.raw(SERVER_INFO, server).to_string())
}

/// Adapts a result for a legacy client.
fn adapt_for_legacy(result: Box<RawValue>) -> Box<RawValue> {
    remove_members(result, &MODERN_MEMBERS)
}

/// Removes members from a result; returns it unchanged if it has none of them.
fn remove_members(result: Box<RawValue>, names: &[&str]) -> Box<RawValue> {
    if !names.iter().any(|name| may_contain(result.get(), name)) {
        return result;
    }
    let Some(members) = Members::parse(result.get()) else {
        return result;
    };
    if !names.iter().any(|name| members.get(name).is_some()) {
        return result;
    }
    let kept = members.iter().filter(|(name, _)| !names.contains(name));
    let stripped = kept.fold(Object::new(), |object, (name, raw)| {
        object.raw(name, raw.get())
    });
    RawValue::from_string(stripped.to_string()).unwrap_or(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    const META: &str = r#""_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s"}}"#;

    fn modern(json: &str, caching: Caching) -> String {
        let adapted = adapt_for_modern(raw(json), caching, r#"{"name":"s"}"#);
        adapted.get().replace(META, "META")
    }

    #[test]
    fn modern_members_are_added_and_removed_and_other_bytes_kept() {
        let plain = r#"{ "content": [], "x": 1e400}"#;
        let adapted = modern(plain, Caching::None);
        assert_eq!(
            adapted,
            r#"{"resultType":"complete",META, "content": [], "x": 1e400}"#
        );
        let stripped = adapt_for_legacy(raw(&adapted.replace("META,", "")));
        assert_eq!(stripped.get(), r#"{"content":[],"x":1e400}"#);
        assert_eq!(adapt_for_legacy(raw(plain)).get(), plain);
        for (given, caching, expected) in [
            (
                "{}",
                Caching::Private,
                r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private",META}"#,
            ),
            (
                r#"{"ttlMs":9,"cacheScope":"public"}"#,
                Caching::Private,
                r#"{"resultType":"complete","cacheScope":"private",META,"ttlMs":9}"#,
            ),
            (
                r#"{"resultType":"complete","n":1.0}"#,
                Caching::None,
                r#"{META,"resultType":"complete","n":1.0}"#,
            ),
            (
                r#"{"resultType":"complete", "_meta" : {"a":-0.0} , "n":1.0}"#,
                Caching::None,
                r#"{"resultType":"complete", "_meta" : {"a":-0.0,"io.modelcontextprotocol/serverInfo":{"name":"s"}} , "n":1.0}"#,
            ),
            (
                r#"{"n":1,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"t"}}}"#,
                Caching::None,
                r#"{"resultType":"complete","n":1,"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"t"}}}"#,
            ),
            ("[1]", Caching::None, "[1]"),
        ] {
            assert_eq!(modern(given, caching), expected);
        }
    }
}
