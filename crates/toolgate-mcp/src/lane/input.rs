//! Input that modern servers request in results, collected from legacy clients.

use std::sync::Arc;

use indexmap::IndexMap;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_core::clean::json::clean_json;

use super::{Lane, LaneId, UpstreamRequest};
use crate::client_handler::ClientHandler;
use crate::handshake::Era;
use crate::jsonrpc::Object;
use crate::transport::RequestError;

/// Maximum number of times a modern server may ask for input before it must answer.
const MAX_INPUT_ROUNDS: usize = 10;

/// The members of a modern result that say whether it is complete.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ResultHead<'a> {
    #[serde(borrow)]
    result_type: Option<std::borrow::Cow<'a, str>>,
    #[serde(borrow)]
    request_state: Option<&'a RawValue>,
    #[serde(borrow)]
    input_requests: Option<&'a RawValue>,
}

impl<'a> ResultHead<'a> {
    /// Fails rather than treating a result as complete that may be a request for input.
    fn parse(result: &'a RawValue) -> Result<Self, RequestError> {
        serde_json::from_str(result.get())
            .map_err(|error| RequestError::Malformed(error.to_string()))
    }

    /// Returns whether this is the final result rather than a request for input.
    fn is_complete(&self) -> Result<bool, RequestError> {
        match self.result_type.as_deref() {
            // The result of a task follows later, without further input to this request.
            None | Some("complete" | "task") => Ok(true),
            Some("input_required") => Ok(false),
            Some(other) => Err(malformed_response(&format!(
                "unknown result type `{other}`"
            ))),
        }
    }
}

/// One input request of a modern server.
#[derive(Deserialize)]
pub(super) struct InputRequest<'a> {
    #[serde(borrow)]
    pub(super) method: std::borrow::Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) params: Option<&'a RawValue>,
}

impl Lane {
    /// Sends a request and answers a modern server's input requests on behalf of a legacy client.
    /// A modern client receives the input requests in the result and answers them itself.
    pub async fn send_resolving_input(
        &self,
        request: UpstreamRequest,
    ) -> Result<Box<RawValue>, RequestError> {
        if self.0.session.era == Era::Legacy || request.modern_client.is_some() {
            return self.send(request).await;
        }
        let result = self.send(request.clone()).await?;
        if ResultHead::parse(&result)?.is_complete()? {
            Ok(result)
        } else {
            Box::pin(self.resolve_input(result, &request)).await
        }
    }

    /// Repeats a request with the input a modern server requires until the result is complete.
    async fn resolve_input(
        &self,
        mut result: Box<RawValue>,
        request: &UpstreamRequest,
    ) -> Result<Box<RawValue>, RequestError> {
        for _ in 0..MAX_INPUT_ROUNDS {
            let head = ResultHead::parse(&result)?;
            if head.is_complete()? {
                return Ok(result);
            }
            let mut params = request.params.clone();
            if let Some(requests) = head.input_requests {
                let responses = self
                    .collect_input(requests, request.handler.as_ref())
                    .await?;
                params = params.raw("inputResponses", &responses.to_string());
            }
            if let Some(state) = head.request_state {
                params = params.raw("requestState", state.get());
            }
            let repeated = UpstreamRequest {
                params,
                ..request.clone()
            };
            result = self.send(repeated).await?;
        }
        Err(malformed_response(
            "it keeps requesting input instead of completing",
        ))
    }

    /// Forwards input requests to the client that owns this connection. On a shared lane there is
    /// no such client.
    async fn collect_input(
        &self,
        requests: &RawValue,
        handler: Option<&Arc<dyn ClientHandler>>,
    ) -> Result<Object, RequestError> {
        let is_session_lane = matches!(self.0.key.lane, LaneId::Session(_));
        let Some(handler) = handler.filter(|_| is_session_lane) else {
            return Err(malformed_response(
                "it requests input, but no client can provide it",
            ));
        };
        let requests: IndexMap<String, InputRequest<'_>> = serde_json::from_str(requests.get())
            .map_err(|error| RequestError::Malformed(error.to_string()))?;
        let mut responses = Object::new();
        for (key, InputRequest { method, params }) in requests {
            let params = params.map(clean_json);
            let response = handler.on_request(&method, params.as_deref()).await?;
            responses = responses.raw(&key, response.get());
        }
        Ok(responses)
    }
}

fn malformed_response(text: &str) -> RequestError {
    RequestError::Malformed(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn malformed_result_is_not_taken_for_complete() {
        let is_complete = |text: &str| {
            let result = RawValue::from_string(text.to_owned()).unwrap();
            ResultHead::parse(&result).and_then(|head| head.is_complete())
        };
        assert!(is_complete(r#"{"content": []}"#).unwrap());
        assert!(is_complete(r#"{"resultType": null}"#).unwrap());
        assert!(is_complete(r#"{"resultType": "complete"}"#).unwrap());
        assert!(!is_complete(r#"{"resultType": "input_required"}"#).unwrap());
        for malformed in [
            r#"{"resultType": ["input_required"]}"#,
            r#"{"resultType": "input_required", "resultType": "complete"}"#,
            r#"{"resultType": "other"}"#,
            "7",
        ] {
            assert!(is_complete(malformed).is_err(), "{malformed}");
        }
    }
}
