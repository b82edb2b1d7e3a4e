//! Takes out of a result what nobody should see: terminal escapes, control characters, and known
//! shapes of secrets where that is wanted. A result that has none of it stays byte for byte.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolgate_core::{clean, shape};

/// Whether texts in the shape of secrets stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Secrets {
    Kept,
    Redacted,
}

pub(crate) fn tidy(raw: Box<RawValue>, secrets: Secrets) -> Box<RawValue> {
    let suspicious =
        may_hide(raw.get()) || (secrets == Secrets::Redacted && shape::find(raw.get()).is_some());
    if !suspicious {
        return raw;
    }
    let Ok(mut value) = serde_json::from_str::<Value>(raw.get()) else {
        return raw;
    };
    // A server gets its state back as it was, or does not know it.
    let state = value.get_mut("requestState").map(Value::take);
    let changed = visit(&mut value, secrets);
    if let (Some(place), Some(state)) = (value.get_mut("requestState"), state) {
        *place = state;
    }
    if !changed {
        return raw;
    }
    serde_json::value::to_raw_value(&value).unwrap_or(raw)
}

/// A quick look: false means that there is certainly nothing to clean.
fn may_hide(json: &str) -> bool {
    let bytes = json.as_bytes();
    let escaped = memchr_pair(bytes, b'\\', |next| matches!(next, b'u' | b'b' | b'f'));
    escaped || bytes.iter().any(|b| *b == 0x7f || *b == 0xc2 || *b == 0xf3)
}

/// Whether `first` is followed anywhere by a byte that fits.
fn memchr_pair(bytes: &[u8], first: u8, fits: impl Fn(u8) -> bool) -> bool {
    let mut pairs = bytes.windows(2);
    pairs.any(|pair| pair[0] == first && fits(pair[1]))
}

/// Tidies every text but base64 data; true if anything changed.
fn visit(value: &mut Value, secrets: Secrets) -> bool {
    match value {
        Value::String(text) => {
            let tidied = tidied(text, secrets);
            let changed = tidied.is_some();
            if let Some(tidied) = tidied {
                *text = tidied;
            }
            changed
        }
        Value::Array(items) => items
            .iter_mut()
            .fold(false, |changed, item| visit(item, secrets) | changed),
        Value::Object(fields) => {
            let binary = binary(fields);
            let texts = fields
                .iter_mut()
                .filter(|(key, _)| Some(key.as_str()) != binary);
            texts.fold(false, |changed, (_, field)| visit(field, secrets) | changed)
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// The field of a content block that holds base64, if it has one.
fn binary(fields: &Map<String, Value>) -> Option<&'static str> {
    match fields.get("type").and_then(Value::as_str) {
        Some("image" | "audio") => Some("data"),
        None if fields.contains_key("uri") => Some("blob"),
        _ => None,
    }
}

fn tidied(text: &str, secrets: Secrets) -> Option<String> {
    let cleaned = clean::clean(text);
    let redacted = match secrets {
        Secrets::Kept => Cow::Borrowed(&*cleaned),
        Secrets::Redacted => shape::redact(&cleaned),
    };
    (redacted != text).then(|| redacted.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(json: &str, secrets: Secrets) -> String {
        let raw = serde_json::from_str(json).unwrap();
        tidy(raw, secrets).get().to_owned()
    }

    #[test]
    fn plain_results_stay_byte_for_byte() {
        for json in [
            r#"{"content":[{"type":"text","text":"a\n\tb é \u00e9 \\u001b"}], "n": 1e400}"#,
            r#"{ "content" : [] }"#,
            r#"{"content":[{"type":"image","data":"\u0041AAA"}]}"#,
        ] {
            assert_eq!(run(json, Secrets::Kept), json);
        }
    }

    #[test]
    fn escapes_go_and_numbers_stay() {
        let json = r#"{"content":[{"type":"text","text":"\u001b[31mred\u001b[0m\u0007"}],"structuredContent":{"n":18446744073709551617,"s":"a\u009b2Jb"}}"#;
        let tidied = r#"{"content":[{"type":"text","text":"red"}],"structuredContent":{"n":18446744073709551617,"s":"ab"}}"#;
        assert_eq!(run(json, Secrets::Kept), tidied);
    }

    #[test]
    fn the_state_of_a_server_stays_as_it_is() {
        let key = format!("ghp_{}", "a1B2".repeat(9));
        let json = format!(r#"{{"requestState":"{key}","inputRequests":{{"q":"{key}"}}}}"#);
        let tidied = run(&json, Secrets::Redacted);
        assert!(tidied.starts_with(&format!(r#"{{"requestState":"{key}","#)));
        assert_eq!(
            tidied.matches("a1B2a1B2").count(),
            json.matches("a1B2a1B2").count() / 2
        );
    }

    #[test]
    fn secrets_go_where_that_is_wanted() {
        let key = format!("ghp_{}", "a1B2".repeat(9));
        let json = format!(r#"{{"content":[{{"type":"text","text":"token {key}"}}]}}"#);
        assert_eq!(run(&json, Secrets::Kept), json);
        assert!(!run(&json, Secrets::Redacted).contains("a1B2"));
        let json = format!(r#"{{"structuredContent":{{"data":{{"data":"{key}"}}}}}}"#);
        assert!(!run(&json, Secrets::Redacted).contains("a1B2"));
    }
}
