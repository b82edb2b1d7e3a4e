//! Prompt tokens saved by code mode: those of the hidden tool definitions minus those of the
//! code-mode tools.
//!
//! A worker counts each definition once, because the gateway would otherwise keep the vocabulary in
//! memory forever.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use toolgate_core::catalog::CatalogEntry;
use toolgate_core::scope::Scope;
use toolgate_script::surface;

use super::pool::WorkerPool;

/// Definitions counted in one batch.
const MAX_TOOLS_PER_COUNT: usize = 5000;
/// Definitions whose counts are cached.
const MAX_CACHED_COUNTS: usize = 100_000;

/// Cached token counts of definitions; clones share them.
#[derive(Clone, Debug)]
pub(super) struct TokenSavings(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    /// Counts by definition hash; the code-mode tools use the empty string.
    tokens: Mutex<HashMap<String, u64>>,
    is_counting: AtomicBool,
}

impl TokenSavings {
    pub(super) fn new() -> Self {
        Self(Arc::new(Inner {
            tokens: Mutex::default(),
            is_counting: AtomicBool::new(false),
        }))
    }

    /// Returns the tokens saved per request in a scope, or `None` and starts counting if some are
    /// missing.
    pub(super) fn saved_tokens(&self, scope: &Scope, pool: &WorkerPool) -> Option<u64> {
        if self.0.is_counting.load(Ordering::Relaxed) {
            return None;
        }
        let (saved, missing) = {
            let tokens = self.0.tokens.lock();
            let code_tools = tokens.get("").copied().unwrap_or_default();
            let mut sum = 0_u64;
            let mut missing = Vec::new();
            for (entry, _) in scope.code_mode_tools() {
                match tokens.get(&entry.tool.hash) {
                    Some(count) => sum += count,
                    None => missing.push(entry),
                }
            }
            let sum = sum.saturating_sub(code_tools);
            let texts: Vec<_> = missing
                .into_iter()
                .take(MAX_TOOLS_PER_COUNT)
                .map(|entry| (entry.tool.hash.clone(), definition_text(entry)))
                .collect();
            (sum, texts)
        };
        if missing.is_empty() {
            return Some(saved);
        }
        self.start_counting(missing, pool);
        None
    }

    /// Starts counting in the background unless a count is already running.
    fn start_counting(&self, mut texts: Vec<(String, String)>, pool: &WorkerPool) {
        if self.0.is_counting.swap(true, Ordering::Relaxed) {
            return;
        }
        texts.push((String::new(), code_tools_text()));
        let (savings, task_pool) = (self.clone(), pool.clone());
        pool.spawn(async move {
            let (hashes, texts): (Vec<_>, Vec<_>) = texts.into_iter().unzip();
            if let Some(counts) = task_pool.count_tokens(texts).await {
                let mut tokens = savings.0.tokens.lock();
                if tokens.len() > MAX_CACHED_COUNTS {
                    tokens.clear();
                }
                let counts = counts.into_iter().map(|count| count as u64);
                tokens.extend(hashes.into_iter().zip(counts));
            }
            savings.0.is_counting.store(false, Ordering::Relaxed);
        });
    }
}

/// Definition of a tool as a chat request would contain it.
fn definition_text(entry: &CatalogEntry) -> String {
    let view = entry.tool.view();
    let description = serde_json::Value::from(view.description.as_deref().unwrap_or_default());
    let parameters = view.input_schema.map_or("{}", |schema| schema.get());
    format!(
        r#"{{"type":"function","function":{{"name":"{}","description":{description},"parameters":{parameters}}}}},"#,
        entry.alias
    )
}

fn code_tools_text() -> String {
    let tools = surface::TOOLS
        .iter()
        .map(surface::ToolDefinition::to_chat_json);
    tools.collect::<Vec<_>>().join(",")
}
