//! Recognizes denied accesses in what a strict server prints, and names the setting that would allow them.
//!
//! The kernel does not tell what it denied to whom. Programs do, in the words of the system's error
//! messages. What they print is not trusted: a hint contains only a path of ordinary characters, and it
//! appears only if that path is really outside of the sandbox.

use std::path::{Component, Path, PathBuf};

use toolgate_core::config::{NetworkAccess, StrictSandbox};
use toolgate_core::name::ServerName;

/// Maximum length of a line that is searched, in bytes.
const MAX_LINE_BYTES: usize = 2048;
/// Maximum length of a path in a hint, in bytes.
const MAX_PATH_BYTES: usize = 256;

/// Texts of denied accesses to files, in lower case.
const FILE_DENIALS: [&str; 4] = [
    "permission denied",
    "eacces",
    "eperm",
    "operation not permitted",
];
/// Texts of a missing network, in lower case.
const NETWORK_DENIALS: [&str; 5] = [
    "enetunreach",
    "network is unreachable",
    "eai_again",
    "temporary failure in name resolution",
    "could not resolve host",
];
/// Where ordinary permissions decide, rather than the sandbox.
const SYSTEM_DIRECTORIES: [&str; 9] = [
    "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/etc", "/proc", "/sys",
];

/// The sandbox of a server, as far as it explains denied accesses.
#[derive(Clone, Debug)]
pub(crate) struct DenialHints {
    server: ServerName,
    read: Vec<PathBuf>,
    write: Vec<PathBuf>,
    /// Files and directories of the gateway, to which no setting gives access.
    hidden: Vec<PathBuf>,
    network: NetworkAccess,
}

impl DenialHints {
    pub(crate) fn new(server: &ServerName, strict: &StrictSandbox, hidden: &[PathBuf]) -> Self {
        Self {
            server: server.clone(),
            read: with_targets(&strict.read),
            write: with_targets(&strict.write),
            hidden: with_targets(hidden),
            network: strict.network,
        }
    }

    /// Returns which setting would allow what was denied according to a line, if it says so.
    pub(crate) fn find(&self, line: &str) -> Option<String> {
        if line.len() > MAX_LINE_BYTES {
            return None; // no error message, and slow to search
        }
        let lower = line.to_lowercase();
        let mentions = |texts: &[&str]| texts.iter().any(|text| lower.contains(text));
        if mentions(&FILE_DENIALS)
            && let Some(hint) = paths_in(line).find_map(|path| self.explain_path(&path))
        {
            return Some(hint);
        }
        let server = &self.server;
        (mentions(&NETWORK_DENIALS) && self.network != NetworkAccess::On).then(|| {
            format!(
                "the sandbox of server `{server}` has no network: if it needs one, set `sandbox.network = \"on\"`"
            )
        })
    }

    fn explain_path(&self, path: &Path) -> Option<String> {
        let is_in = |places: &[PathBuf]| places.iter().any(|place| path.starts_with(place));
        let is_system = SYSTEM_DIRECTORIES
            .iter()
            .any(|place| path.starts_with(place));
        if is_system || is_in(&self.write) || is_in(&self.hidden) {
            return None;
        }
        let (server, path) = (&self.server, path.display());
        Some(if is_in(&self.read) {
            format!(
                "`{path}` can only be read in the sandbox: if server `{server}` needs to write it, add it to `sandbox.write`"
            )
        } else {
            format!(
                "`{path}` is not in the sandbox: if server `{server}` needs it, add it to `sandbox.read` or `sandbox.write`"
            )
        })
    }
}

/// Returns paths, and where they lead if they are symbolic links.
fn with_targets(paths: &[PathBuf]) -> Vec<PathBuf> {
    let targets = paths.iter().filter_map(|path| path.canonicalize().ok());
    targets.chain(paths.iter().cloned()).collect()
}

/// Returns the absolute paths in a text: quoted, or up to a blank.
fn paths_in(text: &str) -> impl Iterator<Item = PathBuf> {
    text.match_indices('/').filter_map(|(start, _)| {
        let before = text[..start].chars().next_back();
        let rest = &text[start..];
        let path = match before {
            Some(quote @ ('\'' | '"' | '`')) => rest.split(quote).next()?,
            None | Some(' ' | '\t' | '(' | '[' | '=') => {
                let word = rest.split_whitespace().next()?;
                word.trim_end_matches([':', ',', ';', '.', ')', ']'])
            }
            // In the middle of a path or URL.
            Some(_) => return None,
        };
        to_plain_path(path)
    })
}

