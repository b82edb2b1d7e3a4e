//! Model requests: routing to a provider, tool definitions, responses and usage.
//!
//! A request sent in its own dialect keeps its bytes except for the model name and the spliced-in
//! tools, and its response is passed through unchanged. All others are translated. Wire formats live in
//! `toolgate_llm`; the module `agent` decides which requests become runs.

mod error;
mod headers;
mod model_call;
mod request;
mod response;
mod review;
mod span;
mod store;
mod table;
mod tool_definitions;
mod usage_recorder;

use std::borrow::Cow;
use std::sync::Arc;

use arc_swap::ArcSwap;
pub use bytes::Bytes;
pub use error::ModelError;
pub(crate) use headers::caller_headers;
pub use http::{HeaderMap, StatusCode};
pub(crate) use model_call::ModelCall;
pub use request::{ModelRequest, ModelResponse, Operation, ResponseBody};
pub(crate) use response::{MAX_EVENT_BYTES, is_stream, parse_provider_error, read_body};
use serde_json::Value;
pub(crate) use store::{ModelStore, REFERENCED_TABLE};
use table::{ModelTable, ModelTarget};
use tool_definitions::ToolDefinitionCache;
use toolgate_core::Config;
use toolgate_core::config::Dialect;
pub use toolgate_core::sse::SseDecodeError;
pub use toolgate_llm::FieldError;
use toolgate_llm::WireFormat as _;
pub use toolgate_llm::body::BodyError;
pub use toolgate_llm::event::{ProviderError, ResponseDecodeError, TokenUsage};
use toolgate_llm::prompt::IgnoredFields;
use toolgate_llm::provider_tools::provider_run_tools;
use toolgate_llm::provider_turn::restore_turns;
use toolgate_llm::responses::references::{ItemReference, StoredReferences};
use toolgate_llm::tools::{CallerTools, DefinitionFormat};
pub use toolgate_llm::upstream::SendError;
use toolgate_llm::upstream::{ProviderClients, ProviderRequest};
use toolgate_mcp::Environment;
pub use usage_recorder::ModelRecord;
use usage_recorder::UsageRecorder;
pub(crate) use usage_recorder::UsageRecording;

use crate::conversations::unknown_reference;
use crate::engine::Engine;
use crate::metrics::Metrics;
use crate::store::StoreError;

/// Handle for providers and their models; clones share its state.
#[derive(Clone, Debug)]
pub struct Models(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    engine: Engine,
    environment: Environment,
    clients: ProviderClients,
    usage_recorder: UsageRecorder,
    table: ArcSwap<ModelTable>,
    tool_definitions: ToolDefinitionCache,
    store: ModelStore,
}

/// Name of an available model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelName {
    /// Name to use in requests: `provider/model`, or an alias.
    pub name: String,
    /// Name of the provider.
    pub provider: String,
}

/// Public view of a provider, without secrets.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProviderStatus {
    /// Name of the provider.
    pub name: String,
    /// URL of its API, without secrets.
    pub base_url: String,
    /// APIs that it speaks.
    pub dialects: Vec<Dialect>,
    /// Names of the configured models.
    pub models: Vec<String>,
    /// Names of its keys.
    pub keys: Vec<String>,
    /// Whether it has a usable key.
    pub ready: bool,
}

/// A response that the gateway issued under an id of its own.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IssuedResponse<'a> {
    pub(crate) id: &'a str,
    pub(crate) answer: &'a str,
    pub(crate) provider_dialect: Dialect,
    pub(crate) provider_id: &'a str,
}

/// Response of a provider, possibly an error status, with its usage recording.
pub(crate) struct ProviderResponse {
    pub(crate) dialect: Dialect,
    pub(crate) response: reqwest::Response,
    pub(crate) recording: UsageRecording,
}

impl Models {
    /// Creates the handle and starts recording usage.
    pub(crate) fn start(
        config: &Config,
        engine: Engine,
        environment: Environment,
        store: ModelStore,
        metrics: Arc<Metrics>,
    ) -> Self {
        let clients = ProviderClients::default();
        let table = ModelTable::new(&config.models, &environment, &clients);
        Self(Arc::new(Inner {
            engine,
            environment,
            clients,
            usage_recorder: UsageRecorder::start(store.clone(), metrics),
            table: ArcSwap::from_pointee(table),
            tool_definitions: ToolDefinitionCache::new(),
            store,
        }))
    }

    /// Applies a new configuration; requests in progress are not affected.
    pub(crate) fn apply(&self, config: &Config) {
        let table = ModelTable::new(&config.models, &self.0.environment, &self.0.clients);
        self.0.table.store(Arc::new(table));
    }

    /// Lists all providers and whether they are ready.
    pub fn providers(&self) -> Vec<ProviderStatus> {
        self.0.table.load().providers()
    }

    /// Lists the available models by name.
    pub async fn list(&self) -> Vec<ModelName> {
        self.0.table.load_full().list().await
    }

