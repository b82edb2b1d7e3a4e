//! Sanitizes untrusted text for use in stubs: visible, bounded, and never code itself.

use std::fmt::Write as _;

use serde_json::Value;
use toolgate_core::clean::clean;

/// Puts text on one line of at most `limit` characters, without invisible characters.
pub(super) fn single_line(text: &str, limit: usize) -> String {
    let text = clean(text);
    let mut line = String::new();
    let mut count = 0;
    for word in text.split(is_line_break) {
        let word: String = word.chars().filter(|c| !is_hidden(*c)).collect();
        if word.is_empty() {
            continue;
        }
        let length = word.chars().count() + usize::from(count > 0);
        if count + length > limit {
            return truncate_line(&line, &word, limit - count);
        }
        if count > 0 {
            line.push(' ');
        }
        line.push_str(&word);
        count += length;
    }
    line
}

/// Truncates a line within `room` more characters: after the last word, or inside a word if it is the first
/// or not ASCII.
fn truncate_line(line: &str, word: &str, room: usize) -> String {
    let mut text = line.to_owned();
    if text.is_empty() || !word.is_ascii() {
        if !text.is_empty() && room > 2 {
            text.push(' ');
        }
        text.extend(word.chars().take(room.saturating_sub(2)));
    }
    text.truncate(text.trim_end_matches([' ', ',', ';', ':', '.', '-']).len());
    text.push('…');
    text
}

/// Returns the first sentence of a text, on one line.
pub(super) fn first_sentence(text: &str, limit: usize) -> String {
    // Descriptions can be megabytes long, and only their start matters.
    let start: String = text.chars().take(limit * 8).collect();
    let line = single_line(&start, limit * 4);
    let mut end = line.len();
    for (at, c) in line.char_indices() {
        match c {
            '。' | '！' | '？' => {
                end = at;
                break;
            }
            '.' | '!' | '?' | ':' => {
                let mut rest = line[at + 1..].chars();
                let ends =
                    rest.next() == Some(' ') && rest.next().is_some_and(|c| !c.is_lowercase());
                if ends && !line[..at].ends_with("e.g") && !line[..at].ends_with("i.e") {
                    end = at;
                    break;
                }
            }
            _ => {}
        }
    }
    single_line(line[..end].trim_end_matches('.'), limit)
}

/// Formats text of several lines for a docstring, so that it cannot close the quotes.
pub(super) fn docstring_text(text: &str, limit: usize, indent: &str) -> String {
    let cut: String = text.chars().take(limit).collect();
    let is_truncated = cut.len() < text.len();
    let rows: Vec<String> = clean(&cut)
        .split(['\n', '\u{2028}', '\u{2029}'])
        .map(docstring_line)
        .collect();
    let own_indent = rows.iter().skip(1).filter(|row| !row.is_empty());
    let own_indent = own_indent
        .map(|row| row.len() - row.trim_start_matches(' ').len())
        .min()
        .unwrap_or(0);
    let mut paragraph = String::with_capacity(cut.len());
    for (at, row) in rows.iter().enumerate() {
        if at > 1 && row.is_empty() && rows[at - 1].is_empty() {
            continue;
        }
        if at > 0 {
            paragraph.push('\n');
        }
        match (at, row.is_empty()) {
            (0, _) => paragraph.push_str(row.trim_start()),
            (_, true) => {}
            (_, false) => {
                paragraph.push_str(indent);
                paragraph.push_str(&row[own_indent..]);
            }
        }
    }
    paragraph.truncate(paragraph.trim_end().len());
    if is_truncated {
        paragraph.push('…');
    }
    paragraph
}

fn docstring_line(text: &str) -> String {
    let visible: String = text
        .chars()
        .filter(|c| !is_hidden(*c) && *c != '\r')
        .map(|c| if c == '\t' { ' ' } else { c })
        .collect();
    visible
        .trim_end()
        .replace('\\', "\\\\")
        .replace("\"\"\"", "'''")
}

/// Returns a Python string literal.
pub(super) fn quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for c in text.chars() {
        match c {
            '"' | '\\' => {
                quoted.push('\\');
                quoted.push(c);
            }
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c if !c.is_control() && !is_hidden(c) && !is_separator(c) => quoted.push(c),
            c => {
                let number = u32::from(c);
                let _ = if number <= 0xffff {
                    write!(quoted, "\\u{number:04x}")
                } else {
                    write!(quoted, "\\U{number:08x}")
                };
            }
        }
    }
    quoted.push('"');
    quoted
}

