//! The client's requests that have no response yet.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;
use toolgate::registry::Era;

use super::message::RequestId;

/// All requests in flight; clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct InFlight(Arc<Mutex<Requests>>);

#[derive(Debug, Default)]
struct Requests {
    by_id: HashMap<RequestId, Request>,
    last_message: u64,
}

#[derive(Debug)]
struct Request {
    era: Era,
    /// Number of the message that carried the request. A batch carries several.
    message: u64,
    cancelled: CancellationToken,
}

/// The requests of one message. Dropping it removes them.
#[derive(Debug)]
pub(super) struct OpenRequests {
    in_flight: InFlight,
    ids: Vec<RequestId>,
    message: u64,
    cancelled: CancellationToken,
}

impl InFlight {
    pub(super) fn register(&self, ids: Vec<RequestId>, era: Era) -> OpenRequests {
        let cancelled = CancellationToken::new();
        let mut requests = self.0.lock();
        requests.last_message += 1;
        let message = requests.last_message;
        for id in &ids {
            let request = Request {
                era,
                message,
                cancelled: cancelled.clone(),
            };
            requests.by_id.insert(id.clone(), request);
        }
        OpenRequests {
            in_flight: self.clone(),
            ids,
            message,
            cancelled,
        }
    }

    pub(super) fn era(&self, id: &RequestId) -> Option<Era> {
        self.0.lock().by_id.get(id).map(|request| request.era)
    }

    /// Removes a request that the client has cancelled, and closes the HTTP request that carries it, unless
    /// that carries others too.
    pub(super) fn cancel(&self, id: &RequestId) {
        let mut requests = self.0.lock();
        let Some(request) = requests.by_id.remove(id) else {
            return;
        };
        let mut others = requests.by_id.values();
        if !others.any(|other| other.message == request.message) {
            request.cancelled.cancel();
        }
    }

    /// Takes note that a request has its response.
    pub(super) fn mark_answered(&self, id: &RequestId) {
        self.0.lock().by_id.remove(id);
    }
}

impl OpenRequests {
    /// Waits until the client has cancelled the last of the requests.
    pub(super) async fn cancelled(&self) {
        self.cancelled.cancelled().await;
    }

    /// Removes the requests that have no response, and returns their ids.
    pub(super) fn take_unanswered(&self) -> Vec<RequestId> {
        let mut requests = self.in_flight.0.lock();
        let mut unanswered = Vec::new();
        for id in &self.ids {
            let is_own = |request: &Request| request.message == self.message;
            if requests.by_id.get(id).is_some_and(is_own) {
                requests.by_id.remove(id);
                unanswered.push(id.clone());
            }
        }
        unanswered
    }
}

impl Drop for OpenRequests {
    fn drop(&mut self) {
        self.take_unanswered();
    }
}
