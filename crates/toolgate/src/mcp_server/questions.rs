//! Questions of legacy servers to modern clients.
//!
//! A legacy server sends its client a request while the call waits. A modern client receives the
//! request as a result and repeats its own request with the answer. In between, the client's request
//! is held here: the call stays open, with one record over all rounds.

mod held;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use toolgate_core::hash::sha256_hex;
use toolgate_mcp::client_handler::{ClientHandler, SessionClient};
use toolgate_mcp::jsonrpc::{INTERNAL_ERROR, INVALID_PARAMS, Object, RpcError, RpcResult};

pub(super) use held::HeldRequests;

use super::client_capabilities::ClientCapabilities;
use super::method::Method;
use super::notifier::RequestNotifier;
use super::request::{ClientInput, RequestHandler};
use super::to_raw;
use crate::call::ClientSession;
use crate::caller::Caller;
use crate::metrics::Bound;

/// Maximum number of times that the client may be asked during one request.
const MAX_ROUNDS: u32 = 16;
/// Maximum number of questions that wait for the client at a time.
const MAX_QUESTIONS: usize = 16;
/// Time for the server to end its call after a question was cancelled.
const CANCEL_TIMEOUT: Duration = Duration::from_secs(1);
/// Prefix of the keys of questions in `inputRequests`.
const KEY_PREFIX: &str = "toolgate_question_";

/// A request of a server that the client must answer.
#[derive(Debug)]
struct Question {
    method: String,
    params: Option<Box<RawValue>>,
    answer: oneshot::Sender<RpcResult>,
}

/// Passes on what servers send during one request of a modern client that can be asked.
pub(super) struct AskingNotifier {
    /// The client's current request, of those that carry the answers.
    current: Mutex<Arc<RequestNotifier>>,
    questions: mpsc::Sender<Question>,
    /// The methods that the client can answer.
    methods: Vec<&'static str>,
    open: Arc<AtomicUsize>,
}

/// Counts a question that waits for its answer.
struct OpenQuestion(Arc<AtomicUsize>);

/// A client's means to be asked during its request.
#[derive(Debug)]
pub(super) struct Asking {
    pub(super) notifier: Arc<AskingNotifier>,
    questions: mpsc::Receiver<Question>,
}

/// A request in progress whose client can be asked.
struct Interaction {
    answer: BoxFuture<'static, RpcResult>,
    asking: Asking,
    binding: RequestBinding,
    /// Questions that the client was asked, by key.
    asked: Vec<(String, Question)>,
    rounds: u32,
}

/// What must be the same in a client's request and its repetitions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RequestBinding {
    caller: Option<String>,
    digest: String,
}

/// The held request that an answer belongs to, sealed into the state that the client sends back.
#[derive(Debug, Serialize, Deserialize)]
struct HeldState {
    held: String,
    #[serde(flatten)]
    binding: RequestBinding,
}

/// Handles requests of servers that belong to none of the client's requests. A modern client cannot
/// receive them.
#[derive(Debug)]
struct UnaskableClient;

impl Asking {
    /// Returns how the client of a request can be asked; `None` if it cannot.
    pub(super) fn new(
        capabilities: &ClientCapabilities,
        notifier: RequestNotifier,
    ) -> Result<Self, RequestNotifier> {
        let methods = capabilities.askable_methods.clone();
        if methods.is_empty() {
            return Err(notifier);
        }
        let (sender, questions) = mpsc::channel(MAX_QUESTIONS);
        let notifier = AskingNotifier {
            current: Mutex::new(Arc::new(notifier)),
            questions: sender,
            methods,
            open: Arc::default(),
        };
        Ok(Self {
            notifier: Arc::new(notifier),
            questions,
        })
    }
}

/// Returns the session that legacy servers have with a modern client: one for each caller and set of
/// capabilities. A client without capabilities needs none.
pub(super) fn modern_session(
    caller: &Caller,
    capabilities: &ClientCapabilities,
) -> Option<ClientSession> {
    let profile = capabilities.profile.as_ref()?;
    let key = caller.key();
    let id = format!(
        "modern:{}:{}",
        key.map_or("", |key| &**key),
        profile.as_str()
    );
    Some(ClientSession {
        id,
        client: SessionClient {
            owner: key.cloned(),
            capabilities: Arc::clone(&capabilities.declared),
            handler: Arc::new(UnaskableClient),
            log_level: None,
            can_answer_requests: capabilities.can_answer_requests(),
            is_modern: true,
            disconnected: CancellationToken::new(),
        },
    })
}

