//! The HTTP connection to the gateway: adds the headers of the transport, and reads what it answers.

use std::error::Error as _;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use reqwest::Response;
use toolgate::param_header;
use toolgate_core::sse::{SseDecoder, SseEvent};

use super::message::ModernRequest;
use super::upstream::Upstream;

const SESSION_HEADER: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION_HEADER: HeaderName = HeaderName::from_static("mcp-protocol-version");
const METHOD_HEADER: HeaderName = HeaderName::from_static("mcp-method");
const NAME_HEADER: HeaderName = HeaderName::from_static("mcp-name");

/// Maximum size of a message from the gateway. Results are at most as large as servers may send them.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;
/// Time without a byte after which an event stream is lost. The gateway sends a comment every 15 s.
const STREAM_SILENCE: Duration = Duration::from_secs(60);
/// Maximum time for the answer to a message that is not a request.
const SHORT_ANSWER_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of characters quoted from a response that is not a message.
const MAX_QUOTED_CHARS: usize = 300;

/// Why a message has no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum GatewayError {
    /// The message was not sent.
    #[error("{0}")]
    Unreachable(String),
    /// The message may have taken effect.
    #[error(
        "the connection to the gateway was lost before it answered ({0}); the request may have taken effect"
    )]
    Lost(String),
    #[error("the gateway has ended the session")]
    SessionGone,
    #[error("{0}")]
    Refused(String),
}

/// A gateway's MCP endpoint.
#[derive(Debug)]
pub(super) struct GatewayEndpoint {
    upstream: Upstream,
    /// Path of the endpoint, relative to the URL of the gateway.
    path: String,
    key: Option<HeaderValue>,
    /// Name of the variable that has the key or could have it.
    key_variable: String,
}

/// A legacy session, as the headers of its requests name it.
#[derive(Clone, Debug, Default)]
pub(super) struct SessionHeaders {
    pub(super) id: Option<HeaderValue>,
    pub(super) version: Option<HeaderValue>,
}

/// The messages that the gateway answers with: a single one, or an event stream.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) session_id: Option<HeaderValue>,
    pub(super) status: StatusCode,
    body: AnswerBody,
}

#[derive(Debug)]
enum AnswerBody {
    Single(Option<String>),
    Stream(Box<EventStream>),
}

#[derive(Debug)]
struct EventStream {
    response: Response,
    decoder: SseDecoder,
    decoded: std::vec::IntoIter<SseEvent>,
}

impl GatewayEndpoint {
    pub(super) fn new(
        upstream: Upstream,
        path: String,
        key: Option<&str>,
        key_variable: String,
    ) -> anyhow::Result<Self> {
        let key = key.map(|key| {
            let mut value = HeaderValue::from_str(&format!("Bearer {key}"))?;
            value.set_sensitive(true);
            anyhow::Ok(value)
        });
        let invalid =
            |_| anyhow::anyhow!("the key in {key_variable} has characters that no key has");
        Ok(Self {
            key: key.transpose().map_err(invalid)?,
            upstream,
            path,
            key_variable,
        })
    }

    /// Stops the gateway in this process, if there is one.
    pub(super) async fn shut_down(&self) {
        self.upstream.shut_down().await;
    }

    /// Posts a message and waits for the beginning of its answer.
    pub(super) async fn post(
        &self,
        message: &str,
        headers: HeaderMap,
    ) -> Result<Answer, GatewayError> {
        let mut headers = headers;
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(
            ACCEPT,
            HeaderValue::from_static("application/json, text/event-stream"),
        );
        let in_session = headers.contains_key(SESSION_HEADER);
        let response = self.send(Method::POST, headers, Some(message)).await?;
        self.read_answer(response, in_session).await
    }

    /// Posts a message that has no response.
    pub(super) async fn notify(
        &self,
        message: &str,
        session: &SessionHeaders,
    ) -> Result<Answer, GatewayError> {
        let posted = self.post(message, session.to_headers());
        match tokio::time::timeout(SHORT_ANSWER_TIMEOUT, posted).await {
            Ok(answer) => answer,
            Err(_) => Err(GatewayError::Lost("it does not answer".to_owned())),
        }
    }

