//! What secrets look like: keys and tokens that can be told by their shape alone.
//!
//! For text that is about to leave the house, where nobody said which values are secret; the
//! values that the configuration names are [`crate::secret::Masker`]'s. A shape is a prefix that
//! its issuer chose and a length, so hashes, UUIDs and pictures in base64 pass. All shapes are one
//! pattern without backtracking, so a text is read once, in linear time.

use std::borrow::Cow;
use std::sync::LazyLock;

use regex::{Captures, Regex};

/// A pattern at the beginning of a word; in JSON inside a string, that may be after a `\n`.
macro_rules! word {
    ($pattern:literal) => {
        concat!(r"(?:(?-u:\b)|\\[nrt])", $pattern)
    };
}

struct Shape {
    /// With its article, as in "this holds a GitHub token".
    name: &'static str,
    /// Has one group: what is secret of the match.
    pattern: &'static str,
    /// A second look, where the pattern alone would also take ordinary words.
    plausible: fn(&str) -> bool,
}

const SHAPES: [Shape; 16] = [
    shape("an Anthropic key", word!(r"(sk-ant-[A-Za-z0-9_-]{20,})")),
    Shape {
        name: "an OpenAI key",
        pattern: word!(r"(sk-(?:(?:proj|svcacct|admin|None)-[A-Za-z0-9_-]{20,}|[A-Za-z0-9]{20,}))"),
        plausible: has_digit,
    },
    shape(
        "a GitHub token",
        word!(r"(gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{36,})"),
    ),
    shape(
        "a GitLab token",
        word!(r"(glpat-[A-Za-z0-9_-]{20,}(?:\.[0-9a-z]{2}\.[0-9a-z]{7,9})?)"),
    ),
    Shape {
        name: "a Slack token",
        pattern: word!(r"(xox[abprs]-[A-Za-z0-9-]{10,})"),
        plausible: has_digit,
    },
    shape(
        "an AWS access key",
        word!(r"((?:AKIA|ASIA)[A-Z0-9]{16})(?-u:\b)"),
    ),
    shape("a Google key", word!(r"(AIza[A-Za-z0-9_-]{35})")),
    shape("a Stripe key", word!(r"([sr]k_live_[A-Za-z0-9]{16,})")),
    shape("an npm token", word!(r"(npm_[A-Za-z0-9]{36})(?-u:\b)")),
    shape(
        "a Toolgate admin key",
        word!(r"(tg-admin-[A-Za-z0-9]{43})(?-u:\b)"),
    ),
    shape("a Toolgate key", word!(r"(tg-[A-Za-z0-9]{43})(?-u:\b)")),
    // Some issuers put their own prefix and a `_` before it.
    shape(
        "a JSON web token",
        r"(?:(?-u:\b)|\\[nrt]|_)(eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{16,})",
    ),
    // The line must be followed by a key: documentation quotes the line alone.
    shape(
        "a private key",
        concat!(
            r"(-----BEGIN (?:[A-Z0-9]{1,12} ){0,3}PRIVATE KEY(?: BLOCK)?-----",
            r"[A-Za-z0-9+/=:,.()\\ \t\r\n-]{0,200}?[A-Za-z0-9+/=]{32}[A-Za-z0-9+/=\\ \t\r\n]*",
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?)",
        ),
    ),
    Shape {
        name: "a bearer token",
        pattern: word!(r"(?:Bearer|bearer|BEARER)(?:[ \t]{1,8}|%20)([A-Za-z0-9._~+/-]{20,}={0,2})"),
        plausible: has_digit,
    },
    Shape {
        name: "a password in a URL",
        pattern: r#"://([^\x00-\x20/:@?#"'<>`]*:[^\x00-\x20/@?#"'<>`]+)@"#,
        plausible: is_password,
    },
    Shape {
        name: "a password in a URL",
        // The same where the slashes are escaped, as some writers of JSON do.
        pattern: r#":\\/\\/([^\x00-\x20/:@?#"'<>`\\]*:[^\x00-\x20/@?#"'<>`\\]+)@"#,
        plausible: is_password,
    },
];

/// None only if a shape above is not a pattern, which a test rules out.
static PATTERN: LazyLock<Option<Regex>> = LazyLock::new(|| {
    let patterns = SHAPES.each_ref().map(|shape| shape.pattern);
    Regex::new(&patterns.join("|")).ok()
});

/// The kind of the first secret in a text, such as "a GitHub token".
pub fn find(text: &str) -> Option<&'static str> {
    let pattern = PATTERN.as_ref()?;
    pattern
        .captures_iter(text)
        .find_map(|captures| hit(&captures))
        .map(|hit| hit.name)
}

/// The text with each secret replaced, such as by `[redacted: GitHub token]`.
pub fn redact(text: &str) -> Cow<'_, str> {
    let Some(pattern) = PATTERN.as_ref() else {
        return Cow::Borrowed(text);
    };
    let mut redacted = String::new();
    let mut end = 0;
    for hit in pattern
        .captures_iter(text)
        .filter_map(|captures| hit(&captures))
    {
        let kind = hit.name.split_once(' ').map_or(hit.name, |(_, kind)| kind);
        redacted.push_str(&text[end..hit.start]);
        redacted.push_str("[redacted: ");
        redacted.push_str(kind);
        redacted.push(']');
        end = hit.end;
    }
    if end == 0 {
        return Cow::Borrowed(text);
    }
    redacted.push_str(&text[end..]);
    Cow::Owned(redacted)
}

struct Hit {
    name: &'static str,
    start: usize,
    end: usize,
}

fn hit(captures: &Captures<'_>) -> Option<Hit> {
    let (shape, secret) = SHAPES
        .iter()
        .enumerate()
        .find_map(|(index, shape)| Some((shape, captures.get(index + 1)?)))?;
    (shape.plausible)(secret.as_str()).then_some(Hit {
        name: shape.name,
        start: secret.start(),
        end: secret.end(),
    })
}

const fn shape(name: &'static str, pattern: &'static str) -> Shape {
    Shape {
        name,
        pattern,
        plausible: |_| true,
    }
}

/// Random tokens of twenty characters have one; words, class names and `xxxx` have none.
fn has_digit(secret: &str) -> bool {
    secret.bytes().any(|byte| byte.is_ascii_digit())
}

/// Not a mask and not a variable that somebody fills in later.
fn is_password(userinfo: &str) -> bool {
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

    /// Keys are put together here, so that no scanner of repositories takes them for real ones.
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
    fn secrets_are_found_and_redacted_wherever_they_stand() {
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
                assert_eq!(find(&text), Some(name), "{text}");
                assert!(!redact(&text).contains(&RANDOM[..12]), "{text}");
                assert_eq!(redact(&text), format!("{before}[redacted: {kind}]{after}"));
            }
        }
    }

    #[test]
    fn what_stands_around_a_secret_stays() {
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
    fn ordinary_text_passes() {
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
            assert_eq!(find(text), None, "{text}");
            assert!(matches!(redact(text), Cow::Borrowed(_)), "{text}");
        }
    }

    #[test]
    fn near_misses_stay_cheap() {
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
