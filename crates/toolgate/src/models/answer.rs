//! What comes back from a provider, on its way to the caller: as it is, or translated.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use reqwest::Response;
use toolgate_core::config::Dialect;
use toolgate_core::sse;
use toolgate_llm::dialect::{Decoder, Encoder};
use toolgate_llm::event::{Event, Failure};
use toolgate_llm::tap::{self, Tap, UsageChunk};
use toolgate_llm::turn::Head;
use toolgate_llm::{Body, Turn, Wire as _};

use super::ledger::Recording;
use super::memory::Memory;
use super::{AnswerBody, Asked, ModelAnswer, ModelError, headers};
use crate::caller::Caller;

/// Largest answer that is held whole, and largest event of a stream.
const MOST: usize = 64 * 1024 * 1024;
pub(crate) const LONGEST_EVENT: usize = 16 * 1024 * 1024;
/// Bytes of a stream from which on nothing more is waited for before they are passed on.
const TOGETHER: usize = 64 * 1024;

pub(super) async fn answer(
    asked: &Asked,
    spoken: Dialect,
    response: Response,
    (mut recording, memory): (Recording, &Memory),
) -> Result<ModelAnswer, ModelError> {
    let wanted = asked.request.dialect;
    let status = response.status();
    let mut headers = headers::returned(response.headers());
    recording.answered(status.as_u16());
    if is_stream(response.headers()) && status.is_success() {
        let body = match wanted == spoken {
            true => passed(response, wanted, recording).await,
            false => translated(response, spoken, asked, (recording, memory)),
        };
        return Ok(ModelAnswer {
            status,
            headers,
            body: AnswerBody::Stream(body),
        });
    }
    let body = whole(response).await?;
    if wanted == spoken {
        recording.ended(|| tap::finish(wanted, &body));
        recording.used(Tap::whole(wanted, &body));
        return Ok(ModelAnswer {
            status,
            headers,
            body: AnswerBody::Whole(body),
        });
    }
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    let text = String::from_utf8_lossy(&body);
    let body = match status.is_success() {
        true => {
            let turn = Turn::of(&spoken.events(&text)?);
            recording.used(turn.usage);
            if let Some(finish) = &turn.finish {
                recording.finished(finish);
            }
            match &turn.failure {
                Some(failure) => wanted.error(failure).to_string(),
                None => {
                    let mut head = asked.head();
                    head.id = wanted.new_id();
                    let answer = wanted.answer(&head, &turn);
                    if wanted == Dialect::Responses {
                        memory.keep(&asked.caller, asked.body.text(), &answer);
                    }
                    answer
                }
            }
        }
        false => wanted.error(&failure(&text)).to_string(),
    };
    Ok(ModelAnswer {
        status,
        headers,
        body: AnswerBody::Whole(body.into()),
    })
}

pub(crate) fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}

