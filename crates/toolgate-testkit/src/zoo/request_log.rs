//! The `--count` file, in which tests read what arrived, one line per request.
//!
//! Lines are written whole even when requests race.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;

use parking_lot::Mutex;

use super::rpc::Request;

/// An append-only log; a no-op without `--count`.
#[derive(Debug)]
pub(crate) struct RequestLog(Option<Mutex<File>>);

impl RequestLog {
    pub(crate) fn open(path: Option<&Path>) -> Self {
        Self(path.map(|path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            Mutex::new(file.expect("the `--count` file is not writable"))
        }))
    }

    /// Logs an accepted request.
    pub(crate) fn log_request(&self, request: &Request) {
        self.write_line(&describe(request));
    }

    /// Logs a request that was rejected with this HTTP status before anything ran.
    pub(crate) fn log_rejected(&self, status: u16, request: &Request) {
        self.write_line(&format!("refused {status} {}", describe(request)));
    }

    /// Logs a notification that has no other effect.
    pub(crate) fn log_notification(&self, method: &str) {
        self.write_line(method);
    }

    /// Logs that a tool stopped because its call was cancelled.
    pub(crate) fn log_cancelled(&self) {
        self.write_line("cancelled");
    }

    fn write_line(&self, text: &str) {
        if let Some(file) = &self.0 {
            let mut file = file.lock();
            file.write_all(format!("{text}\n").as_bytes())
                .expect("the `--count` file is not writable");
        }
    }
}

fn describe(request: &Request) -> String {
    match request.subject() {
        Some(subject) => format!("{} {subject}", request.method),
        None => request.method.clone(),
    }
}
