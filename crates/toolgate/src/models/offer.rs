//! The tools that a request is given: the caller's scope, encoded once and kept.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::USER_AGENT;
use moka::sync::Cache;
use toolgate_core::policy::{Judgement, Verdict};
use toolgate_core::scope::Scope;
use toolgate_llm::tools::{Definitions, Form, Offered};

use super::{Asked, ModelError};
use crate::engine::{CodeTool, Engine, OwnTool};

/// Bytes of definitions that are kept.
const MOST_BYTES: u64 = 64 * 1024 * 1024;
const IDLE: Duration = Duration::from_secs(300);
/// What tells a model that there is more of a result.
const CUT: &[u8] = b"toolgate_read_result";

/// A scope by its address, which is its own as long as the scope is held here.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    scope: usize,
    form: Form,
    own: Vec<OwnTool>,
    /// Only the tools that the gateway runs itself.
    unasked_only: bool,
}

#[derive(Clone, Debug)]
struct Kept {
    definitions: Arc<Definitions>,
    scope: Arc<Scope>,
}

impl Kept {
    /// The scope is held too.
    fn weight(&self) -> usize {
        self.definitions.len() + self.scope.len() * 32 + 256
    }
}

#[derive(Debug)]
pub(super) struct Offers(Cache<Key, Kept>);

impl Offers {
    pub(super) fn new() -> Self {
        let weigh = |_: &Key, kept: &Kept| u32::try_from(kept.weight()).unwrap_or(u32::MAX);
        Self(
            Cache::builder()
                .max_capacity(MOST_BYTES)
                .weigher(weigh)
                .time_to_idle(IDLE)
                .build(),
        )
    }

    /// What to add to a request.
    pub(super) fn tools(
        &self,
        engine: &Engine,
        asked: &Asked,
        form: Form,
    ) -> Result<Arc<Definitions>, ModelError> {
        let filters = &asked.context.filters;
        if !engine.injects_tools() && filters.is_empty() {
            return Ok(Arc::default());
        }
        let scope = engine.scope(&asked.caller, filters)?;
        let own = engine.own_tools(&asked.caller, filters, &scope, has_cut(asked));
        if own.contains(&OwnTool::Code(CodeTool::Execute)) {
            engine.count_saved_tokens(&scope);
        }
        let key = Key {
            scope: Arc::as_ptr(&scope).addr(),
            form,
            own,
            unasked_only: is_agent(&asked.context.headers),
        };
        if let Some(kept) = self.0.get(&key) {
            return Ok(kept.definitions);
        }
        let definitions = Arc::new(encoded(&scope, &key));
        let kept = Kept {
            definitions: Arc::clone(&definitions),
            scope,
        };
        self.0.insert(key, kept);
        Ok(definitions)
    }
}

/// Programs that run tools of their own and end, or go astray, when a model calls one that they do
/// not know: they are offered only what the gateway runs itself.
const AGENTS: [&str; 6] = [
    "claude-cli/",
    "codex_",
    "codex-",
    "opencode/",
    "geminicli/",
    "qwencode/",
];

fn is_agent(headers: &HeaderMap) -> bool {
    let agent = headers
        .get(USER_AGENT)
        .and_then(|agent| agent.to_str().ok());
    let agent = agent.unwrap_or_default().to_ascii_lowercase();
    AGENTS.iter().any(|known| agent.starts_with(known))
}

/// Whether the conversation tells of a result that was cut.
fn has_cut(asked: &Asked) -> bool {
    memchr::memmem::find(asked.body.bytes(), CUT).is_some()
}

fn encoded(scope: &Scope, key: &Key) -> Definitions {
    let runs_unasked = |judgement: &Judgement| judgement.decision().verdict == Verdict::Allow;
    let views: Vec<_> = scope
        .direct()
        .filter(|(_, judgement)| !key.unasked_only || runs_unasked(judgement))
        .map(|(entry, _)| (entry, entry.tool.view()))
        .collect();
    let tools = views.iter().map(|(entry, view)| {
        let id = &entry.tool.id;
        let title = view.title.as_deref().unwrap_or_default();
        Offered {
            alias: &entry.alias,
            id: Some((id.server.as_str(), id.tool.as_str())),
            description: view.description.as_deref().unwrap_or(title),
            parameters: view.input_schema.map_or("{}", |schema| schema.get()),
        }
    });
    let scripts_run = || {
        scope
            .in_code()
            .all(|(_, judgement)| runs_unasked(judgement))
    };
    let kept = |tool: &&OwnTool| match **tool {
        _ if !key.unasked_only => true,
        OwnTool::ReadResult => true,
        OwnTool::Code(_) => scripts_run(),
        OwnTool::ListResources | OwnTool::ReadResource => false,
    };
    let own = key.own.iter().filter(kept);
    let own = own.map(|tool| tool.offered());
    Definitions::new(key.form, tools.chain(own))
}
