//! Model requests: routing to a provider, tool definitions, responses and usage.
//!
//! A request sent in its own dialect keeps its bytes except for the model name and the spliced-in
//! tools, and its response is passed through unchanged. All others are translated. Wire formats live in
//! `toolgate_llm`; the module `agent` decides which requests become runs.

mod error;
mod forward;
mod headers;
mod model_call;
mod model_list;
mod provider_request;
mod request;
mod response;
mod review;
mod span;
mod store;
mod stored_responses;
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
pub use request::{ModelRequest, ModelResponse, Operation, ResponseBody, ResponseChunks};
pub(crate) use response::{MAX_EVENT_BYTES, is_stream, parse_provider_error, read_body};
pub(crate) use store::{ModelStore, REFERENCED_TABLE};
pub use stored_responses::{StoredResponseAction, StoredResponseRequest};
use table::{ModelTable, ModelTarget, NamedModel};
use tool_definitions::ToolDefinitionCache;
use toolgate_core::Config;
use toolgate_core::config::Dialect;
pub use toolgate_core::sse::SseDecodeError;
pub use toolgate_llm::FieldError;
use toolgate_llm::WireFormat as _;
pub use toolgate_llm::body::BodyError;
pub use toolgate_llm::endpoint::Endpoint;
pub use toolgate_llm::event::{ProviderError, ResponseDecodeError, TokenUsage};
use toolgate_llm::provider_tools::provider_run_tools;
use toolgate_llm::upstream::ProviderClients;
pub use toolgate_llm::upstream::SendError;
use toolgate_mcp::Environment;
pub use usage_recorder::ModelRecord;
use usage_recorder::UsageRecorder;
pub(crate) use usage_recorder::UsageRecording;

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

    /// Returns an available model by any name that requests may use for it.
    pub async fn find(&self, name: &str) -> Option<ModelName> {
        let table = self.0.table.load_full();
        let request = NamedModel {
            name,
            ..NamedModel::default()
        };
        let targets = table.resolve(&request).ok()?;
        let qualified = targets.first().map(ModelTarget::qualified_name);
        let is_found =
            |model: &ModelName| model.name == name || Some(&model.name) == qualified.as_ref();
        let found = table.list().await.into_iter().find(is_found)?;
        Some(ModelName {
            name: name.to_owned(),
            ..found
        })
    }

    /// Sends a request to its model and relays the response.
    pub(crate) async fn relay(&self, model_call: &ModelCall) -> Result<ModelResponse, ModelError> {
        if model_call.request.operation == Operation::CountTokens
            && let Some(estimate) = self.estimate_tokens(model_call).await?
        {
            return Ok(estimate);
        }
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
        let targets = table.resolve(&model_call.model_request())?;
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
            let has_cost_limit = !model_call.request.operation.is_free()
                && (model_call.has_cost_limit || limits.has_money_budget(&model_call.caller));
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
}

/// Encodes an error in the format of a dialect.
#[doc(hidden)] // for the HTTP routes of the binary
pub fn error_body(dialect: Dialect, failure: &ProviderError) -> String {
    dialect.encode_error(failure).to_string()
}
