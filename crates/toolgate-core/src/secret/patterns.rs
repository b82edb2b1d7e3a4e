//! Patterns of well-known secrets: keys and tokens recognizable by their format alone.
//!
//! Used for text from other sources, whose secret values are unknown; [`super::Masker`] handles the
//! values that the configuration names. A pattern is an issuer's prefix plus a length, so hashes,
//! UUIDs and base64 images do not match. All patterns form one regex without backtracking, so a
//! text is scanned once, in linear time.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// Anchors a pattern at the start of a word. In JSON nested in a string, a word may also start
/// after an escape such as `\n`.
macro_rules! word {
    ($pattern:literal) => {
        concat!(r"(?:(?-u:\b)|\\[nrt])", $pattern)
    };
}

struct SecretPattern {
    /// Description with its article, such as "a GitHub token".
    name: &'static str,
    /// Regex with exactly one group, which captures the secret.
    pattern: &'static str,
    /// Additional check for patterns that would also match ordinary words.
    is_plausible: fn(&str) -> bool,
}

const SECRET_PATTERNS: [SecretPattern; 16] = [
    pattern("an Anthropic key", word!(r"(sk-ant-[A-Za-z0-9_-]{20,})")),
    SecretPattern {
        name: "an OpenAI key",
        pattern: word!(r"(sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{20,}))"),
        is_plausible: has_digit,
    },
    pattern(
        "a GitHub token",
        word!(r"(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{36,})"),
    ),
    pattern(
        "a GitLab token",
        word!(r"(glpat-[A-Za-z0-9_-]{20,}(?:\.[0-9a-z]{2}\.[0-9a-z]{7,9})?)"),
    ),
    SecretPattern {
        name: "a Slack token",
        pattern: word!(r"(xox[abprs]-[A-Za-z0-9-]{10,})"),
        is_plausible: has_digit,
    },
    pattern(
        "an AWS access key",
        word!(r"((?:AKIA|ASIA)[A-Z0-9]{16})(?-u:\b)"),
    ),
    pattern("a Google key", word!(r"(AIza[A-Za-z0-9_-]{35})")),
    pattern("a Stripe key", word!(r"([sr]k_live_[A-Za-z0-9]{16,})")),
    pattern("an npm token", word!(r"(npm_[A-Za-z0-9]{36})(?-u:\b)")),
    pattern(
        "a Toolgate admin key",
        word!(r"(tg-admin-[A-Za-z0-9]{43})(?-u:\b)"),
    ),
    pattern("a Toolgate key", word!(r"(tg-[A-Za-z0-9]{43})(?-u:\b)")),
    // Some issuers prepend their own prefix and a `_`.
    pattern(
        "a JSON web token",
        r"(?:(?-u:\b)|\\[nrt]|_)(eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{16,})",
    ),
    // Requires key material after the header line, because documentation quotes the line alone.
    pattern(
        "a private key",
        concat!(
            r"(-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----",
            r"[A-Za-z0-9+/=:,.()\\ \t\r\n-]{0,200}?[A-Za-z0-9+/=]{32}[A-Za-z0-9+/=\\ \t\r\n]*",
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?)",
        ),
    ),
    SecretPattern {
        name: "a bearer token",
        pattern: word!(r"(?:Bearer|bearer|BEARER)(?:[ \t]{1,8}|%20)([A-Za-z0-9._~+/-]{20,}={0,2})"),
        is_plausible: has_digit,
    },
    SecretPattern {
        name: "a password in a URL",
        pattern: r#"://([^\x00-\x20/:@?#"'<>`]*:[^\x00-\x20/@?#"'<>`]+)@"#,
        is_plausible: is_real_password,
    },
    SecretPattern {
        name: "a password in a URL",
        // Same, with escaped slashes, which some JSON writers emit.
        pattern: r#":\\/\\/([^\x00-\x20/:@?#"'<>`\\]*:[^\x00-\x20/@?#"'<>`\\]+)@"#,
        is_plausible: is_real_password,
    },
];

/// All patterns combined. `None` only if one of them is not a valid regex, which the tests rule
/// out.
static COMBINED_PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let patterns = SECRET_PATTERNS.each_ref().map(|secret| secret.pattern);
    Regex::new(&patterns.join("|")).ok()
});

/// Returns the kind of the first secret in `text`, such as "a GitHub token".
pub fn find_kind(text: &str) -> Option<&'static str> {
    let pattern = COMBINED_PATTERN.as_ref()?;
    pattern
        .captures_iter(text)
        .find_map(|captures| secret_match(&captures))
        .map(|found| found.name)
}

