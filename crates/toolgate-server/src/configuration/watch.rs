//! When files on disk count as changed.
//!
//! Editors truncate, rename and write in pieces. A change counts once two looks in a row see the
//! same, and a file that is gone or empty counts as one that is being written.

use std::time::{Duration, SystemTime};

use toolgate_core::config::Document;

use crate::files::Stamp;

/// A file may change without another time of writing for no longer than this.
const UNSURE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Watch {
    /// What is in force, or was refused.
    settled: Vec<(String, String)>,
    /// What was seen the last time, if it was something else.
    candidate: Option<Vec<(String, String)>>,
    told: bool,
    /// The files as they were at the last look.
    stamps: Vec<Option<Stamp>>,
}

impl Watch {
    pub(super) fn new(documents: &[Document]) -> Self {
        Self {
            settled: texts(documents),
            candidate: None,
            told: false,
            stamps: Vec::new(),
        }
    }

    /// Whether the files cannot have changed since the last look, so that they need not be read.
    pub(super) fn is_same(&mut self, stamps: Vec<Option<Stamp>>) -> bool {
        let before = std::mem::replace(&mut self.stamps, stamps);
        let surely = SystemTime::now() - UNSURE;
        let mut written = self.stamps.iter().flatten().map(|(written, ..)| *written);
        self.candidate.is_none() && before == self.stamps && written.all(|at| at < surely)
    }

    /// The next look has to read them.
    pub(super) fn could_not_read(&mut self) {
        self.stamps.clear();
    }

    /// Whether these files are a change to be taken up now.
    pub(super) fn is_new(&mut self, documents: &[Document]) -> bool {
        let now = texts(documents);
        if now == self.settled {
            self.candidate = None;
            self.told = false;
            return false;
        }
        let gone = |(name, _): &&(String, String)| {
            let still = now.iter().find(|(known, _)| known == name);
            still.is_none_or(|(_, text)| text.trim().is_empty())
        };
        let settled = self
            .settled
            .iter()
            .filter(|(_, text)| !text.trim().is_empty());
        if let Some((name, _)) = settled.clone().find(gone) {
            if !std::mem::replace(&mut self.told, true) {
                tracing::warn!(
                    file = name,
                    "the file is gone or empty; what it said stays in force"
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

fn texts(documents: &[Document]) -> Vec<(String, String)> {
    documents
        .iter()
        .map(|document| (document.name.clone(), document.text().to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    use toolgate_core::config::Format;

    use super::*;

    fn file(text: &str) -> Vec<Document> {
        vec![Document::parse("f", Format::Toml, text)]
    }

    #[test]
    fn what_was_not_written_need_not_be_read() {
        let mut watch = Watch::new(&file("port = 1"));
        let old = SystemTime::UNIX_EPOCH;
        assert!(
            !watch.is_same(vec![Some((old, 8, 1)), None]),
            "the first look"
        );
        assert!(watch.is_same(vec![Some((old, 8, 1)), None]));
        let later = old + UNSURE;
        for changed in [(later, 8, 1), (later, 9, 1), (later, 9, 2)] {
            assert!(!watch.is_same(vec![Some(changed), None]), "{changed:?}");
        }
        assert!(!watch.is_same(vec![Some((later, 9, 2)), Some((old, 1, 3))]));
        let now = Some((SystemTime::now(), 8, 1));
        assert!(
            !watch.is_same(vec![now]) && !watch.is_same(vec![now]),
            "just written"
        );
        watch.is_new(&file("port = 2"));
        assert!(!watch.is_same(vec![now]), "something has to settle yet");
    }

    #[test]
    fn a_change_counts_when_it_has_settled() {
        let mut watch = Watch::new(&file("port = 1"));
        let looks = [
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
        for (text, expected) in looks {
            assert_eq!(watch.is_new(&file(text)), expected, "{text}");
        }
        assert!(
            !watch.is_new(&[]) && !watch.is_new(&[]),
            "a file that is gone is being replaced"
        );
        let mut empty = Watch::new(&[]);
        assert!(
            !empty.is_new(&file("port = 1")) && empty.is_new(&file("port = 1")),
            "a file may appear"
        );
    }
}
