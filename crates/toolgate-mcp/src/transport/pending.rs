//! Requests that wait for their answers, by id.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::RequestError;
use crate::ear::Ear;
use crate::jsonrpc::Answer;

type Outcome = Result<Answer, RequestError>;

/// The requests in flight on one connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Pending(Arc<Mutex<Slots>>);

#[derive(Debug, Default)]
struct Slots {
    next: u64,
    waiting: HashMap<u64, Waiter>,
    closed: Option<String>,
}

#[derive(Debug)]
struct Waiter {
    sender: oneshot::Sender<Outcome>,
    ear: Option<Arc<dyn Ear>>,
    /// Ends what the server asks on its behalf.
    end: Option<(CancellationToken, DropGuard)>,
}

/// One request's place; leaving it early forgets the request.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) id: u64,
    pending: Pending,
    answer: oneshot::Receiver<Outcome>,
}

impl Pending {
    /// Takes a place; an error says why the connection is closed.
    pub(super) fn enter(&self, ear: Option<Arc<dyn Ear>>) -> Result<Place, RequestError> {
        let (sender, answer) = oneshot::channel();
        let id = self.with(|slots| match &slots.closed {
            Some(reason) => Err(RequestError::NotSent(reason.clone())),
            None => {
                slots.next += 1;
                let end = None;
                slots
                    .waiting
                    .insert(slots.next, Waiter { sender, ear, end });
                Ok(slots.next)
            }
        })?;
        Ok(Place {
            id,
            pending: self.clone(),
            answer,
        })
    }

    /// Hands an outcome to the request that waits for it; false if none does.
    pub(super) fn settle(&self, id: u64, outcome: Outcome) -> bool {
        let waiting = self.with(|slots| slots.waiting.remove(&id));
        waiting.is_some_and(|waiter| waiter.sender.send(outcome).is_ok())
    }

    /// Who hears of the progress of a request.
    pub(super) fn ear(&self, id: u64) -> Option<Arc<dyn Ear>> {
        self.with(|slots| slots.waiting.get(&id)?.ear.clone())
    }

    /// Who waits, if only one does who hears anything; and what ends with its request, or with
    /// the connection.
    pub(super) fn only(
        &self,
        end: &CancellationToken,
    ) -> Option<(Arc<dyn Ear>, CancellationToken)> {
        self.with(|slots| {
            let mut waiters = slots
                .waiting
                .values_mut()
                .filter(|waiter| waiter.ear.is_some());
            let only = waiters.next().filter(|_| waiters.next().is_none())?;
            let (end, _) = only.end.get_or_insert_with(|| {
                let end = end.child_token();
                (end.clone(), end.drop_guard())
            });
            Some((only.ear.clone()?, end.clone()))
        })
    }

    /// Fails everything in flight, and whatever comes later.
    pub(super) fn close(&self, reason: &str) {
        let waiting = self.with(|slots| {
            slots.closed.get_or_insert_with(|| reason.to_owned());
            std::mem::take(&mut slots.waiting)
        });
        for waiter in waiting.into_values() {
            let _ = waiter
                .sender
                .send(Err(RequestError::Lost(reason.to_owned())));
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut Slots) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Place {
    pub(super) async fn answer(&mut self) -> Outcome {
        (&mut self.answer)
            .await
            .unwrap_or_else(|_| Err(RequestError::Lost("the connection was closed".to_owned())))
    }

    /// Gives the place up; true if no answer had come yet.
    pub(super) fn leave(&self) -> bool {
        self.pending
            .with(|slots| slots.waiting.remove(&self.id))
            .is_some()
    }
}
