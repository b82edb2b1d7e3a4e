//! A server behind a streamable HTTP endpoint: each request is a POST, answered by JSON or by a
//! stream of events that ends with the answer.
//!
//! In the legacy era the endpoint may hand out a session, which every later request names. A
//! stream that breaks off is resumed where the server gave its events ids.

mod client;
mod direct;
mod failure;
pub(super) mod stream;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use direct::Direct;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use reqwest::{Client, Request, Response};
use stream::{Resume, Stream};
use tokio::sync::mpsc;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;
use url::Url;

use super::asking::Asking;
use super::closing::{self, Closing, Ending};
use super::{Event, Events, Outgoing, RequestError};
use crate::MAX_MESSAGE_BYTES;
use crate::ear::Ear;
use crate::jsonrpc::{self, Answer, Incoming, Object, RpcError};

pub(crate) use client::Clients;
pub use client::{ClientError, Endpoint};
pub(super) use failure::unreachable;
use failure::{cause, lost};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT: HeaderName = HeaderName::from_static("last-event-id");

/// Before a stream for news is opened again.
const LISTEN_AGAIN: Duration = Duration::from_secs(1);
const LISTEN_LATEST: Duration = Duration::from_secs(30);

/// What of an error's body is shown.
const EXCERPT: usize = 300;

/// An endpoint, and the session with it if there is one.
#[derive(Debug)]
pub struct Http {
    client: Client,
    url: Url,
    /// The same address, where requests need nothing around them.
    direct: Option<Direct>,
    headers: HeaderMap,
    session: OnceLock<HeaderValue>,
    /// The legacy revision that was agreed on; the modern one is named in each request.
    version: OnceLock<HeaderValue>,
    next: AtomicU64,
    events: mpsc::Sender<Event>,
    ending: Ending,
    closing: Closing,
    tasks: TaskTracker,
    /// Who hears what is said outside of any request.
    ear: Arc<dyn Ear>,
    asking: Asking,
    /// Ends what the server has asked.
    stop: CancellationToken,
    _guard: DropGuard,
}

impl Http {
    pub fn new(
        endpoint: &Endpoint,
        tasks: &TaskTracker,
        ear: Arc<dyn Ear>,
    ) -> Result<(Self, Events), ClientError> {
        let client = endpoint.client()?;
        let (events, heard) = mpsc::channel(16);
        let (ending, closing) = closing::channel();
        let stop = CancellationToken::new();
        let direct = endpoint.direct();
        if let Some(direct) = direct.clone() {
            tasks.spawn(direct.tended(stop.clone()));
        }
        let http = Self {
            client,
            url: endpoint.url.clone(),
            direct,
            headers: endpoint.headers.clone(),
            session: OnceLock::new(),
            version: OnceLock::new(),
            next: AtomicU64::new(1),
            events,
            ending,
            closing,
            tasks: tasks.clone(),
            ear,
            asking: Asking::new(tasks),
            _guard: stop.clone().drop_guard(),
            stop,
        };
        Ok((http, heard))
    }

    /// From now on every request names this revision.
    pub(crate) fn agree(&self, version: &str) {
        if let Ok(value) = HeaderValue::from_str(version) {
            let _ = self.version.set(value);
        }
    }

    pub(super) async fn request(&self, outgoing: Outgoing) -> Result<Answer, RequestError> {
        let answer = self.ask(outgoing).await;
        let in_session = self.session.get().is_some();
        let doubtful = match &answer {
            Err(RequestError::NotSent(_) | RequestError::Lost(_)) => true,
            Err(RequestError::Status { .. }) => in_session,
            _ => false,
        };
        if doubtful {
            // A full queue holds the same news already.
            let _ = self.events.try_send(Event::Doubt);
        }
        answer
    }

