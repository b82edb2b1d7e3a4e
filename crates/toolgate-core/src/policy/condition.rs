//! Rule conditions on named arguments.
//!
//! Conditions of `ask` and `deny` rules match loosely: names and values case-insensitively, values as
//! written or as a path in any spelling, and one matching item of a list suffices. Conditions of
//! `allow` and `manual` rules match strictly: every item must match as written, and none may contain
//! a `..` segment or a NUL.

pub(super) mod path;

use serde_json::Value;

use super::Verdict;
use crate::fold::is_same_name;
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
        self.collect_members(arguments, &self.name, &mut values);
        if self.name.contains('.') {
            self.collect_at_path(arguments, &self.name, &mut values);
        }
        self.matches_values(values.into_iter())
    }

    /// Collects the members of an object that have this name.
    fn collect_members<'v>(&self, value: &'v Value, name: &str, found: &mut Vec<&'v Value>) {
        if self.strict {
            found.extend(value.get(name));
        } else if let Value::Object(members) = value {
            let same = members.iter().filter(|(key, _)| is_same_name(key, name));
            found.extend(same.map(|(_, member)| member));
        }
    }

    /// Collects all values at a dotted path of names, descending into list items.
    fn collect_at_path<'v>(&self, value: &'v Value, path: &str, found: &mut Vec<&'v Value>) {
        if let Value::Array(items) = value {
            return items
                .iter()
                .for_each(|item| self.collect_at_path(item, path, found));
        }
        let Some((name, rest)) = path.split_once('.') else {
            return self.collect_members(value, path, found);
        };
        let mut inner = Vec::new();
        self.collect_members(value, name, &mut inner);
        for value in inner {
            self.collect_at_path(value, rest, found);
        }
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
            return matches(text) && !path::has_parent_segment(text) && !text.contains('\0');
        }
        if matches(&text.to_lowercase()) {
            return true;
        }
        path::spellings(text).into_iter().any(|path| {
            // Try the path with and without a slash on either side.
            let path = format!("/{}/", path.to_lowercase());
            let end = path.len() - 1;
            let forms = [&path[1..end], &path[1..], &path[..end], &path];
            forms.into_iter().any(matches)
        })
    }
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
    fn conditions_that_close_match_names_loosely() {
        use Verdict::{Allow, Ask, Deny, Manual};
        for (name, arguments) in [
            ("path", json!({"Path": "/etc/passwd"})),
            ("path", json!({"path": "/srv/x", "PATH": "/etc/passwd"})),
            ("Path", json!({"path": "/etc/passwd"})),
            ("path", json!({"path\0": "/etc/passwd"})),
            ("disk", json!({"di\u{17f}\u{212a}": "/etc/passwd"})),
            ("a.path", json!({"A": [{"pAth": "/etc/passwd"}]})),
            ("a.path", json!({"A.Path": "/etc/passwd"})),
        ] {
            for (verdict, expected) in [(Ask, true), (Deny, true), (Allow, false), (Manual, false)]
            {
                assert_eq!(
                    matches(verdict, name, &["/etc/*"], &arguments),
                    expected,
                    "{verdict:?} {name} {arguments}"
                );
            }
        }
    }

    #[test]
    fn every_spelling_of_a_path_matches_a_condition_that_closes() {
        for path in [
            "/proc/self/root/etc/passwd",
            "/proc/thread-self/root/etc/passwd",
            "/proc/1/root/etc/passwd",
            "/proc/self/task/42/root/etc/passwd",
            "/proc/self/root/proc/1/root/etc/passwd",
            "/proc/self/cwd/../../../etc/passwd",
            "/proc/self/root/../etc/passwd",
            "/proc/self/../self/root/etc/passwd",
            "//proc/./self//root/etc/passwd",
            "/PROC/SELF/ROOT/etc/passwd",
            "file:/etc/passwd",
            "file:///etc/passwd",
            "file:////etc/passwd",
            "file://localhost/etc/passwd",
            "file://127.0.0.1/etc/passwd",
            "FILE:///etc/passwd",
            "FiLe:/etc/passwd",
            "FILE://LOCALHOST/etc/passwd",
            " file:\\\\etc\\passwd",
            "file:%2Fetc%2Fpasswd",
            "file:/proc/self/root/etc/passwd",
            "file:///proc/self/root/%65tc/passwd",
            "%252fetc%252fpasswd",
            "url:file:///etc/passwd",
        ] {
            let arguments = json!({"path": path});
            assert!(
                matches(Verdict::Deny, "path", &["/etc/*"], &arguments),
                "{path}"
            );
        }
        for path in [
            "/srv/proc/self/root/etc/x",
            "/srv/file:/etc/x",
            "profile:/x",
        ] {
            let arguments = json!({"path": path});
            assert!(
                !matches(Verdict::Deny, "path", &["/etc/*"], &arguments),
                "{path}"
            );
        }
        let cut = json!({"path": "/srv/secret\0.txt"});
        assert!(!matches(Verdict::Allow, "path", &["/srv/*.txt"], &cut));
    }
}
