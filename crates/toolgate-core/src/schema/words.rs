//! Names and values of others, shown in our own sentences: escaped, cut short, secrets left out.

use serde_json::Value;

const LONGEST_NAME: usize = 64;
const LONGEST_VALUE: usize = 60;

/// Parts of the names of arguments whose values are not shown.
const SECRET: [&str; 6] = [
    "password",
    "passwd",
    "secret",
    "token",
    "authorization",
    "credential",
];

/// A name on one line, cut at 64 characters.
pub(crate) fn name(text: &str) -> String {
    line(text, LONGEST_NAME)
}

/// A text on one line: what could forge another line or hide something is escaped.
pub(crate) fn line(text: &str, longest: usize) -> String {
    let mut shown = String::new();
    for (index, character) in text.chars().enumerate() {
        if index == longest {
            shown.push('…');
            break;
        }
        match character {
            '`' => shown.push('\''),
            character if is_unseen(character) => shown.extend(character.escape_default()),
            character => shown.push(character),
        }
    }
    shown
}

/// Our own sentence, cut short.
pub(super) fn cut(text: &str, longest: usize) -> String {
    match text.char_indices().nth(longest) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Control characters, line ends, and characters that reorder or take no room.
fn is_unseen(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

/// A value of the schema, such as one that it allows.
pub(super) fn literal(value: &Value) -> String {
    match value {
        Value::String(text) => format!("\"{}\"", line(text, LONGEST_VALUE)),
        Value::Object(_) | Value::Array(_) => line(&json(value), LONGEST_VALUE),
        scalar => line(&scalar.to_string(), LONGEST_VALUE),
    }
}

/// What was given: its type, and a short value where that helps and is no secret.
pub(super) fn given(value: &Value, secret: bool) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Array(items) if items.is_empty() => "an empty array".to_owned(),
        Value::Array(_) => "an array".to_owned(),
        Value::Object(_) => "an object".to_owned(),
        Value::String(text) if text.is_empty() => "an empty string".to_owned(),
        _ if secret => kind(value).to_owned(),
        // A text of JSON may hold secrets under names that are not looked at here.
        Value::String(text) if is_json(text) => "a string of JSON".to_owned(),
        scalar => format!("{} ({})", kind(scalar), literal(scalar)),
    }
}

pub(super) fn is_json(text: &str) -> bool {
    text.trim_start().starts_with(['{', '['])
}

pub(super) fn looks_secret(name: &str) -> bool {
    let name = name.get(..256).unwrap_or(name).to_lowercase();
    name.ends_with("key") || name.ends_with("keys") || SECRET.iter().any(|part| name.contains(part))
}

/// A type with its article.
pub(super) fn kind(value: &Value) -> &'static str {
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

/// At most `most` of some words, the last one after a conjunction.
pub(super) fn list(words: &[String], most: usize, conjunction: &str) -> String {
    if words.len() > most {
        return format!("{}, …", words[..most].join(", "));
    }
    match words {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} {conjunction} {last}", first.join(", ")),
    }
}

/// The candidate that was probably meant.
pub(super) fn nearest<'a>(
    text: &str,
    candidates: impl Iterator<Item = &'a str>,
) -> Option<&'a str> {
    let lower = text.to_lowercase();
    candidates
        // Names are short; comparing long ones would take long, and help nobody.
        .filter(|candidate| candidate.len() <= LONGEST_NAME && text.len() <= LONGEST_NAME)
        .map(|candidate| {
            let score = strsim::jaro_winkler(&lower, &candidate.to_lowercase());
            (score, candidate)
        })
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate)
}

/// A short JSON text of a value that comes from a schema, which is short enough to be written.
fn json(value: &Value) -> String {
    serde_json::to_string(value).unwrap_or_default()
}
