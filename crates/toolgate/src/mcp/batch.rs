//! JSON-RPC batches, which only protocol revision 2025-03-26 supports.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::{self, StreamExt as _};
use serde_json::value::RawValue;
use toolgate_mcp::jsonrpc::{self, INTERNAL_ERROR, RpcError, RpcResult};
use toolgate_mcp::serve::{ClientMessage, INVALID_REQUEST, RawMeta, rpc_error};

use super::legacy_client::LegacyClient;
use super::{McpRequestContext, McpServer};
use crate::call::RequestContext;
use crate::caller::Caller;

const MAX_BATCH_MESSAGES: usize = 100;
/// Requests of a batch that are handled concurrently.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// Total size of all responses to a batch.
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;

/// Id and result of one message; `None` for a cancelled request.
type BatchItem = Option<(Box<RawValue>, RpcResult)>;

impl McpServer {
    /// Handles a batch; returns `None` if no message in it needs a response. Notifications sent
    /// while the requests run are not tied to any of them.
    pub async fn handle_batch(
        &self,
        (caller, request): (Caller, RequestContext),
        client: &Arc<LegacyClient>,
        text: &str,
    ) -> Result<Option<String>, RpcError> {
        let messages: Vec<&RawValue> = serde_json::from_str(text)
            .map_err(|error| rpc_error(INVALID_REQUEST, format!("invalid batch: {error}")))?;
        if client.version() != "2025-03-26"
            || messages.is_empty()
            || messages.len() > MAX_BATCH_MESSAGES
        {
            let message = format!(
                "a batch must have 1 to {MAX_BATCH_MESSAGES} messages and requires protocol revision 2025-03-26"
            );
            return Err(rpc_error(INVALID_REQUEST, message));
        }
        let mut answers: Vec<BoxFuture<'_, BatchItem>> = Vec::new();
        for message in messages {
            match ClientMessage::parse(message.get()) {
                Ok(ClientMessage::Request { id, method, params }) => {
                    let (caller, request) = (caller.clone(), request.clone());
                    let meta = RawMeta::from_params(params.as_deref()).to_request_meta();
                    let context = McpRequestContext::legacy(
                        caller,
                        request,
                        client,
                        meta,
                        client.message_sender(),
                    );
                    answers.push(
                        self.handle_batch_request(context, id, method, params)
                            .boxed(),
                    );
                }
                Ok(ClientMessage::Notification { method, params }) => {
                    client.handle_notification(&self.gateway, &method, params.as_deref());
                }
                Ok(ClientMessage::Response { id, result: answer }) => {
                    client.handle_response(&id, answer)
                }
                Err(error) => {
                    let rejected = Some((RawValue::NULL.to_owned(), Err(error)));
                    answers.push(ready(rejected).boxed());
                }
            }
        }
        if answers.is_empty() {
            return Ok(None);
        }
        let answers = stream::iter(answers).buffered(MAX_CONCURRENT_REQUESTS);
        let texts = answers.filter_map(ready).scan(0, |bytes, (id, answer)| {
            let text = jsonrpc::response(&id, &answer);
            *bytes += text.len();
            ready(Some(if *bytes > MAX_RESPONSE_BYTES {
                let message =
                    "the responses to the batch are too large; send the requests separately";
                jsonrpc::response(&id, &Err(rpc_error(INTERNAL_ERROR, message)))
            } else {
                text
            }))
        });
        let texts: Vec<String> = texts.collect().await;
        Ok(Some(format!("[{}]", texts.join(","))))
    }

    async fn handle_batch_request(
        &self,
        context: McpRequestContext,
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> BatchItem {
        let in_flight = context.client.as_ref()?.track_request(&id);
        let answer = tokio::select! {
            answer = self.handle_request(&context, &method, params.as_deref()) => answer,
            () = in_flight.wait_cancelled() => return None,
        };
        Some((id, answer))
    }
}
