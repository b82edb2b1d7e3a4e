//! The file in which tests read what arrived, one line each, whole even when requests race.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;

use super::rpc::Request;

/// An append-only list of what happened, or nothing without `--count`.
#[derive(Debug)]
pub(crate) struct Ledger(Option<Mutex<File>>);

impl Ledger {
    pub(crate) fn open(path: Option<&Path>) -> Self {
        Self(path.map(|path| {
            let file = OpenOptions::new().create(true).append(true).open(path);
            Mutex::new(file.expect("the file of `--count` is writable"))
        }))
    }

    /// A request that was accepted.
    pub(crate) fn request(&self, request: &Request) {
        self.line(&described(request));
    }

    /// A request that HTTP refused with this status; it ran nothing.
    pub(crate) fn refused(&self, status: u16, request: &Request) {
        self.line(&format!("refused {status} {}", described(request)));
    }

    /// A notification that the server does nothing about.
    pub(crate) fn notified(&self, method: &str) {
        self.line(method);
    }

    /// A tool that stopped because its call was cancelled.
    pub(crate) fn cancelled(&self) {
        self.line("cancelled");
    }

    fn line(&self, text: &str) {
        if let Some(file) = &self.0 {
            let mut file = file.lock().unwrap();
            file.write_all(format!("{text}\n").as_bytes())
                .expect("the file of `--count` is writable");
        }
    }
}

fn described(request: &Request) -> String {
    match request.subject() {
        Some(subject) => format!("{} {subject}", request.method),
        None => request.method.clone(),
    }
}