/// Replaces each secret in `text` with a marker such as `[redacted: GitHub token]`.
pub fn redact(text: &str) -> Cow<'_, str> {
    let Some(pattern) = COMBINED_PATTERN.as_ref() else {
        return Cow::Borrowed(text);
    };
    let mut redacted = String::new();
    let mut end = 0;
    for found in pattern
        .captures_iter(text)
        .filter_map(|captures| secret_match(&captures))
    {
        let kind = found
            .name
            .split_once(' ')
            .map_or(found.name, |(_, kind)| kind);
        redacted.push_str(&text[end..found.start]);
        redacted.push_str("[redacted: ");
        redacted.push_str(kind);
        redacted.push(']');
        end = found.end;
    }
    if end == 0 {
        return Cow::Borrowed(text);
    }
    redacted.push_str(&text[end..]);
    Cow::Owned(redacted)
}

struct SecretMatch {
    name: &'static str,
    start: usize,
    end: usize,
}

fn secret_match(captures: &Captures<'_>) -> Option<SecretMatch> {
    let (pattern, secret) = SECRET_PATTERNS
        .iter()
        .enumerate()
        .find_map(|(index, pattern)| Some((pattern, captures.get(index + 1)?)))?;
    (pattern.is_plausible)(secret.as_str()).then_some(SecretMatch {
        name: pattern.name,
        start: secret.start(),
        end: secret.end(),
    })
}

const fn pattern(name: &'static str, pattern: &'static str) -> SecretPattern {
    SecretPattern {
        name,
        pattern,
        is_plausible: |_| true,
    }
}

/// A random token of twenty characters contains a digit; words, class names and `xxxx` do not.
fn has_digit(secret: &str) -> bool {
    secret.bytes().any(|byte| byte.is_ascii_digit())
}

