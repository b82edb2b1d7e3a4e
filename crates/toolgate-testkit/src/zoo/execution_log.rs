//! The `--append-to` file: what the tool `append` has executed, for comparison with the audit trail.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use parking_lot::Mutex;

/// An append-only file; closed without `--append-to`.
#[derive(Debug)]
pub(crate) struct ExecutionLog(Option<Mutex<File>>);

impl ExecutionLog {
    pub(crate) fn open(path: Option<&Path>) -> Self {
        Self(path.map(|path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            Mutex::new(file.expect("the `--append-to` file is not writable"))
        }))
    }

    pub(crate) fn is_open(&self) -> bool {
        self.0.is_some()
    }

    /// Appends a line and flushes it to the disk.
    pub(crate) fn append(&self, line: &str) {
        if let Some(file) = &self.0 {
            let mut file = file.lock();
            let written = file.write_all(format!("{line}\n").as_bytes());
            written
                .and_then(|()| file.sync_data())
                .expect("the `--append-to` file is not writable");
        }
    }
}
