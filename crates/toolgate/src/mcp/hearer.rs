//! Who hears of a request's progress on behalf of the client that made it.

use std::collections::HashMap;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use toolgate_mcp::ear::Ear;
use toolgate_mcp::jsonrpc::{self, Answer, Object};
use toolgate_mcp::serve::{Questions, no_method, notification};

/// Hears of a request's progress on behalf of the client that made it.
#[derive(Debug)]
struct Hearer {
    messages: UnboundedSender<String>,
    /// The client's own token; without one it hears of no progress.
    token: Option<Box<RawValue>>,
    /// Where a client of the old era is asked; it hears log messages too.
    questions: Option<Arc<Questions>>,
}

/// An ear for a request, and what it will have heard.
pub fn ear(
    token: Option<Box<RawValue>>,
    questions: Option<Arc<Questions>>,
) -> (Arc<dyn Ear>, UnboundedReceiver<String>) {
    let (messages, heard) = mpsc::unbounded_channel();
    let hearer = Hearer {
        messages,
        token,
        questions,
    };
    (Arc::new(hearer), heard)
}

impl Ear for Hearer {
    fn hear(&self, method: &str, params: Option<&RawValue>) {
        let message = match (method, &self.token, params) {
            ("notifications/progress", Some(token), Some(params)) => progress(params, token),
            ("notifications/message", ..) if self.questions.is_some() => {
                notification(method, params)
            }
            _ => return,
        };
        // The client may have left.
        let _ = self.messages.send(message);
    }

    fn asked(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        let Some(questions) = &self.questions else {
            return Box::pin(std::future::ready(Err(no_method(method))));
        };
        let messages = self.messages.clone();
        let tell = move |message| messages.send(message).is_ok();
        questions.ask(method, params, Arc::new(tell))
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

/// The token under which a client of the old era wants to hear of progress.
pub fn progress_token(params: Option<&RawValue>) -> Option<Box<RawValue>> {
    #[derive(serde::Deserialize)]
    struct Params {
        #[serde(rename = "_meta")]
        meta: Meta,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Meta {
        progress_token: Box<RawValue>,
    }
    let params: Params = serde_json::from_str(params?.get()).ok()?;
    Some(params.meta.progress_token)
}

/// A modern client's answers to what was asked before, with the server's state, as it sent them.
pub fn input(params: Option<&RawValue>) -> Object {
    let fields: HashMap<String, &RawValue> = params
        .and_then(|params| serde_json::from_str(params.get()).ok())
        .unwrap_or_default();
    let given = ["inputResponses", "requestState"].into_iter();
    given.fold(Object::new(), |input, name| match fields.get(name) {
        Some(value) => input.raw(name, value.get()),
        None => input,
    })
}
