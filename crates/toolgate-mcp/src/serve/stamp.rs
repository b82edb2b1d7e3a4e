//! What one era wants in a result and the other does not know.

use std::collections::HashMap;

use serde_json::value::RawValue;

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

/// A result as a modern client wants it.
pub fn for_modern(result: Box<RawValue>, caching: Caching) -> Box<RawValue> {
    // Whatever its server says: who may read it depends on the key.
    let result = match caching {
        Caching::Private => without(result, &["cacheScope"]),
        Caching::None => result,
    };
    let fields = fields(&result);
    if fields.contains_key("resultType") && caching == Caching::None {
        return result;
    }
    let mut added = Object::new();
    if !fields.contains_key("resultType") {
        added = added.text("resultType", "complete");
    }
    if caching == Caching::Private {
        if !fields.contains_key("ttlMs") {
            added = added.raw("ttlMs", "0");
        }
        added = added.text("cacheScope", "private");
    }
    let text = result.get();
    let inner = text.trim_start().strip_prefix('{');
    let Some(inner) = inner.filter(|_| !added.is_empty()) else {
        return result;
    };
    let added = added.to_string();
    let comma = match inner.trim_start().starts_with('}') {
        true => "",
        false => ",",
    };
    // What the server sent stays byte for byte behind what is added.
    let stamped = format!("{}{comma}{inner}", &added[..added.len() - 1]);
    RawValue::from_string(stamped).unwrap_or(result)
}

/// A result as a client of the old era knows it.
pub fn for_legacy(result: Box<RawValue>) -> Box<RawValue> {
    without(result, &OWN)
}

/// A result without some of its members; as it came if it has none of them.
fn without(result: Box<RawValue>, names: &[&str]) -> Box<RawValue> {
    let present = fields(&result);
    if !names.iter().any(|name| present.contains_key(*name)) {
        return result;
    }
    let kept: Result<indexmap::IndexMap<String, &RawValue>, _> = serde_json::from_str(result.get());
    let Ok(kept) = kept else { return result };
    let stripped = kept
        .iter()
        .filter(|(name, _)| !names.contains(&name.as_str()))
        .fold(Object::new(), |object, (name, raw)| {
            object.raw(name, raw.get())
        });
    RawValue::from_string(stripped.to_string()).unwrap_or(result)
}

fn fields(result: &RawValue) -> HashMap<String, &RawValue> {
    serde_json::from_str(result.get()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn stamped_and_stripped_and_otherwise_untouched() {
        let plain = r#"{ "content": [], "x": 1e400}"#;
        let stamped = for_modern(raw(plain), Caching::None);
        assert_eq!(
            stamped.get(),
            r#"{"resultType":"complete", "content": [], "x": 1e400}"#
        );
        assert_eq!(for_legacy(stamped).get(), r#"{"content":[],"x":1e400}"#);
        assert_eq!(for_legacy(raw(plain)).get(), plain);
        assert_eq!(
            for_modern(raw("{}"), Caching::Private).get(),
            r#"{"resultType":"complete","ttlMs":0,"cacheScope":"private"}"#
        );
        assert_eq!(
            for_modern(
                raw(r#"{"ttlMs":9,"cacheScope":"public"}"#),
                Caching::Private
            )
            .get(),
            r#"{"resultType":"complete","cacheScope":"private","ttlMs":9}"#
        );
        let own = r#"{"resultType":"input_required","requestState":"s"}"#;
        assert_eq!(for_modern(raw(own), Caching::None).get(), own);
    }
}
