//! What one era wants in a result and the other does not know.

use serde_json::value::RawValue;
use toolgate_core::json::{Members, may_say};

use crate::jsonrpc::Object;

/// How long a client may keep a result, and whether it may be shown to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caching {
    /// The result says nothing of it.
    None,
    /// For this client alone, and not at all: lists depend on the key, and change.
    Private,
}

const OWN: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];

/// Where a result says which server it is from.
const SERVER: &str = "io.modelcontextprotocol/serverInfo";

/// A result as a modern client wants it; `server` is who answers, as JSON.
pub fn for_modern(result: Box<RawValue>, caching: Caching, server: &str) -> Box<RawValue> {
    // Whatever its server says: who may read it depends on the key.
    let result = match caching {
        Caching::Private => without(result, &["cacheScope"]),
        Caching::None => result,
    };
    let text = result.get();
    let Some(members) = Members::of(text) else {
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
    let signed = signed(meta, server);
    if let (None, Some(signed)) = (meta, &signed) {
        added = added.raw("_meta", signed);
    }
    // What the server sent stays byte for byte around what is added.
    let (from, to, instead) = match (meta, &signed) {
        (Some(meta), Some(signed)) => {
            let from = meta.get().as_ptr().addr() - text.as_ptr().addr();
            (from, from + meta.get().len(), signed.as_str())
        }
        _ => (text.len(), text.len(), ""),
    };
    let first = text.find('{').map_or(0, |brace| brace + 1);
    let comma = match members.iter().next() {
        Some(_) if !added.is_empty() => ",",
        _ => "",
    };
    let added = added.to_string();
    let stamped = [
        &added[..added.len() - 1],
        comma,
        &text[first..from],
        instead,
        &text[to..],
    ];
    RawValue::from_string(stamped.concat()).unwrap_or(result)
}

/// A `_meta` that says who answers, unless it does already.
fn signed(meta: Option<&RawValue>, server: &str) -> Option<String> {
    let members = meta.and_then(|meta| Members::of(meta.get()));
    let members = members.unwrap_or_default();
    if members.get(SERVER).is_some() {
        return None;
    }
    let kept = members.iter();
    let kept = kept.fold(Object::new(), |kept, (name, raw)| kept.raw(name, raw.get()));
    Some(kept.raw(SERVER, server).to_string())
}

/// A result as a client of the old era knows it.
pub fn for_legacy(result: Box<RawValue>) -> Box<RawValue> {
    without(result, &OWN)
}

/// A result without some of its members; as it came if it has none of them.
fn without(result: Box<RawValue>, names: &[&str]) -> Box<RawValue> {
    if !names.iter().any(|name| may_say(result.get(), name)) {
        return result;
    }
    let Some(members) = Members::of(result.get()) else {
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
        let stamped = for_modern(raw(json), caching, r#"{"name":"s"}"#);
        stamped.get().replace(META, "META")
    }

    #[test]
    fn stamped_and_stripped_and_otherwise_untouched() {
        let plain = r#"{ "content": [], "x": 1e400}"#;
        let stamped = modern(plain, Caching::None);
        assert_eq!(
            stamped,
            r#"{"resultType":"complete",META, "content": [], "x": 1e400}"#
        );
        let stripped = for_legacy(raw(&stamped.replace("META,", "")));
        assert_eq!(stripped.get(), r#"{"content":[],"x":1e400}"#);
        assert_eq!(for_legacy(raw(plain)).get(), plain);
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
