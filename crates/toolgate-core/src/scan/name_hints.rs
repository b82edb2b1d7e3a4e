//! Infers from an argument's name how its value is used.
//!
//! Names are compared word by word, so `filePath`, `output_dir` and `base-URLs` are recognized like
//! `path`, while `profile` and `ghost` are not.

use std::borrow::Cow;

/// Names of paths, whatever the value looks like.
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
/// Names of paths if the value is a single line; a `source` may also be program text.
const LOCATIONS: [&str; 7] = [
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
/// Names of network addresses, but also of postal, memory, wallet or cell addresses.
const ADDRESSES: [&str; 5] = ["addr", "address", "addresses", "ip", "ipaddress"];
/// Names of prose about a thing rather than the thing itself, as in `command_description`.
const PROSE: [&str; 7] = [
    "comment",
    "description",
    "explanation",
    "message",
    "note",
    "summary",
    "title",
];
/// Names of file contents, as in `file_content`.
const CONTENTS: [&str; 6] = ["body", "code", "content", "data", "diff", "text"];

/// Uses of a value that its name suggests.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NameHints {
    path: bool,
    location: bool,
    pub(super) command: bool,
    host: bool,
    address: bool,
}

impl NameHints {
    pub(super) fn from_name(name: &str) -> Self {
        let words = split_words(name);
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
            location: !contents && has(&LOCATIONS),
            command: !prose && has(&COMMANDS),
            host: !prose && has(&HOSTS),
            address: !prose && has(&ADDRESSES),
        }
    }

    pub(super) fn is_path(self, value: &str) -> bool {
        self.path || (self.location && !value.trim().contains('\n'))
    }

    pub(super) fn is_host(self, value: &str) -> bool {
        self.host || (self.address && (value.contains(['.', ':']) || value == "localhost"))
    }
}

/// Splits a name into lower-case words, at non-letters and camelCase boundaries.
fn split_words(name: &str) -> Vec<Cow<'_, str>> {
    // Fast path: most names are lower-case ASCII and need no copy.
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
        // The last capital of the acronym in `URLPath` starts a word; that of `URLs` does not.
        let plural = letters.get(at + 1) == Some(&'s') && !is_lower(at + 2);
        let after_lower = at > 0 && is_lower(at - 1);
        let begins = letter.is_uppercase() && (after_lower || (is_lower(at + 1) && !plural));
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
    fn names_are_split_into_words() {
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
            assert_eq!(split_words(name), expected, "{name}");
        }
    }

    #[test]
    fn lists_contain_single_words() {
        for word in [
            &PATHS[..],
            &LOCATIONS,
            &COMMANDS,
            &HOSTS,
            &ADDRESSES,
            &PROSE,
            &CONTENTS,
        ]
        .concat()
        {
            assert_eq!(split_words(word), [word]);
        }
    }
}
