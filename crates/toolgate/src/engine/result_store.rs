//! Stores large results in full for a limited time, under a handle that only their caller can use.

use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::caller::Caller;
use crate::ttl_cache::TtlCache;

const MAX_TOTAL_BYTES: u64 = 64 * 1024 * 1024;

#[derive(Debug)]
pub(super) struct ResultStore(TtlCache<String, Arc<StoredResult>>);

#[derive(Debug)]
struct StoredResult {
    caller: Option<Arc<str>>,
    text: String,
}

/// A chunk of a stored result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ResultChunk {
    /// Text of the chunk.
    pub text: String,
    /// Byte offset of the chunk.
    pub offset: usize,
    /// Offset of the next chunk; `None` at the end.
    pub next: Option<usize>,
    /// Size of the whole result in bytes.
    pub total: usize,
}

impl ResultStore {
    pub(super) fn new() -> Self {
        Self(TtlCache::new(MAX_TOTAL_BYTES))
    }

    pub(super) fn new_handle() -> String {
        Uuid::new_v4().simple().to_string()
    }

    pub(super) fn insert(&self, handle: &str, caller: &Caller, text: String, ttl: Duration) {
        let bytes = text.len();
        let stored = StoredResult {
            caller: caller.key().cloned(),
            text,
        };
        self.0
            .insert(handle.to_owned(), Arc::new(stored), bytes, ttl);
    }

    pub(super) fn read(
        &self,
        caller: &Caller,
        handle: &str,
        offset: u64,
        max_bytes: usize,
    ) -> Option<ResultChunk> {
        let stored = self.0.get(&handle.to_owned())?;
        if stored.caller.as_ref() != caller.key() {
            return None;
        }
        let total = stored.text.len();
        let offset = usize::try_from(offset).unwrap_or(total).min(total);
        let start = stored.text.floor_char_boundary(offset);
        let end = stored
            .text
            .floor_char_boundary(start.saturating_add(max_bytes));
        Some(ResultChunk {
            text: stored.text[start..end].to_owned(),
            offset: start,
            next: (end < total).then_some(end),
            total,
        })
    }
}
