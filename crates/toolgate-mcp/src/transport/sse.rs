//! A server of the first revision behind HTTP: an event stream carries all that it says, and its
//! first event names the address that takes requests.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use reqwest::{Client, Response};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use url::Url;

use super::asking::Asking;
use super::closing::{self, Closing};
use super::http::stream::{Resume, Stream};
use super::http::{self, Endpoint};
use super::inbox::Inbox;
use super::pending::{Pending, Place};
use super::{Events, Outgoing, RequestError};
use crate::ear::Ear;
use crate::jsonrpc::{self, Answer, Object};

/// How long a server may take to name the address for requests.
const NAMING: Duration = Duration::from_secs(10);

/// An open event stream and the requests that wait for their answers on it.
#[derive(Debug)]
pub struct Sse {
    poster: Poster,
    pending: Pending,
    closing: Closing,
    stop: CancellationToken,
}

/// Sends messages to the address that the server named.
#[derive(Clone, Debug)]
struct Poster {
    client: Client,
    url: Url,
    headers: HeaderMap,
    tasks: TaskTracker,
}

impl Sse {
    /// Opens the stream and waits until the server has named the address for requests.
    pub async fn start(
        endpoint: &Endpoint,
        tasks: &TaskTracker,
        ear: Arc<dyn Ear>,
    ) -> Result<(Self, Events), RequestError> {
        let client = endpoint
            .client()
            .map_err(|error| RequestError::NotSent(error.to_string()))?;
        let request = client
            .get(endpoint.url.clone())
            .headers(endpoint.headers.clone());
        let response = request.header(ACCEPT, "text/event-stream").send().await;
        let mut stream = Stream::new(opened(
            response.map_err(|error| http::unreachable(&error))?,
        )?);
        let url = tokio::time::timeout(NAMING, named(&mut stream, &endpoint.url)).await;
        let url = url.map_err(|_| malformed("its stream names no address for requests"))??;
        let poster = Poster {
            client,
            url,
            headers: endpoint.headers.clone(),
            tasks: tasks.clone(),
        };
        let (events, heard) = mpsc::channel(16);
        let (ending, closing) = closing::channel();
        let pending = Pending::default();
        let stop = CancellationToken::new();
        let inbox = Inbox {
            pending: pending.clone(),
            events,
            ear,
            asking: Asking::new(tasks),
            end: stop.clone(),
        };
        let reading = read(stream, inbox, poster.clone());
        let stopped = stop.clone();
        let ended = pending.clone();
        tasks.spawn(async move {
            let reason = tokio::select! {
                reason = reading => reason,
                () = stopped.cancelled() => "the connection was closed".to_owned(),
            };
            ended.close(&reason);
            stopped.cancel();
            ending.tell(&reason);
        });
        let sse = Self {
            poster,
            pending,
            closing,
            stop,
        };
        Ok((sse, heard))
    }

    pub(super) async fn request(&self, outgoing: Outgoing) -> Result<Answer, RequestError> {
        let place = self.pending.enter(outgoing.ear.clone())?;
        let message = outgoing.message(place.id);
        let cancellable = outgoing.method != "initialize";
        let mut call = Call {
            place,
            poster: &self.poster,
            cancellable,
        };
        let posted = self.poster.post(message, outgoing.headers);
        tokio::pin!(posted);
        // The answer may come before the address for requests has said that it took the request.
        tokio::select! {
            biased;
            answer = call.place.answer() => return answer,
            posted = &mut posted => posted?,
        }
        call.place.answer().await
    }

    pub(super) async fn notify(&self, method: &str) -> Result<(), RequestError> {
        let message = jsonrpc::notification(method, &Object::new());
        self.poster.post(message, HeaderMap::new()).await
    }

    pub(super) async fn closed(&self) -> String {
        self.closing.wait().await
    }

    pub(super) async fn close(&self) {
        self.stop.cancel();
        self.closed().await;
    }
}

impl Drop for Sse {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl Poster {
    async fn post(&self, message: String, extra: HeaderMap) -> Result<(), RequestError> {
        let mut headers = self.headers.clone();
        headers.extend(extra);
        let request = self.client.post(self.url.clone()).headers(headers);
        let request = request
            .header(CONTENT_TYPE, "application/json")
            .body(message);
        let response = request
            .send()
            .await
            .map_err(|error| http::unreachable(&error))?;
        let status = response.status();
        if status.is_success() {
            return Ok(());
        }
        let text = http::excerpt(&http::body(response).await.unwrap_or_default());
        Err(RequestError::Status {
            status: status.as_u16(),
            text,
            rpc: None,
        })
    }

    /// Sends a message without waiting for what becomes of it.
    fn say(&self, message: String) {
        let poster = self.clone();
        self.tasks.spawn(async move {
            let sent = tokio::time::timeout(NAMING, poster.post(message, HeaderMap::new())).await;
            if !matches!(sent, Ok(Ok(()))) {
                tracing::debug!("the server did not take a message");
            }
        });
    }
}

/// A request in flight; dropped before its answer, it tells the server to stop.
struct Call<'a> {
    place: Place,
    poster: &'a Poster,
    cancellable: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.place.leave() && self.cancellable {
            let params = Object::new().raw("requestId", &self.place.id.to_string());
            self.poster
                .say(jsonrpc::notification("notifications/cancelled", &params));
        }
    }
}

fn opened(response: Response) -> Result<Response, RequestError> {
    let status = response.status();
    match status.is_success() && http::is_stream(&response) {
        true => Ok(response),
        false => Err(RequestError::Status {
            status: status.as_u16(),
            text: "it opens no event stream".to_owned(),
            rpc: None,
        }),
    }
}

/// The address for requests, which must be of the same origin.
async fn named(stream: &mut Stream, base: &Url) -> Result<Url, RequestError> {
    while let Some(event) = stream.event().await? {
        if event.name == "endpoint" {
            let url = base
                .join(&event.data)
                .map_err(|_| malformed("the address it names for requests is no URL"))?;
            return match url.origin() == base.origin() {
                true => Ok(url),
                false => Err(malformed(
                    "it names an address for requests on another host",
                )),
            };
        }
    }
    Err(malformed(
        "its stream ended before it named an address for requests",
    ))
}

async fn read(mut stream: Stream, inbox: Inbox, poster: Poster) -> String {
    loop {
        match stream.next(&mut Resume::default()).await {
            Ok(Some(text)) => {
                let poster = poster.clone();
                inbox.take(&text, move |reply| poster.say(reply));
            }
            Ok(None) => return "the server ended the event stream".to_owned(),
            Err(error) => return error.to_string(),
        }
    }
}

fn malformed(text: &str) -> RequestError {
    RequestError::Malformed(text.to_owned())
}