    async fn ask(&self, outgoing: Outgoing) -> Result<Answer, RequestError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let message = outgoing.message(id);
        let legacy = self.version.get().is_some();
        let mut call = Call {
            http: self,
            id,
            open: legacy,
        };
        let response = self.post(message, &outgoing.headers).await;
        let response = response.inspect_err(|_| call.open = false)?;
        if outgoing.method == "initialize"
            && let Some(session) = response.headers().get(SESSION)
        {
            let _ = self.session.set(session.clone());
        }
        let answer = self.answer(response, id, outgoing.ear.as_ref()).await;
        call.open = legacy && matches!(answer, Err(RequestError::TooLarge(_)));
        answer
    }

    pub(super) async fn notify(&self, method: &str) -> Result<(), RequestError> {
        let message = jsonrpc::notification(method, &Object::new());
        self.post(message, &HeaderMap::new()).await.map(drop)
    }

    pub(super) async fn closed(&self) -> String {
        self.closing.wait().await
    }

    pub(super) async fn close(&self) {
        self.stop.cancel();
        if self.session.get().is_some() {
            let goodbye = self
                .client
                .delete(self.url.clone())
                .headers(self.own_headers());
            // It is a courtesy: a server that does not answer forgets the session by itself.
            let _ = goodbye.timeout(Duration::from_secs(2)).send().await;
        }
    }

    fn own_headers(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        if let Some(session) = self.session.get() {
            headers.insert(SESSION, session.clone());
        }
        if let Some(version) = self.version.get() {
            headers.insert(VERSION, version.clone());
        }
        headers
    }

    async fn post(&self, message: String, extra: &HeaderMap) -> Result<Response, RequestError> {
        let body = Bytes::from(message);
        if let Some(direct) = &self.direct {
            let headers = self.headers_with(extra);
            let response = direct.post(&self.url, headers, body.clone()).await?;
            // The other client knows how far to follow.
            if !response.status().is_redirection() {
                return self.check(response).await;
            }
        }
        let mut request = Request::new(Method::POST, self.url.clone());
        *request.headers_mut() = self.headers_with(extra);
        *request.body_mut() = Some(body.into());
        let response = Box::pin(self.client.execute(request)).await;
        let response = response.map_err(|error| unreachable(&error))?;
        self.check(response).await
    }

    fn headers_with(&self, extra: &HeaderMap) -> HeaderMap {
        let mut headers = self.own_headers();
        for (name, value) in extra {
            headers.insert(name.clone(), value.clone());
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        headers
    }

    /// Turns a status that is no success into an error.
    async fn check(&self, response: Response) -> Result<Response, RequestError> {
        let status = response.status();
        if status.is_success() {
            return Ok(response);
        }
        if status == StatusCode::NOT_FOUND && self.session.get().is_some() {
            self.ending.tell("the server has forgotten the session");
            return Err(RequestError::SessionGone);
        }
        let body = Box::pin(body(response)).await.unwrap_or_default();
        let rpc = rpc_error(&body);
        let text = match &rpc {
            Some(error) => error.to_string(),
            None => excerpt(&body),
        };
        Err(RequestError::Status {
            status: status.as_u16(),
            text,
            rpc,
        })
    }

    async fn answer(
        &self,
        response: Response,
        id: u64,
        ear: Option<&Arc<dyn Ear>>,
    ) -> Result<Answer, RequestError> {
        if is_stream(&response) {
            return Box::pin(self.streamed(response, id, ear)).await;
        }
        let body = body(response).await?;
        let messages = jsonrpc::parse(&body)
            .map_err(|error| RequestError::Malformed(format!("{error}: {}", excerpt(&body))))?;
        messages
            .into_iter()
            .find_map(|message| match message {
                Incoming::Response {
                    id: Some(of),
                    answer,
                } if of == id => Some(answer),
                _ => None,
            })
            .ok_or_else(|| RequestError::Malformed("it has no answer to the request".to_owned()))
    }

    async fn streamed(
        &self,
        response: Response,
        id: u64,
        ear: Option<&Arc<dyn Ear>>,
    ) -> Result<Answer, RequestError> {
        let mut stream = Stream::new(response);
        let mut resume = Resume::default();
        // What is asked on the stream of a request is forgotten with the request.
        let end = self.stop.child_token();
        let _guard = end.clone().drop_guard();
        let heard = Heard { id, ear, end: &end };
        loop {
            match stream.next(&mut resume).await {
                Ok(Some(text)) => {
                    if let Some(answer) = self.hear(&text, &heard) {
                        return Ok(answer);
                    }
                }
                Err(error @ RequestError::TooLarge(_)) => return Err(error),
                Ok(None) | Err(_) => {
                    // The modern era knows no resumption.
                    let last = match self.version.get() {
                        Some(_) => resume.again().await,
                        None => None,
                    };
                    let Some(last) = last else {
                        let reason = "the server ended the stream before the answer".to_owned();
                        return Err(RequestError::Lost(reason));
                    };
                    if let Some(continued) = self.continued(last).await {
                        stream = continued;
                    }
                }
            }
        }
    }

    /// Takes a message of a stream; the answer if it is that. All else on the stream is meant for
    /// whoever caused the request.
    fn hear(&self, text: &str, stream: &Heard<'_>) -> Option<Answer> {
        let messages = match jsonrpc::parse(text) {
            Ok(messages) => messages,
            Err(error) => {
                tracing::debug!(%error, "an event is no message");
                return None;
            }
        };
        let mut found = None;
        for message in messages {
            match message {
                Incoming::Response {
                    id: Some(of),
                    answer,
                } if of == stream.id => found = Some(answer),
                Incoming::Response { .. } => {}
                Incoming::Notification { method, params } => {
                    if super::announce(&method, &self.events) {
                        continue;
                    }
                    match (&*method, stream.ear) {
                        ("notifications/cancelled", _) => self.asking.withdraw(params),
                        // A resource that changed concerns whoever watches it.
                        ("notifications/resources/updated", _) | (_, None) => {
                            self.ear.hear(&method, params);
                        }
                        (_, Some(ear)) => ear.hear(&method, params),
                    }
                }
                Incoming::Request { id, method, params } => {
                    let speaker = self.speaker();
                    let asked = (id, &*method, params);
                    // Only a client of its own connection can be asked.
                    let ear = stream.ear.filter(|_| self.ear.can_be_asked());
                    let ear = ear.unwrap_or(&self.ear);
                    let reply = move |reply| speaker.say(reply);
                    self.asking.answer(ear, asked, stream.end, reply);
                }
            }
        }
        found
    }

    async fn continued(&self, last: HeaderValue) -> Option<Stream> {
        let mut headers = self.own_headers();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        headers.insert(LAST_EVENT, last);
        let response = self
            .client
            .get(self.url.clone())
            .headers(headers)
            .send()
            .await
            .ok()?;
        (response.status().is_success() && is_stream(&response)).then(|| Stream::new(response))
    }

    /// Keeps a stream open on which a legacy server tells its news; ends if it offers none.
    pub(crate) async fn listen(&self) {
        let mut wait = LISTEN_AGAIN;
        loop {
            let mut headers = self.own_headers();
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            let request = self.client.get(self.url.clone()).headers(headers);
            match request.send().await {
                Ok(response) if response.status().is_success() && is_stream(&response) => {
                    wait = LISTEN_AGAIN;
                    let mut stream = Stream::new(response);
                    let heard = Heard {
                        id: 0, // no request has it
                        ear: None,
                        end: &self.stop,
                    };
                    while let Ok(Some(text)) = stream.next(&mut Resume::default()).await {
                        self.hear(&text, &heard);
                    }
                }
                Ok(response)
                    if response.status().is_client_error()
                        && response.status() != StatusCode::NOT_FOUND =>
                {
                    return;
                }
                Ok(_) | Err(_) => wait = (wait * 2).min(LISTEN_LATEST),
            }
            // What was said meanwhile is lost, and the server may be gone.
            let _ = self.events.try_send(Event::Doubt);
            tokio::time::sleep(wait).await;
        }
    }

    /// Sends messages that have no answer, without waiting for it.
    fn speaker(&self) -> Speaker {
        Speaker {
            client: self.client.clone(),
            url: self.url.clone(),
            headers: self.own_headers(),
            tasks: self.tasks.clone(),
        }
    }
}

