//! What we asked a client of the old era, and who waits for its answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::rpc;
use crate::jsonrpc::{self, Answer, INTERNAL_ERROR, Object};

/// The questions to one client that are open.
#[derive(Debug, Default)]
pub struct Questions {
    next: AtomicU64,
    open: Mutex<HashMap<u64, oneshot::Sender<Answer>>>,
}

/// One question; dropping it means that nobody wants the answer any more.
struct Open {
    id: u64,
    questions: Arc<Questions>,
}

impl Questions {
    /// A request to the client, and its answer to come.
    pub fn ask(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
    ) -> (String, BoxFuture<'static, Answer>) {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = oneshot::channel();
        self.with(|open| open.insert(id, sender));
        let question = Object::new()
            .text("jsonrpc", "2.0")
            .raw("id", &id.to_string())
            .text("method", method);
        let question = match params {
            Some(params) => question.raw("params", params.get()),
            None => question,
        };
        let open = Open {
            id,
            questions: Arc::clone(self),
        };
        let answer = async move {
            let _open = open;
            let gone = || rpc(INTERNAL_ERROR, "the client did not answer");
            answer.await.unwrap_or_else(|_| Err(gone()))
        };
        (question.to_string(), Box::pin(answer))
    }

    /// Hands an answer to whoever waits for it; false if nobody does.
    pub fn settle(&self, id: &RawValue, answer: Answer) -> bool {
        let Ok(id) = id.get().parse::<u64>() else {
            return false;
        };
        let sender = self.with(|open| open.remove(&id));
        sender.is_some_and(|sender| sender.send(answer).is_ok())
    }

    /// The client has left: nobody will answer.
    pub fn close(&self) {
        self.with(HashMap::clear);
    }

    fn with<T>(&self, f: impl FnOnce(&mut HashMap<u64, oneshot::Sender<Answer>>) -> T) -> T {
        f(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.questions.with(|open| open.remove(&self.id));
    }
}

/// A notification with parameters that are JSON already.
pub fn notification(method: &str, params: Option<&RawValue>) -> String {
    match params {
        None => jsonrpc::notification(method, &Object::new()),
        Some(params) => Object::new()
            .text("jsonrpc", "2.0")
            .text("method", method)
            .raw("params", params.get())
            .to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_find_their_questions() {
        let questions = Arc::new(Questions::default());
        let (first, one) = questions.ask("elicitation/create", None);
        let (_, two) = questions.ask("roots/list", Some(RawValue::NULL));
        assert!(first.contains(r#""id":1"#), "{first}");
        let id = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let yes = || Ok(RawValue::TRUE.to_owned());
        assert!(questions.settle(&id("2"), yes()));
        assert!(!questions.settle(&id("2"), yes()), "answered already");
        assert!(!questions.settle(&id("\"1\""), yes()), "no id of ours");
        assert_eq!(two.await.unwrap().get(), "true");
        drop(one);
        assert!(!questions.settle(&id("1"), yes()), "nobody waits");
        let (_, three) = questions.ask("roots/list", None);
        questions.close();
        assert!(three.await.is_err());
    }
}
