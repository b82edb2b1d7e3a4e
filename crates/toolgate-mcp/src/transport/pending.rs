//! Requests waiting for their responses, by id.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::RequestError;
use crate::client_handler::ClientHandler;

type RequestOutcome = Result<Box<RawValue>, RequestError>;

/// The requests in flight on one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct PendingRequests(Arc<Mutex<PendingTable>>);

#[derive(Debug, Default)]
struct PendingTable {
    last_id: u64,
    waiting: HashMap<u64, PendingEntry>,
    /// Reason of the close, once the connection is closed.
    closed: Option<String>,
}

#[derive(Debug)]
struct PendingEntry {
    sender: oneshot::Sender<RequestOutcome>,
    handler: Option<Arc<dyn ClientHandler>>,
    /// Ends server requests made for this request; created by the first of them.
    end: Option<(CancellationToken, DropGuard)>,
}

/// One request in flight.
#[derive(Debug)]
pub(super) struct PendingRequest {
    pub(super) id: u64,
    pending: PendingRequests,
    receiver: oneshot::Receiver<RequestOutcome>,
}

impl PendingRequests {
    /// Registers a request; fails with the reason if the connection is closed.
    pub(super) fn register(
        &self,
        handler: Option<Arc<dyn ClientHandler>>,
    ) -> Result<PendingRequest, RequestError> {
        let (sender, receiver) = oneshot::channel();
        let id = self.with(|table| match &table.closed {
            Some(reason) => Err(RequestError::NotSent(reason.clone())),
            None => {
                table.last_id += 1;
                let entry = PendingEntry {
                    sender,
                    handler,
                    end: None,
                };
                table.waiting.insert(table.last_id, entry);
                Ok(table.last_id)
            }
        })?;
        Ok(PendingRequest {
            id,
            pending: self.clone(),
            receiver,
        })
    }

    /// Completes a pending request; returns false if there is none with this id.
    pub(super) fn complete(&self, id: u64, outcome: RequestOutcome) -> bool {
        let waiting = self.with(|table| table.waiting.remove(&id));
        waiting.is_some_and(|entry| entry.sender.send(outcome).is_ok())
    }

    /// Returns the handler of a request.
    pub(super) fn handler(&self, id: u64) -> Option<Arc<dyn ClientHandler>> {
        self.with(|table| table.waiting.get(&id)?.handler.clone())
    }

    /// Returns the handler of the only pending request that has one, with a token that is cancelled
    /// at the end of that request or of the connection.
    pub(super) fn sole_handler(
        &self,
        end: &CancellationToken,
    ) -> Option<(Arc<dyn ClientHandler>, CancellationToken)> {
        self.with(|table| {
            let mut entries = table
                .waiting
                .values_mut()
                .filter(|entry| entry.handler.is_some());
            let sole = entries.next().filter(|_| entries.next().is_none())?;
            let (end, _) = sole.end.get_or_insert_with(|| {
                let end = end.child_token();
                (end.clone(), end.drop_guard())
            });
            Some((sole.handler.clone()?, end.clone()))
        })
    }

    /// Fails all pending and all later requests.
    pub(super) fn close(&self, reason: &str) {
        let waiting = self.with(|table| {
            table.closed.get_or_insert_with(|| reason.to_owned());
            std::mem::take(&mut table.waiting)
        });
        for entry in waiting.into_values() {
            let _ = entry
                .sender
                .send(Err(RequestError::Lost(reason.to_owned())));
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut PendingTable) -> T) -> T {
        f(&mut self.0.lock())
    }
}

impl PendingRequest {
    /// Waits for the response, or for the connection to close.
    pub(super) async fn wait_result(&mut self) -> RequestOutcome {
        (&mut self.receiver)
            .await
            .unwrap_or_else(|_| Err(RequestError::Lost("the connection was closed".to_owned())))
    }

    /// Removes the request; returns true if it was still waiting for its response.
    pub(super) fn remove(&self) -> bool {
        self.pending
            .with(|table| table.waiting.remove(&self.id))
            .is_some()
    }
}
