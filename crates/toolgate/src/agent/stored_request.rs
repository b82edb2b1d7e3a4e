//! The request of a run as stored with it, without credentials.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Value, json};
use toolgate_core::ServerName;
use toolgate_core::config::Dialect;
use toolgate_core::scope::Filters;
use toolgate_llm::RequestBody;

use super::{ResumeError, RunRecord};
use crate::call::RequestContext;
use crate::caller::Caller;
use crate::models::{ModelCall, ModelError, ModelRequest, Operation};

/// The stored form. It is read strictly: a filter or header that went missing could widen the scope.
#[derive(Deserialize)]
struct StoredRequest {
    body: String,
    headers: Vec<(String, String)>,
    /// Included and excluded clients, then included and excluded tools.
    filters: [Option<Vec<String>>; 4],
    #[serde(default)]
    server: Option<String>,
    #[serde(default)]
    virtual_server: Option<String>,
}

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
        server,
        virtual_server,
        // Runs are no MCP clients.
        client: _,
    } = &model_call.context.filters;
    json!({
        "body": model_call.body.as_str(),
        "headers": headers,
        "filters": [include_clients, exclude_clients, include_tools, exclude_tools],
        "server": server.as_ref().map(ServerName::as_str),
        "virtual_server": virtual_server,
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
) -> Result<ModelCall, ResumeError> {
    let (context, body) =
        read_request(record, request).ok_or_else(|| ResumeError::Unreadable(record.id.clone()))?;
    let dialect = Dialect::ALL
        .into_iter()
        .find(|dialect| dialect.as_str() == record.dialect)
        .ok_or_else(|| ResumeError::Unreadable(record.id.clone()))?;
    let body = RequestBody::parse(Bytes::from(body)).map_err(ModelError::from)?;
    let caller = match &record.caller {
        Some(key) => Caller::http().with_key(key),
        None => Caller::http(),
    };
    let context = Arc::new(context);
    let request = ModelRequest {
        dialect,
        operation: Operation::Complete,
        body: body.bytes().clone(),
        query: None,
        request: Arc::clone(&context),
    };
    Ok(ModelCall::new(request, body, caller)?.with_context(context))
}

/// Reads the context and body of a stored request; `None` if any part of it cannot be read.
fn read_request(record: &RunRecord, request: &Value) -> Option<(RequestContext, String)> {
    let stored = StoredRequest::deserialize(request).ok()?;
    let mut headers = HeaderMap::new();
    for (name, value) in &stored.headers {
        let name = HeaderName::try_from(name).ok()?;
        headers.append(name, HeaderValue::from_str(value).ok()?);
    }
    let server = stored.server.as_deref().map(ServerName::parse).transpose();
    let [
        include_clients,
        exclude_clients,
        include_tools,
        exclude_tools,
    ] = stored.filters;
    let context = RequestContext {
        id: Some(record.request_id.clone()),
        filters: Filters {
            include_clients,
            exclude_clients,
            include_tools,
            exclude_tools,
            server: server.ok()?,
            virtual_server: stored.virtual_server,
            client: None,
        },
        headers,
        ..RequestContext::default()
    };
    Some((context, stored.body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::RunState;

    fn record() -> RunRecord {
        RunRecord {
            id: "r".to_owned(),
            caller: None,
            request_id: "q".to_owned(),
            dialect: Dialect::Chat.as_str().to_owned(),
            model: "p/m".to_owned(),
            stream: false,
            state: RunState::Waiting,
            stop_reason: None,
            iterations: 1,
            input_tokens: 0,
            output_tokens: 0,
            cost_micro_usd: 0,
            started_at: 0,
            ended_at: None,
        }
    }

    fn request() -> Value {
        json!({
            "body": r#"{"model":"p/m","messages":[]}"#,
            "headers": [["x-toolgate-depth", "1"]],
            "filters": [["a"], null, [], null],
            "server": null,
            "virtual_server": "v",
        })
    }

    #[test]
    fn stored_request_keeps_filters_and_headers() {
        let model_call = model_call_from_record(&record(), &request()).unwrap();
        let filters = &model_call.context.filters;
        assert_eq!(filters.include_clients, Some(vec!["a".to_owned()]));
        assert_eq!(filters.include_tools, Some(Vec::new()));
        assert_eq!(filters.virtual_server.as_deref(), Some("v"));
        assert_eq!(model_call.context.headers["x-toolgate-depth"], "1");
        // The endpoint restrictions round-trip as well.
        let stored = request_value(&model_call);
        assert_eq!(stored["filters"], request()["filters"]);
        assert_eq!(stored["virtual_server"], "v");
    }

    #[test]
    fn unreadable_stored_request_is_an_error() {
        let damaged = [
            ("body", Value::Null),
            ("headers", json!([["bad name", "1"]])),
            ("filters", Value::Null),
            ("filters", json!([[1], null, null, null])),
            ("filters", json!([null, null, null])),
            ("server", json!("no/server")),
        ];
        for (field, value) in damaged {
            let mut request = request();
            request[field] = value.clone();
            let result = model_call_from_record(&record(), &request);
            assert!(
                matches!(result, Err(ResumeError::Unreadable(_))),
                "{field} {value}"
            );
        }
        let unknown_dialect = RunRecord {
            dialect: "other".to_owned(),
            ..record()
        };
        let result = model_call_from_record(&unknown_dialect, &request());
        assert!(matches!(result, Err(ResumeError::Unreadable(_))));
    }
}
