//! What a run is answered with, and the `toolgate` object that tells of it.

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::{Map, Value, json};
use toolgate_core::config::Dialect;
use toolgate_llm::event::{Failure, Finish};
use toolgate_llm::turn::{Item, Turn};
use toolgate_llm::{Body, Wire as _};

use super::turn::Trouble;
use super::{End, Run, RunState};
use crate::models::{AnswerBody, ModelAnswer, ModelError};

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    Done,
    NeedsApproval,
    OwnTool,
    MaxDepth,
    /// With the bound that was reached.
    Budget(&'static str),
    LoopGuard,
    Error,
    /// In the middle of a step, which leaves the run in a state.
    CutOff(RunState),
}

impl Stop {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::NeedsApproval => "needs_approval",
            Self::OwnTool => "own_tool",
            Self::MaxDepth => "max_agent_depth",
            Self::Budget(_) => "budget",
            Self::LoopGuard => "loop_guard",
            Self::Error | Self::CutOff(_) => "error",
        }
    }
}

impl Run {
    /// The answer of a run that was not streamed.
    pub(super) async fn answer(&self, end: End) -> Result<ModelAnswer, ModelError> {
        let note = self.note(&end);
        if let Some(trouble) = end.trouble {
            return self.trouble(trouble, &note);
        }
        let dialect = self.asked.request.dialect;
        let last = self.last.as_ref();
        let raw = last.and_then(|made| made.raw.as_ref());
        let body = match raw.filter(|_| !self.is_mixed(&end)) {
            Some(raw) => raw.clone(),
            None => self.written(&end).await,
        };
        let body = match Body::read(body) {
            Ok(body) => body,
            // A provider may write what a caller may not.
            Err(_) => Body::read(self.written(&end).await)?,
        };
        let usage = dialect.usage(&self.usage).to_string();
        let mut edit = body.edit().set("toolgate", &note.to_string());
        if self.iterations > 1 {
            edit = edit.set("usage", &usage);
        }
        let body = edit;
        let mut headers = last.map(|made| made.headers.clone()).unwrap_or_default();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        sign(&mut headers, &self.id);
        Ok(ModelAnswer {
            status: StatusCode::OK,
            headers,
            body: AnswerBody::Whole(body.finish()),
        })
    }

    /// The answer in our own words.
    async fn written(&self, end: &End) -> Bytes {
        let dialect = self.asked.request.dialect;
        let mut head = self.asked.head();
        head.id = dialect.new_id();
        let answer = dialect.answer(&head, &self.final_turn(end));
        self.remember(&head.id, &answer).await;
        Bytes::from(answer)
    }

    /// Lets a caller of the Responses API refer to an answer that its provider does not know by
    /// our id.
    pub(super) async fn remember(&self, id: &str, answer: &str) {
        let Some(last) = &self.last else { return };
        if self.asked.request.dialect == Dialect::Responses {
            self.models
                .remember(&self.asked, (id, answer), (last.spoken, &last.turn.id))
                .await;
        }
    }

    /// Whether the answer must tell what ran, because there are calls that did not.
    pub(super) fn is_mixed(&self, end: &End) -> bool {
        let ended = match end.stop {
            Stop::NeedsApproval | Stop::OwnTool | Stop::Budget(_) => true,
            Stop::Done | Stop::MaxDepth | Stop::LoopGuard | Stop::Error | Stop::CutOff(_) => false,
        };
        ended && !self.executed.is_empty()
    }

    /// The last turn as the caller gets it.
    pub(super) fn final_turn(&self, end: &End) -> Turn {
        let mut turn = self.last_turn();
        turn.usage = Some(self.usage);
        if self.is_mixed(end) {
            let said = turn.text();
            let told = self.told(end);
            let text = match said.is_empty() {
                true => told,
                false => format!("{said}\n\n{told}"),
            };
            let kept = end.is_of_last_turn();
            turn.items.retain(|item| kept || !is_beside(item));
            turn.items = mixed(turn.items, text, end);
            turn.finish = Some(Finish::Stop);
        }
        turn
    }

