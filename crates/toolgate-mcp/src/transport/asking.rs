//! What a server asks, until it is answered or no longer wants to be.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::ear::Ear;
use crate::jsonrpc;

/// The open questions of the server on one connection; clones share them.
#[derive(Clone, Debug)]
pub(super) struct Asking {
    tasks: TaskTracker,
    /// By the text of the server's ids.
    open: Arc<Mutex<HashMap<String, CancellationToken>>>,
}

impl Asking {
    pub(super) fn new(tasks: &TaskTracker) -> Self {
        Self {
            tasks: tasks.clone(),
            open: Arc::default(),
        }
    }

    /// Answers a request of the server: by whoever can be asked, else by nobody. A person may take
    /// for ever, so what was asked is forgotten at the end of what it was asked for.
    pub(super) fn answer(
        &self,
        ear: &Arc<dyn Ear>,
        (id, method, params): (&RawValue, &str, Option<&RawValue>),
        end: &CancellationToken,
        reply: impl FnOnce(String) + Send + 'static,
    ) {
        if method == "ping" || !ear.can_be_asked() {
            return reply(jsonrpc::answer_to_server(id, method));
        }
        let (id, asked, end) = (id.to_owned(), ear.asked(method, params), end.child_token());
        self.with(|open| open.insert(id.get().to_owned(), end.clone()));
        let asking = self.clone();
        self.tasks.spawn(async move {
            let answer = tokio::select! {
                answer = asked => Some(answer),
                () = end.cancelled() => None,
            };
            asking.with(|open| open.remove(id.get()));
            if let Some(answer) = answer {
                reply(jsonrpc::answer(&id, &answer));
            }
        });
    }

    /// Takes `notifications/cancelled` of the server: it wants no answer any more.
    pub(super) fn withdraw(&self, params: Option<&RawValue>) {
        let id = jsonrpc::cancelled(params);
        let end = id.and_then(|id| self.with(|open| open.get(id.get()).cloned()));
        if let Some(end) = end {
            end.cancel();
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut HashMap<String, CancellationToken>) -> T) -> T {
        f(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::future::BoxFuture;

    use super::*;
    use crate::jsonrpc::Answer;

    /// Somebody who never answers.
    #[derive(Debug)]
    struct Person;

    impl Ear for Person {
        fn hear(&self, _: &str, _: Option<&RawValue>) {}

        fn asked(&self, _: &str, _: Option<&RawValue>) -> BoxFuture<'static, Answer> {
            Box::pin(std::future::pending())
        }
    }

    #[tokio::test]
    async fn nobody_waits_for_an_answer_that_is_no_longer_wanted() {
        let raw = |text: &str| RawValue::from_string(text.to_owned()).unwrap();
        let (tasks, end) = (TaskTracker::new(), CancellationToken::new());
        let asking = Asking::new(&tasks);
        let person: Arc<dyn Ear> = Arc::new(Person);
        for id in ["1", "\"1\""] {
            let asked = (&*raw(id), "elicitation/create", None);
            asking.answer(&person, asked, &end, |reply| panic!("{reply}"));
        }
        let one = raw(r#"{"requestId": 1}"#);
        asking.withdraw(Some(&one));
        while tasks.len() > 1 {
            tokio::task::yield_now().await;
        }
        end.cancel();
        tasks.close();
        tasks.wait().await;
        assert!(asking.with(|open| open.is_empty()));
    }
}
