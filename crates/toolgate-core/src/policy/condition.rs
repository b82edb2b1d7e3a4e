//! Conditions on named arguments.
//!
//! What closes a door reads an argument generously: ignoring case, as written or as the path that
//! it leads to, and one fitting item of a list is enough. What opens one reads it strictly: every
//! item must fit as written, and none may lead upwards with `..`.

use serde_json::Value;

use super::Verdict;
use crate::pattern::Glob;

/// An argument that must fit one of some patterns.
#[derive(Debug)]
pub(super) struct ArgumentCondition {
    name: String,
    patterns: Vec<Glob>,
    strict: bool,
}

impl ArgumentCondition {
    pub(super) fn new(name: &str, patterns: &[String], verdict: Verdict) -> Self {
        let strict = verdict <= Verdict::Manual;
        let glob = |pattern: &String| match strict {
            true => Glob::new(pattern),
            false => Glob::new(&pattern.to_lowercase()),
        };
        Self {
            name: name.to_owned(),
            patterns: patterns.iter().map(glob).collect(),
            strict,
        }
    }

    pub(super) fn fits(&self, arguments: &Value) -> bool {
        let mut named = Vec::new();
        named.extend(arguments.get(&self.name));
        if self.name.contains('.') {
            find(arguments, &self.name, &mut named);
        }
        self.all_or_any(named.into_iter())
    }

    fn value_fits(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.text_fits(text),
            Value::Array(items) => self.all_or_any(items.iter()),
            Value::Object(fields) => self.all_or_any(fields.values()),
            Value::Number(number) if !self.strict => {
                let plain = number.as_f64().map(|number| number.to_string());
                self.text_fits(&number.to_string()) || plain.is_some_and(|n| self.text_fits(&n))
            }
            other => self.text_fits(&other.to_string()),
        }
    }

    fn all_or_any<'v>(&self, mut values: impl ExactSizeIterator<Item = &'v Value>) -> bool {
        match self.strict {
            true => values.len() > 0 && values.all(|value| self.value_fits(value)),
            false => values.any(|value| self.value_fits(value)),
        }
    }

    fn text_fits(&self, text: &str) -> bool {
        let fits = |text: &str| self.patterns.iter().any(|pattern| pattern.matches(text));
        match self.strict {
            true => fits(text) && !leads_upwards(text),
            false => {
                // With and without a slash on either side.
                let path = plain_path(&decoded(text)).to_lowercase();
                let path = format!("/{path}/");
                let end = path.len() - 1;
                let forms = [&path[1..end], &path[1..], &path[..end], &path];
                fits(&text.to_lowercase()) || forms.into_iter().any(fits)
            }
        }
    }
}

/// Everything that a path of names leads to, through the items of lists too.
fn find<'v>(value: &'v Value, path: &str, found: &mut Vec<&'v Value>) {
    if let Value::Array(items) = value {
        return items.iter().for_each(|item| find(item, path, found));
    }
    match path.split_once('.') {
        Some((name, rest)) => {
            if let Some(inner) = value.get(name) {
                find(inner, rest, found);
            }
        }
        None => found.extend(value.get(path)),
    }
}

/// Whether it has a `..` segment, plain or percent-encoded.
fn leads_upwards(text: &str) -> bool {
    let text = text.to_lowercase().replace("%2e", ".");
    let text = text.replace("%2f", "/").replace("%5c", "/");
    text.split(['/', '\\']).any(|segment| segment == "..")
}

/// A text as whoever opens it may read it: trimmed, without `file://` and percent-encoding.
fn decoded(text: &str) -> String {
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

/// A path without `.`, `..` and empty segments, nor a slash at its end; `..` above the start stays.
fn plain_path(text: &str) -> String {
    let text = text.replace('\\', "/");
    let mut kept: Vec<&str> = Vec::new();
    let rooted = text.starts_with('/');
    for segment in text.split('/') {
        match segment {
            "" | "." => {}
            ".." if kept.last().is_some_and(|last| *last != "..") => drop(kept.pop()),
            ".." if rooted => {}
            segment => kept.push(segment),
        }
    }
    format!("{}{}", if rooted { "/" } else { "" }, kept.join("/"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn fits(verdict: Verdict, name: &str, patterns: &[&str], arguments: &Value) -> bool {
        let patterns: Vec<String> = patterns.iter().map(|p| (*p).to_owned()).collect();
        ArgumentCondition::new(name, &patterns, verdict).fits(arguments)
    }

    #[test]
    fn what_opens_is_strict_and_what_closes_is_generous() {
        use Verdict::{Allow, Deny};
        for (name, pattern, arguments, opens, closes) in [
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
                fits(Allow, name, &[pattern], &arguments),
                opens,
                "allow {pattern} {arguments}"
            );
            assert_eq!(
                fits(Deny, name, &[pattern], &arguments),
                closes,
                "deny {pattern} {arguments}"
            );
        }
    }

    #[test]
    fn paths_are_followed() {
        for (text, plain) in [
            ("/a/../../b", "/b"),
            ("../a/../../b", "../../b"),
            ("a/./b//c/", "a/b/c"),
            ("", ""),
            ("/", "/"),
            ("https://x/y", "https:/x/y"),
        ] {
            assert_eq!(plain_path(text), plain, "{text}");
        }
    }
}
