//! Several messages at once, which one old revision knows.

use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, ready};
use futures_util::stream::{self, StreamExt as _};
use serde_json::value::RawValue;
use toolgate_mcp::jsonrpc::{self, Answer, INTERNAL_ERROR, RpcError};
use toolgate_mcp::serve::{INVALID_REQUEST, Meta, Received, rpc};

use super::client::OldClient;
use super::{Asker, Door};
use crate::call::Request;
use crate::caller::Caller;

/// Messages in one batch.
const MOST: usize = 100;
/// Of which so many are worked on at a time.
const AT_ONCE: usize = 8;
/// Bytes of all answers together.
const MOST_BYTES: usize = 16 * 1024 * 1024;

/// The answer to one message; none to a request that was cancelled.
type One = Option<(Box<RawValue>, Answer)>;

impl Door {
    /// Answers a batch of a client; none if nothing in it wants an answer. What comes before the
    /// answers is told as what belongs to no request.
    pub async fn batch(
        &self,
        (caller, request): (Caller, Request),
        client: &Arc<OldClient>,
        text: &str,
    ) -> Result<Option<String>, RpcError> {
        let messages: Vec<&RawValue> = serde_json::from_str(text)
            .map_err(|error| rpc(INVALID_REQUEST, format!("this is no batch: {error}")))?;
        if client.version() != "2025-03-26" || messages.is_empty() || messages.len() > MOST {
            let told = format!(
                "a batch has 1 to {MOST} messages, and no revision but 2025-03-26 knows it"
            );
            return Err(rpc(INVALID_REQUEST, told));
        }
        let mut answers: Vec<BoxFuture<'_, One>> = Vec::new();
        for message in messages {
            match Received::read(message.get()) {
                Ok(Received::Request { id, method, params }) => {
                    let (caller, request) = (caller.clone(), request.clone());
                    let said = Meta::of(params.as_deref()).said();
                    let asker = Asker::old(caller, request, client, said, client.tell());
                    answers.push(self.one(asker, id, method, params).boxed());
                }
                Ok(Received::Notification { method, params }) => {
                    client.hear(&self.gateway, &method, params.as_deref());
                }
                Ok(Received::Response { id, answer }) => client.settle(&id, answer),
                Err(error) => {
                    let refused = Some((RawValue::NULL.to_owned(), Err(error)));
                    answers.push(ready(refused).boxed());
                }
            }
        }
        if answers.is_empty() {
            return Ok(None);
        }
        let answers = stream::iter(answers).buffered(AT_ONCE);
        let texts = answers.filter_map(ready).scan(0, |bytes, (id, answer)| {
            let text = jsonrpc::answer(&id, &answer);
            *bytes += text.len();
            ready(Some(match *bytes > MOST_BYTES {
                true => {
                    let told = "the answers to the batch are too large; ask one by one";
                    jsonrpc::answer(&id, &Err(rpc(INTERNAL_ERROR, told)))
                }
                false => text,
            }))
        });
        let texts: Vec<String> = texts.collect().await;
        Ok(Some(format!("[{}]", texts.join(","))))
    }

    async fn one(
        &self,
        asker: Asker,
        id: Box<RawValue>,
        method: String,
        params: Option<Box<RawValue>>,
    ) -> One {
        let place = asker.client.as_ref()?.enter(&id);
        let answer = tokio::select! {
            answer = self.answer(&asker, &method, params.as_deref()) => answer,
            () = place.cancelled() => return None,
        };
        Some((id, answer))
    }
}
