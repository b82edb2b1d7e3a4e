//! Metrics of model requests.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use parking_lot::Mutex;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry as Prometheus;
use toolgate_llm::event::TokenUsage;

/// Models tracked individually; further ones are counted as `other` to bound cardinality.
const MAX_TRACKED_MODELS: usize = 1000;

/// Measurements of one finished model request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelRequestSample<'a> {
    pub(crate) provider: &'a str,
    pub(crate) model: &'a str,
    /// Name of the caller's key.
    pub(crate) caller: Option<&'a str>,
    /// HTTP status of the response; 0 without a response.
    pub(crate) status: u16,
    pub(crate) outcome: &'a str,
    pub(crate) usage: Option<TokenUsage>,
    pub(crate) cost_micro_usd: Option<u64>,
    pub(crate) timing: ModelRequestTiming,
}

/// Durations of one model request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ModelRequestTiming {
    pub(crate) first_byte: Option<Duration>,
    pub(crate) total: Duration,
}

#[derive(Debug)]
pub(super) struct ModelMetrics {
    requests: Family<RequestLabels, Counter>,
    seconds: Family<ModelLabels, Histogram, fn() -> Histogram>,
    first_byte: Family<ModelLabels, Histogram, fn() -> Histogram>,
    tokens: Family<TokenLabels, Counter>,
    cost: Family<ModelLabels, Counter<f64, AtomicU64>>,
    tallies: Mutex<ModelTallies>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct ModelTallies {
    /// Statistics by provider and model.
    pub(super) models: BTreeMap<(String, String), ModelStats>,
    /// Statistics by the caller's key.
    pub(super) callers: BTreeMap<String, ModelStats>,
}

/// Usage statistics of a model or a caller.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ModelStats {
    /// Number of requests.
    pub requests: u64,
    /// Number of failed requests.
    pub errors: u64,
    /// Tokens of all requests.
    pub usage: TokenUsage,
    /// Cost in millionths of a dollar.
    pub cost_micro_usd: u64,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    provider: String,
    model: String,
    status: String,
    outcome: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ModelLabels {
    provider: String,
    model: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct TokenLabels {
    provider: String,
    model: String,
    kind: &'static str,
}

impl ModelMetrics {
    pub(super) fn new(prometheus: &mut Prometheus) -> Self {
        let metrics = Self {
            requests: Family::default(),
            seconds: Family::new_with_constructor(new_histogram as fn() -> Histogram),
            first_byte: Family::new_with_constructor(new_histogram as fn() -> Histogram),
            tokens: Family::default(),
            cost: Family::default(),
            tallies: Mutex::default(),
        };
        prometheus.register(
            "model_requests",
            "Requests to models by status and outcome",
            metrics.requests.clone(),
        );
        prometheus.register(
            "model_request_seconds",
            "Time to the end of a model response in seconds",
            metrics.seconds.clone(),
        );
        prometheus.register(
            "model_first_byte_seconds",
            "Time to the first byte of a streamed response in seconds",
            metrics.first_byte.clone(),
        );
        prometheus.register(
            "model_tokens",
            "Model tokens by kind",
            metrics.tokens.clone(),
        );
        prometheus.register(
            "model_cost_usd",
            "Cost of model requests in US dollars",
            metrics.cost.clone(),
        );
        metrics
    }

    pub(super) fn record(&self, sample: &ModelRequestSample<'_>) {
        let provider = sample.provider.to_owned();
        let model = self.add_to_tallies(sample);
        let labels = ModelLabels {
            provider: provider.clone(),
            model: model.clone(),
        };
        let request_labels = RequestLabels {
            provider: provider.clone(),
            model: model.clone(),
            status: sample.status.to_string(),
            outcome: sample.outcome.to_owned(),
        };
        self.requests.get_or_create(&request_labels).inc();
        let ModelRequestTiming { first_byte, total } = sample.timing;
        let whole = self.seconds.get_or_create(&labels);
        whole.observe(total.as_secs_f64());
        if let Some(first_byte) = first_byte {
            let first = self.first_byte.get_or_create(&labels);
            first.observe(first_byte.as_secs_f64());
        }
        let usage = sample.usage.unwrap_or_default();
        for (kind, tokens) in [
            ("input", usage.input),
            ("output", usage.output),
            ("cached", usage.cached),
            ("reasoning", usage.reasoning),
        ] {
            let labels = TokenLabels {
                provider: provider.clone(),
                model: model.clone(),
                kind,
            };
            self.tokens.get_or_create(&labels).inc_by(tokens);
        }
        if let Some(cost) = sample.cost_micro_usd {
            self.cost
                .get_or_create(&labels)
                .inc_by(micro_usd_to_dollars(cost));
        }
    }

    pub(super) fn tallies(&self) -> ModelTallies {
        self.tallies.lock().clone()
    }

    /// Adds a request to the tallies and returns the model name it is counted under.
    fn add_to_tallies(&self, sample: &ModelRequestSample<'_>) -> String {
        let mut tallies = self.tallies.lock();
        let key = (sample.provider.to_owned(), sample.model.to_owned());
        // Track a new model only after a success, since failed requests may name anything.
        let is_tracked = tallies.models.contains_key(&key)
            || (sample.status == 200 && tallies.models.len() < MAX_TRACKED_MODELS);
        let model = if is_tracked {
            sample.model.to_owned()
        } else {
            "other".to_owned()
        };
        let key = (sample.provider.to_owned(), model.clone());
        tallies.models.entry(key).or_default().add(sample);
        if let Some(caller) = sample.caller {
            let caller = tallies.callers.entry(caller.to_owned());
            caller.or_default().add(sample);
        }
        model
    }
}

impl ModelStats {
    fn add(&mut self, sample: &ModelRequestSample<'_>) {
        self.requests += 1;
        self.errors += u64::from(sample.outcome != "ok");
        self.usage = self.usage.plus(sample.usage.unwrap_or_default());
        self.cost_micro_usd += sample.cost_micro_usd.unwrap_or_default();
    }
}

/// Converts millionths of a dollar to dollars.
#[expect(clippy::cast_precision_loss, reason = "for display only, never summed")]
pub fn micro_usd_to_dollars(micro: u64) -> f64 {
    micro as f64 / 1e6
}

fn new_histogram() -> Histogram {
    Histogram::new([
        0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
    ])
}
