//! What the name of an argument says about its value.
//!
//! Names are compared word by word, so `filePath`, `output_dir` and `base-URLs` tell as much as
//! `path`, while `profile` and `ghost` tell nothing.

use std::borrow::Cow;

/// Hold a path, whatever the value looks like.
const PATHS: [&str; 19] = [
    "basedir",
    "cwd",
    "dir",
    "directories",
    "directory",
    "dirname",
    "dirpath",
    "file",
    "filename",
    "filepath",
    "folder",
    "folderpath",
    "outdir",
    "path",
    "pathname",
    "rootdir",
    "subdir",
    "workdir",
    "workspace",
];
/// Hold a path where the value is one line: a `source` may as well be a program.
const PLACES: [&str; 7] = [
    "destination",
    "dest",
    "dst",
    "root",
    "source",
    "src",
    "target",
];
const COMMANDS: [&str; 13] = [
    "arg",
    "args",
    "argv",
    "bash",
    "cmd",
    "cmdline",
    "command",
    "commandline",
    "exec",
    "powershell",
    "script",
    "sh",
    "shell",
];
const HOSTS: [&str; 13] = [
    "baseurl",
    "callback",
    "domain",
    "endpoint",
    "host",
    "hostname",
    "proxy",
    "server",
    "servername",
    "uri",
    "url",
    "webhook",
    "websocket",
];
/// Hold a host, or the address of a house, a cell, a wallet or a byte in memory.
const ADDRESSES: [&str; 5] = ["addr", "address", "addresses", "ip", "ipaddress"];
/// Speak about a thing instead of holding it, as in `command_description`.
const PROSE: [&str; 7] = [
    "comment",
    "description",
    "explanation",
    "message",
    "note",
    "summary",
    "title",
];
/// Hold what is in a file, as in `file_content`.
const CONTENTS: [&str; 6] = ["body", "code", "content", "data", "diff", "text"];

/// The readings of a value that its name suggests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Hints {
    path: bool,
    place: bool,
    pub(super) command: bool,
    host: bool,
    address: bool,
}

impl Hints {
    pub(super) fn of(name: &str) -> Self {
        let words = words(name);
        let has = |list: &[&str]| {
            words.iter().any(|word| {
                let singular = word.strip_suffix('s').unwrap_or(word);
                list.contains(&&**word) || list.contains(&singular)
            })
        };
        let prose = has(&PROSE);
        let contents = prose || has(&CONTENTS);
        Self {
            path: !contents && has(&PATHS),
            place: !contents && has(&PLACES),
            command: !prose && has(&COMMANDS),
            host: !prose && has(&HOSTS),
            address: !prose && has(&ADDRESSES),
        }
    }

    pub(super) fn is_path(self, value: &str) -> bool {
        self.path || (self.place && !value.trim().contains('\n'))
    }

    pub(super) fn is_host(self, value: &str) -> bool {
        self.host || (self.address && (value.contains(['.', ':']) || value == "localhost"))
    }
}

/// The words of a name in lower case, split at what is no letter and at camelCase borders.
fn words(name: &str) -> Vec<Cow<'_, str>> {
    // Most names are written like this, and need no copy.
    let is_plain = |byte: u8| byte.is_ascii() && !byte.is_ascii_uppercase();
    if name.bytes().all(is_plain) {
        let words = name.split(|letter: char| !letter.is_ascii_alphabetic());
        return words
            .filter(|word| !word.is_empty())
            .map(Cow::Borrowed)
            .collect();
    }
    let letters: Vec<char> = name.chars().collect();
    let is_lower = |at: usize| letters.get(at).is_some_and(|c| c.is_lowercase());
    let mut words = vec![String::new()];
    for (at, letter) in letters.iter().enumerate() {
        // The last capital of `URLPath` begins a word, that of `URLs` does not.
        let plural = letters.get(at + 1) == Some(&'s') && !is_lower(at + 2);
        let after_small = at > 0 && is_lower(at - 1);
        let begins = letter.is_uppercase() && (after_small || (is_lower(at + 1) && !plural));
        if begins || !letter.is_alphabetic() {
            words.push(String::new());
        }
        if letter.is_alphabetic()
            && let Some(word) = words.last_mut()
        {
            word.extend(letter.to_lowercase());
        }
    }
    words.retain(|word| !word.is_empty());
    words.into_iter().map(Cow::Owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fall_into_words() {
        for (name, expected) in [
            ("path", &["path"][..]),
            ("filePath", &["file", "path"]),
            ("output_dir", &["output", "dir"]),
            ("x-base.URL host", &["x", "base", "url", "host"]),
            ("HTTPServer2", &["http", "server"]),
            ("imageURLs", &["image", "urls"]),
            ("URLsToFetch", &["urls", "to", "fetch"]),
            ("ÉtéPath", &["été", "path"]),
            ("__", &[]),
        ] {
            assert_eq!(words(name), expected, "{name}");
        }
    }

    #[test]
    fn lists_are_of_single_words() {
        for word in [
            &PATHS[..],
            &PLACES,
            &COMMANDS,
            &HOSTS,
            &ADDRESSES,
            &PROSE,
            &CONTENTS,
        ]
        .concat()
        {
            assert_eq!(words(word), [word]);
        }
    }
}
