//! A client of the old era, which stays between its requests.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::future::BoxFuture;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use toolgate_mcp::ear::{Client, Ear, Level};
use toolgate_mcp::jsonrpc::{Answer, Object};
use toolgate_mcp::lane::Ask;
use toolgate_mcp::serve::{Hello, Place, Questions, Tell, UnderWay, empty_object, notification};

use super::watcher::{UPDATED, Watcher};
use super::{Asker, Door, read};
use crate::call::ClientSession;
use crate::gateway::Gateway;

const ROOTS_CHANGED: &str = "notifications/roots/list_changed";
/// What belongs to no request is told up to this many bytes.
const LONGEST: usize = 1024 * 1024;

/// What is kept of it.
#[derive(Debug)]
pub struct OldClient {
    id: String,
    hello: Hello,
    voice: Arc<Voice>,
    /// The resources that it watches.
    pub(super) watcher: Watcher,
    under_way: Arc<UnderWay>,
    /// From which level on it wants to hear log messages.
    log_level: Mutex<Option<Level>>,
    ended: CancellationToken,
}

/// Hears on its behalf what servers say outside of any request.
struct Voice {
    tell: Tell,
    questions: Arc<Questions>,
}

impl OldClient {
    /// One that is told through `tell` what belongs to none of its requests.
    pub fn new(id: String, hello: Hello, tell: Tell) -> Self {
        let to_client = Arc::clone(&tell);
        Self {
            id,
            hello,
            voice: Arc::new(Voice {
                tell,
                questions: Arc::default(),
            }),
            watcher: Watcher::new(move |params| {
                // Whoever does not listen does not hear.
                to_client(notification(UPDATED, Some(params)));
            }),
            under_way: Arc::default(),
            log_level: Mutex::default(),
            ended: CancellationToken::new(),
        }
    }

    pub fn id(&self) -> &str {
        &self.id
    }

    /// The revision that it speaks.
    pub fn version(&self) -> &'static str {
        self.hello.version
    }

    /// Takes a request's place among those that it can cancel.
    pub fn enter(&self, request: &RawValue) -> Place {
        self.under_way.enter(request)
    }

    /// Takes a notification.
    pub fn hear(&self, gateway: &Gateway, method: &str, params: Option<&RawValue>) {
        self.under_way.hear(method, params);
        if method == ROOTS_CHANGED {
            gateway.notify_own(&self.id, ROOTS_CHANGED);
        }
    }

    /// Takes the answer to something that it was asked.
    pub fn settle(&self, id: &RawValue, answer: Answer) {
        self.voice.questions.settle(id, answer);
    }

    /// Nobody waits for its answers any more.
    pub fn close_questions(&self) {
        self.voice.questions.close();
    }

    /// It has left: nobody asks it or tells it anything any more.
    pub fn end(&self, gateway: &Gateway) {
        // First, so that no connection is opened after those that there are have ended.
        self.ended.cancel();
        self.close_questions();
        self.watcher.close();
        gateway.end_session(&self.id);
    }

    /// Is cancelled when it has left.
    pub fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Tells it what belongs to none of its requests.
    pub(super) fn tell(&self) -> Tell {
        Arc::clone(&self.voice.tell)
    }

    pub(super) fn questions(&self) -> Arc<Questions> {
        Arc::clone(&self.voice.questions)
    }

    pub(super) fn log_level(&self) -> Option<Level> {
        *self
            .log_level
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// As servers see it, if it needs connections of its own: it can be asked, or wants to hear
    /// what is meant for it alone.
    pub(super) fn session(&self) -> Option<ClientSession> {
        let log_level = self.log_level();
        if !self.hello.can_be_asked() && log_level.is_none() {
            return None;
        }
        let ear: Arc<dyn Ear> = Arc::<Voice>::clone(&self.voice);
        Some(ClientSession {
            id: self.id.clone(),
            client: Client {
                capabilities: self.hello.capabilities.get().into(),
                ear,
                log_level,
                ended: self.ended.clone(),
            },
        })
    }
}

impl Door {
    /// From now on the client hears log messages of this level and above.
    pub(super) fn set_log_level(&self, asker: &Asker, params: Option<&RawValue>) -> Answer {
        #[derive(Deserialize)]
        struct Params {
            level: Level,
        }
        let Params { level } = read(params)?;
        if let Some(client) = &asker.client {
            let set = client.log_level.lock();
            *set.unwrap_or_else(PoisonError::into_inner) = Some(level);
            let ask = Ask {
                method: "logging/setLevel",
                params: Object::new().text("level", level.as_str()),
                ..Ask::default()
            };
            self.gateway.tell_own(&client.id, &ask);
        }
        Ok(empty_object())
    }
}

impl Ear for Voice {
    fn hear(&self, method: &str, params: Option<&RawValue>) {
        match method {
            // Whoever watches a resource is told by its watcher, and progress has a token that is
            // not the client's.
            UPDATED | "notifications/progress" => return,
            _ => {}
        }
        let bytes = params.map_or(0, |params| params.get().len());
        if bytes > LONGEST {
            tracing::debug!(method, bytes, "too large to be passed on");
            return;
        }
        // Whoever does not listen does not hear.
        (self.tell)(notification(method, params));
    }

    fn asked(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        self.questions.ask(method, params, Arc::clone(&self.tell))
    }
}

impl fmt::Debug for Voice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Voice").field(&self.questions).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_large_or_belongs_to_a_request_is_not_told() {
        let told: Arc<Mutex<Vec<String>>> = Arc::default();
        let to = Arc::clone(&told);
        let voice = Voice {
            tell: Arc::new(move |message| {
                to.lock().unwrap().push(message);
                true
            }),
            questions: Arc::default(),
        };
        let long = RawValue::from_string(format!("\"{}\"", "x".repeat(LONGEST))).unwrap();
        voice.hear("notifications/message", Some(&long));
        voice.hear("notifications/progress", Some(RawValue::NULL));
        voice.hear(UPDATED, Some(RawValue::NULL));
        voice.hear("notifications/message", Some(RawValue::NULL));
        let told = told.lock().unwrap();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].contains("notifications/message"));
    }
}
