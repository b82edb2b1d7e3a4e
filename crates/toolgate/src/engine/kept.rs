//! Large results, kept whole for a while under a handle that only their caller knows.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::caller::Caller;
use crate::keep::Keep;

const MOST_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct Kept(Keep<String, Arc<Whole>>);

#[derive(Debug)]
struct Whole {
    caller: Option<Arc<str>>,
    text: String,
}

/// A part of a text that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    pub text: String,
    pub offset: usize,
    /// Where it goes on; none at the end.
    pub next: Option<usize>,
    pub total: usize,
}

impl Kept {
    pub(super) fn new() -> Self {
        Self(Keep::new(MOST_BYTES))
    }

    pub(super) fn new_handle() -> String {
        Uuid::new_v4().simple().to_string()
    }

    pub(super) fn put(&self, handle: &str, caller: &Caller, text: String, ttl: Duration) {
        let bytes = text.len();
        let whole = Whole {
            caller: caller.key().cloned(),
            text,
        };
        self.0.put(handle.to_owned(), Arc::new(whole), bytes, ttl);
    }

    pub(super) fn read(
        &self,
        caller: &Caller,
        handle: &str,
        offset: u64,
        most: usize,
    ) -> Option<Part> {
        let whole = self.0.get(&handle.to_owned())?;
        if whole.caller.as_ref() != caller.key() {
            return None;
        }
        let total = whole.text.len();
        let offset = usize::try_from(offset).unwrap_or(total).min(total);
        let start = whole.text.floor_char_boundary(offset);
        let end = whole.text.floor_char_boundary(start.saturating_add(most));
        Some(Part {
            text: whole.text[start..end].to_owned(),
            offset: start,
            next: (end < total).then_some(end),
            total,
        })
    }
}