impl RequestHandler {
    /// Answers the request. If a legacy server asks the client meanwhile, the answer is the question,
    /// and the request is held until the client repeats it.
    pub(super) async fn answer_or_ask(mut self, method: Method) -> RpcResult {
        let Some(asking) = self.asking.take() else {
            return self.answer(method).await;
        };
        let Some(digest) = method.digest() else {
            return self.answer(method).await;
        };
        let binding = RequestBinding {
            caller: self.caller.key().map(|key| key.to_string()),
            digest: sha256_hex(format!("{:?}\n{digest}", self.endpoint)),
        };
        let server = self.server.clone();
        if let Some(state) = self.input.as_ref().and_then(|input| self.held_state(input)) {
            let responses = self.input.and_then(|input| input.responses);
            let resumed = server
                .held()
                .resume(&state, &binding, asking.notifier)
                .await;
            let mut interaction = resumed?;
            interaction.deliver(responses.as_deref());
            return Box::pin(interaction.run(&server)).await;
        }
        let interaction = Interaction {
            answer: Box::pin(async move { self.answer(method).await }),
            asking,
            binding,
            asked: Vec::new(),
            rounds: 0,
        };
        Box::pin(interaction.run(&server)).await
    }

    /// Returns the held request that a client's input belongs to, if any.
    fn held_state(&self, input: &ClientInput) -> Option<HeldState> {
        let text = input.unseal(self.gateway().store())?;
        serde_json::from_str(&text).ok()
    }
}

impl Interaction {
    /// Waits for the answer, or for a question to the client.
    async fn run(mut self, server: &super::Server) -> RpcResult {
        loop {
            if self.asked.is_empty() {
                let question = tokio::select! {
                    biased;
                    answer = &mut self.answer => return answer,
                    Some(question) = self.asking.questions.recv() => question,
                };
                self.add(question);
            }
            while let Ok(question) = self.asking.questions.try_recv() {
                self.add(question);
            }
            // A server may withdraw its question.
            self.asked
                .retain(|(_, question)| !question.answer.is_closed());
            if self.asked.is_empty() {
                continue;
            }
            self.rounds += 1;
            if self.rounds > MAX_ROUNDS {
                self.refuse("the client was asked too often during one call");
                continue;
            }
            let requests = self.input_requests();
            self = match server.hold(self) {
                Ok(state) => {
                    let result = Object::new()
                        .text("resultType", "input_required")
                        .raw("inputRequests", &requests.to_string())
                        .text("requestState", &state);
                    return Ok(to_raw(&result));
                }
                Err(mut interaction) => {
                    interaction.refuse("too many questions wait for an answer");
                    *interaction
                }
            };
        }
    }

    fn add(&mut self, question: Question) {
        let key = format!("{KEY_PREFIX}{}", uuid::Uuid::new_v4().simple());
        self.asked.push((key, question));
    }

    fn input_requests(&self) -> Object {
        let asked = self.asked.iter();
        asked.fold(Object::new(), |requests, (key, question)| {
            let request = Object::new().text("method", &question.method);
            let request = match &question.params {
                Some(params) => request.raw("params", params.get()),
                None => request,
            };
            requests.raw(key, &request.to_string())
        })
    }

    /// Passes the client's responses on. A question without one is asked again.
    fn deliver(&mut self, responses: Option<&RawValue>) {
        let responses = responses.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let mut responses: HashMap<String, Box<RawValue>> = responses.unwrap_or_default();
        for (key, question) in std::mem::take(&mut self.asked) {
            match responses.remove(&key) {
                // Fails if the server has withdrawn its question.
                Some(response) => drop(question.answer.send(Ok(response))),
                None => self.asked.push((key, question)),
            }
        }
    }

    /// Tells the server that its questions will not be answered.
    fn refuse(&mut self, reason: &str) {
        for (_, question) in self.asked.drain(..) {
            let _ = question
                .answer
                .send(Err(RpcError::new(INTERNAL_ERROR, reason)));
        }
    }

