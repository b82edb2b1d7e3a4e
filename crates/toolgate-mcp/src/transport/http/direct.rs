//! Requests to servers that are reached without TLS and without a proxy, by hyper alone. What
//! reqwest has around it is of no use to them, and takes a fifteenth of what a tool call costs.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Request, Uri};
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use reqwest::{Body, Response, ResponseBuilderExt as _};
use url::Url;

use super::{lost, not_sent};
use crate::transport::RequestError;

/// How long a connection is kept for the next request.
const IDLE: Duration = Duration::from_secs(90);

/// Connections that servers share; clones share them too.
#[derive(Clone, Debug)]
pub(super) struct Direct(Client<HttpConnector, Full<Bytes>>);

/// An address that needs nothing more.
#[derive(Clone, Debug)]
pub(super) struct Address {
    pub(super) direct: Direct,
    pub(super) uri: Uri,
}

impl Direct {
    pub(super) fn new(connect_timeout: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(connect_timeout));
        connector.set_nodelay(true);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Self(client)
    }
}

impl Address {
    /// `url` is the same address, as answers name it.
    pub(super) async fn post(
        &self,
        url: &Url,
        headers: HeaderMap,
        body: Bytes,
    ) -> Result<Response, RequestError> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri.clone();
        *request.headers_mut() = headers;
        let answer = self.direct.0.request(request).await;
        let answer = answer.map_err(|error| match error.is_connect() {
            true => not_sent(&error),
            false => lost(&error),
        })?;
        let (head, body) = answer.into_parts();
        let mut named = http::Response::builder().url(url.clone());
        if let Some(headers) = named.headers_mut() {
            *headers = head.headers;
        }
        let response = named.status(head.status).body(Body::wrap(body));
        Ok(response.unwrap_or_default().into())
    }
}
