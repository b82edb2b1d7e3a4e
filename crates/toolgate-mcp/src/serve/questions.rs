//! What we asked a client of the old era, and who waits for its answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::rpc;
use crate::jsonrpc::{self, Answer, INTERNAL_ERROR, Object};

/// Tells a client a message; false if it does not hear it.
pub type Tell = Arc<dyn Fn(String) -> bool + Send + Sync>;

/// The questions to one client that are open.
#[derive(Debug, Default)]
pub struct Questions {
    next: AtomicU64,
    open: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    answers: HashMap<u64, oneshot::Sender<Answer>>,
    /// The client has left.
    closed: bool,
}

/// One question; dropping it means that nobody wants the answer any more.
struct Open {
    id: u64,
    questions: Arc<Questions>,
    tell: Tell,
}

impl Questions {
    /// Asks the client, and gives its answer to come. A question that nobody wants answered any
    /// more is taken back.
    pub fn ask(
        self: &Arc<Self>,
        method: &str,
        params: Option<&RawValue>,
        tell: Tell,
    ) -> BoxFuture<'static, Answer> {
        let id = self.next.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, answer) = oneshot::channel();
        let question = Object::new()
            .text("jsonrpc", "2.0")
            .raw("id", &id.to_string())
            .text("method", method);
        let question = match params {
            Some(params) => question.raw("params", params.get()),
            None => question,
        };
        let waits = self.with(|open| {
            let waits = !open.closed;
            if waits {
                open.answers.insert(id, sender);
            }
            waits
        });
        if !waits || !tell(question.to_string()) {
            self.with(|open| open.answers.remove(&id));
            let nobody = rpc(INTERNAL_ERROR, "the client cannot be asked now");
            return Box::pin(std::future::ready(Err(nobody)));
        }
        let open = Open {
            id,
            questions: Arc::clone(self),
            tell,
        };
        Box::pin(async move {
            let _open = open;
            let gone = || rpc(INTERNAL_ERROR, "the client did not answer");
            answer.await.unwrap_or_else(|_| Err(gone()))
        })
    }

    /// Hands an answer to whoever waits for it; false if nobody does.
    pub fn settle(&self, id: &RawValue, answer: Answer) -> bool {
        let Ok(id) = id.get().parse::<u64>() else {
            return false;
        };
        let sender = self.with(|open| open.answers.remove(&id));
        sender.is_some_and(|sender| sender.send(answer).is_ok())
    }

    /// The client has left: nobody will answer, nor is anybody asked any more.
    pub fn close(&self) {
        self.with(|open| {
            open.closed = true;
            open.answers.clear();
        });
    }

    fn with<T>(&self, f: impl FnOnce(&mut Waiting) -> T) -> T {
        f(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let unanswered = self.questions.with(|open| open.answers.remove(&self.id));
        if unanswered.is_some() {
            let params = Object::new().raw("requestId", &self.id.to_string());
            (self.tell)(jsonrpc::notification("notifications/cancelled", &params));
        }
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
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let tell: Tell = Arc::new({
            let told = Arc::clone(&told);
            move |message| {
                told.lock().unwrap().push(message);
                true
            }
        });
        let ask = |method| questions.ask(method, None, Arc::clone(&tell));
        let last = || told.lock().unwrap().last().cloned().unwrap();
        let one = ask("elicitation/create");
        assert!(last().contains(r#""id":1"#), "{}", last());
        let two = ask("roots/list");
        let id = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let yes = || Ok(RawValue::TRUE.to_owned());
        assert!(questions.settle(&id("2"), yes()));
        assert!(!questions.settle(&id("2"), yes()), "answered already");
        assert!(!questions.settle(&id("\"1\""), yes()), "no id of ours");
        assert_eq!(two.await.unwrap().get(), "true");
        assert!(last().contains("roots/list"), "an answer ends it");
        drop(one);
        assert!(last().contains(r#""params":{"requestId":1}"#), "{}", last());
        assert!(!questions.settle(&id("1"), yes()), "nobody waits");
        let deaf = questions.ask("roots/list", None, Arc::new(|_| false));
        assert!(deaf.await.is_err(), "who does not hear does not answer");
        let three = ask("roots/list");
        questions.close();
        assert!(three.await.is_err());
        assert!(ask("roots/list").await.is_err(), "the client has left");
    }
}
