//! HTTP client for a running gateway, used by the command line.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;
use url::Url;

use crate::http::admin::changes::ImportResult;
use crate::http::admin::process_usage::ProcessUsageView;
use crate::http::admin::tools::{ToolEntry, ToolPage};
use crate::http::execute::{MessageContent, ToolMessage};
use crate::http::results::ResultPart;
use crate::local_socket::{self, SocketOwner};

/// A running gateway.
#[derive(Debug)]
pub(crate) struct RemoteGateway {
    client: Client,
    base_url: Url,
    key: Option<String>,
    /// The socket in the data directory, if that is used instead of the URL.
    socket: Option<PathBuf>,
}

/// A server and what its processes use.
#[derive(Debug, Serialize)]
pub(crate) struct ServerSummary {
    pub(crate) name: String,
    pub(crate) state: String,
    pub(crate) reason: Option<String>,
    /// Number of tools.
    pub(crate) tools: usize,
    /// Whether the gateway was ever connected to the server.
    #[serde(skip)]
    pub(crate) has_connected: bool,
    pub(crate) process_usage: Option<ProcessUsageView>,
}

impl ServerSummary {
    /// Returns whether the server is being started for the first time.
    pub(crate) fn is_starting(&self) -> bool {
        self.state == "connecting" && !self.has_connected
    }
}

/// Maximum number of items that the gateway returns at a time.
const MAX_PAGE_SIZE: usize = 1000;

/// An error response of the gateway.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
struct ErrorResponse {
    status: StatusCode,
    message: String,
}

impl RemoteGateway {
    pub(crate) fn new(base_url: Url, key: Option<String>) -> anyhow::Result<Self> {
        // Fails only if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A proxy from the environment must not see the key of a local gateway.
        let builder = Client::builder();
        let builder = if is_local(&base_url) {
            builder.no_proxy()
        } else {
            builder
        };
        let client = builder.build().context("cannot create the HTTP client")?;
        Ok(Self {
            client,
            base_url,
            key,
            socket: None,
        })
    }

    /// The gateway that listens on a socket in its data directory.
    pub(crate) fn at_socket(
        data_dir: &Path,
        owner: SocketOwner,
        key: Option<String>,
    ) -> anyhow::Result<Self> {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let headers = local_socket::request_headers(data_dir).with_context(|| {
            let data_dir = data_dir.display();
            format!("cannot read the token of the gateway's socket in `{data_dir}`")
        })?;
        let socket = owner.path(data_dir);
        let builder = Client::builder().default_headers(headers).no_proxy();
        let client = builder.unix_socket(socket.clone()).build();
        Ok(Self {
            client: client.context("cannot create the HTTP client")?,
            base_url: Url::parse("http://localhost")?,
            key,
            socket: Some(socket),
        })
    }

    /// Returns the gateway's address, as users write it.
    pub(crate) fn address(&self) -> String {
        match &self.socket {
            Some(socket) => socket.display().to_string(),
            None => self.base_url.to_string(),
        }
    }

    /// Lists all tools, over all pages.
    pub(crate) async fn list_tools(&self) -> anyhow::Result<Vec<ToolEntry>> {
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut url = self.url("api/mcp/tools")?;
            url.query_pairs_mut().append_pair("limit", "1000");
            if let Some(cursor) = &cursor {
                url.query_pairs_mut().append_pair("cursor", cursor);
            }
            let page: ToolPage = parse_response(&self.send_for_text(self.client.get(url)).await?)?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
    }

