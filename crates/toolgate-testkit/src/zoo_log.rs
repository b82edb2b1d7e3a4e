//! The log of requests that a zoo received.

use std::fs;
use std::path::PathBuf;

use tempfile::TempDir;

/// A file to which a zoo with the flag `--count` writes one line per request. Dropping it deletes the
/// file.
#[derive(Debug)]
pub struct ZooLog {
    path: PathBuf,
    _folder: TempDir,
}

impl ZooLog {
    /// Creates an empty log.
    ///
    /// # Panics
    /// If no temporary folder can be created.
    #[must_use]
    pub fn create() -> Self {
        let folder = tempfile::tempdir().expect("failed to create a temporary folder");
        Self {
            path: folder.path().join("requests"),
            _folder: folder,
        }
    }

    /// Returns the flags that make a zoo write to the log.
    ///
    /// # Panics
    /// If the path of the temporary folder is not UTF-8.
    #[must_use]
    pub fn flags(&self) -> [&str; 2] {
        ["--count", self.path.to_str().expect("UTF-8 path")]
    }

    /// Returns the lines of the log.
    ///
    /// # Panics
    /// If the zoo has not started.
    #[must_use]
    pub fn text(&self) -> String {
        fs::read_to_string(&self.path).expect("the zoo has not created the log")
    }

    /// Returns the number of lines equal to `line`.
    #[must_use]
    pub fn count(&self, line: &str) -> usize {
        let text = self.text();
        text.lines().filter(|logged| *logged == line).count()
    }

    /// Returns the number of calls of a tool.
    #[must_use]
    pub fn calls(&self, tool: &str) -> usize {
        self.count(&format!("tools/call {tool}"))
    }
}
