//! Logging and tracing. Logs go to standard error, human-readable on a terminal and as JSON otherwise.
//! Traces are exported if the OpenTelemetry environment variables configure an endpoint.

mod export;
mod otel_tracer;
mod request;

use std::borrow::Cow;
use std::io::IsTerminal as _;

use anyhow::Context as _;
use clap::ValueEnum;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
pub(crate) use otel_tracer::OtelTracer;
pub(crate) use request::RequestSpan;
use toolgate::Environment;
use toolgate::trace::TARGET;
use tracing::Subscriber;
use tracing::subscriber::with_default;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::{LevelFilter, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::{SubscriberInitExt as _, TryInitError};
use tracing_subscriber::{EnvFilter, Layer, fmt, registry};

#[derive(Clone, Copy, Debug, Default, ValueEnum)]
pub(crate) enum LogFormat {
    /// `human` on a terminal, otherwise `json`
    #[default]
    Auto,
    Human,
    Json,
}

/// Log filter and format.
#[derive(Debug)]
pub(crate) struct LogSettings<'a> {
    pub(crate) filter: &'a str,
    pub(crate) format: LogFormat,
}

/// The running trace export, if enabled.
#[derive(Debug)]
pub(crate) struct TraceExport(Option<SdkTracerProvider>);

impl LogSettings<'_> {
    /// Starts logging without tracing.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let filter = self.env_filter()?;
        // A global filter: disabled spans are not even created.
        check_init(registry().with(self.log_layer()).with(filter).try_init())
    }

    /// Starts logging, and trace export if the environment configures it. Must run in a Tokio runtime.
    pub(crate) fn start_with_traces(
        &self,
        environment: &Environment,
    ) -> anyhow::Result<TraceExport> {
        if !export::is_enabled(environment) {
            self.start()?;
            return Ok(TraceExport(None));
        }
        // Log warnings about the variables before the global subscriber exists.
        let early = registry().with(self.log_layer()).with(self.env_filter()?);
        let provider = with_default(early, || export::build_provider(environment))?;
        let traces = otel_layer(provider.tracer("toolgate"));
        let wanted = filter_fn(|metadata| metadata.target() == TARGET);
        let traces = traces.with_filter(wanted.with_max_level_hint(LevelFilter::INFO));
        let lines = self.log_layer().with_filter(self.env_filter()?);
        check_init(registry().with(lines).with(traces).try_init())?;
        Ok(TraceExport(Some(provider)))
    }

    /// Builds the log filter, which excludes the spans meant for traces.
    fn env_filter(&self) -> anyhow::Result<EnvFilter> {
        let filter = EnvFilter::try_new(expand_level(self.filter)).with_context(|| {
            format!(
                "`{}` is not a valid log filter; try `info` or `toolgate_mcp=debug,info`",
                self.filter
            )
        })?;
        Ok(filter.add_directive(format!("{TARGET}=off").parse()?))
    }

    fn log_layer<S>(&self) -> Box<dyn Layer<S> + Send + Sync>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        let terminal = std::io::stderr().is_terminal();
        let lines = fmt::layer().with_writer(std::io::stderr);
        match self.format {
            LogFormat::Json => lines.json().flatten_event(true).boxed(),
            LogFormat::Auto if !terminal => lines.json().flatten_event(true).boxed(),
            LogFormat::Auto | LogFormat::Human => {
                lines.with_ansi(terminal).with_target(false).boxed()
            }
        }
    }
}

/// Limits a bare `debug` or `trace` to Toolgate's own crates; libraries are far more verbose. A filter with
/// targets, such as `debug,hyper=debug`, is taken as it is.
fn expand_level(filter: &str) -> Cow<'_, str> {
    match filter.trim() {
        level @ ("debug" | "trace") => Cow::Owned(format!("info,toolgate={level}")),
        filter => Cow::Borrowed(filter),
    }
}

impl TraceExport {
    /// Returns the tracer that links the gateway's spans to traces, or `None` if tracing is off.
    pub(crate) fn tracer(&self) -> Option<OtelTracer> {
        self.0.as_ref().map(|_| OtelTracer)
    }

    /// Exports the remaining spans.
    pub(crate) async fn stop(self) {
        if let Some(provider) = self.0 {
            export::flush(provider).await;
        }
    }
}

fn check_init(result: Result<(), TryInitError>) -> anyhow::Result<()> {
    result.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}

/// Builds the layer that converts spans to OpenTelemetry spans with their fields only, without code
/// locations and threads. Without context activation a span starts late, so that its parent and name
/// can still be set.
fn otel_layer<S>(tracer: SdkTracer) -> OpenTelemetryLayer<S, SdkTracer>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    OpenTelemetryLayer::new(tracer)
        .with_context_activation(false)
        .with_location(false)
        .with_target(false)
        .with_threads(false)
        .with_tracked_inactivity(false)
}
