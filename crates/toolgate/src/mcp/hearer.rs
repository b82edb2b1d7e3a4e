//! Who hears of a request's progress on behalf of the client that made it.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use toolgate_mcp::ear::{Ear, Level};
use toolgate_mcp::jsonrpc::{self, Answer, Object};
use toolgate_mcp::serve::{Questions, Tell, no_method, notification};

/// Hears of a request's progress on behalf of the client that made it.
pub(super) struct Hearer {
    pub(super) tell: Tell,
    /// The client's own token; without one it hears of no progress.
    pub(super) token: Option<Box<RawValue>>,
    /// Where a client of the old era is asked.
    pub(super) questions: Option<Arc<Questions>>,
    /// From which level on it hears log messages; without one it hears none.
    pub(super) logs: Option<Level>,
}

impl Ear for Hearer {
    fn hear(&self, method: &str, params: Option<&RawValue>) {
        let message = match (method, &self.token, params) {
            ("notifications/progress", Some(token), Some(params)) => progress(params, token),
            ("notifications/message", ..) if self.wants(params) => notification(method, params),
            _ => return,
        };
        // The client may have left.
        (self.tell)(message);
    }

    fn asked(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        match &self.questions {
            Some(questions) => questions.ask(method, params, Arc::clone(&self.tell)),
            None => Box::pin(std::future::ready(Err(no_method(method)))),
        }
    }
}

impl Hearer {
    /// Whether the client wants to hear a log message; one whose level is unknown it does.
    fn wants(&self, params: Option<&RawValue>) -> bool {
        #[derive(Deserialize)]
        struct Message {
            level: Level,
        }
        let message = params.and_then(|params| serde_json::from_str(params.get()).ok());
        self.logs
            .is_some_and(|least| message.is_none_or(|Message { level }| level >= least))
    }
}

/// The same progress under the client's own token.
fn progress(params: &RawValue, token: &RawValue) -> String {
    let members: Result<indexmap::IndexMap<String, &RawValue>, _> =
        serde_json::from_str(params.get());
    let members = members.unwrap_or_default().into_iter();
    let told = members.fold(Object::new(), |told, (name, value)| match name.as_str() {
        "progressToken" => told.raw(&name, token.get()),
        _ => told.raw(&name, value.get()),
    });
    jsonrpc::notification("notifications/progress", &told)
}

impl fmt::Debug for Hearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hearer")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
