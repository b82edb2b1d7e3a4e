//! Logs: for people on a terminal, as JSON otherwise; always on standard error. And traces, for
//! those who set the variables of OpenTelemetry.

mod bridge;
mod export;
mod request;

use std::io::IsTerminal as _;

use anyhow::Context as _;
pub(crate) use bridge::Bridge;
use clap::ValueEnum;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
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
    /// `human` on a terminal, else `json`.
    #[default]
    Auto,
    Human,
    Json,
}

/// What is logged, and how.
#[derive(Debug)]
pub(crate) struct Logs<'a> {
    pub(crate) filter: &'a str,
    pub(crate) format: LogFormat,
}

/// Traces on their way to where they are collected, if anywhere.
#[derive(Debug)]
pub(crate) struct Traces(Option<SdkTracerProvider>);

impl Logs<'_> {
    /// Logs, and traces nothing.
    pub(crate) fn start(&self) -> anyhow::Result<()> {
        let filter = self.filter()?;
        // The filter is for all, so that spans that nobody wants are not even made.
        started(registry().with(self.lines()).with(filter).try_init())
    }

    /// Logs, and traces if the environment says where to. Needs a runtime.
    pub(crate) fn start_with_traces(&self, environment: &Environment) -> anyhow::Result<Traces> {
        if !export::is_wanted(environment) {
            self.start()?;
            return Ok(Traces(None));
        }
        // What is wrong with the variables is logged before there is a log for all.
        let early = registry().with(self.lines()).with(self.filter()?);
        let provider = with_default(early, || export::provider(environment))?;
        let traces = layer(provider.tracer("toolgate"));
        let wanted = filter_fn(|metadata| metadata.target() == TARGET);
        let traces = traces.with_filter(wanted.with_max_level_hint(LevelFilter::INFO));
        let lines = self.lines().with_filter(self.filter()?);
        started(registry().with(lines).with(traces).try_init())?;
        Ok(Traces(Some(provider)))
    }

    /// Spans that are meant for traces are nothing for logs.
    fn filter(&self) -> anyhow::Result<EnvFilter> {
        let filter = EnvFilter::try_new(self.filter).with_context(|| {
            format!(
                "`{}` is no log filter; try `info` or `toolgate_mcp=debug,info`",
                self.filter
            )
        })?;
        Ok(filter.add_directive(format!("{TARGET}=off").parse()?))
    }

    fn lines<S>(&self) -> Box<dyn Layer<S> + Send + Sync>
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

impl Traces {
    /// Tells the gateway the contexts of its spans; none if nothing is traced.
    pub(crate) fn tracer(&self) -> Option<Bridge> {
        self.0.as_ref().map(|_| Bridge)
    }

    /// Sends what has not been sent yet.
    pub(crate) async fn stop(self) {
        if let Some(provider) = self.0 {
            export::flush(provider).await;
        }
    }
}

fn started(result: Result<(), TryInitError>) -> anyhow::Result<()> {
    result.map_err(|error| anyhow::anyhow!("the log cannot be started: {error}"))
}

/// Makes spans of OpenTelemetry from ours: their fields, and nothing about this program's inside.
/// They are begun as late as possible, because only then can they still be named.
fn layer<S>(tracer: SdkTracer) -> OpenTelemetryLayer<S, SdkTracer>
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
