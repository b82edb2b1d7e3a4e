//! One connection that is kept alive, and requests that are ready to be sent.

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

use super::{Exchange, Expect, Method, Plan};

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// How much of the end of a stream is looked at.
const TAIL: usize = 2048;
/// How much of a wrong answer is told.
const TOLD: usize = 160;

pub(crate) struct Connection {
    address: String,
    sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

/// An answer whose body has been read.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    /// When the first byte of the body came.
    pub(crate) began: Instant,
    pub(crate) ended: Instant,
}

/// A plan's requests, and what their answers must be.
#[derive(Debug)]
pub(super) struct Prepared {
    uri: Uri,
    method: hyper::Method,
    /// One for each session, or just one.
    headers: Vec<HeaderMap>,
    body: Bytes,
    expect: Expect,
}

impl Connection {
    pub(crate) async fn open(address: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address)
            .await
            .with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        // It ends with the connection, or is ended with this.
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

    /// Another one in its place.
    pub(super) async fn again(&self) -> anyhow::Result<Self> {
        Self::open(&self.address).await
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn ask(
        &mut self,
        request: Request<Full<Bytes>>,
        body: &mut Vec<u8>,
    ) -> anyhow::Result<Answer> {
        body.clear();
        self.sender.ready().await?;
        let response = self.sender.send_request(request).await?;
        let (head, mut incoming) = response.into_parts();
        let mut began = None;
        while let Some(frame) = incoming.frame().await {
            if let Some(data) = frame.context("the answer breaks off")?.data_ref() {
                began.get_or_insert_with(Instant::now);
                body.extend_from_slice(data);
            }
        }
        let ended = Instant::now();
        Ok(Answer {
            status: head.status,
            headers: head.headers,
            began: began.unwrap_or(ended),
            ended,
        })
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Prepared {
    pub(super) async fn new(plan: &Plan, connection: &mut Connection) -> anyhow::Result<Self> {
        let exchange = &plan.exchange;
        let headers = headers(&plan.address, exchange)?;
        let mut all = Vec::new();
        for at in 0..exchange.sessions {
            let mut headers = headers.clone();
            if let Some(key) = exchange.keys.iter().cycle().nth(at) {
                let value = HeaderValue::from_str(&format!("Bearer {key}"))?;
                headers.insert(AUTHORIZATION, value);
            }
            all.push(session(connection, exchange, &headers).await?);
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
        let turn = usize::try_from(number).unwrap_or(0) % self.headers.len();
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.uri_mut() = self.uri.clone();
        *request.method_mut() = self.method.clone();
        request.headers_mut().clone_from(&self.headers[turn]);
        request
    }

    /// What is wrong with an answer, if anything is.
    pub(super) fn wrong(&self, answer: &Answer, body: &[u8]) -> Option<String> {
        self.expect.wrong(answer.status, body)
    }
}

impl Expect {
    pub(crate) fn wrong(&self, status: StatusCode, body: &[u8]) -> Option<String> {
        let told = || String::from_utf8_lossy(&body[..body.len().min(TOLD)]).into_owned();
        if status != StatusCode::OK {
            return Some(format!("status {status}: {}", told()));
        }
        let found = match self.times {
            0 => memmem::find(body, self.marker.as_bytes()).is_some(),
            times => memmem::find_iter(body, &self.marker).count() == times,
        };
        if !found {
            return Some(format!("the marker is missing: {}", told()));
        }
        let tail = &body[body.len().saturating_sub(TAIL)..];
        let ends = memmem::find(tail, self.end.as_bytes()).is_some();
        (!ends).then(|| "the stream is not complete".to_owned())
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

/// Asks once, on a connection of its own, and gives the body if the answer is right.
pub(crate) async fn once(address: &str, exchange: &Exchange) -> anyhow::Result<Vec<u8>> {
    let mut connection = Connection::open(address).await?;
    let plan = Plan {
        address: address.to_owned(),
        exchange: exchange.clone(),
        pace: super::Pace::Closed,
        connections: 1,
        seconds: 1.0,
        most: 1,
    };
    let prepared = Prepared::new(&plan, &mut connection).await?;
    let mut body = Vec::new();
    let answer = connection.ask(prepared.request(0), &mut body).await?;
    match prepared.wrong(&answer, &body) {
        Some(wrong) => bail!(wrong),
        None => Ok(body),
    }
}

fn headers(address: &str, exchange: &Exchange) -> anyhow::Result<HeaderMap> {
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

/// Opens an MCP session; the headers that requests in it carry.
async fn session(
    connection: &mut Connection,
    exchange: &Exchange,
    headers: &HeaderMap,
) -> anyhow::Result<HeaderMap> {
    let mut headers = headers.clone();
    let mut say = async |headers: &HeaderMap, message: &'static str| {
        let mut request = Request::new(Full::new(Bytes::from_static(message.as_bytes())));
        *request.uri_mut() = exchange.path.parse()?;
        *request.method_mut() = hyper::Method::POST;
        request.headers_mut().clone_from(headers);
        let mut body = Vec::new();
        let answer = connection.ask(request, &mut body).await?;
        if !answer.status.is_success() {
            bail!(
                "no session: status {}: {}",
                answer.status,
                String::from_utf8_lossy(&body)
            );
        }
        Ok(answer)
    };
    let hello = say(&headers, INITIALIZE).await?;
    if let Some(session) = hello.headers.get(SESSION) {
        headers.insert(SESSION, session.clone());
    }
    say(&headers, INITIALIZED).await?;
    Ok(headers)
}

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
