//! Cleans and bounds the texts in JSON that comes from a server.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::clean;

/// Bytes kept of the description or title of a definition.
pub const MAX_DESCRIPTION_BYTES: usize = 32 * 1024;
/// Members whose values are bounded.
const DESCRIPTIONS: [&str; 2] = ["description", "title"];

/// Returns whether JSON may contain what [`clean`] removes. Cheap; `false` is certain.
pub fn may_need_cleaning(json: &str) -> bool {
    let bytes = json.as_bytes();
    let mut pairs = bytes.windows(2);
    let has_escape = pairs.any(|pair| pair[0] == b'\\' && matches!(pair[1], b'u' | b'b' | b'f'));
    // DEL, and the lead bytes of C1 control characters and of invisible tag characters.
    has_escape || bytes.iter().any(|b| *b == 0x7f || *b == 0xc2 || *b == 0xf3)
}

/// Cleans all texts of a value. JSON that needs no cleaning is returned byte for byte.
pub fn clean_json(raw: &RawValue) -> Cow<'_, RawValue> {
    if !may_need_cleaning(raw.get()) {
        return Cow::Borrowed(raw);
    }
    let Ok(mut value) = serde_json::from_str::<Value>(raw.get()) else {
        return Cow::Borrowed(raw);
    };
    let is_changed = replace_texts(&mut value, &|text| match clean(text) {
        Cow::Owned(cleaned) => Some(cleaned),
        Cow::Borrowed(_) => None,
    });
    to_cow(raw, &value, is_changed)
}

/// A definition without hidden text.
#[derive(Debug)]
pub struct CleanDefinition<'a> {
    pub definition: Cow<'a, RawValue>,
    /// Whether the server's definition contained text that [`clean`] removes.
    pub had_hidden_text: bool,
}

/// Cleans a definition and bounds its descriptions. Returns an error if the name of a member would have
/// to be cleaned, since the server knows it by no other name.
pub fn clean_definition(raw: &RawValue) -> Result<CleanDefinition<'_>, &'static str> {
    let unchanged = CleanDefinition {
        definition: Cow::Borrowed(raw),
        had_hidden_text: false,
    };
    if !may_need_cleaning(raw.get()) && raw.get().len() <= MAX_DESCRIPTION_BYTES {
        return Ok(unchanged);
    }
    let Ok(mut value) = serde_json::from_str::<Value>(raw.get()) else {
        return Ok(unchanged);
    };
    if has_unclean_names(&value) {
        return Err("a name in its definition contains control or invisible characters");
    }
    let had_hidden_text = replace_texts(&mut value, &|text| match clean(text) {
        Cow::Owned(cleaned) => Some(cleaned),
        Cow::Borrowed(_) => None,
    });
    let is_cut = bound_descriptions(&mut value);
    Ok(CleanDefinition {
        definition: to_cow(raw, &value, had_hidden_text || is_cut),
        had_hidden_text,
    })
}

/// Cuts a text to a number of bytes, and says so at its end.
pub fn bound_text(text: &mut String, max_bytes: usize) {
    if text.len() > max_bytes {
        let total = text.len();
        text.truncate(text.floor_char_boundary(max_bytes));
        text.push_str(&format!("… [{total} bytes in total]"));
    }
}

/// Replaces every text for which `replace` returns another one, except base64 data. Returns whether
/// there was any.
pub fn replace_texts(value: &mut Value, replace: &dyn Fn(&str) -> Option<String>) -> bool {
    match value {
        Value::String(text) => match replace(text) {
            Some(replaced) => {
                *text = replaced;
                true
            }
            None => false,
        },
        Value::Array(items) => items.iter_mut().fold(false, |changed, item| {
            replace_texts(item, replace) | changed
        }),
        Value::Object(fields) => {
            let binary = base64_field(fields);
            let texts = fields
                .iter_mut()
                .filter(|(key, _)| Some(key.as_str()) != binary);
            texts.fold(false, |changed, (_, field)| {
                replace_texts(field, replace) | changed
            })
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}

/// Returns the name of the field that holds base64, if this is a content block with binary data.
fn base64_field(fields: &Map<String, Value>) -> Option<&'static str> {
    match fields.get("type").and_then(Value::as_str) {
        Some("image" | "audio") => Some("data"),
        None if fields.contains_key("uri") => Some("blob"),
        _ => None,
    }
}

fn has_unclean_names(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.iter().any(has_unclean_names),
        Value::Object(fields) => fields
            .iter()
            .any(|(name, field)| matches!(clean(name), Cow::Owned(_)) || has_unclean_names(field)),
        _ => false,
    }
}