    /// Sends a request to its model and relays the response.
    pub(crate) async fn relay(&self, model_call: &ModelCall) -> Result<ModelResponse, ModelError> {
        let response = self.send(model_call).await?;
        response::relay_response(model_call, response, self.0.engine.conversations()).await
    }

    /// Sends a request to its model, falling back to the next target if that one fails.
    pub(crate) async fn send(
        &self,
        model_call: &ModelCall,
    ) -> Result<ProviderResponse, ModelError> {
        self.0.engine.check_writable()?;
        let reviewed = if self.0.engine.hooks().is_empty() {
            Cow::Borrowed(model_call)
        } else {
            Box::pin(review::review(self.0.engine.hooks(), model_call)).await?
        };
        let model_call = &*reviewed;
        self.check_provider_tools(model_call)?;
        let table = self.0.table.load_full();
        let targets = table.resolve(&model_call.name, model_call.body.get("fallbacks"))?;
        let limits = self.0.engine.limits();
        let slot = limits.admit_model_request(&model_call.caller).await?;
        let mut slot = Some(slot);
        let last = targets.len() - 1;
        for (index, target) in targets.iter().enumerate() {
            let Inner {
                usage_recorder,
                engine,
                ..
            } = &*self.0;
            let mut recording =
                UsageRecording::new(usage_recorder, engine, model_call, target, &table);
            let has_cost_limit =
                model_call.has_cost_limit || limits.has_money_budget(&model_call.caller);
            if has_cost_limit && !table.prices.has_price(&target.upstream.name, &target.model) {
                recording.record_failure(&Err(ModelError::NoPrice(target.qualified_name())));
                return Err(ModelError::NoPrice(target.qualified_name()));
            }
            let result = self.send_to(model_call, target, &recording).await;
            let can_fall_back = match &result {
                Ok(response) => table::may_fall_back(response.status().as_u16()),
                Err(ModelError::Send(_)) => true,
                Err(_) => false,
            };
            if can_fall_back && index < last {
                recording.record_failure(&result);
                tracing::info!(model = %target.qualified_name(), next = %targets[index + 1].qualified_name(), "falling back to next model");
                continue;
            }
            if result.is_err() {
                recording.record_failure(&result);
            }
            return Ok(ProviderResponse {
                dialect: target.provider_dialect(model_call.request.dialect),
                recording: recording.with_slot(slot.take()),
                response: result?,
            });
        }
        Err(ModelError::MissingModel)
    }

    /// Checks that the caller may use the tools in its request that the provider runs.
    fn check_provider_tools(&self, model_call: &ModelCall) -> Result<(), ModelError> {
        let tools = provider_run_tools(&model_call.body);
        if tools.is_empty() {
            return Ok(());
        }
        let (caller, context) = (&model_call.caller, &model_call.context);
        if self
            .0
            .engine
            .admit_provider_tools(caller, context, &tools)?
        {
            Ok(())
        } else {
            Err(ModelError::ProviderTools(tools.join(", ")))
        }
    }

    /// Stores a response issued under a gateway id: as a conversation, or as an alias for the id under
    /// which the provider stores it. Aliases survive restarts.
    pub(crate) async fn store_response(
        &self,
        model_call: &ModelCall,
        IssuedResponse {
            id,
            answer,
            provider_dialect,
            provider_id,
        }: IssuedResponse<'_>,
    ) {
        let (conversations, caller) = (self.0.engine.conversations(), &model_call.caller);
        if provider_dialect != Dialect::Responses {
            conversations.store_response(caller, model_call.body.as_str(), answer);
            return;
        }
        let stored = conversations.alias_response(caller, id, provider_id).await;
        if let Err(error) = stored {
            tracing::warn!(%error, "failed to persist response id; it is valid only until the gateway stops");
        }
    }

    /// Checks that a request refers only to what its caller received. Returns the provider's id for
    /// the response that it continues.
    async fn resolve_references(
        &self,
        model_call: &ModelCall,
        provider_dialect: Dialect,
    ) -> Result<Option<String>, ModelError> {
        let dialects = (model_call.request.dialect, provider_dialect);
        if dialects != (Dialect::Responses, Dialect::Responses) {
            return Ok(None);
        }
        let references = StoredReferences::in_request(&model_call.body)?;
        let (conversations, caller) = (self.0.engine.conversations(), &model_call.caller);
        for ItemReference { field, id } in references.items {
            let resolved = conversations.resolve_reference(caller, &id).await?;
            resolved.ok_or_else(|| unknown_reference(field))?;
        }
        if let Some(id) = references.conversation
            && !conversations.claim_conversation(caller, &id).await?
        {
            return Err(unknown_reference("conversation".to_owned()).into());
        }
        let Some(id) = references.previous_response else {
            return Ok(None);
        };
        let resolved = conversations.resolve_reference(caller, &id).await?;
        let field = "previous_response_id".to_owned();
        Ok(Some(resolved.ok_or_else(|| unknown_reference(field))?))
    }