/// Formats a JSON value as a Python literal of at most `limit` bytes.
pub(super) fn python_literal(value: &Value, limit: usize) -> Option<String> {
    let text = match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.len() > limit => return None,
        Value::String(text) => quote(text),
        Value::Array(items) if items.len() > limit => return None,
        Value::Array(items) => {
            let mut budget = limit;
            let items: Option<Vec<String>> = items
                .iter()
                .map(|item| nested_literal(item, &mut budget))
                .collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Object(members) if members.len() > limit => return None,
        Value::Object(members) => {
            let mut budget = limit;
            let members: Option<Vec<String>> = members
                .iter()
                .map(|(key, value)| {
                    let value = nested_literal(value, &mut budget)?;
                    budget = budget.checked_sub(key.len())?;
                    Some(format!("{}: {value}", quote(key)))
                })
                .collect();
            format!("{{{}}}", members?.join(", "))
        }
    };
    (text.len() <= limit).then_some(text)
}

fn nested_literal(value: &Value, budget: &mut usize) -> Option<String> {
    let text = python_literal(value, *budget)?;
    *budget = budget.saturating_sub(text.len());
    Some(text)
}

fn is_line_break(c: char) -> bool {
    c.is_whitespace() || is_separator(c)
}

fn is_separator(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}' | '\u{85}')
}

/// Returns whether a character is invisible or changes the writing direction.
fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
        | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}'
        | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn single_line_removes_breaks_and_hidden_characters() {
        for (text, expected) in [
            ("  Search\n\tfor  videos ", "Search for videos"),
            ("a\u{2028}def evil():\u{2029}\u{85}b", "a def evil(): b"),
            ("a\u{202e}b\u{200b}c\u{feff}\0d\u{1b}[31me", "abcde"),
            ("", ""),
        ] {
            assert_eq!(single_line(text, 80), expected);
        }
        assert_eq!(single_line("one two three", 8), "one two…");
        assert_eq!(single_line("aaaaaaaaaa", 5), "aaa…");
        assert_eq!(single_line("搜索搜索搜索搜索", 5), "搜索搜…");
    }

    #[test]
    fn first_sentence_ends_at_sentence_punctuation() {
        for (text, expected) in [
            ("Gets a record. It is fast.", "Gets a record"),
            ("Gets a record.", "Gets a record"),
            ("Use e.g. Paris or 3.5 units", "Use e.g. Paris or 3.5 units"),
            ("Gets v1.2 of it", "Gets v1.2 of it"),
            ("搜索视频。返回列表", "搜索视频"),
            ("Fails! Try again", "Fails"),
        ] {
            assert_eq!(first_sentence(text, 80), expected);
        }
        assert!(first_sentence(&"word ".repeat(100_000), 80).chars().count() <= 80);
    }

    #[test]
    fn docstring_text_cannot_close_its_quotes() {
        let text = docstring_text(
            "a\"\u{200b}\"\"\nimport os\n\n\n\n\\\"\"\"\"\"\"b\\",
            100,
            "  ",
        );
        assert_eq!(text, "a'''\n  import os\n\n  \\\\''''''b\\\\");
        assert_eq!(docstring_text("abc", 2, ""), "ab…");
        assert_eq!(
            docstring_text("a\n    b\n\n      c\n", 100, "  "),
            "a\n  b\n\n    c"
        );
    }

    #[test]
    fn literals_use_python_syntax() {
        for (value, expected) in [
            (json!(null), "None"),
            (json!([true, false, 1, 2.5]), "[True, False, 1, 2.5]"),
            (
                json!({"a\"b": "\u{2028}\n\u{202e}\u{e0001}"}),
                r#"{"a\"b": "\u2028\n\u202e\U000e0001"}"#,
            ),
        ] {
            assert_eq!(python_literal(&value, 100).as_deref(), Some(expected));
        }
        assert_eq!(python_literal(&json!("x".repeat(50)), 20), None);
        assert_eq!(
            python_literal(&json!([["x", "x"], ["x", "x", "x"]]), 20),
            None
        );
    }
}
