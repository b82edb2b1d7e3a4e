//! Answers that come as streams of events: with progress before them, or with news instead of them.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, Stream};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;
use toolgate::ear::Ear;
use toolgate::jsonrpc::{self, Answer, METHOD_NOT_FOUND, Object};
use toolgate::mcp::{Asker, Door, Era};
use toolgate::serve::no_method;
use toolgate::{Caller, Gateway};
use toolgate_core::scope::Filters;

use super::news::Lists;
use super::session::Session;
use super::{App, answered};

const KEEP_ALIVE: Duration = Duration::from_secs(15);
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

/// Hears of a request's progress on behalf of the client that made it.
#[derive(Debug)]
struct Hearer {
    messages: UnboundedSender<String>,
    /// The client's own token; without one it hears of no progress.
    token: Option<Box<RawValue>>,
}

/// An ear for a request, and what it will have heard.
pub(super) fn ear(token: Option<Box<RawValue>>) -> (Arc<dyn Ear>, UnboundedReceiver<String>) {
    let (messages, heard) = mpsc::unbounded_channel();
    (Arc::new(Hearer { messages, token }), heard)
}

impl Ear for Hearer {
    fn hear(&self, method: &str, params: Option<&RawValue>) {
        let (Some(token), Some(params)) = (&self.token, params) else {
            return;
        };
        if method == "notifications/progress" {
            let members: Result<indexmap::IndexMap<String, &RawValue>, _> =
                serde_json::from_str(params.get());
            let told = members.unwrap_or_default().into_iter().fold(
                Object::new(),
                |told, (name, value)| match name.as_str() {
                    "progressToken" => told.raw(&name, token.get()),
                    _ => told.raw(&name, value.get()),
                },
            );
            // The client may have left.
            let _ = self
                .messages
                .send(jsonrpc::notification("notifications/progress", &told));
        }
    }

    fn asked(&self, method: &str, _: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        Box::pin(std::future::ready(Err(no_method(method))))
    }
}

/// Answers a request: with JSON if the answer is the first thing to say, else with a stream.
pub(super) async fn answer(
    door: Door,
    asker: Asker,
    (id, method, params): (Box<RawValue>, String, Option<Box<RawValue>>),
    mut heard: UnboundedReceiver<String>,
) -> Response {
    let modern = asker.era == Era::Modern;
    let mut answer: BoxFuture<'static, Answer> =
        Box::pin(async move { door.answer(&asker, &method, params.as_deref()).await });
    let first = tokio::select! {
        biased;
        Some(message) = heard.recv() => message,
        answered_first = &mut answer => match heard.try_recv() {
            // What was said before the answer comes before it.
            Ok(message) => {
                answer = Box::pin(std::future::ready(answered_first));
                message
            }
            Err(_) => {
                let status = status(modern, &answered_first);
                return answered(status, &id, &answered_first);
            }
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

/// In the modern era an unknown method and a bad request have a status of their own.
fn status(modern: bool, answer: &Answer) -> u16 {
    match answer {
        Err(error) if modern && error.code == METHOD_NOT_FOUND => 404,
        _ => 200,
    }
}

/// A stream that ends with the answer.
struct Streaming {
    first: Option<String>,
    heard: UnboundedReceiver<String>,
    answer: Option<BoxFuture<'static, Answer>>,
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
            answer = answer => {
                self.answer = None;
                jsonrpc::answer(&self.id, &answer)
            }
        };
        Some((message, self))
    }
}

/// The news of a session of the old era, until it ends.
pub(super) fn news(app: &App, session: Arc<Session>) -> Response {
    let (gateway, stopping) = (app.gateway().clone(), app.stopping());
    let watch = Watch::new(gateway, session.caller.clone(), session.filters.clone());
    let ended = session.ended.clone();
    let messages = stream::unfold((watch, session), |(mut watch, session)| async move {
        let told = watch.next().await?;
        let messages: Vec<String> = told
            .into_iter()
            .map(|method| jsonrpc::notification(method, &Object::new()))
            .collect();
        Some((stream::iter(messages), (watch, session)))
    });
    events(until(messages.flatten(), [ended, stopping]))
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Wanted {
    tools_list_changed: bool,
    prompts_list_changed: bool,
    resources_list_changed: bool,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct ListenParams {
    notifications: Wanted,
}

/// `subscriptions/listen`: the news that a modern client wants, until it leaves.
pub(super) fn listen(
    app: &App,
    _door: Door,
    caller: Caller,
    filters: Filters,
    (id, params): (Box<RawValue>, Option<Box<RawValue>>),
) -> Response {
    let params: ListenParams = params
        .and_then(|params| serde_json::from_str(params.get()).ok())
        .unwrap_or_default();
    let wanted = params.notifications;
    let meta = Object::new().raw(SUBSCRIPTION, id.get()).to_string();
    let granted = serde_json::json!({
        "toolsListChanged": wanted.tools_list_changed,
        "promptsListChanged": wanted.prompts_list_changed,
        "resourcesListChanged": wanted.resources_list_changed,
    });
    let acknowledged = jsonrpc::notification(
        "notifications/subscriptions/acknowledged",
        &Object::new()
            .raw("_meta", &meta)
            .raw("notifications", &granted.to_string()),
    );
    let watch = Watch::new(app.gateway().clone(), caller, filters);
    let told = stream::unfold(watch, |mut watch| async move {
        let told = watch.next().await?;
        Some((stream::iter(told), watch))
    });
    let told = told.flatten().filter_map(move |method| {
        let wants = match method {
            "notifications/tools/list_changed" => wanted.tools_list_changed,
            "notifications/prompts/list_changed" => wanted.prompts_list_changed,
            _ => wanted.resources_list_changed,
        };
        let message = jsonrpc::notification(method, &Object::new().raw("_meta", &meta));
        std::future::ready(wants.then_some(message))
    });
    let end = jsonrpc::answer(
        &id,
        &Ok(toolgate::serve::for_modern(
            toolgate::serve::empty_object(),
            toolgate::serve::Caching::None,
        )),
    );
    let messages = stream::iter([acknowledged])
        .chain(until(told, [app.stopping()]))
        .chain(stream::iter([end]));
    events(messages)
}

/// Watches the lists as one client sees them.
struct Watch {
    gateway: Gateway,
    caller: Caller,
    filters: Filters,
    catalogs: tokio::sync::watch::Receiver<Arc<toolgate_core::Catalog>>,
    seen: Lists,
}

impl Watch {
    fn new(gateway: Gateway, caller: Caller, filters: Filters) -> Self {
        let mut catalogs = gateway.subscribe();
        catalogs.mark_unchanged();
        Self {
            seen: Lists::of(&gateway, &caller, &filters),
            gateway,
            caller,
            filters,
            catalogs,
        }
    }

    /// Waits until something has changed; none once nothing can any more.
    async fn next(&mut self) -> Option<Vec<&'static str>> {
        loop {
            self.catalogs.changed().await.ok()?;
            let now = Lists::of(&self.gateway, &self.caller, &self.filters);
            let news = now.news(self.seen);
            self.seen = now;
            if !news.is_empty() {
                return Some(news);
            }
        }
    }
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
