//! Detects path traversal: `..` segments, plain or encoded, and NUL bytes that truncate paths.
//!
//! Segments are separated by `/` or `\`, so `1..2`, `main..fix` and `...` are harmless.

use std::borrow::Cow;

/// Number of percent-decoding passes; `%252e` survives a single one.
const MAX_DECODE_PASSES: usize = 3;
/// Maximum path length of common operating systems.
const MAX_PATH_LEN: usize = 4096;
/// Overlong encodings of `.`, `/`, `\` and NUL that lax UTF-8 decoders accept.
const OVERLONG: [(&[u8], u8); 8] = [
    (b"\xc0\xae", b'.'),
    (b"\xc0\xaf", b'/'),
    (b"\xc1\x9c", b'\\'),
    (b"\xc0\x80", 0),
    (b"\xe0\x80\xae", b'.'),
    (b"\xe0\x80\xaf", b'/'),
    (b"\xe0\x81\x9c", b'\\'),
    (b"\xe0\x80\x80", 0),
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Traversal {
    Parent,
    EncodedParent,
    NulByte,
}

/// Describes the traversal in a value that is used as a path.
pub(super) fn check_path(value: &str) -> Option<&'static str> {
    find_traversal(value).map(Traversal::describe)
}

/// Describes the traversal in a value of unknown use, if it is clearly a path.
pub(super) fn check_text(value: &str) -> Option<&'static str> {
    let value = value.trim();
    if value.len() > MAX_PATH_LEN || value.contains('\n') {
        return None;
    }
    let traversal = find_traversal(value)?;
    let clear = starts_like_path(value)
        || match traversal {
            _ if value.contains(char::is_whitespace) => false,
            Traversal::EncodedParent => true,
            // URLs also consist of segments, and regular expressions contain backslashes.
            _ if value.contains("://") || value.contains('\\') => false,
            _ if !value.contains('/') => false,
            Traversal::Parent => leaves_start_dir(value),
            Traversal::NulByte => true,
        };
    clear.then(|| traversal.describe())
}

impl Traversal {
    fn describe(self) -> &'static str {
        match self {
            Self::Parent => "a path with a `..` segment",
            Self::EncodedParent => "a path with an encoded `..` segment",
            Self::NulByte => "a path with a NUL byte",
        }
    }
}

fn find_traversal(value: &str) -> Option<Traversal> {
    let mut bytes = Cow::Borrowed(value.as_bytes());
    for layer in 0..=MAX_DECODE_PASSES {
        if bytes.contains(&0) {
            return Some(Traversal::NulByte);
        }
        if bytes.split(|byte| b"/\\".contains(byte)).any(is_parent) {
            return Some(match layer {
                0 => Traversal::Parent,
                _ => Traversal::EncodedParent,
            });
        }
        bytes = Cow::Owned(percent_decode(&bytes)?);
    }
    None
}

/// Java servers cut a segment at `;`, and Windows trims spaces.
fn is_parent(segment: &[u8]) -> bool {
    let segment = segment.trim_ascii();
    segment == b".." || segment.starts_with(b"..;")
}

/// Decodes one layer of percent-encoding; `None` if nothing is encoded.
fn percent_decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut output = Vec::with_capacity(bytes.len());
    let mut changed = false;
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) if let Some(byte) = hex(*high, *low) => {
                changed = true;
                output.push(byte);
                replace_overlong(&mut output);
                after
            }
            _ => {
                output.push(*first);
                after
            }
        };
    }
    changed.then_some(output)
}

fn hex(high: u8, low: u8) -> Option<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    u8::try_from(digit(high)? * 16 + digit(low)?).ok()
}

fn replace_overlong(output: &mut Vec<u8>) {
    for (long, short) in OVERLONG {
        if output.ends_with(long) {
            output.truncate(output.len() - long.len());
            output.push(short);
        }
    }
}

fn starts_like_path(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let on_drive = matches!(value.as_bytes(), [b'a'..=b'z', b':', b'/' | b'\\', ..]);
    let rooted = value.starts_with('/') && !value.starts_with("//");
    let relative = ["./", "../", "~/", ".\\", "..\\", "\\\\", "..;/", "file:/"]
        .iter()
        .any(|start| value.starts_with(start));
    on_drive || rooted || relative
}

/// Returns whether a relative path leaves its starting directory. `s/../x/` does not.
fn leaves_start_dir(path: &str) -> bool {
    let mut depth = 0_i32;
    path.split('/').any(|segment| {
        depth += match segment {
            "" | "." => 0,
            _ if is_parent(segment.as_bytes()) => -1,
            _ => 1,
        };
        depth < 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traversal_in_paths_is_detected() {
        for path in [
            "..",
            "../x",
            "a/..",
            "a/../b",
            "a\\..\\b",
            "/srv/../etc/passwd",
            "C:\\a\\..\\b",
            "%2e%2e%2fetc",
            "..%2fetc",
            "%2E%2E/etc",
            "..%5cetc",
            "%252e%252e%252fetc",
            "%25252e%25252e/x",
            "..;/admin",
            "..;a=b/x",
            "%c0%ae%c0%ae/x",
            "..%c0%afx",
            "%e0%80%ae%e0%80%ae/x",
            "..%c1%9cx",
            "a.png\0.txt",
            "a.png%00.txt",
            "file:///srv/../etc",
            " ../x",
            ".. /x",
        ] {
            assert!(check_path(path).is_some(), "{path:?}");
        }
    }

    #[test]
    fn harmless_paths_are_not_detected() {
        for path in [
            "",
            ".",
            "...",
            "/",
            "./...",
            "a..b",
            "a/..b/c",
            "a/b../c",
            "1..2",
            "main..fix/x",
            "/etc/passwd",
            "~/x",
            "C:\\a\\b",
            "100%",
            "50%25",
            "%2e%2eetc",
            "a%2fb",
            "..x;/y",
            "é/ü",
            "see ..",
            "import x from \"../lib\"",
        ] {
            assert_eq!(check_path(path), None, "{path:?}");
        }
    }

    #[test]
    fn traversal_in_clear_path_values_is_detected() {
        for text in [
            "../x",
            "../../etc/passwd",
            "a/../../etc/passwd",
            "/srv/My Files/../../etc",
            "~/../x",
            "..\\..\\windows",
            "c:/a/../b",
            "\\\\host\\share\\..\\x",
            "%2e%2e%2fetc",
            "https://example.com/%2e%2e%2fetc",
            "file:///srv/../etc",
            "..;/admin",
            "/a\0b",
        ] {
            assert!(check_text(text).is_some(), "{text:?}");
        }
    }

    #[test]
    fn other_values_are_not_detected() {
        for text in [
            "..",
            "and so on ..",
            "wait .. / what",
            "1..2",
            "see ../../docs for more",
            "s/../x/",
            "https://example.com/a/../b",
            "a\\..\\b",
            "// see ../../docs",
            "a\0b",
            "a/../b",
            "import a from '../../lib/a';\nimport b from '../../lib/b';",
            "cat ../../x",
        ] {
            assert_eq!(check_text(text), None, "{text:?}");
        }
    }
}
