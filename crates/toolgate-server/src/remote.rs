//! A running gateway, as the command line sees it.

use anyhow::{Context as _, anyhow};
use reqwest::{Client, Method, RequestBuilder, Response, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_json::value::RawValue;
use url::Url;

use crate::http::admin::changes::ImportResult;
use crate::http::admin::tools::{ToolEntry, ToolPage};
use crate::http::execute::{Content, ToolMessage};
use crate::http::results::ResultPart;

#[derive(Debug)]
pub(crate) struct Remote {
    client: Client,
    base: Url,
    key: Option<String>,
}

impl Remote {
    pub(crate) fn new(base: Url, key: Option<String>) -> anyhow::Result<Self> {
        // Fails only if one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        // The key is for the gateway alone.
        let local = matches!(base.host_str(), Some("localhost" | "127.0.0.1" | "[::1]"));
        let builder = Client::builder();
        let builder = if local { builder.no_proxy() } else { builder };
        let client = builder.build().context("cannot set up the HTTP client")?;
        Ok(Self { client, base, key })
    }

    /// All tools, all pages.
    pub(crate) async fn tools(&self) -> anyhow::Result<Vec<ToolEntry>> {
        let mut tools = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let mut url = self.url("api/mcp/tools")?;
            url.query_pairs_mut().append_pair("limit", "1000");
            if let Some(cursor) = &cursor {
                url.query_pairs_mut().append_pair("cursor", cursor);
            }
            let page: ToolPage = understood(&self.send(self.client.get(url)).await?)?;
            tools.extend(page.tools);
            cursor = page.next_cursor;
            if cursor.is_none() {
                return Ok(tools);
            }
        }
    }

    /// Servers that cannot be used, and why.
    pub(crate) async fn away(&self) -> anyhow::Result<Vec<(String, String)>> {
        let mut url = self.url("api/mcp/clients")?;
        url.query_pairs_mut().append_pair("limit", "1000");
        let page: Value = serde_json::from_str(&self.send(self.client.get(url)).await?)?;
        let clients = page["clients"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let mut away = Vec::new();
        for client in clients {
            let state = client["state"].as_str().unwrap_or_default();
            if !matches!(state, "healthy" | "disabled" | "asleep") {
                let name = client["config"]["name"].as_str().unwrap_or_default();
                away.push((name.to_owned(), describe(state, client["reason"].as_str())));
            }
        }
        Ok(away)
    }

    /// What a path of the API answers with.
    pub(crate) async fn get<T: DeserializeOwned>(
        &self,
        path: &str,
        query: &[(&str, &str)],
    ) -> anyhow::Result<T> {
        let mut url = self.url(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        understood(&self.send(self.client.get(url)).await?)
    }

    /// Sends a body to a path of the API.
    pub(crate) async fn write<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &Value,
    ) -> anyhow::Result<T> {
        let request = self.client.request(method, self.url(path)?);
        let request = request
            .header("content-type", "application/json")
            .body(body.to_string());
        understood(&self.send(request).await?)
    }

    pub(crate) async fn call(
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
        let mut message: ToolMessage = understood(&self.send(request).await?)?;
        if let Some(handle) = message.result_handle.take() {
            message.content = Content::Text(self.whole(&handle).await?);
        }
        Ok(message)
    }

    /// All of a result that was too large for one answer.
    async fn whole(&self, handle: &str) -> anyhow::Result<String> {
        let path = format!("v1/mcp/results/{handle}");
        let mut whole = String::new();
        let mut offset = Some(0);
        while let Some(at) = offset {
            let part: ResultPart = self.get(&path, &[("offset", &at.to_string())]).await?;
            whole.push_str(&part.text);
            offset = part.next_offset;
        }
        Ok(whole)
    }

    /// Adds the servers of a settings file.
    pub(crate) async fn import(&self, text: &str) -> anyhow::Result<ImportResult> {
        let request = self
            .client
            .post(self.url("api/mcp/import")?)
            .body(text.to_owned());
        understood(&self.send(request).await?)
    }

    /// An answer that comes in pieces, with events that tell of tool calls.
    pub(crate) async fn stream(&self, path: &str, body: &Value) -> anyhow::Result<Response> {
        let request = self.client.post(self.url(path)?).body(body.to_string());
        let response = self
            .reach(request.header("x-toolgate-events", "on"))
            .await?;
        match response.status().is_success() {
            true => Ok(response),
            false => Err(refusal(response.status(), &response.text().await?)),
        }
    }

    async fn reach(&self, mut request: RequestBuilder) -> anyhow::Result<Response> {
        if let Some(key) = &self.key {
            request = request.bearer_auth(key);
        }
        request.send().await.with_context(|| {
            format!(
                "no gateway answers at {}; start one with `toolgate serve`, name another with --url, or use --config to work without one",
                self.base
            )
        })
    }

    async fn send(&self, request: RequestBuilder) -> anyhow::Result<String> {
        let response = self.reach(request).await?;
        let status = response.status();
        let text = response.text().await?;
        match status.is_success() {
            true => Ok(text),
            false => Err(refusal(status, &text)),
        }
    }

    fn url(&self, path: &str) -> anyhow::Result<Url> {
        let mut base = self.base.clone();
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        Ok(base.join(path)?)
    }
}

/// What a gateway said instead of an answer.
fn refusal(status: StatusCode, text: &str) -> anyhow::Error {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let message = body["error"]["message"].as_str().unwrap_or(text);
    match status == StatusCode::UNAUTHORIZED {
        true => anyhow!("{message}; give it with --key or TOOLGATE_KEY"),
        false => anyhow!("the gateway answered {status}: {message}"),
    }
}

fn understood<T: DeserializeOwned>(text: &str) -> anyhow::Result<T> {
    serde_json::from_str(text).context("the gateway's answer is not understood")
}

/// A state and the reason for it, in words.
pub(crate) fn describe(state: &str, reason: Option<&str>) -> String {
    match reason {
        Some(reason) => format!("{state}: {reason}"),
        None => state.to_owned(),
    }
}
