//! Requests of modern clients that wait for the client's answer to a question.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use toolgate_mcp::jsonrpc::{INVALID_PARAMS, RpcError};

use super::{AskingNotifier, HeldState, Interaction, RequestBinding, not_held};

/// Maximum number of held requests, of all callers and of each.
const MAX_HELD: usize = 64;
const MAX_HELD_PER_CALLER: usize = 8;
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The requests that wait for their clients.
#[derive(Debug)]
pub(in crate::mcp_server) struct HeldRequests {
    table: Arc<Mutex<HashMap<String, HeldEntry>>>,
    /// Time for the client's answer.
    answer_timeout: Duration,
    tasks: TaskTracker,
    /// Ends all of them.
    stop: CancellationToken,
}

#[derive(Debug)]
struct HeldEntry {
    caller: Option<String>,
    /// Takes the request out of its task.
    taker: oneshot::Sender<oneshot::Sender<Interaction>>,
}

/// A request that is about to be held.
pub(super) struct NewHeld<'a> {
    requests: &'a HeldRequests,
    id: String,
    interaction: Interaction,
    taken: oneshot::Receiver<oneshot::Sender<Interaction>>,
}

impl Default for HeldRequests {
    fn default() -> Self {
        Self {
            table: Arc::default(),
            answer_timeout: ANSWER_TIMEOUT,
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }
}

impl HeldRequests {
    /// Adds a request unless there are too many.
    pub(super) fn hold(&self, interaction: Interaction) -> Result<NewHeld<'_>, Box<Interaction>> {
        let caller = interaction.binding.caller.clone();
        let mut table = self.table.lock();
        let of_caller = table.values().filter(|entry| entry.caller == caller);
        if table.len() >= MAX_HELD
            || of_caller.count() >= MAX_HELD_PER_CALLER
            || self.stop.is_cancelled()
        {
            return Err(Box::new(interaction));
        }
        let (taker, taken) = oneshot::channel();
        let id = uuid::Uuid::new_v4().to_string();
        table.insert(id.clone(), HeldEntry { caller, taker });
        Ok(NewHeld {
            requests: self,
            id,
            interaction,
            taken,
        })
    }

    /// Takes out the request that a state names, if it is repeated by the same caller. It can be taken
    /// out once.
    pub(super) async fn resume(
        &self,
        state: &HeldState,
        binding: &RequestBinding,
        notifier: Arc<AskingNotifier>,
    ) -> Result<Interaction, RpcError> {
        if state.binding != *binding {
            let message = "`requestState` belongs to another request";
            return Err(RpcError::new(INVALID_PARAMS, message));
        }
        let entry = self.table.lock().remove(&state.held).ok_or_else(not_held)?;
        let (sender, receiver) = oneshot::channel();
        entry.taker.send(sender).map_err(|_| not_held())?;
        let interaction = receiver.await.map_err(|_| not_held())?;
        interaction.asking.notifier.replace(&notifier);
        Ok(interaction)
    }

    /// Cancels all held requests.
    pub(in crate::mcp_server) fn stop(&self) {
        self.stop.cancel();
    }

    /// Waits until all held requests have ended.
    pub(in crate::mcp_server) async fn finish(&self) {
        self.stop();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl NewHeld<'_> {
    pub(super) fn id(&self) -> &str {
        &self.id
    }

    /// Holds the request until it is taken out or the client's time is over.
    pub(super) fn keep(self) {
        let Self {
            requests,
            id,
            interaction,
            taken,
        } = self;
        let timeout = requests.answer_timeout;
        let (table, stop) = (Arc::clone(&requests.table), requests.stop.clone());
        requests.tasks.spawn(async move {
            let waiting = wait(interaction, taken, timeout);
            let expired = tokio::select! {
                expired = waiting => expired,
                () = stop.cancelled() => None,
            };
            table.lock().remove(&id);
            if let Some(interaction) = expired {
                interaction.expire().await;
            }
        });
    }

    /// Gives the request back.
    pub(super) fn release(self) -> Box<Interaction> {
        self.requests.table.lock().remove(&self.id);
        Box::new(self.interaction)
    }
}

/// Drives a request while its client decides. Returns it if the client's time is over.
async fn wait(
    mut interaction: Interaction,
    mut taken: oneshot::Receiver<oneshot::Sender<Interaction>>,
    timeout: Duration,
) -> Option<Interaction> {
    let timeout = tokio::time::sleep(timeout);
    tokio::pin!(timeout);
    let answered = tokio::select! {
        biased;
        taker = &mut taken => {
            // If the client has gone meanwhile, the request is cancelled here.
            return taker.ok().and_then(|taker| taker.send(interaction).err()).and(None);
        }
        answer = &mut interaction.answer => Box::pin(std::future::ready(answer)),
        () = &mut timeout => return Some(interaction),
    };
    // The call has ended without the client's answer; the client learns of it when it repeats.
    interaction.answer = answered;
    tokio::select! {
        biased;
        taker = taken => taker.ok().and_then(|taker| taker.send(interaction).err()).and(None),
        () = timeout => None,
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use toolgate_mcp::handshake::Era;

    use super::super::{Asking, Question};
    use super::*;
    use crate::mcp_server::client_capabilities::ClientCapabilities;
    use crate::mcp_server::notifier::RequestNotifier;

    #[tokio::test]
    async fn question_without_an_answer_is_cancelled_with_its_request() {
        let notifier = RequestNotifier {
            sender: Arc::new(|_| true),
            progress_token: None,
            client_requests: None,
            min_log_level: None,
        };
        let capabilities = ClientCapabilities::parse(r#"{"elicitation":{}}"#, Era::Modern);
        let asking = Asking::new(&capabilities, notifier).unwrap();
        let (answer, answered) = oneshot::channel();
        let question = Question {
            method: "elicitation/create".to_owned(),
            params: None,
            answer,
        };
        let (cancelled, is_cancelled) = oneshot::channel::<()>();
        let interaction = Interaction {
            answer: Box::pin(async move {
                let _cancelled = cancelled;
                pending().await
            }),
            asking,
            binding: RequestBinding {
                caller: None,
                digest: String::new(),
            },
            asked: vec![("key".to_owned(), question)],
            rounds: 1,
        };
        let held = HeldRequests {
            answer_timeout: Duration::from_millis(10),
            ..HeldRequests::default()
        };
        held.hold(interaction).unwrap().keep();
        let answered = answered.await.unwrap().unwrap();
        assert_eq!(answered.get(), r#"{"action":"cancel"}"#);
        assert!(is_cancelled.await.is_err(), "the call is dropped");
        assert!(held.table.lock().is_empty());
        held.finish().await;
    }
}