    /// Opens the event stream of a session; `None` if the gateway has none.
    pub(super) async fn listen(
        &self,
        session: &SessionHeaders,
    ) -> Result<Option<Answer>, GatewayError> {
        let mut headers = session.to_headers();
        headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
        let response = self.send(Method::GET, headers, None).await?;
        match response.status() {
            StatusCode::METHOD_NOT_ALLOWED => Ok(None),
            _ => self.read_answer(response, true).await.map(Some),
        }
    }

    /// Ends a session.
    pub(super) async fn end_session(&self, session: &SessionHeaders) {
        let Some(client) = self.upstream.client() else {
            return;
        };
        let request = client.request(Method::DELETE, self.upstream.url(&self.path));
        let request = request.headers(self.with_key(session.to_headers()));
        // Best effort: the gateway ends sessions that nobody uses.
        let _ = request.send().await;
    }

    async fn send(
        &self,
        method: Method,
        headers: HeaderMap,
        body: Option<&str>,
    ) -> Result<Response, GatewayError> {
        let headers = self.with_key(headers);
        let mut attempt = self.upstream.attempt();
        loop {
            let Some(client) = self.upstream.client() else {
                return Err(GatewayError::Unreachable(format!(
                    "there is no gateway at {}",
                    self.upstream.name()
                )));
            };
            let url = self.upstream.url(&self.path);
            let mut request = client.request(method.clone(), url).headers(headers.clone());
            if let Some(body) = body {
                request = request.body(body.to_owned());
            }
            match request.send().await {
                Ok(response) => return Ok(response),
                Err(error) if error.is_connect() => {
                    let cause = root_cause(&error);
                    attempt
                        .recover(&cause)
                        .await
                        .map_err(GatewayError::Unreachable)?;
                }
                Err(error) => return Err(GatewayError::Lost(root_cause(&error))),
            }
        }
    }

    fn with_key(&self, mut headers: HeaderMap) -> HeaderMap {
        if let Some(key) = &self.key {
            headers.insert(AUTHORIZATION, key.clone());
        }
        headers
    }

    async fn read_answer(
        &self,
        response: Response,
        in_session: bool,
    ) -> Result<Answer, GatewayError> {
        let status = response.status();
        if in_session && status == StatusCode::NOT_FOUND {
            return Err(GatewayError::SessionGone);
        }
        let session_id = response.headers().get(SESSION_HEADER).cloned();
        let content_type = response.headers().get(CONTENT_TYPE);
        let has_type = |name: &[u8]| {
            content_type.is_some_and(|content_type| content_type.as_bytes().starts_with(name))
        };
        if status.is_success() && has_type(b"text/event-stream") {
            return Ok(Answer {
                session_id,
                status,
                body: AnswerBody::Stream(Box::new(EventStream {
                    response,
                    decoder: SseDecoder::new(MAX_MESSAGE_BYTES),
                    decoded: Vec::new().into_iter(),
                })),
            });
        }
        let is_json = has_type(b"application/json");
        let body = read_body(response).await?;
        if body.is_empty() || (is_json && is_message(&body)) {
            let message = Some(body).filter(|body| !body.is_empty());
            return Ok(Answer {
                session_id,
                status,
                body: AnswerBody::Single(message),
            });
        }
        Err(GatewayError::Refused(self.describe_refusal(status, &body)))
    }

