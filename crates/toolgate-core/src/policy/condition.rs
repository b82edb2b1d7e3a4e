//! Rule conditions on named arguments.
//!
//! Conditions of `ask` and `deny` rules match loosely: case-insensitively, as written or as a
//! normalized path, and one matching item of a list suffices. Conditions of `allow` and `manual`
//! rules match strictly: every item must match as written, and none may contain a `..` segment.

use serde_json::Value;

use super::Verdict;
use crate::pattern::Glob;

/// An argument whose value must match one of several patterns.
#[derive(Debug)]
pub(super) struct ArgumentCondition {
    name: String,
    patterns: Vec<Glob>,
    strict: bool,
}

impl ArgumentCondition {
    pub(super) fn new(name: &str, patterns: &[String], verdict: Verdict) -> Self {
        let strict = verdict <= Verdict::Manual;
        let glob = |pattern: &String| {
            if strict {
                Glob::new(pattern)
            } else {
                Glob::new(&pattern.to_lowercase())
            }
        };
        Self {
            name: name.to_owned(),
            patterns: patterns.iter().map(glob).collect(),
            strict,
        }
    }

    pub(super) fn matches(&self, arguments: &Value) -> bool {
        let mut values = Vec::new();
        values.extend(arguments.get(&self.name));
        if self.name.contains('.') {
            collect_at_path(arguments, &self.name, &mut values);
        }
        self.matches_values(values.into_iter())
    }

    fn matches_value(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.matches_text(text),
            Value::Array(items) => self.matches_values(items.iter()),
            Value::Object(fields) => self.matches_values(fields.values()),
            // `1e3` and `1000.0` reach the tool as the number 1000.
            Value::Number(number) if !self.strict => {
                let plain = number.as_f64().map(|number| number.to_string());
                self.matches_text(&number.to_string())
                    || plain.is_some_and(|n| self.matches_text(&n))
            }
            other => self.matches_text(&other.to_string()),
        }
    }

    fn matches_values<'v>(&self, mut values: impl ExactSizeIterator<Item = &'v Value>) -> bool {
        if self.strict {
            values.len() > 0 && values.all(|value| self.matches_value(value))
        } else {
            values.any(|value| self.matches_value(value))
        }
    }

    fn matches_text(&self, text: &str) -> bool {
        let matches = |text: &str| self.patterns.iter().any(|pattern| pattern.matches(text));
        if self.strict {
            return matches(text) && !has_parent_segment(text);
        }
        // Try the path with and without a slash on either side.
        let path = normalize_path(&decode_path(text)).to_lowercase();
        let path = format!("/{path}/");
        let end = path.len() - 1;
        let forms = [&path[1..end], &path[1..], &path[..end], &path];
        matches(&text.to_lowercase()) || forms.into_iter().any(matches)
    }
}

/// Collects all values at a dotted path of names, descending into list items.
fn collect_at_path<'v>(value: &'v Value, path: &str, found: &mut Vec<&'v Value>) {
    if let Value::Array(items) = value {
        return items
            .iter()
            .for_each(|item| collect_at_path(item, path, found));
    }
    match path.split_once('.') {
        Some((name, rest)) => {
            if let Some(inner) = value.get(name) {
                collect_at_path(inner, rest, found);
            }
        }
        None => found.extend(value.get(path)),
    }
}

/// Returns whether the text has a `..` segment, plain or percent-encoded.
pub(super) fn has_parent_segment(text: &str) -> bool {
    let decoded = text
        .to_lowercase()
        .replace("%2e", ".")
        .replace("%2f", "/")
        .replace("%5c", "/");
    decoded.split(['/', '\\']).any(|segment| segment == "..")
}