    /// Ends a request whose client did not answer in time.
    async fn expire(mut self) {
        for (_, question) in self.asked.drain(..) {
            let answer = match question.method.as_str() {
                "elicitation/create" => Ok(to_raw(&Object::new().text("action", "cancel"))),
                _ => Err(RpcError::new(
                    INTERNAL_ERROR,
                    "the client did not answer in time",
                )),
            };
            let _ = question.answer.send(answer);
        }
        // Dropping the answer cancels the call, if the server has not ended it.
        let _ = tokio::time::timeout(CANCEL_TIMEOUT, self.answer).await;
    }
}

impl super::Server {
    /// Holds a request until the client repeats it. Returns the state that the client must send then.
    fn hold(&self, interaction: Interaction) -> Result<String, Box<Interaction>> {
        let binding = interaction.binding.clone();
        let held = self.held().hold(interaction).inspect_err(|interaction| {
            let key = interaction.binding.caller.as_deref();
            self.gateway()
                .report_bound(Bound::Questions, key.unwrap_or(""));
        })?;
        let id = held.id().to_owned();
        let state = HeldState { held: id, binding };
        let sealed = serde_json::to_string(&state)
            .ok()
            .and_then(|state| self.gateway().store().seal(&state).ok());
        match sealed {
            Some(sealed) => {
                held.keep();
                Ok(format!("{}{sealed}", ClientInput::STATE_PREFIX))
            }
            None => {
                tracing::error!("cannot seal the state of a question to a client");
                Err(held.release())
            }
        }
    }
}

impl AskingNotifier {
    /// Continues with the notifier of the request that repeats the first one.
    fn replace(&self, next: &Self) {
        *self.current.lock() = Arc::clone(&next.current.lock());
    }
}

impl ClientHandler for AskingNotifier {
    fn on_notification(&self, method: &str, params: Option<&RawValue>) {
        let current = Arc::clone(&self.current.lock());
        current.on_notification(method, params);
    }

    fn on_request(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        if !self.methods.contains(&method) {
            return Box::pin(std::future::ready(Err(RpcError::method_not_found(method))));
        }
        let (answer, answered) = oneshot::channel();
        let question = Question {
            method: method.to_owned(),
            params: params.map(ToOwned::to_owned),
            answer,
        };
        let no_answer = || RpcError::new(INTERNAL_ERROR, "the client did not answer");
        if self.questions.try_send(question).is_err() {
            return Box::pin(std::future::ready(Err(no_answer())));
        }
        self.open.fetch_add(1, Ordering::Relaxed);
        let open = OpenQuestion(Arc::clone(&self.open));
        Box::pin(async move {
            let _open = open;
            answered.await.unwrap_or_else(|_| Err(no_answer()))
        })
    }

    fn is_asking(&self) -> bool {
        self.open.load(Ordering::Relaxed) > 0
    }
}

impl fmt::Debug for Interaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Interaction")
            .field("binding", &self.binding)
            .field("asked", &self.asked)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for AskingNotifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AskingNotifier")
            .field("methods", &self.methods)
            .finish_non_exhaustive()
    }
}

impl Drop for OpenQuestion {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ClientHandler for UnaskableClient {
    fn on_notification(&self, _: &str, _: Option<&RawValue>) {}

    fn on_request(&self, _: &str, _: Option<&RawValue>) -> BoxFuture<'static, RpcResult> {
        let message = "the client can be asked only while a call of it is in progress";
        Box::pin(std::future::ready(Err(RpcError::new(
            INTERNAL_ERROR,
            message,
        ))))
    }
}

/// Returns the error for a state whose request is not held.
fn not_held() -> RpcError {
    let message = "the question was answered already, or not in time; repeat the request without `requestState`";
    RpcError::new(INVALID_PARAMS, message)
}

#[cfg(test)]
mod tests {
    use toolgate_mcp::handshake::Era;

    use super::*;

    #[test]
    fn capabilities_that_mean_the_same_share_a_session() {
        let id = |capabilities: &str| {
            let caller = Caller::http().with_key("alice");
            let capabilities = ClientCapabilities::parse(capabilities, Era::Modern);
            modern_session(&caller, &capabilities).unwrap().id
        };
        let first = id(r#"{"elicitation":{"form":{},"url":{}},"roots":{}}"#);
        let second = id("{ \"roots\" : {},\n\"elicitation\": {\"url\": {}, \"\\u0066orm\": {}} }");
        assert_eq!(first, second);
        assert_ne!(first, id(r#"{"elicitation":{"form":{}},"roots":{}}"#));
    }
}
