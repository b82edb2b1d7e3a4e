//! When files on disk count as changed.
//!
//! Editors truncate, rename and write in pieces. A change counts once two looks in a row see the
//! same, and a file that is gone or empty counts as one that is being written.

use toolgate_core::config::Document;

#[derive(Debug)]
pub(super) struct Watch {
    /// What is in force, or was refused.
    settled: Vec<(String, String)>,
    /// What was seen the last time, if it was something else.
    candidate: Option<Vec<(String, String)>>,
    told: bool,
}

impl Watch {
    pub(super) fn new(documents: &[Document]) -> Self {
        Self {
            settled: texts(documents),
            candidate: None,
            told: false,
        }
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
