//! One turn of a run: a request to the model, and what it made of it.

use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde_json::Value;
use toolgate_core::config::Dialect;
use toolgate_core::sse;
use toolgate_llm::event::{Event, Failure, Finish};
use toolgate_llm::history::{self, Gathering};
use toolgate_llm::turn::Turn;
use toolgate_llm::{Usage, Wire as _};

use super::Run;
use super::sink::Sink;
use crate::models::{Asked, LONGEST_EVENT, ModelError, Sent, answer_failure, is_stream, whole};

/// What a model made in one turn.
pub(super) struct Made {
    pub(super) turn: Turn,
    /// The same as items of the conversation.
    pub(super) items: Vec<Value>,
    /// The answer as it came, where it came whole in the caller's dialect.
    pub(super) raw: Option<Bytes>,
    pub(super) headers: HeaderMap,
    pub(super) micro_usd: u64,
    /// What the provider speaks.
    pub(super) spoken: Dialect,
}

impl Made {
    /// Whether the provider wants to be asked again to go on with what it runs itself.
    pub(super) fn is_paused(&self) -> bool {
        matches!(&self.turn.finish, Some(Finish::Other(word)) if word == "pause_turn")
    }
}

/// Why a turn failed.
pub(super) enum Trouble {
    /// The provider answered with an error.
    Status {
        status: StatusCode,
        headers: HeaderMap,
        body: Bytes,
        failure: Failure,
    },
    Error(ModelError),
}

impl From<ModelError> for Trouble {
    fn from(error: ModelError) -> Self {
        Self::Error(error)
    }
}

impl Run {
    pub(super) async fn turn(&mut self, asked: &Asked, sink: &mut Sink) -> Result<Made, Trouble> {
        let Sent {
            spoken,
            response,
            mut recording,
        } = self.models.send(asked).await?;
        let wanted = asked.request.dialect;
        let status = response.status();
        let headers = crate::models::returned(response.headers());
        recording.answered(status.as_u16());
        if !status.is_success() {
            let body = whole(response).await?;
            let failure = answer_failure(&String::from_utf8_lossy(&body));
            let body = match wanted == spoken {
                true => body,
                false => wanted.error(&failure).to_string().into(),
            };
            return Err(Trouble::Status {
                status,
                headers,
                body,
                failure,
            });
        }
        sink.turn();
        let made = match is_stream(response.headers()) {
            true => streamed(response, (spoken, wanted), sink, &mut recording).await,
            false => {
                let body = whole(response).await?;
                told(&body, (spoken, wanted), sink).await
            }
        };
        let made = made.inspect_err(|_| recording.broke_off())?;
        recording.used(made.turn.usage);
        self.usage = self.usage.and(made.turn.usage.unwrap_or_default());
        let micro_usd = recording.cost().unwrap_or_default();
        self.micro_usd += micro_usd;
        Ok(Made {
            headers,
            micro_usd,
            ..made
        })
    }
}

/// An answer that came whole.
async fn told(
    body: &Bytes,
    (spoken, wanted): (Dialect, Dialect),
    sink: &mut Sink,
) -> Result<Made, Trouble> {
    let text = String::from_utf8_lossy(body);
    let events = match wanted == spoken {
        true => spoken.events_with_raw(&text),
        false => spoken.events(&text),
    };
    let events = events.map_err(ModelError::from)?;
    for event in &events {
        sink.put(event).await;
    }
    let turn = Turn::of(&events);
    if let Some(failure) = turn.failure {
        return Err(Trouble::Error(ModelError::Failed(failure)));
    }
    let items = match wanted == spoken {
        true => history::of_answer(wanted, &text),
        false => history::of_turn(wanted, &turn).map_err(ModelError::from)?,
    };
    Ok(Made {
        turn,
        items,
        raw: (wanted == spoken).then(|| body.clone()),
        headers: HeaderMap::new(),
        micro_usd: 0,
        spoken,
    })
}

/// An answer that comes in pieces, which are told as they come.
async fn streamed(
    mut response: reqwest::Response,
    (spoken, wanted): (Dialect, Dialect),
    sink: &mut Sink,
    recording: &mut crate::models::Recording,
) -> Result<Made, Trouble> {
    let mut lines = sse::Decoder::new(LONGEST_EVENT);
    let mut decoder = match wanted == spoken {
        true => spoken.decoder().keeping_raw(),
        false => spoken.decoder(),
    };
    let mut gathering = (wanted == spoken).then(|| Gathering::new(wanted));
    let mut turn = Turn::default();
    let broke_off = |_| Trouble::Error(ModelError::BrokeOff);
    while let Some(chunk) = response.chunk().await.map_err(broke_off)? {
        recording.first_byte();
        let (mut raw, mut events) = (Vec::new(), Vec::new());
        let fed = lines.feed(&chunk, &mut raw);
        for event in &raw {
            if let Some(gathering) = &mut gathering {
                gathering.take(event);
            }
            decoder.take(event, &mut events).map_err(ModelError::from)?;
        }
        for event in &events {
            turn.take(event);
            if let Event::Usage(usage) = event {
                recording.seen(Some::<Usage>(*usage));
            }
            sink.put(event).await;
        }
        fed.map_err(|error| Trouble::Error(ModelError::Event(error)))?;
    }
    if let Some(failure) = turn.failure {
        return Err(Trouble::Error(ModelError::Failed(failure)));
    }
    if !decoder.is_done() {
        return Err(Trouble::Error(ModelError::BrokeOff));
    }
    let items = match gathering {
        Some(gathering) => gathering.items(),
        None => history::of_turn(wanted, &turn).map_err(ModelError::from)?,
    };
    Ok(Made {
        turn,
        items,
        raw: None,
        headers: HeaderMap::new(),
        micro_usd: 0,
        spoken,
    })
}
