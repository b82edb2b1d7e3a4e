//! What code mode saves: the tokens that the definitions of scripted tools would have cost, less
//! those of the four tools that stand for them.
//!
//! A worker counts them, once for each scope: the vocabulary would weigh on the gateway for good.

use std::fmt::Write as _;
use std::sync::OnceLock;

use toolgate_core::scope::Scope;
use toolgate_script::protocol::{ToHost, ToWorker};
use toolgate_script::surface;

use super::pool::Pool;

/// Tokens saved in each request with a scope, once they are counted.
#[derive(Debug, Default)]
pub(super) struct Saving {
    tokens: OnceLock<u64>,
    begun: OnceLock<()>,
}

impl Saving {
    /// The tokens, if they are known; if not, they are about to be.
    pub(super) fn get(self: &std::sync::Arc<Self>, scope: &Scope, pool: &Pool) -> u64 {
        if let Some(tokens) = self.tokens.get() {
            return *tokens;
        }
        if self.begun.set(()).is_ok() {
            let (saving, pool) = (std::sync::Arc::clone(self), pool.clone());
            let texts = vec![direct(scope), scripted()];
            pool.clone().spawn(async move {
                if let Some(tokens) = count(&pool, texts).await {
                    let _first = saving.tokens.set(tokens);
                }
            });
        }
        0
    }
}

async fn count(pool: &Pool, texts: Vec<String>) -> Option<u64> {
    let mut worker = pool.checkout().await.ok()?;
    worker.say(&ToWorker::Count(texts)).await.ok()?;
    // The worker, which has grown, goes with it.
    let Some(ToHost::Counts(counts)) = worker.hear().await else {
        return None;
    };
    let [direct, scripted] = counts.as_slice() else {
        return None;
    };
    u64::try_from(direct.saturating_sub(*scripted)).ok()
}

/// Scripted tools as a chat request would carry them.
fn direct(scope: &Scope) -> String {
    let mut text = String::new();
    for (entry, _) in scope.in_code() {
        let view = entry.tool.view();
        let description = serde_json::Value::from(view.description.as_deref().unwrap_or_default());
        let parameters = view.input_schema.map_or("{}", |schema| schema.get());
        let _ = write!(
            text,
            r#"{{"type":"function","function":{{"name":"{}","description":{description},"parameters":{parameters}}}}},"#,
            entry.alias
        );
    }
    text
}

fn scripted() -> String {
    let tools = surface::TOOLS.iter().map(surface::Definition::for_chat);
    tools.collect::<Vec<_>>().join(",")
}
