//! Mock upstreams: a model and MCP servers that respond immediately, on one port.
//!
//! `/v1/…` is the model, `/mcp/ERA/TOOLS` an MCP server of that era (`25` or `26`) with that many
//! tools, `/remembered` the last remembered request, and `/gaps` the time an agent takes between a tool
//! result and its next model request. The MCP servers are also available over stdio.

mod body;
pub(crate) mod gaps;
pub(crate) mod mcp;
pub(crate) mod model;
pub(crate) mod tools;

use std::collections::HashMap;
use std::convert::Infallible;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context as _;
use body::MockBody;
use bytes::Bytes;
use gaps::Gaps;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use mcp::{Era, MockMcpServer};
use model::{Dialect, MockModel};
use parking_lot::Mutex;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::print_result;

const SESSION: &str = "mcp-session-id";

/// All upstreams available over HTTP.
#[derive(Debug)]
struct MockUpstreams {
    chat: MockModel,
    responses: MockModel,
    messages: MockModel,
    /// MCP servers by path.
    servers: Mutex<HashMap<String, MockMcpServer>>,
    remembered: Mutex<Bytes>,
    gaps: Gaps,
}

/// Serves until standard input closes, which happens when the parent exits; forever if `stay`.
pub(crate) async fn serve(port: u16, stay: bool) -> anyhow::Result<()> {
    let upstreams = Arc::new(MockUpstreams {
        chat: MockModel::new(Dialect::Chat),
        responses: MockModel::new(Dialect::Responses),
        messages: MockModel::new(Dialect::Messages),
        servers: Mutex::default(),
        remembered: Mutex::default(),
        gaps: Gaps::default(),
    });
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    let listener = TcpListener::bind(address)
        .await
        .with_context(|| format!("cannot listen on {address}"))?;
    print_result(&format!("listening on http://{}", listener.local_addr()?));
    let mut connections = JoinSet::new();
    let mut input = tokio::io::stdin();
    let mut ignored = [0; 64];
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            read = input.read(&mut ignored), if !stay => match read {
                Ok(0) | Err(_) => return Ok(()),
                Ok(_) => continue,
            },
        };
        let Ok((stream, _)) = accepted else { continue };
        let _ = stream.set_nodelay(true);
        let upstreams = Arc::clone(&upstreams);
        connections.spawn(async move {
            let service = service_fn(|request| upstreams.serve(request));
            // Disconnecting clients are expected.
            let _ = http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
        while connections.try_join_next().is_some() {}
    }
}

impl MockUpstreams {
    async fn serve(&self, request: Request<Incoming>) -> Result<Response<MockBody>, Infallible> {
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else {
            return Ok(plain_response(StatusCode::BAD_REQUEST, Bytes::new()));
        };
        let (path, body) = (head.uri.path(), body.to_bytes());
        if let Some(dialect) = Dialect::from_path(path) {
            self.gaps.record_model_request();
            return Ok(self.model_response(dialect, body));
        }
        if path == "/remembered" {
            let remembered = self.remembered.lock().clone();
            return Ok(plain_response(StatusCode::OK, remembered));
        }
        if path == "/gaps" {
            let gaps = serde_json::to_vec(&self.gaps.take_stats()).unwrap_or_default();
            return Ok(plain_response(StatusCode::OK, gaps.into()));
        }
        let Some(server) = self.server(path) else {
            return Ok(plain_response(StatusCode::NOT_FOUND, Bytes::new()));
        };
        Ok(match head.method {
            Method::POST => {
                let response = handle_mcp_message(&server, head.headers.get(SESSION), &body);
                self.gaps.record_tool_response();
                response
            }
            Method::DELETE => plain_response(StatusCode::OK, Bytes::new()),
            _ => plain_response(StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
        })
    }

    fn model_response(&self, dialect: Dialect, body: Bytes) -> Response<MockBody> {
        let model = match dialect {
            Dialect::Chat => &self.chat,
            Dialect::Responses => &self.responses,
            Dialect::Messages => &self.messages,
        };
        let response = model.respond(&body);
        if model::is_remembered(&body) {
            *self.remembered.lock() = body;
        }
        let kind = match response {
            MockBody::Whole(_) => "application/json",
            MockBody::Stream { .. } => "text/event-stream",
        };
        with_content_type(Response::new(response), kind)
    }

    /// Returns the server at `/mcp/ERA/TOOLS`, creating it on first use.
    fn server(&self, path: &str) -> Option<MockMcpServer> {
        let mut servers = self.servers.lock();
        if let Some(server) = servers.get(path) {
            return Some(server.clone());
        }
        let (era, tools) = path.strip_prefix("/mcp/")?.split_once('/')?;
        let server = MockMcpServer::new(Era::parse(era)?, tools.parse().ok()?);
        servers.insert(path.to_owned(), server.clone());
        Some(server)
    }
}

/// Handles one message to an MCP server.
fn handle_mcp_message(
    server: &MockMcpServer,
    session: Option<&HeaderValue>,
    body: &[u8],
) -> Response<MockBody> {
    let Ok(text) = std::str::from_utf8(body) else {
        return plain_response(StatusCode::BAD_REQUEST, Bytes::from_static(b"not UTF-8"));
    };
    let is_initialize =
        memchr::memmem::find(&body[..body.len().min(256)], b"\"initialize\"").is_some();
    if server.era == Era::Legacy && session.is_none() && !is_initialize {
        return plain_response(StatusCode::BAD_REQUEST, Bytes::from_static(b"no session"));
    }
    match server.respond(text) {
        None => plain_response(StatusCode::ACCEPTED, Bytes::new()),
        Some(result) => {
            let mut response = with_content_type(
                Response::new(MockBody::Whole(result.into())),
                "application/json",
            );
            if server.era == Era::Legacy && is_initialize {
                let session = HeaderValue::from_static("bench-session");
                response.headers_mut().insert(SESSION, session);
            }
            response
        }
    }
}

fn plain_response(status: StatusCode, body: Bytes) -> Response<MockBody> {
    let mut response = Response::new(MockBody::Whole(body));
    *response.status_mut() = status;
    response
}

fn with_content_type(mut response: Response<MockBody>, kind: &'static str) -> Response<MockBody> {
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// Runs an MCP server over stdio until its input closes.
pub(crate) fn serve_stdio(era: Era, tools: usize) -> anyhow::Result<()> {
    let server = MockMcpServer::new(era, tools);
    let mut input = BufReader::with_capacity(1 << 16, std::io::stdin().lock());
    let mut output = std::io::stdout().lock();
    let (mut line, mut responses) = (String::new(), Vec::new());
    while input.read_line(&mut line)? > 0 {
        if let Some(response) = server.respond(&line) {
            responses.extend_from_slice(response.as_bytes());
            responses.push(b'\n');
        }
        line.clear();
        // Responses to messages that have already arrived share one write.
        if memchr::memchr(b'\n', input.buffer()).is_none() {
            output.write_all(&responses)?;
            output.flush()?;
            responses.clear();
        }
    }
    Ok(())
}
