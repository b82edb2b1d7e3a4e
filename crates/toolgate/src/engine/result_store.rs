//! Stores large results in full for a limited time, under a handle that only their caller can use.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use uuid::Uuid;

use crate::caller::Caller;

/// Maximum size of all results.
const MAX_TOTAL_BYTES: usize = 64 * 1024 * 1024;

/// The stored results. When they take too much memory, the caller with most of it loses its oldest, so
/// that no caller can displace the results of others.
#[derive(Debug, Default)]
pub(super) struct ResultStore(Mutex<HashMap<String, StoredResult>>);

#[derive(Debug)]
struct StoredResult {
    caller: Option<Arc<str>>,
    text: Arc<str>,
    stored: Instant,
    expires: Instant,
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
    pub(super) fn new_handle() -> String {
        Uuid::new_v4().simple().to_string()
    }

    pub(super) fn insert(&self, handle: &str, caller: &Caller, text: String, ttl: Duration) {
        let now = Instant::now();
        let Some(expires) = now.checked_add(ttl) else {
            return;
        };
        let stored = StoredResult {
            caller: caller.key().cloned(),
            text: text.into(),
            stored: now,
            expires,
        };
        let mut results = self.0.lock();
        results.retain(|_, result| result.expires > now);
        results.insert(handle.to_owned(), stored);
        while let Some(displaced) = find_displaced(&results) {
            results.remove(&displaced);
        }
    }

    pub(super) fn read(
        &self,
        caller: &Caller,
        handle: &str,
        offset: u64,
        max_bytes: usize,
    ) -> Option<ResultChunk> {
        let text = {
            let results = self.0.lock();
            let stored = results.get(handle)?;
            let is_readable =
                stored.caller.as_ref() == caller.key() && stored.expires > Instant::now();
            is_readable.then(|| Arc::clone(&stored.text))?
        };
        let total = text.len();
        let offset = usize::try_from(offset).unwrap_or(total).min(total);
        let start = text.floor_char_boundary(offset);
        let end = text.floor_char_boundary(start.saturating_add(max_bytes));
        Some(ResultChunk {
            text: text[start..end].to_owned(),
            offset: start,
            next: (end < total).then_some(end),
            total,
        })
    }
}

/// Returns the result to remove if all together are too large: the oldest of the caller with most.
fn find_displaced(results: &HashMap<String, StoredResult>) -> Option<String> {
    let mut sizes: HashMap<&Option<Arc<str>>, usize> = HashMap::new();
    for result in results.values() {
        *sizes.entry(&result.caller).or_default() += result.text.len();
    }
    if sizes.values().sum::<usize>() <= MAX_TOTAL_BYTES {
        return None;
    }
    let (largest, _) = sizes.into_iter().max_by_key(|(_, bytes)| *bytes)?;
    let of_largest = results
        .iter()
        .filter(|(_, result)| result.caller == *largest);
    let oldest = of_largest.min_by_key(|(_, result)| result.stored);
    oldest.map(|(handle, _)| handle.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_cannot_displace_the_results_of_another() {
        let store = ResultStore::default();
        let (alice, bob) = (
            Caller::http().with_key("alice"),
            Caller::http().with_key("bob"),
        );
        let ttl = Duration::from_secs(60);
        store.insert("alice", &alice, "x".repeat(1024 * 1024), ttl);
        for number in 0..20 {
            let text = "y".repeat(16 * 1024 * 1024);
            store.insert(&format!("bob-{number}"), &bob, text, ttl);
        }
        let read = |caller: &Caller, handle: &str| store.read(caller, handle, 0, 1);
        assert!(read(&alice, "alice").is_some());
        assert!(read(&bob, "bob-19").is_some() && read(&bob, "bob-0").is_none());
        assert!(read(&bob, "alice").is_none());
        let held = store
            .0
            .lock()
            .values()
            .map(|result| result.text.len())
            .sum::<usize>();
        assert!(held <= MAX_TOTAL_BYTES, "{held}");
    }

    #[test]
    fn expired_result_is_gone() {
        let store = ResultStore::default();
        let caller = Caller::http();
        store.insert("a", &caller, "text".to_owned(), Duration::ZERO);
        assert!(store.read(&caller, "a", 0, 10).is_none());
    }
}