/// Decodes a text the way a server might before opening it: trims it and removes `file://` and
/// percent-encoding.
pub(super) fn decode_path(text: &str) -> String {
    let text = text.trim().trim_matches('\0');
    let text = text.strip_prefix("file://").unwrap_or(text);
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        let hex = after.get(..2).filter(|_| *first == b'%');
        let byte = hex
            .and_then(|hex| std::str::from_utf8(hex).ok())
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Removes `.`, `..` and empty segments and trailing slashes. A leading `..` of a relative path is
/// kept.
pub(super) fn normalize_path(text: &str) -> String {
    let text = text.replace('\\', "/");
    let mut segments: Vec<&str> = Vec::new();
    let rooted = text.starts_with('/');
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." if segments.last().is_some_and(|last| *last != "..") => drop(segments.pop()),
            ".." if rooted => {}
            segment => segments.push(segment),
        }
    }
    format!("{}{}", if rooted { "/" } else { "" }, segments.join("/"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn matches(verdict: Verdict, name: &str, patterns: &[&str], arguments: &Value) -> bool {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        ArgumentCondition::new(name, &patterns, verdict).matches(arguments)
    }

    #[test]
    fn allow_matches_strictly_and_deny_loosely() {
        use Verdict::{Allow, Deny};
        for (name, pattern, arguments, allow_matches, deny_matches) in [
            ("path", "/tmp/*", json!({"path": "/tmp/a"}), true, true),
            ("path", "/tmp/*", json!({"path": "/TMP/a"}), false, true),
            (
                "path",
                "/tmp/*",
                json!({"path": "/tmp/../etc/x"}),
                false,
                true,
            ),
            (
                "path",
                "/etc/*",
                json!({"path": "/tmp/../etc/x"}),
                false,
                true,
            ),
            (
                "path",
                "/etc/*",
                json!({"path": "/tmp//.././etc/x"}),
                false,
                true,
            ),
            ("path", "/etc/*", json!({"path": "\\etc\\x"}), false, true),
            ("path", "/etc/*", json!({"path": "//etc/x"}), false, true),
            (
                "path",
                "/tmp/*",
                json!({"path": ["/tmp/a", "/etc/x"]}),
                false,
                true,
            ),
            ("path", "/tmp/*", json!({"path": []}), false, false),
            ("path", "*", json!({"other": "x"}), false, false),
            (
                "path",
                "*",
                json!({"path": {"a": "x", "b": [1]}}),
                true,
                true,
            ),
            ("force", "true", json!({"force": true}), true, true),
            ("n", "1*", json!({"n": 12}), true, true),
            ("a.b", "x", json!({"a": {"b": "x"}}), true, true),
            ("a.b", "x", json!({"a.b": "x"}), true, true),
            (
                "a.b",
                "x",
                json!({"a.b": "y", "a": {"b": "x"}}),
                false,
                true,
            ),
            (
                "url",
                "https://a.b/*",
                json!({"url": "https://a.b/c"}),
                true,
                true,
            ),
            (
                "url",
                "https://a.b/*",
                json!({"url": "https://a.b/%2E%2e/c"}),
                false,
                true,
            ),
            (
                "a.b",
                "/etc/*",
                json!({"a": [{"b": "/x"}, {"b": "/etc/y"}]}),
                false,
                true,
            ),
            ("a.b", "/x", json!({"a": [{"b": "/x"}]}), true, true),
            ("n", "1000", json!({"n": 1e3}), false, true),
            (
                "n",
                "1000",
                serde_json::from_str(r#"{"n": 1000.0}"#).unwrap(),
                false,
                true,
            ),
            (
                "path",
                "*/.git/*",
                json!({"path": ".git/config"}),
                false,
                true,
            ),
            ("path", "*/.git/*", json!({"path": "x/.git"}), false, true),
            (
                "path",
                "/etc/*",
                json!({"path": " file:///%65tc/passwd\n"}),
                false,
                true,
            ),
            ("path", "/etc/*", json!({"path": "/etc"}), false, true),
            ("path", "*.env", json!({"path": ".env/ "}), false, true),
            (
                "path",
                "/etc/*",
                json!({"path": "/home/etc/x"}),
                false,
                false,
            ),
            ("sql", "*drop*", json!({"sql": "DROP TABLE x"}), false, true),
        ] {
            assert_eq!(
                matches(Allow, name, &[pattern], &arguments),
                allow_matches,
                "allow {pattern} {arguments}"
            );
            assert_eq!(
                matches(Deny, name, &[pattern], &arguments),
                deny_matches,
                "deny {pattern} {arguments}"
            );
        }
    }

    #[test]
    fn paths_are_normalized() {
        for (text, plain) in [
            ("/a/../../b", "/b"),
            ("../a/../../b", "../../b"),
            ("a/./b//c/", "a/b/c"),
            ("", ""),
            ("/", "/"),
            ("https://x/y", "https:/x/y"),
        ] {
            assert_eq!(normalize_path(text), plain, "{text}");
        }
    }
}
