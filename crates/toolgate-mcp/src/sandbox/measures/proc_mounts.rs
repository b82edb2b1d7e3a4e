//! Finds where `/proc` is mounted a second time, for example that of the host in a container.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

use rustix::fs::{PROC_SUPER_MAGIC, statfs};

/// Returns the mounts of `/proc`, or of parts of it, outside of `/proc`.
pub(super) fn other_proc_mounts() -> Vec<PathBuf> {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let lines = mounts.split(|byte| *byte == b'\n');
    let paths = lines.filter_map(parse_proc_mount);
    let is_visible = |path: &PathBuf| {
        // Another mount may cover it.
        statfs(path).is_ok_and(|found| found.f_type == PROC_SUPER_MAGIC)
    };
    paths
        .filter(|path| !path.starts_with("/proc") && is_visible(path))
        .collect()
}

/// Returns the mount point of a line of `mountinfo` if it is one of `/proc`.
fn parse_proc_mount(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ');
    let path = fields.nth(4)?;
    // Optional fields end with a dash, which the type follows.
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    (kind == b"proc").then(|| PathBuf::from(OsString::from_vec(unescape(path))))
}

/// Replaces the octal escapes of blanks, line breaks and backslashes.
fn unescape(text: &[u8]) -> Vec<u8> {
    let mut unescaped = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((&first, after)) = rest.split_first() {
        let escaped = (first == b'\\').then(|| after.first_chunk::<3>()).flatten();
        let number = escaped.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match number {
            Some(byte) => {
                unescaped.push(byte);
                rest = after.get(3..).unwrap_or_default();
            }
            None => {
                unescaped.push(first);
                rest = after;
            }
        }
    }
    unescaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_proc_are_found_with_unusual_names() {
        let parse = |line: &str| parse_proc_mount(line.as_bytes());
        let line =
            r"36 35 0:5 / /mnt/a\040b\134c rw,nosuid shared:7 master:1 - proc proc rw,hidepid=2";
        assert_eq!(parse(line), Some(PathBuf::from(r"/mnt/a b\c")));
        let line = "36 35 0:5 / /srv rw - ext4 /dev/root rw";
        assert_eq!(parse(line), None);
        assert_eq!(parse(""), None);
    }
}
