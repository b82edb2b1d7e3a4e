//! The request of a run as stored with it, without credentials.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::{Value, json};
use toolgate_core::config::Dialect;
use toolgate_core::scope::Filters;
use toolgate_llm::RequestBody;

use super::RunRecord;
use crate::call::RequestContext;
use crate::caller::Caller;
use crate::models::{ModelCall, ModelError, ModelRequest, Operation};

/// Encodes the request of a run for storage.
pub(super) fn request_value(model_call: &ModelCall) -> Value {
    let headers = model_call.context.headers.iter();
    let headers: Vec<Value> = headers
        .filter(|(name, _)| is_stored_header(name.as_str()))
        .filter_map(|(name, value)| Some(json!([name.as_str(), value.to_str().ok()?])))
        .collect();
    let Filters {
        include_clients,
        exclude_clients,
        include_tools,
        exclude_tools,
        ..
    } = &model_call.context.filters;
    json!({
        "body": model_call.body.as_str(),
        "headers": headers,
        "filters": [include_clients, exclude_clients, include_tools, exclude_tools],
    })
}

/// Returns whether a header affects a run and is stored with it; credentials never are.
fn is_stored_header(name: &str) -> bool {
    name.starts_with("x-toolgate-")
        || name.starts_with("anthropic-")
        || matches!(
            name,
            "traceparent" | "tracestate" | "openai-beta" | "user-agent"
        )
}

/// Rebuilds the request of a run.
pub(super) fn model_call_from_record(
    record: &RunRecord,
    request: &Value,
) -> Result<ModelCall, ModelError> {
    let mut headers = HeaderMap::new();
    for pair in request["headers"].as_array().into_iter().flatten() {
        let name = pair[0]
            .as_str()
            .and_then(|name| HeaderName::try_from(name).ok());
        let value = pair[1]
            .as_str()
            .and_then(|value| HeaderValue::from_str(value).ok());
        if let (Some(name), Some(value)) = (name, value) {
            headers.append(name, value);
        }
    }
    let list = |index: usize| {
        serde_json::from_value(request["filters"][index].clone())
            .ok()
            .flatten()
    };
    let context = Arc::new(RequestContext {
        id: Some(record.request_id.clone()),
        filters: Filters {
            include_clients: list(0),
            exclude_clients: list(1),
            include_tools: list(2),
            exclude_tools: list(3),
            ..Filters::default()
        },
        headers,
        ..RequestContext::default()
    });
    let dialect = Dialect::ALL
        .into_iter()
        .find(|dialect| dialect.as_str() == record.dialect);
    let text = request["body"].as_str().unwrap_or_default().to_owned();
    let body = RequestBody::parse(Bytes::from(text))?;
    let caller = match &record.caller {
        Some(key) => Caller::http().with_key(key),
        None => Caller::http(),
    };
    let request = ModelRequest {
        dialect: dialect.unwrap_or(Dialect::Chat),
        operation: Operation::Complete,
        body: body.bytes().clone(),
        query: None,
        request: Arc::clone(&context),
    };
    Ok(ModelCall::new(request, body, caller)?.with_context(context))
}
