//! Requests as a provider receives them: address, headers and body.

use std::borrow::Cow;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method};
use serde_json::Value;
use toolgate_core::config::Dialect;
use toolgate_llm::chat::move_tool_images;
use toolgate_llm::messages::check_new_thread;
use toolgate_llm::prompt::IgnoredFields;
use toolgate_llm::provider_turn::restore_turns;
use toolgate_llm::responses::references::{ItemReference, StoredReferences};
use toolgate_llm::token_estimate::estimate_tokens;
use toolgate_llm::tools::{CallerTools, DefinitionFormat};
use toolgate_llm::upstream::ProviderRequest;
use toolgate_llm::{FieldError, WireFormat as _};

use super::table::{self, ModelTarget};
use super::{
    ModelCall, ModelError, ModelResponse, Models, Operation, ResponseBody, StatusCode,
    UsageRecording, headers,
};
use crate::conversations::unknown_reference;

/// Says that the gateway estimated a number of tokens.
const ESTIMATED_HEADER: &str = "x-toolgate-estimated";
const JSON: HeaderValue = HeaderValue::from_static("application/json");

impl Models {
    /// Checks that a request refers only to what its caller received. Returns the provider's id for
    /// the response that it continues.
    async fn resolve_references(
        &self,
        model_call: &ModelCall,
        provider_dialect: Dialect,
    ) -> Result<Option<String>, ModelError> {
        let dialects = (model_call.request.dialect, provider_dialect);
        if dialects == (Dialect::Messages, Dialect::Messages) && model_call.caller.key().is_some() {
            // The gateway does not know whose threads a provider holds.
            check_new_thread(&model_call.body)?;
        }
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

    /// Sends a request to one target.
    pub(super) async fn send_to(
        &self,
        model_call: &ModelCall,
        target: &ModelTarget,
        recording: &UsageRecording,
    ) -> Result<reqwest::Response, ModelError> {
        if let Operation::Forward(endpoint) = model_call.request.operation {
            return self
                .forward_to(endpoint, model_call, target, recording)
                .await;
        }
        let (caller_dialect, provider_dialect) = (
            model_call.request.dialect,
            target.provider_dialect(model_call.request.dialect),
        );
        let resolving = Box::pin(self.resolve_references(model_call, provider_dialect));
        let provider_id = resolving.await?;
        let body = self.provider_body(model_call, target, provider_id.as_deref())?;
        let mut path = provider_dialect.path().to_owned();
        if model_call.request.operation == Operation::CountTokens {
            path.push_str(match provider_dialect {
                Dialect::Messages => "/count_tokens",
                Dialect::Responses | Dialect::Chat => "/input_tokens",
            });
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
        let outgoing = ProviderRequest {
            method: Method::POST,
            path: &path,
            dialect: provider_dialect,
            model: &target.model,
            body,
            content_type: Some(JSON),
            headers: self.provider_headers(model_call, target, provider_dialect, recording),
        };
        Ok(target.upstream.send(&outgoing).await?)
    }

    /// Selects the caller's headers that a provider receives.
    pub(super) fn provider_headers(
        &self,
        model_call: &ModelCall,
        target: &ModelTarget,
        dialect: Dialect,
        recording: &UsageRecording,
    ) -> HeaderMap {
        let trace = self.0.engine.trace_context(recording.span());
        headers::provider_headers(
            &model_call.context.headers,
            dialect,
            &target.upstream.allowed_extra_headers,
            trace.as_ref(),
        )
    }

    /// Estimates the tokens of a request if its provider cannot count them.
    pub(super) async fn estimate_tokens(
        &self,
        model_call: &ModelCall,
    ) -> Result<Option<ModelResponse>, ModelError> {
        let table = self.0.table.load_full();
        let targets = table.resolve(&model_call.model_request())?;
        let caller_dialect = model_call.request.dialect;
        let Some(target) = targets
            .first()
            .filter(|target| target.provider_dialect(caller_dialect) != caller_dialect)
        else {
            return Ok(None);
        };
        let limits = self.0.engine.limits();
        let _slot = limits.admit_model_request(&model_call.caller).await?;
        let tokens = estimate_tokens(&self.provider_body(model_call, target, None)?);
        let body = match caller_dialect {
            Dialect::Responses => {
                serde_json::json!({"object": "response.input_tokens", "input_tokens": tokens})
            }
            Dialect::Messages | Dialect::Chat => serde_json::json!({"input_tokens": tokens}),
        };
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, JSON);
        headers.insert(ESTIMATED_HEADER, HeaderValue::from_static("true"));
        Ok(Some(ModelResponse {
            status: StatusCode::OK,
            headers,
            body: ResponseBody::Whole(body.to_string().into()),
        }))
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
        let messages = match (caller_dialect, provider_dialect) {
            (Dialect::Chat, Dialect::Chat) => move_tool_images(&model_call.body),
            _ => None,
        };
        if let Some(messages) = &messages {
            edit = edit.set("messages", messages);
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
        prompt.limits.max_tokens_field = target.upstream.max_tokens_field;
        Ok(Bytes::from(provider_dialect.encode_request(&prompt)?))
    }
}
