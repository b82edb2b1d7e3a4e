//! The span of a request to a model, which ends when the answer has.

use std::time::Duration;

use toolgate_llm::event::Finish;
use tracing::Span;
use tracing::field::Empty;

use super::{TARGET, fail};
use crate::models::{ModelError, ModelRecord, Operation, Target};

/// A request to a model, as it is traced.
#[derive(Debug)]
pub(crate) struct ModelSpan {
    pub(crate) span: Span,
    finish: Option<String>,
    /// Why there was no answer.
    failure: Option<&'static str>,
}

impl ModelSpan {
    pub(crate) fn begin(operation: Operation, target: &Target, stream: bool) -> Self {
        Self {
            span: span(operation, target, stream),
            finish: None,
            failure: None,
        }
    }

    /// There is no answer.
    pub(crate) fn failed(&mut self, error: &ModelError) {
        self.failure = Some(error.word());
    }

    /// Why the answer ended, in the provider's words.
    pub(crate) fn ended<'a>(&mut self, reason: impl FnOnce() -> Option<&'a str>) {
        if !self.span.is_disabled() {
            self.finish = reason().map(str::to_owned);
        }
    }

    /// Why the answer ended, in the words of Chat Completions.
    pub(crate) fn finished(&mut self, finish: &Finish) {
        self.ended(|| {
            Some(match finish {
                Finish::Stop | Finish::Sequence(_) => "stop",
                Finish::Length => "length",
                Finish::Calls => "tool_calls",
                Finish::Filter => "content_filter",
                Finish::Other(reason) => reason,
            })
        });
    }

    /// Notes what came of it.
    pub(crate) fn close(&self, record: &ModelRecord) {
        let span = &self.span;
        if span.is_disabled() {
            return;
        }
        span.record("gen_ai.response.finish_reasons", self.finish.as_deref());
        if let Some(micros) = record.first_byte_us {
            let after = Duration::from_micros(micros.unsigned_abs());
            span.record("gen_ai.response.time_to_first_chunk", after.as_secs_f64());
        }
        if let Some(usage) = &record.usage {
            let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
            let some = |tokens: u64| (tokens > 0).then(|| count(tokens));
            span.record("gen_ai.usage.input_tokens", count(usage.input));
            span.record("gen_ai.usage.output_tokens", count(usage.output));
            span.record("gen_ai.usage.cache_read.input_tokens", some(usage.cached));
            span.record(
                "gen_ai.usage.reasoning.output_tokens",
                some(usage.reasoning),
            );
        }
        if record.status > 0 {
            span.record("http.response.status_code", i64::from(record.status));
        }
        match (record.outcome.as_str(), self.failure) {
            ("ok", _) => {}
            (_, Some(failure)) => fail(span, failure),
            ("error", None) => fail(span, &record.status.to_string()),
            (outcome, None) => fail(span, outcome),
        }
    }
}

fn span(operation: Operation, target: &Target, stream: bool) -> Span {
    tracing::info_span!(
        target: TARGET,
        "model",
        "otel.name" = format!("{} {}", word(operation), target.model),
        "otel.kind" = "client",
        "otel.status_code" = Empty,
        "gen_ai.operation.name" = word(operation),
        "gen_ai.provider.name" = provider(&target.upstream.name),
        "gen_ai.request.model" = target.model,
        "gen_ai.request.stream" = stream,
        "gen_ai.response.finish_reasons" = Empty,
        "gen_ai.response.time_to_first_chunk" = Empty,
        "gen_ai.usage.input_tokens" = Empty,
        "gen_ai.usage.output_tokens" = Empty,
        "gen_ai.usage.cache_read.input_tokens" = Empty,
        "gen_ai.usage.reasoning.output_tokens" = Empty,
        "http.response.status_code" = Empty,
        "server.address" = target.upstream.host(),
        "server.port" = target.upstream.port().map(i64::from),
        "error.type" = Empty,
    )
}

fn word(operation: Operation) -> &'static str {
    match operation {
        Operation::Complete => "chat",
        Operation::CountTokens => "count_tokens",
    }
}

/// A provider as the conventions know it.
fn provider(name: &str) -> &str {
    match name {
        "azure" => "azure.ai.openai",
        "gemini" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        name => name,
    }
}
