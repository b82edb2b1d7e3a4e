//! A keep-alive connection, and prepared requests to send over it.

use std::time::Instant;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use memchr::memmem;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use super::{Exchange, Expectation, LoadPlan, Method};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Length of the stream tail that is searched for the end marker.
const STREAM_TAIL_BYTES: usize = 2048;
/// Length of the response excerpt in error messages.
const ERROR_EXCERPT_BYTES: usize = 160;

pub(crate) struct Connection {
    address: String,
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

/// A response whose body has been read.
#[derive(Debug)]
pub(crate) struct TimedResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// Arrival of the first byte of the body.
    pub(crate) first_byte: Instant,
    pub(crate) finished: Instant,
}

/// Requests of a plan, and the expected response.
#[derive(Debug)]
pub(super) struct PreparedRequests {
    uri: Uri,
    method: hyper::Method,
    /// One per session, or a single one without sessions.
    headers: Vec<HeaderMap>,
    body: Bytes,
    expect: Expectation,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // The task ends with the connection, or is aborted in `drop`.
        let mut tasks = tokio::task::JoinSet::new();
        let driver = tasks.spawn(async move {
            let _ = connection.await;
        });
        tasks.detach_all();
        Ok(Self {
            address: address.to_owned(),
            sender,
            driver,
        })
    }

    /// Opens a new connection to the same address.
    pub(super) async fn reconnect(&self) -> anyhow::Result<Self> {
        Self::open(&self.address).await
    }

    /// Sends a request and reads the complete response.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        body: &mut Vec<u8>,
    ) -> anyhow::Result<TimedResponse> {
        body.clear();
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let (head, mut incoming) = response.into_parts();
        let mut first_byte = None;
        while let Some(frame) = incoming.frame().await {
            if let Some(data) = frame.context("response was interrupted")?.data_ref() {
                first_byte.get_or_insert_with(Instant::now);
                body.extend_from_slice(data);
            }
        }
        let finished = Instant::now();
        Ok(TimedResponse {
            status: head.status,
            headers: head.headers,
            first_byte: first_byte.unwrap_or(finished),
            finished,
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl PreparedRequests {
    pub(super) async fn new(plan: &LoadPlan, connection: &mut Connection) -> anyhow::Result<Self> {
        let exchange = &plan.exchange;
        let headers = build_headers(&plan.address, exchange)?;
        let mut all = Vec::new();
        for at in 0..exchange.sessions {
            let mut headers = headers.clone();
            if let Some(key) = exchange.keys.iter().cycle().nth(at) {
                let value = HeaderValue::from_str(&format!("Bearer {key}"))?;
                headers.insert(AUTHORIZATION, value);
            }
            all.push(open_session(connection, exchange, &headers).await?);
        }
        if all.is_empty() {
            all.push(headers);
        }
        Ok(Self {
            uri: exchange.path.parse()?,
            method: exchange.method.name(),
            headers: all,
            body: exchange.body.clone().into(),
            expect: exchange.expect.clone(),
        })
    }

    pub(super) fn request(&self, number: u64) -> Request<Full<Bytes>> {
        let index = usize::try_from(number).unwrap_or(0) % self.headers.len();
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.uri_mut() = self.uri.clone();
        *request.method_mut() = self.method.clone();
        request.headers_mut().clone_from(&self.headers[index]);
        request
    }

    /// Returns a description of what is wrong with a response, if anything.
    pub(super) fn find_problem(&self, response: &TimedResponse, body: &[u8]) -> Option<String> {
        self.expect.find_problem(response.status, body)
    }
}

impl Expectation {
    pub(crate) fn find_problem(&self, status: StatusCode, body: &[u8]) -> Option<String> {
        let excerpt =
            || String::from_utf8_lossy(&body[..body.len().min(ERROR_EXCERPT_BYTES)]).into_owned();
        if status != StatusCode::OK {
            return Some(format!("status {status}: {}", excerpt()));
        }
        let found = match self.times {
            0 => memmem::find(body, self.marker.as_bytes()).is_some(),
            times => memmem::find_iter(body, &self.marker).count() == times,
        };
        if !found {
            return Some(format!(
                "marker missing or repeated a wrong number of times: {}",
                excerpt()
            ));
        }
        let tail = &body[body.len().saturating_sub(STREAM_TAIL_BYTES)..];
        let ends = memmem::find(tail, self.end.as_bytes()).is_some();
        (!ends).then(|| "incomplete stream".to_owned())
    }
}

impl Method {
    fn name(self) -> hyper::Method {
        match self {
            Self::Post => hyper::Method::POST,
            Self::Get => hyper::Method::GET,
        }
    }
}

/// Sends one request on a new connection and returns the body if the response is as expected.
pub(crate) async fn send_once(address: &str, exchange: &Exchange) -> anyhow::Result<Vec<u8>> {
    let mut connection = Connection::open(address).await?;
    let plan = LoadPlan {
        address: address.to_owned(),
        exchange: exchange.clone(),
        pace: super::Pace::Closed,
        connections: 1,
        seconds: 1.0,
        max_requests: 1,
    };
    let prepared = PreparedRequests::new(&plan, &mut connection).await?;
    let mut body = Vec::new();
    let response = connection.send(prepared.request(0), &mut body).await?;
    match prepared.find_problem(&response, &body) {
        Some(problem) => bail!(problem),
        None => Ok(body),
    }
}

fn build_headers(address: &str, exchange: &Exchange) -> anyhow::Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, HeaderValue::from_str(address)?);
    if exchange.method == Method::Post {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for (name, value) in &exchange.headers {
        headers.insert(
            HeaderName::try_from(name.as_str())?,
            HeaderValue::from_str(value)?,
        );
    }
    Ok(headers)
}

/// Opens an MCP session and returns the headers for requests in it.
async fn open_session(
    connection: &mut Connection,
    exchange: &Exchange,
    headers: &HeaderMap,
) -> anyhow::Result<HeaderMap> {
    let mut headers = headers.clone();
    let mut send = async |headers: &HeaderMap, message: &'static str| {
        let mut request = Request::new(Full::new(Bytes::from_static(message.as_bytes())));
        *request.uri_mut() = exchange.path.parse()?;
        *request.method_mut() = hyper::Method::POST;
        request.headers_mut().clone_from(headers);
        let mut body = Vec::new();
        let response = connection.send(request, &mut body).await?;
        if !response.status.is_success() {
            bail!(
                "cannot open session: status {}: {}",
                response.status,
                String::from_utf8_lossy(&body)
            );
        }
        Ok(response)
    };
    let initialized = send(&headers, INITIALIZE).await?;
    if let Some(session) = initialized.headers.get(SESSION) {
        headers.insert(SESSION, session.clone());
    }
    send(&headers, INITIALIZED).await?;
    Ok(headers)
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
