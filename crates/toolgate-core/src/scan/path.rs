//! Paths that climb: `..` segments, plain or in disguise, and the NUL bytes that cut paths short.
//!
//! A segment is what stands between `/` or `\`, so `1..2`, `main..fix` and `...` climb nowhere.

use std::borrow::Cow;

/// How often a value is percent-decoded: `%252e` hides from those who decode once.
const LAYERS: usize = 3;
/// What systems take for a path at most.
const LONGEST_PATH: usize = 4096;
/// Spellings of `.`, `/`, `\` and NUL that lax UTF-8 decoders accept.
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
enum Trick {
    Climb,
    EncodedClimb,
    Nul,
}

/// What is wrong with a value that is used as a path, in words.
pub(super) fn in_path(value: &str) -> Option<&'static str> {
    trick(value).map(Trick::words)
}

/// The same for a value of any use: only if it is clearly a path.
pub(super) fn in_text(value: &str) -> Option<&'static str> {
    let value = value.trim();
    if value.len() > LONGEST_PATH || value.contains('\n') {
        return None;
    }
    let trick = trick(value)?;
    let clear = starts_as_path(value)
        || match trick {
            _ if value.contains(char::is_whitespace) => false,
            Trick::EncodedClimb => true,
            // URLs are made of segments too, and regular expressions of backslashes.
            _ if value.contains("://") || value.contains('\\') => false,
            _ if !value.contains('/') => false,
            Trick::Climb => climbs_out(value),
            Trick::Nul => true,
        };
    clear.then(|| trick.words())
}

impl Trick {
    fn words(self) -> &'static str {
        match self {
            Self::Climb => "a path with a `..` segment",
            Self::EncodedClimb => "a path with an encoded `..` segment",
            Self::Nul => "a path with a NUL byte",
        }
    }
}

fn trick(value: &str) -> Option<Trick> {
    let mut bytes = Cow::Borrowed(value.as_bytes());
    for layer in 0..=LAYERS {
        if bytes.contains(&0) {
            return Some(Trick::Nul);
        }
        if bytes.split(|byte| b"/\\".contains(byte)).any(is_parent) {
            return Some(match layer {
                0 => Trick::Climb,
                _ => Trick::EncodedClimb,
            });
        }
        bytes = Cow::Owned(decoded(&bytes)?);
    }
    None
}

/// Servers of Java cut a segment at `;`, and Windows trims spaces.
fn is_parent(segment: &[u8]) -> bool {
    let segment = segment.trim_ascii();
    segment == b".." || segment.starts_with(b"..;")
}

/// None if nothing is encoded.
fn decoded(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut output = Vec::with_capacity(bytes.len());
    let mut changed = false;
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        rest = match (first, after) {
            (b'%', [high, low, after @ ..]) if let Some(byte) = hex(*high, *low) => {
                changed = true;
                output.push(byte);
                shorten(&mut output);
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

fn shorten(output: &mut Vec<u8>) {
    for (long, short) in OVERLONG {
        if output.ends_with(long) {
            output.truncate(output.len() - long.len());
            output.push(short);
        }
    }
}

fn starts_as_path(value: &str) -> bool {
    let value = value.to_ascii_lowercase();
    let on_drive = matches!(value.as_bytes(), [b'a'..=b'z', b':', b'/' | b'\\', ..]);
    let rooted = value.starts_with('/') && !value.starts_with("//");
    let relative = ["./", "../", "~/", ".\\", "..\\", "\\\\", "..;/", "file:/"]
        .iter()
        .any(|start| value.starts_with(start));
    on_drive || rooted || relative
}

/// Whether a relative path leaves the folder it starts in. `s/../x/` does not.
fn climbs_out(path: &str) -> bool {
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
    fn paths_that_climb() {
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
            assert!(in_path(path).is_some(), "{path:?}");
        }
    }

    #[test]
    fn paths_that_do_not() {
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
            assert_eq!(in_path(path), None, "{path:?}");
        }
    }

    #[test]
    fn values_that_are_clearly_paths() {
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
            assert!(in_text(text).is_some(), "{text:?}");
        }
    }

    #[test]
    fn values_that_are_not() {
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
            assert_eq!(in_text(text), None, "{text:?}");
        }
    }
}
