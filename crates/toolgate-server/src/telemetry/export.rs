//! Exports traces to a collector: OTLP over HTTP, encoded as protobuf.
//!
//! The OpenTelemetry libraries read endpoint, interval and sampling from the environment themselves;
//! this module decides whether to export at all.

use std::time::Duration;

use anyhow::Context as _;
use async_trait::async_trait;
use opentelemetry::{Array, KeyValue, StringValue, Value};
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{Protocol, WithExportConfig as _, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{SdkTracerProvider, SpanData, SpanExporter};
use tokio::runtime::Handle;
use toolgate::Environment;

const ENDPOINTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT",
    "OTEL_EXPORTER_OTLP_ENDPOINT",
];
const PROTOCOLS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL",
    "OTEL_EXPORTER_OTLP_PROTOCOL",
];
const SUPPORTED_PROTOCOL: &str = "http/protobuf";
const TIMEOUTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
];
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum time to export the remaining spans at shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
/// Attributes that are lists by convention but single strings in span fields.
const LIST_ATTRIBUTES: [&str; 1] = ["gen_ai.response.finish_reasons"];

/// Returns whether the environment enables trace export.
pub(super) fn is_enabled(environment: &Environment) -> bool {
    let is_set_to = |name: &str, word: &str| {
        environment
            .get(name)
            .is_some_and(|value| value.trim().eq_ignore_ascii_case(word))
    };
    let disabled =
        is_set_to("OTEL_SDK_DISABLED", "true") || is_set_to("OTEL_TRACES_EXPORTER", "none");
    !disabled && first_set(environment, ENDPOINTS).is_some()
}

/// Builds the tracer provider with the exporter.
pub(super) fn build_provider(environment: &Environment) -> anyhow::Result<SdkTracerProvider> {
    let protocol = first_set(environment, PROTOCOLS);
    if let Some(protocol) = protocol.filter(|protocol| protocol != SUPPORTED_PROTOCOL) {
        tracing::warn!(
            protocol,
            supported = SUPPORTED_PROTOCOL,
            "unsupported OTLP protocol; exporting traces with the supported one"
        );
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(ExportClient::new(environment)?)
        .build()
        .context("cannot export traces; check the variables `OTEL_EXPORTER_OTLP_*`")?;
    Ok(SdkTracerProvider::builder()
        .with_resource(build_resource(environment))
        .with_batch_exporter(ListAttributeExporter(exporter))
        .build())
}

pub(super) async fn flush(provider: SdkTracerProvider) {
    // Shutdown blocks on the exporter's thread, which in turn needs this runtime to send.
    let flushed =
        tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(FLUSH_TIMEOUT));
    if let Ok(Err(error)) = flushed.await {
        tracing::warn!(%error, "failed to export the remaining traces");
    }
}

/// Returns the value of the first variable that is set and not blank.
fn first_set(environment: &Environment, names: [&str; 2]) -> Option<String> {
    let mut values = names.into_iter().filter_map(|name| environment.get(name));
    values.find(|value| !value.trim().is_empty())
}

/// Builds the resource that identifies this service in traces.
fn build_resource(environment: &Environment) -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder().with_attribute(version);
    let attributes = environment.get("OTEL_RESOURCE_ATTRIBUTES");
    let has_name = first_set(environment, ["OTEL_SERVICE_NAME"; 2]).is_some()
        || attributes.is_some_and(|attributes| attributes.contains("service.name="));
    if has_name {
        builder.build()
    } else {
        builder.with_service_name("toolgate").build()
    }
}

/// HTTP client that sends on the gateway's runtime, because the exporter's thread has none.
#[derive(Debug)]
struct ExportClient {
    client: reqwest::Client,
    runtime: Handle,
}

impl ExportClient {
    fn new(environment: &Environment) -> anyhow::Result<Self> {
        // Fails only if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let millis = first_set(environment, TIMEOUTS).and_then(|millis| millis.parse().ok());
        let client = reqwest::Client::builder()
            .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
            .timeout(millis.map_or(DEFAULT_TIMEOUT, Duration::from_millis))
            .redirect(reqwest::redirect::Policy::none());
        Ok(Self {
            client: client.build()?,
            runtime: Handle::current(),
        })
    }
}

#[async_trait]
impl HttpClient for ExportClient {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let mut response = client.execute(request.try_into()?).await?;
            let mut converted = Response::builder().status(response.status());
            if let Some(headers) = converted.headers_mut() {
                std::mem::swap(headers, response.headers_mut());
            }
            Ok::<_, HttpError>(converted.body(response.bytes().await?)?)
        });
        sent.await?
    }
}

/// Converts attributes to lists where the conventions require it, because span fields cannot be lists.
#[derive(Debug)]
struct ListAttributeExporter<E>(E);

impl<E: SpanExporter> SpanExporter for ListAttributeExporter<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for attribute in batch.iter_mut().flat_map(|span| &mut span.attributes) {
            if let Value::String(item) = &attribute.value
                && LIST_ATTRIBUTES.contains(&attribute.key.as_str())
            {
                let list: Vec<StringValue> = vec![item.clone()];
                attribute.value = Value::Array(Array::String(list));
            }
        }
        self.0.export(batch).await
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.0.shutdown_with_timeout(timeout)
    }

    fn force_flush(&self) -> OTelSdkResult {
        self.0.force_flush()
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.0.set_resource(resource);
    }
}
