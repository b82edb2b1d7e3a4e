//! What arrives on a connection that carries all answers of a server: pipes, or one event stream.

use tokio::sync::mpsc;

use super::pending::Pending;
use super::{Event, announce};
use crate::jsonrpc::{self, Incoming};

/// Sorts messages: answers to those who wait, news to the supervisor, requests to nobody.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    pub(super) pending: Pending,
    pub(super) events: mpsc::Sender<Event>,
}

impl Inbox {
    /// Takes a text; `reply` sends what a request of the server is answered with.
    pub(super) fn take(&self, text: &str, reply: impl Fn(String)) {
        if text.trim().is_empty() {
            return;
        }
        let messages = match jsonrpc::parse(text) {
            Ok(messages) => messages,
            Err(error) => {
                tracing::debug!(%error, "what arrived is no message");
                return;
            }
        };
        for message in messages {
            match message {
                Incoming::Response {
                    id: Some(id),
                    answer,
                } => {
                    if !self.pending.settle(id, Ok(answer)) {
                        tracing::debug!(id, "an answer that nobody waits for");
                    }
                }
                Incoming::Response { id: None, .. } => {
                    tracing::debug!("an answer without an id of ours")
                }
                Incoming::Request { id, method } => reply(jsonrpc::answer_to_server(id, &method)),
                Incoming::Notification { method, .. } => announce(&method, &self.events),
            }
        }
    }
}