pub(crate) async fn whole(mut response: Response) -> Result<Bytes, ModelError> {
    let expected = response.content_length().unwrap_or_default();
    let expected = usize::try_from(expected).unwrap_or(usize::MAX);
    if expected > MOST {
        return Err(ModelError::TooLarge(MOST));
    }
    let mut body = BytesMut::new();
    while let Some(chunk) = response.chunk().await.map_err(|_| ModelError::BrokeOff)? {
        if body.is_empty() && chunk.len() == expected {
            return Ok(chunk);
        }
        if body.len() + chunk.len() > MOST {
            return Err(ModelError::TooLarge(MOST));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body.freeze())
}

/// What a provider's error says, whichever of the dialects' shapes it has.
pub(crate) fn failure(body: &str) -> Failure {
    let value: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
    let error = &value["error"];
    let message = error["message"].as_str().or(error.as_str());
    let message = message.or(value["message"].as_str());
    Failure {
        kind: error["type"].as_str().map(str::to_owned),
        message: message.unwrap_or("the provider gave no reason").to_owned(),
        code: error.get("code").filter(|code| !code.is_null()).cloned(),
    }
}

/// What a future comes to, if it is ready now or once the other tasks that are ready have run.
///
/// The task that reads a connection hands its chunks over one by one. Those that came together are
/// passed on together, since a write of its own for each costs more than all else; nothing waits
/// for one that is still to come.
async fn ready<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut yielded = false;
    poll_fn(|context| match future.as_mut().poll(context) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if yielded => Poll::Ready(None),
        Poll::Pending => {
            yielded = true;
            context.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

/// A stream that passes through as it comes.
struct Passing {
    response: Response,
    tap: Tap,
    /// Takes out what the caller did not ask for.
    without: Option<UsageChunk>,
    dialect: Dialect,
    recording: Recording,
    /// What has come and was not passed on yet.
    here: Vec<Bytes>,
    ended: bool,
}

async fn passed(
    response: Response,
    dialect: Dialect,
    recording: Recording,
) -> BoxStream<'static, Bytes> {
    let mut passing = Passing {
        response,
        tap: Tap::new(dialect),
        without: recording.counts_stream().then(UsageChunk::default),
        dialect,
        recording,
        here: Vec::new(),
        ended: false,
    };
    // What came with the head goes out with it.
    passing.gather().await;
    stream::unfold(passing, |mut passing| async move {
        let chunk = passing.next().await?;
        Some((chunk, passing))
    })
    .boxed()
}

impl Passing {
    async fn next(&mut self) -> Option<Bytes> {
        while self.here.is_empty() {
            if self.ended {
                return None;
            }
            let chunk = self.response.chunk().await;
            self.take(chunk);
            self.gather().await;
        }
        Some(match self.here.len() {
            1 => self.here.pop()?,
            _ => Bytes::from(std::mem::take(&mut self.here).concat()),
        })
    }

    /// Takes what has come already.
    async fn gather(&mut self) {
        while !self.ended && self.here.iter().map(Bytes::len).sum::<usize>() < TOGETHER {
            match ready(self.response.chunk()).await {
                Some(chunk) => self.take(chunk),
                None => return,
            }
        }
    }

    fn take(&mut self, chunk: reqwest::Result<Option<Bytes>>) {
        let passed = match chunk {
            Ok(Some(chunk)) => {
                self.recording.first_byte();
                self.tap.feed(&chunk);
                self.recording.seen(self.tap.usage());
                match &mut self.without {
                    Some(without) => without.taken_out(&chunk),
                    None => chunk,
                }
            }
            Ok(None) if self.tap.is_done() => {
                self.finish();
                self.without
                    .take()
                    .map(UsageChunk::rest)
                    .unwrap_or_default()
            }
            Ok(None) | Err(_) => {
                self.finish();
                self.recording.broke_off();
                let held = self.without.take().map(UsageChunk::rest);
                let mut last = held.unwrap_or_default().to_vec();
                last.extend(self.dialect.broken().into_bytes());
                last.into()
            }
        };
        if !passed.is_empty() {
            self.here.push(passed);
        }
    }

    fn finish(&mut self) {
        self.ended = true;
        self.recording.ended(|| self.tap.finish());
        self.recording.used(self.tap.usage());
    }
}

/// A stream that is taken apart and put together anew.
struct Translating {
    response: Response,
    events: sse::Decoder,
    decoder: Decoder,
    encoder: Encoder,
    recording: Recording,
    to_keep: Option<ToKeep>,
    ended: bool,
}

/// An answer that its caller may refer to later.
struct ToKeep {
    memory: Memory,
    caller: Caller,
    body: Body,
    head: Head,
    turn: Turn,
}

fn translated(
    response: Response,
    spoken: Dialect,
    asked: &Asked,
    (recording, memory): (Recording, &Memory),
) -> BoxStream<'static, Bytes> {
    let mut head = asked.head();
    let wanted = asked.request.dialect;
    head.id = wanted.new_id();
    let to_keep = (wanted == Dialect::Responses).then(|| ToKeep {
        memory: memory.clone(),
        caller: asked.caller.clone(),
        body: asked.body.clone(),
        head: head.clone(),
        turn: Turn::default(),
    });
    let translating = Translating {
        response,
        events: sse::Decoder::new(LONGEST_EVENT),
        decoder: spoken.decoder(),
        encoder: wanted.encoder(head),
        recording,
        to_keep,
        ended: false,
    };
    stream::unfold(translating, |mut translating| async move {
        let chunk = translating.next().await?;
        Some((chunk, translating))
    })
    .boxed()
}

impl Translating {
    async fn next(&mut self) -> Option<Bytes> {
        let mut out = String::new();
        while !self.ended && out.len() < TOGETHER {
            let chunk = match out.is_empty() {
                true => self.response.chunk().await,
                false => match ready(self.response.chunk()).await {
                    Some(chunk) => chunk,
                    None => break,
                },
            };
            match chunk {
                Ok(Some(chunk)) => {
                    self.recording.first_byte();
                    if let Err(message) = self.take(&chunk, &mut out) {
                        self.fail(message, &mut out);
                    }
                }
                Ok(None) if self.decoder.is_done() => {
                    self.ended = true;
                    self.recording.used(None);
                    self.encoder.end(&mut out);
                    if let Some(done) = self.to_keep.take() {
                        let answer = Dialect::Responses.answer(&done.head, &done.turn);
                        done.memory.keep(&done.caller, done.body.text(), &answer);
                    }
                }
                Ok(None) | Err(_) => self.fail(ModelError::BrokeOff.to_string(), &mut out),
            }
        }
        (!out.is_empty()).then(|| out.into())
    }

    fn take(&mut self, chunk: &[u8], out: &mut String) -> Result<(), String> {
        let (mut raw, mut events) = (Vec::new(), Vec::new());
        let fed = self.events.feed(chunk, &mut raw);
        for event in &raw {
            let taken = self.decoder.take(event, &mut events);
            taken.map_err(|error| error.to_string())?;
        }
        for event in &events {
            match event {
                Event::Usage(usage) => self.recording.seen(Some(*usage)),
                Event::Finish(finish) => self.recording.finished(finish),
                _ => {}
            }
            if let Some(to_keep) = &mut self.to_keep {
                to_keep.turn.take(event);
            }
            self.encoder.put(event, out);
        }
        fed.map_err(|error| error.to_string())
    }

    fn fail(&mut self, message: String, out: &mut String) {
        self.ended = true;
        self.recording.broke_off();
        let failure = Failure {
            kind: Some("api_error".to_owned()),
            message,
            code: None,
        };
        self.encoder.put(&Event::Failed(failure), out);
        self.encoder.end(out);
    }
}
