//! Texts of strangers, made fit to stand between code: visible, bounded, and never code themselves.

use std::fmt::Write as _;

use serde_json::Value;
use toolgate_core::clean::clean;

/// A text on one line, without what cannot be seen; ends within `limit` characters.
pub(super) fn line(text: &str, limit: usize) -> String {
    let text = clean(text);
    let mut line = String::new();
    let mut count = 0;
    for word in text.split(breaks) {
        let word: String = word.chars().filter(|c| !is_hidden(*c)).collect();
        if word.is_empty() {
            continue;
        }
        let length = word.chars().count() + usize::from(count > 0);
        if count + length > limit {
            return cut(&line, &word, limit - count);
        }
        if count > 0 {
            line.push(' ');
        }
        line.push_str(&word);
        count += length;
    }
    line
}

/// Ends a line within `room` more characters: after a word if there is one, else within the next.
fn cut(line: &str, word: &str, room: usize) -> String {
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

/// The first sentence of a text, on one line.
pub(super) fn sentence(text: &str, limit: usize) -> String {
    let start: String = text.chars().take(limit * 8).collect();
    let line = line(&start, limit * 4);
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
    self::line(line[..end].trim_end_matches('.'), limit)
}

/// A text of several lines that can stand in a docstring: it cannot close the quotes.
pub(super) fn paragraph(text: &str, limit: usize, indent: &str) -> String {
    let cut: String = text.chars().take(limit).collect();
    let more = cut.len() < text.len();
    let rows: Vec<String> = clean(&cut)
        .split(['\n', '\u{2028}', '\u{2029}'])
        .map(row)
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
    if more {
        paragraph.push('…');
    }
    paragraph
}

fn row(text: &str) -> String {
    let seen: String = text
        .chars()
        .filter(|c| !is_hidden(*c) && *c != '\r')
        .map(|c| if c == '\t' { ' ' } else { c })
        .collect();
    seen.trim_end()
        .replace('\\', "\\\\")
        .replace("\"\"\"", "'''")
}

/// A string of Python.
pub(super) fn quoted(text: &str) -> String {
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
                let _ = match number <= 0xffff {
                    true => write!(quoted, "\\u{number:04x}"),
                    false => write!(quoted, "\\U{number:08x}"),
                };
            }
        }
    }
    quoted.push('"');
    quoted
}

/// A JSON value as Python writes it, if that takes at most `limit` bytes.
pub(super) fn literal(value: &Value, limit: usize) -> Option<String> {
    let text = match value {
        Value::Null => "None".to_owned(),
        Value::Bool(true) => "True".to_owned(),
        Value::Bool(false) => "False".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(text) if text.len() > limit => return None,
        Value::String(text) => quoted(text),
        Value::Array(items) if items.len() > limit => return None,
        Value::Array(items) => {
            let mut left = limit;
            let items: Option<Vec<String>> =
                items.iter().map(|item| spend(item, &mut left)).collect();
            format!("[{}]", items?.join(", "))
        }
        Value::Object(members) if members.len() > limit => return None,
        Value::Object(members) => {
            let mut left = limit;
            let members: Option<Vec<String>> = members
                .iter()
                .map(|(key, value)| {
                    let value = spend(value, &mut left)?;
                    left = left.checked_sub(key.len())?;
                    Some(format!("{}: {value}", quoted(key)))
                })
                .collect();
            format!("{{{}}}", members?.join(", "))
        }
    };
    (text.len() <= limit).then_some(text)
}

fn spend(value: &Value, left: &mut usize) -> Option<String> {
    let text = literal(value, *left)?;
    *left = left.saturating_sub(text.len());
    Some(text)
}

fn breaks(c: char) -> bool {
    c.is_whitespace() || is_separator(c)
}

fn is_separator(c: char) -> bool {
    matches!(c, '\u{2028}' | '\u{2029}' | '\u{85}')
}

/// Characters that take no room, turn the direction of writing, or are there to be overlooked.
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
    fn a_line_is_one_line_that_shows_all_it_has() {
        for (text, expected) in [
            ("  Search\n\tfor  videos ", "Search for videos"),
            ("a\u{2028}def evil():\u{2029}\u{85}b", "a def evil(): b"),
            ("a\u{202e}b\u{200b}c\u{feff}\0d\u{1b}[31me", "abcde"),
            ("", ""),
        ] {
            assert_eq!(line(text, 80), expected);
        }
        assert_eq!(line("one two three", 8), "one two…");
        assert_eq!(line("aaaaaaaaaa", 5), "aaa…");
        assert_eq!(line("搜索搜索搜索搜索", 5), "搜索搜…");
    }

    #[test]
    fn the_first_sentence_of_a_text() {
        for (text, expected) in [
            ("Gets a record. It is fast.", "Gets a record"),
            ("Gets a record.", "Gets a record"),
            ("Use e.g. Paris or 3.5 units", "Use e.g. Paris or 3.5 units"),
            ("Gets v1.2 of it", "Gets v1.2 of it"),
            ("搜索视频。返回列表", "搜索视频"),
            ("Fails! Try again", "Fails"),
        ] {
            assert_eq!(sentence(text, 80), expected);
        }
        assert!(sentence(&"word ".repeat(100_000), 80).chars().count() <= 80);
    }

    #[test]
    fn a_paragraph_cannot_close_its_quotes() {
        let text = paragraph(
            "a\"\u{200b}\"\"\nimport os\n\n\n\n\\\"\"\"\"\"\"b\\",
            100,
            "  ",
        );
        assert_eq!(text, "a'''\n  import os\n\n  \\\\''''''b\\\\");
        assert_eq!(paragraph("abc", 2, ""), "ab…");
        assert_eq!(
            paragraph("a\n    b\n\n      c\n", 100, "  "),
            "a\n  b\n\n    c"
        );
    }

    #[test]
    fn literals_are_those_of_python() {
        for (value, expected) in [
            (json!(null), "None"),
            (json!([true, false, 1, 2.5]), "[True, False, 1, 2.5]"),
            (
                json!({"a\"b": "\u{2028}\n\u{202e}\u{e0001}"}),
                r#"{"a\"b": "\u2028\n\u202e\U000e0001"}"#,
            ),
        ] {
            assert_eq!(literal(&value, 100).as_deref(), Some(expected));
        }
        assert_eq!(literal(&json!("x".repeat(50)), 20), None);
        assert_eq!(literal(&json!([["x", "x"], ["x", "x", "x"]]), 20), None);
    }
}
