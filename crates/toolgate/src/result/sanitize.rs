//! Removes terminal escapes and control characters from results and, if configured, redacts text
//! that looks like a secret. Results without either are returned byte for byte.

use std::borrow::Cow;

use serde_json::Value;
use serde_json::value::RawValue;
use toolgate_core::clean;
use toolgate_core::secret::patterns;

/// Whether text that looks like a secret is kept or redacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SecretPolicy {
    Keep,
    Redact,
}

pub(crate) fn sanitize(raw: Box<RawValue>, secrets: SecretPolicy) -> Box<RawValue> {
    let suspicious = clean::json::may_need_cleaning(raw.get())
        || (secrets == SecretPolicy::Redact && patterns::find_kind(raw.get()).is_some());
    if !suspicious {
        return raw;
    }
    let Ok(mut value) = serde_json::from_str::<Value>(raw.get()) else {
        return raw;
    };
    // The server must get its state back unchanged.
    let state = value.get_mut("requestState").map(Value::take);
    let changed = clean::json::replace_texts(&mut value, &|text| sanitize_text(text, secrets));
    if let (Some(slot), Some(state)) = (value.get_mut("requestState"), state) {
        *slot = state;
    }
    if !changed {
        return raw;
    }
    serde_json::value::to_raw_value(&value).unwrap_or(raw)
}

/// Returns the sanitized text; `None` if nothing changed.
fn sanitize_text(text: &str, secrets: SecretPolicy) -> Option<String> {
    let cleaned = clean::clean(text);
    let redacted = match secrets {
        SecretPolicy::Keep => Cow::Borrowed(&*cleaned),
        SecretPolicy::Redact => patterns::redact(&cleaned),
    };
    (redacted != text).then(|| redacted.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(json: &str, secrets: SecretPolicy) -> String {
        let raw = serde_json::from_str(json).unwrap();
        sanitize(raw, secrets).get().to_owned()
    }

    #[test]
    fn clean_results_are_unchanged() {
        for json in [
            r#"{"content":[{"type":"text","text":"a\n\tb é \u00e9 \\u001b"}], "n": 1e400}"#,
            r#"{ "content" : [] }"#,
            r#"{"content":[{"type":"image","data":"\u0041AAA"}]}"#,
        ] {
            assert_eq!(run(json, SecretPolicy::Keep), json);
        }
    }

    #[test]
    fn removes_escapes_and_preserves_numbers() {
        let json = r#"{"content":[{"type":"text","text":"\u001b[31mred\u001b[0m\u0007"}],"structuredContent":{"n":18446744073709551617,"s":"a\u009b2Jb"}}"#;
        let expected = r#"{"content":[{"type":"text","text":"red"}],"structuredContent":{"n":18446744073709551617,"s":"ab"}}"#;
        assert_eq!(run(json, SecretPolicy::Keep), expected);
    }

    #[test]
    fn request_state_is_unchanged() {
        let key = format!("ghp_{}", "a1B2".repeat(9));
        let json = format!(r#"{{"requestState":"{key}","inputRequests":{{"q":"{key}"}}}}"#);
        let sanitized = run(&json, SecretPolicy::Redact);
        assert!(sanitized.starts_with(&format!(r#"{{"requestState":"{key}","#)));
        assert_eq!(
            sanitized.matches("a1B2a1B2").count(),
            json.matches("a1B2a1B2").count() / 2
        );
    }

    #[test]
    fn redacts_secrets_only_if_configured() {
        let key = format!("ghp_{}", "a1B2".repeat(9));
        let json = format!(r#"{{"content":[{{"type":"text","text":"token {key}"}}]}}"#);
        assert_eq!(run(&json, SecretPolicy::Keep), json);
        assert!(!run(&json, SecretPolicy::Redact).contains("a1B2"));
        let json = format!(r#"{{"structuredContent":{{"data":{{"data":"{key}"}}}}}}"#);
        assert!(!run(&json, SecretPolicy::Redact).contains("a1B2"));
    }
}