    /// Lists all servers, over all pages.
    pub(crate) async fn list_servers(&self) -> anyhow::Result<Vec<ServerSummary>> {
        #[derive(Deserialize)]
        struct ClientPage {
            clients: Vec<Client>,
            next_cursor: Option<String>,
        }
        #[derive(Deserialize)]
        struct Client {
            config: ClientConfig,
            state: String,
            reason: Option<String>,
            tools: Vec<IgnoredAny>,
            protocol_version: Option<IgnoredAny>,
            process_usage: Option<ProcessUsageView>,
        }
        #[derive(Deserialize)]
        struct ClientConfig {
            name: String,
        }
        let mut servers = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let cursor_param = cursor.as_deref().map(|cursor| ("cursor", cursor));
            let query: Vec<_> = [("limit", "1000")]
                .into_iter()
                .chain(cursor_param)
                .collect();
            let page: ClientPage = self.get("api/mcp/clients", &query).await?;
            servers.extend(page.clients.into_iter().map(|client| ServerSummary {
                name: client.config.name,
                state: client.state,
                reason: client.reason,
                tools: client.tools.len(),
                has_connected: client.protocol_version.is_some(),
                process_usage: client.process_usage,
            }));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(servers);
            }
        }
    }

    /// Returns the names of unavailable servers with their states.
    pub(crate) async fn unavailable_servers(&self) -> anyhow::Result<Vec<(String, String)>> {
        let unavailable = self.list_servers().await?.into_iter();
        let unavailable = unavailable
            .filter(|server| !matches!(server.state.as_str(), "healthy" | "disabled" | "asleep"));
        Ok(unavailable
            .map(|server| {
                let state = format_state(&server.state, server.reason.as_deref());
                (server.name, state)
            })
            .collect())
    }

    /// Sends a GET request and parses the JSON response.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> anyhow::Result<T> {
        let mut url = self.url(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        parse_response(&self.send_for_text(self.client.get(url)).await?)
    }

    /// Lists the items of all pages, which each have them under `member`; at most `max` of them.
    pub(crate) async fn list_items(
        &self,
        path: &str,
        member: &str,
        query: &[(&str, &str)],
        max: usize,
    ) -> anyhow::Result<Vec<Value>> {
        let mut items = Vec::new();
        let mut cursor: Option<String> = None;
        while items.len() < max {
            let limit = (max - items.len()).min(MAX_PAGE_SIZE).to_string();
            let mut query = query.to_vec();
            query.push(("limit", &limit));
            query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
            let mut page: Value = self.get(path, &query).await?;
            if let Value::Array(page) = page[member].take() {
                items.extend(page);
            }
            match page["next_cursor"].take() {
                Value::String(next) => cursor = Some(next),
                _ => break,
            }
        }
        Ok(items)
    }

    /// Sends a JSON body and parses the JSON response.
    pub(crate) async fn send_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<T> {
        let request = self.client.request(method, self.url(path)?);
        let request = request
            .header("content-type", "application/json")
            .body(body.to_string());
        parse_response(&self.send_for_text(request).await?)
    }

    /// Calls a tool; fetches the full result if it was truncated.
    pub(crate) async fn call_tool(
        &self,
        name: &str,
        arguments: &RawValue,
    ) -> anyhow::Result<ToolMessage> {
        let call = serde_json::json!({
            "id": "cli",
            "type": "function",
            "function": {"name": name, "arguments": arguments.get()},
        });
        let request = self.client.post(self.url("v1/mcp/tool/execute")?);
        let request = request
            .header("content-type", "application/json")
            .body(call.to_string());
        let mut message: ToolMessage = parse_response(&self.send_for_text(request).await?)?;
        if let Some(handle) = message.result_handle.take() {
            message.content = MessageContent::Text(self.read_full_result(&handle).await?);
        }
        Ok(message)
    }

    /// Reads the full text of a truncated result.
    pub(crate) async fn read_full_result(&self, handle: &str) -> anyhow::Result<String> {
        let path = format!("v1/mcp/results/{handle}");
        let mut text = String::new();
        let mut offset = Some(0);
        while let Some(at) = offset {
            let part: ResultPart = self.get(&path, &[("offset", &at.to_string())]).await?;
            text.push_str(&part.text);
            offset = part.next_offset;
        }
        Ok(text)
    }

    /// Imports the servers of a settings file.
    pub(crate) async fn import(&self, text: &str) -> anyhow::Result<ImportResult> {
        let request = self
            .client
            .post(self.url("api/mcp/import")?)
            .header("content-type", "application/json")
            .body(text.to_owned());
        parse_response(&self.send_for_text(request).await?)
    }

    /// Opens an event stream that includes events about tool calls.
    pub(crate) async fn open_stream(&self, path: &str, body: &Value) -> anyhow::Result<Response> {
        let request = self.client.post(self.url(path)?);
        let request = request
            .header("content-type", "application/json")
            .body(body.to_string());
        let response = self.send(request.header("x-toolgate-events", "on")).await?;
        if response.status().is_success() {
            Ok(response)
        } else {
            Err(response_error(response.status(), &response.text().await?))
        }
    }

    async fn send(&self, mut request: RequestBuilder) -> anyhow::Result<Response> {
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        request.send().await.with_context(|| {
            format!(
                "no gateway is running at {}; start one with `toolgate serve`, set another URL with --url, or use --config to run without one",
                self.base_url
            )
        })
    }

    async fn send_for_text(&self, request: RequestBuilder) -> anyhow::Result<String> {
        let response = self.send(request).await?;
        let status = response.status();
        let text = response.text().await?;
        if status.is_success() {
            Ok(text)
        } else {
            Err(response_error(status, &text))
        }
    }

    fn url(&self, path: &str) -> anyhow::Result<Url> {
        let mut base = self.base_url.clone();
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Ok(base.join(path)?)
    }
}

/// Returns whether a URL is certainly one of this machine.
pub(crate) fn is_local(url: &Url) -> bool {
    matches!(url.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// Converts an error response of the gateway.
fn response_error(status: StatusCode, text: &str) -> anyhow::Error {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let message = body["error"]["message"].as_str().unwrap_or(text);
    let message = if status == StatusCode::UNAUTHORIZED {
        format!(
            "{message}; set TOOLGATE_KEY to a key, or TOOLGATE_DATA_DIR to the data directory of a gateway that generated its admin key"
        )
    } else {
        format!("the gateway responded with {status}: {message}")
    };
    ErrorResponse { status, message }.into()
}

/// Returns whether the gateway refused a request because the key lacks permission for it.
pub(crate) fn is_forbidden(error: &anyhow::Error) -> bool {
    let response = error.downcast_ref::<ErrorResponse>();
    response.is_some_and(|response| {
        matches!(
            response.status,
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
        )
    })
}

fn parse_response<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    serde_json::from_str(text)
        .context("cannot parse the gateway's response; its version may differ from this command's")
}

/// Formats a state and its reason.
pub(crate) fn format_state(state: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{state}: {reason}"),
        None => state.to_owned(),
    }
}
