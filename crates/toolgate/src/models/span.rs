//! Spans of model requests, which end together with the response.

use std::time::Duration;

use toolgate_llm::endpoint::Endpoint;
use toolgate_llm::event::FinishReason;
use tracing::Span;
use tracing::field::Empty;

use super::table::ModelTarget;
use super::{ModelError, ModelRecord, Operation};
use crate::trace::{TARGET, mark_failed};

/// Span of a model request.
#[derive(Debug)]
pub(super) struct ModelSpan {
    pub(super) span: Span,
    finish_reason: Option<String>,
    /// Error code if there was no response.
    error_code: Option<&'static str>,
}

impl ModelSpan {
    pub(super) fn start(operation: Operation, target: &ModelTarget, stream: bool) -> Self {
        Self {
            span: new_span(operation, target, stream),
            finish_reason: None,
            error_code: None,
        }
    }

    /// Records that there is no response.
    pub(super) fn record_failure(&mut self, error: &ModelError) {
        self.error_code = Some(error.code());
    }

    /// Records the finish reason as the provider spelled it; computed only if the span is enabled.
    pub(super) fn record_finish_reason<'a>(&mut self, reason: impl FnOnce() -> Option<&'a str>) {
        if !self.span.is_disabled() {
            self.finish_reason = reason().map(str::to_owned);
        }
    }

    /// Records the finish reason in the terms of Chat Completions.
    pub(super) fn record_finish(&mut self, finish: &FinishReason) {
        self.record_finish_reason(|| {
            Some(match finish {
                FinishReason::Stop | FinishReason::StopSequence(_) => "stop",
                FinishReason::Length => "length",
                FinishReason::ToolCalls => "tool_calls",
                FinishReason::ContentFilter => "content_filter",
                FinishReason::Other(reason) => reason,
            })
        });
    }

    /// Records the outcome of the request.
    pub(super) fn close(&self, record: &ModelRecord) {
        let span = &self.span;
        if span.is_disabled() {
            return;
        }
        span.record(
            "gen_ai.response.finish_reasons",
            self.finish_reason.as_deref(),
        );
        if let Some(micros) = record.first_byte_us {
            let delay = Duration::from_micros(micros.unsigned_abs());
            span.record("gen_ai.response.time_to_first_chunk", delay.as_secs_f64());
        }
        if let Some(usage) = &record.usage {
            let count = |tokens: u64| i64::try_from(tokens).unwrap_or(i64::MAX);
            let non_zero = |tokens: u64| (tokens > 0).then(|| count(tokens));
            span.record("gen_ai.usage.input_tokens", count(usage.input));
            span.record("gen_ai.usage.output_tokens", count(usage.output));
            span.record(
                "gen_ai.usage.cache_read.input_tokens",
                non_zero(usage.cached),
            );
            span.record(
                "gen_ai.usage.reasoning.output_tokens",
                non_zero(usage.reasoning),
            );
        }
        if record.status > 0 {
            span.record("http.response.status_code", i64::from(record.status));
        }
        match (record.outcome.as_str(), self.error_code) {
            ("ok", _) => {}
            (_, Some(code)) => mark_failed(span, code),
            ("error", None) => mark_failed(span, &record.status.to_string()),
            (outcome, None) => mark_failed(span, outcome),
        }
    }
}

fn new_span(operation: Operation, target: &ModelTarget, stream: bool) -> Span {
    tracing::info_span!(
        target: TARGET,
        "model",
        "otel.name" = format!("{} {}", operation_name(operation), target.model),
        "otel.kind" = "client",
        "otel.status_code" = Empty,
        "gen_ai.operation.name" = operation_name(operation),
        "gen_ai.provider.name" = provider_name(&target.upstream.name),
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

fn operation_name(operation: Operation) -> &'static str {
    match operation {
        Operation::Complete => "chat",
        Operation::CountTokens => "count_tokens",
        Operation::Forward(Endpoint::Completions) => "text_completion",
        Operation::Forward(endpoint) => endpoint.path(),
        Operation::StoredResponse => "stored_response",
    }
}

/// Maps a provider to its name in OpenTelemetry's conventions.
fn provider_name(name: &str) -> &str {
    match name {
        "azure" => "azure.ai.openai",
        "gemini" => "gcp.gemini",
        "mistral" => "mistral_ai",
        "xai" => "x_ai",
        name => name,
    }
}
