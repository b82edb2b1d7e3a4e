//! Sends traces to a collector: OTLP over HTTP, in protobuf.
//!
//! Where to, how often and which of them is said by the variables of OpenTelemetry, which its
//! libraries read by themselves; here it is only decided whether to start at all.

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
const SPOKEN: &str = "http/protobuf";
const TIMEOUTS: [&str; 2] = [
    "OTEL_EXPORTER_OTLP_TRACES_TIMEOUT",
    "OTEL_EXPORTER_OTLP_TIMEOUT",
];
const TIMEOUT: Duration = Duration::from_secs(10);
/// How long the last spans may take when the gateway ends.
const LAST: Duration = Duration::from_secs(5);
/// Several values, which a field of ours holds as one.
const LISTS: [&str; 1] = ["gen_ai.response.finish_reasons"];

/// Whether the environment says where to send traces.
pub(super) fn is_wanted(environment: &Environment) -> bool {
    let says = |name: &str, word: &str| {
        environment
            .get(name)
            .is_some_and(|value| value.trim().eq_ignore_ascii_case(word))
    };
    let off = says("OTEL_SDK_DISABLED", "true") || says("OTEL_TRACES_EXPORTER", "none");
    !off && first(environment, ENDPOINTS).is_some()
}

/// Makes traces and sends them.
pub(super) fn provider(environment: &Environment) -> anyhow::Result<SdkTracerProvider> {
    if let Some(wanted) = first(environment, PROTOCOLS).filter(|wanted| wanted != SPOKEN) {
        tracing::warn!("traces are sent as `{SPOKEN}`; `{wanted}` is not spoken here");
    }
    let exporter = opentelemetry_otlp::SpanExporter::builder()
        .with_http()
        .with_protocol(Protocol::HttpBinary)
        .with_http_client(Client::new(environment)?)
        .build()
        .context("traces cannot be exported; look at the variables `OTEL_EXPORTER_OTLP_*`")?;
    Ok(SdkTracerProvider::builder()
        .with_resource(resource(environment))
        .with_batch_exporter(Shaped(exporter))
        .build())
}

pub(super) async fn flush(provider: SdkTracerProvider) {
    // It waits for a thread of its own, which needs this runtime to send.
    let flushed = tokio::task::spawn_blocking(move || provider.shutdown_with_timeout(LAST));
    if let Ok(Err(error)) = flushed.await {
        tracing::warn!(%error, "the last traces could not be sent");
    }
}

/// The first of these variables that says something.
fn first(environment: &Environment, names: [&str; 2]) -> Option<String> {
    let mut values = names.into_iter().filter_map(|name| environment.get(name));
    values.find(|value| !value.trim().is_empty())
}

/// Who sends.
fn resource(environment: &Environment) -> Resource {
    let version = KeyValue::new("service.version", env!("CARGO_PKG_VERSION"));
    let builder = Resource::builder().with_attribute(version);
    let attributes = environment.get("OTEL_RESOURCE_ATTRIBUTES");
    let named = first(environment, ["OTEL_SERVICE_NAME"; 2]).is_some()
        || attributes.is_some_and(|attributes| attributes.contains("service.name="));
    match named {
        true => builder.build(),
        false => builder.with_service_name("toolgate").build(),
    }
}

/// Sends on the gateway's runtime, since whoever wants to send has none.
#[derive(Debug)]
struct Client {
    client: reqwest::Client,
    runtime: Handle,
}

impl Client {
    fn new(environment: &Environment) -> anyhow::Result<Self> {
        // Fails only if one is installed already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let millis = first(environment, TIMEOUTS).and_then(|millis| millis.parse().ok());
        let client = reqwest::Client::builder()
            .user_agent(concat!("toolgate/", env!("CARGO_PKG_VERSION")))
            .timeout(millis.map_or(TIMEOUT, Duration::from_millis))
            .redirect(reqwest::redirect::Policy::none());
        Ok(Self {
            client: client.build()?,
            runtime: Handle::current(),
        })
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        let sent = self.runtime.spawn(async move {
            let mut response = client.execute(request.try_into()?).await?;
            let mut answer = Response::builder().status(response.status());
            if let Some(headers) = answer.headers_mut() {
                std::mem::swap(headers, response.headers_mut());
            }
            Ok::<_, HttpError>(answer.body(response.bytes().await?)?)
        });
        sent.await?
    }
}

/// Gives attributes the types that the conventions want, which fields cannot have.
#[derive(Debug)]
struct Shaped<E>(E);

impl<E: SpanExporter> SpanExporter for Shaped<E> {
    async fn export(&self, mut batch: Vec<SpanData>) -> OTelSdkResult {
        for attribute in batch.iter_mut().flat_map(|span| &mut span.attributes) {
            if let Value::String(only) = &attribute.value
                && LISTS.contains(&attribute.key.as_str())
            {
                let list: Vec<StringValue> = vec![only.clone()];
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
