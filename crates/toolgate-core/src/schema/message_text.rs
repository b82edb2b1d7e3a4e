//! Formats untrusted names and values for messages: escaped, truncated, without secrets.

use serde_json::Value;

const MAX_NAME_CHARS: usize = 64;
const MAX_VALUE_CHARS: usize = 60;

/// Name parts of arguments whose values are never shown.
const SECRET_NAME_PARTS: [&str; 6] = [
    "password",
    "passwd",
    "secret",
    "token",
    "authorization",
    "credential",
];

/// Escapes a name to one line and truncates it to 64 characters.
pub(crate) fn escape_name(text: &str) -> String {
    escape_line(text, MAX_NAME_CHARS)
}

/// Escapes everything that could forge a line or hide text, and truncates to `max_chars`.
pub(crate) fn escape_line(text: &str, max_chars: usize) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == max_chars {
            shown.push('…');
            break;
        }
        match character {
            '`' => shown.push('\''),
            character if is_invisible(character) => shown.extend(character.escape_default()),
            character => shown.push(character),
        }
    }
    shown
}

/// Truncates a message that is already escaped.
pub(super) fn truncate(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Control characters, line separators, and characters that reorder text or have no width.
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// Formats a value from the schema, such as an allowed one.
pub(super) fn format_literal(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", escape_line(text, MAX_VALUE_CHARS)),
        other => escape_line(&other.to_string(), MAX_VALUE_CHARS),
    }
}

/// Describes a given value: its type, and the value itself if it is short and not secret.
pub(super) fn describe_value(value: &Value, is_secret: bool) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(items) if items.is_empty() => "an empty array".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.is_empty() => "an empty string".to_owned(),
        _ if is_secret => type_with_article(value).to_owned(),
        // JSON text may hold secrets under names that are not inspected here.
        Value::String(text) if looks_like_json(text) => "a JSON string".to_owned(),
        scalar => format!("{} ({})", type_with_article(scalar), format_literal(scalar)),
    }
}

pub(super) fn looks_like_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

pub(super) fn looks_secret(name: &str) -> bool {
    let name = name.get(..256).unwrap_or(name).to_lowercase();
    name.ends_with("key")
        || name.ends_with("keys")
        || SECRET_NAME_PARTS.iter().any(|part| name.contains(part))
}

/// JSON type of a value, with its article.
pub(super) fn type_with_article(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

pub(super) fn with_article(noun: &str) -> String {
    match noun {
        "null" => noun.to_owned(),
        noun if noun.starts_with(['a', 'e', 'i', 'o', 'u']) => format!("an {noun}"),
        noun => format!("a {noun}"),
    }
}

/// Joins at most `max_items` words, with the conjunction before the last one.
pub(super) fn join_list(words: &[String], max_items: usize, conjunction: &str) -> String {
    if words.len() > max_items {
        return format!("{}, …", words[..max_items].join(", "));
    }
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} {conjunction} {last}", first.join(", ")),
    }
}
