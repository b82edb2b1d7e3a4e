//! Requests from the server to the client, and those that await a reply.
//!
//! Ids count from 1, like those of many clients, so that a proxy has to keep the ids of the two
//! directions apart.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::rpc::RpcReply;

/// A request to the client, in the form that both eras share.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct ClientRequest {
    pub(crate) method: String,
    pub(crate) params: Value,
}

/// Requests that await a reply, by client scope and raw id.
#[derive(Debug, Default)]
pub(crate) struct PendingClientRequests {
    next_id: AtomicU64,
    open: Mutex<HashMap<(String, String), oneshot::Sender<RpcReply>>>,
}

/// A request that was registered and awaits its reply.
#[derive(Debug)]
pub(crate) struct SentClientRequest {
    pub(crate) id: String,
    /// Closed without a reply if the request is abandoned.
    pub(crate) reply: oneshot::Receiver<RpcReply>,
}

impl ClientRequest {
    /// Returns whether a client with these capabilities supports this request.
    pub(crate) fn is_supported_by(&self, capabilities: &Value) -> bool {
        match self.method.as_str() {
            "elicitation/create" => capabilities["elicitation"]
                .as_object()
                // Before modes were introduced, an empty object meant forms.
                .is_some_and(|modes| modes.is_empty() || modes.contains_key("form")),
            "sampling/createMessage" => capabilities["sampling"].is_object(),
            _ => capabilities["roots"].is_object(),
        }
    }

    /// Returns the capability that this request requires.
    pub(crate) fn required_capability(&self) -> (&'static str, Value) {
        match self.method.as_str() {
            "elicitation/create" => ("elicitation", json!({ "form": {} })),
            "sampling/createMessage" => ("sampling", json!({})),
            _ => ("roots", json!({})),
        }
    }

    /// Returns whether the answer has the right shape for this request.
    pub(crate) fn is_valid_answer(&self, answer: &Value) -> bool {
        match self.method.as_str() {
            "elicitation/create" => {
                matches!(
                    answer["action"].as_str(),
                    Some("accept" | "decline" | "cancel")
                )
            }
            "sampling/createMessage" => {
                let content = &answer["content"];
                answer["role"].is_string() && (content.is_object() || content.is_array())
            }
            _ => answer["roots"].is_array(),
        }
    }
}

impl PendingClientRequests {
    pub(crate) fn register(&self, scope: &str) -> SentClientRequest {
        let id = (self.next_id.fetch_add(1, Ordering::Relaxed) + 1).to_string();
        let (sender, reply) = oneshot::channel();
        let key = (scope.to_owned(), id.clone());
        self.open.lock().insert(key, sender);
        SentClientRequest { id, reply }
    }

    /// Delivers a reply to the waiting call; an unexpected reply is ignored.
    pub(crate) fn resolve(&self, scope: &str, reply: RpcReply) {
        let key = (scope.to_owned(), reply.id.clone());
        if let Some(sender) = self.open.lock().remove(&key) {
            let _ = sender.send(reply);
        }
    }

    /// Abandons a request; the waiting call sees the channel close.
    pub(crate) fn abandon(&self, scope: &str, id: &str) {
        let key = (scope.to_owned(), id.to_owned());
        self.open.lock().remove(&key);
    }

    /// Abandons all requests to one client.
    pub(crate) fn abandon_all(&self, scope: &str) {
        let mut open = self.open.lock();
        open.retain(|(owner, _), _| owner != scope);
    }
}