/// Returns whether the password is neither a mask nor a placeholder to be filled in later.
fn is_real_password(userinfo: &str) -> bool {
    let password = userinfo
        .split_once(':')
        .map_or(userinfo, |(_, password)| password);
    let masked = password
        .chars()
        .all(|c| matches!(c, '*' | '•' | '.' | 'x' | 'X'));
    let variable = password.strip_prefix('$').is_some_and(|name| {
        name.starts_with(['{', '('])
            || name
                .bytes()
                .all(|byte| byte.is_ascii_uppercase() || byte == b'_')
    });
    let bracketed = [('{', '}'), ('[', ']')]
        .iter()
        .any(|&(open, close)| password.starts_with(open) && password.ends_with(close));
    !masked && !variable && !bracketed && password != "%s"
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANDOM: &str = "a8Kd0fLq2Zx7Vb5Nm3Qw9Er1Ty6Ui4OpSgHjKlCvBnM2";

    /// Sample secrets, assembled at run time so that repository scanners do not report them.
    fn secrets() -> Vec<(&'static str, String)> {
        let random = |length: usize| &RANDOM[..length];
        vec![
            ("an OpenAI key", format!("sk-{}", random(43))),
            (
                "an OpenAI key",
                format!("sk-proj-{}_-{}", random(40), random(40)),
            ),
            (
                "an Anthropic key",
                format!("sk-ant-api03-{}-AA", random(43)),
            ),
            ("a GitHub token", format!("ghp_{}", random(36))),
            ("a GitHub token", format!("ghs_{}", random(36))),
            (
                "a GitHub token",
                format!("github_pat_{}_{}", random(22), random(40)),
            ),
            ("a GitLab token", format!("glpat-{}", random(20))),
            (
                "a GitLab token",
                format!("glpat-{}.01.0a1b2c3d4", random(27)),
            ),
            ("a Slack token", format!("xoxb-123456789012-{}", random(24))),
            ("an AWS access key", "AKIA".to_owned() + "2E0A8F3B7C5D9QWX"),
            ("an AWS access key", "ASIA".to_owned() + "2E0A8F3B7C5D9QWX"),
            ("a Google key", format!("AIza{}", random(35))),
            ("a Stripe key", format!("sk_live_{}", random(24))),
            ("a Stripe key", format!("rk_live_{}", random(24))),
            ("an npm token", format!("npm_{}", random(36))),
            ("a Toolgate key", format!("tg-{}", random(43))),
            ("a Toolgate admin key", format!("tg-admin-{}", random(43))),
            (
                "a JSON web token",
                format!("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.{}", random(43)),
            ),
            (
                "a private key",
                format!(
                    "-----BEGIN RSA PRIVATE KEY-----\n{RANDOM}\n{RANDOM}==\n-----END RSA PRIVATE KEY-----"
                ),
            ),
            (
                "a private key",
                format!("-----BEGIN PRIVATE KEY-----\\n{RANDOM}\\n-----END PRIVATE KEY-----"),
            ),
            (
                "a private key",
                format!(
                    "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\
                     DEK-Info: AES-128-CBC,0A1B2C3D4E5F\n\n{RANDOM}\n-----END EC PRIVATE KEY-----"
                ),
            ),
        ]
    }

    #[test]
    fn secrets_are_found_and_redacted_in_any_context() {
        for (name, secret) in secrets() {
            let kind = name.split_once(' ').unwrap().1;
            for (before, after) in [
                ("", ""),
                ("use ", " please"),
                ("KEY=", "\nB=1"),
                ("{\"k\":\"", "\"}"),
                ("one\\n", "\\ntwo"),
                ("é(", ")."),
                ("?key=", "&b=1"),
            ] {
                let text = format!("{before}{secret}{after}");
                assert_eq!(find_kind(&text), Some(name), "{text}");
                assert!(!redact(&text).contains(&RANDOM[..12]), "{text}");
                assert_eq!(redact(&text), format!("{before}[redacted: {kind}]{after}"));
            }
        }
    }

    #[test]
    fn text_around_a_secret_is_kept() {
        for (text, redacted) in [
            (
                "Authorization: Bearer 0123456789abcdef0123==, next",
                "Authorization: Bearer [redacted: bearer token], next",
            ),
            (
                "postgres://me:hunter2@db/app",
                "postgres://[redacted: password in a URL]@db/app",
            ),
            (
                r#""redis:\/\/:hunter2@db\/0""#,
                r#""redis:\/\/[redacted: password in a URL]@db\/0""#,
            ),
            (
                "db://me:%40hunter@h db://me:$hunter@h db://me:{hunter@h",
                "db://[redacted: password in a URL]@h db://[redacted: password in a URL]@h \
                 db://[redacted: password in a URL]@h",
            ),
            (
                "a://b:c1@d and e://f:g2@h",
                "a://[redacted: password in a URL]@d and e://[redacted: password in a URL]@h",
            ),
        ] {
            assert_eq!(redact(text), redacted);
            assert_eq!(redact(redacted), redacted);
        }
    }

    #[test]
    fn ordinary_text_is_not_redacted() {
        let picture = format!(
            "data:image/png;base64,{}",
            "iVBORw0KGgo/AAAANSUhEUgAA+".repeat(400)
        );
        for text in [
            "",
            "The task-force met at the ask-me-anything desk-side for a risk-free hour.",
            "sk-fading-circle sk-folding-cube-container-inner-part sk-SK",
            "sk-xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx sk-your-key-here sk-...",
            "ghp_short github_pat_ glpat-token xoxb-your-token npm_config_registry npm_package_name",
            "550e8400-e29b-41d4-a716-446655440000",
            "da39a3ee5e6b4b0d3255bfef95601890afd80709",
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "sha512-z4PhNX7vuL3xVChQ1m2AB9Yg5AULVxXcg/SpIdNs6c5H0NE8XYXysP+DGNKHfuwvY7kxvUdBeoGlODJ6+SfaPg==",
            "Use Bearer authentication, a bearer of internationalization and Bearer <token>.",
            "Authorization: Bearer ${API_TOKEN} or Bearer YOUR_ACCESS_TOKEN_GOES_HERE",
            "https://example.com:8080/a@b ftp://me@host http://h:80?mail=a@b.c http://[::1]:80/",
            "postgres://me:***@db postgres://me:${PASSWORD}@db postgres://me:@db http://me:<pw>@h",
            "db://me:$DB_PASSWORD@h db://me:{password}@h db://me:%s@h",
            "mail me@example.com at 12:30, see std://x",
            "A file that starts with -----BEGIN PRIVATE KEY----- is a private key.",
            "-----BEGIN CERTIFICATE-----\nMIIBIjANBgkqhkiG9w0BAQEFAAOCAQ8AMIIBCgKCAQEA\n-----END CERTIFICATE-----",
            "AKIA is a prefix; AKIAIOSFODNN7 is too short; eyJ.eyJ.x; tg-toolgate",
            &picture,
        ] {
            assert_eq!(find_kind(text), None, "{text}");
            assert!(matches!(redact(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn near_misses_take_linear_time() {
        for piece in [
            "sk-",
            "eyJaaaaaaaaaaaaaa!",
            "://a:",
            "-----BEGIN PRIVATE KEY-----",
            "Bearer ",
            "a",
        ] {
            let text = piece.repeat(1_000_000 / piece.len());
            assert!(redact(&text) == text, "a megabyte of `{piece}`");
        }
    }
}
