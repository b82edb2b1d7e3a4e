//! Detects changes of the configuration files.
//!
//! Editors truncate, rename and write in pieces. A change is accepted once two consecutive checks see
//! the same content, and a missing or empty file counts as being written.

use std::time::{Duration, SystemTime};

use toolgate_core::config::Document;

use crate::files::FileStamp;

/// Upper bound on the granularity of modification times: within it, a file may change again without its
/// timestamp changing.
const MTIME_GRANULARITY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct FileWatcher {
    /// The files last accepted, whether they were valid or not.
    settled: WatchedFiles,
    /// The files seen at the last check, if they differ from `settled`.
    candidate: Option<WatchedFiles>,
    /// Whether the missing or empty file was already logged.
    warned: bool,
    /// File stamps at the last check.
    stamps: Vec<Option<FileStamp>>,
}

/// Content of the files.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct WatchedFiles {
    /// Names and texts.
    texts: Vec<(String, String)>,
    /// Whether the user has trusted the project's file, or there is none.
    trusted: bool,
}

impl WatchedFiles {
    pub(super) fn new(documents: &[Document], trusted: bool) -> Self {
        Self {
            texts: texts(documents),
            trusted,
        }
    }
}

impl FileWatcher {
    /// Starts with files that are in force, and thus trusted.
    pub(super) fn new(documents: &[Document]) -> Self {
        Self {
            settled: WatchedFiles::new(documents, true),
            candidate: None,
            warned: false,
            stamps: Vec::new(),
        }
    }

    /// Returns whether the files are certainly unchanged since the last check and need not be read.
    pub(super) fn is_unchanged(&mut self, stamps: Vec<Option<FileStamp>>) -> bool {
        let before = std::mem::replace(&mut self.stamps, stamps);
        let safe_before = SystemTime::now() - MTIME_GRANULARITY;
        let mut written = self.stamps.iter().flatten().map(|(written, ..)| *written);
        self.candidate.is_none() && before == self.stamps && written.all(|at| at < safe_before)
    }

    /// Makes the next check read the files.
    pub(super) fn invalidate(&mut self) {
        self.stamps.clear();
    }

    /// Returns whether these files are a change that has settled and should be applied now.
    pub(super) fn is_settled_change(&mut self, now: WatchedFiles) -> bool {
        if now == self.settled {
            self.candidate = None;
            self.warned = false;
            return false;
        }
        let is_gone = |(name, _): &&(String, String)| {
            let current = now.texts.iter().find(|(known, _)| known == name);
            current.is_none_or(|(_, text)| text.trim().is_empty())
        };
        let settled = self
            .settled
            .texts
            .iter()
            .filter(|(_, text)| !text.trim().is_empty());
        if let Some((name, _)) = settled.clone().find(is_gone) {
            if !std::mem::replace(&mut self.warned, true) {
                tracing::warn!(
                    file = name,
                    "configuration file is missing or empty; keeping the previous configuration"
                );
            }
            self.candidate = None;
            return false;
        }
        if self.candidate.as_ref() != Some(&now) {
            self.candidate = Some(now);
            return false;
        }
        self.settled = now;
        self.candidate = None;
        true
    }
}

/// Returns the names and texts of documents.
pub(super) fn texts(documents: &[Document]) -> Vec<(String, String)> {
    documents
        .iter()
        .map(|document| (document.name.clone(), document.text().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use toolgate_core::config::ConfigFormat;

    use super::*;

    fn file(text: &str) -> Vec<Document> {
        vec![Document::parse("f", ConfigFormat::Toml, text)]
    }

    fn watched(text: &str) -> WatchedFiles {
        WatchedFiles::new(&file(text), true)
    }

    #[test]
    fn unchanged_stamps_skip_reading_unless_recent_or_unsettled() {
        let mut watcher = FileWatcher::new(&file("port = 1"));
        let old = SystemTime::UNIX_EPOCH;
        assert!(
            !watcher.is_unchanged(vec![Some((old, 8, 1)), None]),
            "first check"
        );
        assert!(watcher.is_unchanged(vec![Some((old, 8, 1)), None]));
        let later = old + MTIME_GRANULARITY;
        for changed in [(later, 8, 1), (later, 9, 1), (later, 9, 2)] {
            assert!(
                !watcher.is_unchanged(vec![Some(changed), None]),
                "{changed:?}"
            );
        }
        assert!(!watcher.is_unchanged(vec![Some((later, 9, 2)), Some((old, 1, 3))]));
        let now = Some((SystemTime::now(), 8, 1));
        assert!(
            !watcher.is_unchanged(vec![now]) && !watcher.is_unchanged(vec![now]),
            "recently written"
        );
        watcher.is_settled_change(watched("port = 2"));
        assert!(
            !watcher.is_unchanged(vec![now]),
            "a change has not settled yet"
        );
    }

    #[test]
    fn change_is_accepted_after_two_identical_reads() {
        let mut watcher = FileWatcher::new(&file("port = 1"));
        let reads = [
            ("port = 1", false),
            ("port = 2", false),
            ("port = 2", true),
            ("port = 2", false),
            ("", false),
            ("", false),
            ("port", false),
            ("port = 3", false),
            ("port = 3", true),
        ];
        for (text, expected) in reads {
            assert_eq!(watcher.is_settled_change(watched(text)), expected, "{text}");
        }
        assert!(
            (0..2).all(|_| !watcher.is_settled_change(WatchedFiles::new(&[], true))),
            "a missing file counts as being replaced"
        );
        let mut empty = FileWatcher::new(&[]);
        assert!(
            !empty.is_settled_change(watched("port = 1"))
                && empty.is_settled_change(watched("port = 1")),
            "a new file is accepted"
        );
        let untrusted = || WatchedFiles::new(&file("port = 1"), false);
        assert!(!empty.is_settled_change(untrusted()) && empty.is_settled_change(untrusted()));
        assert!(
            !empty.is_settled_change(watched("port = 1"))
                && empty.is_settled_change(watched("port = 1")),
            "trust is a change, too"
        );
    }
}