    /// The documents' words for what ran.
    fn told(&self, end: &End) -> String {
        let mut results = Map::new();
        for executed in &self.executed {
            let name = &executed.call.name;
            let mut key = name.clone();
            let mut count = 1;
            while results.contains_key(&key) {
                count += 1;
                key = format!("{name}#{count}");
            }
            results.insert(key, executed.text().into());
        }
        let results = Value::Object(results);
        let next = match (end.stop, end.pending.is_empty()) {
            (Stop::Budget(what), true) => {
                format!("The run has ended: its bound on {what} is reached.")
            }
            _ => "Now I shall call these tools next...".to_owned(),
        };
        format!("The Output from allowed tools calls is - {results}\n\n{next}")
    }

    /// What every answer of a run tells beside the model's words.
    pub(super) fn note(&self, end: &End) -> Value {
        let mut note = json!({
            "run_id": self.id,
            "iterations": self.iterations,
            "stop_reason": end.stop.as_str(),
            "turns": self.turns,
            "executed": self.executed.iter().map(super::Executed::value).collect::<Vec<_>>(),
            "pending": end.pending.iter().map(super::Pending::value).collect::<Vec<_>>(),
        });
        if let Stop::Budget(what) = end.stop {
            note["budget"] = json!(what);
        }
        note
    }

    /// A model call that failed. Once a tool has run, no SDK may try the whole again.
    fn trouble(&self, trouble: Trouble, note: &Value) -> Result<ModelAnswer, ModelError> {
        let dialect = self.asked.request.dialect;
        if self.executed.is_empty() {
            return match trouble {
                Trouble::Error(error) => Err(error),
                Trouble::Status {
                    status,
                    mut headers,
                    body,
                    ..
                } => {
                    sign(&mut headers, &self.id);
                    Ok(ModelAnswer {
                        status,
                        headers,
                        body: AnswerBody::Whole(body),
                    })
                }
            };
        }
        let failure = self.failure(&trouble);
        let mut error = dialect.error(&failure);
        error["toolgate"] = note.clone();
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert("x-should-retry", HeaderValue::from_static("false"));
        sign(&mut headers, &self.id);
        Ok(ModelAnswer {
            status: StatusCode::FAILED_DEPENDENCY,
            headers,
            body: AnswerBody::Whole(error.to_string().into()),
        })
    }

    /// What went wrong, with the provider's status and words inside.
    pub(super) fn failure(&self, trouble: &Trouble) -> Failure {
        let (status, failure) = match trouble {
            Trouble::Error(error) => (error.status(), error.failure()),
            Trouble::Status {
                status, failure, ..
            } => (*status, failure.clone()),
        };
        let ran = self.executed.len();
        let cut_off = matches!(
            trouble,
            Trouble::Error(ModelError::Cancelled | ModelError::Refused(_))
        );
        Failure {
            message: match ran {
                0 => failure.message,
                _ if cut_off => format!(
                    "{} after {ran} tool calls had begun; `toolgate.executed` holds them",
                    failure.message
                ),
                _ => format!(
                    "the model failed ({}: {}) after {ran} tool calls had run; `toolgate.executed` holds them",
                    status.as_u16(),
                    failure.message
                ),
            },
            ..failure
        }
    }
}

/// The items of a turn with another text, and of the calls only those that are left. Reasoning stays
/// where it was, because providers want it back with the calls that it led to.
fn mixed(items: Vec<Item>, text: String, end: &End) -> Vec<Item> {
    let mut text = Some(Item::Text(text));
    let mut mixed = Vec::new();
    for item in items {
        match item {
            item if is_beside(&item) => mixed.push(item),
            _ => mixed.extend(text.take()),
        }
    }
    mixed.extend(text);
    let pending = end.pending.iter();
    mixed.extend(pending.map(|pending| Item::Call(pending.call.clone())));
    mixed
}

/// Whether it is something that a model did besides speaking and asking for tools.
fn is_beside(item: &Item) -> bool {
    matches!(item, Item::Reasoning { .. } | Item::Raw(_))
}

/// Says by which run it is answered.
pub(super) fn sign(headers: &mut HeaderMap, run: &str) {
    if let Ok(id) = HeaderValue::from_str(run) {
        headers.insert("x-toolgate-run-id", id);
    }
}