    /// Deletes records of requests that started before a time.
    pub(crate) async fn delete_records(&self, before: Option<i64>) -> Result<(), StoreError> {
        self.0.store.delete_records(before).await
    }

    /// Deletes response ids issued before a time.
    pub(crate) async fn delete_response_ids(&self, before: i64) -> Result<(), StoreError> {
        self.0.engine.conversations().delete_expired(before).await
    }

    /// Writes all remaining usage records.
    pub(crate) async fn stop(&self) {
        self.0.usage_recorder.stop().await;
    }

    async fn send_to(
        &self,
        model_call: &ModelCall,
        target: &ModelTarget,
        recording: &UsageRecording,
    ) -> Result<reqwest::Response, ModelError> {
        let (caller_dialect, provider_dialect) = (
            model_call.request.dialect,
            target.provider_dialect(model_call.request.dialect),
        );
        let resolving = Box::pin(self.resolve_references(model_call, provider_dialect));
        let provider_id = resolving.await?;
        let body = self.provider_body(model_call, target, provider_id.as_deref())?;
        let mut path = provider_dialect.path().to_owned();
        if model_call.request.operation == Operation::CountTokens {
            if provider_dialect != Dialect::Messages {
                return Err(ModelError::TokenCountUnsupported(
                    target.upstream.name.clone(),
                ));
            }
            path.push_str("/count_tokens");
        }
        if let Some(query) = model_call
            .request
            .query
            .as_deref()
            .filter(|_| caller_dialect == provider_dialect)
        {
            path.push('?');
            path.push_str(query);
        }
        let trace = self.0.engine.trace_context(recording.span());
        let outgoing = ProviderRequest {
            path: &path,
            dialect: provider_dialect,
            model: &target.model,
            body,
            headers: headers::provider_headers(
                &model_call.context.headers,
                provider_dialect,
                &target.upstream.allowed_extra_headers,
                trace.as_ref(),
            ),
        };
        Ok(target.upstream.send(&outgoing).await?)
    }

    /// Builds the request body for the provider.
    fn provider_body(
        &self,
        model_call: &ModelCall,
        target: &ModelTarget,
        provider_id: Option<&str>,
    ) -> Result<Bytes, ModelError> {
        let (caller_dialect, provider_dialect) = (
            model_call.request.dialect,
            target.provider_dialect(model_call.request.dialect),
        );
        let form = DefinitionFormat {
            dialect: caller_dialect,
            flat: target.upstream.flat_schemas,
        };
        let tools = self
            .0
            .tool_definitions
            .definitions(&self.0.engine, model_call, form)?;
        // Parsing the caller's tools is expensive and only needed to avoid duplicates.
        let tools = if tools.is_empty() {
            Cow::Borrowed("")
        } else {
            tools.excluding(&CallerTools::from_body(&model_call.body))
        };
        let mut edit = model_call.body.edit().append("tools", &tools);
        if target.model != model_call.name {
            edit = edit.set(
                "model",
                &serde_json::Value::from(target.model.as_str()).to_string(),
            );
        }
        if model_call
            .body
            .get("fallbacks")
            .is_some_and(table::is_fallbacks)
        {
            edit = edit.remove("fallbacks");
        }
        if model_call.must_request_stream_usage(&self.0.engine) {
            let mut options = model_call.stream_options();
            options["include_usage"] = Value::Bool(true);
            edit = edit.set("stream_options", &options.to_string());
        }
        // Other ids are left as the caller wrote them.
        let previous = model_call.body.get_string("previous_response_id");
        if let Some(provider_id) = provider_id.filter(|id| previous.as_deref() != Some(id)) {
            let id = Value::from(provider_id).to_string();
            edit = edit.set("previous_response_id", &id);
        }
        let body = edit.finish();
        if caller_dialect == provider_dialect {
            return Ok(body);
        }
        let text = std::str::from_utf8(&body).map_err(|error| FieldError {
            field: "body".to_owned(),
            problem: error.to_string(),
        })?;
        let text = match caller_dialect {
            Dialect::Responses => self
                .0
                .engine
                .conversations()
                .expand_references(&model_call.caller, text)?,
            Dialect::Chat | Dialect::Messages => text.into(),
        };
        let ignored: &IgnoredFields = &target.upstream.ignored;
        let mut prompt = caller_dialect.decode_request(&text, ignored)?;
        restore_turns(&mut prompt, provider_dialect, &model_call.provider_turns);
        Ok(Bytes::from(provider_dialect.encode_request(&prompt)?))
    }
}

/// Encodes an error in the format of a dialect.
#[doc(hidden)] // for the HTTP routes of the binary
pub fn error_body(dialect: Dialect, failure: &ProviderError) -> String {
    dialect.encode_error(failure).to_string()
}
