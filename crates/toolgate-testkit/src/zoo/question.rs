//! What the server asks the client, and the questions that still wait for an answer.
//!
//! Questions are numbered from 1 like the requests of many clients, so that whoever stands in
//! between has to keep the ids of the two directions apart.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::rpc::Reply;

/// One request to the client, in the form that both eras share.
#[derive(Debug, Clone, Deserialize)]
pub(crate) struct Question {
    pub(crate) method: String,
    pub(crate) params: Value,
}

/// The open questions of all clients, by their scope and the raw id.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    asked: AtomicU64,
    open: Mutex<HashMap<(String, String), oneshot::Sender<Reply>>>,
}

/// A question that was asked.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) id: String,
    /// Ends without a reply if nobody is there to give one.
    pub(crate) reply: oneshot::Receiver<Reply>,
}

impl Question {
    /// Whether a client with these capabilities may be asked this.
    pub(crate) fn is_answerable(&self, capabilities: &Value) -> bool {
        match self.method.as_str() {
            "elicitation/create" => capabilities["elicitation"]
                .as_object()
                // Before there were modes, forms were all there was.
                .is_some_and(|modes| modes.is_empty() || modes.contains_key("form")),
            "sampling/createMessage" => capabilities["sampling"].is_object(),
            _ => capabilities["roots"].is_object(),
        }
    }

    /// The capabilities that a client needs to be asked this.
    pub(crate) fn required(&self) -> (&'static str, Value) {
        match self.method.as_str() {
            "elicitation/create" => ("elicitation", json!({ "form": {} })),
            "sampling/createMessage" => ("sampling", json!({})),
            _ => ("roots", json!({})),
        }
    }

    /// Whether this could be the answer.
    pub(crate) fn is_answered_by(&self, answer: &Value) -> bool {
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

impl Questions {
    pub(crate) fn open(&self, scope: &str) -> Asked {
        let id = (self.asked.fetch_add(1, Ordering::Relaxed) + 1).to_string();
        let (sender, reply) = oneshot::channel();
        let key = (scope.to_owned(), id.clone());
        self.open.lock().unwrap().insert(key, sender);
        Asked { id, reply }
    }

    /// Hands a reply to whoever waits for it; one that nobody asked for is ignored.
    pub(crate) fn answered(&self, scope: &str, reply: Reply) {
        let key = (scope.to_owned(), reply.id.clone());
        if let Some(sender) = self.open.lock().unwrap().remove(&key) {
            let _ = sender.send(reply);
        }
    }

    /// Gives up a question; whoever waits for the reply learns that there will be none.
    pub(crate) fn give_up(&self, scope: &str, id: &str) {
        let key = (scope.to_owned(), id.to_owned());
        self.open.lock().unwrap().remove(&key);
    }

    /// Gives up all questions to one client.
    pub(crate) fn forget(&self, scope: &str) {
        let mut open = self.open.lock().unwrap();
        open.retain(|(owner, _), _| owner != scope);
    }
}