/// Returns a path that can be shown and compared.
fn to_plain_path(text: &str) -> Option<PathBuf> {
    let is_plain = |c: char| c.is_alphanumeric() || "/._-+@ ~,:=#%".contains(c);
    let path = Path::new(text);
    let is_usable = text.len() <= MAX_PATH_BYTES
        && text.chars().all(is_plain)
        && !text.starts_with("//")
        && path.components().count() > 1
        && path
            .components()
            .all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    // Without repeated and trailing slashes.
    is_usable.then(|| path.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hints(network: NetworkAccess) -> DenialHints {
        let strict = StrictSandbox {
            read: vec!["/srv/read".into()],
            write: vec!["/srv/write".into()],
            network,
            ..StrictSandbox::default()
        };
        let server = ServerName::parse("reports").unwrap();
        DenialHints::new(&server, &strict, &["/srv/gateway".into()])
    }

    #[test]
    fn denied_paths_outside_of_the_sandbox_are_named() {
        for line in [
            "Error: EACCES: permission denied, open '/srv/data'",
            "PermissionError: [Errno 13] Permission denied: '/srv/data'",
            "cat: /srv/data: Permission denied",
            "sh: 1: cannot create /srv/data: Permission denied",
            "open /srv/data: permission denied",
            "failed to read (/srv/data): Permission denied (os error 13)",
            "ls: cannot open directory '/srv/data/': Permission denied",
            "/usr/bin/tool: /srv/write/x and /srv/data: Operation not permitted",
            "copy '/srv/write/a' -> '/srv//data': EPERM",
        ] {
            let hint = hints(NetworkAccess::Off).find(line);
            assert_eq!(
                hint.as_deref(),
                Some(
                    "`/srv/data` is not in the sandbox: if server `reports` needs it, add it to `sandbox.read` or `sandbox.write`"
                ),
                "{line}"
            );
        }
        let read_only = hints(NetworkAccess::Off).find("touch: '/srv/read/x y': Permission denied");
        let read_only = read_only.unwrap();
        assert!(
            read_only.starts_with("`/srv/read/x y` can only be read"),
            "{read_only}"
        );
        assert!(read_only.contains("`sandbox.write`"), "{read_only}");
    }

    #[test]
    fn missing_network_is_named_unless_it_is_on() {
        for line in [
            "connect ENETUNREACH 1.2.3.4:443",
            "OSError: [Errno 101] Network is unreachable",
            "getaddrinfo EAI_AGAIN example.com",
            "urlopen error [Errno -3] Temporary failure in name resolution",
        ] {
            for network in [NetworkAccess::Off, NetworkAccess::Loopback] {
                let hint = hints(network).find(line).unwrap();
                assert!(hint.contains("`sandbox.network = \"on\"`"), "{hint}");
            }
            assert_eq!(hints(NetworkAccess::On).find(line), None);
        }
    }

    #[test]
    fn nothing_is_said_about_other_lines_and_paths() {
        let long = format!("Permission denied: '/{}'", "x".repeat(MAX_PATH_BYTES));
        let longer = format!(
            "Permission denied: '/srv/data' {}",
            "x".repeat(MAX_LINE_BYTES)
        );
        for line in [
            "reading /srv/data",
            "Permission denied",
            "Permission denied: 'data'",
            "Permission denied: '/srv/write/x'",
            "Permission denied: '/etc/shadow'",
            "Permission denied: '/srv/gateway/store.key'",
            "Permission denied: '/srv/write/../../root'",
            "Permission denied: '/'",
            "403: permission denied for https://example.com/srv/data",
            "Permission denied: '/srv/`rm -rf`'",
            "Permission denied: '/srv/\u{1b}[31m'",
            "Permission denied: '/srv/\u{202e}data'",
            &long,
            &longer,
        ] {
            assert_eq!(hints(NetworkAccess::Off).find(line), None, "{line}");
        }
    }
}
