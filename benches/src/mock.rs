//! The upstreams: a model and MCP servers that answer at once, on one port.
//!
//! `/v1/…` is the model, `/mcp/ERA/TOOLS` a server of that era (`25` or `26`) with that many
//! tools, `/kept` the last request that was to be remembered, `/gaps` how long an agent took between
//! its tools and its model. The same servers speak over pipes.

mod body;
pub(crate) mod gaps;
pub(crate) mod mcp;
pub(crate) mod model;
pub(crate) mod tools;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use body::Answer;
use bytes::Bytes;
use gaps::Gaps;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use mcp::{Era, Server};
use model::{Dialect, Model};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::say;

const SESSION: &str = "mcp-session-id";

/// All that can be asked over HTTP.
#[derive(Debug)]
struct Upstreams {
    chat: Model,
    responses: Model,
    messages: Model,
    /// By path.
    servers: Mutex<HashMap<String, Server>>,
    kept: Mutex<Bytes>,
    gaps: Gaps,
}

/// Serves until standard input ends, which it does with whoever started this; or for good.
pub(crate) async fn serve(port: u16, stays: bool) -> anyhow::Result<()> {
    let upstreams = Arc::new(Upstreams {
        chat: Model::new(Dialect::Chat),
        responses: Model::new(Dialect::Responses),
        messages: Model::new(Dialect::Messages),
        servers: Mutex::default(),
        kept: Mutex::default(),
        gaps: Gaps::default(),
    });
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    say(&format!("listening on http://{}", listener.local_addr()?));
    let mut connections = JoinSet::new();
    let mut input = tokio::io::stdin();
    let mut ignored = [0; 64];
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            read = input.read(&mut ignored), if !stays => match read {
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) => continue,
            },
        };
        let Ok((stream, _)) = accepted else { continue };
        let _ = stream.set_nodelay(true);
        let upstreams = Arc::clone(&upstreams);
        connections.spawn(async move {
            let service = service_fn(|request| upstreams.serve(request));
            // A client that goes away is no news.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

impl Upstreams {
    async fn serve(&self, request: Request<Incoming>) -> Result<Response<Answer>, Infallible> {
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return Ok(plain(StatusCode::BAD_REQUEST, Bytes::new()));
        };
        let (path, body) = (head.uri.path(), body.to_bytes());
        if let Some(dialect) = Dialect::of(path) {
            self.gaps.asked();
            return Ok(self.model(dialect, body));
        }
        if path == "/kept" {
            let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(plain(StatusCode::OK, kept.clone()));
        }
        if path == "/gaps" {
            let gaps = serde_json::to_vec(&self.gaps.take()).unwrap_or_default();
            return Ok(plain(StatusCode::OK, gaps.into()));
        }
        let Some(server) = self.server(path) else {
            return Ok(plain(StatusCode::NOT_FOUND, Bytes::new()));
        };
        Ok(match head.method {
            Method::POST => {
                let answer = speak(&server, head.headers.get(SESSION), &body);
                self.gaps.answered();
                answer
            }
            Method::DELETE => plain(StatusCode::OK, Bytes::new()),
            _ => plain(StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
        })
    }

    fn model(&self, dialect: Dialect, body: Bytes) -> Response<Answer> {
        let model = match dialect {
            Dialect::Chat => &self.chat,
            Dialect::Responses => &self.responses,
            Dialect::Messages => &self.messages,
        };
        let answer = model.answer(&body);
        if model::is_kept(&body) {
            *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = body;
        }
        let kind = match answer {
            Answer::Whole(_) => "application/json",
            Answer::Stream { .. } => "text/event-stream",
        };
        typed(Response::new(answer), kind)
    }

    /// The server at `/mcp/ERA/TOOLS`, made when it is first asked.
    fn server(&self, path: &str) -> Option<Server> {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(server) = servers.get(path) {
            return Some(server.clone());
        }
        let (era, tools) = path.strip_prefix("/mcp/")?.split_once('/')?;
        let server = Server::new(Era::parse(era)?, tools.parse().ok()?);
        servers.insert(path.to_owned(), server.clone());
        Some(server)
    }
}

/// One message to an MCP server.
fn speak(server: &Server, session: Option<&HeaderValue>, body: &[u8]) -> Response<Answer> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let greets = memchr::memmem::find(&body[..body.len().min(256)], b"\"initialize\"").is_some();
    if server.era == Era::Legacy && session.is_none() && !greets {
        return plain(StatusCode::BAD_REQUEST, Bytes::from_static(b"no session"));
    }
    match server.answer(text) {
        None => plain(StatusCode::ACCEPTED, Bytes::new()),
        Some(answer) => {
            let mut response = typed(
                Response::new(Answer::Whole(answer.into())),
                "application/json",
            );
            if server.era == Era::Legacy && greets {
                let session = HeaderValue::from_static("bench-session");
                response.headers_mut().insert(SESSION, session);
            }
            response
        }
    }
}

fn plain(status: StatusCode, body: Bytes) -> Response<Answer> {
    let mut response = Response::new(Answer::Whole(body));
    *response.status_mut() = status;
    response
}

fn typed(mut response: Response<Answer>, kind: &'static str) -> Response<Answer> {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The same server over pipes, until its input ends.
pub(crate) fn pipe(era: Era, tools: usize) -> anyhow::Result<()> {
    let server = Server::new(era, tools);
    let mut input = BufReader::with_capacity(1 << 16, std::io::stdin().lock());
    let mut output = std::io::stdout().lock();
    let (mut line, mut answers) = (String::new(), Vec::new());
    while input.read_line(&mut line)? > 0 {
        if let Some(answer) = server.answer(&line) {
            answers.extend_from_slice(answer.as_bytes());
            answers.push(b'\n');
        }
        line.clear();
        // What has arrived already is answered together.
        if memchr::memchr(b'\n', input.buffer()).is_none() {
            output.write_all(&answers)?;
            output.flush()?;
            answers.clear();
        }
    }
    Ok(())
}
