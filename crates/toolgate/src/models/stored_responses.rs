//! Responses that are stored under an id, by a provider or for a limited time by the gateway, and that
//! exist only for the caller who received them.

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method};
use serde_json::{Value, json};
use toolgate_core::config::Dialect;
use toolgate_llm::RequestBody;
use toolgate_llm::upstream::ProviderRequest;

use super::forward::UsageInEvents;
use super::table::ModelTarget;
use super::{
    ModelCall, ModelError, ModelRequest, ModelResponse, Models, Operation, ResponseBody,
    StatusCode, UsageRecording, forward, headers, is_stream, read_body,
};
use crate::call::RequestContext;
use crate::caller::Caller;
use crate::conversations::{ProviderReference, ResponsePart, StoredResponse};

/// Stands for the model in records, because a stored response is addressed without one.
const RECORDED_MODEL: &str = "stored response";

/// Action on a stored response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredResponseAction {
    /// Return the response.
    Get,
    /// Return the items that it responds to.
    InputItems,
    /// Cancel a response that is created in the background.
    Cancel,
    /// Delete the response.
    Delete,
}

/// A request about a stored response.
#[derive(Clone, Debug)]
pub struct StoredResponseRequest {
    /// Id of the response.
    pub id: String,
    /// What to do with it.
    pub action: StoredResponseAction,
    /// Query string of the caller's URL.
    pub query: Option<String>,
    /// Request id and headers.
    pub request: Arc<RequestContext>,
}

impl Models {
    /// Reads or changes a stored response. Those of other callers do not exist.
    pub async fn stored_response(
        &self,
        caller: &Caller,
        request: StoredResponseRequest,
    ) -> Result<ModelResponse, ModelError> {
        let StoredResponseRequest { id, action, .. } = &request;
        let engine = &self.0.engine;
        engine.check_writable()?;
        let slot = engine.limits().admit_model_request(caller).await?;
        let unknown = || ModelError::UnknownResponse(id.clone());
        // It becomes part of a path at the provider.
        if !is_valid_id(id) {
            return Err(unknown());
        }
        let part = match action {
            StoredResponseAction::InputItems => ResponsePart::InputItems,
            _ => ResponsePart::Response,
        };
        let conversations = engine.conversations();
        let found = conversations.find_response(caller, id, part).await?;
        let reference = match found.ok_or_else(unknown)? {
            StoredResponse::AtProvider(reference) => reference,
            StoredResponse::Here(body) => {
                return match action {
                    StoredResponseAction::Get | StoredResponseAction::InputItems => {
                        Ok(json_response(&body))
                    }
                    StoredResponseAction::Cancel => Err(ModelError::NotCancellable),
                    StoredResponseAction::Delete => {
                        conversations.delete_response(caller, id).await?;
                        Ok(json_response(
                            &json!({"id": id, "object": "response", "deleted": true}),
                        ))
                    }
                };
            }
        };
        let model_call = self.stored_response_call(caller, &request)?;
        let table = self.0.table.load_full();
        let upstream = match &reference.provider {
            Some(provider) => table.upstream(provider),
            None => table.only_responses_provider(),
        };
        let target = ModelTarget {
            upstream: Arc::clone(upstream.ok_or_else(unknown)?),
            model: RECORDED_MODEL.to_owned(),
        };
        let mut recording =
            UsageRecording::new(&self.0.usage_recorder, engine, &model_call, &target, &table)
                .with_slot(Some(slot));
        let sent = self.send_stored(&model_call, &target, &request, &reference, &recording);
        let result = sent.await;
        if result.is_err() {
            recording.record_failure(&result);
        }
        let response = result?;
        if *action == StoredResponseAction::Delete && response.status().is_success() {
            conversations.delete_response(caller, id).await?;
            conversations.delete_response(caller, &reference.id).await?;
        }
        relay(id, response, recording).await
    }

    fn stored_response_call(
        &self,
        caller: &Caller,
        request: &StoredResponseRequest,
    ) -> Result<ModelCall, ModelError> {
        let body = json!({"model": RECORDED_MODEL}).to_string();
        let body = RequestBody::parse(body.into())?;
        let model_request = ModelRequest {
            dialect: Dialect::Responses,
            operation: Operation::StoredResponse,
            body: body.bytes().clone(),
            query: request.query.clone(),
            request: Arc::clone(&request.request),
        };
        ModelCall::new(self.with_request_id(model_request), body, caller.clone())
    }

    async fn send_stored(
        &self,
        model_call: &ModelCall,
        target: &ModelTarget,
        request: &StoredResponseRequest,
        reference: &ProviderReference,
        recording: &UsageRecording,
    ) -> Result<reqwest::Response, ModelError> {
        let (method, suffix) = match request.action {
            StoredResponseAction::Get => (Method::GET, ""),
            StoredResponseAction::InputItems => (Method::GET, "/input_items"),
            StoredResponseAction::Cancel => (Method::POST, "/cancel"),
            StoredResponseAction::Delete => (Method::DELETE, ""),
        };
        let mut path = format!("{}/{}{suffix}", Dialect::Responses.path(), reference.id);
        if let Some(query) = &request.query {
            path.push('?');
            path.push_str(query);
        }
        let outgoing = ProviderRequest {
            method,
            path: &path,
            dialect: Dialect::Responses,
            // Any key of the provider will do.
            model: "",
            body: bytes::Bytes::new(),
            content_type: None,
            headers: self.provider_headers(model_call, target, Dialect::Responses, recording),
        };
        Ok(target.upstream.send(&outgoing).await?)
    }
}

fn is_valid_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=256).contains(&id.len()) && id.bytes().all(is_allowed)
}

/// Relays a provider's response about a stored response, which keeps the id that the caller knows. Its
/// tokens were counted when it was created.
async fn relay(
    id: &str,
    response: reqwest::Response,
    mut recording: UsageRecording,
) -> Result<ModelResponse, ModelError> {
    let status = response.status();
    let headers = headers::caller_headers(response.headers());
    recording.record_status(status.as_u16());
    if is_stream(response.headers()) {
        let usage = UsageInEvents::AlreadyRecorded;
        let chunks = forward::relay_chunks(response, recording, usage);
        return Ok(ModelResponse {
            status,
            headers,
            body: ResponseBody::Chunks(chunks),
        });
    }
    let body = read_body(response).await?;
    recording.record_completion(None);
    let known = RequestBody::parse(body.clone()).ok();
    let renamed = known.filter(|known| {
        let response_id = known.get_string("id");
        response_id.is_some_and(|response_id| response_id != id)
    });
    let body = match renamed {
        Some(known) => known
            .edit()
            .set("id", &Value::from(id).to_string())
            .finish(),
        None => body,
    };
    Ok(ModelResponse {
        status,
        headers,
        body: ResponseBody::Whole(body),
    })
}

fn json_response(body: &Value) -> ModelResponse {
    let json = HeaderValue::from_static("application/json");
    ModelResponse {
        status: StatusCode::OK,
        headers: HeaderMap::from_iter([(CONTENT_TYPE, json)]),
        body: ResponseBody::Whole(body.to_string().into()),
    }
}