    /// Says why the gateway refused a message, and what to do.
    fn describe_refusal(&self, status: StatusCode, body: &str) -> String {
        let parsed: serde_json::Value = serde_json::from_str(body).unwrap_or_default();
        let reason = parsed["error"]["message"].as_str();
        let (variable, has_key) = (&self.key_variable, self.key.is_some());
        match (status, reason) {
            (StatusCode::UNAUTHORIZED, Some(reason)) if has_key => format!(
                "the gateway refused the key in {variable}: {reason}; create one with `toolgate keys create NAME` and put it into the variable, in the settings of this client"
            ),
            (StatusCode::UNAUTHORIZED, Some(reason)) => format!(
                "the gateway requires a key, and {variable} is not set: {reason}; create one with `toolgate keys create NAME` and set the variable in the settings of this client, or name another variable with --key-env"
            ),
            (_, Some(reason)) => format!("the gateway responded with {status}: {reason}"),
            (_, None) => {
                let quoted: String = body.chars().filter(|c| !c.is_control()).collect();
                let quoted: String = quoted.chars().take(MAX_QUOTED_CHARS).collect();
                format!(
                    "{} is not a Toolgate gateway: it responded with {status} and {quoted:?}; check --url",
                    self.upstream.name()
                )
            }
        }
    }
}

impl SessionHeaders {
    pub(super) fn to_headers(&self) -> HeaderMap {
        let mut headers = HeaderMap::new();
        if let Some(id) = &self.id {
            headers.insert(SESSION_HEADER, id.clone());
        }
        if let Some(version) = &self.version {
            headers.insert(VERSION_HEADER, version.clone());
        }
        headers
    }
}

/// Returns the headers that repeat parts of a modern request.
pub(super) fn modern_headers(method: &str, modern: &ModernRequest) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Some(version) = &modern.version {
        headers.insert(VERSION_HEADER, param_header::encode_value(version));
    }
    headers.insert(METHOD_HEADER, param_header::encode_value(method));
    if let Some(name) = &modern.name {
        headers.insert(NAME_HEADER, param_header::encode_value(name));
    }
    headers
}

impl Answer {
    /// Returns the next message; `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<String>, GatewayError> {
        match &mut self.body {
            AnswerBody::Single(message) => Ok(message.take()),
            AnswerBody::Stream(stream) => stream.next().await,
        }
    }
}

impl EventStream {
    async fn next(&mut self) -> Result<Option<String>, GatewayError> {
        let lost = |cause: &str| GatewayError::Lost(cause.to_owned());
        loop {
            if let Some(event) = self.decoded.find(|event| !event.data.is_empty()) {
                return Ok(Some(event.data));
            }
            let chunk = tokio::time::timeout(STREAM_SILENCE, self.response.chunk()).await;
            let chunk = chunk.map_err(|_| lost("it sends nothing"))?;
            let Some(chunk) = chunk.map_err(|error| lost(&root_cause(&error)))? else {
                return Ok(None);
            };
            let mut events = Vec::new();
            let decoded = self.decoder.feed(&chunk, &mut events);
            decoded.map_err(|error| lost(&error.to_string()))?;
            self.decoded = events.into_iter();
        }
    }
}

async fn read_body(mut response: Response) -> Result<String, GatewayError> {
    let mut bytes = Vec::new();
    loop {
        let chunk = response.chunk().await;
        match chunk.map_err(|error| GatewayError::Lost(root_cause(&error)))? {
            Some(chunk) if bytes.len() + chunk.len() > MAX_MESSAGE_BYTES => {
                let message = format!("the response has more than {MAX_MESSAGE_BYTES} bytes");
                return Err(GatewayError::Refused(message));
            }
            Some(chunk) => bytes.extend_from_slice(&chunk),
            None => break,
        }
    }
    String::from_utf8(bytes)
        .map_err(|_| GatewayError::Refused("the response is not valid UTF-8".to_owned()))
}

/// Returns whether a body is a JSON-RPC message or a batch, rather than an error of the HTTP API.
fn is_message(body: &str) -> bool {
    #[derive(serde::Deserialize)]
    struct Message {
        #[serde(rename = "jsonrpc")]
        _version: serde::de::IgnoredAny,
    }
    body.trim_start().starts_with('[') || serde_json::from_str::<Message>(body).is_ok()
}

/// Returns the innermost cause; the outer ones repeat the URL.
fn root_cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match error.source() {
        Some(_) => cause.to_string(),
        None => error.to_string(),
    }
}
