//! Tool definitions injected into model requests: the caller's scope, encoded once per format and cached.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use http::header::USER_AGENT;
use moka::sync::Cache;
use toolgate_core::config::ToolInjection;
use toolgate_core::policy::{Judgement, Verdict};
use toolgate_core::scope::Scope;
use toolgate_llm::FieldError;
use toolgate_llm::tools::{DefinitionFormat, OfferedTool, ToolDefinitions};

use super::{ModelCall, ModelError};
use crate::call::RequestContext;
use crate::engine::{BuiltinTool, Engine};

/// Total size of cached definitions.
const MAX_CACHE_BYTES: u64 = 64 * 1024 * 1024;
const IDLE_TTL: Duration = Duration::from_secs(300);
/// Tool name that a truncated result mentions to the model.
const TRUNCATION_MARKER: &[u8] = b"toolgate_read_result";

/// Cache key. The scope's address is unique because the cached value keeps the scope alive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct DefinitionsKey {
    scope: usize,
    format: DefinitionFormat,
    builtin_tools: Vec<BuiltinTool>,
    /// Whether only tools that run without approval are included.
    automatic_only: bool,
}

#[derive(Clone, Debug)]
struct CachedDefinitions {
    definitions: Arc<ToolDefinitions>,
    scope: Arc<Scope>,
}

impl CachedDefinitions {
    /// Approximate size in bytes, including the scope kept alive.
    fn weight(&self) -> usize {
        self.definitions.len() + self.scope.len() * 32 + 256
    }
}

/// Cache of encoded tool definitions.
#[derive(Debug)]
pub(super) struct ToolDefinitionCache(Cache<DefinitionsKey, CachedDefinitions>);

impl ToolDefinitionCache {
    pub(super) fn new() -> Self {
        let weigh = |_: &DefinitionsKey, cached: &CachedDefinitions| {
            u32::try_from(cached.weight()).unwrap_or(u32::MAX)
        };
        Self(
            Cache::builder()
                .max_capacity(MAX_CACHE_BYTES)
                .weigher(weigh)
                .time_to_idle(IDLE_TTL)
                .build(),
        )
    }

    /// Returns the definitions to add to a request.
    pub(super) fn definitions(
        &self,
        engine: &Engine,
        model_call: &ModelCall,
        format: DefinitionFormat,
    ) -> Result<Arc<ToolDefinitions>, ModelError> {
        let filters = &model_call.context.filters;
        let injection = model_call.tool_injection(engine)?;
        if injection == ToolInjection::None {
            return Ok(Arc::default());
        }
        let scope = engine.scope(&model_call.caller, filters)?;
        let builtin_tools = engine.builtin_tools(
            &model_call.caller,
            filters,
            &scope,
            has_truncated_result(model_call),
        );
        let is_code_tool = |tool: &BuiltinTool| matches!(tool, BuiltinTool::Code(_));
        if builtin_tools.iter().any(is_code_tool) {
            engine.count_saved_tokens(&scope);
        }
        let key = DefinitionsKey {
            scope: Arc::as_ptr(&scope).addr(),
            format,
            builtin_tools,
            automatic_only: injection == ToolInjection::Auto,
        };
        if let Some(cached) = self.0.get(&key) {
            return Ok(cached.definitions);
        }
        let definitions = Arc::new(encode_definitions(&scope, &key));
        let cached = CachedDefinitions {
            definitions: Arc::clone(&definitions),
            scope,
        };
        self.0.insert(key, cached);
        Ok(definitions)
    }
}

impl ModelCall {
    /// Returns which tools are added to the request: as its header says, else its key, else the
    /// configuration.
    pub(crate) fn tool_injection(&self, engine: &Engine) -> Result<ToolInjection, ModelError> {
        let RequestContext {
            headers, filters, ..
        } = &*self.context;
        if let Some(value) = headers.get(INJECT_HEADER) {
            let injection = value.to_str().ok().and_then(ToolInjection::parse);
            return injection.ok_or_else(|| {
                ModelError::Field(FieldError {
                    field: INJECT_HEADER.to_owned(),
                    problem: "must be `all`, `auto` or `none`".to_owned(),
                })
            });
        }
        Ok(match engine.tool_injection(&self.caller)? {
            Some(injection) => injection,
            None if !engine.injects_tools() && filters.is_empty() => ToolInjection::None,
            None if is_coding_agent(headers) => ToolInjection::Auto,
            None => ToolInjection::All,
        })
    }
}

/// Says which tools are added to a request.
const INJECT_HEADER: &str = "x-toolgate-inject";
/// User agents of programs that fail when a model calls a tool they do not know. They are offered only
/// tools that the gateway executes.
const CODING_AGENTS: [&str; 6] = [
    "claude-cli/",
    "codex_",
    "codex-",
    "opencode/",
    "geminicli/",
    "qwencode/",
];

fn is_coding_agent(headers: &HeaderMap) -> bool {
    let user_agent = headers
        .get(USER_AGENT)
        .and_then(|value| value.to_str().ok());
    let user_agent = user_agent.unwrap_or_default().to_ascii_lowercase();
    CODING_AGENTS
        .iter()
        .any(|prefix| user_agent.starts_with(prefix))
}

/// Returns whether the conversation contains a truncated result.
fn has_truncated_result(model_call: &ModelCall) -> bool {
    memchr::memmem::find(model_call.body.bytes(), TRUNCATION_MARKER).is_some()
}

fn encode_definitions(scope: &Scope, key: &DefinitionsKey) -> ToolDefinitions {
    let runs_unasked = |judgement: &Judgement| judgement.decision().verdict == Verdict::Allow;
    let views: Vec<_> = scope
        .direct_tools()
        .filter(|(_, judgement)| !key.automatic_only || runs_unasked(judgement))
        .map(|(entry, _)| (entry, entry.tool.view()))
        .collect();
    let tools = views.iter().map(|(entry, view)| {
        let id = &entry.tool.id;
        let title = view.title.as_deref().unwrap_or_default();
        OfferedTool {
            alias: &entry.alias,
            id: Some((id.server.as_str(), id.tool.as_str())),
            description: view.description.as_deref().unwrap_or(title),
            parameters: view.input_schema.map_or("{}", |schema| schema.get()),
        }
    });
    let scripts_run_unasked = || {
        scope
            .code_mode_tools()
            .all(|(_, judgement)| runs_unasked(judgement))
    };
    let is_included = |tool: &&BuiltinTool| match **tool {
        _ if !key.automatic_only => true,
        BuiltinTool::ReadResult => true,
        BuiltinTool::Code(_) => scripts_run_unasked(),
        BuiltinTool::ListResources | BuiltinTool::ReadResource => false,
    };
    let builtin_tools = key.builtin_tools.iter().filter(is_included);
    let builtin_tools = builtin_tools.map(|tool| tool.model_definition());
    ToolDefinitions::new(key.format, tools.chain(builtin_tools))
}
