//! Answers that come as streams of events: with progress before them, or with news instead of them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream};
use serde_json::value::RawValue;
use tokio::sync::mpsc::{self, Receiver};
use tokio_util::sync::CancellationToken;
use toolgate::jsonrpc::{self, Answer, METHOD_NOT_FOUND, Object};
use toolgate::mcp::{Asker, Door, Era, Page, Subscription, Watch};
use toolgate::serve::{Place, Tell};

use super::super::parts::Parts;
use super::session::Session;
use super::{App, answered};

/// Messages that a client may be behind before it misses some.
const BEHIND: usize = 1024;
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Tells what comes before the answer to a request, and takes it in.
pub(super) fn before_the_answer() -> (Tell, Receiver<String>) {
    let (sender, heard) = mpsc::channel(BEHIND);
    let tell = move |message| sender.try_send(message).is_ok();
    (Arc::new(tell), heard)
}

/// Answers a request: with JSON if the answer is the first thing to say, else with a stream.
pub(super) async fn answer(
    door: Door,
    asker: Asker,
    (id, method, params): (Box<RawValue>, String, Option<Box<RawValue>>),
    (mut heard, place): (Receiver<String>, Option<Place>),
) -> Response {
    let modern = asker.era == Era::Modern;
    if method == "tools/list" {
        return match door.tools(&asker, params.as_deref()) {
            Ok(page) => listed(&id, &page),
            Err(error) => answered(200, &id, &Err(error)),
        };
    }
    let mut answer: BoxFuture<'static, Option<Answer>> = Box::pin(async move {
        let answer = door.answer(&asker, &method, params.as_deref());
        match place {
            None => Some(answer.await),
            Some(place) => tokio::select! {
                answer = answer => Some(answer),
                () = place.cancelled() => None,
            },
        }
    });
    let first = tokio::select! {
        biased;
        Some(message) = heard.recv() => message,
        answered_first = &mut answer => match (heard.try_recv(), answered_first) {
            // What was said before the answer comes before it.
            (Ok(message), answered_first) => {
                answer = Box::pin(std::future::ready(answered_first));
                message
            }
            (Err(_), Some(answer)) => {
                let status = status(modern, &answer);
                return answered(status, &id, &answer);
            }
            // Nobody waits for what was cancelled.
            (Err(_), None) => return StatusCode::ACCEPTED.into_response(),
        },
    };
    let state = Streaming {
        first: Some(first),
        heard,
        answer: Some(answer),
        id,
    };
    events(stream::unfold(state, Streaming::next))
}

/// An answer around a page that is kept, whose bytes go out as they are.
fn listed(id: &RawValue, page: &Page) -> Response {
    let (before, behind) = jsonrpc::around_result(id);
    let body = Body::new(Parts::new([before.into(), page.bytes(), behind.into()]));
    (StatusCode::OK, [(CONTENT_TYPE, "application/json")], body).into_response()
}

/// In the modern era an unknown method and a bad request have a status of their own.
fn status(modern: bool, answer: &Answer) -> u16 {
    match answer {
        Err(error) if modern && error.code == METHOD_NOT_FOUND => 404,
        // A header that does not fit, a capability that is missing, a version that is not spoken.
        Err(error) if modern && (-32022..=-32020).contains(&error.code) => 400,
        _ => 200,
    }
}

/// A stream that ends with the answer.
struct Streaming {
    first: Option<String>,
    heard: Receiver<String>,
    /// Without an answer if the request is cancelled.
    answer: Option<BoxFuture<'static, Option<Answer>>>,
    id: Box<RawValue>,
}

impl Streaming {
    async fn next(mut self) -> Option<(String, Self)> {
        if let Some(first) = self.first.take() {
            return Some((first, self));
        }
        let answer = self.answer.as_mut()?;
        let message = tokio::select! {
            biased;
            Some(message) = self.heard.recv() => message,
            answer = answer => match self.heard.try_recv() {
                // What was said before the answer comes before it.
                Ok(message) => {
                    self.answer = Some(Box::pin(std::future::ready(answer)));
                    message
                }
                Err(_) => {
                    self.answer = None;
                    jsonrpc::answer(&self.id, &answer?)
                }
            },
        };
        Some((message, self))
    }
}

/// The news of a session of the old era, until it ends or another stream takes its place.
pub(super) fn news(app: &App, session: &Session) -> Response {
    let (gateway, stopping) = (app.gateway().clone(), app.stopping());
    let watch = Watch::new(gateway, session.caller.clone(), session.filters.clone());
    let ended = session.client.ended().clone();
    let messages = stream::unfold((watch, session.listen()), async |(mut watch, mut told)| {
        let messages = tokio::select! {
            message = told.recv() => vec![message?],
            changed = watch.next() => {
                let tell = |method| jsonrpc::notification(method, &Object::new());
                changed?.into_iter().map(tell).collect()
            }
        };
        Some((stream::iter(messages), (watch, told)))
    });
    events(until(messages.flatten(), [ended, stopping]))
}

/// `subscriptions/listen`: the news that a modern client wants, until it leaves.
pub(super) fn listen(app: &App, id: &RawValue, subscription: Subscription) -> Response {
    let acknowledged = subscription.acknowledged();
    let told = stream::unfold(subscription, |mut subscription| async move {
        let told = subscription.next().await?;
        Some((stream::iter(told), subscription))
    });
    let end = jsonrpc::answer(id, &Ok(Subscription::ended()));
    let messages = stream::iter([acknowledged])
        .chain(until(told.flatten(), [app.stopping()]))
        .chain(stream::iter([end]));
    events(messages)
}

/// A stream that ends when one of the tokens is cancelled.
fn until<T, const N: usize>(
    stream: impl Stream<Item = T>,
    ends: [CancellationToken; N],
) -> impl Stream<Item = T> {
    let ended = async move {
        let ends = ends.iter().map(|end| Box::pin(end.cancelled()));
        futures_util::future::select_all(ends).await;
    };
    stream.take_until(ended)
}

fn events(messages: impl Stream<Item = String> + Send + 'static) -> Response {
    let events =
        messages.map(|message| Ok::<_, Infallible>(Event::default().data(one_line(&message))));
    let stream = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    let mut response = (StatusCode::OK, stream).into_response();
    response.headers_mut().insert(
        HeaderName::from_static("x-accel-buffering"),
        HeaderValue::from_static("no"),
    );
    response
}

/// Line breaks stand only between the tokens of a message.
fn one_line(message: &str) -> String {
    message.replace(['\n', '\r'], " ")
}
