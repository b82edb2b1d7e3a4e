//! What arrives on a connection that carries all answers of a server: pipes, or one event stream.

use std::sync::Arc;

use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::asking::Asking;
use super::pending::Pending;
use super::{Event, announce, progress_of};
use crate::ear::Ear;
use crate::jsonrpc::{self, Incoming};

/// Sorts messages: answers and progress to those who wait, news to the supervisor, the rest to the
/// client whose connection it is, if it is anyone's.
#[derive(Clone, Debug)]
pub(super) struct Inbox {
    pub(super) pending: Pending,
    pub(super) events: mpsc::Sender<Event>,
    pub(super) ear: Arc<dyn Ear>,
    pub(super) asking: Asking,
    /// Ends with the connection.
    pub(super) end: CancellationToken,
}

impl Inbox {
    /// Takes a text; `reply` sends what a request of the server is answered with.
    pub(super) fn take(&self, text: &str, reply: impl Fn(String) + Clone + Send + 'static) {
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
                Incoming::Request { id, method, params } => {
                    let asked = (id, &*method, params);
                    let (ear, end) = self.asked();
                    self.asking.answer(&ear, asked, &end, reply.clone());
                }
                Incoming::Notification { method, params } => self.hear(&method, params),
            }
        }
    }

    /// Who is asked, and until when: the client whose connection it is, where its only call waits.
    fn asked(&self) -> (Arc<dyn Ear>, CancellationToken) {
        let only = match self.ear.can_be_asked() {
            true => self.pending.only(&self.end),
            false => None,
        };
        only.unwrap_or_else(|| (Arc::clone(&self.ear), self.end.clone()))
    }

    fn hear(&self, method: &str, params: Option<&RawValue>) {
        if announce(method, &self.events) {
            return;
        }
        let ear = match method {
            "notifications/cancelled" => return self.asking.withdraw(params),
            "notifications/progress" => progress_of(params).and_then(|id| self.pending.ear(id)),
            _ => Some(Arc::clone(&self.ear)),
        };
        if let Some(ear) = ear {
            ear.hear(method, params);
        }
    }
}