/// Cuts descriptions that are too long. Returns whether there was any.
fn bound_descriptions(value: &mut Value) -> bool {
    match value {
        Value::Array(items) => items
            .iter_mut()
            .fold(false, |changed, item| bound_descriptions(item) | changed),
        Value::Object(fields) => fields.iter_mut().fold(false, |changed, (name, field)| {
            let is_cut = match field {
                Value::String(text) if DESCRIPTIONS.contains(&name.as_str()) => {
                    let is_long = text.len() > MAX_DESCRIPTION_BYTES;
                    bound_text(text, MAX_DESCRIPTION_BYTES);
                    is_long
                }
                other => bound_descriptions(other),
            };
            is_cut | changed
        }),
        _ => false,
    }
}

fn to_cow<'a>(raw: &'a RawValue, value: &Value, is_changed: bool) -> Cow<'a, RawValue> {
    match serde_json::value::to_raw_value(value) {
        Ok(cleaned) if is_changed => Cow::Owned(cleaned),
        _ => Cow::Borrowed(raw),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn clean_json_is_unchanged() {
        let json = r#"{ "description" : "a\n\tb \u00e9 é", "n": 1e400 }"#;
        let raw = raw(json);
        assert!(matches!(clean_json(&raw), Cow::Borrowed(_)));
        let cleaned = clean_definition(&raw).unwrap();
        assert!(matches!(cleaned.definition, Cow::Borrowed(_)) && !cleaned.had_hidden_text);
    }

    #[test]
    fn texts_are_cleaned_at_any_depth() {
        let json = r#"{"name":"a","description":"x\u001b[31my","inputSchema":{"properties":{"p":{"enum":["\u0007z"]}},"maximum":18446744073709551617}}"#;
        let expected = r#"{"name":"a","description":"xy","inputSchema":{"properties":{"p":{"enum":["z"]}},"maximum":18446744073709551617}}"#;
        assert_eq!(clean_json(&raw(json)).get(), expected);
        let raw_definition = raw(json);
        let cleaned = clean_definition(&raw_definition).unwrap();
        assert_eq!(cleaned.definition.get(), expected);
        assert!(cleaned.had_hidden_text);
        let tagged = "{\"description\":\"ok\u{e0041}\u{e0042}\"}";
        assert_eq!(clean_json(&raw(tagged)).get(), r#"{"description":"ok"}"#);
    }

    #[test]
    fn names_that_need_cleaning_are_refused() {
        let json = r#"{"inputSchema":{"properties":{"a\u001bb":{}}}}"#;
        assert!(clean_definition(&raw(json)).is_err());
    }

    #[test]
    fn long_descriptions_are_cut() {
        let long = "é".repeat(MAX_DESCRIPTION_BYTES);
        let json = format!(r#"{{"description":"{long}","icons":[{{"src":"{long}"}}]}}"#);
        let raw = raw(&json);
        let cut = clean_definition(&raw).unwrap();
        assert!(!cut.had_hidden_text);
        let cut: Value = serde_json::from_str(cut.definition.get()).unwrap();
        let description = cut["description"].as_str().unwrap();
        assert!(description.len() < MAX_DESCRIPTION_BYTES + 100);
        assert!(description.ends_with(&format!("… [{} bytes in total]", long.len())));
        assert_eq!(cut["icons"][0]["src"], long);
    }
}