/// On whose behalf a stream is heard.
struct Heard<'a> {
    /// The request that it belongs to.
    id: u64,
    ear: Option<&'a Arc<dyn Ear>>,
    /// Ends what is asked on it.
    end: &'a CancellationToken,
}

/// Sends messages that have no answer.
struct Speaker {
    client: Client,
    url: Url,
    headers: HeaderMap,
    tasks: TaskTracker,
}

impl Speaker {
    fn say(self, message: String) {
        let request = self
            .client
            .post(self.url)
            .headers(self.headers)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json, text/event-stream")
            .timeout(Duration::from_secs(10))
            .body(message);
        self.tasks.spawn(async move {
            if let Err(error) = request.send().await {
                tracing::debug!(error = cause(&error), "the server did not take a message");
            }
        });
    }
}

/// A request in flight. In the modern era closing the stream is the cancel; before it, the server
/// must be told.
struct Call<'a> {
    http: &'a Http,
    id: u64,
    open: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.open {
            let params = Object::new().raw("requestId", &self.id.to_string());
            self.http
                .speaker()
                .say(jsonrpc::notification("notifications/cancelled", &params));
        }
    }
}

pub(super) fn is_stream(response: &Response) -> bool {
    let kind = response.headers().get(CONTENT_TYPE);
    kind.is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"))
}

pub(super) async fn body(mut response: Response) -> Result<String, RequestError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response
        .chunk()
        .await
        .map_err(|error| lost(&cause(&error)))?
    {
        if bytes.len() + chunk.len() > MAX_MESSAGE_BYTES {
            return Err(RequestError::TooLarge(MAX_MESSAGE_BYTES));
        }
        bytes.extend_from_slice(&chunk);
    }
    String::from_utf8(bytes).map_err(|_| RequestError::Malformed("it is not UTF-8".to_owned()))
}

fn rpc_error(body: &str) -> Option<RpcError> {
    match jsonrpc::parse(body).ok()?.pop()? {
        Incoming::Response {
            answer: Err(error), ..
        } => Some(error),
        _ => None,
    }
}

pub(super) fn excerpt(body: &str) -> String {
    let text: String = body
        .chars()
        .filter(|c| !c.is_control())
        .take(EXCERPT)
        .collect();
    text.trim().to_owned()
}
