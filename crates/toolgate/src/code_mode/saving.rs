//! What code mode saves: the tokens that the definitions of scripted tools would have cost, less
//! those of the four tools that stand for them.
//!
//! A worker counts them, once for each definition: the vocabulary would weigh on the gateway for good.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use toolgate_core::catalog::Entry;
use toolgate_core::scope::Scope;
use toolgate_script::surface;

use super::pool::Pool;

/// Definitions that are counted at a time, and that are remembered.
const AT_A_TIME: usize = 5000;
const MOST: usize = 100_000;

/// Counts of definitions; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Saving(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// By the hash of a definition; the four tools count under none.
    tokens: Mutex<HashMap<String, u64>>,
    is_counting: AtomicBool,
}

impl Saving {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            tokens: Mutex::default(),
            is_counting: AtomicBool::new(false),
        }))
    }

    /// The tokens that a request with this scope needs less; none until all are counted, which is
    /// then begun.
    pub(super) fn of(&self, scope: &Scope, pool: &Pool) -> Option<u64> {
        if self.0.is_counting.load(Ordering::Relaxed) {
            return None;
        }
        let (direct, missing) = {
            let tokens = self.0.tokens.lock().unwrap_or_else(PoisonError::into_inner);
            let four = tokens.get("").copied().unwrap_or_default();
            let mut sum = 0_u64;
            let mut missing = Vec::new();
            for (entry, _) in scope.in_code() {
                match tokens.get(&entry.tool.hash) {
                    Some(count) => sum += count,
                    None => missing.push(entry),
                }
            }
            let sum = sum.saturating_sub(four);
            let missing = missing.into_iter().take(AT_A_TIME);
            let missing: Vec<_> = missing
                .map(|entry| (entry.tool.hash.clone(), text(entry)))
                .collect();
            (sum, missing)
        };
        if missing.is_empty() {
            return Some(direct);
        }
        self.count(missing, pool);
        None
    }

    /// Has definitions counted, unless others are being.
    fn count(&self, mut texts: Vec<(String, String)>, pool: &Pool) {
        if self.0.is_counting.swap(true, Ordering::Relaxed) {
            return;
        }
        texts.push((String::new(), four()));
        let (saving, own) = (self.clone(), pool.clone());
        pool.spawn(async move {
            let (hashes, texts): (Vec<_>, Vec<_>) = texts.into_iter().unzip();
            if let Some(counts) = own.count(texts).await {
                let tokens = &saving.0.tokens;
                let mut tokens = tokens.lock().unwrap_or_else(PoisonError::into_inner);
                if tokens.len() > MOST {
                    tokens.clear();
                }
                let counts = counts.into_iter().map(|count| count as u64);
                tokens.extend(hashes.into_iter().zip(counts));
            }
            saving.0.is_counting.store(false, Ordering::Relaxed);
        });
    }
}

/// A tool as a chat request would carry it.
fn text(entry: &Entry) -> String {
    let view = entry.tool.view();
    let description = serde_json::Value::from(view.description.as_deref().unwrap_or_default());
    let parameters = view.input_schema.map_or("{}", |schema| schema.get());
    format!(
        r#"{{"type":"function","function":{{"name":"{}","description":{description},"parameters":{parameters}}}}},"#,
        entry.alias
    )
}

fn four() -> String {
    let tools = surface::TOOLS.iter().map(surface::Definition::for_chat);
    tools.collect::<Vec<_>>().join(",")
}
